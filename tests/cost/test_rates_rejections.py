"""Every rejection of a rate card: with file, line, field, the value found and what would be right."""

from datetime import date
from pathlib import Path

import pytest

from cost.errors import CardInvalid, Fault
from cost.rates.loading import read_card

EXAMPLES = Path(__file__).parents[2] / "examples" / "rates"
AWS, R2, GCS, RUNPOD, HF = (
    (EXAMPLES / f"{name}.toml").read_text(encoding="utf-8")
    for name in ("aws-s3-us-east-1", "r2", "gcs-us-central1", "runpod-volume", "hf-hub")
)
TODAY = date(2026, 10, 1)
STANDARD = 'storage_brackets = [{ unit_price = "0.015" }]'


def faults(folder: Path, text: str) -> dict[str, Fault]:
    """Return what is refused, by field."""
    path = folder / "card.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CardInvalid) as caught:
        read_card(path, today=TODAY)
    for fault in caught.value.faults:
        assert fault.file == str(path)
        assert f"{path}:{fault.line}: {fault.field}: found {fault.found}; {fault.right}" in caught.value.message
    return {fault.field: fault for fault in caught.value.faults}


def refusal(folder: Path, text: str, *, old: str, new: str, at: str | None = None) -> tuple[str, str, str]:
    """Return field, value and what is right, after ``old`` became ``new``; the line has to be that of ``at``."""
    assert old in text
    changed = text.replace(old, new, 1)
    (fault,) = faults(folder, changed).values()
    where = at if at is not None else new
    assert fault.line == changed[: changed.index(where)].count("\n") + 1, fault
    return fault.field, fault.found, fault.right


PRICES = [
    ("0.015", "0.015", '"0.015"'),
    ("nan", "nan", "decimal string"),
    ("inf", "inf", "decimal string"),
    ("-inf", "-inf", "decimal string"),
    ("5", "5", '"5"'),
    ("true", "true", "decimal string"),
    ('"-0.015"', '"-0.015"', "not negative"),
    ('"NaN"', '"NaN"', "digits"),
    ('"Infinity"', '"Infinity"', "digits"),
    ('"1e-2"', '"1e-2"', '"0.01"'),
    ('"0,015"', '"0,015"', "digits"),
    ('"$0.015"', '"$0.015"', "digits"),
    ("[]", "an empty array", "decimal string"),
]


@pytest.mark.parametrize(("written", "found", "right"), PRICES)
def test_prices_that_are_no_exact_decimal(tmp_path: Path, written: str, found: str, right: str) -> None:
    """Negative, NaN, infinite, or typed as a binary float."""
    new = STANDARD.replace('"0.015"', written)
    field, value, told = refusal(tmp_path, R2, old=STANDARD, new=new)
    assert (field, value) == ("tier.0.storage_brackets.0.unit_price", found)
    assert right in told


@pytest.mark.parametrize("field", ["as_of", "currency", "region", "source_url", "source_kind", "taxes", "price_basis"])
def test_missing_headers(tmp_path: Path, field: str) -> None:
    line = next(line for line in R2.splitlines() if line.startswith(f"{field} = "))
    name, found, right = refusal(tmp_path, R2, old=f"{line}\n", new="", at="# EXAMPLE")
    assert (name, found) == (field, "nothing")
    assert right.startswith("add it: ")


@pytest.mark.parametrize("field", ["bytes_per_unit", "metering"])
def test_missing_units(tmp_path: Path, field: str) -> None:
    line = next(line for line in R2.splitlines() if line.startswith(f"{field} = "))
    name, found, right = refusal(tmp_path, R2, old=f"{line}\n", new="", at="[[tier]]")
    assert (name, found) == (f"tier.0.{field}", "nothing")
    assert right.startswith("add it: ")


@pytest.mark.parametrize("text", ["1", "1000", "1.0", '"GB"', "true"])
def test_units_that_are_no_unit(tmp_path: Path, text: str) -> None:
    old, new = "bytes_per_unit = 1_000_000_000", f"bytes_per_unit = {text}"
    name, _, right = refusal(tmp_path, R2, old=old, new=new)
    assert name == "tier.0.bytes_per_unit"
    assert "1073741824 (GiB)" in right


