"""Endpoints about repos as a whole: existence, settings, refs, history."""

import re
from collections.abc import Mapping
from http import HTTPStatus

from support.hub.accounts import Visibility
from support.hub.content_rules import initial_files, judge_card
from support.hub.endpoints import Operation
from support.hub.objects import Commit, LargeFile, StoredFile, api_date, moment
from support.hub.pages import page_of
from support.hub.refusals import Answer, RefusedError, bad_request, forbidden
from support.hub.repos import MAIN, Gate, Repo, RepoKind
from support.hub.state import Access, Call, Handler, HubState, answer_json

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?")


def whoami(state: HubState, call: Call) -> Answer:
    """Tell who the token belongs to."""
    token = call.token
    if token is None:
        raise RefusedError(HTTPStatus.UNAUTHORIZED, "Invalid username or password.")
    orgs = [
        {"type": "org", "name": space.name, "fullname": space.name, "roleInOrg": str(role)}
        for space in state.accounts.namespaces.values()
        if space.members is not None and (role := space.role_of(token.user)) is not None
    ]
    access = {"displayName": token.name, "role": str(token.role)}
    auth = {"type": "access_token", "accessToken": access}
    return answer_json({"type": "user", "name": token.user, "fullname": token.user, "orgs": orgs, "auth": auth})


def validate_card(_state: HubState, call: Call) -> Answer:
    """Judge a README before anything is uploaded."""
    verdict = judge_card(str(call.json().get("content", "")))
    data = {
        "errors": [{"message": message} for message in verdict.errors],
        "warnings": [{"message": message} for message in verdict.warnings],
    }
    return answer_json(data, status=HTTPStatus.BAD_REQUEST if verdict.errors else HTTPStatus.OK)


def create_repo(state: HubState, call: Call) -> Answer:
    """Make a repo; public, unless the request or the namespace says otherwise."""
    asked = call.json()
    kind, repo_id = _asked_repo(call, asked)
    namespace, _slash, name = repo_id.partition("/")
    if not _NAME.fullmatch(name) or "--" in name or ".." in name or name.endswith((".git", ".ipynb")):
        raise bad_request(f"Invalid repo name: {name}")
    if not state.accounts.may_write(call.token, namespace):
        raise forbidden(f"You don't have the rights to create a {kind} under the namespace {namespace!r}")
    url = f"{state.hub_url}/{kind.prefix}{repo_id}"
    if state.repos.find(kind, repo_id) is not None:
        message = f"You already created this {kind} repo: {repo_id}"
        raise RefusedError(HTTPStatus.CONFLICT, message, details={"url": url})
    visibility = _asked_visibility(asked) or state.accounts.namespaces[namespace].default_visibility
    repo = Repo(kind, repo_id, visibility, state.tick)
    repo.commit(MAIN, initial_files(), title="initial commit", message="", author="system")
    state.repos.add(repo)
    return answer_json({"url": url, "name": repo_id, "id": f"{repo.created:024x}"})


def delete_repo(state: HubState, call: Call) -> Answer:
    """Remove a repo."""
    kind, repo_id = _asked_repo(call, call.json())
    state.repos.remove(state.named_repo(call.token, kind, repo_id, Access.CHANGE))
    return Answer()


def _asked_repo(call: Call, asked: Mapping[str, object]) -> tuple[RepoKind, str]:
    if call.token is None:
        raise RefusedError(HTTPStatus.UNAUTHORIZED, "Invalid username or password.")
    try:
        kind = RepoKind(str(asked.get("type", RepoKind.MODEL)))
    except ValueError as error:
        raise bad_request(f"Invalid repo type: {asked.get('type')}") from error
    return kind, f"{asked.get('organization') or call.token.user}/{asked.get('name')}"


def _asked_visibility(asked: Mapping[str, object]) -> Visibility | None:
    if "private" in asked and "visibility" not in asked:
        return Visibility.PRIVATE if asked["private"] else Visibility.PUBLIC
    if "visibility" not in asked:
        return None
    try:
        return Visibility(str(asked["visibility"]))
    except ValueError as error:
        raise bad_request(f"Invalid visibility: {asked['visibility']}") from error


def update_settings(state: HubState, call: Call) -> Answer:
    """Change visibility and gate."""
    repo = state.repo(call, Access.CHANGE)
    asked = call.json()
    gates = {gate.as_json: gate for gate in Gate}
    wanted = asked.get("gated", repo.gated.as_json)
    if not isinstance(wanted, str | bool) or wanted not in gates:
        raise bad_request(f"Invalid gated: {wanted}")
    repo.visibility = _asked_visibility(asked) or repo.visibility
    repo.gated = gates[wanted]
    return answer_json({"visibility": str(repo.visibility), "gated": repo.gated.as_json})


