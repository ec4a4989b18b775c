"""Endpoints of LFS: announcing, sending, checking, serving and deleting large files."""

import hashlib
from collections.abc import Mapping
from http import HTTPStatus
from math import ceil

from support.hub.accounts import Visibility
from support.hub.endpoints import Operation
from support.hub.objects import api_date, moment
from support.hub.pages import page_of, ranged
from support.hub.refusals import Answer, RefusedError, bad_request, forbidden
from support.hub.repos import LargeObject, Repo
from support.hub.state import Access, Call, Handler, HubState, answer_json, signed_terms


def batch(state: HubState, call: Call) -> Answer:
    """Say where each object has to be sent; objects that are here already need no action."""
    repo = state.repo(call, Access.CHANGE)
    asked = call.json()
    objects = asked.get("objects")
    transfers = asked.get("transfers", ["basic"])
    if asked.get("operation") != "upload" or asked.get("hash_algo", "sha256") != "sha256":
        raise bad_request("Only uploads by sha256 are served here")
    if not isinstance(objects, list) or not isinstance(transfers, list):
        raise bad_request("objects and transfers must be lists")
    try:
        wanted = [(str(item["oid"]), int(item["size"])) for item in objects]
    except (TypeError, KeyError, ValueError) as error:
        raise bad_request("Every object needs oid and size") from error
    missing = sum(size for oid, size in wanted if oid not in repo.objects)
    _refuse_beyond_limit(state, repo, missing)
    return answer_json({"transfer": "basic", "objects": [_plan(state, repo, oid, size) for oid, size in wanted]})


def _refuse_beyond_limit(state: HubState, repo: Repo, more: int) -> None:
    limit = state.accounts.namespaces[repo.namespace].private_limit
    if repo.visibility is Visibility.PUBLIC or limit is None:
        return
    if state.private_use(repo.namespace) + more > limit:
        raise forbidden("Private repository storage limit reached, please upgrade your plan")


def _plan(state: HubState, repo: Repo, oid: str, size: int) -> dict[str, object]:
    if oid in repo.objects:
        return {"oid": oid, "size": size, "authenticated": True}
    place = f"/lfs/{repo.kind}s/{repo.id}/{oid}"
    verify = {"href": f"{state.hub_url}/{repo.kind.prefix}{repo.id}.git/info/lfs/objects/verify"}
    if size <= state.limits.multipart_above:
        upload: dict[str, object] = {"href": state.sign("PUT", state.storage_url, place, size=size)}
    else:
        part = state.limits.part
        count = ceil(size / part)
        urls = {
            f"{number:05d}": state.sign(
                "PUT", state.storage_url, place, size=min(part, size - part * (number - 1)), part=number
            )
            for number in range(1, count + 1)
        }
        complete = state.sign("POST", state.hub_url, f"/api/complete_multipart{place}", size=size, parts=count)
        upload = {"href": complete, "header": {"chunk_size": str(part), **urls}}
    return {"oid": oid, "size": size, "authenticated": True, "actions": {"upload": upload, "verify": verify}}


def put_object(state: HubState, call: Call) -> Answer:
    """Take an object or a part; what is not the announced bytes is refused."""
    terms = signed_terms(call)
    repo = _repo_of_url(state, call)
    if len(call.body) != terms["size"]:
        raise bad_request(f"IncompleteBody: {len(call.body)} bytes came, {terms['size']} were announced")
    etag = {"ETag": f'"{hashlib.md5(call.body, usedforsecurity=False).hexdigest()}"'}
    if "part" in terms:
        state.parts.setdefault(call.path, {})[terms["part"]] = call.body
        return Answer(headers=etag)
    _keep(repo, call.args["oid"], call.body)
    return Answer(headers=etag)