def test_an_inverted_window(tmp_path: Path) -> None:
    new = "schema = 1\neffective_from = 2026-02-01\neffective_to = 2026-02-01"
    found = refusal(tmp_path, R2, old="schema = 1", new=new, at="effective_to")
    assert found == ("effective_to", "2026-02-01", "a day after effective_from, 2026-02-01")


@pytest.mark.parametrize("day", ["2026-13-01", '"2026-02-30"', '"yesterday"', "2026-02-01T00:00:00Z", "20260201"])
def test_dates_that_are_none(tmp_path: Path, day: str) -> None:
    _, _, right = refusal(tmp_path, R2, old="as_of = 2024-07-01", new=f"as_of = {day}")
    assert "YYYY-MM-DD" in right or "Invalid" in right or "Expected" in right


BRACKETS = [
    ("equal", '{ up_to = "5", unit_price = "2" }, { up_to = "5", unit_price = "1" }, { unit_price = "1" }', "1.up_to"),
    ("less", '{ up_to = "5", unit_price = "2" }, { up_to = "4", unit_price = "1" }, { unit_price = "1" }', "1.up_to"),
    ("closed", '{ up_to = "5", unit_price = "2" }', "0.up_to"),
    ("open twice", '{ unit_price = "2" }, { unit_price = "1" }', "0.up_to"),
    ("zero", '{ up_to = "0", unit_price = "2" }, { unit_price = "1" }', "0.up_to"),
    ("width on the last", '{ unit_price = "2", width = "5" }', "0.width"),
    ("width alone", '{ width = "5", unit_price = "2" }, { unit_price = "1" }', "0.up_to"),
]


@pytest.mark.parametrize(("rows", "field"), [case[1:] for case in BRACKETS], ids=[case[0] for case in BRACKETS])
def test_bracket_bounds(tmp_path: Path, rows: str, field: str) -> None:
    """Strictly increasing, cumulative, and open at the end."""
    name, _, right = refusal(tmp_path, R2, old=STANDARD, new=f"storage_brackets = [{rows}]")
    assert name == f"tier.0.storage_brackets.{field}"
    assert right


def test_a_width_where_a_cumulative_bound_is_needed(tmp_path: Path) -> None:
    """The public price table that has 51,200 and then 512,000 for "next 450 TB", and its mirror image."""
    old = 'up_to = "512000", width = "460800"'
    name, found, right = refusal(tmp_path, AWS, old=old, new='up_to = "512000", width = "512000"')
    assert (name, found) == ("tier.0.storage_brackets.1.width", "512000")
    assert "the width of this one is 460800" in right
    name, found, right = refusal(tmp_path, AWS, old=old, new='up_to = "460800", width = "460800"')
    assert (name, found) == ("tier.0.storage_brackets.1.width", "460800")
    rows = '[{ up_to = "10240", unit_price = "2" }, { up_to = "4096", unit_price = "1" }, { unit_price = "1" }]'
    _, _, right = refusal(tmp_path, R2, old=STANDARD, new=f"storage_brackets = {rows}")
    assert "if this is a width, up_to is 14336" in right
    alone = old.replace('up_to = "512000", ', "")
    _, found, right = refusal(tmp_path, AWS, old=old, new=alone)
    assert found == "nothing"
    assert "which is 512000" in right


def test_no_bracket_at_all(tmp_path: Path) -> None:
    name, found, _ = refusal(tmp_path, R2, old=STANDARD, new="storage_brackets = []")
    assert (name, found) == ("tier.0.storage_brackets", "no bracket")


@pytest.mark.parametrize(
    ("text", "old", "new", "field"),
    [
        (R2, "month_hours = 720", "", "tier.0.month_hours"),
        (R2, "month_hours = 720", "month_hours = 721", "tier.0.month_hours"),
        (R2, "month_hours = 720", "month_hours = 0", "tier.0.month_hours"),
        (R2, "month_hours = 720", "month_hours = 720.0", "tier.0.month_hours"),
        (R2, "month_hours = 720", 'month_hours = "month"', "tier.0.month_hours"),
        (AWS, 'month_hours = "calendar"', "month_hours = 730", "tier.0.month_hours"),
        (AWS, '"byte_hours_calendar"', '"byte_hours_fixed_month"', "tier.0.month_hours"),
        (GCS, '"gib_hour"', '"gib_hour"\nmonth_hours = 730', "tier.0.month_hours"),
        (GCS, "bytes_per_unit = 1_073_741_824", "bytes_per_unit = 1_000_000_000", "tier.0.bytes_per_unit"),
    ],
)
def test_the_month_basis(tmp_path: Path, text: str, old: str, new: str, field: str) -> None:
    changed = text.replace(old, new, 1)
    assert list(faults(tmp_path, changed)) == [field]


