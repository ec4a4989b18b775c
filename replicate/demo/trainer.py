"""The process that is killed: trains, publishes, resumes, and says what it did, one JSON object a line.

    python -m replicate.demo.trainer --store runs/demo --updates 40 --save-every 10

It continues from the store's newest generation if there is one, and starts fresh if not.
``--pause-in-update U`` stops between backward and the optimizer of update U and waits for
a line on stdin, so that a parent can kill it exactly there.
"""

import argparse
import json
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from replicate import RunStore
from replicate.demo.comparison import Comparison, Stage, State, compare, dump, first_difference, load, state_of
from replicate.demo.training import Step, Training, TrainingConfig, build
from replicate.errors import CkptierError, ExitCode
from replicate.generation.local import LocalGeneration
from replicate.integrations import torch as torch_state
from replicate.integrations.torch import TrainingState
from tiers.clock import Clock, SystemClock

__all__ = [
    "Comparison",
    "Stage",
    "State",
    "Step",
    "Training",
    "TrainingConfig",
    "build",
    "compare",
    "dump",
    "final_state",
    "first_difference",
    "load",
    "main",
    "publish",
    "resume",
    "run",
    "state_of",
]

Emit = Callable[[dict[str, Any]], None]


def publish(store: RunStore, training: Training) -> LocalGeneration:
    """Seal the training's state as a generation; loading it for validation is left to who uses it first."""
    state = _restart_state(training)
    publication = store.publish(
        next_update=state.next_update,
        tokens_seen=state.tokens_seen,
        contract=training.contract,
        payload="torch",
        validate=False,
    )
    with publication as directory:
        torch_state.save_payload(directory, torch_state.capture(state))
    return cast("LocalGeneration", publication.generation)


def resume(store: RunStore, training: Training) -> LocalGeneration | None:
    """Restore the newest usable generation into fresh objects; None, and nothing changed, where there is none."""
    if not store.generations():
        return None
    found = store.resume(contract=training.contract)
    restored = torch_state.restore(_restart_state(training), torch_state.load(found))
    training.next_update = restored.next_update
    training.tokens_seen = restored.tokens_seen or 0
    training.loss = float.fromhex(restored.extra["loss"])
    return found


def _restart_state(training: Training) -> TrainingState:
    """Name every input of the next update; the position in the data is ``next_update`` itself."""
    return TrainingState(
        model=training.model,
        optimizer=training.optimizer,
        scheduler=training.schedule,
        generators={"noise": training.noise},
        next_update=training.next_update,
        tokens_seen=training.tokens_seen,
        extra={"loss": training.loss.hex()},
    )


def final_state(store: RunStore, config: TrainingConfig) -> State:
    """Return the state that a restart from the store would begin with, from freshly built objects."""
    training = build(config)
    resume(store, training)
    return state_of(training)


def run(
    training: Training,
    store: RunStore,
    *,
    updates: int,
    save_every: int,
    emit: Emit,
    pause_in_update: int | None = None,
    stop: threading.Event | None = None,
    clock: Clock | None = None,
) -> None:
    """Train until ``next_update`` is ``updates``, publishing at every multiple of ``save_every``, or until ``stop``."""
    clock = clock or SystemClock()
    while training.next_update < updates:
        pausing = training.next_update == pause_in_update
        step = training.step(_pause(training, emit) if pausing else None)
        emit(_told(step))
        stopping = stop is not None and stop.is_set()
        if training.next_update % save_every == 0 or stopping:
            started = clock.monotonic()
            sealed = publish(store, training)
            milliseconds = round((clock.monotonic() - started) * 1000)
            emit(
                {
                    "event": "published",
                    "generation": str(sealed.id),
                    "next_update": training.next_update,
                    "milliseconds": milliseconds,
                }
            )
        if stopping:
            return


def _told(step: Step) -> dict[str, Any]:
    return {
        "event": "update",
        "update": step.update,
        "loss": step.loss.hex(),
        "lr": step.learning_rate.hex(),
        "batch": step.batch,
        "rng": step.rng,
    }


def _pause(training: Training, emit: Emit) -> Callable[[], None]:
    def pause() -> None:
        emit({"event": "mid-update", "update": training.next_update})
        sys.stdin.readline()

    return pause


def _print(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m replicate.demo.trainer", description=__doc__)
    parser.add_argument("--store", type=Path, required=True, metavar="PATH", help="folder of the run")
    parser.add_argument("--updates", type=int, required=True, metavar="N", help="train until update N")
    parser.add_argument("--save-every", type=int, required=True, metavar="K", help="publish every K updates")
    parser.add_argument("--stop-at-signal", action="store_true", help="publish and exit 143 at SIGTERM")
    parser.add_argument("--pause-in-update", type=int, metavar="U", help="wait on stdin in the middle of update U")
    parser.add_argument("--dump", type=Path, metavar="PATH", help="write the final state for a comparison")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the trainer; returns an exit code as ckptier does."""
    arguments = _arguments(argv)
    stop = threading.Event()
    if arguments.stop_at_signal:
        signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    try:
        store = RunStore(arguments.store)
        training = build(TrainingConfig())
        found = resume(store, training)
        _print(
            {
                "event": "resumed" if found else "fresh",
                "generation": str(found.id) if found else None,
                "next_update": training.next_update,
            }
        )
        run(
            training,
            store,
            updates=arguments.updates,
            save_every=arguments.save_every,
            emit=_print,
            pause_in_update=arguments.pause_in_update,
            stop=stop,
        )
    except CkptierError as error:
        sys.stderr.write(f"error: {error.message}\n{error.hint}\n")
        return error.exit_code
    if arguments.dump:
        dump(state_of(training), arguments.dump)
    _print({"event": "stopped" if stop.is_set() else "done", "next_update": training.next_update})
    return ExitCode.TERMINATED if stop.is_set() else ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
