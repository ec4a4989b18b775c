"""The Hub emulator under the real library: large files, reading back, storage."""

import hashlib
import io
from pathlib import Path

import httpx2
import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_session, hf_hub_url
from huggingface_hub.errors import BadRequestError, HfHubHTTPError
from huggingface_hub.file_download import get_hf_file_metadata
from support.hub import HubServer, LargeFile, Operation, Surface
from support.hub.client import CLASSIC_LFS_WARNING

pytestmark = pytest.mark.filterwarnings(CLASSIC_LFS_WARNING)

SMALL = bytes(range(256)) * 16
LONG = bytes(range(251)) * 400  # four parts and a bit


def commit(api: HfApi, repo_id: str, *operations: CommitOperationAdd | CommitOperationDelete) -> str:
    return api.create_commit(repo_id, list(operations), commit_message="x").oid


def credentials(api: HfApi) -> dict[str, str]:
    return {"Authorization": f"Bearer {api.token}"}


def get(api: HfApi, repo_id: str, path: str, revision: str = "main", **headers: str) -> httpx2.Response:
    """Read a file as a tier would: one request, redirects followed."""
    url = hf_hub_url(repo_id, path, revision=revision, endpoint=api.endpoint)
    return get_session().get(url, headers={**credentials(api), **headers})


def test_a_large_file_is_announced_sent_verified_and_then_committed(
    repo_id: str, api: HfApi, hub: HubServer, tmp_path: Path
) -> None:
    source = tmp_path / "model.safetensors"
    source.write_bytes(SMALL)
    operation = CommitOperationAdd("model.safetensors", source)
    assert not operation.upload_info.is_hashed  # a path is read when the digest is wanted
    api.preupload_lfs_files(repo_id, [operation])
    assert hub.operations() == ["preupload", "lfs-batch", "lfs-put", "lfs-verify"]
    assert [seen.operation for seen in hub.writes] == [Operation.LFS_PUT]
    assert (hub.repos[repo_id].files(), hub.repos[repo_id].used_storage) == ([".gitattributes"], 0)
    made = commit(api, repo_id, operation)
    assert hub.operations()[4:] == ["commit"]
    digest = hashlib.sha256(SMALL).hexdigest()
    assert operation.upload_info.sha256.hex() == digest
    assert hub.repos[repo_id].resolve(made).tree["model.safetensors"] == LargeFile(sha256=digest, size=len(SMALL))
    assert hub.repos[repo_id].read(made, "model.safetensors") == SMALL


def test_the_storage_never_sees_a_token(repo_id: str, api: HfApi, hub: HubServer) -> None:
    commit(api, repo_id, CommitOperationAdd("a.bin", SMALL))
    api.hf_hub_download(repo_id, "a.bin")
    assert get(api, repo_id, "a.bin").content == SMALL
    stored = [seen for seen in hub.requests if seen.surface is Surface.STORAGE]
    assert [seen.operation for seen in stored] == [Operation.LFS_PUT, Operation.LFS_GET, Operation.LFS_GET]
    assert {seen.token for seen in stored} == {None}
    location = get_hf_file_metadata(hf_hub_url(repo_id, "a.bin", endpoint=api.endpoint), token=api.token).location
    refused = get_session().get(location, headers=credentials(api))
    assert (refused.status_code, get_session().get(location + "0").status_code) == (400, 403)


def test_a_long_file_goes_in_parts(repo_id: str, api: HfApi, hub: HubServer, tmp_path: Path) -> None:
    source = tmp_path / "long.bin"
    source.write_bytes(LONG)
    made = commit(api, repo_id, CommitOperationAdd("long.bin", source))
    parts = [seen for seen in hub.writes if seen.operation is Operation.LFS_PUT]
    assert [seen.received for seen in parts] == [24 * 1024] * 4 + [len(LONG) - 4 * 24 * 1024]
    assert [seen.operation for seen in hub.writes[5:]] == [Operation.LFS_COMPLETE, Operation.COMMIT]
    assert hub.repos[repo_id].read(made, "long.bin") == LONG


@pytest.mark.parametrize("content", [SMALL, LONG], ids=["one part", "parts"])
def test_bytes_other_than_the_announced_are_refused(repo_id: str, api: HfApi, hub: HubServer, content: bytes) -> None:
    operation = CommitOperationAdd("a.bin", content)
    operation.upload_info.sha256 = hashlib.sha256(b"what was authorised").digest()
    with pytest.raises(RuntimeError, match="Error while uploading") as failed:
        commit(api, repo_id, operation)
    assert isinstance(failed.value.__cause__, BadRequestError)
    assert "BadDigest" in str(failed.value.__cause__)
    assert hub.repos[repo_id].objects == {}
    assert len(hub.repos[repo_id].history) == 1