def complete_multipart(state: HubState, call: Call) -> Answer:
    """Make an object of its parts."""
    terms = signed_terms(call)
    repo = _repo_of_url(state, call)
    asked = call.json()
    parts = state.parts.get(call.path.removeprefix("/api/complete_multipart"), {})
    listed = asked.get("parts")
    sent = {number: hashlib.md5(body, usedforsecurity=False).hexdigest() for number, body in parts.items()}
    if not isinstance(listed, list) or len(listed) != terms["parts"]:
        raise bad_request(f"InvalidPart: {terms['parts']} parts were announced")
    try:
        claimed = {int(part["partNumber"]): str(part["etag"]).strip('"') for part in listed}
    except (TypeError, KeyError, ValueError) as error:
        raise bad_request("InvalidPart: every part needs partNumber and etag") from error
    if claimed != sent or asked.get("oid") != call.args["oid"]:
        raise bad_request("InvalidPart: what is to be completed is not what was sent")
    _keep(repo, call.args["oid"], b"".join(parts[number] for number in sorted(parts)))
    del state.parts[call.path.removeprefix("/api/complete_multipart")]
    return Answer()


def _keep(repo: Repo, oid: str, content: bytes) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != oid:
        raise bad_request(f"BadDigest: the bytes have the sha256 {found}, not {oid}")
    repo.store_object(oid, content)


def verify(state: HubState, call: Call) -> Answer:
    """Confirm that an object has arrived whole."""
    repo = state.repo(call, Access.CHANGE)
    asked = call.json()
    stored = repo.objects.get(str(asked.get("oid")))
    if stored is None or len(stored.content) != asked.get("size"):
        raise RefusedError(HTTPStatus.NOT_FOUND, f"Object {asked.get('oid')} of that size is not here")
    return answer_json({"success": True})


def get_object(state: HubState, call: Call) -> Answer:
    """Serve an object or a range of it to whoever has the signed URL."""
    signed_terms(call)
    stored = _repo_of_url(state, call).objects.get(call.args["oid"])
    if stored is None:
        raise forbidden("AccessDenied")  # what a storage answers that must not tell what is there
    headers = {"Content-Type": "application/octet-stream", "ETag": f'"{call.args["oid"]}"'}
    return ranged(stored.content, call, headers)


def _repo_of_url(state: HubState, call: Call) -> Repo:
    repo = state.repos.find(call.kind, call.args["id"])
    if repo is None:
        raise forbidden("AccessDenied")
    return repo


def lfs_files(state: HubState, call: Call) -> Answer:
    """List the objects that were uploaded, committed or not."""
    repo = state.repo(call, Access.CHANGE)
    listed = [_listed(oid, stored) for oid, stored in repo.objects.items()]
    items, headers = page_of(listed, call, state.hub_url, size=state.limits.page)
    return answer_json(items, headers=headers)


def _listed(oid: str, stored: LargeObject) -> dict[str, object]:
    return {
        "fileOid": oid,
        "oid": oid,
        "filename": stored.path or "",
        "pushedAt": api_date(moment(stored.pushed)),
        "ref": stored.ref,
        "size": len(stored.content),
    }


def delete_lfs_files(state: HubState, call: Call) -> Answer:
    """Remove objects for good."""
    repo = state.repo(call, Access.CHANGE)
    wanted = call.json().get("deletions")
    if not isinstance(wanted, dict) or not isinstance(wanted.get("sha"), list):
        raise bad_request("deletions.sha must be a list")
    repo.delete_objects([str(oid) for oid in wanted["sha"]], rewrite_history=bool(wanted.get("rewriteHistory", True)))
    return Answer()


def xet_token(_state: HubState, _call: Call) -> Answer:
    """Refuse: this server stores by LFS only."""
    raise RefusedError(HTTPStatus.NOT_FOUND, "This server has no xet storage: set HF_HUB_DISABLE_XET=1")


HANDLERS: Mapping[Operation, Handler] = {
    Operation.LFS_BATCH: batch,
    Operation.LFS_PUT: put_object,
    Operation.LFS_COMPLETE: complete_multipart,
    Operation.LFS_VERIFY: verify,
    Operation.LFS_GET: get_object,
    Operation.LFS_FILES: lfs_files,
    Operation.DELETE_LFS_FILES: delete_lfs_files,
    Operation.XET_TOKEN: xet_token,
}
