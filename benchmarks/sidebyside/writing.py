"""Results as text: tables for a terminal and for docs/benchmarks.md, which keeps what was written there by hand."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.sidebyside.facts import without_paths
from benchmarks.sidebyside.figures import NONE, Figure, Finding, Spread
from benchmarks.sidebyside.peers import DOWN, KNOWN, UP, Peer
from benchmarks.sidebyside.running import AS, NOT_DONE, NOT_INSTALLED, OURS, SEALING, Cell, Results

GIB = 1 << 30
MISSES, MISSES_END = "<!-- misses -->", "<!-- /misses -->"
FSYNC = " + fsync"
NO_MISSES = "\nNothing was written here yet.\n"
OUR_PROOF = "store-checked SHA-256, log read back"
OUR_DOWN = "SHA-256 of every leaf; fsync"
_PEERS = {peer.name: peer for peer in KNOWN}
_SERVERS = {"sink": "Raw sink", "tls": "Raw sink behind TLS", "seaweedfs": "SeaweedFS", "disk": "Restoring to the disk"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One client in one table, ready to be shown."""

    client: str
    up: str
    up_cpu: str
    up_proof: str
    down: str
    down_cpu: str
    down_proof: str
    peak: str
    whole: bool


def spread(values: Sequence[float]) -> str:
    """Return ``median (low-high)``, or the one value there is."""
    if not values:
        return NONE
    found = Spread.of(values)
    return f"{found.median:.2f}" if len(values) == 1 else f"{found.median:.2f} ({found.low:.2f}-{found.high:.2f})"


def rows_of(results: Results, server: str, workload: str) -> list[Row]:
    """Return the table of one server and workload, ours first, then the fastest upload first."""
    up, down = results.of(server, workload, UP), results.of(server, workload, DOWN)
    gib = results.bytes_of(server, workload) / GIB
    names = dict.fromkeys((*up, *down, *_failed(results, server, workload)))
    others = sorted((name for name in names if name != OURS), key=lambda name: _order(up.get(name) or down.get(name)))
    sealing = results.figures.get(Cell("memory", workload, "seal", SEALING), [])
    same = results.workloads.get(f"memory/{workload}") == results.workloads[f"{server}/{workload}"]
    rows = []
    for name in [OURS, *others] if OURS in names else others:
        rows.append(_row(results, Cell(server, workload, "", name), up.get(name, []), down.get(name, []), gib))
        if name == OURS and sealing and same and up.get(OURS):
            rows.append(_both(sealing, up[OURS], gib))
    return rows


def _failed(results: Results, server: str, workload: str) -> Iterable[str]:
    return [cell.client for cell in results.failures if (cell.server, cell.workload) == (server, workload)]


def _order(found: Sequence[Figure] | None) -> float:
    return statistics.median(one.compared_wall for one in found) if found else float("inf")


def _row(results: Results, cell: Cell, up: Sequence[Figure], down: Sequence[Figure], gib: float) -> Row:
    peer = _PEERS.get(cell.client.removesuffix(FSYNC))
    shown = {}
    for action, found in ((UP, up), (DOWN, down)):
        why = results.failures.get(Cell(cell.server, cell.workload, action, cell.client))
        text = spread([one.compared_wall for one in found]) if found else _short(why)
        shown[action] = (text, spread([one.compared_cpu / gib for one in found]))
    both = [*up, *down]
    return Row(
        client=cell.client,
        up=shown[UP][0],
        up_cpu=shown[UP][1],
        up_proof=peer.proof_up if peer else OUR_PROOF,
        down=shown[DOWN][0],
        down_cpu=shown[DOWN][1],
        down_proof=_down_proof(cell.client, peer),
        peak=f"{max(one.peak_mib for one in both):.0f}" if both else NONE,
        whole=peer.program if peer else False,
    )


def _down_proof(client: str, peer: Peer | None) -> str:
    if peer is not None:
        return f"{peer.proof_down}; fsync" if client.endswith(FSYNC) else peer.proof_down
    return OUR_DOWN if client == OURS else OUR_DOWN.partition(";")[0]


def _short(why: str | None) -> str:
    if why is None:
        return NONE
    return why if why.startswith(AS) or why in (NOT_INSTALLED, NOT_DONE) else "failed"


