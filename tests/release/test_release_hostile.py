"""What somebody tried, to have published what must not be, to be shown a token, to be believed: each once worked."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from pydantic import ValidationError
from release.authorized_by_hand import (
    APPROVERS,
    HEAD,
    OUTSIDER,
    PUBLISHER,
    REQUESTER,
    REVOKER,
    Scene,
    key_of,
    sealed_again,
)
from release.prepare_stage import Tiny, architectures_at_hand, refusal
from release.prepared_by_hand import reseal as forge
from release.publish_hub_stage import LIBRARY_WARNING, OLD, TAG, HubStage, hub_destination, hub_stage
from release.publish_stage import Steps, carry, kinds, set_stage
from release.verifying_by_hand import FIRST, INDEX, detail, quick, reseal, sharded
from support.hub import Action, Fault, Gate, HubServer, When
from support.hub import Visibility as Seen
from support.hub.client import isolate_library
from support.releases import Built, variant

from replicate import RunStore
from replicate.errors import CkptierError, Denied, IntegrityFailure, TrustFailure, UsageError
from replicate.formats.safetensors import parse_header
from replicate.release.authorization import Act
from replicate.release.authorizing import parse_authorization, read_authorization, write_authorization
from replicate.release.bundle import MANIFEST
from replicate.release.deciding import NotAuthorized
from replicate.release.destination import Destination, Gating
from replicate.release.documents import encode
from replicate.release.findings import Rule, Waiver
from replicate.release.history import EntryKind
from replicate.release.releaselog import revoke
from replicate.release.subject import observe
from replicate.release.verbs import Desk, Signer, Wish
from replicate.release.verifying.checks import Verdict
from replicate.release.verifying.verifying import VerifyReleaseReport
from tiers.testing import ManualClock

pytestmark = pytest.mark.filterwarnings(LIBRARY_WARNING)
SECRET = "hf_" + "nobodyElseMaySeeThis" * 2
PATIENCE = 20.0
"""Seconds that a verification may take before it counts as hanging."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubStage]:
    with hub_stage(tmp_path) as running:
        yield running


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return sharded(tmp_path)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[tuple[Scene, HubServer, Desk]]:
    """Return a scene for one Hub, another that the policy does not name, and somebody with a token."""
    with HubServer() as ours, HubServer() as theirs, pytest.MonkeyPatch.context() as patch:
        isolate_library(patch, tmp_path / "hf-home", endpoint=ours.url)
        scene = set_stage(tmp_path / "stage", hub_destination(ours))
        yield scene, theirs, Desk(tmp_path / "stage" / "policy.toml", clock=scene.clock, token=SECRET)
        huggingface_hub.close_session()


def test_a_forged_authorization_has_no_token_sent_to_a_host_of_its_choice(
    elsewhere: tuple[Scene, HubServer, Desk],
) -> None:
    scene, theirs, desk = elsewhere
    record = scene.authorized(expected_parent=None).record
    destination = record.destination.model_copy(update={"endpoint": theirs.url})
    forged = sealed_again(record.model_copy(update={"destination": destination}), requester=OUTSIDER)
    publisher = Signer(name=PUBLISHER, key=key_of(PUBLISHER))
    for resume in (False, True):
        with pytest.raises(NotAuthorized, match=r"destination\.endpoint"):
            desk.publish(scene.prepared, forged, publisher, resume=resume, step=Steps())
    assert theirs.requests == []


def test_nor_does_a_description(elsewhere: tuple[Scene, HubServer, Desk], tmp_path: Path) -> None:
    scene, theirs, desk = elsewhere
    path = scene.prepared.description
    document = json.loads(path.read_bytes())
    document["destination"]["endpoint"] = theirs.url
    path.write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))
    who = Signer(name=REVOKER, key=key_of(REVOKER))
    wish = Wish(act=Act.PUBLISH, statement="", valid_for=timedelta(days=1))
    with pytest.raises(Denied, match=r"destination\.endpoint"):
        desk.authorize(scene.prepared, wish, who, tmp_path / "auth.json")
    with pytest.raises(Denied, match=r"destination\.endpoint"):
        desk.withdraw(scene.prepared, reason="a test", who=who, step=Steps())
    assert theirs.requests == []


