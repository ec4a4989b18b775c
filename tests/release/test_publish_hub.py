"""Publishing to the Hub: private, one commit, read back by its id, tagged; and what is refused before that."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.hf_api import ModelInfo, SafeTensorsInfo
from release.authorized_by_hand import APPROVERS, PUBLISHER, REVOKER, key_of
from release.publish_hub_stage import LIBRARY_WARNING, REPO, TAG, HubStage, hub_stage
from release.publish_stage import Steps, carry, entries, grow, kinds, payload_of, released
from support.hub import Gate, Operation, TokenRole
from support.hub import Visibility as Seen

from replicate.errors import Denied, IntegrityFailure, TrustFailure, Unreachable
from replicate.release.authorization import Act
from replicate.release.authorizing import Authorization
from replicate.release.deciding import NotAuthorized
from replicate.release.destination import Gating, Visibility
from replicate.release.history import EntryKind, Event
from replicate.release.publishing.publishing import change_visibility, open_place, withdraw
from tiers.testing import ManualClock

OLD_CARD = b"---\nlicense: mit\n---\n# Old\n"
pytestmark = pytest.mark.filterwarnings(LIBRARY_WARNING)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[HubStage]:
    with hub_stage(tmp_path) as running:
        yield running


def visibility(stage: HubStage) -> Seen:
    return stage.repo.visibility


def fresh(stage: HubStage) -> Authorization:
    return stage.scene.authorized(expected_parent=None)


def test_a_new_repository_is_private_from_its_first_moment_and_tagged_once_verified(stage: HubStage) -> None:
    report = carry(stage.scene, fresh(stage), stage.place())

    assert stage.repo.visibility is Seen.PRIVATE
    assert stage.files(report.commit) == released(stage.scene)
    assert stage.repo.head() == report.commit == stage.repo.tags[TAG]
    assert [commit.title for commit in stage.repo.history] == ["Release tiny 1.0", "initial commit"]
    writes = [seen.operation for seen in stage.hub.writes]
    assert writes == [Operation.CREATE_REPO, Operation.LFS_PUT, Operation.COMMIT, Operation.CREATE_TAG]
    order = stage.hub.operations()
    assert order.index("lfs-put") < order.index("commit") < order.index("get-file") < order.index("create-tag")
    assert report.read_back == report.files == len(released(stage.scene))
    assert report.url == f"{stage.hub.url}/{REPO}/tree/{report.commit}"
    assert kinds(stage.scene) == [EntryKind.BEGUN, EntryKind.PUBLISHED]
    last = entries(stage.scene)[-1]
    assert (last.commit, last.url, last.visibility) == (report.commit, f"hf://{REPO}", Visibility.PRIVATE)


def test_every_byte_is_read_back_by_the_commits_id_past_every_cache(stage: HubStage, tmp_path: Path) -> None:
    report = carry(stage.scene, fresh(stage), stage.place())
    read = [seen for seen in stage.hub.requests if seen.operation is Operation.GET_FILE]
    assert {seen.path for seen in read} == {f"/{REPO}/resolve/{report.commit}/{path}" for path in released(stage.scene)}
    large = [seen for seen in stage.hub.requests if seen.operation is Operation.LFS_GET]
    assert sum(seen.sent for seen in large) == len(released(stage.scene)["model.safetensors"])
    assert all("authorization" not in {name.lower() for name in seen.headers} for seen in large)
    assert not (tmp_path / "hf-home" / "hub").exists()


def test_a_second_release_follows_the_first_and_the_tree_is_exactly_its_own(stage: HubStage) -> None:
    head = stage.made_before({"old-shard.safetensors": b"\0old", "README.md": OLD_CARD})
    report = carry(stage.scene, stage.scene.authorized(expected_parent=head), stage.place())
    assert stage.files(report.commit) == released(stage.scene)
    assert [commit.oid for commit in stage.repo.history][:2] == [report.commit, head]
    assert Operation.CREATE_REPO not in [seen.operation for seen in stage.hub.writes]


def test_an_empty_private_repository_counts_as_new(stage: HubStage) -> None:
    stage.api.create_repo(REPO, private=True)
    assert stage.place().state().parent is None
    report = carry(stage.scene, fresh(stage), stage.place())
    assert stage.files(report.commit) == released(stage.scene)


def test_another_branch_than_main_is_made_in_a_new_repository(tmp_path: Path) -> None:
    with hub_stage(tmp_path, revision="release/1") as stage:
        report = carry(stage.scene, fresh(stage), stage.place())
        assert stage.repo.head("release/1") == report.commit
        assert stage.repo.files("main") == [".gitattributes"]


def test_the_gating_that_was_authorized_is_there_before_anything_else(tmp_path: Path) -> None:
    with hub_stage(tmp_path, gating=Gating.MANUAL) as stage:
        carry(stage.scene, fresh(stage), stage.place())
        assert stage.repo.gated is Gate.MANUAL
        assert [seen.operation for seen in stage.hub.writes][:2] == [Operation.CREATE_REPO, Operation.SETTINGS]


def test_a_release_without_a_tag_gets_none(tmp_path: Path) -> None:
    with hub_stage(tmp_path, tag=None) as stage:
        carry(stage.scene, fresh(stage), stage.place())
        assert stage.repo.tags == {}


def test_a_gitignore_that_lies_there_keeps_nothing_out(stage: HubStage) -> None:
    head = stage.made_before({".gitignore": b"*.safetensors\nLICENSE\n"})
    report = carry(stage.scene, stage.scene.authorized(expected_parent=head), stage.place())
    assert stage.files(report.commit) == released(stage.scene)


def refused(stage: HubStage, authorization: Authorization, words: str, steps: Steps | None = None) -> None:
    """Check that publishing is refused with a word for the field, and that the Hub saw no write."""
    stage.hub.forget_requests()
    with pytest.raises(NotAuthorized, match=words):
        carry(stage.scene, authorization, stage.place(), steps=steps)
    assert stage.hub.writes == []
    with pytest.raises(TrustFailure, match=words.removeprefix("destination.")):
        stage.place().publish(
            payload_of(stage.scene), expected_parent=authorization.record.expected_parent, step=Steps()
        )
    assert stage.hub.writes == []


def test_a_repository_that_is_public_already_is_refused(stage: HubStage) -> None:
    stage.api.create_repo(REPO, private=False)
    refused(stage, fresh(stage), "visibility")


def test_a_repository_where_none_was_authorized_to_be_is_refused(stage: HubStage) -> None:
    stage.made_before({"README.md": OLD_CARD})
    refused(stage, fresh(stage), "expected_parent")


def test_a_repository_that_should_exist_and_does_not_is_refused(stage: HubStage) -> None:
    refused(stage, stage.scene.authorized(), "expected_parent")


def test_a_branch_that_moved_on_is_refused(stage: HubStage) -> None:
    head = stage.made_before({"README.md": OLD_CARD})
    authorization = stage.scene.authorized(expected_parent=head)
    stage.api.upload_file(path_or_fileobj=b"x", path_in_repo="x.txt", repo_id=REPO)
    refused(stage, authorization, "expected_parent")


def test_a_tag_that_exists_is_refused(stage: HubStage) -> None:
    head = stage.made_before({"README.md": OLD_CARD})
    stage.api.create_tag(REPO, tag=TAG)
    refused(stage, stage.scene.authorized(expected_parent=head), "tag")


def test_a_repository_of_another_name_behind_the_name_is_refused(
    stage: HubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.made_before({"README.md": OLD_CARD})
    place = stage.place()
    found = stage.api.repo_info(REPO)
    found.id = "acme/renamed"
    monkeypatch.setattr(place.library.api, "repo_info", lambda *_args, **_more: found)
    with pytest.raises(TrustFailure, match=r"destination: acme/tiny is called acme/renamed"):
        place.state()


@pytest.mark.parametrize(
    "when", ["log that it is begun", "check everything again", "hash 7 files", "create acme/tiny, private"]
)
def test_bytes_that_change_after_the_decision_are_not_sent(when: str, stage: HubStage) -> None:
    steps = Steps({when: lambda: grow(stage.scene)})
    with pytest.raises(IntegrityFailure, match=r"model\.safetensors"):
        carry(stage.scene, fresh(stage), stage.place(), steps=steps)
    assert steps.ran == [when]
    assert not stage.exists
    assert Operation.COMMIT not in [seen.operation for seen in stage.hub.requests]
    assert kinds(stage.scene) == [EntryKind.BEGUN, EntryKind.FAILED]
    if not when.startswith("create"):
        assert stage.hub.writes == []


@pytest.mark.parametrize("name", ["model.safetensors", "README.md"])
def test_bytes_that_change_while_they_are_sent_are_not_committed(
    name: str, stage: HubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small file is sent as the bytes that were hashed; a large one is hashed again after it was sent."""
    from replicate.release.publishing import hub_publication  # noqa: PLC0415 - only here

    monkeypatch.setattr(hub_publication, "_IN_MEMORY", 0 if name == "model.safetensors" else 1_000_000)
    steps = Steps({"send the files": lambda: grow(stage.scene, name)})
    if name == "README.md":
        report = carry(stage.scene, fresh(stage), stage.place(), steps=steps)
        grow(stage.scene, name)
        assert stage.files(report.commit) == released(stage.scene)
        return
    with pytest.raises(IntegrityFailure, match=r"model\.safetensors"):
        carry(stage.scene, fresh(stage), stage.place(), steps=steps)
    assert not stage.exists


