"""What the demonstration proves, and the controls that show that the proof can fail."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replicate import RunStore
from replicate.demo.comparison import STAGES, Comparison, Stage, State, compare, first_difference, state_of
from replicate.demo.stage import DemoFailed, Machine, Remote
from replicate.demo.trainer import resume
from replicate.demo.training import TrainingConfig, build
from replicate.engine import Replicator
from replicate.layout import GenerationId
from replicate.restore import RestoreRequest
from tiers.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """One stage of the proof: how many things were compared, and the first that differed."""

    compared: str
    items: int
    equal: bool
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A negative control: what was done to make the proof fail, and whether it was noticed."""

    name: str
    noticed: bool
    detail: str


def prove_state(reference: State, continued: State) -> list[Proved]:
    """Compare the final states of the uninterrupted and the interrupted run, in causal order."""
    comparisons = compare(reference, continued)
    return [_stage(stage, [item for item in comparisons if item.stage is stage]) for stage in STAGES]


def _stage(stage: Stage, items: list[Comparison]) -> Proved:
    wrong = [item for item in items if not item.equal]
    detail = f"{wrong[0].name}: {wrong[0].detail}" if wrong else ""
    return Proved(compared=f"final {stage}", items=len(items), equal=bool(items) and not wrong, detail=detail)


def prove_updates(reference: list[dict[str, Any]], continued: list[dict[str, Any]], resumed_at: int) -> list[Proved]:
    """Compare what every update after the restart did with what it did in the uninterrupted run."""
    ours = {line["update"]: line for line in continued if line["event"] == "update"}
    theirs = {line["update"]: line for line in reference if line["event"] == "update" and line["update"] >= resumed_at}
    found = []
    for key, words in (("batch", "batch"), ("loss", "loss"), ("lr", "learning rate"), ("rng", "random draws")):
        wrong = [update for update in theirs if update not in ours or ours[update][key] != theirs[update][key]]
        detail = f"update {wrong[0]}" if wrong else ""
        equal = bool(theirs) and not wrong and ours.keys() == theirs.keys()
        found.append(
            Proved(compared=f"{words} of each update from {resumed_at}", items=len(theirs), equal=equal, detail=detail)
        )
    return found


def control_without_optimizer(store: Path, reference: State, updates: int) -> Control:
    """Continue from the same generation with a fresh optimizer: the comparison has to fail there."""
    training = build(TrainingConfig())
    resume(RunStore(store), training)
    training.optimizer.state.clear()
    while training.next_update < updates:
        training.step()
    difference = first_difference(compare(reference, state_of(training)))
    detail = f"{difference.stage}: {difference.name}: {difference.detail}" if difference else "no difference was seen"
    return Control(name="without the optimizer state", noticed=difference is not None, detail=detail)


def control_flipped_byte(machine: Machine, remote: Remote, clock: Clock) -> Control:
    """Flip one byte of the newest generation on the volume: a restore has to take the one before, and say why."""
    newest, before = _newest_two(machine.engine(clock))
    flipped = flip_byte(remote.volume, newest)
    report = machine.engine(clock).restore(RestoreRequest())
    reasons = [skip.reason for skip in report.skipped if skip.generation == newest]
    noticed = report.fell_back and report.generation == before and bool(reasons)
    detail = f"byte {flipped[1]} of {flipped[0].name} in {newest}; restored {report.generation}: {'; '.join(reasons)}"
    return Control(name="one flipped byte in the newest remote generation", noticed=noticed, detail=detail)


def flip_byte(volume: Path, generation: GenerationId) -> tuple[Path, int]:
    """Flip the lowest bit in the middle of the generation's largest file; returns where."""
    files = [path for path in volume.rglob("*") if path.is_file() and f"/{generation}.t" in str(path)]
    victim = max((path for path in files if "/files/" in str(path)), key=lambda path: path.stat().st_size)
    position = victim.stat().st_size // 2
    with victim.open("r+b") as stream:
        stream.seek(position)
        (value,) = stream.read(1)
        stream.seek(position)
        stream.write(bytes([value ^ 1]))
    return victim, position


def _newest_two(engine: Replicator) -> tuple[GenerationId, GenerationId]:
    listed, _ = engine.list_generations()
    if len(listed) < 2:  # noqa: PLR2004 - one to damage and one to fall back to
        raise DemoFailed("the volume holds fewer than two generations")
    return listed[0].generation, listed[1].generation