@pytest.mark.parametrize("before", ["new", "old"])
def test_what_was_shown_by_somebody_else_and_is_not_what_was_sent_is_hidden(before: str, hub: HubStage) -> None:
    head = hub.made_before(OLD) if before == "old" else None
    corrupt = [Fault(operation="lfs-get", nth=nth, action=Action.CORRUPT, when=When.MID_BODY) for nth in range(1, 9)]
    hub.hub.inject(*corrupt)
    steps = Steps({"read": lambda: setattr(hub.repo, "visibility", Seen.PUBLIC)})
    with pytest.raises(IntegrityFailure, match=r"hands out other bytes than were sent.*made public.*private again"):
        carry(hub.scene, hub.scene.authorized(expected_parent=head), hub.place(), steps=steps)
    assert steps.ran
    assert hub.hub.fired
    assert not hub.exists if before == "new" else hub.repo.visibility is Seen.PRIVATE
    assert kinds(hub.scene)[-1] is EntryKind.FAILED


def test_what_is_shown_right_after_the_commit_is_hidden_before_it_is_read_back(hub: HubStage) -> None:
    head = hub.made_before(OLD)
    place = hub.place()
    made = place.library.api.create_commit

    def commit_and_show(*given: Any, **named: Any) -> Any:
        done = made(*given, **named)
        hub.repo.visibility = Seen.PUBLIC
        return done

    place.library.api.create_commit = commit_and_show  # type: ignore[method-assign]
    steps = Steps()
    with pytest.raises(TrustFailure, match="was made public while it was published; it is private again"):
        carry(hub.scene, hub.scene.authorized(expected_parent=head), place, steps=steps)
    assert hub.repo.visibility is Seen.PRIVATE
    assert not any(step.startswith("read") for step in steps.told)


def test_gating_that_changes_meanwhile_is_not_written_down_as_it_was(tmp_path: Path) -> None:
    with hub_stage(tmp_path, gating=Gating.MANUAL) as hub:
        head = hub.made_before(OLD)
        hub.repo.gated = Gate.MANUAL
        steps = Steps({"send": lambda: setattr(hub.repo, "gated", Gate.OPEN)})
        with pytest.raises(TrustFailure, match="gating: acme/tiny is none by now, authorized was manual"):
            carry(hub.scene, hub.scene.authorized(expected_parent=head), hub.place(), steps=steps)
        assert hub.repo.head() == head


