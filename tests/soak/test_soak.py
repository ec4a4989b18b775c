"""The soak's own verdicts, and a short soak with every fault."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from soak import command
from soak.faults import FAULTS, Tools, fired
from soak.soaking import Soak, report_of, soaking
from soak.verdicts import HarnessError, ProductError, Verdict, judge, total
from soak.world import World

from replicate.errors import CkptierError, Fenced
from tiers.bodies import BytesBody
from tiers.protocol import Key

PASSED, FAILED, ABORTED, INCONCLUSIVE = Verdict


@pytest.fixture(scope="module")
def short() -> Iterator[Soak]:
    """Return a soak on a volume, with every fault once."""
    with soaking(seed=11, wanted=["volume"]) as soak:
        for _ in FAULTS:
            soak.round()
        yield soak


def test_every_fault_once_and_everything_holds(short: Soak) -> None:
    """Every one of them really happens, and each round compares bit for bit."""
    rounds = [one for one in short.rounds if one.number <= len(FAULTS)]
    assert [(one.fault, one.detail) for one in rounds if one.verdict is not PASSED] == []
    assert Counter(one.fault for one in rounds) == dict.fromkeys(FAULTS, 1)
    report = report_of(short, 1.0)
    assert report.figures["checks of I11"] >= len(FAULTS)
    for name in ("I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10"):
        assert report.figures[f"checks of {name}"] >= len(FAULTS), name


def test_the_same_seed_does_the_same(short: Soak, tmp_path: Path) -> None:
    again = Soak(tmp_path, short.tools, short.opened, seed=short.seed)
    dealt = [(again._deal("place", sorted(short.opened)), again._deal("fault", sorted(FAULTS))) for _ in FAULTS]
    assert dealt[0][1] == short.rounds[0].fault
    other = Soak(tmp_path, short.tools, short.opened, seed=short.seed + 1)
    assert [other._deal("fault", sorted(FAULTS)) for _ in FAULTS] != [fault for _, fault in dealt]


def nothing(_world: World, _tools: Tools) -> None:
    fired(happened=False, what="it was not reached")


def broken(_world: World, _tools: Tools) -> None:
    raise HarnessError("the server did not start")


def defect(_world: World, _tools: Tools) -> None:
    raise KeyError("a mistake in the harness")


def refusing(_world: World, _tools: Tools) -> None:
    raise Fenced("ckptier refuses what it should do")


def losing(world: World, _tools: Tools) -> None:
    """Lose the last byte of a committed object for good, as a store does that lies."""
    rotten(world, lambda data: data[:-1])


def rotten(world: World, change: "object") -> None:
    key = next(key for key in sorted(world.stored()) if key.endswith("model.bin"))
    with world.place.raw() as tier:
        data = world.stored()[key]
        tier.delete(Key(key))
        tier.put(Key(key), BytesBody(change(data)))  # type: ignore[operator]


def rewriting(world: World, _tools: Tools) -> None:
    """Change an entry of the log, with its own digest right."""
    with world.place.raw() as tier:
        key = next(key for key in sorted(world.stored()) if "/log/" in key)
        line = world.stored()[key].split(b"\n")[0].replace(b'"attempt":1', b'"attempt":7')
        tier.delete(Key(key))
        tier.put(Key(key), BytesBody(line + b"\n" + hashlib.sha256(line).hexdigest().encode() + b"\n"))


def deleting(world: World, _tools: Tools) -> None:
    with world.place.raw() as tier:
        tier.delete(Key(world.live[world.newest()].manifest_key))


def trespassing(world: World, _tools: Tools) -> None:
    with world.place.raw() as tier:
        tier.delete(Key("not-ours/keep.bin"))


def forgetting(world: World, _tools: Tools) -> None:
    """Claim that something is replicated which is not."""
    world.auditor.acknowledge("a0009-g000009-u000000000009-00000000")


CONTROLS = [
    (nothing, INCONCLUSIVE, "not reached"),
    (broken, ABORTED, "did not start"),
    (defect, ABORTED, "mistake"),
    (refusing, FAILED, "Fenced"),
    (losing, FAILED, "I1"),
    (rewriting, FAILED, "I2"),
    (deleting, FAILED, "I1"),
    (trespassing, FAILED, "I9"),
    (forgetting, FAILED, "I5"),
]


@pytest.mark.parametrize(("inject", "verdict", "word"), CONTROLS, ids=[each[0].__name__ for each in CONTROLS])
def test_a_round_is_judged_by_what_happened(short: Soak, inject: "object", verdict: Verdict, word: str) -> None:
    """A harness that loses a byte fails, one that does not happen proves nothing, its own trouble is none of ours."""
    made = short.round({"control": inject})  # type: ignore[dict-item]
    assert (made.verdict, word in made.detail) == (verdict, True), made.detail
    after = short.round({"none": lambda _world, _tools: None})
    assert after.verdict is PASSED, "the next round begins anew"


@pytest.mark.parametrize(
    ("verdicts", "trouble", "expected"),
    [
        ([], "", INCONCLUSIVE),
        ([PASSED], "", PASSED),
        ([PASSED, INCONCLUSIVE], "", INCONCLUSIVE),
        ([PASSED, INCONCLUSIVE, ABORTED], "", ABORTED),
        ([PASSED, ABORTED, FAILED, INCONCLUSIVE], "", FAILED),
        ([PASSED], "a process was left behind", ABORTED),
        ([FAILED], "a process was left behind", FAILED),
    ],
)
def test_the_worst_counts(verdicts: list[Verdict], trouble: str, expected: Verdict) -> None:
    assert total(verdicts, trouble=trouble) is expected


def test_each_verdict_has_its_exit_code() -> None:
    assert [verdict.exit_code for verdict in (PASSED, FAILED, ABORTED, INCONCLUSIVE)] == [0, 1, 2, 3]
    assert total([PASSED], failures=["the long form"]) is FAILED
    assert judge(ProductError("x"))[0] is FAILED
    assert judge(CkptierError("x"))[0] is ABORTED, "unless it is said to be the product's"
    assert judge(None)[0] is PASSED


def test_the_command_reports_and_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.json"
    places = sorted(Path("/dev/shm").glob("ckptier-soak-*")) if Path("/dev/shm").is_dir() else []
    children = {child.pid for child in psutil.Process().children(recursive=True)}
    code = command.main(
        f"--rounds 2 --seed 5 --places emulator --faults lost-reply,stale-head --json --report {report}".split()
    )
    out = capsys.readouterr().out
    document = json.loads(report.read_text())
    assert json.loads(out) == document
    assert (code, document["verdict"], document["seed"]) == (0, "passed", 5), document
    assert document["fired"] == {"lost-reply": 1, "stale-head": 1}
    assert {one["place"] for one in document["rounds"]} == {"emulator"}
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= children
    if Path("/dev/shm").is_dir():
        assert sorted(Path("/dev/shm").glob("ckptier-soak-*")) == places


def test_no_time_makes_no_round_and_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--seconds", "0", "--places", "volume"]) == INCONCLUSIVE.exit_code
    assert capsys.readouterr().out.startswith("inconclusive: 0 rounds, seed ")


def test_what_is_unknown_is_a_mistake_of_the_caller(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        command.main(["--faults", "meteorite"])
    assert leaving.value.code == 2
    assert "meteorite" in capsys.readouterr().err


def test_the_script_is_what_is_tested() -> None:
    root = Path(__file__).parents[2]
    assert "-m soak.command" in (root / "scripts" / "soak").read_text()