def test_a_shard_that_is_missing_is_named_and_nothing_is_sent(stage: HubStage) -> None:
    authorization = fresh(stage)
    (stage.scene.prepared.tree / "model.safetensors").unlink()
    with pytest.raises(IntegrityFailure, match=r"model\.safetensors"):
        carry(stage.scene, authorization, stage.place())
    assert stage.hub.requests == []
    assert entries(stage.scene) == []


def test_exactly_these_files_once_more_is_no_publication(stage: HubStage) -> None:
    """The library would say nothing: it leaves out what has not changed, and names the head."""
    first = carry(stage.scene, fresh(stage), stage.place())
    stage.api.delete_tag(REPO, tag=TAG)
    stage.hub.forget_requests()
    with pytest.raises(TrustFailure, match="holds exactly these files already"):
        carry(stage.scene, stage.scene.authorized(expected_parent=first.commit), stage.place())
    assert [seen for seen in stage.hub.writes if seen.operation is not Operation.LFS_PUT] == []
    assert stage.repo.head() == first.commit


def test_of_two_publishers_with_one_authorization_one_publishes(stage: HubStage) -> None:
    authorization = fresh(stage)
    first: list[str] = []

    def overtake() -> None:
        first.append(carry(stage.scene, authorization, stage.place()).commit)

    with pytest.raises(NotAuthorized, match="nonce: authorized single use"):
        carry(stage.scene, authorization, stage.place(), steps=Steps({"log that it is begun": overtake}))
    assert first == [stage.repo.head()]
    assert kinds(stage.scene) == [EntryKind.BEGUN, EntryKind.PUBLISHED]


