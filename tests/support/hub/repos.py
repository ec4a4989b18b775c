"""A repo: its refs, its history, its LFS objects, and the rules of a commit."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from http import HTTPStatus

from support.hub.accounts import Visibility
from support.hub.objects import Commit, LargeFile, RegularFile, StoredFile, Tree, make_commit
from support.hub.refusals import RefusedError, bad_request, forbidden, revision_not_found, stale_parent

MAIN = "main"
_SHORTEST_PARENT = 5
_SHORTEST_REVISION = 7


class RepoKind(StrEnum):
    """The kinds that this server has."""

    MODEL = "model"
    DATASET = "dataset"
    SPACE = "space"

    @property
    def prefix(self) -> str:
        """What stands before the id in a URL outside the API."""
        return "" if self is RepoKind.MODEL else f"{self.value}s/"


class Gate(StrEnum):
    """Who may read the files of a repo that everyone may see."""

    OPEN = "open"
    AUTO = "auto"
    MANUAL = "manual"

    @property
    def as_json(self) -> str | bool:
        """The Hub's word for it."""
        return False if self is Gate.OPEN else self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeObject:
    """The bytes of an LFS object.  ``path`` and ``ref`` are None until a commit names it."""

    content: bytes
    pushed: int
    path: str | None = None
    ref: str | None = None


