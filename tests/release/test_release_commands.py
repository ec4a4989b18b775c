"""The release commands as people meet them: what they show, what they refuse, and what they say to do next."""

import base64
import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from cli.driver import Done, refused, run_command
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from huggingface_hub.errors import LocalTokenNotFoundError
from release.prepared_by_hand import prepare_by_hand
from release.scan_stage import Stage
from support.toml_text import toml

from replicate.errors import ConfigInvalid, Denied, ExitCode, LocalDisk, Unreachable
from replicate.generation.disk import disk_error
from replicate.release import preparing, verbs
from replicate.release.description import ReleaseDescription, load_description
from replicate.release.documents import encode
from replicate.release.publishing.folder import FolderPlace
from replicate.release.publishing.hub_library import HubLibrary
from replicate.release.publishing.places import Payload, Published, Step
from replicate.release.scan.inputs import Identities
from replicate.release.scan.placeholders import placeholders
from replicate.release.source import SourceGeneration
from replicate.release.templates import POLICY, RELEASE, RELEASE_TEMPLATE
from replicate.signing.keys import generate
from tiers.testing.manual_clock import ManualClock

COMMANDS = (
    *("init", "prepare", "verify", "authorize", "approve", "merge", "show", "publish"),
    *("revoke", "withdraw", "log", "keygen", "sign", "verify-signature"),
)
PEOPLE = {
    "requester": ["request"],
    "approver-a": ["approve", "revoke"],
    "approver-b": ["approve"],
    "publisher": ["publish"],
}


@dataclass(frozen=True, kw_only=True)
class Office:
    """A folder with a policy, a key for each person, and a prepared release that goes to a folder beside it."""

    root: Path

    @property
    def prepared(self) -> Path:
        return self.root / "prepared"

    @property
    def published(self) -> Path:
        return self.root / "published"

    @property
    def auth(self) -> Path:
        return self.root / "auth.json"

    @property
    def policy(self) -> tuple[str, str]:
        return ("--policy", str(self.root / POLICY))

    def by(self, person: str, *, key: str | None = None) -> tuple[str, ...]:
        return (*self.policy, "--as", person, "--key", str(self.root / f"{key or person}.pem"))

    def run(self, command: str, *arguments: str | Path) -> Done:
        done = run_command("release", command, *map(str, arguments))
        assert done.code == 0, done
        return done

    def refused(self, code: ExitCode, command: str, *arguments: str | Path) -> Done:
        return refused(code, "release", command, *map(str, arguments))

    def authorize(self, *more: str) -> Done:
        return self.run("authorize", self.prepared, *self.by("requester"), "--out", self.auth, *more)

    def approve(self, *people: str) -> None:
        for person in people or ("approver-a", "approver-b"):
            self.run("approve", self.auth, self.prepared, *self.by(person))

    def unpublished(self, code: ExitCode, *more: str) -> str:
        """Publish in vain, and return the next step that is told."""
        done = run_command("release", "publish", *map(str, self.publishing(*more)))
        assert done.code == code, done
        message, step = done.err.splitlines()
        assert message.startswith("ckptier: ")
        return step.removeprefix("  next: ")

    def publishing(self, *more: str) -> tuple[str | Path, ...]:
        return (self.prepared, "--authorization", self.auth, *self.by("publisher"), *more)


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Office:
    """Furnish it; a tree made by hand would not pass the scan of those who sign (test_release_hostile.py)."""
    monkeypatch.setattr(verbs, "require_scanned", lambda *_: None)
    made = Office(root=tmp_path)
    stage = Stage(made.prepared)
    stage.description["destination"] = {"url": f"file://{made.published}", "visibility": "unmanaged"}
    (made.prepared / "scan-report.json").write_bytes(encode(stage.scan()))
    (made.prepared / "description.json").write_bytes(encode(stage.described))
    (tmp_path / "log").mkdir()
    people = "".join(
        f'[[person]]\nname = "{person}"\nkey = "{generate(tmp_path / f"{person}.pem").public.text}"\n'
        f"may = {json.dumps(may)}\n"
        for person, may in PEOPLE.items()
    )
    (tmp_path / POLICY).write_text(
        f'format = 1\nlog = "file://{tmp_path}/log"\n{people}'
        f'[[destination]]\nurl = "file://{tmp_path}/*"\nvisibility = ["unmanaged"]\n'
    )
    return made


