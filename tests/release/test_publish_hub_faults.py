"""The Hub failing in every way that it can: nothing half visible, nothing twice, and no secret told."""

import logging
import traceback
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants
from huggingface_hub.utils import _http
from huggingface_hub.utils import logging as library_logging
from release.authorized_by_hand import PUBLISHER
from release.prepared_by_hand import reseal
from release.publish_hub_stage import LIBRARY_WARNING, OLD, REPO, TAG, HubStage, hub_stage
from release.publish_stage import Steps, carry, entries, kinds, released
from support.hub import Action, Fault, Operation, When, rate_limited
from support.hub import Visibility as Seen

from replicate.errors import (
    CapabilityMissing,
    CkptierError,
    ConfigInvalid,
    Denied,
    IntegrityFailure,
    LocalDisk,
    NothingFound,
    TrustFailure,
    Unreachable,
)
from replicate.release.authorization import Act
from replicate.release.authorizing import Authorization
from replicate.release.destination import Gating, Visibility
from replicate.release.history import EntryKind
from replicate.release.publishing.hub_library import TIMEOUT, HubLibrary, reined
from replicate.release.publishing.publishing import PublishReport, change_visibility
from replicate.release.subject import observe
from tiers.testing import ManualClock

pytestmark = pytest.mark.filterwarnings(LIBRARY_WARNING)
MANY = 40


