"""Every step that a world can take next: one atomic operation of a writer, or a stroke of fate."""

from collections.abc import Iterator
from functools import cache

from model.search_fate import Step, elsewhere, fate
from model.search_log import REMOTE, Log, Slot, Upload
from model.search_world import Held, Scenario, World, Writer, created, has_retired, leaving, put, standing, view_of

from replicate.gc import Found, Knowledge, plan_orphans
from replicate.terms import Standing


def steps(world: World, scenario: Scenario) -> Iterator[Step]:
    """Yield (what happened, what came of it)."""
    for index, writer in enumerate(world.writers):
        for label, after in _PROGRAM[writer.at.partition(":")[0]](world, index, writer, scenario):
            yield _onward(f"{writer.name}: {label}", after, index, scenario)
        yield from fate(world, index, writer)
    yield from elsewhere(world, scenario)


def _onward(label: str, world: World, index: int, scenario: Scenario) -> Step:
    """Go on through what nobody else can see.

    Reading the log and deciding by it are one step: entries never change, so that a reading which was late is
    one that was taken late.  A crash between them is a crash before them.
    """
    while (at := world.writers[index].at.partition(":")[0]) in _QUIET:
        ((more, world),) = _PROGRAM[at](world, index, world.writers[index], scenario)
        label = f"{label}, {more}"
    return label, world


# The program of a writer, by where its process is.


def _idle(world: World, index: int, writer: Writer, scenario: Scenario) -> Iterator[Step]:
    live = {one.generation for one in world.log.live}
    gone = {slot.upload.generation for slot in world.log.slots if slot.kind == "retire" and slot.upload}
    fenced = writer.held is not None and writer.held.fenced and writer.held.line == writer.line
    if any(one not in live | gone for one in writer.local) and not fenced:
        yield "start", put(world, index, writer._replace(at="read:pass"))
    if writer.held is None or fenced:
        return
    if world.budget.repairs and world.hurt & world.log.live:
        left = world.budget._replace(repairs=world.budget.repairs - 1)
        yield "repair", put(world, index, writer._replace(at="read:heal"))._replace(budget=left)
    if world.budget.sweeps:
        left = world.budget._replace(sweeps=world.budget.sweeps - 1)
        if scenario.keep_last is not None and len(live) > scenario.keep_last:
            yield "prune", put(world, index, writer._replace(at="read:prune"))._replace(budget=left)
        if has_retired(world.log):
            yield "sweep", put(world, index, writer._replace(at="read:sweep"))._replace(budget=left)
        if scenario.collects and world.objects:
            yield "gc", put(world, index, writer._replace(at="list"))._replace(budget=left)


def _read(world: World, index: int, writer: Writer, _scenario: Scenario) -> Iterator[Step]:
    """Read the whole log, and let the tracker follow it."""
    seen = _visible(world)
    writer = _reconciled(writer._replace(known=len(world.log)), seen, len(world.log))
    yield "read", put(world, index, writer._replace(at=_AFTER_READ[writer.at]))


_AFTER_READ = {
    "read:pass": "term",
    "read:prune": "prune",
    "read:sweep": "sweep",
    "read:commit": "commit",
    "read:heal": "heal",
}


def _visible(world: World) -> Log:
    """Return the log as a reader finds it: without what was deleted of it."""
    return world.log.rebuilt(world.log.slots[world.hidden :]) if world.hidden else world.log


def _reconciled(writer: Writer, seen: Log, end: int) -> Writer:
    done = tuple(
        (slot.upload.generation, number)
        for number, slot in enumerate(seen.slots)
        if slot.kind == "commit" and slot.upload in seen.live and slot.upload is not None
    )
    finished = {one for one, _ in done}
    plans = tuple(one for one in writer.plans if one.generation not in finished)
    lost = frozenset(one for one in writer.plans if one.generation in finished and one not in seen.live)
    return writer._replace(done=done, seen=end - 1, plans=plans, given_up=writer.given_up | lost)