def forged(authorization: Path, old: bytes, new: bytes) -> None:
    """Change what a record says, and leave its signature as it was."""
    document = json.loads(authorization.read_bytes())
    payload = base64.b64decode(document["record"]["payload"])
    assert payload.count(old) == 1
    document["record"]["payload"] = base64.b64encode(payload.replace(old, new)).decode()
    authorization.write_text(json.dumps(document, separators=(",", ":"), sort_keys=True))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_within_80_columns(command: str) -> None:
    done = run_command("release", command, "--help")
    assert done.code == 0
    assert "--json" in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_each_step_says_who_may_take_the_next_one(office: Office) -> None:
    assert "may approve   approver-a, approver-b\n" in office.authorize().out
    half = office.run("approve", office.auth, office.prepared, *office.by("approver-a")).out
    assert "approvals     1 of 2 needed\nmay approve   approver-b\n" in half
    whole = office.run("approve", office.auth, office.prepared, *office.by("approver-b")).out
    assert "approvals     2 of 2 needed\nmay publish   publisher\n" in whole
    assert f"file          {office.auth}" in whole
    assert "its signature holds" in office.run("show", office.auth, *office.policy).out
    done = office.run("publish", *office.publishing())
    assert f"at            file://{office.published}\n" in done.out
    log = office.run("log", *office.policy).out
    assert log.count("manifest") == 2
    assert "commit" not in log, "a folder has none: it would be the manifest's digest once more"


def test_scripts_get_digest_and_signatures_of_an_authorization(office: Office) -> None:
    made = office.authorize("--json").result()
    assert (made["requester_signature"], made["approvals"]) == ("HOLDS", [])
    office.approve("approver-a")
    shown = office.run("show", office.auth, *office.policy, "--json").result()
    assert shown["record_sha256"] == made["record_sha256"]
    (approval,) = shown["approvals"]
    assert (approval["approver"], approval["signature"]) == ("approver-a", "HOLDS")
    assert office.run("show", office.auth, "--json").result()["requester_signature"] == "UNCHECKED"


def test_a_record_that_was_changed_does_not_look_authorized(office: Office) -> None:
    office.authorize("--statement", "first")
    office.approve()
    forged(office.auth, b'"first"', b'"other"')
    shown = office.run("show", office.auth, *office.policy).out
    assert "NOT SIGNED by the key that the policy pins" in shown
    assert shown.count("OF ANOTHER RECORD, so it does not count") == 2
    assert "approvals     0 of 2 needed" in shown
    assert "may publish" not in shown


def test_an_approver_sees_the_characters_that_a_terminal_would_act_on(office: Office) -> None:
    shown = office.authorize("--statement", "\x1b[2Kharmless\nstatement     none \u202eesrever").out
    assert "statement     \\x1b[2Kharmless statement none \\u202eesrever\n" in shown


def test_an_approval_by_somebody_whom_the_policy_does_not_know_is_called_that(office: Office) -> None:
    office.authorize()
    policy = office.root / POLICY
    policy.write_text(policy.read_text().replace('name = "requester"', 'name = "somebody-else"'))
    shown = office.run("show", office.auth, *office.policy).out
    assert "NOT IN THE POLICY" in shown
    assert "POLICY        is not the one that this record was made under" in shown


@pytest.mark.parametrize("what", ["missing", "a published folder"])
def test_what_is_no_prepared_release_is_called_that(what: str, office: Office) -> None:
    office.authorize()
    office.approve()
    office.run("publish", *office.publishing())
    folder = office.published if what == "a published folder" else office.root / "missing"
    commands: dict[str, tuple[str | Path, ...]] = {
        "authorize": (folder, *office.by("requester"), "--out", office.root / "other.json"),
        "approve": (office.auth, folder, *office.by("approver-a")),
        "publish": (folder, "--authorization", office.auth, *office.by("publisher")),
        "withdraw": (folder, *office.by("approver-a"), "--reason", "it is wrong"),
        "sign": (folder, "--ec-key", office.root / "ec.pem", "--out", office.root / "model.sig"),
    }
    for command, arguments in commands.items():
        done = office.refused(ExitCode.NOTHING, command, *arguments)
        done.says(f"{folder} is no prepared release", "ckptier release prepare --out")


def test_another_persons_key_is_called_that(office: Office) -> None:
    done = office.refused(
        ExitCode.DENIED, "authorize", office.prepared, *office.by("requester", key="publisher"), "--out", office.auth
    )
    done.says("it is that of 'publisher'")
    office.authorize()
    by = office.by("approver-a", key="requester")
    office.refused(ExitCode.DENIED, "revoke", office.auth, *by, "--reason", "why").says("it is that of 'requester'")


def test_who_may_revoke_is_named(office: Office) -> None:
    office.authorize()
    done = office.refused(ExitCode.DENIED, "revoke", office.auth, *office.by("approver-b"), "--reason", "a mistake")
    done.says("'approver-b' may not revoke", "those who may: approver-a")


@pytest.mark.parametrize("command", ["revoke", "withdraw"])
def test_a_reason_says_something(command: str, office: Office) -> None:
    office.authorize()
    what = office.auth if command == "revoke" else office.prepared
    office.refused(ExitCode.USAGE, command, what, *office.by("approver-a"), "--reason", " ").says("--reason is empty")
    assert office.run("log", *office.policy).out == "nothing was published under this policy yet\n"


