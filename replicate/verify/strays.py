"""What lies on a tier beside what was committed, and what the hint says: worth a note, and no fault."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from replicate import canonical
from replicate.errors import CkptierError, IntegrityFailure
from replicate.layout import GenerationId, RemoteRun
from replicate.log import LiveCommit, LogView
from replicate.logbook import MAX_HEAD_BYTES, Logbook, read_small
from replicate.manifest import Manifest
from replicate.verify.findings import Note, NoteKind, named
from replicate.verify.manifests import read_manifest
from tiers.errors import ObjectNotFound, TierError
from tiers.protocol import Tier, walk


def head_note(book: Logbook, view: LogView) -> Iterator[Note]:
    """Say where the hint is wrong; one that is behind is as it should be."""
    fault = _head_fault(book, view)
    if fault:
        yield Note(kind=NoteKind.HEAD, text=f"head.json {fault}; it is only a hint, and the next commits rewrite it")


def _head_fault(book: Logbook, view: LogView) -> str:
    try:
        data = read_small(book.tier, book.remote.head, MAX_HEAD_BYTES)
        slot = canonical.load(data, what="head.json", max_bytes=MAX_HEAD_BYTES).get("slot")
    except ObjectNotFound:
        return "is missing" if view.next_slot else ""
    except IntegrityFailure:
        return "is damaged"
    if not isinstance(slot, int) or slot < 0:
        return "names no slot"
    if slot >= view.next_slot:
        ends = f"the log ends before slot {view.next_slot}"
        return f"names slot {slot}, and {ends}: one of them is wrong, and if it is the log, its end is lost"
    return ""


def beside(
    book: Logbook, view: LogView, commits: Sequence[LiveCommit], hurt: Collection[GenerationId]
) -> Iterator[Note]:
    """Yield what no manifest names under the prefix of a commit, and prefixes that no commit names.

    One listing counts; the keys of a generation are compared only where the count is wrong or something is hurt.
    """
    tier, remote = book.tier, book.remote
    found = Counter(_prefix_of(remote, info.key) for info in walk(tier, remote.generations_prefix))
    known = {commit.manifest_key.removesuffix("manifest.json"): commit for commit in commits}
    for prefix, commit in known.items():
        if found.pop(prefix, 0) > commit.objects + 1 or commit.id in hurt:
            yield from _extra(tier, remote, view, commit, prefix)
    retired = {one.manifest_key.removesuffix("manifest.json") for one in (view.state.retired if view.state else ())}
    left = [prefix for prefix in found if prefix not in retired]
    if left:
        words = named(sorted(left))
        text = f"no commit names {words}: being uploaded, or left behind; `ckptier gc` tells them apart"
        if view.damaged:
            text += ". The damaged log entry may be the commit of one"
        yield Note(kind=NoteKind.UNCOMMITTED, text=text)


def _prefix_of(remote: RemoteRun, key: str) -> str:
    prefix = remote.prefix_of(key)
    return prefix.text if prefix else key


def _extra(tier: Tier, remote: RemoteRun, view: LogView, commit: LiveCommit, prefix: str) -> Iterator[Note]:
    try:
        manifest = read_manifest(tier, remote, view.state.run_uid if view.state else "", commit)
    except (TierError, CkptierError):
        return  # what is wrong with the manifest was reported already
    due = _keys(manifest) | {commit.manifest_key}
    extra = [info.key for info in walk(tier, prefix) if info.key not in due]
    if extra:
        yield Note(kind=NoteKind.STRAY, text=f"no manifest names {named(extra)}: nothing ever reads it")


def _keys(manifest: Manifest) -> set[str]:
    return {item.key for item in manifest.objects}
