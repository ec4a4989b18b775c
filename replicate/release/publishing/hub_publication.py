"""One publication to the Hub, and what is taken back where it fails.

What can be seen changes once, in one commit on the expected parent.  Everything before it leaves
a private repository as it was; one that this publication created is deleted again, if it still
holds nothing but what the Hub and this publication put there.
"""

from dataclasses import dataclass
from functools import partial

from huggingface_hub import CommitOperationAdd, CommitOperationDelete

from replicate.canonical import sha256
from replicate.errors import CkptierError, IntegrityFailure, TrustFailure, Unreachable
from replicate.release.publishing.carrying import (
    amend,
    carried,
    changed,
    check_sources,
    read_source,
    total_bytes,
)
from replicate.release.publishing.hub import HubPlace, Sight, moved, refuse_public
from replicate.release.publishing.hub_library import ATTRIBUTES
from replicate.release.publishing.places import Payload, Published, Step

_IN_MEMORY = 10 * 1024 * 1024
"""Bytes; a file that is not larger may end up in the body of the commit, which nobody hashes on the way."""
_ALL_IN_MEMORY = 256 * 1024 * 1024
_LOOKS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """What is committed onto; ``created``: by this publication."""

    commit: str
    created: bool


class HubPublication:
    """Carries one payload to one repository."""

    def __init__(self, place: HubPlace, payload: Payload, expected_parent: str | None, step: Step) -> None:
        self._place = place
        self._library = place.library
        self._payload = payload
        self._files = carried(payload)
        self._expected = expected_parent
        self._step = step
        self._commit: str | None = None
        self._unknown = False

    def execute(self) -> Published:
        """Publish, or take back what can be; the error says where it could not."""
        sight = self._place.look()
        self._refuse(sight)
        self._step(f"hash {len(self._files)} files ({total_bytes(self._files)} bytes)")
        check_sources(self._files)
        base = self._open(sight)
        try:
            self._send(base)
            return self._place.finish(self._payload, self._files, self._commit or "", self._step)
        except BaseException as error:
            self._take_back(base, error)
            raise

    def _refuse(self, sight: Sight | None) -> None:
        """Raise TrustFailure where the place is not what was authorized."""
        if sight is None:
            if self._expected is not None:
                raise TrustFailure(
                    f"expected_parent: {self._library.repo} does not exist, authorized was to follow {self._expected}",
                    hint="have the release authorized for a new repository",
                )
            return
        refuse_public(self._place.destination, sight)
        if sight.head is None and not sight.empty:
            raise TrustFailure(
                f"revision: {self._library.repo} has no branch {self._place.destination.revision}",
                hint="make the branch, and have the release authorized to follow its head",
            )
        if sight.parent != self._expected:
            raise moved(sight, self._expected)
        if self._place.destination.tag in sight.branches:
            raise TrustFailure(
                f"tag: {self._place.destination.tag} is the name of a branch of {self._library.repo}",
                hint="have the release authorized under another tag: one name would mean two commits",
            )
        if sight.tag is not None:
            raise TrustFailure(
                f"tag: {self._place.destination.tag} names commit {sight.tag} already",
                hint="have the release authorized under another tag",
            )

    def _refuse_gating(self, sight: Sight) -> None:
        wanted = self._place.destination.gating
        if sight.gating is not wanted:
            raise TrustFailure(
                f"gating: {self._library.repo} is {sight.gating.value} by now, authorized was {wanted.value}",
                hint="find out who changed it, set it back, and go on with --resume",
            )

    def _open(self, sight: Sight | None) -> _Base:
        """Return what to commit onto, creating the repository and the branch where they are missing."""
        created = sight is None
        if sight is None:
            self._step(f"create {self._library.repo}, private")
            self._create()
        base = _Base(commit=sight.base if sight else "", created=created)
        try:
            seen = self._place.seen()
            self._refuse(seen)
            if created and self._place.destination.gating is not seen.gating:
                self._place.settings(private=True, gated=self._place.destination.gating)
            base = _Base(commit=seen.base, created=created)
            if seen.head is None:
                self._branch(seen.base)
        except BaseException as error:
            self._take_back(base, error)
            raise
        return base

    def _create(self) -> None:
        api, repo = self._library.api, self._library.repo
        try:
            self._library.ask(
                "creating the repository",
                lambda: api.create_repo(repo, repo_type="model", private=True, exist_ok=False),
            )
        except Unreachable as error:
            amend(error, f"an empty private repository {repo} may have been left: go on with --resume")
            raise

    def _branch(self, start: str) -> None:
        api, repo, branch = self._library.api, self._library.repo, self._place.destination.revision
        self._step(f"create branch {branch}")
        self._library.ask(
            "creating the branch", lambda: api.create_branch(repo, branch=branch, revision=start, exist_ok=False)
        )

    def _send(self, base: _Base) -> None:
        """Send the files, and commit them where every byte that was sent is the authorized one."""
        additions = self._additions()
        api, repo, revision = self._library.api, self._library.repo, self._place.destination.revision
        self._step("send the files")
        self._library.ask(
            "sending the files",
            lambda: api.preupload_lfs_files(
                repo,
                additions=additions,
                revision=revision,
                free_memory=False,
                gitignore_content="",  # or a .gitignore that lies there keeps files out in silence
            ),
        )
        for file, addition in zip(self._files, additions, strict=True):
            # where it was hashed while it was sent, this is the digest of what was sent
            if self._library.local("hashing what was sent", partial(_sent_sha256, addition)) != file.sha256:
                raise changed(file)
        doomed = self._unwanted(base)
        sight = self._place.seen()
        self._refuse(sight)
        self._refuse_gating(sight)
        self._step(f"commit {len(additions)} files onto {base.commit}")
        self._commit = self._make_commit(base, [*doomed, *additions])

    def _additions(self) -> list[CommitOperationAdd]:
        """Return fresh operations: small files as the bytes that were hashed, large ones hashed while they go."""
        room = _ALL_IN_MEMORY
        made: list[CommitOperationAdd] = []
        for file in self._files:
            small = file.size <= min(_IN_MEMORY, room)
            room -= file.size if small else 0
            content = read_source(file) if small else file.source
            made.append(self._library.local("preparing", partial(CommitOperationAdd, file.path, content)))
        return made

    def _unwanted(self, base: _Base) -> list[CommitOperationDelete]:
        wanted = {file.path for file in self._files} | {ATTRIBUTES}
        doomed = sorted(self._place.tree(base.commit).keys() - wanted)
        return [CommitOperationDelete(path_in_repo=path, is_folder=False) for path in doomed]

    def _make_commit(self, base: _Base, operations: list[CommitOperationDelete | CommitOperationAdd]) -> str:
        """Commit once; raises TrustFailure where the branch moved or nothing would change."""
        api, repo, manifest = self._library.api, self._library.repo, self._payload.manifest
        try:
            made = self._library.ask(
                "committing",
                lambda: api.create_commit(
                    repo,
                    operations,
                    commit_message=f"Release {manifest.name} {manifest.version}",
                    commit_description=f"export manifest sha256 {sha256(self._payload.manifest_bytes)}",
                    revision=self._place.destination.revision,
                    parent_commit=base.commit,
                ),
            ).oid
        except Unreachable as error:
            return self._look_for_commit(base, error)
        if made == base.commit:
            raise TrustFailure(
                f"expected_parent: commit {base.commit} holds exactly these files already: nothing would be committed",
                hint="this release is there; have the visibility of that commit authorized if it is to be shown",
            )
        if self._place.history(made)[1:2] != (base.commit,):
            raise moved(self._place.seen(), self._expected)
        return made

    def _look_for_commit(self, base: _Base, error: Unreachable) -> str:
        """Find out what became of a commit whose reply was lost."""
        self._unknown = True
        for attempt in range(_LOOKS):
            head = self._place.seen().head
            if head is not None and head != base.commit:
                self._unknown = False
                if self._place.is_ours(head, self._files, self._expected):
                    self._step(f"the reply was lost; the commit is there: {head}")
                    return head
                raise TrustFailure(
                    f"expected_parent: somebody else committed {head} to {self._library.repo} meanwhile",
                    hint="look at that commit, and have the release authorized to follow it",
                ) from error
            self._library.clock.wait(2.0**attempt)
        raise error

    def _take_back(self, base: _Base, error: BaseException) -> None:
        """Leave nothing behind where that is ours to decide, and say in the error what is left."""
        keep = self._commit is not None and not isinstance(error, (IntegrityFailure, TrustFailure))
        note = ""
        if keep:
            note = f"commit {self._commit} stands in the private repository, without a tag: go on with --resume"
        elif base.created:
            note = self._delete(base)
        elif self._commit is not None:
            note = f"commit {self._commit} stands in the private repository, without a tag: do not use it"
        elif self._unknown:
            note = "whether the commit was made is not known: look at the repository, or go on with --resume"
        if note and isinstance(error, CkptierError):
            amend(error, note)
        elif note:
            error.add_note(note)

    def _delete(self, base: _Base) -> str:
        """Delete the repository that this publication created; returns what to say where that was not done."""
        api, repo = self._library.api, self._library.repo
        left = f"the private repository {repo}, which was created for it, is left"
        try:
            sight = self._place.look()
            if sight is None:
                return ""
            ours = {base.commit, self._commit, sight.base if sight.empty else None}
            changed_by_others = any(head not in ours for head in sight.branches.values()) or sight.tag
            if changed_by_others or not (sight.private or sight.empty):
                return f"{left}: it holds something else by now"
            self._step(f"delete {repo} again: it was created for this and holds nothing else")
            self._library.ask("deleting the repository again", lambda: api.delete_repo(repo, repo_type="model"))
        except CkptierError as second:
            return f"{left} ({second.message})"
        return ""


def _sent_sha256(addition: CommitOperationAdd) -> str:
    return addition.upload_info.sha256.hex()