class Repo:
    """One repo.  Tests read it; only the server changes it.

    ``granted`` are the users that the gate lets in, besides the members of the namespace.
    """

    def __init__(self, kind: RepoKind, repo_id: str, visibility: Visibility, tick: Callable[[], int]) -> None:
        self.kind = kind
        self.id = repo_id
        self.visibility = visibility
        self.gated = Gate.OPEN
        self.granted: set[str] = set()
        self.branches: dict[str, str] = {}
        self.tags: dict[str, str] = {}
        self.tag_messages: dict[str, str] = {}
        self.objects: dict[str, LargeObject] = {}
        self._commits: dict[str, Commit] = {}
        self._tick = tick
        self.created = tick()

    @property
    def namespace(self) -> str:
        """The user or organisation that it belongs to."""
        return self.id.partition("/")[0]

    @property
    def history(self) -> list[Commit]:
        """The commits of main, newest first."""
        return self.log(MAIN)

    @property
    def used_storage(self) -> int:
        """Bytes of all LFS objects that were ever committed.

        Neither deleting a file nor squashing lowers it; permanent deletion does, and garbage collection.
        """
        return sum(len(stored.content) for stored in self.objects.values() if stored.path is not None)

    def head(self, branch: str = MAIN) -> str:
        """Return the commit that a branch points to."""
        return self.branches[branch]

    def files(self, revision: str = MAIN) -> list[str]:
        """Return the paths of all files of a revision, sorted."""
        return sorted(self.resolve(revision).tree)

    def read(self, revision: str, path: str) -> bytes:
        """Return a file's content, through its pointer if it is large."""
        return self.content(self.resolve(revision).tree[path])

    def content(self, file: StoredFile) -> bytes:
        """Return what a file holds; KeyError for an object that was permanently deleted."""
        return file.content if isinstance(file, RegularFile) else self.objects[file.sha256].content

    def log(self, revision: str) -> list[Commit]:
        """Return the commits that lead to a revision, newest first."""
        found = [self.resolve(revision)]
        while found[-1].parents:
            found.append(self._commits[found[-1].parents[0]])
        return found

    def resolve(self, revision: str) -> Commit:
        """Return the commit of a branch, a tag, or a commit id of at least seven digits."""
        oid = self.branches.get(revision) or self.tags.get(revision)
        if oid is None and len(revision) >= _SHORTEST_REVISION:
            matches = [known for known in self._commits if known.startswith(revision)]
            oid = matches[0] if len(matches) == 1 else None
        if oid is None:
            raise revision_not_found(revision)
        return self._commits[oid]

    def expect_parent(self, branch: str, parent: str | None) -> Commit:
        """Return the head of a branch, or refuse if it is not the parent that the client expects."""
        if branch not in self.branches:
            raise revision_not_found(branch)
        head = self._commits[self.branches[branch]]
        if parent is not None and not (len(parent) >= _SHORTEST_PARENT and head.oid.startswith(parent.lower())):
            raise stale_parent()
        return head

    def commit(self, branch: str, tree: Tree, *, title: str, message: str, author: str) -> Commit:
        """Move a branch on to a new state.  A state equal to the present one makes no commit."""
        head = self._commits.get(self.branches.get(branch, ""))
        if head is not None and head.tree == tree:
            return head
        parents = () if head is None else (head.oid,)
        commit = self._make(tree, parents=parents, title=title, message=message, author=author)
        self._note_objects(commit, branch)
        self.branches[branch] = commit.oid
        return commit

    def squash(self, branch: str, message: str, author: str) -> Commit:
        """Make one commit of a branch's history; what nothing else leads to is gone."""
        if branch in self.tags and branch not in self.branches:
            raise bad_request(f"Invalid reference for a branch: {branch}")
        head = self.expect_parent(branch, None)
        commit = self._make(head.tree, parents=(), title=message, message="", author=author)
        self.branches[branch] = commit.oid
        self._forget_unreachable()
        return commit

    def create_branch(self, branch: str, start: str | None) -> None:
        """Add a branch, at main unless a start is named."""
        if branch.startswith("refs/"):
            raise bad_request(f"Invalid reference for a branch: {branch}")
        if branch in self.branches:
            raise RefusedError(HTTPStatus.CONFLICT, f"Reference already exists: {branch}")
        self.branches[branch] = self.resolve(start or MAIN).oid

    def delete_branch(self, branch: str) -> None:
        """Remove a branch, and what nothing else leads to."""
        if branch == MAIN:
            raise forbidden("Cannot delete the main branch")
        if self.branches.pop(branch, None) is None:
            raise revision_not_found(branch)
        self._forget_unreachable()

    def create_tag(self, tag: str, revision: str, message: str) -> None:
        """Add a tag; a tag that exists stays where it is."""
        target = self.resolve(revision).oid
        if tag in self.tags:
            raise RefusedError(HTTPStatus.CONFLICT, f"Tag reference exists already: {tag}")
        self.tags[tag] = target
        self.tag_messages[tag] = message

    def delete_tag(self, tag: str) -> None:
        """Remove a tag, and what nothing else leads to."""
        if self.tags.pop(tag, None) is None:
            raise revision_not_found(tag)
        self._forget_unreachable()

    def store_object(self, sha256: str, content: bytes) -> None:
        """Keep an uploaded LFS object, until a commit names it or it is collected."""
        self.objects.setdefault(sha256, LargeObject(content=content, pushed=self._tick()))

    def delete_objects(self, oids: Sequence[str], *, rewrite_history: bool) -> None:
        """Remove LFS objects for good; rewriting also takes the files out of all commits, which get new ids."""
        for oid in oids:
            self.objects.pop(oid, None)
        if rewrite_history:
            self._rewrite(lambda file: not (isinstance(file, LargeFile) and file.sha256 in oids))

    def collect_garbage(self) -> None:
        """Drop the LFS objects that no commit names: the Hub does that hours later, a test when it wants to."""
        named = {
            file.sha256
            for commit in self._commits.values()
            for file in commit.tree.values()
            if isinstance(file, LargeFile)
        }
        self.objects = {oid: stored for oid, stored in self.objects.items() if oid in named}

    def last_change(self, revision: str, path: str) -> Commit:
        """Return the commit that gave a file or folder its present state."""
        log = self.log(revision)
        state = _below(log[0].tree, path)
        for newer, older in itertools.pairwise(log):
            if _below(older.tree, path) != state:
                return newer
        return log[-1]

    def _make(self, tree: Tree, *, parents: tuple[str, ...], title: str, message: str, author: str) -> Commit:
        commit = make_commit(tree, parents=parents, title=title, message=message, author=author, number=self._tick())
        self._commits[commit.oid] = commit
        return commit

    def _note_objects(self, commit: Commit, branch: str) -> None:
        for path, file in commit.tree.items():
            stored = self.objects.get(file.sha256) if isinstance(file, LargeFile) else None
            if isinstance(file, LargeFile) and stored is not None and stored.path is None:
                self.objects[file.sha256] = replace(stored, path=path, ref=f"refs/heads/{branch}")

    def _reachable(self) -> Iterator[Commit]:
        seen: set[str] = set()
        for start in [*self.branches.values(), *self.tags.values()]:
            oid: str | None = start
            while oid is not None and oid not in seen:
                seen.add(oid)
                commit = self._commits[oid]
                yield commit
                oid = commit.parents[0] if commit.parents else None

    def _forget_unreachable(self) -> None:
        reachable = {commit.oid for commit in self._reachable()}
        self._commits = {oid: commit for oid, commit in self._commits.items() if oid in reachable}

    def _rewrite(self, keep: Callable[[StoredFile], bool]) -> None:
        renamed: dict[str, str] = {}
        for old in list(self._commits.values()):  # parents come before their children
            tree = {path: file for path, file in old.tree.items() if keep(file)}
            parents = tuple(renamed[parent] for parent in old.parents)
            if tree == old.tree and parents == old.parents:
                renamed[old.oid] = old.oid
                continue
            new = self._make(tree, parents=parents, title=old.title, message=old.message, author=old.author)
            renamed[old.oid] = new.oid
        self.branches = {name: renamed[oid] for name, oid in self.branches.items()}
        self.tags = {name: renamed[oid] for name, oid in self.tags.items()}
        self._forget_unreachable()


def _below(tree: Tree, path: str) -> Mapping[str, StoredFile]:
    return {name: file for name, file in tree.items() if name == path or name.startswith(f"{path}/")}