@pytest.fixture
def stage(tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[HubStage]:
    """Run a Hub; afterwards its token must stand in no log, no entry and no output."""
    with caplog.at_level(logging.DEBUG), hub_stage(tmp_path) as running:
        yield running
        told = capfd.readouterr()
        written = " ".join(entry.model_dump_json() for entry in entries(running.scene))
        for text in (caplog.text, told.out, told.err, written):
            assert running.token not in text
            assert "signature=" not in text


def fresh(stage: HubStage) -> Authorization:
    return stage.scene.authorized(expected_parent=None)


def everywhere(operation: str, **said: object) -> list[Fault]:
    """Return a fault for each of many requests of an operation."""
    return [Fault(operation=operation, nth=nth, **said) for nth in range(1, MANY)]  # type: ignore[arg-type]


def fails(
    stage: HubStage, kind: type[CkptierError], words: str, authorization: Authorization, *, steps: Steps | None = None
) -> CkptierError:
    """Publish, and return the failure; the token stands nowhere in it, nor in what was told."""
    steps = steps or Steps()
    with pytest.raises(kind, match=words) as caught:
        carry(stage.scene, authorization, stage.place(), steps=steps)
    shown = "".join(traceback.format_exception(caught.value)) + caught.value.hint + "".join(steps.told)
    assert stage.token not in shown
    assert caught.value.hint
    assert caught.value.exit_code is kind.exit_code
    assert kinds(stage.scene)[-1] is EntryKind.FAILED
    return caught.value


def resumed(stage: HubStage, authorization: Authorization) -> PublishReport:
    stage.hub.forget_requests()
    report = carry(stage.scene, authorization, stage.place(), resume=True)
    assert stage.files(report.commit) == released(stage.scene)
    assert stage.repo.tags == {TAG: report.commit}
    assert kinds(stage.scene)[-1] is EntryKind.PUBLISHED
    return report


STATUSES: dict[int, type[CkptierError]] = {
    400: ConfigInvalid, 401: Denied, 402: Denied, 403: Denied, 404: NothingFound, 408: Unreachable, 409: TrustFailure,
    412: TrustFailure, 413: CapabilityMissing, 418: CkptierError, 422: ConfigInvalid, 429: Unreachable,
    500: Unreachable, 502: Unreachable, 503: Unreachable, 504: Unreachable, 507: Unreachable,
}  # fmt: skip


@pytest.mark.parametrize("status", STATUSES)
def test_a_commit_that_is_answered_by_a_status_leaves_nothing(status: int, stage: HubStage) -> None:
    stage.hub.inject(Fault(operation="commit", action=Action.STATUS, status=status, body=b'{"error": "no"}'))
    with pytest.raises(STATUSES[status], match=f"the Hub answered {status} no") as caught:
        carry(stage.scene, fresh(stage), stage.place())
    assert type(caught.value) is STATUSES[status]
    assert len(stage.hub.fired) == 1
    assert not stage.exists
    assert "delete-repo" in stage.hub.operations()
    assert kinds(stage.scene) == [EntryKind.BEGUN, EntryKind.FAILED]


@pytest.mark.parametrize("fault", ["lost", "500 and done"])
def test_a_commit_whose_reply_is_lost_is_found_and_not_made_twice(fault: str, stage: HubStage) -> None:
    action = Action.DROP if fault == "lost" else Action.STATUS
    stage.hub.inject(Fault(operation="commit", action=action, status=500, when=When.AFTER))
    steps = Steps()
    report = carry(stage.scene, fresh(stage), stage.place(), steps=steps)
    assert len(stage.hub.fired) == 1
    assert len(stage.repo.history) == 2
    assert stage.repo.tags == {TAG: report.commit}
    assert f"the reply was lost; the commit is there: {report.commit}" in steps.told


def test_a_commit_that_does_not_arrive_leaves_an_older_repository_as_it_was(stage: HubStage) -> None:
    head = stage.made_before(OLD)
    stage.hub.inject(Fault(operation="commit", action=Action.DROP))
    authorization = stage.scene.authorized(expected_parent=head)
    error = fails(stage, Unreachable, "whether the commit was made is not known", authorization)
    assert "network" in error.hint
    assert (stage.repo.head(), stage.repo.tags) == (head, {})
    assert stage.files("main") == OLD
    resumed(stage, authorization)


def test_somebody_elses_commit_is_not_taken_for_the_lost_one(stage: HubStage) -> None:
    head = stage.made_before(OLD)
    stage.hub.inject(Fault(operation="commit", action=Action.DROP))
    place = stage.place()
    wait = place.library.clock.wait

    class Meddling(ManualClock):
        def wait(self, seconds: float, stop: object = None) -> bool:
            stage.api.upload_file(path_or_fileobj=b"x", path_in_repo="x.txt", repo_id=REPO)
            return wait(seconds)

    object.__setattr__(place.library, "clock", Meddling())
    with pytest.raises(TrustFailure, match="somebody else committed"):
        carry(stage.scene, stage.scene.authorized(expected_parent=head), place)
    assert stage.repo.tags == {}


def test_a_branch_that_moves_between_look_and_commit_is_a_412(stage: HubStage) -> None:
    head = stage.made_before(OLD)

    def move() -> None:
        stage.api.upload_file(path_or_fileobj=b"x", path_in_repo="x.txt", repo_id=REPO)

    steps = Steps({"commit 7 files": move})
    fails(stage, TrustFailure, "412", stage.scene.authorized(expected_parent=head), steps=steps)
    assert [commit.title for commit in stage.repo.history[:2]] == ["Upload x.txt with huggingface_hub", "before"]
    assert stage.repo.tags == {}


@pytest.mark.parametrize("operation", ["preupload", "lfs-batch", "lfs-put", "lfs-verify"])
def test_files_that_cannot_be_sent_leave_nothing(operation: str, stage: HubStage) -> None:
    stage.hub.inject(*everywhere(operation, action=Action.STATUS, status=503))
    fails(stage, Unreachable, "while sending the files", fresh(stage))
    assert stage.hub.fired
    assert not stage.exists


@pytest.mark.parametrize("operation", ["preupload", "lfs-batch", "lfs-put", "lfs-verify", "refs", "repo-info", "tree"])
@pytest.mark.parametrize("status", [429, 500])
def test_what_passes_is_survived(operation: str, status: int, stage: HubStage) -> None:
    headers = rate_limited(2) if status == 429 else {}
    stage.hub.inject(Fault(operation=operation, action=Action.STATUS, status=status, headers=headers))
    carry(stage.scene, fresh(stage), stage.place())
    assert len(stage.hub.fired) == 1


@pytest.mark.parametrize("operation", ["repo-info", "create-repo", "preupload", "lfs-put", "get-file", "create-tag"])
@pytest.mark.parametrize("headers", [rate_limited(3600), {"Retry-After": "3600"}])
def test_a_hub_that_asks_for_an_hour_is_not_waited_for(
    operation: str, headers: dict[str, str], stage: HubStage
) -> None:
    stage.hub.inject(*everywhere(operation, action=Action.STATUS, status=429, headers=headers))
    with pytest.raises(Unreachable, match="asks to wait 3600 seconds") as caught:
        carry(stage.scene, fresh(stage), stage.place())
    assert "3600 seconds" in caught.value.hint
    assert len(stage.hub.fired) == 1


def test_bytes_that_arrive_damaged_once_are_read_again(stage: HubStage) -> None:
    stage.hub.inject(
        Fault(operation="lfs-get", action=Action.CORRUPT, when=When.MID_BODY),
        Fault(operation="get-file", action=Action.CORRUPT, when=When.MID_BODY, key="*/LICENSE"),
    )
    carry(stage.scene, fresh(stage), stage.place())
    assert len(stage.hub.fired) == 2


@pytest.mark.parametrize(
    ("operation", "key", "name"),
    [("lfs-get", "*", "model.safetensors"), ("get-file", "*/README.md", r"README\.md")],
)
def test_wrong_bytes_that_come_back_are_not_tagged(operation: str, key: str, name: str, stage: HubStage) -> None:
    stage.hub.inject(*everywhere(operation, action=Action.CORRUPT, when=When.MID_BODY, key=key))
    fails(stage, IntegrityFailure, f"{name}: the Hub hands out other bytes", fresh(stage))
    assert len(stage.hub.fired) == 2
    assert not stage.exists
    assert "create-tag" not in stage.hub.operations()


def test_wrong_bytes_in_an_older_repository_are_named_and_neither_tagged_nor_shown(stage: HubStage) -> None:
    head = stage.made_before(OLD)
    stage.hub.inject(*everywhere("lfs-get", action=Action.CORRUPT, when=When.MID_BODY))
    error = fails(stage, IntegrityFailure, "without a tag: do not use it", stage.scene.authorized(expected_parent=head))
    assert stage.repo.head() in error.message
    assert (stage.repo.tags, stage.repo.visibility) == ({}, Seen.PRIVATE)


def test_a_stream_that_breaks_goes_on_where_it_stopped(stage: HubStage) -> None:
    (stage.scene.prepared.tree / "tokenizer.model").write_bytes(b"\0" + b"noise" * 200_000)
    reseal(stage.scene.prepared)
    stage.scene.observed = observe(stage.scene.prepared)
    stage.hub.inject(
        Fault(operation="lfs-get", action=Action.DROP, when=When.MID_BODY, nth=2),
        Fault(operation="lfs-get", action=Action.TRUNCATE, when=When.MID_BODY, nth=3),
    )
    carry(stage.scene, fresh(stage), stage.place())
    assert len(stage.hub.fired) == 2
    asked = [dict(seen.headers) for seen in stage.hub.requests if seen.operation is Operation.LFS_GET]
    assert [one for headers in asked for name, one in headers.items() if name.lower() == "range"]


def test_a_commit_that_cannot_be_read_back_stays_untagged_until_it_is_resumed(stage: HubStage) -> None:
    authorization = fresh(stage)
    breaks = [Fault(operation="get-file", action=Action.DROP, nth=nth) for nth in range(1, 6)]
    stage.hub.inject(*breaks)
    fails(stage, Unreachable, "without a tag: go on with --resume", authorization)
    assert len(stage.hub.fired) == len(breaks)
    assert (len(stage.repo.history), stage.repo.tags, stage.repo.visibility) == (2, {}, Seen.PRIVATE)
    commit = stage.repo.head()
    report = resumed(stage, authorization)
    assert report.commit == commit
    assert [seen.operation for seen in stage.hub.writes] == [Operation.CREATE_TAG]
    assert report.read_back == report.files


@pytest.mark.parametrize("fault", ["lost", "refused", "failed"])
def test_a_tag_is_made_once_or_the_failure_says_that_it_is_missing(fault: str, stage: HubStage) -> None:
    authorization = fresh(stage)
    if fault == "lost":
        stage.hub.inject(Fault(operation="create-tag", action=Action.DROP, when=When.AFTER))
        report = carry(stage.scene, authorization, stage.place())
        assert stage.repo.tags == {TAG: report.commit}
        return
    status = 403 if fault == "refused" else 500
    count = 1 if fault == "refused" else 4
    stage.hub.inject(
        *[Fault(operation="create-tag", action=Action.STATUS, status=status, nth=nth + 1) for nth in range(count)]
    )
    fails(stage, Denied if fault == "refused" else Unreachable, "without a tag: go on with --resume", authorization)
    assert (len(stage.hub.fired), stage.repo.tags) == (count, {})
    resumed(stage, authorization)


def test_a_tag_that_somebody_else_makes_meanwhile_is_not_moved(stage: HubStage) -> None:
    head = stage.made_before(OLD)

    def take() -> None:
        stage.api.create_tag(REPO, tag=TAG, revision=head)

    steps = Steps({"tag ": take})
    fails(stage, TrustFailure, f"tag: {TAG} names {head}", stage.scene.authorized(expected_parent=head), steps=steps)
    assert stage.repo.tags == {TAG: head}


def test_a_repository_whose_creation_is_unknown_is_gone_on_with(stage: HubStage) -> None:
    authorization = fresh(stage)
    stage.hub.inject(Fault(operation="create-repo", action=Action.DROP, when=When.AFTER))
    fails(stage, Unreachable, "an empty private repository acme/tiny may have been left", authorization)
    assert stage.repo.files() == [".gitattributes"]
    resumed(stage, authorization)


def test_a_repository_that_appears_meanwhile_is_not_taken_over(stage: HubStage) -> None:
    def appear() -> None:
        stage.api.create_repo(REPO, private=True)

    fails(stage, TrustFailure, "409", fresh(stage), steps=Steps({"create acme/tiny": appear}))
    assert stage.repo.files() == [".gitattributes"]


def test_a_repository_that_turns_public_before_the_commit_gets_nothing(stage: HubStage) -> None:
    head = stage.made_before(OLD)

    def open_it() -> None:
        stage.api.update_repo_settings(REPO, private=False)

    steps = Steps({"send the files": open_it})
    fails(stage, TrustFailure, "visibility", stage.scene.authorized(expected_parent=head), steps=steps)
    assert stage.repo.head() == head


def test_a_repository_that_turns_public_after_the_commit_is_hidden_again(stage: HubStage) -> None:
    head = stage.made_before(OLD)

    def open_it() -> None:
        stage.api.update_repo_settings(REPO, private=False)

    steps = Steps({"read 7 files back": open_it})
    fails(stage, TrustFailure, "it is private again", stage.scene.authorized(expected_parent=head), steps=steps)
    assert (stage.repo.visibility, stage.repo.tags) == (Seen.PRIVATE, {})


def test_a_repository_that_cannot_be_deleted_again_is_named(stage: HubStage) -> None:
    stage.hub.inject(Fault(operation="commit", action=Action.STATUS, status=403))
    stage.hub.inject(*everywhere("delete-repo", action=Action.STATUS, status=403))
    authorization = fresh(stage)
    fails(stage, Denied, "which was created for it, is left", authorization)
    assert stage.repo.visibility is Seen.PRIVATE
    resumed(stage, authorization)


def test_a_new_repository_with_somebody_elses_work_in_it_is_not_deleted(stage: HubStage) -> None:
    def meddle() -> None:
        stage.api.upload_file(path_or_fileobj=b"x", path_in_repo="x.txt", repo_id=REPO)

    fails(stage, TrustFailure, "it holds something else by now", fresh(stage), steps=Steps({"send the files": meddle}))
    assert "x.txt" in stage.repo.files()


def test_an_interrupt_deletes_the_new_repository_as_well(stage: HubStage) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carry(stage.scene, fresh(stage), stage.place(), steps=Steps({"commit 7 files": interrupt}))
    assert not stage.exists
    assert entries(stage.scene)[-1].detail == "KeyboardInterrupt"


def test_a_secret_that_the_hub_quotes_is_not_repeated(stage: HubStage) -> None:
    """It refuses files with tokens in them, and names the token in its answer."""
    canary = "hf_" + "Canary" * 6
    (stage.scene.prepared.tree / "LICENSE").write_text(f"key: {canary}\n")
    reseal(stage.scene.prepared)
    stage.scene.observed = observe(stage.scene.prepared)
    error = fails(stage, ConfigInvalid, "valid Hugging Face secrets", fresh(stage))
    assert canary not in "".join(traceback.format_exception(error)) + entries(stage.scene)[-1].detail
    assert not stage.exists


def test_a_card_that_the_hub_refuses_is_told_in_its_words(stage: HubStage) -> None:
    (stage.scene.prepared.tree / "README.md").write_text("---\nlicense: no-such-license\n---\n")
    reseal(stage.scene.prepared)
    stage.scene.observed = observe(stage.scene.prepared)
    fails(stage, ConfigInvalid, "no-such-license", fresh(stage))
    assert not stage.exists


def change(stage: HubStage, commit: str) -> None:
    scene = stage.scene
    authorization = scene.authorized(
        act=Act.SET_VISIBILITY,
        expected_parent=commit,
        commit=commit,
        visibility=Visibility.PUBLIC,
        gating=Gating.MANUAL,
    )
    change_visibility(
        scene.prepared,
        authorization,
        scene.policy,
        place=stage.place(),
        log=scene.log,
        clock=scene.clock,
        publisher=PUBLISHER,
        resume=False,
        step=Steps(),
    )


def test_a_lost_reply_about_visibility_is_made_good(stage: HubStage) -> None:
    commit = carry(stage.scene, fresh(stage), stage.place()).commit
    stage.hub.inject(Fault(operation="settings", action=Action.DROP, when=When.AFTER))
    change(stage, commit)
    assert len(stage.hub.fired) == 1
    assert stage.repo.visibility is Seen.PUBLIC
    assert [seen.operation for seen in stage.hub.writes][-2:] == [Operation.SETTINGS, Operation.SETTINGS]


def test_a_setting_that_did_not_take_is_noticed_and_nothing_is_shown(stage: HubStage) -> None:
    commit = carry(stage.scene, fresh(stage), stage.place()).commit
    stage.hub.inject(Fault(operation="settings", action=Action.STATUS, status=200, body=b"{}"))
    with pytest.raises(TrustFailure, match="visibility: acme/tiny was to become public and is private"):
        change(stage, commit)
    assert stage.repo.visibility is Seen.PRIVATE
    assert kinds(stage.scene)[-1] is EntryKind.FAILED


def test_the_library_is_as_it_was_afterwards_and_has_timeouts_meanwhile(
    stage: HubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", False)
    before = (_http._GLOBAL_CLIENT_FACTORY, library_logging.get_verbosity())
    with reined(), reined():
        assert huggingface_hub.get_session().timeout == TIMEOUT
        assert library_logging.get_verbosity() == logging.CRITICAL
        assert constants.HF_HUB_DISABLE_TELEMETRY
    assert (_http._GLOBAL_CLIENT_FACTORY, library_logging.get_verbosity()) == before
    assert not constants.HF_HUB_DISABLE_TELEMETRY


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(28, "No space left on device"), LocalDisk),
        (RuntimeError("Data processing error: CAS service error"), Unreachable),
        (ValueError("something new"), CkptierError),
        (KeyError("commitOid"), CkptierError),
        (huggingface_hub.errors.OfflineModeIsEnabled("offline"), Unreachable),
        (huggingface_hub.errors.HFValidationError("Repo id must be"), ConfigInvalid),
        (huggingface_hub.errors.LocalTokenNotFoundError("no token"), Denied),
    ],
)
def test_whatever_the_library_raises_comes_out_as_ours(error: Exception, kind: type[CkptierError]) -> None:
    library = HubLibrary(api=huggingface_hub.HfApi(token=False), repo=REPO, secret="hunter2", clock=ManualClock())

    def act() -> None:
        raise error

    with pytest.raises(kind) as caught:
        library.ask("trying", act)
    assert type(caught.value) is kind
    assert caught.value.__cause__ is None
    assert caught.value.hint


def test_secrets_are_taken_out_of_what_is_told() -> None:
    library = HubLibrary(api=huggingface_hub.HfApi(token=False), repo=REPO, secret="hunter2", clock=ManualClock())
    text = library.redact(
        "hunter2 Bearer abc hf_" + "a" * 30 + " for url 'https://x.example/y?X-Amz-Signature=1&b=2' " + "long " * 200
    )
    for secret in ("hunter2", "abc", "a" * 30, "Signature"):
        assert secret not in text
    assert "https://x.example/y?***" in text
    assert len(text) < 500
