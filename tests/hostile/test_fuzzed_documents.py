"""Every document that comes from elsewhere, changed at random: read, or refused with an error of ours and a bound.

I12, I14, I16: neither another exception, nor a traceback, nor a document that is taken for what it is not.
"""

import json
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hostile.mutations import apply, as_json, damage, edits, hurt, with_digits
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.commits import REMOTE, RUN, Writer, generation
from support.figures import figure
from support.toml_text import toml

from cost.rates.template import new_card
from replicate import canonical
from replicate.config import load_config
from replicate.costing import cards
from replicate.errors import CkptierError
from replicate.generation.evidence import Evidence, FileIdentity, Level, evidence_path, read_evidence
from replicate.generation.lineage import Lineage, RestoredFrom, read_lineage
from replicate.layout import LocalRun
from replicate.log import Claim, Entry, parse_entry
from replicate.logbook import Logbook
from replicate.manifest import parse_generation, parse_manifest
from replicate.statusfile import Replica, StatusFile, TierStatus, read_status
from tiers.bodies import BytesBody
from tiers.memory import MemoryTier

EXAMPLES = 60
MADE = generation(1)
WRITER = Writer(MemoryTier("fuzzed"))
COMMIT = WRITER.commit(MADE)
MANIFEST = WRITER.manifest(MADE)
AT = "2026-01-01T00:00:00.000Z"
ENTRY = Entry(
    format=1,
    run=RUN,
    run_uid="u" * 32,
    slot=256,
    term=1,
    attempt=1,
    attempt_id="a",
    prev="0" * 64,
    nonce="n",
    at=AT,
    body=Claim(writer="w"),
    state=WRITER.view.state,
)
LINEAGE = Lineage(
    run=RUN,
    run_uid="u" * 32,
    attempt=2,
    attempt_id="a",
    parent=str(MADE.id),
    restored_from=RestoredFrom(tier="t", generation=str(MADE.id), slot=1),
    highest_attempt=2,
    highest_sequence=1,
    opened_at=AT,
)
EVIDENCE = Evidence(
    generation=str(MADE.id),
    level=Level.VALIDATED,
    at=AT,
    identities={"model.bin": FileIdentity(size=1, mtime_ns=2, inode=3)},
)
REPLICA = Replica(generation=str(MADE.id), slot=1, at=AT, total_bytes=9)
STATUS = StatusFile(
    run=RUN,
    pid=1,
    host="h",
    phase="idle",
    started_at=AT,
    updated_at=AT,
    tiers=(TierStatus(name="t", url="memory://t", newest=REPLICA, requests={"put": 1}),),
    quarantined={str(MADE.id): "why"},
)
CONFIG = {
    "run": RUN,
    "store": "runs",
    "poll_seconds": 5.0,
    "tier": [{"name": "t", "url": "s3://b/p", "options": {"a": 1}, "part_size": 8 * 1024 * 1024, "keep_last": 3}],
}


@dataclass(frozen=True)
class Kind:
    """A kind of document: an honest one, how it is written down, and who reads it."""

    document: Any
    write: Callable[[Any], bytes]
    read: Callable[[bytes, Path], object]


def _entry(document: Any) -> bytes:
    """Write an entry whose second line is right, so that what is changed is what is looked at."""
    line = as_json(document)
    return line + b"\n" + canonical.sha256(line).encode() + b"\n"


def _toml(document: Any) -> bytes:
    try:
        return with_digits(toml(document).encode("utf-8", "surrogatepass"))
    except AttributeError:
        return b"= " + repr(document).encode("utf-8", "surrogatepass")


def _head(data: bytes, _: Path) -> object:
    WRITER.tier.put(REMOTE.head, BytesBody(data))
    view = Logbook(WRITER.tier, REMOTE).read()
    assert view.next_slot == WRITER.view.next_slot, "a hint decided"
    return view


def _at(path: Path, data: bytes) -> LocalRun:
    """Lay a document where its reader looks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return LocalRun(path.parents[1] if path.parent.name == "evidence" else path.parent)


def _config(data: bytes, folder: Path) -> object:
    (folder / "ckptier.toml").write_bytes(data)
    return load_config(folder / "ckptier.toml")


def _card(data: bytes, folder: Path) -> object:
    (folder / "card.toml").write_bytes(data)
    return cards.load([folder / "card.toml"], date(2026, 4, 2), allow_stale=True)


KINDS = {
    "manifest": Kind(json.loads(MANIFEST.encode()), as_json, lambda data, _: parse_manifest(data)),
    "generation": Kind(json.loads(MADE.record.encode()), as_json, lambda data, _: parse_generation(data)),
    "entry": Kind(
        json.loads(ENTRY.encode().split(b"\n")[0]), _entry, lambda data, _: parse_entry(data, slot=256, run=RUN)
    ),
    "head": Kind({"format": 1, "slot": 1}, as_json, _head),
    "lineage": Kind(
        json.loads(LINEAGE.encode()), as_json, lambda data, folder: read_lineage(_at(folder / "lineage.json", data))
    ),
    "evidence": Kind(
        json.loads(EVIDENCE.encode()),
        as_json,
        lambda data, folder: read_evidence(_at(evidence_path(LocalRun(folder), MADE.id), data), MADE.id),
    ),
    "status": Kind(
        json.loads(STATUS.encode()), as_json, lambda data, folder: read_status(_at(folder / "status.json", data))
    ),
    "config": Kind(CONFIG, _toml, _config),
    "card": Kind(None, _toml, _card),
}


def honest(kind: str) -> Any:
    """Return the document of a kind; a rate card is the one that users start from."""
    if kind != "card":
        return KINDS[kind].document
    return tomllib.loads(new_card())


def outcome(read: Callable[[bytes, Path], object], data: bytes, folder: Path) -> str:
    try:
        read(data, folder)
    except CkptierError:
        return "refused"
    return "read"


@pytest.mark.parametrize("kind", KINDS)
def test_i12_a_document_changed_at_random_is_read_or_refused_as_ours(kind: str, tmp_path: Path) -> None:
    what, document = KINDS[kind], honest(kind)
    counts: Counter[str] = Counter()
    assert kind == "card" or outcome(what.read, what.write(document), tmp_path) == "read"

    @settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
    @given(edits())
    def structure(changes: list[tuple[list[int], int, Any]]) -> None:
        counts[outcome(what.read, what.write(apply(document, changes)), tmp_path)] += 1

    @settings(max_examples=EXAMPLES // 3)
    @given(damage())
    def spelling(how: tuple[int, int, int]) -> None:
        counts[outcome(what.read, hurt(what.write(document), how), tmp_path)] += 1

    structure()
    spelling()
    figure(f"fuzz: examples of {kind}", counts.total(), floor=EXAMPLES)
    assert kind == "head" or counts["refused"] >= EXAMPLES // 4, "most changes matter"


@settings(max_examples=EXAMPLES)
@given(st.binary(max_size=400))
def test_i14_bytes_that_are_no_document_are_refused_by_every_reader(data: bytes) -> None:
    for read in (parse_manifest, parse_generation, lambda raw: parse_entry(raw, slot=0, run=RUN)):
        with pytest.raises(CkptierError):
            read(data)