def test_a_file_that_shrank_since_it_was_announced_is_refused(
    repo_id: str, api: HfApi, hub: HubServer, tmp_path: Path
) -> None:
    source = tmp_path / "a.bin"
    source.write_bytes(SMALL)
    operation = CommitOperationAdd("a.bin", source)
    assert operation.upload_info.sha256
    source.write_bytes(SMALL[:-1])
    with pytest.raises(RuntimeError, match="Error while uploading") as failed:
        commit(api, repo_id, operation)
    assert "IncompleteBody" in str(failed.value.__cause__)
    assert hub.repos[repo_id].objects == {}


def test_a_commit_of_what_was_never_uploaded_is_refused(repo_id: str, api: HfApi, hub: HubServer) -> None:
    operation = CommitOperationAdd("a.bin", SMALL)
    operation._upload_mode, operation._is_uploaded = "lfs", True
    with pytest.raises(BadRequestError, match="pointed to a file that does not exist"):
        commit(api, repo_id, operation)
    assert len(hub.repos[repo_id].history) == 1


def test_what_is_large(repo_id: str, api: HfApi, hub: HubServer) -> None:
    commit(
        api,
        repo_id,
        CommitOperationAdd("by.safetensors", b"pattern"),
        CommitOperationAdd("by.size", b"x" * (10 * 1024 * 1024 + 1)),
        CommitOperationAdd("by.content", b"\0binary"),
        CommitOperationAdd("text.json", "grüße".encode()),
        CommitOperationAdd("empty.safetensors", b""),
    )
    tree = hub.repos[repo_id].resolve("main").tree
    assert sorted(path for path, file in tree.items() if isinstance(file, LargeFile)) == [
        "by.content",
        "by.safetensors",
        "by.size",
    ]


def test_what_is_there_already_is_not_sent_again(repo_id: str, api: HfApi, hub: HubServer) -> None:
    commit(api, repo_id, CommitOperationAdd("a.bin", SMALL))
    hub.forget_requests()
    commit(api, repo_id, CommitOperationAdd("b.bin", SMALL))
    assert [seen.operation for seen in hub.writes] == [Operation.COMMIT]
    assert hub.repos[repo_id].used_storage == len(SMALL)


def test_an_open_file_goes_by_lfs_even_where_xet_is_on(
    repo_id: str, api: HfApi, hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", False)
    made = commit(api, repo_id, CommitOperationAdd("a.bin", io.BytesIO(SMALL)))
    assert hub.repos[repo_id].read(made, "a.bin") == SMALL
    assert "xet-token" not in hub.operations()


def test_reading_back_by_commit(repo_id: str, api: HfApi, hub: HubServer, tmp_path: Path) -> None:
    first = commit(api, repo_id, CommitOperationAdd("a.bin", SMALL), CommitOperationAdd("a.txt", b"1"))
    commit(api, repo_id, CommitOperationAdd("a.bin", LONG), CommitOperationAdd("a.txt", b"2"))
    for path, content in (("a.bin", SMALL), ("a.txt", b"1")):
        got = api.hf_hub_download(repo_id, path, revision=first, cache_dir=tmp_path / "cache")
        assert Path(got).read_bytes() == content
    hub.forget_requests()
    api.hf_hub_download(repo_id, "a.bin", revision=first, cache_dir=tmp_path / "cache")
    assert hub.requests == []  # a commit's files come from the cache without a question


def test_the_head_of_a_file_tells_commit_size_and_digest(repo_id: str, api: HfApi) -> None:
    made = commit(api, repo_id, CommitOperationAdd("a.bin", SMALL), CommitOperationAdd("a.txt", b"hello\n"))
    large, regular = (
        get_hf_file_metadata(hf_hub_url(repo_id, path, endpoint=api.endpoint), token=api.token)
        for path in ("a.bin", "a.txt")
    )
    assert (large.commit_hash, large.size, large.etag) == (made, len(SMALL), hashlib.sha256(SMALL).hexdigest())
    assert (regular.commit_hash, regular.size) == (made, 6)
    assert regular.etag == "ce013625030ba8dba906f756967f9e9ca394464a"
    assert large.xet_file_data is None
    infos = api.get_paths_info(repo_id, ["a.bin"])
    assert [getattr(info, "lfs", None) and info.lfs.sha256 for info in infos] == [large.etag]  # type: ignore[union-attr]


@pytest.mark.parametrize("path", ["a.bin", "a.txt"])
@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [("bytes=0-9", 0, 10), ("bytes=100-", 100, 4096), ("bytes=-5", 4091, 4096), ("bytes=4090-9999", 4090, 4096)],
)
def test_ranges(repo_id: str, api: HfApi, path: str, asked: str, start: int, end: int) -> None:
    content = SMALL if path == "a.bin" else b"t" * len(SMALL)
    commit(api, repo_id, CommitOperationAdd(path, content))
    got = get(api, repo_id, path, Range=asked)
    assert (got.status_code, got.content) == (206, content[start:end])
    assert got.headers["Content-Range"] == f"bytes {start}-{end - 1}/4096"
    assert int(got.headers["Content-Length"]) == end - start
    beyond = get(api, repo_id, path, Range="bytes=4096-")
    assert (beyond.status_code, beyond.headers["Content-Range"]) == (416, "bytes */4096")