def test_two_publishers_past_each_others_log_make_one_commit(stage: HubStage) -> None:
    """The second one is stopped by the Hub itself: the branch is not where it was."""
    head = stage.made_before({"README.md": OLD_CARD})

    def intrude() -> None:
        stage.api.upload_file(path_or_fileobj=b"x", path_in_repo="x.txt", repo_id=REPO)

    with pytest.raises(TrustFailure, match="expected_parent"):
        stage.place().publish(payload_of(stage.scene), expected_parent=head, step=Steps({"send the files": intrude}))
    assert [commit.title for commit in stage.repo.history[:2]] == ["Upload x.txt with huggingface_hub", "before"]
    assert stage.repo.tags == {}


def shown(stage: HubStage, commit: str, *, gating: Gating = Gating.NONE) -> Authorization:
    return stage.scene.authorized(
        act=Act.SET_VISIBILITY,
        expected_parent=commit,
        commit=commit,
        visibility=Visibility.PUBLIC,
        gating=gating,
    )


def show(stage: HubStage, authorization: Authorization, *, resume: bool = False, steps: Steps | None = None) -> None:
    scene = stage.scene
    report = change_visibility(
        scene.prepared,
        authorization,
        scene.policy,
        place=stage.place(),
        log=scene.log,
        clock=scene.clock,
        publisher=PUBLISHER,
        resume=resume,
        step=steps or Steps(),
    )
    assert report.visibility is Visibility.PUBLIC