def test_an_unknown_operation(tmp_path: Path) -> None:
    old, new = 'PutObject = "a"', 'PutObject = "a"\nPutObjekt = "a"'
    name, _, right = refusal(tmp_path, R2, old=old, new=new, at="PutObjekt")
    assert name == "operations.PutObjekt"
    assert '"PutObject"' in right


def test_an_operation_mapped_twice(tmp_path: Path) -> None:
    old, new = 'PutObject = "a"', 'PutObject = "a"\nPutObject = "b"'
    name, found, right = refusal(tmp_path, R2, old=old, new=new, at='PutObject = "b"')
    assert (name, found) == ("file", '"PutObject = "b""')
    assert "exactly one request class" in right


def test_an_operation_that_is_not_mapped(tmp_path: Path) -> None:
    """For each tier: the tier cannot be priced for what the daemon sends."""
    found = faults(tmp_path, R2.replace('ListParts = "a"\n', ""))
    assert sorted(found) == ["tier.0.operations.ListParts", "tier.1.operations.ListParts"]
    assert all("free ones too" in fault.right for fault in found.values())


def test_an_operation_in_a_class_without_a_price(tmp_path: Path) -> None:
    found = faults(
        tmp_path, R2.replace('CopyObject = "a"', 'CopyObject = "c"').replace('ListParts = "a"', 'ListParts = "z"')
    )
    assert sorted(found) == [
        "operations.CopyObject",
        "operations.ListParts",
        "tier.0.operations.CopyObject",
        "tier.0.operations.ListParts",
        "tier.1.operations.CopyObject",
        "tier.1.operations.ListParts",
    ]


IMMEDIATE = 'mode = "immediate"\nunit_price = "0.01"\nlatency_min_s = 0\nlatency_max_s = 1\n'


@pytest.mark.parametrize(
    ("text", "old", "new", "field"),
    [
        (AWS, "latency_max_s = 300\n", "", "tier.4.retrieval_modes.0.latency_max_s"),
        (R2, "latency_max_s = 1\n", "", "tier.1.retrieval_modes.0.latency_max_s"),
        (AWS, "latency_max_s = 300\n", "latency_max_s = 3\n", "tier.4.retrieval_modes.0.latency_max_s"),
        (AWS, "latency_max_s = 300\n", "latency_max_s = 300.5\n", "tier.4.retrieval_modes.0.latency_max_s"),
        (R2, 'retrieval = "immediate"', 'retrieval = "none"', "tier.1.retrieval_modes"),
        (R2, 'retrieval = "none"', 'retrieval = "immediate"', "tier.0.retrieval_modes"),
        (
            R2,
            'retrieval = "immediate"',
            'retrieval = "restore"\ntemp_copy_tier = "standard"',
            "tier.1.retrieval_modes.0.request_price",
        ),
        (AWS, 'temp_copy_tier = "standard"\n', "", "tier.4.temp_copy_tier"),
        (AWS, 'temp_copy_tier = "standard"\n', 'temp_copy_tier = "hot"\n', "tier.4.temp_copy_tier"),
        (AWS, 'staging_tier = "standard"\n', 'staging_tier = "hot"\n', "tier.4.staging_tier"),
        (AWS, 'billed_at = "standard"', 'billed_at = "hot"', "tier.4.per_object_overhead.1.billed_at"),
        (AWS, 'mode = "bulk"', 'mode = "standard"', "tier.4.retrieval_modes.2.mode"),
        (AWS, "request_unit_count = 1000\n", "", "tier.4.retrieval_modes.0.request_unit_count"),
        (AWS, 'request_price = "10"\n', "", "tier.4.retrieval_modes.0.request_price"),
    ],
)
def test_archives_and_retrieval(tmp_path: Path, text: str, old: str, new: str, field: str) -> None:
    assert old in text
    assert field in faults(tmp_path, text.replace(old, new, 1))


