"""A run that is continued is the run that was never stopped; and the comparison can tell when it is not."""

import json
import random
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from replicate import RunStore
from replicate.demo.comparison import STAGES
from replicate.demo.model import Corpus
from replicate.demo.trainer import (
    Stage,
    State,
    Training,
    TrainingConfig,
    build,
    compare,
    final_state,
    first_difference,
    load,
    publish,
    resume,
    run,
    state_of,
)
from replicate.errors import ContractChanged

CONFIG = TrainingConfig(corpus_bytes=40_000, batch=8, warmup=3, horizon=20)


@pytest.fixture(autouse=True)
def _tidy_torch() -> Iterator[None]:
    """Leave torch and the global random sources as they were for other tests."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    sources = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002 - the global one is meant
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)
    random.setstate(sources[0])
    np.random.set_state(sources[1])  # noqa: NPY002
    torch.set_rng_state(sources[2])


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus.of_standard_library(CONFIG.corpus_bytes)


def trained(corpus: Corpus, updates: int) -> Training:
    training = build(CONFIG, corpus)
    for _ in range(updates):
        training.step()
    return training


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, corpus: Corpus) -> RunStore:
    """Publish one generation, of update 5; tests only read it, so it is validated once."""
    store = RunStore(tmp_path_factory.mktemp("store") / "demo")
    publish(store, trained(corpus, 5))
    return store


def test_two_uninterrupted_runs_are_bit_equal(corpus: Corpus) -> None:
    first = state_of(trained(corpus, 10))
    comparisons = compare(first, state_of(trained(corpus, 10)))
    assert first_difference(comparisons) is None
    assert {item.stage for item in comparisons} == set(STAGES)


def test_a_loss_goes_down(corpus: Corpus) -> None:
    """Real learning: bits that are equal because nothing moves would prove nothing."""
    training = build(CONFIG, corpus)
    losses = [training.step().loss for _ in range(20)]
    assert losses[-1] < losses[0] - 1


def test_resume_equals_uninterrupted(corpus: Corpus, store: RunStore) -> None:
    whole = build(CONFIG, corpus)
    expected = [whole.step() for _ in range(12)]
    end = state_of(whole)
    again = build(CONFIG, corpus)
    assert resume(store, again) is not None
    assert [again.step() for _ in range(7)] == expected[5:]
    assert first_difference(compare(end, state_of(again))) is None


def test_final_state_is_that_of_the_newest_generation(corpus: Corpus, store: RunStore) -> None:
    assert first_difference(compare(state_of(trained(corpus, 5)), final_state(store, CONFIG))) is None


def test_resume_in_an_empty_store_changes_nothing(corpus: Corpus, tmp_path: Path) -> None:
    training = build(CONFIG, corpus)
    before = state_of(training)
    assert resume(RunStore(tmp_path / "empty"), training) is None
    assert first_difference(compare(before, state_of(training))) is None


def test_without_optimizer_state_the_run_is_another(corpus: Corpus, store: RunStore) -> None:
    """The control: weights alone are a warm start, and one update later the weights differ."""
    again = build(CONFIG, corpus)
    resume(store, again)
    again.optimizer.state.clear()
    fresh = state_of(again)
    again.step()
    after = state_of(again)
    at_once = first_difference(compare(state_of(trained(corpus, 5)), fresh))
    assert at_once is not None
    assert at_once.stage is Stage.OPTIMIZER
    later = first_difference(compare(state_of(trained(corpus, 6)), after))
    assert later is not None
    assert later.stage is Stage.WEIGHTS


@pytest.mark.parametrize("source", ["torch", "python", "numpy", "noise"])
def test_each_random_source_matters(corpus: Corpus, store: RunStore, source: str) -> None:
    """A source that drew once more is found, and leads to other weights."""
    again = build(CONFIG, corpus)
    resume(store, again)
    draw: dict[str, Callable[[], object]] = {
        "torch": lambda: torch.rand(1),
        "python": random.random,
        "numpy": lambda: np.random.randint(2),  # noqa: NPY002 - the global source is meant
        "noise": lambda: torch.rand(1, generator=again.noise),
    }
    draw[source]()
    at_once = state_of(again)
    again.step()
    after = state_of(again)
    found = [item for item in compare(state_of(trained(corpus, 5)), at_once) if not item.equal]
    assert [(item.stage, item.name) for item in found] == [(Stage.RNG, source)]
    later = first_difference(compare(state_of(trained(corpus, 6)), after))
    assert later is not None
    assert later.stage is Stage.WEIGHTS


def test_another_contract_is_refused(corpus: Corpus, store: RunStore) -> None:
    other = build(TrainingConfig(corpus_bytes=40_000, batch=8, warmup=4, horizon=20), corpus)
    with pytest.raises(ContractChanged) as caught:
        resume(store, other)
    assert caught.value.keys == ("config",)


def test_run_publishes_at_multiples(corpus: Corpus, tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    store = RunStore(tmp_path / "demo")
    run(build(CONFIG, corpus), store, updates=7, save_every=3, emit=events.append)
    assert [event["next_update"] for event in events if event["event"] == "published"] == [3, 6]
    assert [event["update"] for event in events if event["event"] == "update"] == list(range(7))
    assert [held.id.next_update for held in store.generations()] == [6, 3]


def test_the_example_of_a_rehearsal_makes_the_update_that_training_makes(tmp_path: Path) -> None:
    """From fresh objects, twice, to the same bits as the run that went on."""
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "rehearse" / "demo_rehearsal.py"))
    training = build(TrainingConfig())
    training.step()
    generation = publish(RunStore(tmp_path / "demo"), training)
    random_before = training.rng_digest()
    step = training.step()
    seen = example["rehearse"](generation.files)
    assert (seen["loss"], seen["batch"], seen["lr"]) == (step.loss, step.batch, step.learning_rate)
    assert seen["updated_weights"] == example["digest"](training) != seen["weights"]
    assert seen["rng"] == random_before
    assert seen["clocks"]["next_update"] == 1
    assert example["rehearse"](generation.files) == seen
    assert json.loads(json.dumps(seen)) == seen


def flat(**stages: dict[str, Any]) -> State:
    return {stage.value: stages.get(stage.name.lower(), {}) for stage in Stage}


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (torch.tensor([0.0]), torch.tensor([-0.0]), False),
        (torch.tensor([float("nan")]), torch.tensor([float("nan")]), True),
        (torch.tensor(1.0), torch.tensor(1.0), True),
        (torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64), False),
        (torch.tensor([1.0]), torch.tensor([[1.0]]), False),
        (torch.tensor([True, False]), torch.tensor([True, True]), False),
        (torch.empty(0), torch.empty(0), True),
    ],
)
def test_tensors_are_compared_by_their_bits(a: torch.Tensor, b: torch.Tensor, equal: bool) -> None:
    (found,) = compare(flat(weights={"w": a}), flat(weights={"w": b}))
    assert found.equal is equal
    assert bool(found.detail) is not equal


def test_what_only_one_side_has_is_a_difference() -> None:
    found = compare(flat(contract={"data": "x"}), flat(clocks={"next_update": 3}))
    assert [(item.stage, item.name, item.detail) for item in found] == [
        (Stage.CONTRACT, "data", "only in the first"),
        (Stage.CLOCKS, "next_update", "only in the second"),
    ]


def trainer(store: Path, *options: object) -> list[str]:
    options = ("--store", store, "--updates", 8, "--save-every", 3, *options)
    return [sys.executable, "-m", "replicate.demo.trainer", *map(str, options)]


@pytest.mark.slow
def test_a_process_killed_in_mid_update_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """Gradients exist, weights are still old, and there is no second chance: SIGKILL."""
    store = tmp_path / "demo"
    with subprocess.Popen(
        trainer(store, "--pause-in-update", 5), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        events = []
        for line in process.stdout:
            events.append(json.loads(line))
            if events[-1]["event"] == "mid-update":
                process.kill()
    assert process.returncode == -signal.SIGKILL
    assert events[-1] == {"event": "mid-update", "update": 5}
    dumped = tmp_path / "state.pt"
    done = subprocess.run(trainer(store, "--dump", dumped), check=True, capture_output=True, text=True)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert told[0]["event"] == "resumed"
    assert told[0]["next_update"] == 3
    assert told[-1] == {"event": "done", "next_update": 8}

    whole = build(TrainingConfig())
    losses = [whole.step().loss.hex() for _ in range(8)]
    assert [event["loss"] for event in told if event["event"] == "update"] == losses[3:]
    assert first_difference(compare(state_of(whole), load(dumped))) is None


@pytest.mark.slow
def test_a_signal_publishes_and_ends(tmp_path: Path) -> None:
    """At SIGTERM the update under way is finished and sealed, whatever --save-every says."""
    command = trainer(tmp_path / "demo", "--stop-at-signal", "--pause-in-update", 1)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        for line in process.stdout:
            if json.loads(line)["event"] == "mid-update":
                break
        process.send_signal(signal.SIGTERM)
        process.stdin.write("\n")
        process.stdin.flush()
        told = [json.loads(line) for line in process.stdout]
    assert process.returncode == 143
    assert told[-1] == {"event": "stopped", "next_update": 2}
    assert [held.id.next_update for held in RunStore(tmp_path / "demo").generations()] == [2]
