"""What the model once found, by name."""

from collections.abc import Iterator

import pytest
from model.mendings import Model

from replicate.errors import Fenced
from tiers.effects import Moment


@pytest.fixture
def model() -> Iterator[Model]:
    """Return a model in which one machine has committed and the other has restored; it is brought to its end."""
    made = Model()
    made.begin()
    yield made
    made.teardown()


@pytest.mark.parametrize("nth", [5, 8])
def test_two_copies_of_a_disk_with_its_tracker_are_both_shut_out(model: Model, nth: int) -> None:
    """Both hold one claim, so that a copy that stalled may still get one commit in; then neither goes on."""
    model.copy_disk(box="two", with_tracker=True)
    model.stall(box="one", tier="near", work="replicate", nth=nth, when=Moment.BEFORE, meanwhile="takeover", faults=[])
    model.the_promises_hold()
    for box in ("one", "two"):
        model.publish(box=box)
        result = model._pass(box, "near")
        assert result is not None
        assert isinstance(result.failure, Fenced)
        model.the_promises_hold()
