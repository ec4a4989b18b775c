"""The report as text for a terminal of 80 columns."""

import textwrap
from collections.abc import Callable, Iterator, Sequence

from cost.compare import Comparison, Row
from cost.estimate import Amount
from cost.pricing.retrieval import Verdict
from cost.reconcile import Reconciliation, Tally, Variance
from cost.report.contents import Report
from cost.report.words import day_text, money, number, printable, quantity, short, span

WIDTH = 80
_NAME = 34
_MARKS = {Verdict.PASS: "PASS", Verdict.CONDITIONAL: "COND", Verdict.FAIL: "FAIL"}


def render(report: Report) -> str:
    """Return the report, lines of at most 80 columns, the last one ended."""
    parts = [
        _header(report),
        _totals(report),
        *(_breakdown(report, name) for name in report.breakdowns()),
        _liabilities(report),
        _recovery(report),
        [] if report.comparison is None else _comparison(report.comparison),
        [] if report.reconciliation is None else _reconciliation(report.reconciliation),
        _basis(report),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def comparison(found: Comparison) -> str:
    """Return a comparison alone."""
    return "\n".join(_comparison(found)) + "\n"


def reconciliation(found: Reconciliation) -> str:
    """Return a reconciliation alone."""
    return "\n".join(_reconciliation(found)) + "\n"


def _wrapped(text: str, indent: str = "", first: str | None = None) -> list[str]:
    lead = indent if first is None else first
    return textwrap.wrap(
        printable(text), WIDTH, initial_indent=lead, subsequent_indent=indent, break_on_hyphens=False
    ) or [lead.rstrip()]


def _pair(name: str, amount: str) -> list[str]:
    """Return a name on the left and its amount on the right, on lines of their own where they do not fit."""
    name = printable(name)
    room = WIDTH - 2 - len(name) - len(amount)
    if room >= 1:
        return [f"  {name}{' ' * room}{amount}"]
    return [*_wrapped(name, "    ", "  "), amount.rjust(WIDTH)]


def _header(report: Report) -> list[str]:
    estimate = report.estimate
    lines = _wrapped(report.title)
    lines += _wrapped(
        f"{day_text(estimate.start)} to {day_text(estimate.end)} UTC, in {estimate.currency}, taxes excluded; "
        f"estimated on {estimate.today}" + (f" by ckptier {report.version}" if report.version else "")
    )
    for banner in report.banners:
        lines += _wrapped(banner, "    ", "  ! ")
    for judged in report.judgements:
        lines += _wrapped(str(judged), "    ", "  * ")
    return lines


def _totals(report: Report) -> list[str]:
    found, currency = report.totals, report.estimate.currency
    rows: list[tuple[str, Amount | None]] = [
        ("the run", found.total),
        ("a month", found.per_month),
        ("a generation written", found.per_generation),
        (f"a generation kept at the end ({found.retained})", found.per_retained),
        ("a restore", found.per_restore),
        ("a TB protected for a month", found.per_protected),
    ]
    lines = ["Totals" + f"low / expected / high, {currency}".rjust(WIDTH - 6)]
    for name, amount in rows:
        if amount is not None:
            lines += _pair(name, _three(amount))
    return lines


def _three(amount: Amount) -> str:
    if amount.expected is not None:
        return money(amount)
    return f"{money(amount.low)} / open / {money(amount.high)}"


def _breakdown(report: Report, name: str) -> list[str]:
    lines = [f"By {name}"]
    for key, amount in report.breakdowns()[name].items():
        lines += _pair(key, money(amount))
    return lines


def _liabilities(report: Report) -> list[str]:
    if not report.totals.liability.high:
        return []
    lines = ["Open liabilities, not in the total: what deleting everything at the end would add"]
    for line in report.estimate.liabilities:
        lines += _pair(f"{line.about.tier} · {line.about.reason}", money(Amount(line.low.amount, line.high.amount)))
    return lines


def _recovery(report: Report) -> list[str]:
    lines = ["Recovery"] if report.recovery else []
    for tier, found in report.recovery.items():
        lines += _wrapped(f"{_MARKS[found.verdict]} {tier}: {found.reason}", "       ", "  ")
    return lines


def _comparison(found: Comparison) -> list[str]:
    lines = _wrapped(
        f"Tiers, what will do first and then by cost in {found.currency}; "
        f"the run has to train again within {span(found.needs.recover_within)}"
    )
    lines.append(f"{'':4}{'candidate':{_NAME}}{'a month':>18}{'a restore':>11}{'restored in':>13}".rstrip())
    for rank, row in enumerate(found.rows, 1):
        lines += list(_row(rank, row))
    return lines


def _row(rank: int, row: Row) -> Iterator[str]:
    month = "no price" if row.per_month is None else money(row.per_month)
    restore = "-" if row.per_restore is None else money(row.per_restore)
    name = short(row.candidate.name, _NAME - 2)
    yield f"{rank:>2}  {name:{_NAME}}{month:>18}{restore:>11}{span(row.restore.high):>13}".rstrip()
    yield from _wrapped(_MARKS[row.standing] + (f": {row.reason}" if row.reason else ""), "      ", "    ")
    amounts = [
        ("total", row.total),
        ("without egress", row.without_egress),
        ("egress", row.egress),
    ]
    texts = [f"{label} {money(amount)}" for label, amount in amounts if amount is not None]
    if row.gb_months is not None:
        low, high = (number(each, 1) for each in row.gb_months)
        texts.append(f"stored {low if low == high else f'{low} to {high}'} GB-month")
    if texts:
        yield from _wrapped("; ".join(texts), "    ")
    said = {(each.check, each.reason) for each in row.findings if each.reason and each.reason in row.reason}
    for each in row.findings:
        if each.verdict is not Verdict.PASS and (each.check, each.reason) not in said:
            yield from _wrapped(f"{each.check}: {each.reason}", "      ", "    ")


def _reconciliation(found: Reconciliation) -> list[str]:
    verdict = "within every gate" if found.passed else f"{len(found.failed)} of {len(found.rows)} meters outside"
    lines = _wrapped(
        f"{found.expected_name} against {found.actual_name}: {verdict}; "
        f"difference {number(found.delta)} {found.currency}"
    )
    for row in found.rows:
        lines += _variance(row)
    for ours, theirs in found.tallies:
        lines += _wrapped(counts(ours, theirs), "    ", "  ")
    return lines


def _variance(row: Variance) -> list[str]:
    key = row.key
    off = "-" if row.deviation is None else f"{number(row.deviation * 100)} %"
    mark = "ok  " if row.passed else "FAIL"
    lines = _pair(f"{mark} {key.meter} {key.month} {key.category}", f"{number(row.delta)}")
    detail = (
        f"{row.drift}; {quantity(row.expected)} to {quantity(row.actual)} {row.unit}, off by {off}, "
        f"gate {row.limit * 100} %; by quantity {number(row.quantity_effect)}, by rate {number(row.rate_effect)}"
    )
    return lines + _wrapped(detail + (f"; {row.hint}" if row.hint else ""), "       ")


def counts(ours: Tally | None, theirs: Tally | None) -> str:
    """Return what was counted for a tier on both sides, whatever it costs."""
    sides = (ours, theirs)
    tier = next((each.tier for each in sides if each is not None), "")
    parts = [
        f"{name} " + " to ".join("-" if each is None else f"{read(each):,}" for each in sides)
        for name, read in _COUNTS.items()
    ]
    ages = [None if each is None else each.mean_age for each in sides]
    parts.append("age at deletion " + " to ".join("-" if age is None else span(int(age)) for age in ages))
    return f"{tier or 'no tier'}: " + "; ".join(parts)


_COUNTS: dict[str, Callable[[Tally], int]] = {
    "attempts": lambda tally: tally.attempts,
    "billable": lambda tally: tally.billable,
    "bytes moved": lambda tally: tally.bytes_moved,
    "deleted objects": lambda tally: tally.deleted,
}


def _basis(report: Report) -> list[str]:
    lines = ["What this rests on"]
    for card in report.cards:
        lines += _wrapped(
            f"{card.card_id}: read {card.as_of}, {card.age_days} days old, {card.freshness}, {card.source_kind}",
            "    ",
            "  ",
        )
        lines += _wrapped(card.source_url, "    ")
    for basis in report.bases:
        lines += _wrapped(f"{basis.tier}: {basis.unit}, {basis.month}, {basis.metering}", "    ", "  ")
    lines += _listed(report.estimate.assumptions)
    return [*lines, f"  digest {report.digest}"]


def _listed(texts: Sequence[str]) -> list[str]:
    return [line for text in texts for line in _wrapped(text, "    ", "  - ")]
