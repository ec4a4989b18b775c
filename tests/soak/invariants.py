"""An independent reader of what lies on a tier: it shares no code with the log, the manifests or the restore.

It remembers what it saw, so that it can tell what was changed and what is gone.
"""

import hashlib
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from soak.verdicts import ProductError

Files = Mapping[str, bytes]
Objects = Mapping[str, bytes]
_SLOT = re.compile(r"^(?P<run>[^/]+)/log/(?P<slot>\d{12})\.json$")


def demand(holds: object, what: str) -> None:
    """Raise ProductError where something does not hold."""
    if not holds:
        raise ProductError(what)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(slots=True)
class Live:
    """A commit that counts."""

    generation: str
    manifest_key: str
    slot: int
    term: int


@dataclass(slots=True)
class Auditor:
    """Checks I1 to I10 of one run on one place, round after round.

    ``published`` are the files of every generation that was ever saved; ``acknowledged`` those that
    ckptier called replicated, with the digest of their entry.
    """

    run: str
    published: dict[str, Files] = field(default_factory=dict)
    acknowledged: dict[str, str] = field(default_factory=dict)
    ever: set[str] = field(default_factory=set)
    checks: Counter[str] = field(default_factory=Counter)
    _log: list[bytes] = field(default_factory=list)
    _seen: dict[str, str] = field(default_factory=dict)

    def audit(self, stored: Objects) -> dict[str, Live]:
        """Check everything that lies on a tier; returns what is committed."""
        log = self._chain(stored)
        live, gone, term = self._fold(log)
        for one in live.values():
            self._whole(stored, one)
        self._unchanged(stored)
        self._deleted(stored, live, gone, term)
        self._redundant(live)
        for generation, digest in self.acknowledged.items():
            demand(
                digest in {sha256(entry) for entry in log}, f"I5: {generation} was acknowledged and its entry is gone"
            )
            self.checks["I5"] += 1
        self._log, self._seen = (
            log,
            {key: sha256(data) for key, data in stored.items() if not key.endswith("head.json")},
        )
        return live

    def acknowledge(self, generation: str) -> None:
        """Note that ckptier called a generation replicated; the log was audited since."""
        for entry in self._log:
            body = json.loads(entry.split(b"\n")[0])["body"]
            if body["kind"] == "commit" and body["generation"] == generation:
                self.acknowledged[generation] = sha256(entry)
                return
        raise ProductError(f"I5: {generation} is called replicated and no entry commits it")

    def _chain(self, stored: Objects) -> list[bytes]:
        """I2: contiguous, chained, self-checked, and what stood there stands there."""
        slots = sorted(
            (int(found["slot"]), key) for key in stored if (found := _SLOT.match(key)) and found["run"] == self.run
        )
        demand([slot for slot, _ in slots] == list(range(len(slots))), f"I2: slots {[slot for slot, _ in slots]}")
        log, before = [], "0" * 64
        for _, key in slots:
            data = stored[key]
            line, digest, rest = data.split(b"\n", 2)
            demand(sha256(line) == digest.decode(), f"I2: {key} is not what its own digest says")
            demand(rest == b"", f"I2: {key} has more than it should")
            demand(json.loads(line)["prev"] == before, f"I2: {key} does not follow the entry before it")
            before = sha256(data)
            log.append(data)
        demand(log[: len(self._log)] == self._log, "I2: entries were changed or are gone")
        self.checks["I2"] += 1
        return log

    def _fold(self, log: list[bytes]) -> tuple[dict[str, Live], set[str], int]:
        """I3 and I4, by rules of its own: terms rise, and a generation is committed once at a time."""
        live: dict[str, Live] = {}
        gone: set[str] = set()
        term = 0
        for slot, entry in enumerate(log):
            document: dict[str, Any] = json.loads(entry.split(b"\n")[0])
            body = document["body"]
            kind = body["kind"]
            if kind == "claim":
                demand(document["term"] > term, f"I3: slot {slot} claims term {document['term']} after {term}")
                term = document["term"]
            elif kind == "commit":
                demand(document["term"] == term, f"I3: slot {slot} commits under term {document['term']}, it is {term}")
                generation = body["generation"]
                demand(generation not in live, f"I4: {generation} is committed twice")
                live[generation] = Live(generation, body["manifest_key"], slot, term)
                self.ever.add(generation)
            elif kind == "retire":
                demand(document["term"] == term, f"I3: slot {slot} retires under term {document['term']}, it is {term}")
                demand(max(live) != body["generation"], f"I10: slot {slot} retires the newest")
                gone.add(live.pop(body["generation"]).manifest_key.rpartition("/")[0])
        self.checks["I3"] += 1
        self.checks["I4"] += 1
        return live, gone, term

    def _whole(self, stored: Objects, one: Live) -> None:
        """I1: the manifest and every object that it names lie there, and are bit for bit what was saved."""
        demand(one.manifest_key in stored, f"I1: {one.generation} has no manifest")
        manifest = json.loads(stored[one.manifest_key])
        prefix = one.manifest_key.rpartition("/")[0] + "/"
        found: dict[str, bytes] = {}
        for item in manifest["objects"]:
            demand(item["key"].startswith(prefix), f"I1: {item['key']} lies outside {prefix}")
            demand(item["key"] in stored, f"I1: {item['key']} is missing")
            data = stored[item["key"]]
            demand((len(data), sha256(data)) == (item["size"], item["sha256"]), f"I1: {item['key']} is damaged")
            found[item["path"]] = data
        demand(one.generation in self.published, f"I1: nobody ever saved {one.generation}")
        demand(found == dict(self.published[one.generation]), f"I1: {one.generation} is not what was saved")
        self.checks["I1"] += 1

    def _unchanged(self, stored: Objects) -> None:
        """I8: no key has another content than before."""
        changed = [key for key, digest in self._seen.items() if key in stored and sha256(stored[key]) != digest]
        demand(not changed, f"I8: {changed[:3]} were written again with another content")
        self.checks["I8"] += 1

    def _deleted(self, stored: Objects, live: Mapping[str, Live], gone: set[str], term: int) -> None:
        """I9: what is gone lay under a retired prefix, or under one that nobody can commit any more."""
        kept = {one.manifest_key.rpartition("/")[0] for one in live.values()}
        for key in self._seen.keys() - stored.keys():
            demand(key.startswith(f"{self.run}/generations/"), f"I9: {key} is gone")
            prefix = "/".join(key.split("/")[:3])
            demand(prefix not in kept, f"I9: {key} is gone and its generation is committed")
            number = int(prefix.rpartition(".t")[2].partition("-")[0])
            demand(prefix in gone or number <= term, f"I9: {key} is gone and belongs to a term to come")
        self.checks["I9"] += 1

    def _redundant(self, live: Mapping[str, Live]) -> None:
        """I10: once something was committed, something is."""
        demand(live or not self.ever, "I10: nothing is committed any more")
        self.checks["I10"] += 1

    def check_tracker(self, tracker: Path, tier: str) -> set[str]:
        """I6: the tracker says nothing that the log does not say; returns what it calls replicated."""
        if not tracker.exists():
            return set()
        with closing(sqlite3.connect(f"{tracker.as_uri()}?mode=ro", uri=True)) as connection:
            rows = connection.execute("SELECT generation, slot FROM completed WHERE tier = ?", (tier,)).fetchall()
        for generation, slot in rows:
            demand(slot < len(self._log), f"I6: the tracker has {generation} in slot {slot}, the log ends before")
            body = json.loads(self._log[slot].split(b"\n")[0])["body"]
            demand(body["kind"] == "commit", f"I6: slot {slot} is no commit")
            demand(body["generation"] == generation, f"I6: slot {slot} commits {body['generation']}")
        self.checks["I6"] += 1
        return {generation for generation, _ in rows}

    def check_local(self, present: set[str], saved_here: set[str]) -> None:
        """I7: what was saved on a machine and is gone from its store was committed before."""
        lost = saved_here - present - self.ever
        demand(not lost, f"I7: {sorted(lost)} left the store without ever being committed")
        self.checks["I7"] += 1
