"""The cells of the table: a server, a workload, a direction, a client, once in each round."""

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.sidebyside.figures import Figure
from benchmarks.sidebyside.measuring import ClientFailed, Ran, run_child
from benchmarks.sidebyside.peers import DOWN, UP, Peer, Task
from benchmarks.sidebyside.servers import BUCKET
from benchmarks.sidebyside.workloads import Workload

OURS = "ckptier"
SEALING = "ckptier-seal"
NOT_INSTALLED, NOT_DONE = "not installed", "not what it does"
AS = "as "
"""Before the name of a client that does the same."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """What a figure is of."""

    server: str
    workload: str
    action: str
    client: str

    def text(self) -> str:
        """Return it as a key of JSON."""
        return f"{self.server}/{self.workload}/{self.action}/{self.client}"


@dataclass(slots=True)
class Results:
    """Figures by cell, in the order of the rounds, and why a client has none."""

    figures: dict[Cell, list[Figure]] = field(default_factory=dict)
    failures: dict[Cell, str] = field(default_factory=dict)
    workloads: dict[str, Workload] = field(default_factory=dict)

    def add(self, cell: Cell, figure: Figure) -> None:
        """Keep one round's figure."""
        self.figures.setdefault(cell, []).append(figure)

    def of(self, server: str, workload: str, action: str) -> dict[str, list[Figure]]:
        """Return the figures of one table's column, by client."""
        return {
            cell.client: found
            for cell, found in self.figures.items()
            if (cell.server, cell.workload, cell.action) == (server, workload, action)
        }

    def bytes_of(self, server: str, workload: str) -> int:
        """Return how many bytes a workload has on a server."""
        return self.workloads[f"{server}/{workload}"].total

    def document(self) -> dict[str, object]:
        """Return it for JSON."""
        return {
            "figures": {cell.text(): [one.document() for one in found] for cell, found in self.figures.items()},
            "failures": {cell.text(): why for cell, why in self.failures.items()},
            "workloads": {name: asdict(one) for name, one in self.workloads.items()},
        }


@dataclass(slots=True, kw_only=True)
class Place:
    """A folder for one round and workload: the sealed generation, and what is made beside it."""

    folder: Path
    workload: Workload
    files: Path = Path()

    @property
    def name(self) -> str:
        """What keeps its objects apart from those of other rounds."""
        return f"{self.folder.parent.name}-{self.folder.name}"

    @property
    def store(self) -> Path:
        """Our store."""
        return self.folder / "runs" / "bench"

    def project(self, name: str, endpoint: str, *, ca: Path | None = None, empty: bool = False, more: str = "") -> Path:
        """Write a configuration and return its path; ``empty`` has a store without generations, for a restore."""
        folder = self.folder / f"{name}{'-elsewhere' if empty else ''}"
        folder.mkdir(exist_ok=True)
        store = folder / "runs" if empty else self.folder / "runs"
        path = folder / "ckptier.toml"
        tier = f'name = "s3"\nurl = "s3://{BUCKET}/{name}-{self.name}"\nendpoint_url = "{endpoint}"\n'
        tier += 'profile = "seaweedfs"\n'
        tier += f'ca_bundle = "{ca}"\n' if ca else ""
        path.write_text(
            f'run = "bench"\nstore = "{store}"\nstate_dir = "state"\n{more}[[tier]]\n{tier}region = "us-east-1"\n',
            encoding="utf-8",
        )
        return path

    def ours(self, role: str, *, label: str = "", **asked: object) -> Ran:
        """Run a role of ours."""
        command = [sys.executable, "-m", "benchmarks.sidebyside.clients.ours", json.dumps({"role": role, **asked})]
        return run_child(command, extra={}, log=self.folder / f"{label or role}.log")

    def publish(self) -> Figure:
        """Write and seal the generation; returns what sealing took."""
        self.folder.mkdir(parents=True, exist_ok=True)
        said = self.folder / "said.json"
        ran = self.ours("publish", store=str(self.store), workload=asdict(self.workload), said=str(said))
        self.files = Path(json.loads(said.read_text(encoding="utf-8"))["files"])
        return ran.figure

    def clear(self) -> None:
        """Remove it all."""
        shutil.rmtree(self.folder, ignore_errors=True)