def _term(world: World, index: int, writer: Writer, scenario: Scenario) -> Iterator[Step]:
    """Hold the term, claim one, or stay out."""
    seen = world.log.upto(writer.known)
    blind = "claim-without-lineage" in scenario.weak
    found = standing(seen, writer.held, writer.attempt, writer.line, blind=blind)
    if found is Standing.HOLDS and writer.held is not None:
        yield "holds", put(world, index, _only_of(writer, writer.held.term)._replace(at="plan"))
    elif found is Standing.MAY_CLAIM:
        term = (seen.state.term if seen.state else 0) + 1
        kind = "reclaim" if writer.held is not None and writer.held.line == writer.line and seen.state else "claim"
        yield kind, put(world, index, _offering(writer, kind, term, None))
    else:
        yield str(found), put(world, index, _out(writer))


def _out(writer: Writer) -> Writer:
    return writer.crashed()._replace(held=writer.held._replace(fenced=True) if writer.held else None)


def _only_of(writer: Writer, term: int) -> Writer:
    kept = tuple(one for one in writer.plans if one.term == term)
    return writer._replace(plans=kept, given_up=writer.given_up | (set(writer.plans) - set(kept)))


def _offering(writer: Writer, kind: str, term: int, upload: Upload | None) -> Writer:
    nonce = f"{writer.name}{writer.drawn:015x}"
    slot = Slot(kind, term, writer.attempt, writer.line, nonce, upload)
    return writer._replace(at="create", pending=slot, again=False, drawn=writer.drawn + 1)


def _create(world: World, index: int, writer: Writer, scenario: Scenario) -> Iterator[Step]:
    """Ask for the next slot; the reply tells nothing, so that only whether it arrived matters."""
    assert writer.pending is not None
    asked = put(world, index, writer._replace(at="look"))
    yield "create", created(asked, writer.known, writer.pending, scenario)
    if world.budget.losses and len(world.log) == writer.known:
        asked = asked._replace(budget=world.budget._replace(losses=world.budget.losses - 1))
        yield "create lost", asked
        yield "create late", asked._replace(flying=world.flying | {(writer.known, writer.pending)})


def _look(world: World, index: int, writer: Writer, scenario: Scenario) -> Iterator[Step]:
    """Read the slot back: our own bytes, another's, or nothing."""
    pending = writer.pending
    assert pending is not None
    if len(world.log) <= writer.known:
        if writer.again:
            yield "gives up", put(world, index, writer.crashed())
        else:
            yield "offers again", put(world, index, writer._replace(at="create", again=True))
    elif world.log.slots[writer.known] == pending or "no-nonce-check" in scenario.weak:
        won = {"claim": "hold", "reclaim": "hold", "commit": "record", "retire": "prune", "hurt": "commit"}[
            pending.kind
        ]
        yield "won", put(world, index, writer._replace(at=won, known=writer.known + 1))
    else:
        anew = {
            "claim": "read:pass",
            "reclaim": "read:pass",
            "commit": "read:commit",
            "retire": "read:prune",
            "hurt": "read:commit",
        }[pending.kind]
        yield "lost", put(world, index, writer._replace(at=anew, pending=None))


def _hold(world: World, index: int, writer: Writer, _scenario: Scenario) -> Iterator[Step]:
    slot = writer.pending
    assert slot is not None
    held = _only_of(writer._replace(held=Held(slot.term, slot.nonce, writer.line), pending=None), slot.term)
    yield "hold", put(world, index, held._replace(at="plan"))


def _plan(world: World, index: int, writer: Writer, scenario: Scenario) -> Iterator[Step]:
    """Journal what goes up next, the newest first; what is under way is resumed."""
    seen = world.log.upto(writer.known)
    live = {one.generation for one in seen.live}
    wanted = [one for one in sorted(writer.local, reverse=True) if one not in live]
    resumed = [one for one in writer.plans if one.generation in wanted]
    if not wanted or writer.held is None:
        yield "nothing", put(world, index, writer.crashed())
        return
    upload = resumed[0] if resumed else Upload(wanted[0], writer.held.term, f"{writer.name}{writer.drawn:015x}")
    first = "manifest" if "manifest-first" in scenario.weak else "data"
    there = bool(resumed) and "manifest-first" in scenario.weak and (upload, "manifest") in world.objects
    plans = writer.plans if resumed else (*writer.plans, upload)
    drawn = writer.drawn + (not resumed)
    at = "commit" if there else first
    yield "plan", put(world, index, writer._replace(at=at, upload=upload, plans=plans, drawn=drawn))