def test_a_tag_is_no_branch(hub: HubStage) -> None:
    head = hub.made_before(OLD)
    hub.api.create_branch("acme/tiny", branch=TAG, revision=head)
    with pytest.raises(TrustFailure, match=r"tag: v1\.0 is the name of a branch of acme/tiny"):
        carry(hub.scene, hub.scene.authorized(expected_parent=head), hub.place())
    assert hub.repo.head() == head


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"tag": "main"}, "it is the branch's name"),
        ({"tag": "a" * 40}, "it reads as the id of a commit"),
        ({"revision": "a" * 40}, "it reads as the id of a commit"),
        ({"revision": "refs/pr/1"}, "it is no name"),
        ({"revision": "a/../b"}, "it is no name"),
        ({"endpoint": "https://user:word@hub.example"}, "endpoint: holds credentials"),
        *(
            ({"url": f"hf://acme/{name}"}, "a repository is hf://owner/name")
            for name in ("%74iny", "tiny?x=1", "tiny#x", "tiny ", "t\u0456ny", "..", "a--b", "tiny/")
        ),
    ],
)
def test_a_destination_means_one_thing(said: dict[str, str], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Destination.model_validate({"url": "hf://acme/tiny", "visibility": "private"} | said)


def in_time(act: Callable[[], VerifyReleaseReport]) -> VerifyReleaseReport:
    """Run something that could wait for ever; it ends with this process at the latest."""
    done: list[VerifyReleaseReport] = []
    thread = threading.Thread(target=lambda: done.append(act()), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert done, "it hangs"
    return done[0]


@pytest.mark.parametrize("name", ["config.json", "README.md", INDEX, MANIFEST, FIRST])
def test_a_fifo_in_a_tree_is_not_waited_for(tree: Path, name: str) -> None:
    (tree / name).unlink()
    os.mkfifo(tree / name)
    assert not in_time(lambda: quick(tree, deep=True)).ok


@pytest.mark.parametrize("name", ["config.json", INDEX, MANIFEST])
def test_a_link_in_a_tree_is_not_read(tree: Path, name: str) -> None:
    """An endless file behind it would fill the memory; another one would be shown in what is said of it."""
    (tree / name).rename(tree.parent / name)
    (tree / name).symlink_to(tree.parent / name)
    report = in_time(lambda: quick(tree))
    assert {check.name for check in report.failed} & {"config", "shards", "manifest"}


def test_a_config_that_is_nothing_but_depth_is_a_finding(tree: Path) -> None:
    (tree / "config.json").write_text("[" * 100_000)
    assert "config.json is missing or is no JSON object" in detail(quick(reseal(tree)), "config")


@pytest.mark.parametrize("name", [".gitattributes.d/evil.py", ".gitattributes.py", ".cache/other/evil.py"])
def test_only_what_the_hub_adds_is_passed_over_in_a_download(tree: Path, name: str) -> None:
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text("print('nobody authorized this')\n")
    assert f"{name} is not in the manifest" in detail(quick(tree, downloaded=True), "files")


def test_a_name_does_nothing_to_a_terminal(tree: Path) -> None:
    (tree / "\x1b[2J\x1b[1;1Hok").write_text("x")
    said = detail(quick(tree), "files")
    assert said.isprintable()
    assert "\\x1b[2J" in said


def test_a_shape_of_a_million_lengths_is_not_multiplied() -> None:
    """Seven megabytes of header kept a verifier busy for longer than anybody waits."""
    entry = {"dtype": "F32", "shape": [2**52] * 400_000, "data_offsets": [0, 0]}
    raw = json.dumps({"t": entry}).encode()
    with pytest.raises(IntegrityFailure, match="400000 dimensions, at most 128 are read"):
        parse_header(raw, len(raw) + 8, what="x")


@pytest.mark.parametrize("field", ["requested_at", "not_before", "expires_at"])
@pytest.mark.parametrize(
    "moment",
    [
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
        datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=12))),
    ],
)
def test_a_time_at_the_end_of_the_calendar_is_named(tmp_path: Path, field: str, moment: datetime) -> None:
    scene = Scene.set(tmp_path)
    altered = sealed_again(scene.authorized().record.model_copy(update={field: moment}))
    with pytest.raises(IntegrityFailure, match=f"{field}: "):
        parse_authorization(altered.encode(), what="the authorization")


def test_a_time_that_there_is_not_is_not_asked_for(tmp_path: Path) -> None:
    scene = Scene.set(tmp_path)
    for asked in ({"not_before": datetime(9999, 12, 31, tzinfo=UTC)}, {"valid_for": timedelta(days=999_999_999)}):
        with pytest.raises(UsageError, match="expires_at: there is no such time"):
            scene.requested(**asked)
    end = datetime.max.replace(tzinfo=UTC)
    with pytest.raises(ValidationError, match="expires"):
        Waiver(rule=Rule.LICENSE, path="x", reason="for ever and ever", author="author", expires=end)


@pytest.mark.parametrize(("said", "field"), [({"reason": "x" * 20_000}, "detail"), ({"reason": "\ud800"}, "detail")])
def test_a_revocation_that_cannot_be_written_down_is_refused_by_its_field(
    tmp_path: Path, said: dict[str, str], field: str
) -> None:
    scene = Scene.set(tmp_path)
    with pytest.raises(UsageError, match=f"{field}: "):
        revoke(scene.log, "0" * 64, who=REVOKER, key=key_of(REVOKER), clock=scene.clock, **said)
    assert scene.history.logged == ()