def test_deleting_frees_nothing_until_history_and_garbage_are_gone(repo_id: str, api: HfApi, hub: HubServer) -> None:
    repo = hub.repos[repo_id]
    with_file = commit(api, repo_id, CommitOperationAdd("a.bin", SMALL))
    commit(api, repo_id, CommitOperationDelete("a.bin"))
    assert "a.bin" not in repo.files()
    assert repo.read(with_file, "a.bin") == SMALL
    assert api.model_info(repo_id, expand=["usedStorage"]).used_storage == len(SMALL)
    api.super_squash_history(repo_id)
    assert repo.used_storage == len(SMALL)
    repo.collect_garbage()
    assert repo.used_storage == 0


def test_permanent_deletion_rewrites_history(repo_id: str, api: HfApi, hub: HubServer) -> None:
    repo = hub.repos[repo_id]
    commit(api, repo_id, CommitOperationAdd("a.bin", SMALL), CommitOperationAdd("a.txt", b"1"))
    before = commit(api, repo_id, CommitOperationAdd("b.bin", LONG))
    api.create_tag(repo_id, tag="v1")
    doomed = [file for file in api.list_lfs_files(repo_id) if file.filename == "a.bin"]
    assert [(file.size, file.ref) for file in doomed] == [(len(SMALL), "refs/heads/main")]
    api.permanently_delete_lfs_files(repo_id, doomed)
    assert repo.files() == [".gitattributes", "a.txt", "b.bin"]
    assert repo.tags["v1"] == repo.head() != before
    assert repo.used_storage == len(LONG)
    assert len(repo.history) == 3


def test_permanent_deletion_without_rewriting_leaves_a_dangling_pointer(
    repo_id: str, api: HfApi, hub: HubServer
) -> None:
    made = commit(api, repo_id, CommitOperationAdd("a.bin", SMALL))
    api.permanently_delete_lfs_files(repo_id, api.list_lfs_files(repo_id), rewrite_history=False)
    assert hub.repos[repo_id].head() == made
    assert get(api, repo_id, "a.bin").status_code == 403
    commit(api, repo_id, CommitOperationAdd("b.txt", b"1"))


def test_listing_large_files_shows_those_that_no_commit_names(repo_id: str, api: HfApi) -> None:
    for number in range(4):
        api.preupload_lfs_files(repo_id, [CommitOperationAdd(f"{number}.bin", SMALL + bytes([number]))])
    assert [(file.filename, file.ref) for file in api.list_lfs_files(repo_id)] == [("", None)] * 4


def test_private_storage_has_a_limit(repo_id: str, api: HfApi, hub: HubServer) -> None:
    commit(api, repo_id, CommitOperationAdd("a.bin", SMALL))
    hub.limit_private_storage("acme", len(SMALL) + 10)
    with pytest.raises(HfHubHTTPError, match="storage limit reached") as refused:
        commit(api, repo_id, CommitOperationAdd("b.bin", SMALL + b"1"))
    assert refused.value.response.status_code == 403
    api.update_repo_settings(repo_id, private=False)
    commit(api, repo_id, CommitOperationAdd("b.bin", SMALL + b"1"))


def test_storage_wants_to_know_the_length(repo_id: str, api: HfApi, hub: HubServer) -> None:
    digest = hashlib.sha256(SMALL).hexdigest()
    ask = {"operation": "upload", "objects": [{"oid": digest, "size": len(SMALL)}]}
    batch = f"{api.endpoint}/{repo_id}.git/info/lfs/objects/batch"
    planned = get_session().post(batch, json=ask, headers=credentials(api)).json()
    href = planned["objects"][0]["actions"]["upload"]["href"]
    assert get_session().put(href, content=iter([SMALL])).status_code == 501
    assert get_session().put(href, content=SMALL).status_code == 200
    assert list(hub.repos[repo_id].objects) == [digest]