def fresh(folder: Path) -> Path:
    """Return an empty folder of this name."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def our_transfer(place: Place, server: str, endpoint: str, action: str, *, ca: Path | None = None) -> Ran:
    """Replicate the generation to a server, or restore it from there."""
    if action == UP:
        return place.ours("replicate", label=f"{server}-up", config=str(place.project(server, endpoint, ca=ca)))
    target = place.folder / "target"
    shutil.rmtree(target, ignore_errors=True)
    config = place.project(server, endpoint, ca=ca, empty=True)
    ran = place.ours("restore", label=f"{server}-down", config=str(config), target=str(target))
    _require_all(place, target)
    shutil.rmtree(target)
    return ran


def peer_transfer(place: Place, peer: Peer, server: str, endpoint: str, action: str, *, ca: Path | None = None) -> Ran:
    """Let a peer do the same with the same files."""
    target = fresh(place.folder / "target")
    task = Task(
        action=action,
        endpoint=endpoint,
        prefix=f"{server}-{place.name}-{peer.name}",
        source=place.files,
        target=target,
        ca=ca,
    )
    try:
        ran = run_child(peer.command(task), extra=peer.variables(task), log=place.folder / f"{peer.name}.log")
        if action == DOWN:
            _require_all(place, target)
    finally:
        shutil.rmtree(target, ignore_errors=True)
    return ran


def _require_all(place: Place, target: Path) -> None:
    """Fail where what was downloaded is not as long as what was uploaded."""
    for path in place.files.iterdir():
        there = target / path.name
        if not there.is_file() or there.stat().st_size != path.stat().st_size:
            raise ClientFailed(f"{path.name} did not come back")


def one_round(
    results: Results,
    place: Place,
    server: str,
    endpoint: str,
    peers: Sequence[Peer],
    *,
    number: int,
    say: Say,
    ca: Path | None = None,
    actions: Iterable[str] = (UP, DOWN),
) -> None:
    """Run every client once, each direction by turns; the round's ``number`` shifts who begins."""
    results.workloads[f"{server}/{place.workload.name}"] = place.workload
    clients: list[Peer | None] = [None, *peers]
    first = 2 * number % len(clients)
    clients = clients[first:] + clients[:first]
    for action in actions:
        for peer in clients:
            name = OURS if peer is None else peer.name
            cell = Cell(server, place.workload.name, action, name)
            if peer is not None and not _takes_part(results, cell, peer, number):
                continue
            try:
                if peer is None:
                    ran = our_transfer(place, server, endpoint, action, ca=ca)
                else:
                    ran = peer_transfer(place, peer, server, endpoint, action, ca=ca)
            except ClientFailed as error:
                results.failures[cell] = str(error)
                say(f"  {cell.text()}: FAILED {error}")
                continue
            results.add(cell, ran.figure)
            figure = ran.figure
            say(f"  {cell.text():44} {figure.compared_wall:7.2f} s {figure.compared_cpu:7.2f} CPU s")


def _takes_part(results: Results, cell: Cell, peer: Peer, number: int) -> bool:
    if peer.seldom and number:
        return False
    if peer.missing:
        results.failures[cell] = NOT_INSTALLED
    elif cell.action == DOWN and peer.down_as:
        results.failures[cell] = f"{AS}{peer.down_as}"
    elif cell.action not in peer.actions:
        results.failures[cell] = NOT_DONE
    return cell not in results.failures


def compared(figures: Mapping[str, Sequence[Figure]], value: Callable[[Figure], float]) -> dict[str, list[float]]:
    """Return one value of every client's rounds."""
    return {name: [value(one) for one in found] for name, found in figures.items()}
