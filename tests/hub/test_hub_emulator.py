"""The Hub emulator under the real library: commits, refs, history, listings."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import (
    BadRequestError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RevisionNotFoundError,
)
from support.hub import HubServer, Limits, Operation
from support.hub.client import CLASSIC_LFS_WARNING

pytestmark = pytest.mark.filterwarnings(CLASSIC_LFS_WARNING)


def add(path: str, content: bytes | str) -> CommitOperationAdd:
    return CommitOperationAdd(path, content.encode() if isinstance(content, str) else content)


def put(api: HfApi, repo_id: str, parent: str | None = None, **files: str) -> str:
    operations = [add(f"{name}.txt", text) for name, text in files.items()]
    return api.create_commit(repo_id, operations, commit_message=f"put {sorted(files)}", parent_commit=parent).oid


def test_a_commit_on_its_parent(repo_id: str, api: HfApi, hub: HubServer) -> None:
    repo = hub.repos[repo_id]
    first = repo.head()
    made = api.create_commit(
        repo_id,
        [add("a.txt", "1"), add("sub/b.txt", "2")],
        commit_message="title",
        commit_description="text",
        parent_commit=first,
    )
    assert re.fullmatch(r"[0-9a-f]{40}", made.oid)
    assert made.repo_url.repo_id == repo_id
    assert repo.head() == made.oid
    assert [(commit.title, commit.message, commit.author) for commit in repo.history] == [
        ("title", "text", "alice"),
        ("initial commit", "", "system"),
    ]
    assert repo.history[0].parents == (first,)
    assert repo.files() == [".gitattributes", "a.txt", "sub/b.txt"]
    assert (repo.read("main", "a.txt"), repo.files(first)) == (b"1", [".gitattributes"])
    assert [seen.operation for seen in hub.writes] == [Operation.COMMIT]


def test_a_stale_parent_is_refused(repo_id: str, api: HfApi, hub: HubServer) -> None:
    first = hub.repos[repo_id].head()
    second = put(api, repo_id, first, a="1")
    with pytest.raises(HfHubHTTPError, match="A commit has happened since") as refused:
        put(api, repo_id, first, b="2")
    assert refused.value.response.status_code == 412
    assert hub.repos[repo_id].head() == second
    put(api, repo_id, second[:7], b="2")


def test_what_has_not_changed_is_not_committed_nor_is_its_parent_looked_at(
    repo_id: str, api: HfApi, hub: HubServer
) -> None:
    first = hub.repos[repo_id].head()
    second = put(api, repo_id, first, a="1")
    hub.forget_requests()
    assert put(api, repo_id, first, a="1") == second
    assert hub.writes == []
    assert len(hub.repos[repo_id].history) == 2


def test_a_commit_that_turns_out_to_change_nothing_makes_none(repo_id: str, api: HfApi, hub: HubServer) -> None:
    """Another client sent the same in between: the library has seen a difference, the server sees none."""
    operation = add("a.txt", "1")
    api.preupload_lfs_files(repo_id, [operation])
    second = put(api, repo_id, a="1")
    assert api.create_commit(repo_id, [operation], commit_message="late").oid == second
    assert [seen.operation for seen in hub.writes] == [Operation.COMMIT, Operation.COMMIT]
    assert len(hub.repos[repo_id].history) == 2


def test_a_commit_goes_to_a_branch_only(repo_id: str, api: HfApi, hub: HubServer) -> None:
    first = hub.repos[repo_id].head()
    for revision in (first, "nowhere"):
        with pytest.raises(RevisionNotFoundError):
            api.create_commit(repo_id, [add("a.txt", "1")], commit_message="x", revision=revision)
    assert hub.repos[repo_id].head() == first


def test_tags_name_a_commit_and_stay(repo_id: str, api: HfApi, hub: HubServer) -> None:
    first = put(api, repo_id, a="1")
    second = put(api, repo_id, a="2")
    api.create_tag(repo_id, tag="v1", revision=first, tag_message="one")
    with pytest.raises(HfHubHTTPError) as refused:
        api.create_tag(repo_id, tag="v1", revision=second)
    assert refused.value.response.status_code == 409
    api.create_tag(repo_id, tag="v1", revision=second, exist_ok=True)
    assert hub.repos[repo_id].tags == {"v1": first}
    assert [(tag.name, tag.target_commit) for tag in api.list_repo_refs(repo_id).tags] == [("v1", first)]
    assert api.repo_info(repo_id, revision="v1").sha == first
    with pytest.raises(RevisionNotFoundError):
        api.create_tag(repo_id, tag="v2", revision="nowhere")
    api.delete_tag(repo_id, tag="v1")
    with pytest.raises(RevisionNotFoundError):
        api.delete_tag(repo_id, tag="v1")


def test_branches(repo_id: str, api: HfApi, hub: HubServer) -> None:
    first = put(api, repo_id, a="1")
    api.create_branch(repo_id, branch="side/line", revision=first)
    api.create_branch(repo_id, branch="side/line", exist_ok=True)
    with pytest.raises(HfHubHTTPError) as refused:
        api.create_branch(repo_id, branch="side/line")
    assert refused.value.response.status_code == 409
    with pytest.raises(BadRequestError):
        api.create_branch(repo_id, branch="refs/pr/1")
    api.create_commit(repo_id, [add("b.txt", "2")], commit_message="aside", revision="side/line")
    assert hub.repos[repo_id].files("side/line") == [".gitattributes", "a.txt", "b.txt"]
    assert hub.repos[repo_id].head() == first
    assert {ref.name for ref in api.list_repo_refs(repo_id).branches} == {"main", "side/line"}
    api.delete_branch(repo_id, branch="side/line")
    with pytest.raises(HfHubHTTPError, match="main"):
        api.delete_branch(repo_id, branch="main")


def test_history_pages_newest_first(repo_id: str, api: HfApi) -> None:
    made = [put(api, repo_id, a=str(number)) for number in range(4)]
    listed = api.list_repo_commits(repo_id)
    assert [commit.commit_id for commit in listed[:4]] == made[::-1]
    assert listed[-1].title == "initial commit"
    assert listed[0].created_at > listed[1].created_at


def test_deletions(repo_id: str, api: HfApi, hub: HubServer) -> None:
    api.create_commit(
        repo_id, [add("a.txt", "1"), add("sub/b.txt", "2"), add("sub/deep/c.txt", "3")], commit_message="x"
    )
    api.create_commit(repo_id, [CommitOperationDelete("a.txt"), CommitOperationDelete("sub/")], commit_message="y")
    assert hub.repos[repo_id].files() == [".gitattributes"]
    with pytest.raises(RemoteEntryNotFoundError, match="differentiate file and folder"):
        api.create_commit(repo_id, [CommitOperationDelete("a.txt")], commit_message="z")
    assert hub.repos[repo_id].read(hub.repos[repo_id].history[1].oid, "sub/b.txt") == b"2"


def test_a_squashed_history_cannot_be_read(repo_id: str, api: HfApi, hub: HubServer) -> None:
    first = put(api, repo_id, a="1")
    kept = put(api, repo_id, a="2")
    api.create_tag(repo_id, tag="kept", revision=kept)
    put(api, repo_id, a="3")
    with pytest.raises(BadRequestError):
        api.super_squash_history(repo_id, branch="kept")
    api.super_squash_history(repo_id)
    assert len(hub.repos[repo_id].history) == 1
    assert hub.repos[repo_id].read("main", "a.txt") == b"3"
    assert hub.repos[repo_id].read(first, "a.txt") == b"1"  # the tag still leads there
    api.delete_tag(repo_id, tag="kept")
    with pytest.raises(RevisionNotFoundError):
        api.repo_info(repo_id, revision=first)


def test_listing_a_tree(repo_id: str, api: HfApi) -> None:
    paths = [f"sub/{letter}.txt" for letter in "abcde"]
    api.create_commit(repo_id, [add(path, path) for path in paths], commit_message="x")
    assert [entry.path for entry in api.list_repo_tree(repo_id)] == [".gitattributes", "sub"]
    assert [entry.path for entry in api.list_repo_tree(repo_id, "sub")] == paths
    assert [entry.path for entry in api.list_repo_tree(repo_id, recursive=True)] == [".gitattributes", "sub", *paths]
    expanded = list(api.list_repo_tree(repo_id, "sub", expand=True))
    assert {entry.last_commit.title for entry in expanded if entry.last_commit} == {"x"}
    with pytest.raises(RemoteEntryNotFoundError):
        list(api.list_repo_tree(repo_id, "nowhere"))


def test_info_of_paths_leaves_out_what_is_absent(repo_id: str, api: HfApi) -> None:
    api.create_commit(repo_id, [add("sub/a.txt", "hello\n")], commit_message="x")
    file, folder = api.get_paths_info(repo_id, ["sub/a.txt", "sub", "absent"])
    assert (file.path, folder.path) == ("sub/a.txt", "sub")
    assert getattr(file, "blob_id", None) == "ce013625030ba8dba906f756967f9e9ca394464a"  # git hash-object
    with pytest.raises(HfHubHTTPError) as refused:
        api.get_paths_info(repo_id, [str(number) for number in range(6)])
    assert refused.value.response.status_code == 413


def test_ids_are_those_of_git(repo_id: str, api: HfApi) -> None:
    api.create_commit(repo_id, [add("sub/a.txt", "hello\n")], commit_message="x")
    (_file, folder) = sorted(api.list_repo_tree(repo_id), key=lambda entry: entry.path)
    assert getattr(folder, "tree_id", None) == "2e81171448eb9f2ee3821e3d447aa6b2fe3ddba1"  # git mktree


def test_info_says_only_what_is_asked_for(repo_id: str, api: HfApi) -> None:
    told = api.model_info(repo_id, expand=["usedStorage", "private"])
    assert (told.used_storage, told.private, told.sha) == (0, True, None)
    assert api.model_info(repo_id, files_metadata=True).siblings is not None
    with pytest.raises(BadRequestError):
        api.model_info(repo_id, expand=["mood"])  # type: ignore[list-item]


def test_a_card_is_judged_before_anything_is_sent(repo_id: str, api: HfApi, hub: HubServer) -> None:
    good, bad = "---\nlicense: apache-2.0\n---\n# Model\n", "---\nlicense: freedom\n---\n# Model\n"
    put_card = [add("README.md", good)]
    api.create_commit(repo_id, put_card, commit_message="x")
    hub.forget_requests()
    with pytest.raises(ValueError, match="license"):
        api.create_commit(repo_id, [add("README.md", bad)], commit_message="x")
    with pytest.raises(ValueError, match="invalid yaml"):
        api.create_commit(repo_id, [add("README.md", "---\na: [\n---\n")], commit_message="x")
    with pytest.warns(UserWarning, match="empty or missing yaml"):
        api.create_commit(repo_id, [add("README.md", "# Model\n")], commit_message="y")
    assert [seen.operation for seen in hub.writes] == [Operation.COMMIT]


def test_tokens_are_refused_in_any_file(repo_id: str, api: HfApi, hub: HubServer) -> None:
    token = hub.add_token("leaked", user="alice")
    before = hub.repos[repo_id].head()
    for operation in (add("config.json", f'{{"key": "{token}"}}'), add("model.safetensors", token)):
        with pytest.raises(BadRequestError, match="secrets") as refused:
            api.create_commit(repo_id, [operation], commit_message="x")
        assert token in str(refused.value)  # as the Hub does: whoever logs this leaks it
    assert hub.repos[repo_id].head() == before
    assert token not in repr(hub.requests)


@pytest.mark.parametrize("path", ["a//b", "a/./b"])
def test_odd_paths_are_refused(repo_id: str, api: HfApi, path: str) -> None:
    with pytest.raises(BadRequestError, match="Invalid path"):
        api.create_commit(repo_id, [add(path, "1")], commit_message="x")


def test_a_file_is_no_folder(repo_id: str, api: HfApi) -> None:
    put(api, repo_id, a="1")
    with pytest.raises(BadRequestError, match="below a file"):
        api.create_commit(repo_id, [add("a.txt/b", "1")], commit_message="x")


def test_a_folder_holds_only_so_many_files(repo_id: str, api: HfApi, limits: Limits) -> None:
    files = [add(f"sub/{number}.txt", str(number)) for number in range(limits.folder + 1)]
    api.create_commit(repo_id, files[1:], commit_message="x")
    with pytest.raises(BadRequestError, match="Too many files"):
        api.create_commit(repo_id, files[:1], commit_message="y")


def test_of_many_writers_on_one_parent_one_wins(repo_id: str, api: HfApi, hub: HubServer) -> None:
    parent, start = hub.repos[repo_id].head(), threading.Barrier(6)

    def write(number: int) -> str | int:
        start.wait(30)
        try:
            return put(api, repo_id, parent, a=str(number))
        except HfHubHTTPError as refused:
            return refused.response.status_code

    with ThreadPoolExecutor(6) as pool:
        ends = list(pool.map(write, range(6)))
    assert sorted(end for end in ends if isinstance(end, int)) == [412] * 5
    (winner,) = [number for number, end in enumerate(ends) if isinstance(end, str)]
    assert hub.repos[repo_id].read("main", "a.txt") == str(winner).encode()
    assert len(hub.repos[repo_id].history) == 2


def test_an_ignored_file_is_left_out_without_a_word(repo_id: str, api: HfApi, hub: HubServer) -> None:
    api.create_commit(repo_id, [add(".gitignore", "*.log\n")], commit_message="x")
    api.create_commit(repo_id, [add("a.log", "1"), add("a.txt", "1")], commit_message="y")
    assert hub.repos[repo_id].files() == [".gitattributes", ".gitignore", "a.txt"]


def test_the_record_holds_no_token(repo_id: str, api: HfApi, hub: HubServer) -> None:
    put(api, repo_id, a="1")
    record = repr(hub.requests)
    assert "writer" in record
    assert str(api.token) not in record
    (commit,) = hub.writes
    assert (commit.method, commit.path, commit.status) == ("POST", "/api/models/acme/model/commit/main", 200)
    assert commit.received > 0 < commit.sent