def test_a_release_becomes_public_only_by_an_authorization_of_its_own(stage: HubStage) -> None:
    authorization = fresh(stage)
    commit = carry(stage.scene, authorization, stage.place()).commit
    with pytest.raises(NotAuthorized, match="act: authorized publish, found set-visibility"):
        show(stage, authorization)
    assert stage.repo.visibility is Seen.PRIVATE

    show(stage, shown(stage, commit, gating=Gating.AUTO))
    assert (stage.repo.visibility, stage.repo.gated) == (Seen.PUBLIC, Gate.AUTO)
    assert kinds(stage.scene)[-2:] == [EntryKind.BEGUN, EntryKind.VISIBILITY_CHANGED]
    (publication,) = stage.scene.history.published_where()
    assert (publication.visibility, publication.gating) == (Visibility.PUBLIC, Gating.AUTO)
    settings = [seen for seen in stage.hub.writes if seen.operation is Operation.SETTINGS]
    assert len(settings) == 1


def test_an_authorization_to_show_publishes_nothing(stage: HubStage) -> None:
    commit = carry(stage.scene, fresh(stage), stage.place()).commit
    stage.hub.forget_requests()
    with pytest.raises(NotAuthorized, match="act: authorized set-visibility, found publish"):
        carry(stage.scene, shown(stage, commit), stage.place())
    assert stage.hub.writes == []


def test_a_commit_that_is_not_the_head_any_more_is_not_shown(stage: HubStage) -> None:
    commit = carry(stage.scene, fresh(stage), stage.place()).commit
    authorization = shown(stage, commit)
    stage.api.upload_file(path_or_fileobj=b"x", path_in_repo="x.txt", repo_id=REPO)
    stage.hub.forget_requests()
    with pytest.raises(NotAuthorized, match="commit"):
        show(stage, authorization)
    with pytest.raises(TrustFailure, match="commit: acme/tiny is at"):
        stage.place().set_visibility(Visibility.PUBLIC, Gating.NONE, commit=commit, step=Steps())
    assert stage.hub.writes == []


def test_a_commit_that_slips_in_while_it_is_shown_hides_it_again(stage: HubStage) -> None:
    commit = carry(stage.scene, fresh(stage), stage.place()).commit

    def slip() -> None:
        stage.api.upload_file(path_or_fileobj=b"x", path_in_repo="x.txt", repo_id=REPO)

    with pytest.raises(TrustFailure, match="commit: acme/tiny is at"):
        show(stage, shown(stage, commit), steps=Steps({"make acme/tiny public": slip}))
    assert stage.repo.visibility is Seen.PRIVATE
    assert kinds(stage.scene)[-1] is EntryKind.FAILED


def test_another_branch_is_not_shown_along_with_it(stage: HubStage) -> None:
    commit = carry(stage.scene, fresh(stage), stage.place()).commit
    stage.api.create_branch(REPO, branch="harmless")
    stage.api.create_branch(REPO, branch="secret")
    stage.api.upload_file(path_or_fileobj=b"x", path_in_repo="x.txt", repo_id=REPO, revision="secret")
    with pytest.raises(TrustFailure, match="branch secret of acme/tiny would become visible as well"):
        show(stage, shown(stage, commit))
    assert stage.repo.visibility is Seen.PRIVATE