def test_an_archive_without_any_mode(tmp_path: Path) -> None:
    text = RUNPOD.replace('"volume_provisioned"', '"archive_object"').replace('"provisioned_hours"', '"unspecified"')
    found = faults(tmp_path, text)
    assert "at least one mode" in found["tier.0.retrieval"].right


@pytest.mark.parametrize("key", ["mode", "clock_basis", "granularity", "triggers", "days"])
def test_a_minimum_duration_says_all_about_itself(tmp_path: Path, key: str) -> None:
    at = R2.index("[tier.min_duration]")
    start = R2.index(f"\n{key} = ", at) + 1
    line = R2[start : R2.index("\n", start) + 1]
    name, found, _ = refusal(tmp_path, R2, old=line, new="", at="[tier.min_duration]")
    assert (name, found) == (f"tier.1.min_duration.{key}", "nothing")


@pytest.mark.parametrize("key", ["scope", "period", "unit", "applies_to", "rounding_order", "bracket_order"])
def test_a_free_allowance_says_all_about_itself(tmp_path: Path, key: str) -> None:
    at = R2.index("[[tier.free_allowance]]")
    start = R2.index(f"\n{key} = ", at)
    text = R2[:start] + R2[R2.index("\n", start + 1) :]
    (fault,) = faults(tmp_path, text).values()
    assert (fault.field, fault.found) == (f"tier.0.free_allowance.0.{key}", "nothing")
    assert fault.line == text[: text.index("[[tier.free_allowance]]")].count("\n") + 1


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('unit = "GB-month"', 'unit = "GB"', "tier.0.free_allowance.0.unit"),
        ('unit = "request"', 'unit = "GB"', "tier.0.free_allowance.1.unit"),
        ('applies_to = "a"', 'applies_to = "c"', "tier.0.free_allowance.1.applies_to"),
        ('quantity = "10"', 'quantity = "0"', "tier.0.free_allowance.0.quantity"),
        ('quantity = "10"', "quantity = 10", "tier.0.free_allowance.0.quantity"),
    ],
)
def test_allowances_measure_what_they_are_for(tmp_path: Path, old: str, new: str, field: str) -> None:
    assert refusal(tmp_path, R2, old=old, new=new)[0] == field


ZEROS = [
    (R2, '"0.015"', '"0"', "tier.0.storage_brackets.0.unit_price"),
    (R2, 'price = "4.50"', 'price = "0.000"', "tier.0.request_classes.a.price"),
    (AWS, 'price = "0.02"\n\n[tier.min', 'price = "0"\n\n[tier.min', "tier.3.transition_request.price"),
    (R2, 'unit_price = "0.01"\nlatency', 'unit_price = "0"\nlatency', "tier.1.retrieval_modes.0.unit_price"),
    (R2, '"0", free = true }', '"0" }', "transfer.0.brackets.0.unit_price"),
    (AWS, 'price = "0.0025"\nmin', 'price = "0"\nmin', "tier.6.monitoring.price"),
    (AWS, 'price_per_hour = "0.045"', 'price_per_hour = "0"', "fixed_fee.0.price_per_hour"),
    (AWS, 'unit_price = "0.0125"\nresets', 'unit_price = "0"\nresets', "tier.6.auto_transitions.0.unit_price"),
    (HF, 'fee = "9"', 'fee = "0"', "tier.0.plan.fee"),
]


@pytest.mark.parametrize(("text", "old", "new", "field"), ZEROS)
def test_a_price_of_zero_is_said_twice(tmp_path: Path, text: str, old: str, new: str, field: str) -> None:
    name, _, right = refusal(tmp_path, text, old=old, new=new)
    assert name == field
    assert "free = true" in right


def test_free_without_a_price_of_zero(tmp_path: Path) -> None:
    name, found, _ = refusal(tmp_path, R2, old=STANDARD, new=STANDARD.replace(" }", ", free = true }"))
    assert (name, found) == ("tier.0.storage_brackets.0.free", "true")


def test_unknown_keys_name_the_known_ones(tmp_path: Path) -> None:
    name, found, right = refusal(tmp_path, R2, old="schema = 1", new='schema = 1\ncurency = "USD"', at="curency")
    assert (name, found) == ("curency", '"USD"')
    assert "did you mean currency?" in right
    name, _, right = refusal(tmp_path, R2, old="days = 30", new="days = 30\nday = 30", at="day = 30")
    assert name == "tier.1.min_duration.day"
    assert "clock_basis" in right


