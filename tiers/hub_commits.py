"""Turning changes into one commit whose parent is the head that they were decided on.

Per commit: the head and the repo's visibility (one request), the paths at that head, the
commit with that head as its parent, the paths at the new commit.  So what a change does is
decided on the state that it is applied to, a repo that became public is noticed before each
commit (only a change in the second between the look and the commit is not), and a commit is
believed once it was read.

- A path that is as wanted needs no commit: a repeated put, or one whose reply was lost.
- 412 means that the head moved: look and decide again, a bounded number of times.
- A reply that was lost, and a commit that the Hub timed out, is looked for in the history by a
  random mark in its description.  Where it is not there it may still come, since the Hub does
  not say; its parent then decides, and the caller is told that the outcome is not known.
- A commit that is refused is tried change by change, so that one bad name fails alone.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from tiers.errors import IntegrityError, ObjectExists, TierUnavailable, Unsupported
from tiers.hub_errors import HubFailure, Outcome, Verdict
from tiers.hub_queue import Kind, Waiting
from tiers.hub_repo import ATTRIBUTES, Doing, Entry, HubRepo, Line

TRIES = 12
"""Looks and commits against writers that are faster, before the caller is told to come back."""
_CONFLICT = 412
_TAKEN = Verdict(ObjectExists, "read the key to learn who created it")
_LOST = Verdict(TierUnavailable, "the commit may have been made, or may still be: read the key")
_LARGE = "filter=lfs diff=lfs merge=lfs -text"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """A commit as it was tried: what it was for, onto what, and the mark that finds it again."""

    parent: str
    changes: tuple[Waiting, ...]
    mark: str


class Committer:
    """Commits changes to one repo."""

    def __init__(self, repo: HubRepo) -> None:
        self._repo = repo
        self._ruled = False

    def commit(self, batch: Sequence[Waiting]) -> None:
        """Settle every change of the batch."""
        try:
            self._until_settled(list(batch))
        except HubFailure as failure:
            for each in batch:
                if not each.settled:
                    each.fail(failure)

    def _until_settled(self, batch: list[Waiting]) -> None:
        failure: HubFailure | None = None
        for _ in range(TRIES):
            head, left = self._decide(batch)
            if not left:
                return
            attempt = _Attempt(parent=head, changes=tuple(left), mark=secrets.token_hex(16))
            failure = self._try(attempt)
            if failure is None:
                return
            if failure.status != _CONFLICT:
                break
        if failure is not None:
            self._failed(attempt, failure)

    def _decide(self, batch: Sequence[Waiting]) -> tuple[str, list[Waiting]]:
        """Look at the head; settle what needs no commit, and return the rest."""
        left = [each for each in batch if not each.settled]
        head = self._repo.state().sha
        entries = self._repo.entries(head, [each.change.path for each in left])
        for each in left:
            _settle_without_commit(each, entries.get(each.change.path))
        return head, [each for each in left if not each.settled]

    def _try(self, attempt: _Attempt) -> HubFailure | None:
        """Commit, and settle by what the new commit holds; a failure is returned where nothing is known to be done."""
        lines = [_line(each) for each in attempt.changes]
        rule = self._rule(attempt.parent)
        lines += [rule] if rule is not None else []
        kinds = [each.change.kind for each in attempt.changes]
        title = "ckptier: " + ", ".join(f"{kinds.count(kind)} {kind.value}" for kind in Kind if kind in kinds)
        try:
            made = self._repo.commit(attempt.parent, lines, title=title, description=attempt.mark)
        except HubFailure as failure:
            if failure.outcome is not Outcome.UNKNOWN:
                return failure
            found = self._look_for(attempt)
            if found is None:
                return HubFailure(_LOST, failure.message, outcome=Outcome.UNKNOWN, retry_after=failure.retry_after)
            made = found
        self._ruled = True
        self._settle(attempt, made)
        return None

    def _look_for(self, attempt: _Attempt) -> str | None:
        """Return the commit if the history has it; None where it has not, or does not answer."""
        try:
            head = self._repo.state().sha
            for page in self._repo.commits(head, pages=1):
                return next((one.id for one in page if attempt.mark in (one.title + one.message)), None)
        except HubFailure:
            return None  # what failed was the question: nothing is known
        return None

    def _settle(self, attempt: _Attempt, made: str) -> None:
        entries = self._repo.entries(made, [each.change.path for each in attempt.changes])
        for each in attempt.changes:
            entry = entries.get(each.change.path)
            if _as_wanted(each, entry):
                each.succeed(entry)
            else:
                verdict = Verdict(IntegrityError, "the Hub did not commit what it was given: look at the repo")
                each.fail(HubFailure(verdict, "the new commit does not hold the object that was sent"))

    def _failed(self, attempt: _Attempt, failure: HubFailure) -> None:
        """Tell the callers; a refusal is told to the one whose change is refused alone."""
        refused = failure.outcome is Outcome.NOT_DONE and issubclass(failure.verdict.error, Unsupported)
        if refused and len(attempt.changes) > 1:
            for each in attempt.changes:
                self.commit([each])
            return
        for each in attempt.changes:
            each.fail(failure)

    def _rule(self, head: str) -> Line | None:
        """Return the line that lets git itself see our files as large; None where the repo has it.

        Without it the Hub would add one line for each file to ``.gitattributes``, for ever.
        """
        if self._ruled:
            return None
        prefix = self._repo.place.prefix
        pattern = f"/{prefix}/**" if prefix else "/*/**"
        present = self._repo.attributes(head)
        if any(line.split()[:2] == [pattern.encode(), b"filter=lfs"] for line in present.splitlines()):
            self._ruled = True
            return None
        lines = [*present.splitlines(), f"{pattern} {_LARGE}".encode(), b""]
        return Line(doing=Doing.SMALL, path=ATTRIBUTES, data=b"\n".join(lines))


def _settle_without_commit(each: Waiting, entry: Entry | None) -> None:
    """Settle a change that the head fulfils or forbids already."""
    if each.change.kind is Kind.CREATE and entry is not None and entry.type == "file":
        each.fail(HubFailure(_TAKEN, "the key is taken"))
    elif _as_wanted(each, entry):
        each.succeed(entry)
    elif entry is not None and entry.type == "directory":
        verdict = Verdict(Unsupported, "git has no file that is a folder too: choose another prefix or name")
        each.fail(HubFailure(verdict, "there are objects below this key, as if it were a folder"))


def _as_wanted(each: Waiting, entry: Entry | None) -> bool:
    if each.change.kind is Kind.DELETE:
        return entry is None or entry.type == "directory"
    return entry is not None and entry.holds(each.change.size, each.change.sha256)


def _line(each: Waiting) -> Line:
    change = each.change
    if change.kind is Kind.DELETE:
        return Line(doing=Doing.DELETE, path=change.path)
    if change.size == 0:
        return Line(doing=Doing.SMALL, path=change.path)  # Git LFS knows no empty objects
    return Line(doing=Doing.LARGE, path=change.path, sha256=change.sha256, size=change.size)
