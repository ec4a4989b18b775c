"""Showing an upload as it runs: a line per event on stderr, a bar only on a terminal."""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from replicate.commit import Committed, Events
from replicate.layout import GenerationId
from replicate.render.words import human_bytes
from replicate.upload import Progress


@contextmanager
def progress_events(*, as_json: bool) -> Iterator[Events]:
    """Return events that are shown: one JSON object a line on stderr with ``as_json``, else words."""
    lock = threading.Lock()
    bar = sys.stderr.isatty() and not as_json

    def tell(kind: str, words: str, **fields: object) -> None:
        with lock:
            line = json.dumps({"event": kind, **fields}) if as_json else words
            sys.stderr.write(f"\r\x1b[K{line}\n" if bar else f"{line}\n")

    def started(tier: str, generation: GenerationId, size: int) -> None:
        words = f"{tier}: uploading {generation} ({human_bytes(size)})"
        tell("upload", words, tier=tier, generation=str(generation), bytes=size)

    def progressed(tier: str, generation: GenerationId, progress: Progress) -> None:
        if not bar:
            return
        share = 100 * progress.done_bytes // max(1, progress.total_bytes)
        with lock:
            sys.stderr.write(f"\r\x1b[K{tier}: {generation} {share:3d}% of {human_bytes(progress.total_bytes)}")
            sys.stderr.flush()

    def committed(tier: str, one: Committed) -> None:
        words = f"{tier}: committed {one.generation} in slot {one.slot}, verified by {', '.join(one.verified_by)}"
        words += f"; {human_bytes(one.copied_bytes)} of it were copied there" if one.copied_bytes else ""
        tell(
            "committed",
            words,
            tier=tier,
            generation=str(one.generation),
            slot=one.slot,
            bytes=one.total_bytes,
            copied_bytes=one.copied_bytes,
            verified_by=list(one.verified_by),
        )

    yield Events(on_start=started, on_progress=progressed, on_commit=committed)
