"""Shaped links: how much of the link is used, and how long a commit takes beyond the bytes."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.sidebyside.figures import NONE, Finding, verdict
from benchmarks.sidebyside.measuring import ClientFailed, Ran
from benchmarks.sidebyside.peers import DOWN, UP, Peer
from benchmarks.sidebyside.running import OURS, Cell, Place, Results, Say, our_transfer, peer_transfer
from benchmarks.sidebyside.servers import ShapedLink, Sink

MIB = 1 << 20
ROUND_TRIP = 0.04
SHARE = 0.97
TRIPS = 6.0


@dataclass(slots=True)
class LinkFigures:
    """Of one link: shares by client and direction, and our round trips beyond the transfer.

    ``shares`` are from the first byte of data to the acknowledgement, ``whole`` from the first connection.
    """

    rate: float
    shares: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    trips: list[float] = field(default_factory=list)
    whole: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        shares = {"/".join(key): values for key, values in self.shares.items()}
        whole = {"/".join(key): values for key, values in self.whole.items()}
        return {"rate_mib": self.rate / MIB, "shares": shares, "whole": whole, "round_trips": self.trips}


def measure_link(
    results: Results, place: Place, rate: float, clients: Sequence[Peer | None], rounds: int, say: Say
) -> LinkFigures:
    """Send and fetch a generation through a link, clients in turn; None is ourselves."""
    figures = LinkFigures(rate)
    server = f"link{rate / MIB:.0f}"
    results.workloads[f"{server}/{place.workload.name}"] = place.workload
    for number in range(rounds):
        with Sink() as sink, ShapedLink(sink.port, rate=rate, round_trip=ROUND_TRIP) as link:
            sink.read_from(place.files)
            for action in (UP, DOWN):
                for peer in clients if number == 0 else [one for one in clients if one is None]:
                    link.ask("reset")
                    sink.ask("reset")
                    cell = Cell(server, place.workload.name, action, peer.name if peer else OURS)
                    try:
                        ran = _transfer(place, peer, f"{server}-{number}", link.url, action)
                    except ClientFailed as error:
                        results.failures[cell] = str(error)
                        say(f"  {cell.text()}: FAILED {error}")
                        continue
                    results.add(cell, ran.figure)
                    _note(figures, place, cell, ran, link.ask("counters"), sink.ask("counters"))
                    say(f"  {cell.text():44} {figures.shares[cell.client, action][-1]:7.1%} of the link")
    return figures


def _transfer(place: Place, peer: Peer | None, server: str, url: str, action: str) -> Ran:
    if peer is None:
        return our_transfer(place, server, url, action)
    return peer_transfer(place, peer, server, url, action)


def _note(
    figures: LinkFigures, place: Place, cell: Cell, ran: Ran, passed: dict[str, Any], seen: dict[str, Any]
) -> None:
    # The sink sees a request half a round trip after it left.
    began = (seen["first_body"] if cell.action == UP else seen["first_sent"]) - ROUND_TRIP / 2
    ended = ran.figure.ended or passed["last_down"]
    ideal = place.workload.total / figures.rate
    figures.shares.setdefault((cell.client, cell.action), []).append(ideal / (ended - began))
    whole = ideal / (ended - passed["first_connected"])
    figures.whole.setdefault((cell.client, cell.action), []).append(whole)
    if cell.client == OURS and cell.action == UP and seen["last_log_put"]:
        # Likewise, and its answer takes as long.
        elapsed = seen["last_log_put"] - seen["first_body"] + ROUND_TRIP
        figures.trips.append((elapsed - passed["up"] / figures.rate) / ROUND_TRIP)


def link_findings(figures: LinkFigures) -> list[Finding]:
    """Hold a link's figures against the targets."""
    name = f"link of {figures.rate / MIB:.0f} MiB/s"
    found = []
    for action, label in ((UP, "up"), (DOWN, "down")):
        ours = figures.shares.get((OURS, action), [])
        value = statistics.median(ours) if ours else None
        whole = figures.whole.get((OURS, action), [])
        others = [f"{statistics.median(whole):.1%} from the first connection"] if whole else []
        others += [
            f"{client} {statistics.median(shares):.1%}"
            for (client, way), shares in figures.shares.items()
            if way == action and client != OURS
        ]
        found.append(
            Finding(
                target=f"{name}, {label}",
                bound=f"≥ {SHARE:.0%}",
                shown=f"{value:.1%}" if value is not None else NONE,
                verdict=verdict(value, SHARE, at_least=True, digits=3),
                beside=", ".join(others),
            )
        )
    trips = statistics.median(figures.trips) if figures.trips else None
    found.append(
        Finding(
            target=f"{name}: first byte to commit, beyond the transfer",
            bound=f"≤ {TRIPS:.0f} round trips",
            shown=f"{trips:.1f}" if trips is not None else NONE,
            verdict=verdict(trips, TRIPS, digits=1),
        )
    )
    return found
