"""What can be made to go wrong at the Hub emulator, and what the real library makes of it."""

import hashlib
from pathlib import Path

import httpx2
import pytest
from huggingface_hub import CommitOperationAdd, HfApi, get_session, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from support.hub import Action, Fault, HubServer, Operation, When, rate_limited
from support.hub.client import CLASSIC_LFS_WARNING, Naps

pytestmark = pytest.mark.filterwarnings(CLASSIC_LFS_WARNING)

CONTENT = bytes(range(256)) * 16


def add() -> list[CommitOperationAdd]:
    return [CommitOperationAdd("a.bin", CONTENT), CommitOperationAdd("a.txt", b"text " * 800)]


def commit(api: HfApi, repo_id: str, parent: str | None = None) -> str:
    return api.create_commit(repo_id, add(), commit_message="x", parent_commit=parent).oid


def fired(hub: HubServer) -> list[tuple[str, Action, When]]:
    return [(fired.operation, fired.fault.action, fired.fault.when) for fired in hub.fired]


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_commit_is_not_tried_twice_by_the_library(
    repo_id: str, api: HfApi, hub: HubServer, naps: Naps, status: int
) -> None:
    hub.inject(Fault(operation="commit", action=Action.STATUS, status=status, headers=rate_limited(2)))
    with pytest.raises(HfHubHTTPError) as failed:
        commit(api, repo_id)
    assert failed.value.response.status_code == status
    assert fired(hub) == [("commit", Action.STATUS, When.BEFORE)]
    assert hub.operations().count("commit") == 1
    assert (naps.slept, len(hub.repos[repo_id].history)) == ([], 1)


@pytest.mark.parametrize("operation", ["preupload", "lfs-batch", "lfs-put", "lfs-verify"])
def test_steps_before_the_commit_are_tried_again(
    repo_id: str, api: HfApi, hub: HubServer, naps: Naps, operation: str
) -> None:
    hub.inject(Fault(operation=operation, action=Action.STATUS, status=503))
    commit(api, repo_id)
    assert fired(hub) == [(operation, Action.STATUS, When.BEFORE)]
    assert hub.operations().count(operation) == 2
    assert naps.slept == [1]


def test_the_library_waits_as_long_as_it_is_told(repo_id: str, api: HfApi, hub: HubServer, naps: Naps) -> None:
    hub.inject(Fault(operation="preupload", action=Action.STATUS, status=429, headers=rate_limited(3_600)))
    hub.inject(Fault(operation="lfs-put", action=Action.STATUS, status=503, headers={"Retry-After": "900"}))
    commit(api, repo_id)
    assert len(hub.fired) == 2
    assert naps.slept == [3_601, 901]


def test_it_gives_up_after_six(repo_id: str, api: HfApi, hub: HubServer, naps: Naps) -> None:
    hub.inject(*(Fault(operation="lfs-put", action=Action.STATUS, status=500, nth=nth) for nth in range(1, 7)))
    with pytest.raises(RuntimeError, match="Error while uploading") as failed:
        commit(api, repo_id)
    assert isinstance(failed.value.__cause__, HfHubHTTPError)
    assert len(hub.fired) == 6
    assert naps.slept == [1, 2, 4, 8, 8]


def test_a_commit_whose_connection_breaks_before(repo_id: str, api: HfApi, hub: HubServer) -> None:
    hub.inject(Fault(operation="commit", action=Action.DROP))
    with pytest.raises(httpx2.TransportError):
        commit(api, repo_id)
    assert fired(hub) == [("commit", Action.DROP, When.BEFORE)]
    assert len(hub.repos[repo_id].history) == 1
    assert [(seen.operation, seen.status) for seen in hub.writes[-1:]] == [(Operation.COMMIT, None)]


@pytest.mark.parametrize("action", [Action.DROP, Action.TRUNCATE])
def test_a_commit_whose_answer_is_lost_has_happened(repo_id: str, api: HfApi, hub: HubServer, action: Action) -> None:
    repo = hub.repos[repo_id]
    parent = repo.head()
    hub.inject(Fault(operation="commit", action=action, when=When.AFTER))
    with pytest.raises(httpx2.TransportError):
        commit(api, repo_id, parent)
    assert fired(hub) == [("commit", action, When.AFTER)]
    assert repo.history[0].parents == (parent,)
    assert repo.read("main", "a.bin") == CONTENT
    assert commit(api, repo_id, parent) == repo.head()  # nothing left to send: the library asks for the head
    assert len(repo.history) == 2


def test_a_commit_that_is_said_to_have_failed_has_happened(repo_id: str, api: HfApi, hub: HubServer) -> None:
    hub.inject(Fault(operation="commit", action=Action.STATUS, status=500, when=When.AFTER))
    with pytest.raises(HfHubHTTPError):
        commit(api, repo_id)
    assert fired(hub) == [("commit", Action.STATUS, When.AFTER)]
    assert len(hub.repos[repo_id].history) == 2


def test_a_stall_ends_by_itself_or_with_the_client(repo_id: str, api: HfApi, hub: HubServer) -> None:
    hub.inject(Fault(operation="repo-info", action=Action.STALL, seconds=0.01))
    hub.inject(Fault(operation="repo-info", action=Action.STALL, nth=2))
    with pytest.raises(httpx2.TransportError):
        api.repo_info(repo_id)
    with pytest.raises(httpx2.ReadTimeout):
        api.repo_info(repo_id, timeout=0.05)
    assert fired(hub) == [("repo-info", Action.STALL, When.BEFORE)] * 2


