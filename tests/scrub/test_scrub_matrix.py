"""Every kind of stored thing, and everything that can be done to it: nothing wrong is restored, and all of it is found.

A cell that ``verify`` does not call hurt has to be in the list of those that hurt nothing, with the reason.
"""

import re
from collections import Counter
from pathlib import Path

import pytest
from scrub.judge import notes, restored, told, verified
from scrub.scene import Cell, Scene, cells, rolled_back, scene
from support.commits import LEAF
from support.figures import figure

from replicate.errors import TrustFailure
from tiers.memory import MemoryTier

FLOOR = 320
"""As many cells at least: a change of the code that makes them must not take any away unseen."""
HARMLESS = (
    (r"head: ", "head", "a hint: whoever reads it looks for itself"),
    (r"(manifest|object)/\w+(/.*)?: copied beside", "stray", "no manifest names it, so nobody reads it"),
    (r"(manifest|object)/\w+(/.*)?: copied under another prefix", "uncommitted", "no commit names it"),
    (r"log/newest: delete", "head", "a log that lost its end is an older log; the hint betrays it"),
)
"""What hurts nothing: which cells, the note that tells of it where one is due, and why."""
FEW = re.compile(
    r"(head|log/(newest|pin)): (flip byte 0|delete|an older|of a slot)"
    r"|log/base: (?!flip byte [1-9]|zeros|halve|flip all)"
)
"""Of a log that is long."""
UNNOTED = re.compile(r"head: (an older one|truncate by one|extend by a newline)")
"""A hint that is behind is as it should be, and so is one that lacks an end of line."""
CLOSED = {
    "log/claim: bytes of another run of this name": "the first claim says whose log it is, until a commit does",
}
"""Where nothing can be restored, although something is left: whose it is cannot be told."""


def kind_of(cell: Cell) -> str:
    return re.sub(r"/.*", "", cell.role)


def all_cells(*, folded: bool) -> list[Cell]:
    found = list(cells(scene(folded=folded), scene(folded=folded, foreign=True)))
    return [cell for cell in found if not folded or FEW.match(str(cell))]


PLAIN, FOLDED = all_cells(folded=False), all_cells(folded=True)
ROLES = sorted({(cell.role, False) for cell in PLAIN} | {(cell.role, True) for cell in FOLDED})


@pytest.mark.parametrize(("role", "folded"), ROLES, ids=str)
def test_nothing_that_is_done_to_a_stored_thing_goes_unseen(room: Path, role: str, folded: bool) -> None:
    of = scene(folded=folded)
    for number, cell in enumerate(cell for cell in (FOLDED if folded else PLAIN) if cell.role == role):
        objects = of.pristine()
        cell.apply(objects)
        check(of, cell, of.tier(objects), room / str(number))


def check(of: Scene, cell: Cell, tier: MemoryTier, to: Path) -> None:
    back = restored([tier], to, of.made)
    found = verified([tier], to.parent)
    (report,) = found.reports
    harmless = next((line for line in HARMLESS if re.match(line[0], str(cell))), None)
    if harmless is None:
        assert report.hurt, f"{cell}: not found"
        assert named(of, cell) & words(told(found)), f"{cell}: what is hurt is not named in {told(found)}"
    else:
        assert not report.hurt, f"{cell}: {told(found)}"
        if not UNNOTED.match(str(cell)):
            assert f"{harmless[1]}: " in notes(found), f"{cell}: {notes(found)}"
    if back.generation != of.newest.id and harmless is None:
        assert named(of, cell) & words(back.told), f"{cell}: passed over in silence: {back.told}"
    assert (back.generation is None) == (str(cell) in CLOSED), f"{cell}: something older was good: {back.told}"
    assert found.works == report.works == back.generation, f"{cell}: verify says {found.works}, restore: {back.told}"
    assert report.newest_intact == back.generation, f"{cell}: {report.newest_intact} is called intact"


def words(text: str) -> set[str]:
    return set(re.findall(r"a\d{4}-g\d{6}-u\d{12}-[0-9a-f]{8}|slot \d+", text))


def named(of: Scene, cell: Cell) -> set[str]:
    """Return what may be named for a cell: the generation, or the slots in question."""
    if cell.role.startswith("log/"):
        return {f"slot {slot}" for slot in range(of.slots + 5)}
    return {str(made.id) for made in of.made}


def test_the_matrix_does_not_shrink() -> None:
    count = Counter((kind_of(cell), re.sub(r"\d+", "N", cell.operation)) for cell in [*PLAIN, *FOLDED])
    total = sum(count.values())
    kinds = Counter(kind_of(cell) for cell in [*PLAIN, *FOLDED])
    figure("scrub: cells of stored thing and what is done to it", total, floor=FLOOR)
    assert set(kinds) == {"log", "manifest", "object", "head"}
    assert len({operation for _, operation in count}) >= 20
    assert {role for role, _ in ROLES} >= {
        *(f"log/{name}" for name in ("claim", "gone", "old", "retire", "pin", "mid", "newest", "base")),
        *(f"object/new/{path}" for path in ("model.bin", "big/shard 1.bin", "config.json", "empty")),
    }


@pytest.mark.parametrize("slots", [1, 2, 4, 6])
def test_a_whole_store_put_back_is_an_older_run(room: Path, slots: int) -> None:
    """Every byte of it is right: only who saw more of it can tell.  What is left is restored, and exact."""
    of = scene()
    tier = of.tier(rolled_back(of, slots))
    found = verified([tier], room)
    (report,) = found.reports
    assert not report.hurt
    back = restored([tier], room / "out", of.made)
    assert back.generation == found.works != of.newest.id


def test_a_leaf_is_named_with_its_bytes(room: Path) -> None:
    of = scene()
    objects = of.pristine()
    key = of.roles["object/new/big/shard 1.bin"]
    objects[key] = b"\0" * (LEAF + 1) + objects[key][LEAF + 1 :]
    found = verified([of.tier(objects)], room)
    assert told(found) == (
        f"{of.newest.id} hurt: big/shard 1.bin: leaves 0 to 1 (bytes 0 to 2048) are not what was sealed"
    )
    assert found.works == of.made[-2].id


def test_an_unrelated_run_is_refused_as_restore_refuses_it(room: Path) -> None:
    tiers = [scene().tier(scene().objects), scene(foreign=True).tier(scene(foreign=True).objects, "b")]
    found = verified(tiers, room)
    assert isinstance(found.refused, TrustFailure)
    assert found.works is None
    assert isinstance(restored(tiers, room / "out", scene().made).refusal, TrustFailure)
