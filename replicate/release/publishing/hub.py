"""A repository of the Hub: private first, one commit, read back by its id, tagged, and shown only by a further act."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from huggingface_hub import HfApi
from huggingface_hub.hf_api import ModelInfo, RepoFile

from replicate.errors import CkptierError, NothingFound, TrustFailure, Unreachable
from replicate.release.destination import Destination, Gating, Visibility
from replicate.release.publishing.carrying import Carried, amend, carried, source_blocks, total_bytes
from replicate.release.publishing.hub_library import ATTRIBUTES, HubLibrary, reined, resolve_token
from replicate.release.publishing.hub_reading import read_back
from replicate.release.publishing.places import Payload, PlaceState, Published, Step
from tiers.clock import Clock

_LOOK = "look at the repository, and have the release authorized for what it is now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """A repository as it was seen at one moment.

    ``head`` is the commit of the branch, ``base`` that of any branch (where a new one would begin);
    ``empty``: it holds nothing but what the Hub itself put there.
    """

    name: str
    private: bool
    gating: Gating
    head: str | None
    base: str
    empty: bool
    tag: str | None
    branches: Mapping[str, str]

    @property
    def parent(self) -> str | None:
        """The commit that a publication would follow; the Hub's own first commit counts as none."""
        return None if self.empty else self.head


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """A commit that an earlier publication made, and what it followed."""

    commit: str
    parent: str | None


