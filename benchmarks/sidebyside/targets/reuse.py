"""A second generation of which nine tenths are unchanged: bytes and wall, on a real server."""

import json
from dataclasses import asdict, dataclass, replace

from benchmarks.sidebyside.figures import Finding, Verdict, verdict, worst
from benchmarks.sidebyside.running import Place, Say
from benchmarks.sidebyside.servers import ShapedLink
from tiers.servers import SeaweedServer

MIB = 1 << 20
BYTES, WALL = 0.12, 0.25
CHANGED = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reused:
    """The second generation as a part of the first."""

    label: str
    bytes_share: float
    wall_share: float
    first_wall: float
    second_wall: float


def measure_reuse(place: Place, server: SeaweedServer, say: Say) -> Reused:
    """Replicate a generation, change a tenth of it, replicate again; a link that bounds nothing counts the bytes."""
    place.publish()
    with ShapedLink(server.port) as link:
        config = str(place.project("reuse", link.url))
        first = place.ours("replicate", label="first", config=config)
        sent = link.ask("reset")["up"]
        said = place.folder / "said.json"
        shape = asdict(replace(place.workload))
        place.ours("publish", store=str(place.store), workload=shape, said=str(said), update=2, changed=CHANGED)
        place.files = type(place.files)(json.loads(said.read_text(encoding="utf-8"))["files"])
        second = place.ours("replicate", label="second", config=config)
        again = link.ask("counters")["up"]
    walls = first.figure.compared_wall, second.figure.compared_wall
    found = Reused(
        label=place.workload.label,
        bytes_share=again / sent,
        wall_share=walls[1] / walls[0],
        first_wall=walls[0],
        second_wall=walls[1],
    )
    say(f"  reuse, {found.label}: {found.bytes_share:.1%} of the bytes, {found.wall_share:.1%} of the wall")
    return found


def reuse_findings(found: Reused) -> list[Finding]:
    """Hold it against the target."""
    verdicts: list[Verdict] = [verdict(found.bytes_share, BYTES, digits=3), verdict(found.wall_share, WALL, digits=3)]
    return [
        Finding(
            target=f"second generation, 90 % unchanged, {found.label}",
            bound=f"≤ {BYTES:.0%} of the bytes, ≤ {WALL:.0%} of the wall",
            shown=f"{found.bytes_share:.1%}, {found.wall_share:.1%}",
            verdict=worst(verdicts),
            beside=f"{found.second_wall:.2f} s after {found.first_wall:.2f} s",
        )
    ]
