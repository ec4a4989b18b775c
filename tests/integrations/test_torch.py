"""Restart state of a torch training: what is captured is all that the next update depends on."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from replicate import RunStore
from replicate.errors import CapabilityMissing, IntegrityFailure, UsageError
from replicate.generation.evidence import Level
from replicate.integrations import randomness
from replicate.integrations.torch import TrainingState, capture, contract_of, load, publish, restore, save_payload


class Sampler:
    """Walks through an epoch from a position, as a resumable loader does."""

    def __init__(self) -> None:
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


class Trainer:
    """A small training that draws from every source of randomness there is."""

    def __init__(self, seed: int = 9) -> None:
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - the legacy global one is among what has to be captured
        random.seed(seed)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5), torch.nn.Dropout(0.25), torch.nn.Linear(5, 2)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=20)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        self.loader = np.random.default_rng(seed)
        self.legacy = np.random.RandomState(seed)
        self.philox = np.random.Generator(np.random.Philox(seed))
        self.noise = torch.Generator().manual_seed(seed)
        self.augment = random.Random(seed)
        self.sampler = Sampler()
        self.ema = torch.optim.swa_utils.AveragedModel(self.model)
        self.updates = 0

    def state(self) -> TrainingState:
        return TrainingState(
            model=self.model,
            optimizer=self.optimizer,
            scheduler=self.scheduler,
            scaler=self.scaler,
            sampler=self.sampler,
            generators={
                "loader": self.loader,
                "legacy": self.legacy,
                "philox": self.philox,
                "noise": self.noise,
                "augment": self.augment,
            },
            extra={"ema": self.ema, "best": {"metric": 0.25, "update": self.updates}},
            next_update=self.updates,
            tokens_seen=self.updates * 12,
        )

    def draws(self) -> list[float]:
        """Draw once from each source; normal ones too, which cache a second value."""
        return [
            random.gauss(0, 1),
            float(np.random.randn()),  # noqa: NPY002
            float(self.loader.standard_normal()),
            float(self.legacy.randn()),
            float(self.philox.standard_normal()),
            float(torch.randn(1, generator=self.noise)),
            float(torch.rand(1)),
            self.augment.gauss(0, 1),
        ]

    def update(self) -> tuple[list[float], float]:
        drawn = self.draws()
        self.sampler.position += 4
        inputs = torch.tensor(self.loader.standard_normal((4, 3)), dtype=torch.float32) + drawn[0]
        targets = torch.randn(4, 2, generator=self.noise) * self.sampler.position
        self.optimizer.zero_grad(set_to_none=True)
        loss = (self.model(inputs) - targets).square().mean()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        self.ema.update_parameters(self.model)
        self.updates += 1
        return drawn, float(loss.detach())

    def everything(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "ema": self.ema.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "scaler": self.scaler.state_dict(),
            "sampler": self.sampler.state_dict(),
        }


def trained(updates: int = 5) -> Trainer:
    trainer = Trainer()
    for _ in range(updates):
        trainer.update()
    return trainer


def assert_equal(left: Any, right: Any, where: str = "") -> None:
    """Compare bit for bit, naming the first place that differs."""
    if isinstance(left, torch.Tensor):
        assert torch.equal(left, right), where
    elif isinstance(left, dict):
        assert left.keys() == right.keys(), where
        for key in left:
            assert_equal(left[key], right[key], f"{where}.{key}")
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right), where
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            assert_equal(one, other, f"{where}[{index}]")
    else:
        assert left == right, where


@pytest.mark.parametrize("background", [False, True], ids=["sync", "async"])
def test_the_next_updates_are_bit_equal_after_a_restore(store: RunStore, background: bool) -> None:
    original = trained()
    contract = contract_of(config={"lr": "0.01"}, code="v1")
    published = publish(store, original.state(), contract=contract, background=background)
    expected = [original.update() for _ in range(3)]
    store.close()
    assert (published is None) is background

    fresh = Trainer(seed=123)
    fresh.update()
    resumed = store.resume(contract=contract)
    assert resumed.level is Level.VALIDATED
    assert resumed.evidence is not None
    assert resumed.evidence.detail == "loaded"
    clocks = restore(fresh.state(), load(resumed))
    assert (clocks.next_update, clocks.tokens_seen) == (5, 60)
    assert clocks.extra["best"] == {"metric": 0.25, "update": 5}
    assert [fresh.update() for _ in range(3)] == expected
    assert_equal(fresh.everything(), original.everything())


@pytest.mark.parametrize("forgotten", ["optimizer", "scheduler", "loader", "noise", "python", "torch_cpu", "sampler"])
def test_a_forgotten_component_changes_the_next_update(tmp_path: Path, forgotten: str) -> None:
    """Negative control: equality above is not because the component does not matter."""
    original = trained()
    save_payload(tmp_path, capture(original.state()))
    for _ in range(3):
        original.update()

    fresh = Trainer(seed=123)
    blank = capture(fresh.state())
    payload = torch.load(tmp_path / "payload.pt", weights_only=True)
    place = next(part for part in (payload, payload["rng"], payload["rng"]["generators"]) if forgotten in part)
    source = next(part for part in (blank, blank["rng"], blank["rng"]["generators"]) if forgotten in part)
    place[forgotten] = source[forgotten]
    restore(fresh.state(), payload)
    for _ in range(3):
        fresh.update()
    with pytest.raises(AssertionError):
        assert_equal(fresh.everything(), original.everything())


def test_building_objects_after_the_restore_would_have_drawn(tmp_path: Path) -> None:
    """Randomness is restored last: loading the model and others consumes none of it."""
    original = trained()
    save_payload(tmp_path, capture(original.state()))
    expected = original.draws()
    fresh = Trainer(seed=1)
    restore(fresh.state(), torch.load(tmp_path / "payload.pt", weights_only=True))
    assert fresh.draws() == expected


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda state: replace(state, scheduler=None), "state of the scheduler, and none was given"),
        (lambda state: replace(state, scaler=None), "state of the scaler, and none was given"),
        (lambda state: replace(state, sampler=None), "state of the sampler, and none was given"),
        (lambda state: replace(state, extra={}), "state of the extra 'ema', and none was given"),
        (lambda state: replace(state, extra={**state.extra, "swa": Sampler()}), "no state of the extra 'swa'"),
        (lambda state: replace(state, generators={}), "generator 'augment' was saved and is not given"),
        (
            lambda state: replace(state, generators={**state.generators, "more": random.Random(1)}),
            "generator 'more' was not saved",
        ),
        (
            lambda state: replace(state, generators={**state.generators, "loader": torch.Generator()}),
            "generator 'loader' is torch on cpu, saved was numpy PCG64",
        ),
        (
            lambda state: replace(state, generators={**state.generators, "loader": object()}),
            "generator 'loader' is a object",
        ),
    ],
)
def test_a_component_that_one_side_lacks_is_named_and_nothing_is_loaded(
    change: Callable[[TrainingState], TrainingState], words: str
) -> None:
    payload = capture(trained().state())
    fresh = Trainer(seed=1)
    before = {name: value.clone() for name, value in fresh.model.state_dict().items()}
    with pytest.raises(UsageError, match=words) as caught:
        restore(change(fresh.state()), payload)
    assert caught.value.hint
    assert_equal(fresh.model.state_dict(), before)


@pytest.mark.parametrize("key", ["model", "optimizer", "rng", "next_update", "sampler"])
def test_a_payload_without_a_part_is_refused(key: str) -> None:
    payload = capture(trained().state())
    del payload[key]
    with pytest.raises(IntegrityFailure, match=f"missing restart state: {key}"):
        restore(Trainer().state(), payload)


def test_a_payload_without_a_source_of_randomness_is_refused() -> None:
    payload = capture(trained().state())
    del payload["rng"]["torch_cpu"]
    with pytest.raises(IntegrityFailure, match="missing random state: torch_cpu"):
        restore(Trainer().state(), payload)


def test_a_payload_of_a_newer_format_is_refused() -> None:
    with pytest.raises(CapabilityMissing, match="format 2"):
        restore(Trainer().state(), {**capture(trained().state()), "format": 2})


def test_a_changed_device_topology_is_an_error() -> None:
    payload = capture(trained().state())
    here = torch.cuda.device_count() if torch.cuda.is_available() else 0
    payload["rng"]["torch_cuda"] = [{"name": "H200", "state": torch.get_rng_state()}] * (here + 1)
    with pytest.raises(CapabilityMissing, match=f"saved with {here + 1} devices, {here} are here"):
        restore(Trainer().state(), payload)


def test_the_state_of_every_cuda_device_goes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Played without devices: one state per device is saved with its name, and set in that order."""
    states = [torch.tensor([index], dtype=torch.uint8) for index in range(2)]
    put_back: list[Any] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"gpu {index}")
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: states)
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", put_back.extend)
    saved = randomness.capture({})
    assert [device["name"] for device in saved["torch_cuda"]] == ["gpu 0", "gpu 1"]
    randomness.check(saved, {})
    randomness.restore(saved, {})
    assert put_back == states


