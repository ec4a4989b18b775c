"""What was asked of tiers, or will be: requests, transfers and retrievals, with their counts and bytes.

Whoever plans or measures fills these in (``replicate`` from the planner that uploads, the
metering wrapper from its counters).  No request is derived here, and bytes are wire bytes.
Instants are whole seconds since 1970 in UTC, as everywhere in ``cost``.
"""

from dataclasses import dataclass
from decimal import Decimal

from cost.errors import PlanInvalid
from cost.rates.terms import Operation, TransferPath

OK = 200
"""HTTP status of a request that succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Equal requests to one tier: each attempt counts, retries and failures too.

    ``status`` is the HTTP status that came back; the card says which ones are billed.
    Restore initiations and lifecycle transitions are not requests: :class:`Retrieval` and the
    schedule carry them.  ``generation`` is the ordinal of the generation that was read or written;
    0 means no one in particular, and a GetObject of 0 touches all that the tier holds (a scrub).
    """

    tier: str
    operation: Operation
    count: int
    at: int
    status: int = OK
    label: str = ""
    generation: int = 0

    def __post_init__(self) -> None:
        if self.count < 0 or self.at < 0:
            raise PlanInvalid(f"{self.tier}: {self.count} {self.operation} at {self.at}", hint="counts start at zero")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Bytes over one leg of the network, retries included; priced where they leave."""

    from_zone: str
    to_zone: str
    path: TransferPath
    bytes: int
    at: int
    tier: str = ""
    label: str = ""

    def __post_init__(self) -> None:
        if self.bytes < 0 or self.at < 0:
            raise PlanInvalid(f"{self.from_zone} to {self.to_zone}: {self.bytes} bytes at {self.at}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """Bytes that are taken out of a tier, in one of the card's retrieval modes.

    ``mode`` may be empty where the tier has one mode or none.  ``objects`` counts restore
    initiations where the mode has a price for each.  Temporary copies are held for ``keep_days``.
    """

    tier: str
    bytes: int
    objects: int
    at: int
    mode: str = ""
    keep_days: int = 0
    label: str = "restore"

    def __post_init__(self) -> None:
        if min(self.bytes, self.objects, self.at, self.keep_days) < 0:
            raise PlanInvalid(f"{self.tier}: {self.mode} retrieval of {self.bytes} bytes", hint="nothing is negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeeUse:
    """Something that costs by the hour for being there (a NAT gateway), by its id on a card."""

    fee: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Other usage of the same account, each month: it fills brackets and allowances first.

    ``meter`` is the name that lines of an estimate carry; ``quantity`` is in that meter's unit.
    """

    meter: str
    quantity: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """All that is handed over for one estimate."""

    requests: tuple[Requests, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    retrievals: tuple[Retrieval, ...] = ()
    fees: tuple[FeeUse, ...] = ()
    baselines: tuple[Baseline, ...] = ()

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            requests=self.requests + other.requests,
            transfers=self.transfers + other.transfers,
            retrievals=self.retrievals + other.retrievals,
            fees=self.fees + other.fees,
            baselines=self.baselines + other.baselines,
        )

    @property
    def instants(self) -> tuple[int, ...]:
        """Every instant at which something is used."""
        return (
            *(each.at for each in self.requests),
            *(each.at for each in self.transfers),
            *(each.at for each in self.retrievals),
            *(at for each in self.fees for at in (each.start, each.end)),
        )


NOTHING = Usage()
"""No usage beside what is stored."""
