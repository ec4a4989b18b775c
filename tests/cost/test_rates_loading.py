"""Files of rates: what is read at all, how old it may be, and which cards go together."""

import os
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from cost.errors import FAULTS_SHOWN, CardInvalid, CardStale, CurrencyMixed, Fault, OutsideWindow, RateMissing
from cost.rates.loading import LONGEST_LINE, MAX_CARD_BYTES, check_card, load_cards, read_card
from cost.rates.model import Freshness
from cost.units import Money

EXAMPLES = Path(__file__).parents[2] / "examples" / "rates"
RUNPOD = (EXAMPLES / "runpod-volume.toml").read_text(encoding="utf-8")
READ_ON = date(2026, 8, 20)
TODAY = date(2026, 9, 1)


def written(folder: Path, text: str | bytes, name: str = "card.toml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refused(*paths: Path, today: date = TODAY) -> tuple[Fault, ...]:
    """Return the faults, each of which has to name its file, line, field, value and what is right."""
    with pytest.raises(CardInvalid) as caught:
        load_cards(paths, today=today)
    for fault in caught.value.faults:
        assert fault.file in {str(path) for path in paths}
        assert f"{fault.file}:{fault.line}: {fault.field}: found {fault.found}; {fault.right}" in caught.value.message
        assert fault.found
        assert fault.right
    assert "rates check" in caught.value.hint
    return caught.value.faults


def only(faults: tuple[Fault, ...]) -> Fault:
    (fault,) = faults
    return fault


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


def dated(**changes: str) -> str:
    """Return the volume's card with lines of its header put in or exchanged."""
    text = RUNPOD
    for key, value in changes.items():
        old = next((line for line in text.splitlines() if line.startswith(f"{key} = ")), None)
        new = f"{key} = {value}"
        text = text.replace(old, new, 1) if old else text.replace("schema = 1", f"schema = 1\n{new}", 1)
    return text


def test_no_utf8(tmp_path: Path) -> None:
    path = written(tmp_path, RUNPOD.encode().replace(b"One price", b"One pr\xefce"))
    fault = only(refused(path))
    assert (fault.line, fault.found) == (line_of(RUNPOD, "One price"), "byte 0xef")
    assert "UTF-8" in fault.right


def test_utf16_and_byte_order_marks(tmp_path: Path) -> None:
    assert "UTF-8" in only(refused(written(tmp_path, RUNPOD.encode("utf-16")))).right
    assert "byte order mark" in only(refused(written(tmp_path, RUNPOD.encode("utf-8-sig")))).found


def test_a_card_of_100_megabytes_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "huge.toml"
    with path.open("wb") as stream:
        stream.truncate(100_000_000)
    assert str(MAX_CARD_BYTES) in only(refused(path)).found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x" * (LONGEST_LINE + 1), "a line of 1025"),
        ("a = " + "[\n" * 2000 + "]" * 1000, "nested too deeply"),
        ("a = " + "9" * 1000, "999"),
        ("schema = ", "schema ="),
        ("schema = 1\n]]", "]]"),
        ("x = 2026-02-30", "2026-02-30"),
    ],
)
def test_what_is_no_toml(tmp_path: Path, text: str, why: str) -> None:
    faults = refused(written(tmp_path, text))
    assert why in faults[0].found


def test_a_key_with_thousands_of_parts_is_no_burden(tmp_path: Path) -> None:
    faults = refused(written(tmp_path, "\n".join(f"k{n}." + "a." * 500 + "b = 1" for n in range(60))))
    assert any(fault.field == "k0" and fault.line == 1 for fault in faults)


def test_a_flood_of_faults_is_counted(tmp_path: Path) -> None:
    path = written(tmp_path, "\n".join(f"k{number} = 1" for number in range(1000)))
    with pytest.raises(CardInvalid) as caught:
        read_card(path, today=TODAY)
    assert len(caught.value.faults) > 1000
    assert len(caught.value.message.splitlines()) == FAULTS_SHOWN + 1
    assert caught.value.message.endswith(f"and {len(caught.value.faults) - FAULTS_SHOWN} more")


def test_what_is_no_file(tmp_path: Path) -> None:
    assert "No such file" in only(refused(tmp_path / "nothing.toml")).found
    assert only(refused(tmp_path)).found == "no regular file"
    os.mkfifo(tmp_path / "pipe")
    assert only(refused(tmp_path / "pipe")).found == "no regular file"
    assert "null byte" in only(refused(Path("a\0b"))).found


