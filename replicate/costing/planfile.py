"""A plan file: a run that is described, not measured, as strict TOML.

    plan = 1                         # the version of this format
    name = "r7b"
    rates = ["rates/r2.toml"]        # cards, relative to this file; --rates names more
    start = 2026-04-01T00:00:00Z     # or a day, at midnight UTC
    length = "30d"                   # spans: 90s, 15min, 2h, 30d
    every = "2h"                     # a generation each
    zone = "us-east-1"               # where the run is, in the words of the cards' transfers

    [[object]]                       # what a generation consists of
    name = "rank"
    bytes = 3062500000
    count = 32
    unchanged = false                # true: the same in every generation, such as a frozen base; copied, not sent

    [[tier]]
    tier = "r2-example/standard"     # card/tier
    profile = "r2"                   # of the S3 tier; store = "volume" for a mounted one
    part_size = 67108864             # default: the leaf size, as replicate does
    keep_last = 3                    # generations; default: all
    keep_every = 12
    restores = 2

    [needs]                          # for `cost compare`, where each [[tier]] is a candidate
    recover_within = "30min"
    bandwidth = 500000000            # bytes a second, the slowest on the way

Unknown keys, floats, negative or zero counts and spans are faults with their line.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, ValidationError

from cost.errors import Fault
from cost.rates.faults import faults_of, make_fault, shown
from cost.rates.lines import LineIndex
from cost.rates.parts import Broken, Count, Currency, FloatLiteral, Many, Part, Slug, Text, one_of, wrong
from cost.rates.terms import TransferPath
from replicate.errors import ConfigInvalid

MAX_PLAN_BYTES = 256 * 1024
MAX_OBJECTS = 1_000_000
_SPAN = re.compile(r"([0-9]{1,9})(s|min|h|d)")
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
_SPANS = 'write a span such as "90s", "15min", "2h" or "30d"'


def span_seconds(text: Any) -> int:
    """Return the seconds of ``90s``, ``15min``, ``2h`` or ``30d``; raises ValueError."""
    match = _SPAN.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(_SPANS)
    return int(match[1]) * _SECONDS[match[2]]


def _as_span(value: Any) -> int:
    try:
        return span_seconds(value)
    except ValueError as error:
        raise wrong(_SPANS) from error


def _as_positive_span(value: Any) -> int:
    if seconds := _as_span(value):
        return seconds
    raise wrong(f"{_SPANS}, above zero")


def _as_start(value: Any) -> datetime:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    raise wrong("write a day, or a time with its offset, without quotes: 2026-04-01T00:00:00Z")


Span = Annotated[int, PlainValidator(_as_span), Field(validate_default=False)]
PositiveSpan = Annotated[int, PlainValidator(_as_positive_span)]
Start = Annotated[datetime, PlainValidator(_as_start)]


class Store(StrEnum):
    """What kind of tier it is: which requests its verbs are."""

    S3 = "s3"
    VOLUME = "volume"


class PlannedObject(Part):
    """Equal files of a generation."""

    name: Slug = "file"
    bytes: Annotated[int, Field(ge=0, lt=2**53)]
    count: Annotated[int, Field(ge=1, le=MAX_OBJECTS)] = 1
    unchanged: bool = False


class PlannedTier(Part):
    """One place that the run goes to."""

    tier: Annotated[Text, Field(description="card/tier, as the cards call it")]
    name: Slug | None = None
    store: Annotated[Store, one_of(Store)] = Store.S3
    profile: Text | None = None
    part_size: Count | None = None
    every: Count = 1
    keep_last: Count | None = None
    keep_every: Count | None = None
    upload: Span = 0
    zone: Text | None = None
    network_path: Annotated[TransferPath, one_of(TransferPath)] | None = None
    provisioned_bytes: Count | None = None
    restores: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    verify_every: PositiveSpan | None = None
    read_data: Text | None = None
    mode: Text | None = None
    keep_days: Annotated[int, Field(ge=0, le=36_500)] = 0

    def rules(self) -> Iterator[Broken]:
        """Yield what does not go together."""
        if self.store is Store.S3 and self.profile is None:
            yield Broken(("profile",), "nothing", 'name the S3 profile, such as "aws" or "r2", or store = "volume"')
        if self.store is Store.VOLUME and self.profile is not None:
            yield Broken(("profile",), self.profile, "a volume has no profile: remove it")
        if self.read_data is not None and self.verify_every is None:
            yield Broken(("read_data",), self.read_data, "say how often with verify_every")


class PlannedNeeds(Part):
    """What a candidate has to do."""

    recover_within: PositiveSpan
    bandwidth: Annotated[Count, Field(description="bytes a second that a restore gets through")]
    detect: Span = 0
    provision: Span = 0
    load: Span = 0
    private: bool = True


class PlanFile(Part):
    """The whole file."""

    plan: Annotated[Literal[1], Field(description="write plan = 1")]
    name: Slug
    rates: Many[Text] = ()
    start: Annotated[Start, Field(description="when the run begins, such as 2026-04-01T00:00:00Z")]
    length: Annotated[PositiveSpan, Field(description="how long the run is")]
    every: Annotated[PositiveSpan, Field(description="how often a generation comes")]
    hold: Span = 0
    delete_at_end: bool = False
    seats: Count = 1
    currency: Currency | None = None
    zone: Text | None = None
    objects: Annotated[Many[PlannedObject], Field(alias="object", min_length=1, description="the files")]
    tiers: Annotated[Many[PlannedTier], Field(alias="tier", min_length=1, description="where they go")]
    needs: PlannedNeeds | None = None

    def rules(self) -> Iterator[Broken]:
        """Yield a run without a generation, and more files than a generation may have."""
        if self.every > self.length:
            yield Broken(
                ("every",), f"{self.every} s", f"at most the length, {self.length} s: no generation comes else"
            )
        if sum(one.count for one in self.objects) > MAX_OBJECTS:
            yield Broken(("object",), "more files", f"a generation has at most {MAX_OBJECTS} files")
        names = [tier.name or tier.tier for tier in self.tiers]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield Broken(("tier", index, "name"), name, "give each [[tier]] a name of its own")


@dataclass(frozen=True, kw_only=True)
class LoadedPlan:
    """A plan file that is right, and where it came from."""

    file: Path
    plan: PlanFile

    @property
    def rates(self) -> tuple[Path, ...]:
        """The cards that it names."""
        return tuple(self.file.parent / name for name in self.plan.rates)


def read_plan(path: Path) -> LoadedPlan:
    """Read and check a plan file; raises ConfigInvalid with file, line, field, value and remedy of every fault."""
    text = _text(path)
    try:
        values = tomllib.loads(text, parse_float=FloatLiteral)
        index = LineIndex(text)
    except (ValueError, RecursionError) as error:
        raise _refused(path, f"this is no valid TOML: {error}") from error
    try:
        return LoadedPlan(file=path, plan=PlanFile.model_validate(values))
    except ValidationError as error:
        faults = sorted(faults_of(error, PlanFile, str(path), index), key=lambda fault: (fault.line, fault.field))
        raise invalid(faults) from error


def invalid(faults: list[Fault]) -> ConfigInvalid:
    """Return the error of some faults, one a line."""
    lines = dict.fromkeys(map(str, faults))
    return ConfigInvalid(
        "\n".join(lines), hint="correct the lines that are named; `ckptier cost estimate --help` shows the format"
    )


def fault_in(loaded: LoadedPlan, at: tuple[str | int, ...], found: object, right: str) -> ConfigInvalid:
    """Return the error of a value that only the cards or a tier could judge; None for one that is missing."""
    index = LineIndex(_text(loaded.file))
    return invalid([make_fault(str(loaded.file), index, at, "nothing" if found is None else shown(found), right)])


def _refused(path: Path, right: str, found: str = "the file") -> ConfigInvalid:
    return invalid([Fault(file=str(path), line=1, field="file", found=found, right=right)])


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            raise _refused(path, "name a plan file that exists: a TOML file", "no regular file")
        with path.open("rb") as stream:
            data = stream.read(MAX_PLAN_BYTES + 1)
    except OSError as error:
        raise _refused(path, "name a file that can be read", error.strerror or "an I/O error") from error
    if len(data) > MAX_PLAN_BYTES:
        raise _refused(path, "a plan is smaller: is this the right file?", f"more than {MAX_PLAN_BYTES} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _refused(path, "save the file as UTF-8", f"byte 0x{data[error.start]:02x}") from error
