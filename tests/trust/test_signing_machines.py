"""Whole machines that sign: one that writes, one that only reads, a bucket in other hands, and keys on disk."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli.driver import Project, run_command, volume
from trust.stage import end_of

from replicate.canonical import sha256
from replicate.errors import ExitCode
from replicate.layout import GenerationId, RemoteRun
from replicate.log import LogView
from replicate.logbook import Logbook
from replicate.signing.keyring import block
from replicate.signing.keys import load
from replicate.signing.trust import KEY_FILE_VARIABLE
from tiers.bodies import BytesBody
from tiers.protocol import Key
from tiers.volume import VolumeTier

SIGNING = '[trust]\nkeyring = "trust.toml"\n[signing]\nkey = "key.pem"\n'
READING = '[trust]\nkeyring = "trust.toml"\n'


def signing(folder: Path, root: Path, extra: str = SIGNING) -> Project:
    """Return a machine with its own key, which its own keyring trusts."""
    root.mkdir(exist_ok=True)
    project = Project(folder=folder, tiers={"a": volume(root)}).write(extra=extra)
    made = run_command("keys", "new", str(folder / "key.pem"), "--comment", "trainer")
    assert made.code == 0
    (folder / "trust.toml").write_text(made.out)
    return project


def log_of(root: Path) -> LogView:
    return Logbook(VolumeTier("a", root), RemoteRun.of("toy")).read()


def log_files(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((root / "toy" / "log").iterdir())]


def forge(root: Path, slot: int, data: bytes) -> None:
    """Write a slot behind everybody's back."""
    tier, key = VolumeTier("a", root), Key(f"toy/log/{slot:012d}.json")
    if (root / key).exists():
        tier.delete(key)
    tier.put(key, BytesBody(data))


@dataclass(frozen=True, slots=True)
class Scene:
    """A signed run of two generations, on a volume."""

    project: Project
    root: Path
    made: list[GenerationId]

    def reader(self, folder: Path, extra: str = READING) -> Project:
        """Return another machine, with the keyring and no key."""
        project = Project(folder=folder, tiers={"a": volume(self.root)}).write(extra=extra)
        shutil.copy(self.project.folder / "trust.toml", folder / "trust.toml")
        return project


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[GenerationId]]:
    """Make it once: each test works on a copy."""
    folder = tmp_path_factory.mktemp("signed")
    project = signing(folder / "machine", folder / "volume")
    made = project.publish(100, 200)
    assert project("replicate", "--once").code == 0
    return folder, made


@pytest.fixture
def scene(tmp_path: Path, signed: tuple[Path, list[GenerationId]]) -> Scene:
    folder, made = signed
    for name in ("machine", "volume"):
        shutil.copytree(folder / name, tmp_path / name)
    project = Project(folder=tmp_path / "machine", tiers={"a": volume(tmp_path / "volume")}).write(extra=SIGNING)
    return Scene(project, tmp_path / "volume", made)


def test_a_run_that_signs(scene: Scene, tmp_path: Path) -> None:
    """Every entry of every writer is signed: the daemon's, pins, retirements; and a reader restores from it."""
    project = scene.project
    assert project("pin", str(scene.made[0])).code == 0
    Project(folder=project.folder, tiers=project.tiers).write(extra=SIGNING, keep_last=1)
    project.publish(300)
    assert project("replicate", "--once").code == 0
    kinds = [entry.split(b'"kind":"')[1].split(b'"')[0] for entry in log_files(scene.root)]
    assert set(kinds) == {b"claim", b"commit", b"pin", b"retire"}
    assert all(entry.split(b"\n")[2].startswith(b"ed25519 ") for entry in log_files(scene.root))
    reader = scene.reader(tmp_path / "reader")
    for command in (("restore", "--to", str(tmp_path / "to")), ("list",), ("verify", "--tier", "a"), ("explain",)):
        assert reader(*command).code == 0, command
    assert (tmp_path / "to" / "model.bin").read_bytes().startswith(b"update 300\n")


def test_a_machine_without_a_key_writes_nothing_at_all(scene: Scene, tmp_path: Path) -> None:
    """Refused before the first byte goes up, also where it holds the term already."""
    reader = scene.reader(tmp_path / "reader")
    assert reader("restore").code == 0
    reader.publish(300)
    before = sorted(path for path in scene.root.rglob("*") if path.is_file())
    refused = reader("replicate", "--once")
    assert refused.code == ExitCode.TRUST
    refused.says("only reads", KEY_FILE_VARIABLE)
    pinned = reader("pin", str(scene.made[0]))
    assert pinned.code == ExitCode.TRUST
    reader("check").says("signing: there is a trust root and no signing key")
    scene.project("check").says("signing: slot 3 would be signed by key ")
    holder = Project(folder=scene.project.folder, tiers=scene.project.tiers).write(extra=READING)
    holder.publish(300)
    assert holder("replicate", "--once").code == ExitCode.TRUST
    assert sorted(path for path in scene.root.rglob("*") if path.is_file()) == before