def test_withdrawing_from_a_folder_says_what_is_left_to_do(office: Office) -> None:
    done = office.run("withdraw", office.prepared, *office.by("approver-a"), "--reason", "the wrong data")
    done.says(f"remove {office.published} yourself")
    assert "have the withdrawal logged" not in done.out, "it is logged"


def test_a_refused_publication_says_for_each_field_what_to_do(office: Office) -> None:
    office.authorize()
    office.approve("approver-a")
    assert office.unpublished(ExitCode.TRUST) == "have it approved by more people: `ckptier release approve`"
    office.published.mkdir()
    both = office.unpublished(ExitCode.TRUST)
    assert "threshold: have it approved by more people" in both
    assert "destination.url: name another place, or remove what is there" in both


def test_a_publisher_who_is_none_is_told_who_is_one(office: Office) -> None:
    office.authorize()
    office.approve()
    done = run_command("release", "publish", str(office.prepared), "-a", str(office.auth), *office.by("approver-a"))
    assert done.code == ExitCode.TRUST
    done.says("found approver-a, whom the policy does not let publish", "those who may publish: publisher")


def test_after_an_interruption_the_next_step_is_to_resume(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    office.authorize()
    office.approve()

    def interrupted(place: FolderPlace, payload: Payload, *, expected_parent: str | None, step: Step) -> Published:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FolderPlace, "publish", interrupted)
        assert "--resume" in office.unpublished(ExitCode.INTERRUPTED)
    assert not office.published.exists()
    assert "go on with it by --resume" in office.unpublished(ExitCode.TRUST)
    office.run("publish", *office.publishing("--resume"))
    assert "it is done" in office.unpublished(ExitCode.TRUST, "--resume")


def test_set_visibility_of_a_folder_is_refused_in_its_words(office: Office) -> None:
    wish = ("--set-visibility", "public", "--commit", "1" * 40)
    done = office.refused(
        ExitCode.USAGE, "authorize", office.prepared, *office.by("requester"), "--out", office.auth, *wish
    )
    done.says(f"this is file://{office.published}", "at the place itself")


def test_a_passphrase_is_not_asked_where_nobody_sits(office: Office) -> None:
    without_terminal = subprocess.run(
        [sys.executable, "-c", "from ckptier_command import entry; entry()", "release", "keygen", "new.pem"],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=office.root,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        start_new_session=True,
    )
    assert without_terminal.returncode == ExitCode.USAGE, without_terminal
    assert without_terminal.stderr == (
        "ckptier: there is no terminal to ask for the passphrase at\n"
        "  next: give --passphrase-file FILE, or --no-passphrase\n"
    )
    assert not (office.root / "new.pem").exists()


def test_a_download_is_verified_where_there_is_no_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare_by_hand(tmp_path / "prepared")
    monkeypatch.chdir(prepared.tree)
    done = run_command("release", "verify", ".", "--no-deep")
    assert "ckptier.toml" not in done.err
    assert "ok   tensors" in done.out
    assert "--description" in done.out
    described = run_command("release", "verify", str(prepared.root), "--no-deep")
    assert described.code == ExitCode.CONFIG
    described.says("no ckptier.toml", "--no-source verifies without the source")


def test_a_verification_that_fails_names_its_checks_and_a_next_step(tmp_path: Path) -> None:
    prepared = prepare_by_hand(tmp_path / "prepared")
    (prepared.tree / "empty.txt").write_text("not any more")
    done = run_command("release", "verify", str(prepared.tree), "--no-deep")
    assert done.code == ExitCode.INTEGRITY
    assert max(len(line) for line in done.out.splitlines() if " " in line[25:]) <= 80
    message, step = done.err.splitlines()[-2:]
    assert message.startswith(f"ckptier: {prepared.tree} is not what it should be: ")
    assert "files" in message
    assert step == "  next: do not publish or use it; prepare or download it again"


