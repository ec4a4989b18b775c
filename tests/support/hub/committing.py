"""Turns the body of a commit request into the next state of a repo, or refuses it."""

import base64
import binascii
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from support.hub.content_rules import LARGE_FROM, find_secret, judge_card
from support.hub.objects import LargeFile, RegularFile, StoredFile, Tree
from support.hub.refusals import bad_request, entry_not_found
from support.hub.repos import Repo

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of a commit's body."""

    summary: str
    description: str
    parent: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One further line: what to do, and its arguments."""

    key: str
    value: Mapping[str, object]

    def text(self, name: str) -> str:
        """Return an argument that has to be a string."""
        found = self.value.get(name)
        if not isinstance(found, str):
            raise bad_request(f"{self.key}: {name!r} must be a string")
        return found


def parse(body: bytes) -> tuple[Header, list[Change]]:
    """Read the lines of JSON that a commit request consists of."""
    try:
        lines = [json.loads(line) for line in body.splitlines() if line]
        changes = [Change(key=line["key"], value=line["value"]) for line in lines]
    except (ValueError, TypeError, KeyError) as error:
        raise bad_request(f"Invalid commit payload: {error!r}") from error
    if not changes or changes[0].key != "header":
        raise bad_request("Invalid commit payload: the header line is missing")
    head = changes[0]
    parent = head.value.get("parentCommit")
    header = Header(
        summary=head.text("summary"),
        description=str(head.value.get("description", "")),
        parent=None if parent is None else str(parent),
    )
    if not header.summary:
        raise bad_request("Invalid commit payload: the summary is empty")
    return header, changes[1:]


def apply(repo: Repo, tree: Tree, changes: list[Change], *, branch: str, folder_limit: int) -> Tree:
    """Return the state after all changes."""
    files = dict(tree)
    for change in changes:
        path = _checked_path(change.text("path"))
        match change.key:
            case "file":
                files[path] = _regular(repo, path, change, branch)
            case "lfsFile":
                files[path] = _large(repo, path, change, branch)
            case "deletedFile":
                _delete_file(files, path)
            case "deletedFolder":
                _delete_folder(files, path.rstrip("/"))
            case _:
                raise bad_request(f"Unknown operation in commit: {change.key}")
    _refuse_file_as_folder(files)
    _refuse_full_folder(files, folder_limit)
    return files


def _checked_path(path: str) -> str:
    parts = path.rstrip("/").split("/")
    if any(part in {"", ".", "..", ".git"} for part in parts) or any(ord(letter) < ord(" ") for letter in path):
        raise bad_request(f"Invalid path in commit: {path!r}")
    return path


def _regular(repo: Repo, path: str, change: Change, branch: str) -> StoredFile:
    if change.value.get("encoding", "utf-8") != "base64":
        raise bad_request(f"Unknown encoding for {path}")
    try:
        content = base64.b64decode(change.text("content"), validate=True)
    except binascii.Error as error:
        raise bad_request(f"Invalid base64 content for {path}") from error
    if len(content) > LARGE_FROM:
        raise bad_request(f"Your push was rejected because it contains files larger than 10 MiB: {path}")
    _refuse_secret(path, content, branch)
    if path == "README.md" and (wrong := judge_card(content.decode(errors="replace")).errors):
        raise bad_request(f"Invalid metadata in README.md: {'; '.join(wrong)} ({repo.id})")
    return RegularFile(content=content)


def _large(repo: Repo, path: str, change: Change, branch: str) -> StoredFile:
    oid = change.text("oid")
    stored = repo.objects.get(oid)
    if change.value.get("algo") != "sha256" or not _SHA256.fullmatch(oid):
        raise bad_request(f"Invalid LFS oid for {path}")
    size = None if stored is None else len(stored.content)
    if stored is None or change.value.get("size", size) != size:
        raise bad_request(
            "Your push was rejected because an LFS pointer pointed to a file that does not exist. "
            f"Offending file: - {path}"
        )
    _refuse_secret(path, stored.content, branch)
    return LargeFile(sha256=oid, size=len(stored.content))


def _refuse_secret(path: str, content: bytes, branch: str) -> None:
    secret = find_secret(content)
    if secret is not None:  # the Hub quotes it, so a client has to keep the answer out of its logs
        raise bad_request(
            "It appears that one or more of your files contain valid Hugging Face secrets, such as tokens or API keys. "
            f"Offending files: - {path} (ref: refs/heads/{branch}, token: '{secret}')"
        )


def _delete_file(files: dict[str, StoredFile], path: str) -> None:
    if files.pop(path, None) is None:
        raise entry_not_found(f"A file with this name doesn't exist: {path}")


def _delete_folder(files: dict[str, StoredFile], folder: str) -> None:
    inside = [path for path in files if path.startswith(f"{folder}/")]
    if not inside:
        raise entry_not_found(f"A folder with this name doesn't exist: {folder}")
    for path in inside:
        del files[path]


def _refuse_file_as_folder(files: Mapping[str, StoredFile]) -> None:
    for path in files:
        parts = path.split("/")
        for depth in range(1, len(parts)):
            if "/".join(parts[:depth]) in files:
                raise bad_request(f"Invalid path in commit: {path!r} lies below a file")


def _refuse_full_folder(files: Mapping[str, StoredFile], limit: int) -> None:
    for folder, count in Counter(path.rpartition("/")[0] for path in files).items():
        if count > limit:
            raise bad_request(f"Too many files in one folder: {folder or '/'} has {count}, at most {limit} are allowed")