def test_the_environment_can_name_the_key(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(folder=scene.project.folder, tiers=scene.project.tiers).write(extra=READING)
    monkeypatch.setenv(KEY_FILE_VARIABLE, str(project.folder / "key.pem"))
    project.publish(300)
    assert project("replicate", "--once").code == 0
    assert all(entry.count(b"\n") == 3 for entry in log_files(scene.root))


def test_a_forged_commit_is_passed_over_and_said(scene: Scene, tmp_path: Path) -> None:
    """Somebody with the bucket's keys appends an unsigned entry: the newest that is signed for is restored."""
    view = log_of(scene.root)
    entry, _ = Logbook(VolumeTier("a", scene.root), RemoteRun.of("toy")).entry(view.next_slot - 1)
    forged = entry.model_copy(update={"slot": view.next_slot, "prev": view.last_sha256, "nonce": "f" * 16}).encode()
    forge(scene.root, view.next_slot, forged)
    reader = scene.reader(tmp_path / "reader")
    done = reader("restore", "--to", str(tmp_path / "to"))
    assert done.code == 0
    done.says(f"entry {view.next_slot}: it is not signed", "cannot be seen")
    reader.refused(ExitCode.PARTIAL, "restore", "--to", str(tmp_path / "strict"), "--strict")
    status = reader("status", "--remote")
    assert status.code == ExitCode.TRUST
    writer = scene.project
    writer.publish(300)
    once = writer("replicate", "--once")
    assert once.code == ExitCode.TRUST
    once.says("not signed", "nothing is appended")
    (scene.root / "toy" / "log" / f"{view.next_slot:012d}.json").unlink()
    assert writer("replicate", "--once").code == 0, "what nobody vouches for was not remembered"


def test_a_log_that_nobody_vouches_for_restores_nothing(scene: Scene, tmp_path: Path) -> None:
    """All of it unsigned: forged from scratch by whoever has the bucket, or written before signing began."""
    reader = scene.reader(tmp_path / "reader")
    for slot, entry in enumerate(log_files(scene.root)):
        forge(scene.root, slot, b"\n".join([*entry.split(b"\n")[:2], b""]))
    for command in (
        ("restore", "--to", str(tmp_path / "to")),
        ("restore", "--if-absent", "--fresh-ok"),
        ("restore", "--generation", str(scene.made[0])),
    ):
        reader.refused(ExitCode.TRUST, *command).says("not signed", "keys adopt")
    assert not (tmp_path / "to").exists()
    assert not reader.local.generations.exists()


def test_an_unsigned_run_goes_on_signed(tmp_path: Path) -> None:
    """Replicate unsigned, make a key, pin what is there, go on; and a reader needs the same two lines."""
    root = tmp_path / "volume"
    root.mkdir()
    project = Project(folder=tmp_path / "machine", tiers={"a": volume(root)}).write()
    project.publish(100)
    assert project("replicate", "--once").code == 0
    project = signing(tmp_path / "machine", root)
    project.publish(200)
    refused = project("replicate", "--once")
    assert refused.code == ExitCode.TRUST
    refused.says("keys adopt")
    printed = project("keys", "adopt")
    assert printed.code == 0
    printed.says("1 generations", f'# add to [trust]\nunsigned_until = {{ "a" = "{end_of(log_of(root))}" }}')
    (line,) = (line for line in printed.out.splitlines() if line.startswith("unsigned_until"))
    project.write(extra=f'[trust]\nkeyring = "trust.toml"\n{line}\n[signing]\nkey = "key.pem"\n')
    assert project("replicate", "--once").code == 0
    assert [entry.count(b"\n") for entry in log_files(root)] == [2, 2, 3]
    told = project("explain")
    told.says("somebody with this bucket's keys could still:", "change nothing up to slot 1 of a")
    assert project("keys", "adopt", "--tier", "b").code == ExitCode.CONFIG


def test_rotation_by_what_the_command_prints(scene: Scene) -> None:
    """Paste, and go on with the new key; the old one is worth nothing from there on, and nothing below."""
    project = scene.project
    anchor = end_of(log_of(scene.root))
    new = project.folder / "new.pem"
    assert run_command("keys", "new", str(new)).code == 0
    printed = project("keys", "rotate", str(new))
    assert printed.code == 0
    old = (project.folder / "trust.toml").read_text()
    printed.says(
        "# add to [[key]]", f'last_slot = {{ "a" = "{anchor}" }}', f'first_slot = {{ "a" = {anchor.slot + 1} }}'
    )
    added = "\n".join(line for line in printed.out.splitlines() if line.startswith("last_slot"))
    block_of_new = printed.out[printed.out.index("[[key]]\nid") :]
    (project.folder / "trust.toml").write_text(f"{old}\n{added}\n{block_of_new}")
    project.publish(300)
    late = project("replicate", "--once")
    assert late.code == ExitCode.CONFIG
    late.says(f"is not trusted for slot {anchor.slot + 1}")
    shutil.move(new, project.folder / "key.pem")
    assert project("replicate", "--once").code == 0
    assert not log_of(scene.root).damaged
    assert project("verify", "--tier", "a").code == 0


def test_a_key_that_others_can_read_signs_nothing(scene: Scene) -> None:
    project = scene.project
    (project.folder / "key.pem").chmod(0o640)
    project.publish(300)
    before = log_files(scene.root)
    refused = project("replicate", "--once")
    assert refused.code == ExitCode.DENIED
    refused.says("can be read by others", "chmod 600")
    assert log_files(scene.root) == before


def test_the_private_key_is_nowhere_but_in_its_file(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """Not in the bucket, the store, the journal, output, errors, or what is printed of a key."""
    project = scene.project
    secret = [line for line in (project.folder / "key.pem").read_text().splitlines() if "-----" not in line]
    (project.folder / "bad.pem").write_text((project.folder / "key.pem").read_text().replace("-----END", "----END"))
    (project.folder / "bad.pem").chmod(0o600)
    shown = [
        project("replicate", "--once", "--json", "--verbose"),
        project("explain", "--json"),
        project("status", "--json"),
        run_command("keys", "show", str(project.folder / "key.pem"), "--json"),
        run_command("keys", "show", str(project.folder / "bad.pem"), "--json"),
        run_command("keys", "new", str(project.folder / "key.pem")),
        Project(folder=project.folder, tiers=project.tiers).write(extra='[signing]\nkey = "bad.pem"\n' + READING)(
            "pin", str(scene.made[0]), "--json"
        ),
    ]
    assert [one.code for one in shown] == [0, 0, 0, 0, 10, 2, 10]
    everywhere = "".join(one.out + one.err for one in shown) + caplog.text
    files = [path for folder in (scene.root, project.local.root) for path in folder.rglob("*") if path.is_file()]
    for line in secret:
        assert line not in everywhere
        assert not any(line.encode() in path.read_bytes() for path in files)
    found = load(project.folder / "key.pem")
    assert repr(found) == f"SigningKey({found.public.fingerprint})"
    assert block(found.public) in run_command("keys", "show", str(project.folder / "key.pem")).out


def test_a_key_with_a_passphrase(scene: Scene) -> None:
    project = scene.project
    (project.folder / "passphrase").write_text("correct horse\n")
    (project.folder / "passphrase").chmod(0o600)
    (project.folder / "key.pem").unlink()
    made = run_command(
        "keys", "new", str(project.folder / "key.pem"), "--passphrase-file", str(project.folder / "passphrase")
    )
    with (project.folder / "trust.toml").open("a") as keyring:
        keyring.write(made.out)
    project.publish(300)
    assert project("replicate", "--once").code == ExitCode.DENIED
    project.write(extra=SIGNING + 'passphrase_file = "passphrase"\n')
    assert project("replicate", "--once").code == 0


def test_manifests_and_objects_are_bound_through_the_entry(scene: Scene, tmp_path: Path) -> None:
    """Signing covers the log; the log names the manifest's digest, and the manifest those of the files."""
    entry = next(entry for entry in log_files(scene.root) if str(scene.made[1]).encode() in entry)
    manifest = next(scene.root.glob(f"toy/generations/{scene.made[1]}*/manifest.json"))
    assert sha256(manifest.read_bytes()).encode() in entry.split(b"\n")[0]
    manifest.write_bytes(manifest.read_bytes().replace(b'"mode":420', b'"mode":511'))
    done = scene.reader(tmp_path / "reader")("restore", "--to", str(tmp_path / "to"))
    assert done.code == 0
    assert (tmp_path / "to" / "model.bin").read_bytes().startswith(b"update 100\n"), "the changed one is passed over"