@pytest.mark.parametrize("count", ["0", "-1", "1000.0", '"1000"'])
def test_unit_counts(tmp_path: Path, count: str) -> None:
    name, _, right = refusal(tmp_path, R2, old="unit_count = 1_000_000", new=f"unit_count = {count}")
    assert name == "tier.0.request_classes.a.unit_count"
    assert right in {"at least 1", "write a whole number without quotes"}


def test_parts_that_cannot_hold_the_largest_object(tmp_path: Path) -> None:
    """A quota with which an allowed object needs more than 10,000 parts."""
    old, new = "max_part_bytes = 5_368_709_120", "max_part_bytes = 500_000_000"
    name, _, right = refusal(tmp_path, GCS, old=old, new=new, at="max_object_bytes")
    assert name == "tier.0.quota.max_object_bytes"
    assert "10000 parts" in right


def test_duplicate_tiers(tmp_path: Path) -> None:
    new = 'tier_id = "standard"\nstorage_class = "STANDARD_IA"'
    old = 'tier_id = "infrequent-access"\nstorage_class = "STANDARD_IA"'
    changed = R2.replace(old, new)
    (fault,) = faults(tmp_path, changed).values()
    assert (fault.field, fault.found) == ("tier.1.tier_id", "standard")
    assert fault.line == changed[: changed.rindex('tier_id = "standard"')].count("\n") + 1
    changed = R2.replace('"STANDARD_IA"', '"STANDARD"')
    assert list(faults(tmp_path, changed)) == ["tier.1.storage_class"]


@pytest.mark.parametrize("page", ["github.com/x", "cloudflare.com.example.org/r2", "notcloudflare.com/r2"])
def test_a_third_partys_page_is_no_provider_page(tmp_path: Path, page: str) -> None:
    text = R2.replace('source_kind = "example"', 'source_kind = "provider_page"')
    old = "https://developers.cloudflare.com/r2/pricing/"
    name, found, right = refusal(tmp_path, text, old=old, new=f"https://{page}")
    assert (name, found) == ("source_url", f"https://{page}")
    assert "cloudflare.com" in right
    assert "third_party" in right


def test_a_meters_own_page_counts_too(tmp_path: Path) -> None:
    text = R2.replace('source_kind = "example"', 'source_kind = "provider_page"')
    new = 'metering = "daily_peak_avg"\nsource_url = "https://example.org/"'
    assert refusal(tmp_path, text, old='metering = "daily_peak_avg"', new=new, at='source_url = "https://example')[
        0
    ] == ("tier.0.source_url")


@pytest.mark.parametrize(
    "url", ["http://developers.cloudflare.com", "https://u:p@x.com/", "https://", "x", "https://[", "https://a b"]
)
def test_urls(tmp_path: Path, url: str) -> None:
    name, _, right = refusal(
        tmp_path, R2, old="https://developers.cloudflare.com/r2/pricing/", new=url, at="source_url"
    )
    assert name == "source_url"
    assert "https" in right


def test_a_contract_names_its_people(tmp_path: Path) -> None:
    found = faults(tmp_path, R2.replace('source_kind = "example"', 'source_kind = "contract"'))
    assert sorted(found) == ["entered_by", "reviewed_by"]