def test_init_writes_both_files_once_and_overwrites_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "releases"
    done = run_command("release", "init", str(folder), "--json")
    assert done.result() == {"wrote": [str(folder / RELEASE), str(folder / POLICY)]}
    assert (folder / RELEASE).read_text() == RELEASE_TEMPLATE
    (folder / RELEASE).unlink()
    (folder / POLICY).write_text("mine")
    refused(ExitCode.USAGE, "release", "init", str(folder)).says(f"{folder / POLICY} exists")
    assert [path.name for path in folder.iterdir()] == [POLICY]
    assert (folder / POLICY).read_text() == "mine"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"format": 2}, "format: 1 is due"),
        ({"kind": "fulll"}, "kind: it has to be 'full', 'adapter' or 'custom'"),
        ({"kind": "custom"}, "kind custom: architecture.factory is missing"),
        ({"source": {"files": "payload.pt"}}, 'source.files: a list is due, as in ["one", "two"]'),
        ({"source": {"files": []}}, "source.files: empty"),
        ({"source": {"files": [7]}}, "source.files.0: text in quotes is due"),
        ({"code_version": ""}, "code_version: empty"),
        ({"version": 1.0}, "version: text in quotes is due"),
        ({"name": "a name"}, "name: does not fit the pattern ^[A-Za-z0-9]"),
        ({"nmae": "tiny"}, "nmae: unknown key"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_key_is_named_in_the_words_of_the_file(
    written: dict[str, object], said: str, office: Office, tmp_path: Path
) -> None:
    document = {**json.loads((office.prepared / "description.json").read_bytes()), **written}
    (tmp_path / RELEASE).write_text(toml(without_nothing(document)))
    with pytest.raises(ConfigInvalid) as caught:
        load_description(tmp_path / RELEASE)
    assert caught.value.message == f"{tmp_path / RELEASE}: {said}" + caught.value.message.partition(said)[2]


def test_a_file_that_is_no_authorization_is_not_taken_for_a_damaged_generation(office: Office) -> None:
    done = office.refused(ExitCode.INTEGRITY, "show", office.root / POLICY)
    done.says("is not valid JSON", "name the file that was meant")


@pytest.mark.parametrize(
    "error", [ConnectionError("Network error: 503"), ConnectionResetError("by peer"), TimeoutError("timed out")]
)
def test_a_network_that_breaks_under_xet_is_no_fault_of_the_disk(error: OSError) -> None:
    with pytest.raises(Unreachable) as caught:
        library(secret="a-token").local("sending", raising(error))
    assert "check the network" in caught.value.hint


def test_who_gave_no_token_is_not_told_that_it_is_invalid() -> None:
    denied = LocalTokenNotFoundError("Token is required")
    with pytest.raises(Denied) as caught:
        library(secret=None).local("looking", raising(denied))
    assert caught.value.hint == "no token was given: name one by --token-file or HF_TOKEN"


def test_a_full_disk_under_a_new_release_is_told_as_that(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    description = ReleaseDescription.model_validate_json((office.prepared / "description.json").read_bytes())
    never_read: Any = None

    def full(_source: SourceGeneration, _description: ReleaseDescription) -> Any:
        (staging,) = office.root.glob(".new.preparing-*")
        raise disk_error(OSError(errno.ENOSPC, "No space left on device"), staging / "tree", "writing")

    monkeypatch.setattr(preparing, "_open_export", full)
    with pytest.raises(LocalDisk) as caught:
        preparing.prepare(
            description, office.prepared / "tree", never_read, office.root / "new",
            identities=Identities(user="", host="", run="", run_uid="", places=()), waivers=(), clock=ManualClock(),
        )  # fmt: skip
    assert caught.value.hint.startswith(f"make room on the disk of {office.root}")
    assert caught.value.hint.endswith("then prepare again")
    assert not list(office.root.glob("*new*"))


def test_a_placeholder_in_the_card_is_quoted() -> None:
    assert [said for _, said in placeholders("Here is more information needed.")] == [
        "more information needed is left: 'more information needed'"
    ]


def test_what_differs_from_a_signed_tree_is_named_without_digests(office: Office) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    (office.root / "ec.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (office.root / "ec.pub").write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    bundle, pinned = office.root / "model.sig", ("--public-key", office.root / "ec.pub")
    office.run("sign", office.prepared, "--ec-key", office.root / "ec.pem", "--out", bundle)
    office.run("verify-signature", office.prepared, "--signature", bundle, *pinned)
    again = office.refused(ExitCode.USAGE, "sign", office.prepared, "--ec-key", office.root / "ec.pem", "--out", bundle)
    again.says("name a new file")
    (office.prepared / "tree" / "README.md").write_text("another card")
    done = office.refused(ExitCode.INTEGRITY, "verify-signature", office.prepared, "--signature", bundle, *pinned)
    assert done.err.splitlines()[0] == "ckptier: tree is not what was signed: README.md has other bytes"
    wrong = office.refused(
        ExitCode.CONFIG, "sign", office.prepared, "--ec-key", office.root / "publisher.pem", "--out", office.root / "2"
    )
    wrong.says("not one of `keygen`")


def library(*, secret: str | None) -> HubLibrary:
    return HubLibrary(api=huggingface_hub.HfApi(token=False), repo="acme/tiny", secret=secret, clock=ManualClock())


def raising(error: Exception) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def without_nothing(value: Any) -> Any:
    """Leave out what TOML has no word for."""
    if isinstance(value, dict):
        return {key: without_nothing(one) for key, one in value.items() if one is not None}
    return value