def repo_info(state: HubState, call: Call) -> Answer:
    """Describe a repo at a revision: what is asked for with ``expand``, or else the usual."""
    repo = state.repo(call, Access.SEE)
    commit = repo.resolve(call.args.get("revision", MAIN))
    facts = {
        "author": repo.namespace,
        "createdAt": api_date(moment(repo.created)),
        "disabled": False,
        "downloads": 0,
        "gated": repo.gated.as_json,
        "lastModified": api_date(commit.date),
        "likes": 0,
        "private": repo.visibility is Visibility.PRIVATE,
        "sha": commit.oid,
        "siblings": _siblings(commit, detailed=call.flag("blobs")),
        "tags": [],
        "usedStorage": repo.used_storage,
    }
    wanted = call.query.get("expand", list(facts))
    if set(wanted) - facts.keys():
        raise bad_request(f"Invalid expand: {sorted(set(wanted) - facts.keys())} (this server has {sorted(facts)})")
    chosen = {name: facts[name] for name in wanted}
    return answer_json({"_id": f"{repo.created:024x}", "id": repo.id, **chosen})


def _siblings(commit: Commit, *, detailed: bool) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for path, file in sorted(commit.tree.items()):
        found.append({"rfilename": path, **(_details(file) if detailed else {})})
    return found


def _details(file: StoredFile) -> dict[str, object]:
    details: dict[str, object] = {"size": file.size, "blobId": file.blob_id}
    if isinstance(file, LargeFile):
        details["lfs"] = {"sha256": file.sha256, "size": file.size, "pointerSize": len(file.pointer)}
    return details


def auth_check(state: HubState, call: Call) -> Answer:
    """Tell whether the token may read the files, or change them."""
    state.repo(call, Access.CHANGE if "write" in call.args else Access.FILES)
    return Answer()


def refs(state: HubState, call: Call) -> Answer:
    """List branches and tags."""
    repo = state.repo(call, Access.SEE)
    groups: dict[str, list[dict[str, str]]] = {"converts": [], "pullRequests": []}
    for group, names, place in (("branches", repo.branches, "heads"), ("tags", repo.tags, "tags")):
        groups[group] = [
            {"name": name, "ref": f"refs/{place}/{name}", "targetCommit": oid} for name, oid in names.items()
        ]
    return answer_json(groups)


def create_branch(state: HubState, call: Call) -> Answer:
    """Add a branch."""
    start = call.json().get("startingPoint")
    state.repo(call, Access.CHANGE).create_branch(call.args["name"], None if start is None else str(start))
    return Answer()


def delete_branch(state: HubState, call: Call) -> Answer:
    """Remove a branch."""
    state.repo(call, Access.CHANGE).delete_branch(call.args["name"])
    return Answer()


def create_tag(state: HubState, call: Call) -> Answer:
    """Add a tag."""
    asked = call.json()
    repo = state.repo(call, Access.CHANGE)
    repo.create_tag(str(asked.get("tag")), call.args["revision"], str(asked.get("message", "")))
    return Answer()


def delete_tag(state: HubState, call: Call) -> Answer:
    """Remove a tag."""
    state.repo(call, Access.CHANGE).delete_tag(call.args["name"])
    return Answer()


def squash(state: HubState, call: Call) -> Answer:
    """Make one commit of a branch's history."""
    repo = state.repo(call, Access.CHANGE)
    repo.squash(call.args["name"], str(call.json().get("message")), call.author)
    return Answer()


def commits(state: HubState, call: Call) -> Answer:
    """List a revision's history, newest first."""
    repo = state.repo(call, Access.SEE)
    listed = [
        {
            "id": commit.oid,
            "title": commit.title,
            "message": commit.message,
            "authors": [{"user": commit.author}],
            "date": api_date(commit.date),
        }
        for commit in repo.log(call.args["revision"])
    ]
    items, headers = page_of(listed, call, state.hub_url, size=state.limits.expanded_page)
    return answer_json(items, headers=headers)


HANDLERS: Mapping[Operation, Handler] = {
    Operation.WHOAMI: whoami,
    Operation.VALIDATE_CARD: validate_card,
    Operation.CREATE_REPO: create_repo,
    Operation.DELETE_REPO: delete_repo,
    Operation.SETTINGS: update_settings,
    Operation.REPO_INFO: repo_info,
    Operation.AUTH_CHECK: auth_check,
    Operation.REFS: refs,
    Operation.CREATE_BRANCH: create_branch,
    Operation.DELETE_BRANCH: delete_branch,
    Operation.CREATE_TAG: create_tag,
    Operation.DELETE_TAG: delete_tag,
    Operation.SQUASH: squash,
    Operation.COMMITS: commits,
}
