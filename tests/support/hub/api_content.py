"""Endpoints about files: listing, reading, and the commit."""

from base64 import b64decode
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import parse_qs, quote

from support.hub.committing import apply, parse
from support.hub.content_rules import goes_large, is_ignored
from support.hub.endpoints import Operation
from support.hub.objects import Commit, LargeFile, StoredFile, api_date, folder_ids
from support.hub.pages import page_of, ranged
from support.hub.refusals import Answer, RefusedError, bad_request, entry_not_found, revision_not_found
from support.hub.repos import Repo
from support.hub.state import Access, Call, Handler, HubState, answer_json


def tree(state: HubState, call: Call) -> Answer:
    """List a folder, or all below it."""
    repo = state.repo(call, Access.SEE)
    commit = repo.resolve(call.args["revision"])
    folder = call.args.get("path", "").strip("/")
    entries = _entries(commit)
    if folder and entries.get(folder, None) is not None:
        raise entry_not_found(f"{folder} is not a folder", commit=commit.oid)
    if folder not in entries and folder:
        raise entry_not_found(f"{folder} does not exist on {call.args['revision']!r}", commit=commit.oid)
    prefix = f"{folder}/" if folder else ""
    recursive, expand = call.flag("recursive"), call.flag("expand")
    ids = folder_ids(commit.tree)
    listed = [
        _describe(repo, commit, path, ids, expand=expand)
        for path in sorted(entries)
        if path.startswith(prefix) and (recursive or "/" not in path.removeprefix(prefix))
    ]
    size = state.limits.expanded_page if expand else state.limits.page
    items, headers = page_of(listed, call, state.hub_url, size=size)
    return answer_json(items, headers=headers)


def paths_info(state: HubState, call: Call) -> Answer:
    """Describe the paths that exist among those that are asked for."""
    repo = state.repo(call, Access.SEE)
    commit = repo.resolve(call.args["revision"])
    if call.headers.get("content-type", "").startswith("application/json"):
        asked = call.json()
        named, expand = asked.get("paths", []), bool(asked.get("expand"))
        paths = [str(path) for path in named] if isinstance(named, list) else [str(named)]
    else:
        form = parse_qs(call.body.decode())
        paths, expand = form.get("paths", []), form.get("expand", ["false"]) == ["true"]
    if len(paths) > state.limits.paths:
        raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too many parameters")
    entries, ids = _entries(commit), folder_ids(commit.tree)
    known = [path.strip("/") for path in paths if path.strip("/") in entries]
    return answer_json([_describe(repo, commit, path, ids, expand=expand) for path in known])


def _entries(commit: Commit) -> dict[str, StoredFile | None]:
    """Return files, and folders as None."""
    return {**{folder: None for folder in folder_ids(commit.tree) if folder}, **commit.tree}


def _describe(repo: Repo, commit: Commit, path: str, ids: Mapping[str, str], *, expand: bool) -> dict[str, object]:
    file = commit.tree.get(path)
    if file is None:
        found: dict[str, object] = {"type": "directory", "oid": ids[path], "size": 0, "path": path}
    else:
        found = {"type": "file", "oid": file.blob_id, "size": file.size, "path": path}
    if isinstance(file, LargeFile):
        found["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": len(file.pointer)}
    if expand:
        last = repo.last_change(commit.oid, path)
        found["lastCommit"] = {"id": last.oid, "title": last.title, "date": api_date(last.date)}
    if expand and file is not None:
        found["securityFileStatus"] = {"status": "unscanned", "avScan": None, "pickleImportScan": None}
    return found


def preupload(state: HubState, call: Call) -> Answer:
    """Say of each file how it has to be sent, and what stands in its place now."""
    repo = state.repo(call, Access.CHANGE)
    commit = repo.resolve(call.args["revision"])
    asked = call.json()
    files = asked.get("files")
    if not isinstance(files, list):
        raise bad_request("preupload: files must be a list")
    ignore = asked.get("gitIgnore")
    gitignore = None if ignore is None else str(ignore)
    return answer_json({"commitOid": commit.oid, "files": [_mode(commit, file, gitignore) for file in files]})


def _mode(commit: Commit, asked: Mapping[str, object], gitignore: str | None) -> dict[str, object]:
    path, size, sample = asked.get("path"), asked.get("size"), asked.get("sample")
    if not (isinstance(path, str) and isinstance(size, int) and isinstance(sample, str)):
        raise bad_request("preupload: every file needs path, size and sample")
    try:
        large = goes_large(commit.tree, path, size, b64decode(sample, validate=True))
    except ValueError as error:
        raise bad_request(f"preupload: invalid sample for {path}") from error
    found: dict[str, object] = {
        "path": path,
        "uploadMode": "lfs" if large else "regular",
        "shouldIgnore": is_ignored(path, gitignore, commit.tree),
    }
    present = commit.tree.get(path)
    return found if present is None else {**found, "oid": present.compared_by}


def commit_files(state: HubState, call: Call) -> Answer:
    """Make a commit on a branch, all of it or nothing."""
    repo = state.repo(call, Access.CHANGE)
    branch = call.args["revision"]
    if call.flag("create_pr"):
        raise RefusedError(HTTPStatus.NOT_IMPLEMENTED, "This server has no pull requests")
    if branch not in repo.branches:
        raise revision_not_found(branch)
    header, changes = parse(call.body)
    head = repo.expect_parent(branch, header.parent)
    files = apply(repo, head.tree, changes, branch=branch, folder_limit=state.limits.folder)
    made = repo.commit(branch, files, title=header.summary, message=header.description, author=call.author)
    url = f"{state.hub_url}/{repo.kind.prefix}{repo.id}/commit/{made.oid}"
    return answer_json({"success": True, "commitOid": made.oid, "commitUrl": url, "hookOutput": ""})


def resolve_file(state: HubState, call: Call) -> Answer:
    """Serve a regular file; send those who want a large one to the storage, with a signed URL."""
    repo = state.repo(call, Access.FILES)
    commit = repo.resolve(call.args["revision"])
    path = call.args["path"]
    file = commit.tree.get(path)
    if file is None:
        raise entry_not_found(commit=commit.oid)
    headers = {"X-Repo-Commit": commit.oid, "Content-Disposition": _disposition(path)}
    if not isinstance(file, LargeFile):
        kind = {"Content-Type": "text/plain; charset=utf-8", "ETag": f'"{file.blob_id}"'}
        return ranged(repo.content(file), call, {**headers, **kind})
    place = f"/lfs/{repo.kind}s/{repo.id}/{file.sha256}"
    location = state.sign("GET", state.storage_url, place)
    linked = {"Location": location, "X-Linked-Size": str(file.size), "X-Linked-ETag": f'"{file.sha256}"'}
    body = f"Found. Redirecting to {location}".encode()
    return Answer(status=HTTPStatus.FOUND, headers={**headers, **linked, "Content-Type": "text/plain"}, body=body)


def _disposition(path: str) -> str:
    name = quote(path.rpartition("/")[2])
    return f"inline; filename*=UTF-8''{name}; filename=\"{name}\";"


HANDLERS: Mapping[Operation, Handler] = {
    Operation.TREE: tree,
    Operation.PATHS_INFO: paths_info,
    Operation.PREUPLOAD: preupload,
    Operation.COMMIT: commit_files,
    Operation.STAT_FILE: resolve_file,
    Operation.GET_FILE: resolve_file,
}
