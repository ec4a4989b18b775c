"""What befalls the writers of a search: crashes, damage, late requests, time, and people."""

from collections.abc import Iterator

from model.search_log import Slot, generation
from model.search_world import Scenario, World, Writer, created, has_retired, put

Step = tuple[str, World]


def fate(world: World, index: int, writer: Writer) -> Iterator[Step]:
    """Crash a process, lose a tracker, or let a machine restore and train on."""
    budget = world.budget
    if writer.at != "idle":
        if budget.crashes:
            left = budget._replace(crashes=budget.crashes - 1)
            yield f"{writer.name}: crash", put(world, index, writer.crashed())._replace(budget=left)
        return
    if budget.forgets and (writer.held or writer.plans):
        fresh = writer.crashed()._replace(held=None, plans=(), given_up=frozenset(), done=(), seen=-1)
        yield (
            f"{writer.name}: forget",
            put(world, index, fresh)._replace(budget=budget._replace(forgets=budget.forgets - 1)),
        )
    if budget.restores and world.log.newest is not None and world.hidden == 0:
        highest = world.log.state.highest_attempt if world.log.state else 0
        attempt = max(highest, writer.attempt) + 1
        fresh = writer.crashed()._replace(
            attempt=attempt, line=f"{attempt}{index}", local=(generation(attempt, world.log.newest.sequence + 1),)
        )
        left = budget._replace(restores=budget.restores - 1)
        yield f"{writer.name}: restore", put(world, index, fresh)._replace(budget=left)


def elsewhere(world: World, scenario: Scenario) -> Iterator[Step]:
    """Damage, requests that arrive late, time, pins, a power failure of the tier, and somebody who tidies the log."""
    if world.budget.hurts:
        left = world.budget._replace(hurts=world.budget.hurts - 1)
        for upload in world.log.live - world.hurt:
            rotten = (world.objects - {(upload, "data")}) | {(upload, "bad")}
            yield "damage", world._replace(objects=rotten, hurt=world.hurt | {upload}, budget=left)
    for number, slot in world.flying:
        landed = world._replace(flying=world.flying - {(number, slot)})
        yield "late create", created(landed, number, slot, scenario)
    if scenario.keep_last is not None and world.due < len(world.log) and has_retired(world.log):
        yield "time passes", world._replace(due=len(world.log))
    yield from _pinning(world, scenario)
    if world.volatile >= 0:
        yield "power fails", world._replace(log=world.log.upto(world.volatile), volatile=-1)
    if "old-slots-deleted" in scenario.weak and world.hidden == 0:
        claims = [number for number, slot in enumerate(world.log.slots) if slot.kind == "claim"]
        if len(claims) > 1:
            yield "old slots deleted", world._replace(hidden=claims[-1])


def _pinning(world: World, scenario: Scenario) -> Iterator[Step]:
    """Let an operator pin the oldest: it reads the log, and creates what it found to be the next slot."""
    if world.pinner < 0:
        if world.budget.pins and len(world.log.live) > 1:
            left = world.budget._replace(pins=world.budget.pins - 1)
            yield "pin: read", world._replace(pinner=len(world.log), budget=left)
        return
    seen = world.log.upto(world.pinner)
    if len(world.log) > world.pinner and "unconditional-put" not in scenario.weak:
        yield "pin: slot taken", world._replace(pinner=len(world.log))
    elif not seen.live or seen.state is None:
        yield "pin: nothing left", world._replace(pinner=-1)
    else:
        oldest = min(one.generation for one in seen.live)
        slot = Slot("pin", seen.state.term, seen.state.highest_attempt, seen.slots[-1].line, "pin", None, oldest)
        yield "pin: create", created(world, world.pinner, slot, scenario)._replace(pinner=-1)