def _heal(world: World, index: int, writer: Writer, scenario: Scenario) -> Iterator[Step]:
    """Send a good copy under a new nonce; only when it is there is the hurt one taken back."""
    seen = world.log.upto(writer.known)
    blind = "claim-without-lineage" in scenario.weak
    holds = standing(seen, writer.held, writer.attempt, writer.line, blind=blind) is Standing.HOLDS
    hurt = sorted(one for one in seen.live & world.hurt if one.generation in writer.local)
    if not holds or not hurt or writer.held is None:
        yield "nothing to repair", put(world, index, writer.crashed())
        return
    upload = Upload(hurt[0].generation, writer.held.term, f"{writer.name}{writer.drawn:015x}")
    after = writer._replace(upload=upload, heals=hurt[0], plans=(*writer.plans, upload), drawn=writer.drawn + 1)
    yield "heal", put(world, index, after._replace(at="data"))


def _data(world: World, index: int, writer: Writer, scenario: Scenario) -> Iterator[Step]:
    """Send the bytes and prove them; a store may keep others of the same size."""
    upload = writer.upload
    assert upload is not None
    after = put(world, index, writer._replace(at="commit" if "manifest-first" in scenario.weak else "manifest"))
    good = (world.objects - {(upload, "bad")}) | {(upload, "data")}
    if (upload, "data") in world.objects:
        yield "there", after
        return
    yield "data", after._replace(objects=good)
    if world.budget.rot:
        left = world.budget._replace(rot=world.budget.rot - 1)
        bad = after if "size-only" in scenario.weak else world
        yield "rotten data", bad._replace(objects=world.objects | {(upload, "bad")}, budget=left)
    if world.budget.losses:
        left = world.budget._replace(losses=world.budget.losses - 1)
        yield "data, reply lost", put(world, index, writer.crashed())._replace(objects=good, budget=left)


def _manifest(world: World, index: int, writer: Writer, scenario: Scenario) -> Iterator[Step]:
    assert writer.upload is not None
    at = "data" if "manifest-first" in scenario.weak else "commit"
    after = put(world, index, writer._replace(at=at))
    yield "manifest", after._replace(objects=world.objects | {(writer.upload, "manifest")})


def _commit(world: World, index: int, writer: Writer, scenario: Scenario) -> Iterator[Step]:
    """Decide by the log as it was last read; what another has committed meanwhile is acknowledged."""
    seen = world.log.upto(writer.known)
    assert writer.upload is not None
    healing = writer.heals in seen.live
    if not healing and any(one.generation == writer.upload.generation for one in seen.live):
        yield "already", put(world, index, writer._replace(at="record", pending=None))
        return
    blind = "claim-without-lineage" in scenario.weak
    found = standing(seen, writer.held, writer.attempt, writer.line, blind=blind)
    if found is Standing.HOLDS and writer.held is not None and healing:
        yield "take back", put(world, index, _offering(writer, "hurt", writer.held.term, writer.heals))
    elif found is Standing.HOLDS and writer.held is not None:
        yield "commit", put(world, index, _offering(writer, "commit", writer.held.term, writer.upload))
    elif found is Standing.MAY_CLAIM:
        yield "term lost", put(world, index, writer.crashed())
    else:
        yield str(found), put(world, index, _out(writer))


def _record(world: World, index: int, writer: Writer, _scenario: Scenario) -> Iterator[Step]:
    """Tell the tracker, and the caller."""
    upload = writer.upload
    assert upload is not None
    seen = world.log.upto(writer.known)
    number = next(
        (n for n, slot in enumerate(seen.slots) if slot.kind == "commit" and slot.upload == upload), writer.known - 1
    )
    told = [
        slot
        for slot in seen.slots
        if slot.kind == "commit" and slot.upload and slot.upload.generation == upload.generation
    ]
    nonce = told[-1].nonce if told else writer.pending.nonce if writer.pending else ""
    number = seen.slots.index(told[-1]) if told else number
    after = _reconciled(writer, seen, writer.known)
    given = after.given_up if upload in seen.live else after.given_up | {upload}
    plans = tuple(one for one in after.plans if one != upload)
    after = after._replace(plans=plans, given_up=given).crashed()
    yield "ack", put(world, index, after)._replace(acks=world.acks | {(upload.generation, number, nonce)})