def test_an_empty_file_lacks_everything(tmp_path: Path) -> None:
    faults = refused(written(tmp_path, ""))
    missing = {fault.field for fault in faults if fault.found == "nothing"}
    assert {"as_of", "currency", "region", "source_url", "taxes", "tier"} <= missing


def test_another_schema_is_all_that_is_said(tmp_path: Path) -> None:
    fault = only(refused(written(tmp_path, RUNPOD.replace("schema = 1", "schema = 2").replace("USD", "usd"))))
    assert (fault.field, fault.found) == ("schema", "2")


def test_every_fault_is_named_at_once(tmp_path: Path) -> None:
    """One from the header's rules, one from a type, one key unknown and one missing, one from a leg's rules."""
    text = dated(effective_from="2026-02-01", effective_to="2026-01-01").replace("grow_only = true", "grow_onyl = true")
    text = text.replace('{ unit_price = "0", free = true }', '{ unit_price = "0" }')
    text = text.replace('unit_price = "0.05"', "unit_price = 0.05")
    faults = {fault.field: fault for fault in refused(written(tmp_path, text))}
    assert set(faults) == {
        "effective_to",
        "tier.0.provisioned.grow_only",
        "tier.0.provisioned.grow_onyl",
        "tier.0.storage_brackets.1.unit_price",
        "transfer.0.brackets.0.unit_price",
    }
    for field, part in (
        ("effective_to", "effective_to"),
        ("tier.0.provisioned.grow_onyl", "grow_onyl"),
        ("tier.0.provisioned.grow_only", "[tier.provisioned]"),
        ("tier.0.storage_brackets.1.unit_price", "{ unit_price = 0.05"),
    ):
        assert faults[field].line == line_of(text, part), field
    assert "did you mean grow_only?" in faults["tier.0.provisioned.grow_onyl"].right
    assert '"0.05"' in faults["tier.0.storage_brackets.1.unit_price"].right


def test_faults_of_all_files_are_named(tmp_path: Path) -> None:
    one = written(tmp_path, dated(currency='"usd"'), "one.toml")
    two = written(tmp_path, dated(region='"Nowhere"'), "two.toml")
    assert {(Path(fault.file).name, fault.field) for fault in refused(one, two)} == {
        ("one.toml", "currency"),
        ("two.toml", "region"),
    }


@pytest.mark.parametrize(
    ("today", "freshness"),
    [
        (date(2026, 8, 19), Freshness.FRESH),  # it is tomorrow already somewhere
        (date(2026, 11, 18), Freshness.FRESH),
        (date(2026, 11, 19), Freshness.STALE),
        (date(2027, 8, 15), Freshness.STALE),
        (date(2027, 8, 16), Freshness.TOO_OLD),
    ],
)
def test_age_goes_from_fresh_to_stale_to_refused(tmp_path: Path, today: date, freshness: Freshness) -> None:
    path = written(tmp_path, RUNPOD)
    card, warnings = check_card(path, today=today)
    assert card.freshness(today) is freshness
    assert any("STALE" in line for line in warnings) == (freshness is not Freshness.FRESH)
    if freshness is Freshness.TOO_OLD:
        with pytest.raises(CardStale) as caught:
            load_cards([path], today=today)
        assert (caught.value.age_days, caught.value.limit_days) == (361, 360)
        assert load_cards([path], today=today, allow_too_old=True).warnings == warnings
        assert load_cards([path], today=today, refuse_factor=5).cards == (card,)
    else:
        assert load_cards([path], today=today).warnings == warnings


def test_limits_are_the_cards_own(tmp_path: Path) -> None:
    card, _ = check_card(written(tmp_path, dated(max_age_days="10")), today=TODAY)
    assert card.freshness(TODAY) is Freshness.STALE


def test_the_oldest_price_is_the_age(tmp_path: Path) -> None:
    text = RUNPOD.replace('path = "same_region"', 'path = "same_region"\nas_of = 2024-01-01')
    card, _ = check_card(written(tmp_path, text), today=TODAY)
    assert card.oldest_as_of == date(2024, 1, 1)
    assert card.freshness(TODAY) is Freshness.TOO_OLD


def test_future_dates(tmp_path: Path) -> None:
    fault = only(refused(written(tmp_path, RUNPOD), today=date(2026, 8, 18)))
    assert (fault.field, fault.found, fault.line) == ("as_of", "2026-08-20", line_of(RUNPOD, "as_of ="))
    text = RUNPOD.replace('path = "same_region"', 'path = "same_region"\nas_of = 2027-01-01')
    fault = only(refused(written(tmp_path, text)))
    assert (fault.field, fault.line) == ("transfer.0.as_of", line_of(text, "as_of = 2027"))
    assert "2026-09-01" in fault.right