def _both(sealing: Sequence[Figure], up: Sequence[Figure], gib: float) -> Row:
    pairs = list(zip(sealing, up, strict=False))
    return Row(
        client=f"{OURS}, sealing too",
        up=spread([seal.compared_wall + sent.compared_wall for seal, sent in pairs]),
        up_cpu=spread([(seal.compared_cpu + sent.compared_cpu) / gib for seal, sent in pairs]),
        up_proof=f"{OUR_PROOF}, digests made",
        down=NONE,
        down_cpu=NONE,
        down_proof=NONE,
        peak=f"{max(seal.peak_mib for seal, _ in pairs):.0f}",
        whole=False,
    )


def markdown_table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    body = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return "\n".join([*body, *(f"| {' | '.join(line)} |" for line in lines)])


def tables(results: Results) -> str:
    """Return every table of the side by side, in Markdown."""
    heads = ["client", "up: wall s", "CPU s/GiB", "verified", "down: wall s", "CPU s/GiB", "verified", "peak MiB"]
    parts = []
    for server, title in _SERVERS.items():
        for key, workload in results.workloads.items():
            if key.partition("/")[0] != server:
                continue
            rows = rows_of(results, server, workload.name)
            lines = [
                [
                    row.client + (" ¹" if row.whole else ""),
                    *(row.up, row.up_cpu, row.up_proof),
                    *(row.down, row.down_cpu, row.down_proof, row.peak),
                ]
                for row in rows
            ]
            parts.append(f"### {title}, {workload.label}\n\n{markdown_table(*_without_blanks(heads, lines))}")
    return "\n\n".join(parts)


def _without_blanks(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Leave out the columns of a direction that nobody was measured in."""
    ups = slice(1, 4)
    if any(line[ups.start] != NONE for line in lines):
        return list(heads), [list(line) for line in lines]
    return [heads[0], *heads[ups.stop :]], [[line[0], *line[ups.stop :]] for line in lines]


def targets_table(findings: Sequence[Finding]) -> str:
    """Return the targets beside their figures, in Markdown."""
    lines = [[one.target, one.bound, one.shown, str(one.verdict), one.beside] for one in findings]
    return markdown_table(["target", "bound", "figure", "verdict", "in numbers"], lines)


def failures(results: Results) -> str:
    """Return who has no figure, and why."""
    lines = [
        f"- {cell.client}, {cell.server}, {cell.workload} {cell.action}: {without_paths(why)}"
        for cell, why in results.failures.items()
        if not why.startswith(AS)
    ]
    return "\n".join(lines) or "All clients ran."


def kept(text: str) -> str:
    """Return what was written by hand between the markers of an earlier document."""
    _, begin, rest = text.partition(MISSES)
    inner, end, _ = rest.partition(MISSES_END)
    return inner if begin and end else NO_MISSES


def terminal(results: Results, findings: Sequence[Finding]) -> str:
    """Return the same for 80 columns: medians only."""
    lines = []
    for key, workload in results.workloads.items():
        server = key.partition("/")[0]
        if server not in _SERVERS:
            continue
        lines += ["", f"{_SERVERS[server]}, {workload.label}"]
        lines.append(f"{'client':22}{'up s':>9}{'CPU/GiB':>9}{'down s':>9}{'CPU/GiB':>9}{'MiB':>6}  verified")
        for row in rows_of(results, server, workload.name):
            shown = (row.up, row.up_cpu, row.down, row.down_cpu)
            values = [NONE if text.startswith(AS) else text.partition(" ")[0] for text in shown]
            lines.append(
                f"{row.client:22.22}{''.join(f'{one:>9.8}' for one in values)}{row.peak:>6}  {row.up_proof:.14}"
            )
    lines += ["", f"{'target':45}{'figure':>14}  verdict"]
    for one in findings:
        lines.append(f"{one.target:45.45}{one.shown:>14.22}  {one.verdict} ({one.bound})")
    return "\n".join(lines)


def facts_table(facts: Mapping[str, str], versions: Mapping[str, str]) -> str:
    """Return the machine and the versions, in Markdown."""
    said = ", ".join(f"{name} {version}" for name, version in versions.items())
    return markdown_table(["fact", "value"], [*([name, value] for name, value in facts.items()), ["versions", said]])
