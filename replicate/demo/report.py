"""What the demonstration shows: a timeline, where each generation was when, and the proof."""

from dataclasses import dataclass, field
from typing import Any

from replicate.demo.proof import Control, Proved
from replicate.demo.stage import Moment
from replicate.jsonable import jsonable
from replicate.render.words import human_bytes


@dataclass(slots=True, kw_only=True)
class Generation:
    """A generation's way to the tiers; times in seconds after the start."""

    id: str
    sealed_at: float
    committed_at: dict[str, float] = field(default_factory=dict)
    verified_by: dict[str, str] = field(default_factory=dict)
    total_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """Everything that was seen and proved."""

    proof: tuple[Proved, ...]
    controls: tuple[Control, ...]
    timeline: tuple[Moment, ...]
    generations: tuple[Generation, ...]
    tiers: tuple[str, ...]
    requests: dict[str, dict[str, int]]
    bytes_sent: dict[str, int]
    updates: int
    resumed_at: int

    @property
    def ok(self) -> bool:
        """Whether everything was equal and every control was noticed."""
        return all(item.equal for item in self.proof) and all(control.noticed for control in self.controls)

    def document(self) -> dict[str, Any]:
        """Return the report as JSON data, without the verdict."""
        document = jsonable(self)
        if not isinstance(document, dict):
            raise TypeError(document)
        return document


def render_moment(moment: Moment) -> str:
    """Show one thing that happened."""
    return f"{moment.seconds:6.1f} s  {moment.where:<9}  {moment.what}"


def render_demo(report: DemoReport) -> str:
    """Show what a person wants to see at the end."""
    lines = ["", "Generations: sealed on the machine, then committed on each tier (lag in seconds)"]
    lines += [_generation_line(one, report.tiers) for one in report.generations]
    lines += ["", "What the tiers were asked"]
    for tier in report.tiers:
        counts = report.requests.get(tier, {})
        words = ", ".join(f"{count} class {billing}" for billing, count in sorted(counts.items()))
        lines.append(f"  {tier:<7} {words}; {human_bytes(report.bytes_sent.get(tier, 0))} sent")
    lines += ["", "Proof: the interrupted run against the uninterrupted one, bit for bit"]
    lines += [f"  {_mark(good=one.equal)}  {one.compared} ({one.items}){_detail(one)}" for one in report.proof]
    lines += ["", "Controls: the same proof has to fail here"]
    for control in report.controls:
        lines.append(f"  {_mark(good=control.noticed)}  {control.name}")
        lines.append(f"      {control.detail[:200]}")
    verdict = "PROVED: the machine died, training went on bit for bit" if report.ok else "NOT PROVED: see FAIL above"
    return "\n".join([*lines, "", verdict])


def _generation_line(one: Generation, tiers: tuple[str, ...]) -> str:
    places = [
        f"{tier} +{one.committed_at[tier] - one.sealed_at:.1f} ({one.verified_by[tier]})"
        for tier in tiers
        if tier in one.committed_at
    ]
    return f"  {one.id}  {human_bytes(one.total_bytes):>8}  {', '.join(places) or 'local only'}"


def _mark(*, good: bool) -> str:
    return "ok  " if good else "FAIL"


def _detail(one: Proved) -> str:
    return f": {one.detail}" if one.detail else ""