def _prune(world: World, index: int, writer: Writer, scenario: Scenario) -> Iterator[Step]:
    """Retire what the policy lets go, decided for each slot anew."""
    seen = world.log.upto(writer.known)
    going = leaving(seen, scenario.keep_last)
    blind = "claim-without-lineage" in scenario.weak
    holds = standing(seen, writer.held, writer.attempt, writer.line, blind=blind) is Standing.HOLDS
    if not going or not holds or writer.held is None:
        yield "pruned", put(world, index, writer.crashed())
        return
    upload = next(one for one in seen.live if one.generation == going[0])
    yield "retire", put(world, index, _offering(writer, "retire", writer.held.term, upload))


def _sweep(world: World, index: int, writer: Writer, _scenario: Scenario) -> Iterator[Step]:
    """Delete what was retired long enough ago, the manifest first."""
    seen = world.log.upto(writer.known)
    for number, slot in enumerate(seen.slots[: world.due]):
        upload = slot.upload
        if slot.kind != "retire" or upload is None or upload in seen.live:
            continue
        for what in ("manifest", "data", "bad"):
            if (upload, what) in world.objects:
                yield f"delete {what} of {number}", world._replace(objects=world.objects - {(upload, what)})
                return
    yield "swept", put(world, index, writer.crashed())


def _list(world: World, index: int, writer: Writer, _scenario: Scenario) -> Iterator[Step]:
    yield "list", put(world, index, writer._replace(at="judge", listed=frozenset(one for one, _ in world.objects)))


def _judge(world: World, index: int, writer: Writer, scenario: Scenario) -> Iterator[Step]:
    """Read the log after the listing, and let the product say what belongs to nobody."""
    seen = _visible(world)
    mine = _reconciled(writer._replace(known=len(world.log)), seen, len(world.log))
    old = "age-only-gc" in scenario.weak
    found = _orphans(seen, mine.listed, mine.given_up, frozenset(mine.plans), old=old)
    yield "judge", put(world, index, mine._replace(at="delete", listed=found))


@cache
def _orphans(
    log: Log, listed: frozenset[Upload], given_up: frozenset[Upload], under_way: frozenset[Upload], *, old: bool
) -> frozenset[Upload]:
    if old:
        named = {slot.upload for slot in log.slots}
        return frozenset(one for one in listed if one not in named and one not in under_way)
    found = []
    for one in listed:
        prefix = REMOTE.prefix_of(one.prefix)
        assert prefix is not None
        found.append(Found(prefix=prefix, objects=1, total_bytes=1, newest=None))
    known = Knowledge(
        given_up={one.prefix: "" for one in given_up}, under_way=frozenset(one.prefix for one in under_way)
    )
    orphans = {one.found.prefix.text for one in plan_orphans(found, 0, view_of(log), known).orphans}
    return frozenset(one for one in listed if one.prefix in orphans)


def _delete(world: World, index: int, writer: Writer, _scenario: Scenario) -> Iterator[Step]:
    for upload, what in sorted(world.objects):
        if upload in writer.listed:
            yield f"collect {what}", world._replace(objects=world.objects - {(upload, what)})
            return
    yield "collected", put(world, index, writer.crashed())


_QUIET = frozenset({"read", "term", "hold", "plan", "commit", "heal"})
_PROGRAM = {
    "idle": _idle,
    "read": _read,
    "term": _term,
    "create": _create,
    "look": _look,
    "hold": _hold,
    "plan": _plan,
    "heal": _heal,
    "data": _data,
    "manifest": _manifest,
    "commit": _commit,
    "record": _record,
    "prune": _prune,
    "sweep": _sweep,
    "list": _list,
    "judge": _judge,
    "delete": _delete,
}
