"""Reading rate cards: every file is checked whole, and every fault is named with its line."""

import re
import stat
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cost.errors import CardInvalid, Fault
from cost.rates.faults import faults_of, make_fault, shown
from cost.rates.lines import LineIndex
from cost.rates.model import REFUSE_FACTOR, SCHEMA, CardHeader, Freshness, RateCard
from cost.rates.parts import FloatLiteral
from cost.rates.together import CardSet, LoadedCard, faults_together

MAX_CARD_BYTES = 256 * 1024
"""A card is a page of prices; no more than this is read of any file."""
LONGEST_LINE = 1024
"""Characters in a line: parsing a dotted key takes time with the square of its length."""
SKEW = timedelta(days=1)
"""How far ahead ``as_of`` may be: somewhere it is tomorrow already."""

_TOML_LINE = re.compile(r"\(at line (\d+), column \d+\)")
_TWICE = ("Cannot overwrite a value", "twice", "Cannot mutate immutable", "Duplicate inline")
_DEEP = "tables nested too deeply"


@dataclass(frozen=True, slots=True)
class _Document:
    """A file that is TOML: its values, and where they stand."""

    file: str
    values: dict[str, Any]
    index: LineIndex


def read_card(path: Path, *, today: date) -> LoadedCard:
    """Read and check one card; raises CardInvalid with every fault.

    Faults between tables (a reference to a tier that is not there) are found once the
    tables themselves are right.  Age is not judged here: ask the card's ``freshness``.
    """
    document = _parsed(path)
    faults: list[Fault] = []
    card = _validated(document, faults)
    faults.extend(_future(document, card, today))
    if faults or card is None:
        unique = dict.fromkeys(faults)
        raise CardInvalid(tuple(sorted(unique, key=lambda fault: (fault.line, fault.field))))
    return LoadedCard(file=document.file, card=card, index=document.index)


def check_card(path: Path, *, today: date) -> tuple[RateCard, tuple[str, ...]]:
    """Return a card and the warnings about it; its age is only ever a warning here.  Raises CardInvalid."""
    loaded = read_card(path, today=today)
    return loaded.card, _warnings(loaded, today, REFUSE_FACTOR)


def load_cards(
    paths: Sequence[Path],
    *,
    today: date,
    refuse_factor: int = REFUSE_FACTOR,
    allow_too_old: bool = False,
) -> CardSet:
    """Read the cards that one estimate uses; raises CardInvalid with the faults of all of them.

    Raises CardStale for a card older than ``refuse_factor`` times its ``max_age_days``,
    unless ``allow_too_old``; older than ``max_age_days`` once is a warning of the set.
    """
    loaded: list[LoadedCard] = []
    faults: list[Fault] = []
    for path in paths:
        try:
            loaded.append(read_card(path, today=today))
        except CardInvalid as error:
            faults.extend(error.faults)
    faults.extend(faults_together(loaded))
    if faults:
        raise CardInvalid(tuple(faults))
    if not allow_too_old:
        for each in loaded:
            each.card.require_usable(today, refuse_factor=refuse_factor)
    warnings = tuple(line for each in loaded for line in _warnings(each, today, refuse_factor))
    return CardSet(loaded=tuple(loaded), warnings=warnings)


def _refuse(file: str, line: int, found: str, right: str) -> CardInvalid:
    return CardInvalid((Fault(file=file, line=line, field="file", found=found, right=right),))


def _parsed(path: Path) -> _Document:
    file = str(path)
    text = _text(path)
    try:
        values = tomllib.loads(text, parse_float=FloatLiteral)
        return _Document(file, values, LineIndex(text))
    except RecursionError as error:
        raise _refuse(file, 1, _DEEP, "a card has tables three levels deep") from error
    except ValueError as error:  # TOMLDecodeError, and integers beyond what Python converts
        raise _not_toml(file, text, error) from error


def _not_toml(file: str, text: str, error: ValueError) -> CardInvalid:
    lines = text.splitlines() or [""]
    named = _TOML_LINE.search(str(error))
    line = min(int(named[1]), len(lines)) if named else len(lines)
    right = "this is no valid TOML: correct the line"
    if any(words in str(error) for words in _TWICE):
        right = "the key stands in the file already: keep one (an operation belongs to exactly one request class)"
    return _refuse(file, line, shown(lines[line - 1].strip()), f"{right}: {error}")


def _text(path: Path) -> str:
    """Return the text of a card, once it is UTF-8 with lines of bearable length."""
    file, data = str(path), _bytes(path)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise _refuse(file, line, f"byte 0x{data[error.start]:02x}", "save the file as UTF-8") from error
    if text.startswith("\ufeff"):
        raise _refuse(file, 1, "a byte order mark", "save the file as UTF-8 without one")
    for number, row in enumerate(text.split("\n"), 1):
        if len(row) > LONGEST_LINE:
            raise _refuse(file, number, f"a line of {len(row)} characters", f"break it: {LONGEST_LINE} are the limit")
    return text


def _bytes(path: Path) -> bytes:
    """Return the content of a regular file that is small enough; a pipe is never opened."""
    file = str(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise _refuse(file, 0, "no regular file", "name a rate card: a TOML file")
        with path.open("rb") as stream:
            data = stream.read(MAX_CARD_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise _refuse(file, 0, why or "an I/O error", "name a file that exists and can be read") from error
    if len(data) > MAX_CARD_BYTES:
        raise _refuse(file, 0, f"more than {MAX_CARD_BYTES} bytes", "a rate card is smaller: is this the right file?")
    return data


def _validated(document: _Document, faults: list[Fault]) -> RateCard | None:
    """Return the card, or None after adding to ``faults``."""
    version = document.values.get("schema")
    if isinstance(version, int) and not isinstance(version, bool) and version != SCHEMA:
        right = f"this version reads schema {SCHEMA}: use the ckptier that the card was written for"
        faults.append(make_fault(document.file, document.index, ("schema",), shown(version), right))
        return None
    try:
        return RateCard.model_validate(document.values)
    except ValidationError as error:
        faults.extend(faults_of(error, RateCard, document.file, document.index))
    faults.extend(_header_faults(document))
    return None


def _header_faults(document: _Document) -> list[Fault]:
    """Return the header's own faults: a fault in a tier keeps the card's rules from being tried."""
    keys = {field.alias or name for name, field in CardHeader.model_fields.items()}
    header = {key: value for key, value in document.values.items() if key in keys}
    try:
        CardHeader.model_validate(header)
    except ValidationError as error:
        return list(faults_of(error, CardHeader, document.file, document.index))
    return []


def _future(document: _Document, card: RateCard | None, today: date) -> list[Fault]:
    """Return the faults of dates that nobody can have read a price on yet."""
    first = document.values.get("as_of")
    days = list(card.days()) if card else [(("as_of",), first)]
    right = f"the day the price was read, not after {today}"
    faults = []
    for path, day in days:
        if type(day) is date and day > today + SKEW:
            faults.append(make_fault(document.file, document.index, path, str(day), right))
    return faults


def _warnings(loaded: LoadedCard, today: date, refuse_factor: int) -> tuple[str, ...]:
    card = loaded.card
    freshness = card.freshness(today, refuse_factor=refuse_factor)
    lines = [card.banner] if card.banner else []
    if freshness is not Freshness.FRESH:
        limit = f"max_age_days is {card.max_age_days}"
        outcome = "; estimates refuse it" if freshness is Freshness.TOO_OLD else ""
        lines.append(
            f"{card.card_id}: STALE: read on {card.oldest_as_of}, {card.age_days(today)} days ago; {limit}{outcome}"
        )
    return tuple(lines)