class HubPlace:
    """``hf://owner/name``.

    ``token`` None takes that of the library's own chain.  ``library`` is for those who look inside.
    """

    def __init__(self, destination: Destination, *, clock: Clock, token: str | None) -> None:
        secret = resolve_token(token)
        self.destination = destination
        self._made: _Made | None = None
        self.library = HubLibrary(
            api=HfApi(endpoint=destination.hub.rstrip("/"), token=secret or False, library_name="ckptier"),
            repo=destination.repo,
            secret=secret,
            clock=clock,
        )

    def state(self) -> PlaceState:
        """Look at the repository, its branch and its tag."""
        with reined():
            sight = self.look()
        if sight is None:
            return PlaceState(exists=False, visibility=Visibility.PRIVATE, gating=Gating.NONE)
        made = self._made if self._made and self._made.commit == sight.head else None
        return PlaceState(
            exists=True,
            visibility=Visibility.PRIVATE if sight.private else Visibility.PUBLIC,
            gating=sight.gating,
            parent=made.parent if made else sight.parent,
            tag_taken=None if made and made.commit == sight.tag else sight.tag,
        )

    def resume(self, payload: Payload, *, expected_parent: str | None) -> None:
        """Look whether the branch is at a commit of this release onto the expected parent."""
        with reined():
            sight = self.look()
            if sight is None or sight.head is None or sight.empty:
                return
            if self.is_ours(sight.head, carried(payload), expected_parent):
                self._made = _Made(commit=sight.head, parent=expected_parent)

    def publish(self, payload: Payload, *, expected_parent: str | None, step: Step) -> Published:
        """Create the repository privately if need be, send the files, commit once, read back, tag."""
        from replicate.release.publishing.hub_publication import HubPublication  # noqa: PLC0415 - it builds on this

        with reined():
            if self._made is None:
                return HubPublication(self, payload, expected_parent, step).execute()
            refuse_public(self.destination, self.seen())
            step(f"commit {self._made.commit} holds this release already")
            return self.finish(payload, carried(payload), self._made.commit, step)

    def finish(self, payload: Payload, files: tuple[Carried, ...], commit: str, step: Step) -> Published:
        """Read a commit back, byte for byte, and give it its tag; until then nobody else sees it."""
        self._refuse_shown()
        step(f"read {len(files)} files back by commit {commit}")
        try:
            read_back(self.library, self.tree(commit), files, commit, payload.manifest)
        except BaseException as error:
            self._hide_unverified(error)
            raise
        self._refuse_shown()
        sight = self.seen()
        if sight.head != commit:
            raise TrustFailure(
                f"expected_parent: {self.library.repo} moved on to {sight.head} after commit {commit}", hint=_LOOK
            )
        self._tag(commit, step)
        return Published(
            url=f"{self.destination.hub.rstrip('/')}/{self.library.repo}/tree/{commit}",
            commit=commit,
            files=len(files),
            total_bytes=total_bytes(files),
            read_back=len(files),
        )

    def set_visibility(self, visibility: Visibility, gating: Gating, *, commit: str, step: Step) -> None:
        """Change visibility and gating in one request, for one commit, and read both back.

        Raises TrustFailure where the branch is elsewhere, or another branch would be shown as well.
        """
        with reined():
            self._check_shown(self.seen(), commit, visibility)
            step(f"make {self.library.repo} {visibility.value} (gating: {gating.value})")
            self.settings(private=visibility is Visibility.PRIVATE, gated=gating)
            sight = self.seen()
            try:
                self._check_settings(sight, visibility, gating)
                self._check_shown(sight, commit, visibility)
            except TrustFailure:
                if visibility is not Visibility.PRIVATE:
                    self.hide()
                raise

    def withdraw(self, *, step: Step) -> str:
        """Make the repository private, whatever it holds by now; returns the branch's commit."""
        with reined():
            step(f"make {self.library.repo} private")
            self.hide()
            sight = self.seen()
            if not sight.private:
                raise TrustFailure(
                    f"visibility: {self.library.repo} is still public", hint="make it private on the Hub's page, now"
                )
        return sight.head or sight.base

    def close(self) -> None:
        """Do nothing: the library's client is the process's."""

    def look(self) -> Sight | None:
        """Return what is there; None where there is no repository, or none that the token may see."""
        api, repo = self.library.api, self.library.repo
        try:
            info = self.library.insist("looking at the repository", lambda: api.repo_info(repo))
        except NothingFound:
            return None
        if not isinstance(info, ModelInfo) or info.id != repo:
            raise TrustFailure(
                f"destination: {repo} is called {info.id} by the Hub: it was renamed or moved",
                hint="name the repository as it is called now, and have that authorized",
            )
        refs = self.library.insist("looking at its branches and tags", lambda: api.list_repo_refs(repo))
        branches = {branch.name: branch.target_commit for branch in refs.branches}
        base = branches.get(self.destination.revision) or branches.get("main") or info.sha or ""
        if not base:
            raise Unreachable(f"{repo}: the Hub shows no commit yet", hint="try again in a moment")
        tags = {tag.name: tag.target_commit for tag in refs.tags}
        return Sight(
            name=info.id,
            private=info.private is True,
            gating=Gating(info.gated) if info.gated else Gating.NONE,
            head=branches.get(self.destination.revision),
            base=base,
            empty=not self.tree(base).keys() - {ATTRIBUTES},
            tag=tags.get(self.destination.tag) if self.destination.tag else None,
            branches=branches,
        )

    def seen(self) -> Sight:
        """Return what is there; raises TrustFailure where there is nothing any more."""
        sight = self.look()
        if sight is None:
            raise TrustFailure(f"destination: {self.library.repo} is not there", hint=_LOOK)
        return sight

    def tree(self, commit: str) -> Mapping[str, RepoFile]:
        """Return every file of a commit."""
        api, repo = self.library.api, self.library.repo
        listed = self.library.ask(
            "listing its files", lambda: list(api.list_repo_tree(repo, recursive=True, revision=commit))
        )
        return {entry.path: entry for entry in listed if isinstance(entry, RepoFile)}

    def history(self, commit: str) -> tuple[str, ...]:
        """Return a commit and those before it, newest first."""
        api, repo = self.library.api, self.library.repo
        listed = self.library.ask("reading its history", lambda: api.list_repo_commits(repo, revision=commit))
        return tuple(one.commit_id for one in listed)

    def is_ours(self, commit: str, files: tuple[Carried, ...], expected_parent: str | None) -> bool:
        """Tell whether a commit is this release on top of the expected parent, as far as the Hub's listing says."""
        tree = self.tree(commit)
        wanted = {file.path: file for file in files}
        if tree.keys() - {ATTRIBUTES} != wanted.keys() - {ATTRIBUTES}:
            return False
        if any(not listed_as(tree[path], file) for path, file in wanted.items() if path in tree):
            return False
        parents = self.history(commit)[1:2]
        if expected_parent is not None:
            return parents == (expected_parent,)
        return bool(parents) and not self.tree(parents[0]).keys() - {ATTRIBUTES}

    def hide(self) -> None:
        """Make it private; gating stays as it is."""
        self.settings(private=True, gated=None)

    def settings(self, *, private: bool, gated: Gating | None) -> None:
        """Change the repository's settings; None leaves the gating as it is."""
        api, repo = self.library.api, self.library.repo
        wanted = None if gated is None else _GATED[gated]
        self.library.insist(
            "changing its visibility", lambda: api.update_repo_settings(repo, private=private, gated=wanted)
        )

    def _refuse_shown(self) -> None:
        """Raise TrustFailure where somebody made the repository public; it is private again then."""
        if not self.seen().private:
            self.hide()
            raise TrustFailure(
                f"visibility: {self.library.repo} was made public while it was published; it is private again",
                hint="find out who did; nothing was authorized to be public yet",
            )

    def _hide_unverified(self, error: BaseException) -> None:
        """Hide what could not be verified, if somebody made it public; says so in the error."""
        try:
            self._refuse_shown()
        except CkptierError as second:
            if isinstance(error, CkptierError):
                amend(error, second.message)
            else:
                error.add_note(second.message)

    def _tag(self, commit: str, step: Step) -> None:
        tag = self.destination.tag
        if tag is None:
            return
        failure: CkptierError | None = None
        if self.seen().tag != commit:
            step(f"tag {commit} as {tag}")
            api, repo = self.library.api, self.library.repo
            try:
                self.library.insist("tagging the commit", lambda: api.create_tag(repo, tag=tag, revision=commit))
            except (Unreachable, TrustFailure) as error:
                failure = error
                step("look what became of the tag")
        found = self.seen().tag
        if found is None and isinstance(failure, Unreachable):
            raise failure
        if found is None:
            raise Unreachable(
                f"tag: {tag} was not made on commit {commit}", hint="go on with --resume: the commit is verified"
            )
        if found != commit:
            raise TrustFailure(
                f"tag: {tag} names {found}, not the published commit {commit}",
                hint="have the release authorized under another tag",
            )

    def _check_shown(self, sight: Sight, commit: str, visibility: Visibility) -> None:
        """Refuse to change who sees anything but the authorized commit and what came before it."""
        if sight.head != commit:
            raise TrustFailure(
                f"commit: {self.library.repo} is at {sight.head}, authorized was {commit}",
                hint="have the visibility of the present commit authorized, after looking at it",
            )
        if visibility is Visibility.PRIVATE or len(sight.branches) == 1:
            return
        known = set(self.history(commit))
        others = sorted(name for name, head in sight.branches.items() if head not in known)
        if others:
            raise TrustFailure(
                f"destination: branch {others[0]} of {self.library.repo} would become visible as well",
                hint="delete the branch, or publish from a repository of its own",
            )

    def _check_settings(self, sight: Sight, visibility: Visibility, gating: Gating) -> None:
        found = Visibility.PRIVATE if sight.private else Visibility.PUBLIC
        for field, wanted, is_now in (("visibility", visibility, found), ("gating", gating, sight.gating)):
            if wanted != is_now:
                raise TrustFailure(
                    f"{field}: {self.library.repo} was to become {wanted.value} and is {is_now.value}",
                    hint="look at the settings of the repository and its organisation, then run it again",
                )


_GATED: Mapping[Gating, Literal["auto", "manual", False]] = {
    Gating.NONE: False,
    Gating.AUTO: "auto",
    Gating.MANUAL: "manual",
}


def listed_as(found: RepoFile, file: Carried) -> bool:
    """Compare with what a listing says: the SHA-256 of a large file, the git id of another."""
    if found.size != file.size:
        return False
    if found.lfs is not None:
        return found.lfs.sha256 == file.sha256
    blob = hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False)
    for block in source_blocks(file):
        blob.update(block)
    return blob.hexdigest() == found.blob_id


def refuse_public(destination: Destination, sight: Sight) -> None:
    """Raise TrustFailure for a repository that everybody sees: nothing is put there unread."""
    if not sight.private:
        raise TrustFailure(
            f"visibility: {destination.repo} is public already: what is sent would be seen before it is verified",
            hint="withdraw it (make it private) first, or name a repository that does not exist yet",
        )


def moved(sight: Sight, expected: str | None) -> TrustFailure:
    """Say that the branch is not where the release was authorized to follow."""
    return TrustFailure(
        f"expected_parent: {sight.name} is at {sight.parent or 'no commit'}, authorized was {expected or 'no commit'}",
        hint=_LOOK,
    )