def test_a_change_of_visibility_that_was_not_logged_is_gone_on_with(
    stage: HubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = carry(stage.scene, fresh(stage), stage.place()).commit
    authorization = shown(stage, commit)
    append = stage.scene.log.append

    def lost(event: Event, **more: Any) -> object:
        if event.kind is EntryKind.VISIBILITY_CHANGED:
            raise Unreachable("the log's store is away")
        return append(event, **more)

    with monkeypatch.context() as patch:
        patch.setattr(stage.scene.log, "append", lost)
        with pytest.raises(Unreachable, match="run it again with --resume"):
            show(stage, authorization)
    with pytest.raises(NotAuthorized, match="nonce"):
        show(stage, authorization)
    show(stage, authorization, resume=True)
    assert kinds(stage.scene)[-1] is EntryKind.VISIBILITY_CHANGED


@pytest.mark.parametrize(("bf16", "fails"), [(8, False), (9, True)])
def test_the_parameters_that_the_hub_counts_are_compared(
    bf16: int, fails: bool, stage: HubStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of floating tensors; the integers are counted by rules of its own."""
    place = stage.place()
    repo_info = place.library.api.repo_info

    def counting(*args: Any, **more: Any) -> object:
        info = repo_info(*args, **more)
        assert isinstance(info, ModelInfo)
        if more.get("revision"):
            info.safetensors = SafeTensorsInfo(parameters={"F32": 8, "BF16": bf16, "I64": 77}, total=93)
        return info

    monkeypatch.setattr(place.library.api, "repo_info", counting)
    if not fails:
        carry(stage.scene, fresh(stage), place)
        return
    with pytest.raises(IntegrityFailure, match="the Hub counts 9 parameters of BF16, the release has 8"):
        carry(stage.scene, fresh(stage), place)
    assert not stage.exists


def test_a_withdrawal_hides_it_whatever_it_holds_by_now_and_voids_what_was_authorized(stage: HubStage) -> None:
    commit = carry(stage.scene, fresh(stage), stage.place()).commit
    show(stage, shown(stage, commit))
    again = shown(stage, commit)
    stage.api.upload_file(path_or_fileobj=b"x", path_in_repo="x.txt", repo_id=REPO)
    manifest = stage.scene.observed.subject.export_manifest_sha256
    scene = stage.scene

    def take_back(who: str) -> str | None:
        return withdraw(
            scene.observed.destination,
            manifest,
            place=stage.place(),
            log=scene.log,
            clock=scene.clock,
            who=who,
            key=key_of(who),
            reason="the licence of a dataset",
            step=Steps(),
        ).hidden

    with pytest.raises(Denied, match="may not revoke"):
        take_back(APPROVERS[0])
    assert visibility(stage) is Seen.PUBLIC
    assert take_back(REVOKER) == stage.repo.head()
    assert visibility(stage) is Seen.PRIVATE
    assert kinds(scene)[-1] is EntryKind.WITHDRAWN
    with pytest.raises(NotAuthorized, match="withdrawal"):
        show(stage, again)
    assert visibility(stage) is Seen.PRIVATE


def test_a_token_that_is_bad_or_may_only_read_publishes_nothing(stage: HubStage) -> None:
    reading = stage.hub.add_token("reader", user="alice", role=TokenRole.READ)
    for token, words in ((reading, "403"), ("hf_" + "x" * 34, "401"), ("", "401")):
        with pytest.raises(Denied, match=words) as caught:
            carry(
                stage.scene,
                fresh(stage),
                open_place(stage.scene.observed.destination, clock=ManualClock(), token=token),
            )
        assert "token" in caught.value.hint
        assert not stage.exists
