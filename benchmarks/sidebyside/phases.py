"""A run: its phases in order, each of which may be left out."""

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.sidebyside.certificates import make_certificate
from benchmarks.sidebyside.facts import without_paths
from benchmarks.sidebyside.figures import Finding, Verdict
from benchmarks.sidebyside.measuring import CLOCK, ClientFailed
from benchmarks.sidebyside.running import SEALING, Cell, Place, Results, Say, one_round
from benchmarks.sidebyside.servers import ACCESS_KEY, BUCKET, SECRET_KEY, Sink
from benchmarks.sidebyside.settings import RATES, Settings
from benchmarks.sidebyside.targets.beside import beside_findings, measure_beside
from benchmarks.sidebyside.targets.disk import disk_round
from benchmarks.sidebyside.targets.growth import growth_findings, measure_growth
from benchmarks.sidebyside.targets.killing import kill_findings, measure_kill
from benchmarks.sidebyside.targets.links import link_findings, measure_link
from benchmarks.sidebyside.targets.profile import profile
from benchmarks.sidebyside.targets.reuse import measure_reuse, reuse_findings
from benchmarks.sidebyside.targets.saving import measure_saving, saving_findings
from benchmarks.sidebyside.targets.transfers import memory, restores, sealing, uploads
from benchmarks.sidebyside.workloads import MIB, Workload
from tiers.servers import SeaweedServer

FEWER_ROUNDS = 2
"""Of what varies little: what a bucket lets through, and what a disk takes."""


@dataclass(slots=True)
class Run:
    """One run of everything that was asked for; a phase that fails is told and stops no other."""

    settings: Settings
    say: Say
    results: Results = field(default_factory=Results)
    details: dict[str, Any] = field(default_factory=dict)
    found: list[Finding] = field(default_factory=list)

    def measure(self) -> None:
        """Run the phases."""
        began = CLOCK.monotonic()
        with (
            tempfile.TemporaryDirectory(prefix="ckptier-bench-", dir=self.settings.place) as place,
            tempfile.TemporaryDirectory(prefix="ckptier-bench-", dir=self.settings.disk) as disk,
        ):
            for name in self.settings.only:
                started = CLOCK.monotonic()
                self.say(f"-- {name}")
                try:
                    PHASES[name](self, Path(place), Path(disk))
                except (ClientFailed, OSError, RuntimeError) as error:
                    self.say(f"  FAILED: {error}")
                    self.details.setdefault("failed", {})[name] = str(error)
                took = CLOCK.monotonic() - started
                self.details.setdefault("seconds", {})[name] = round(took, 1)
                self.say(f"-- {name}: {took:.0f} s")
        self.say(f"-- {CLOCK.monotonic() - began:.0f} s in all")

    def findings(self) -> list[Finding]:
        """Return every target beside its figure, in the order of the table."""
        names = [one.name for one in self.settings.workloads]
        figures = [*uploads(self.results, names), *sealing(self.results, names), *restores(self.results, names)]
        return [*figures, *self.found, memory(self.results), *self._failed()]

    def _failed(self) -> list[Finding]:
        """Return the phases that broke off: what they would have measured is not met by being absent."""
        return [
            Finding(
                target=f"phase {name}",
                bound="",
                shown="failed",
                verdict=Verdict.UNMEASURED,
                beside=without_paths(why),
            )
            for name, why in self.details.get("failed", {}).items()
        ]


def _sink(run: Run, place: Path, _disk: Path) -> None:
    for number in range(run.settings.rounds):
        for workload in run.settings.workloads:
            here = Place(folder=place / f"sink-{number}" / workload.name, workload=workload)
            run.say(f" round {number + 1}, {workload.label}")
            try:
                _seal(run, here)
                with Sink() as sink:
                    sink.read_from(here.files)
                    one_round(run.results, here, "sink", sink.url, run.settings.peers, number=number, say=run.say)
                    unknown = sink.ask("counters")["unknown"]
                    if unknown:
                        run.say(f"  the sink was asked {unknown} things that it does not know")
            finally:
                here.clear()


def _seal(run: Run, here: Place) -> None:
    name = here.workload.name
    run.results.workloads[f"memory/{name}"] = here.workload
    here.folder.mkdir(parents=True)
    limit = here.ours("hash", bytes=here.workload.total).figure
    sealed = here.publish()
    run.results.add(Cell("memory", name, "seal", "hash"), limit)
    run.results.add(Cell("memory", name, "seal", SEALING), sealed)
    run.say(
        f"  seal: {sealed.compared_wall:.2f} s, {sealed.compared_cpu:.2f} CPU s; the hash {limit.compared_wall:.2f} s"
    )


def _tls(run: Run, place: Path, _disk: Path) -> None:
    workload = Workload(name="tls", files=1, size=run.settings.tls_mib * MIB)
    certificate = make_certificate(place)
    for number in range(run.settings.rounds):
        here = Place(folder=place / f"tls-{number}" / "tls", workload=workload)
        try:
            here.publish()
            with Sink(tls=certificate) as sink:
                sink.read_from(here.files)
                peers, ca = run.settings.tls_peers, certificate[0]
                one_round(run.results, here, "tls", sink.url, peers, number=number, say=run.say, ca=ca)
        finally:
            here.clear()