def test_without_numpy_its_state_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomness, "np", None)
    generators = {"noise": torch.Generator(), "augment": random.Random(3)}
    saved = randomness.capture(generators)
    assert saved["numpy_global"] is None
    randomness.check(saved, generators)
    randomness.restore(saved, generators)
    with pytest.raises(CapabilityMissing, match="NumPy"):
        randomness.check({**saved, "numpy_global": {}}, generators)


def test_a_plain_sampler_position_is_handed_back() -> None:
    state = replace(trained().state(), sampler={"epoch": 3, "position": 17})
    payload = capture(state)
    assert restore(replace(Trainer().state(), sampler=None), payload).sampler == {"epoch": 3, "position": 17}


def test_a_truncated_payload_is_passed_over(store: RunStore) -> None:
    trainer = trained()
    publish(store, trainer.state())
    trainer.update()
    newer = publish(store, trainer.state(), validate=False)
    assert newer is not None
    path = newer.files / "payload.pt"
    path.write_bytes(path.read_bytes()[:-100])
    resumed = store.resume()
    assert load(resumed)["next_update"] == 5
    assert [one.generation for one in resumed.skipped] == [str(newer.id)]
    with pytest.raises(IntegrityFailure, match="cannot be loaded"):
        load(newer)


def test_a_payload_that_is_no_dictionary_is_refused(store: RunStore) -> None:
    publication = store.publish(next_update=1)
    with publication as directory:
        torch.save([1], directory / "payload.pt")
    assert publication.generation is not None
    with pytest.raises(IntegrityFailure, match="holds a list"):
        load(publication.generation)


def test_a_contract_is_digests_of_its_parts(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(b"abc")
    contract = contract_of(config={"b": 1, "a": [0.1]}, tokenizer=tmp_path / "tokenizer.json", code="abc", raw=b"abc")
    assert contract["tokenizer"] == contract["code"] == contract["raw"]
    assert contract["config"] == contract_of(config={"a": [0.1], "b": 1})["config"]
    with pytest.raises(UsageError, match="contract part 'model'"):
        contract_of(model=object())
