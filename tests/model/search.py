"""Breadth first through all worlds that can come of a beginning, and what must be true in each."""

import gc
from collections import deque
from dataclasses import dataclass

from model.search_steps import steps
from model.search_world import Scenario, World


@dataclass(frozen=True, kw_only=True)
class Searched:
    """What a search went through; ``broken`` names the promise that the last step of ``trace`` breaks."""

    states: int
    transitions: int
    depth: int
    broken: str = ""
    trace: tuple[str, ...] = ()


def search(scenario: Scenario, *, limit: int = 1_000_000) -> Searched:
    """Visit every world, nearest first, up to the first that breaks a promise."""
    gc.disable()  # what is found is kept, and holds no cycles: looking for them takes a third of the time
    try:
        return _search(scenario, limit)
    finally:
        gc.enable()


def _search(scenario: Scenario, limit: int) -> Searched:
    first = scenario.begin()
    came: dict[World, tuple[World, str] | None] = {first: None}
    queue = deque([(first, 0)])
    transitions = depth = 0
    while queue:
        world, depth = queue.popleft()
        for label, after in steps(world, scenario):
            transitions += 1
            if after in came:
                continue
            came[after] = (world, label)
            broken = _broken(world, after)
            if broken:
                trace = _trace(came, after)
                return Searched(states=len(came), transitions=transitions, depth=depth + 1, broken=broken, trace=trace)
            queue.append((after, depth + 1))
        assert len(came) < limit, f"{scenario.name}: more than {limit} worlds"
    return Searched(states=len(came), transitions=transitions, depth=depth)


def _trace(came: dict[World, tuple[World, str] | None], world: World) -> tuple[str, ...]:
    labels: list[str] = []
    at: World = world
    while (step := came[at]) is not None:
        at, label = step
        labels.append(label)
    return tuple(reversed(labels))


def _broken(before: World, after: World) -> str:
    """Name the first promise that does not hold after a step."""
    if after.log is not before.log and after.log.upto(len(before.log)) is not before.log:
        return "I2 an entry changed or went"
    if after.log.wrong:
        return after.log.wrong
    return _incomplete(before, after) or _forgotten(before, after) or _tracked(before, after)


def _incomplete(before: World, after: World) -> str:
    """I1: what is committed is whole, but for what fate has hurt."""
    if after.log is before.log and len(after.objects) >= len(before.objects):
        return ""
    for upload in after.log.live - after.hurt:
        for what in ("data", "manifest"):
            if (upload, what) not in after.objects:
                return f"I1 {what} of {upload.generation} is not there"
    return ""


def _forgotten(before: World, after: World) -> str:
    """I5: what was acknowledged stands in its slot."""
    for one, number, nonce in after.acks if after.acks is not before.acks else ():
        slot = after.log.slots[number] if number < len(after.log) else None
        if slot is None or (slot.nonce, slot.kind) != (nonce, "commit") or not _is(slot.upload, one):
            return f"I5 {one} was acknowledged and is not in slot {number}"
    return ""


def _is(upload: object, generation: object) -> bool:
    return getattr(upload, "generation", None) == generation


def _tracked(before: World, world: World) -> str:
    """I6: a tracker says no more than the log."""
    for writer in world.writers if world.writers is not before.writers else ():
        if writer.seen >= len(world.log):
            return "I6 seen beyond the log"
        for one, number in writer.done if not world.hidden else ():
            if not _is(world.log.slots[number].upload, one):
                return "I6 completed what the log does not say"
    return ""
