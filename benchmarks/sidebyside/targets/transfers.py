"""Targets that follow from the tables: uploads, restores, sealing, memory.  Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarks.sidebyside.facts import without_paths
from benchmarks.sidebyside.figures import NONE, TIMES, Figure, Finding, Verdict, fastest, ratio, verdict, worst
from benchmarks.sidebyside.peers import DOWN, KNOWN, UP, Peer
from benchmarks.sidebyside.running import OURS, SEALING, Cell, Results, compared

GIB = 1 << 30
SINK_WALL, CHECKED_WALL = 1.0, 1.05
CPU_SHARE, CPU_ABSOLUTE = 0.5, 0.35
RESTORE_WALL, RESTORE_CPU = 1.0, 1.2
SEAL = 0.9
PEAK_MIB = 200.0
CHECKED = "store-checked SHA-256"
Figures = Mapping[str, Sequence[Figure]]


def _wall(one: Figure) -> float:
    return one.compared_wall


def _cpu(one: Figure) -> float:
    return one.compared_cpu


def unverified(figures: Figures, action: str, peers: Sequence[Peer] = KNOWN) -> dict[str, Sequence[Figure]]:
    """Return the peers that verify nothing in this direction."""
    names = {peer.name for peer in peers if (peer.proof_up if action == UP else peer.proof_down) == "none"}
    return {name: found for name, found in figures.items() if name in names}


def checked(figures: Figures, peers: Sequence[Peer] = KNOWN) -> dict[str, Sequence[Figure]]:
    """Return the peers that ask the store for the same check as we do."""
    names = {peer.name for peer in peers if peer.proof_up == CHECKED}
    return {name: found for name, found in figures.items() if name in names}


def against(figures: Figures, peers: Figures, what: str, bound: float, target: str) -> Finding:
    """Hold our wall or CPU (``what``) against the best of some peers, round by round."""
    value = _wall if what == "wall" else _cpu
    ours = [value(one) for one in figures.get(OURS, ())]
    theirs = compared(peers, value)
    best = fastest(theirs)
    found = ratio(ours, theirs[best]) if ours and best else None
    beside = ""
    if best and ours:
        unit = "s" if what == "wall" else "CPU s"
        beside = f"{statistics.median(ours):.2f} against {statistics.median(theirs[best]):.2f} {unit} ({best})"
    return Finding(
        target=target,
        bound=f"≤ {bound:g} {TIMES}",
        shown=f"{found:.2f} {TIMES}" if found is not None else NONE,
        verdict=verdict(found, bound),
        beside=beside,
    )


def uploads(results: Results, workloads: Sequence[str]) -> list[Finding]:
    """Wall and CPU of replicating a sealed generation."""
    found = []
    for name in workloads:
        figures = results.of("sink", name, UP)
        if not figures:
            continue
        label = results.workloads[f"sink/{name}"].label
        bare = unverified(figures, UP)
        found.append(against(figures, bare, "wall", SINK_WALL, f"upload, sink, {label}: wall"))
        others = {peer: rounds for peer, rounds in figures.items() if peer != OURS}
        found.append(against(figures, others, "CPU", CPU_SHARE, f"upload, sink, {label}: CPU against the best peer"))
        found.append(_absolute(results, name, label))
        found[-3:] = _unless_failed(results, "sink", name, UP, found[-3:])
    for name in workloads:
        figures = results.of("seaweedfs", name, UP)
        if figures:
            label = results.workloads[f"seaweedfs/{name}"].label
            target = f"upload, SeaweedFS, {label}: wall against the same check"
            one = against(figures, checked(figures), "wall", CHECKED_WALL, target)
            found += _unless_failed(results, "seaweedfs", name, UP, [one])
    return found


def _unless_failed(
    results: Results, server: str, workload: str, action: str, found: Sequence[Finding]
) -> list[Finding]:
    """Return the findings, or misses where we failed in any round: the rounds that went well prove nothing then."""
    why = results.failures.get(Cell(server, workload, action, OURS))
    if why is None:
        return list(found)
    return [replace(one, shown="failed", verdict=Verdict.MISSED, beside=without_paths(why)) for one in found]


def _absolute(results: Results, name: str, label: str) -> Finding:
    gib = results.bytes_of("sink", name) / GIB
    spent = [_cpu(one) / gib for one in results.of("sink", name, UP).get(OURS, ())]
    value = statistics.median(spent) if spent else None
    return Finding(
        target=f"upload, sink, {label}: CPU",
        bound=f"≤ {CPU_ABSOLUTE} s/GiB",
        shown=f"{value:.2f} s/GiB" if value is not None else NONE,
        verdict=verdict(value, CPU_ABSOLUTE),
    )


def restores(results: Results, workloads: Sequence[str]) -> list[Finding]:
    """Wall and CPU of a verified restore against downloads that verify nothing."""
    found = []
    for server in ("sink", "seaweedfs"):
        for name in workloads:
            figures = results.of(server, name, DOWN)
            if not figures:
                continue
            label = results.workloads[f"{server}/{name}"].label
            bare = unverified(figures, DOWN)
            shown = {"sink": "sink", "seaweedfs": "SeaweedFS"}[server]
            both = [
                against(figures, bare, "wall", RESTORE_WALL, f"restore, {shown}, {label}: wall"),
                against(figures, bare, "CPU", RESTORE_CPU, f"restore, {shown}, {label}: CPU"),
            ]
            found += _unless_failed(results, server, name, DOWN, both)
    return found


def sealing(results: Results, workloads: Sequence[str]) -> list[Finding]:
    """Bytes a second of sealing against those of the digest alone on all cores."""
    found = []
    for name in workloads:
        sealed = results.figures.get(Cell("memory", name, "seal", SEALING), [])
        limit = results.figures.get(Cell("memory", name, "seal", "hash"), [])
        value = ratio([_wall(one) for one in limit], [_wall(one) for one in sealed]) if sealed and limit else None
        beside = ""
        if sealed and limit:
            gib = results.bytes_of("memory", name) / GIB
            rates = [gib / statistics.median(map(_wall, figures)) for figures in (sealed, limit)]
            beside = f"{rates[0]:.2f} of {rates[1]:.2f} GiB/s"
        if f"memory/{name}" in results.workloads:
            found.append(
                Finding(
                    target=f"seal, {results.workloads[f'memory/{name}'].label}",
                    bound=f"≥ {SEAL} of the hash",
                    shown=f"{value:.2f}" if value is not None else NONE,
                    verdict=verdict(value, SEAL, at_least=True),
                    beside=beside,
                )
            )
    return found


def memory(results: Results) -> Finding:
    """Our highest peak in any cell."""
    peaks = {
        cell: max(one.peak_mib for one in found)
        for cell, found in results.figures.items()
        if cell.client in (OURS, SEALING)
    }
    most = max(peaks, key=lambda cell: peaks[cell], default=None)
    value = peaks[most] if most else None
    return Finding(
        target="peak memory",
        bound=f"≤ {PEAK_MIB:.0f} MiB",
        shown=f"{value:.0f} MiB" if value is not None else NONE,
        verdict=verdict(value, PEAK_MIB),
        beside=most.text() if most else "",
    )


def overall(findings: Sequence[Finding]) -> str:
    """Return one word for all of them."""
    return str(worst([one.verdict for one in findings]))
