"""The stateful model: the same every time in CI, longer and other ones where asked (CKPTIER_MODEL_EXAMPLES)."""

import os

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.stateful import run_state_machine_as_test
from model.machine import FIRED
from model.mendings import Model
from support.figures import figure

EXAMPLES, STEPS = 11, 30
ASKED = os.environ.get("CKPTIER_MODEL_EXAMPLES")
FLOORS = {
    "again": 10,
    "collect": 8,
    "copy_disk": 6,
    "crash": 10,
    "damage": 10,
    "damage the log": 8,
    "expire": 12,
    "hurt a copy": 10,
    "jump_the_clock": 10,
    "pin": 12,
    "publish": 8,
    "replicate": 5,
    "restart": 12,
    "restore": 10,
    "restore_to": 10,
    "roll_back": 7,
    "slot": 10,
    "stall": 20,
    "take_over": 9,
    "committed": 90,
    "copied": 60,
    "deleted": 8,
    "faults": 7,
    "healed": 4,
    "interrupted:takeover": 5,
    "killed:repair": 15,
    "killed:publish": 2,
    "killed:restore": 2,
    "log repaired": 6,
    "orphans": 1,
    "released": 2,
    "restored": 25,
    "swept": 4,
    "taken": 5,
}
"""What has to happen at the least in CI: a model that shrinks proves less."""


def test_the_promises_hold_whatever_happens() -> None:
    FIRED.clear()
    settings = hypothesis.settings(
        max_examples=int(ASKED or EXAMPLES),
        stateful_step_count=STEPS,
        derandomize=ASKED is None,
        database=None,
        deadline=None,
        print_blob=True,
        phases=[Phase.generate, Phase.shrink] if ASKED else [Phase.generate],  # to shrink takes longer than CI has
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Model, settings=settings)
    missed = {what: (FIRED[what], floor) for what, floor in FLOORS.items() if FIRED[what] < floor}
    assert not missed, f"(happened, at least): {missed}"
    figure("model: kinds of events", len(FIRED), floor=len(FLOORS))
    figure("model: events", sum(FIRED.values()), floor=sum(FLOORS.values()))