def test_a_delay_is_only_a_delay(repo_id: str, api: HfApi, hub: HubServer) -> None:
    hub.inject(Fault(operation="repo-info", action=Action.DELAY, seconds=0.01))
    assert api.repo_info(repo_id).id == repo_id
    assert fired(hub) == [("repo-info", Action.DELAY, When.BEFORE)]


@pytest.mark.parametrize(("path", "operation"), [("a.bin", "lfs-get"), ("a.txt", "get-file")])
def test_served_bytes_can_be_wrong_and_the_library_does_not_look(
    repo_id: str, api: HfApi, hub: HubServer, path: str, operation: str, tmp_path: Path
) -> None:
    made = commit(api, repo_id)
    hub.inject(Fault(operation=operation, action=Action.CORRUPT, when=When.MID_BODY))
    got = Path(api.hf_hub_download(repo_id, path, revision=made, cache_dir=tmp_path)).read_bytes()
    right = hub.repos[repo_id].read(made, path)
    assert fired(hub) == [(operation, Action.CORRUPT, When.MID_BODY)]
    assert len(got) == len(right)
    assert hashlib.sha256(got).digest() != hashlib.sha256(right).digest()
    assert Path(api.hf_hub_download(repo_id, path, revision=made, cache_dir=tmp_path)).read_bytes() == got


@pytest.mark.parametrize("action", [Action.DROP, Action.TRUNCATE])
def test_a_body_that_breaks_off_is_noticed(repo_id: str, api: HfApi, hub: HubServer, action: Action) -> None:
    made = commit(api, repo_id)
    hub.forget_requests()
    hub.inject(Fault(operation="lfs-get", action=action, when=When.MID_BODY))
    url = hf_hub_url(repo_id, "a.bin", revision=made, endpoint=hub.url)
    with pytest.raises(httpx2.TransportError):
        get_session().get(url, headers={"Authorization": f"Bearer {api.token}"})
    assert fired(hub) == [("lfs-get", action, When.MID_BODY)]
    assert [seen.sent for seen in hub.requests if seen.operation is Operation.LFS_GET] == [len(CONTENT) // 2]


def test_a_download_that_breaks_off_is_resumed(
    repo_id: str, api: HfApi, hub: HubServer, tmp_path: Path, naps: Naps
) -> None:
    made = commit(api, repo_id)
    hub.forget_requests()
    hub.inject(Fault(operation="lfs-get", action=Action.TRUNCATE, when=When.MID_BODY))
    got = api.hf_hub_download(repo_id, "a.bin", revision=made, cache_dir=tmp_path)
    assert Path(got).read_bytes() == CONTENT
    assert fired(hub) == [("lfs-get", Action.TRUNCATE, When.MID_BODY)]
    reads = [seen for seen in hub.requests if seen.operation is Operation.LFS_GET]
    assert len(reads) == 2
    assert naps.slept == [1]


def test_bytes_that_are_damaged_on_the_way_up_are_refused(repo_id: str, api: HfApi, hub: HubServer) -> None:
    hub.inject(Fault(operation="lfs-put", action=Action.CORRUPT, when=When.MID_BODY))
    with pytest.raises(RuntimeError, match="Error while uploading") as failed:
        commit(api, repo_id)
    assert "BadDigest" in str(failed.value.__cause__)
    assert fired(hub) == [("lfs-put", Action.CORRUPT, When.MID_BODY)]
    assert hub.repos[repo_id].objects == {}


def test_an_upload_that_breaks_off_is_sent_again(repo_id: str, api: HfApi, hub: HubServer, naps: Naps) -> None:
    hub.inject(Fault(operation="lfs-put", action=Action.DROP, when=When.MID_BODY))
    made = commit(api, repo_id)
    assert fired(hub) == [("lfs-put", Action.DROP, When.MID_BODY)]
    assert hub.repos[repo_id].read(made, "a.bin") == CONTENT
    assert naps.slept == [1]


def test_faults_pick_by_path_method_and_number(repo_id: str, api: HfApi, hub: HubServer) -> None:
    hub.inject(Fault(operation="GET", key="*/refs", action=Action.STATUS, status=500, nth=2))
    api.repo_info(repo_id)
    api.list_repo_refs(repo_id)
    with pytest.raises(HfHubHTTPError):
        api.list_repo_refs(repo_id)
    api.list_repo_refs(repo_id)
    assert [(fired.operation, fired.key) for fired in hub.fired] == [("refs", "/api/models/acme/model/refs")]


def test_a_file_that_cannot_be_asked_after_is_said_to_be_missing_here(
    repo_id: str, api: HfApi, hub: HubServer, tmp_path: Path
) -> None:
    """The library calls an unreachable Hub a missing local file: a tier must not take it for an absent object."""
    commit(api, repo_id)
    hub.inject(*(Fault(operation="stat-file", action=Action.STATUS, status=503, nth=nth) for nth in range(1, 8)))
    with pytest.raises(LocalEntryNotFoundError) as failed:
        api.hf_hub_download(repo_id, "a.bin", cache_dir=tmp_path)
    assert isinstance(failed.value, FileNotFoundError)
    assert isinstance(failed.value.__cause__, HfHubHTTPError)
    assert len(hub.fired) == 7