@pytest.mark.parametrize(
    ("text", "old", "new", "field"),
    [
        (R2, "regionless = true\n", "", "region"),
        (R2, 'currency = "USD"', 'currency = "dollars"', "currency"),
        (R2, 'taxes = "excluded"', 'taxes = "included"', "taxes"),
        (R2, 'kind = "object"', 'kind = "plan_quota"', "tier.0.metering"),
        (R2, 'kind = "object"', 'kind = "tape"', "tier.0.kind"),
        (RUNPOD, '"volume_provisioned"', '"object"', "tier.0.metering"),
        (RUNPOD, '"volume_provisioned"', '"object"', "tier.0.provisioned"),
        (HF, '"plan_quota"', '"filesystem_metered"', "tier.0.plan"),
        (R2, 'ranges = ["1xx", "2xx", "3xx", "4xx"]', 'ranges = ["2XX"]', "billed_status.ranges.0"),
        (R2, 'ranges = ["1xx", "2xx", "3xx", "4xx"]', "ranges = []", "billed_status.ranges"),
        (R2, "status = 403", "status = 401", "billed_status.exceptions.1.status"),
        (R2, "status = 403", "status = 99", "billed_status.exceptions.1.status"),
        (GCS, '[billed_status]\nranges = ["2xx"]\n', "", "billed_status"),
        (RUNPOD, '"unmetered"', '"billed"', "tier.0.request_classes"),
        (R2, 'request_billing = "billed"', 'request_billing = "unmetered"', "tier.0.request_classes"),
        (AWS, 'to_zone = "us-east-1"\npath = "nat"', 'to_zone = "us-east-1"\npath = "cross_az"', "transfer.5"),
        (AWS, 'applies_to = "transfer"', 'applies_to = "storage"', "transfer.0.free_allowance.0.unit"),
        (RUNPOD, "grow_only = true", 'grow_only = "true"', "tier.0.provisioned.grow_only"),
        (RUNPOD, "max_bytes = 4_000_000_000_000\nstep", "max_bytes = 1\nstep", "tier.0.provisioned.max_bytes"),
        (HF, "requests_window_s = 300\n", "", "tier.0.quota.requests_window_s"),
        (R2, "abort_incomplete_days = 7", "noncurrent_days = 7", "tier.0.noncurrent.noncurrent_days"),
        (R2, 'triggers = ["delete"', 'triggers = ["overwrite"', "tier.1.min_duration.triggers"),
        (R2, 'visibility = "private"', 'visibility = "secret"', "tier.0.access.visibility"),
        (R2, 'increment = "1"', 'increment = "0"', "tier.0.storage_billing.increment"),
    ],
)
def test_what_else_does_not_fit_together(tmp_path: Path, text: str, old: str, new: str, field: str) -> None:
    assert old in text
    assert field in faults(tmp_path, text.replace(old, new, 1))


def test_one_fee_has_one_id(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, AWS + AWS[AWS.index("[[fixed_fee]]") :]).values()
    assert (fault.field, fault.found) == ("fixed_fee.1.id", "nat-gateway")


def test_a_tiers_own_operations_name_its_own_classes(tmp_path: Path) -> None:
    text = R2.replace("[tier.request_classes.a]", '[tier.operations]\nCopyObject = "c"\n\n[tier.request_classes.a]', 1)
    (fault,) = faults(tmp_path, text).values()
    assert (fault.field, fault.found) == ("tier.0.operations.CopyObject", "c")
    assert fault.line == text[: text.index('CopyObject = "c"')].count("\n") + 1


def test_parts_are_staged_where_requests_are_billed(tmp_path: Path) -> None:
    volume = RUNPOD[RUNPOD.index("[[tier]]") : RUNPOD.index("[[transfer]]")]
    text = R2.replace('retrieval = "none"', 'retrieval = "none"\nstaging_request_tier = "volume"', 1) + volume
    assert "requests are billed" in faults(tmp_path, text)["tier.0.staging_request_tier"].right


def test_one_pool_is_one_allowance(tmp_path: Path) -> None:
    start = AWS.index("\n[[transfer.free_allowance]]")
    allowance = AWS[start : AWS.index("\n[[transfer]]", start)]
    at = AWS.index("\n[[transfer]]", AWS.index('path = "cross_region"'))
    text = AWS[:at] + allowance.replace('"100"', '"200"') + AWS[at:]
    (fault,) = faults(tmp_path, text).values()
    assert (fault.field, fault.found) == ("transfer.6.free_allowance.0.pool", "aws-free-egress")


def test_one_pool_of_transfers_has_one_price_list(tmp_path: Path) -> None:
    text = GCS.replace('to_zone = "internet"', 'to_zone = "internet"\npool = "all"').replace(
        'from_zone = "internet"', 'from_zone = "internet"\npool = "all"'
    )
    (fault,) = faults(tmp_path, text).values()
    assert (fault.field, fault.found) == ("transfer.1.pool", "all")


def test_what_is_found_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    found = faults(tmp_path, 'schema = 1\n"\\u001b[2J" = "\\u001b[31m"\n')
    assert all(fault.field.isprintable() and fault.found.isprintable() for fault in found.values())
    assert any("x1b" in field for field in found)