def test_a_future_date_is_named_beside_other_faults(tmp_path: Path) -> None:
    text = dated(as_of="2030-01-01").replace("grow_only = true", "grow_only = 1")
    assert [fault.field for fault in refused(written(tmp_path, text))] == ["as_of", "tier.0.provisioned.grow_only"]


def test_one_file_twice(tmp_path: Path) -> None:
    path = written(tmp_path, RUNPOD)
    assert only(refused(path, tmp_path / "." / "card.toml")).found == "the same file again"


def test_one_id_twice(tmp_path: Path) -> None:
    one = written(tmp_path, dated(effective_to="2026-01-01"), "one.toml")
    two = written(tmp_path, dated(effective_from="2026-01-01"), "two.toml")
    fault = only(refused(one, two))
    assert (fault.field, fault.line) == ("id", line_of(dated(effective_from="2026-01-01"), "id ="))


def test_overlapping_cards(tmp_path: Path) -> None:
    one = written(tmp_path, dated(effective_to="2026-02-01"), "one.toml")
    text = dated(effective_from="2026-01-31", id='"other"')
    fault = only(refused(one, written(tmp_path, text, "two.toml")))
    assert (fault.field, fault.found) == ("tier.0.storage_class", '"network-volume"')
    assert fault.line == line_of(text, "storage_class")
    assert str(one) in fault.right


def test_two_products_may_call_a_class_the_same(tmp_path: Path) -> None:
    one = written(tmp_path, RUNPOD, "one.toml")
    two = written(tmp_path, dated(id='"other"', product='"another"'), "two.toml")
    assert len(load_cards([one, two], today=TODAY).cards) == 2


def test_cards_that_follow_each_other(tmp_path: Path) -> None:
    one = written(tmp_path, dated(effective_to="2026-02-01"), "one.toml")
    two = written(tmp_path, dated(effective_from="2026-02-01", id='"other"'), "two.toml")
    cards = load_cards([one, two], today=TODAY)
    cards.card("other").require_effective(date(2026, 2, 1))
    with pytest.raises(OutsideWindow, match="usage on 2026-02-01"):
        cards.cards[0].require_effective(date(2026, 2, 1))
    with pytest.raises(OutsideWindow):
        cards.card("other").require_effective(date(2026, 1, 31))
    with pytest.raises(RateMissing) as caught:
        cards.card("third")
    assert "runpod-volume-example, other" in caught.value.hint


FX = """
[[fx]]
from_currency = "EUR"
to_currency = "USD"
rate = "1.25"
as_of = 2026-08-20
source_url = "https://www.ecb.europa.eu/"
"""


def test_mixed_currency(tmp_path: Path) -> None:
    one = written(tmp_path, RUNPOD, "one.toml")
    text = dated(id='"euro"', region='"eu"', currency='"EUR"')
    fault = only(refused(one, written(tmp_path, text, "two.toml")))
    assert (fault.field, fault.found, fault.line) == ("currency", '"EUR"', line_of(text, "currency"))
    cards = load_cards([one, written(tmp_path, text + FX, "two.toml")], today=TODAY)
    assert cards.convert(Money(Decimal(2), "EUR"), "USD") == Money(Decimal("2.5"), "USD")
    assert cards.convert(Money(Decimal(2), "USD"), "EUR") == Money(Decimal("1.6"), "EUR")
    assert cards.convert(Money(Decimal(2), "USD"), "USD") == Money(Decimal(2), "USD")
    with pytest.raises(CurrencyMixed, match="GBP"):
        cards.convert(Money(Decimal(2), "USD"), "GBP")


def test_fx_is_dated_and_said_once(tmp_path: Path) -> None:
    text = RUNPOD + FX.replace("as_of = 2026-08-20\n", "")
    assert only(refused(written(tmp_path, text))).field == "fx.0.as_of"
    text = RUNPOD + FX + FX.replace('"1.25"', '"1.26"')
    fault = only(refused(written(tmp_path, text)))
    assert (fault.field, fault.line) == ("fx.1.rate", line_of(text, 'rate = "1.26"'))
    same = FX.replace('to_currency = "USD"', 'to_currency = "EUR"')
    assert only(refused(written(tmp_path, RUNPOD + same))).field == "fx.0.to_currency"
    old = RUNPOD + FX.replace("2026-08-20", "2020-01-01")
    assert read_card(written(tmp_path, old), today=TODAY).card.freshness(TODAY) is Freshness.TOO_OLD