@pytest.mark.parametrize("name", ["x" * 2_000, "a\ud800b", "a\nb", "a\x1b[2Jb", "a\0b"])
def test_a_tensor_whose_name_no_document_holds_is_refused_by_it(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    architectures_at_hand(monkeypatch, tiny)
    built = variant(tiny("adapter"), tmp_path / "described", {"adapter.base_path": None, "weights.omit": []})
    store = RunStore(tmp_path / "runs" / "hostile", clock=ManualClock())
    publication = store.publish(next_update=2)
    with publication as directory:
        torch.save({"model": {f"base_model.model.{name}.lora_A.weight": torch.ones(2)}}, directory / "payload.pt")
    assert publication.generation is not None
    hostile: Built = replace(built, run=store.local.root, generation=publication.generation.id)
    error: CkptierError = refusal(hostile, tmp_path / "out")
    assert error.message.isprintable()
    assert "at most 1024, all printable" in error.message


@pytest.mark.parametrize(
    ("kind", "name"),
    [("gpt2", "adapter_config.json"), ("adapter", "config.json"), ("custom", "generation_config.json")],
)
def test_a_further_file_is_none_that_loaders_go_by(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    """An adapter_config.json beside a whole model has loaders fetch another base, and put an adapter over it."""
    architectures_at_hand(monkeypatch, tiny)
    built = variant(tiny(kind), tmp_path / "described", {"files.other": [f"more/{name}"]})
    (built.folder / "more").mkdir()
    (built.folder / "more" / name).write_text('{"peft_type": "LORA", "base_model_name_or_path": "other/base"}')
    error = refusal(built, tmp_path / "out")
    assert error.message.startswith(f"files.other.0: more/{name} would be published as {name}")
    assert f"files.{name.removesuffix('.json')}" in error.hint


def test_a_manifest_with_such_a_shape_is_not_read(tree: Path) -> None:
    document = json.loads((tree / MANIFEST).read_bytes())
    document["tensors"][0]["shape"] = [2**52] * 1_000
    (tree / MANIFEST).write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))
    report = in_time(lambda: quick(tree))
    assert report.checks[0].verdict is Verdict.FAILED
    assert "tensors.0.shape" in report.checks[0].detail


def test_the_first_parent_is_still_compared(hub: HubStage) -> None:
    """A place that the policy names is looked at, and what it says decides."""
    with pytest.raises(NotAuthorized, match="expected_parent"):
        carry(hub.scene, hub.scene.authorized(expected_parent=HEAD), hub.place())
    assert hub.hub.writes == []
    assert encode(hub.scene.observed.manifest) == hub.scene.observed.manifest_bytes


def test_a_forged_report_is_neither_asked_for_nor_approved_nor_published(
    elsewhere: tuple[Scene, HubServer, Desk], tmp_path: Path
) -> None:
    """A report lies in a folder, where anybody may write that nothing was found: those who sign look again."""
    scene, _, desk = elsewhere
    secret = "AKIA" + "QWERTYUIOPASDFGH"
    (scene.prepared.tree / "optimizer.pt").write_bytes(b"\x80\x04.")
    (scene.prepared.tree / "LICENSE").write_text(f"Permission is granted to whoever has {secret}.\n")
    forge(scene.prepared)  # manifest and report fit the tree again, and the report says that nothing was found
    scene.observed = observe(scene.prepared)
    assert scene.observed.report.blocking == ()
    words = "scan-report.json does not tell what is there"
    wish = Wish(act=Act.PUBLISH, statement="", valid_for=timedelta(days=1))
    with pytest.raises(IntegrityFailure, match=words):
        desk.authorize(scene.prepared, wish, Signer(name=REQUESTER, key=key_of(REQUESTER)), tmp_path / "auth.json")
    authorization = scene.requested(expected_parent=None)
    write_authorization(authorization, tmp_path / "auth.json")
    approver = Signer(name=APPROVERS[0], key=key_of(APPROVERS[0]))
    with pytest.raises(IntegrityFailure, match=words):
        desk.approve(tmp_path / "auth.json", scene.prepared, approver)
    assert read_authorization(tmp_path / "auth.json").approvals == ()
    publisher = Signer(name=PUBLISHER, key=key_of(PUBLISHER))
    steps = Steps()
    with pytest.raises(IntegrityFailure, match=words) as caught:
        desk.publish(scene.prepared, scene.authorized(expected_parent=None), publisher, resume=False, step=steps)
    assert secret not in caught.value.message
    assert steps.told == ["scan the prepared release"]
    assert kinds(scene) == []