def _server(place: Path) -> SeaweedServer:
    return SeaweedServer(place / "seaweedfs", access_key=ACCESS_KEY, secret_key=SECRET_KEY, buckets=(BUCKET,))


def _seaweedfs(run: Run, place: Path, _disk: Path) -> None:
    for number in range(run.settings.rounds):
        for full in run.settings.workloads:
            workload = full.scaled(run.settings.server_factor * (2 if full.size < MIB else 1))
            here = Place(folder=place / f"weed-{number}" / workload.name, workload=workload)
            run.say(f" round {number + 1}, {workload.label}")
            try:
                here.publish()
                with _server(place) as server:
                    peers, url = run.settings.server_peers, server.endpoint_url
                    one_round(run.results, here, "seaweedfs", url, peers, number=number, say=run.say)
            finally:
                here.clear()
                shutil.rmtree(place / "seaweedfs", ignore_errors=True)


def _links(run: Run, place: Path, _disk: Path) -> None:
    for rate in RATES:
        size = round(rate * run.settings.link_seconds) // MIB * MIB
        here = Place(folder=place / f"link{rate // MIB}" / "link", workload=Workload(name="one", files=1, size=size))
        try:
            here.publish()
            clients = [None, *run.settings.link_peers]
            figures = measure_link(run.results, here, rate, clients, min(run.settings.rounds, FEWER_ROUNDS), run.say)
        finally:
            here.clear()
        run.details[f"link{rate // MIB}"] = figures.document()
        run.found += link_findings(figures)


def _beside(run: Run, place: Path, _disk: Path) -> None:
    workload = Workload(name="beside", files=4, size=run.settings.beside_mib * MIB // 4)
    here = Place(folder=place / "beside" / "beside", workload=workload)
    try:
        here.publish()
        found = measure_beside(here, run.settings.idle_seconds, run.say)
    finally:
        here.clear()
    run.details["beside"] = asdict(found)
    run.found += beside_findings(found)


def _saving(run: Run, place: Path, disk: Path) -> None:
    workload = Workload(name="saving", files=1, size=run.settings.saving_mib * MIB)
    for folder, where, judged in ((disk, "on the disk", True), (place, "in memory", False)):
        found = measure_saving(folder, workload, run.settings.rounds, where, run.say)
        run.details[f"saving {where}"] = asdict(found)
        run.found += saving_findings(found) if judged else []


def _kill(run: Run, place: Path, _disk: Path) -> None:
    workload = Workload(name="kill", files=2, size=run.settings.kill_mib * MIB // 2)
    here = Place(folder=place / "kill" / "kill", workload=workload)
    try:
        here.publish()
        found = measure_kill(here, run.say)
    finally:
        here.clear()
    run.details["kill"] = asdict(found)
    run.found += kill_findings(found)


def _reuse(run: Run, place: Path, _disk: Path) -> None:
    size = run.settings.reuse_mib * MIB
    for workload in (
        Workload(name="reuse-files", files=20, size=size // 20),
        Workload(name="reuse-leaves", files=1, size=size),
    ):
        here = Place(folder=place / "reuse" / workload.name, workload=workload)
        try:
            with _server(place) as server:
                found = measure_reuse(here, server, run.say)
        finally:
            here.clear()
            shutil.rmtree(place / "seaweedfs", ignore_errors=True)
        run.details[workload.name] = asdict(found)
        run.found += reuse_findings(found)


def _disk(run: Run, place: Path, disk: Path) -> None:
    workload = Workload(name="disk", files=1, size=run.settings.disk_mib * MIB)
    here = Place(folder=place / "disk" / "disk", workload=workload)
    try:
        here.publish()
        for number in range(min(run.settings.rounds, FEWER_ROUNDS)):
            disk_round(run.results, here, disk, run.settings.disk_peers, number, run.say)
    finally:
        here.clear()


def _growth(run: Run, _place: Path, _disk: Path) -> None:
    found = measure_growth(run.settings.growth, run.say)
    run.details["growth"] = asdict(found)
    run.found += growth_findings(found)


def _profile(run: Run, place: Path, _disk: Path) -> None:
    for workload in run.settings.workloads:
        here = Place(folder=place / "profile" / workload.name, workload=workload)
        try:
            here.publish()
            run.details[f"profile {workload.name}"] = profile(here, run.say)
        finally:
            here.clear()


Phase = Callable[[Run, Path, Path], None]
ON_REQUEST = ("profile",)
"""Phases that are no part of a whole run."""
PHASES: Mapping[str, Phase] = MappingProxyType(
    {
        "sink": _sink,
        "tls": _tls,
        "seaweedfs": _seaweedfs,
        "disk": _disk,
        "links": _links,
        "beside": _beside,
        "saving": _saving,
        "kill": _kill,
        "reuse": _reuse,
        "growth": _growth,
        "profile": _profile,
    }
)
