"""Requests of the protocol as usage that the cost model takes."""

from collections import Counter
from collections.abc import Mapping

from cost.usage import Requests as Used
from replicate.asked import Requests
from replicate.costing.operations import Billed, Traits, operations

UPLOAD = "replicate"
RESTORE = "restore"
"""The label that the cost model knows restores by."""
VERIFY = "verify"


def used(ref: str, counts: Mapping[Billed, int], at: int, *, label: str, generation: int = 0) -> tuple[Used, ...]:
    """Return operations as equal requests to one tier of a card, all at one instant."""
    return tuple(
        Used(
            tier=ref,
            operation=operation,
            status=int(status),
            count=count,
            at=at,
            label=label,
            generation=generation,
        )
        for (operation, status), count in sorted(counts.items())
        if count
    )


def wire(requests: Requests, traits: Traits) -> Counter[Billed]:
    """Return the operations that some requests are."""
    return operations(requests.asked, traits)
