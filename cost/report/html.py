"""The report as one HTML file that needs nothing else: no script, no request, figures inside.

The page's own policy forbids every request, and every text in it is escaped.
"""

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from cost.compare import Comparison, Row
from cost.estimate import Amount
from cost.pricing.lines import Charge, Line
from cost.pricing.retrieval import Verdict
from cost.reconcile import Drift, Reconciliation, Variance
from cost.report.contents import Report
from cost.report.plots import choices, overtime
from cost.report.text import counts
from cost.report.words import FINE, day_text, decimals, money, number, printable, quantity, span
from cost.units import divide, multiply, plain

_KINDS = {Verdict.PASS: "good", Verdict.CONDITIONAL: "warn", Verdict.FAIL: "bad"}


def render(report: Report) -> str:
    """Return the page, the same bytes for the same report; needs the extra ``cost`` (jinja2, matplotlib)."""
    loader = PackageLoader("cost.report", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, finalize=_final
    )
    css, _, _ = loader.get_source(environment, "report.css")
    page = environment.get_template("report.html.j2")
    return page.render(css=css, figures=figures(report), **_context(report)) + "\n"


def _final(value: Any) -> Any:
    """Return a plain text without control characters; what was marked as safe is left alone."""
    return printable(value) if type(value) is str else value


def figures(report: Report) -> dict[str, Any]:
    """Return every figure of a report by name, None for those that it has no figures for."""
    return {
        "stored": overtime.stored(report),
        "cumulative": overtime.cumulative(report),
        "frontier": choices.frontier(report),
        "cadence": choices.against_cadence(report),
        "sensitivity": choices.tornado(report),
    }


def _context(report: Report) -> dict[str, Any]:
    estimate = report.estimate
    return {
        "title": report.title,
        "period": f"{day_text(estimate.start)} to {day_text(estimate.end)} (UTC)",
        "currency": estimate.currency,
        "today": estimate.today.isoformat(),
        "version": report.version,
        "budgets": [("good" if each.within else "bad", str(each)) for each in report.judgements],
        "banners": report.banners,
        "tiles": _tiles(report),
        "recovery": [
            {"kind": _KINDS[each.verdict], "verdict": str(each.verdict), "tier": tier, "reason": each.reason}
            for tier, each in report.recovery.items()
        ],
        "breakdowns": [(name, _sums(sums)) for name, sums in report.breakdowns().items()],
        "liabilities": [
            {"tier": line.about.tier, "reason": line.about.reason, "amount": _line_amount(line)}
            for line in estimate.liabilities
        ],
        "ranks": [] if report.comparison is None else _ranks(report.comparison),
        "target": "" if report.comparison is None else span(report.comparison.needs.recover_within),
        "meters": None if report.reconciliation is None else _meters(report.reconciliation),
        "cards": [
            {
                "id": card.card_id,
                "as_of": card.as_of.isoformat(),
                "age": f"{card.age_days} days, {card.freshness.replace('_', ' ')}",
                "kind": card.source_kind.replace("_", " "),
                "url": card.source_url,
            }
            for card in report.cards
        ],
        "bases": report.bases,
        "assumptions": estimate.assumptions,
        "digest": report.digest,
        "lines": [_line(line) for line in estimate.lines],
    }


def _tiles(report: Report) -> list[dict[str, str]]:
    found, currency = report.totals, report.estimate.currency
    amounts = [
        ("The whole run", found.total),
        ("A month", found.per_month),
        ("A generation written", found.per_generation),
        (f"A generation kept at the end ({found.retained})", found.per_retained),
        ("A restore", found.per_restore),
        ("A TB protected for a month", found.per_protected),
    ]
    if found.liability.high:
        amounts.append(("Due if all were deleted at the end", found.liability))
    return [
        {"name": name, "value": money(amount, currency), "note": _open(amount)}
        for name, amount in amounts
        if amount is not None
    ]


def _open(amount: Amount) -> str:
    return "" if amount.expected is not None else "low to high: a card leaves the metering open"


def _sums(sums: Mapping[str, Amount]) -> list[dict[str, str]]:
    most = max((amount.high for amount in sums.values()), default=None)
    return [
        {
            "name": name,
            "amount": money(amount),
            "share": f"{divide(multiply(amount.high, 100), most):.1f}" if most else "0",
        }
        for name, amount in sums.items()
    ]


def _ranks(found: Comparison) -> list[dict[str, Any]]:
    return [_rank(rank, row) for rank, row in enumerate(found.rows, 1)]


def _rank(rank: int, row: Row) -> dict[str, Any]:
    stored = ("-", "-") if row.gb_months is None else tuple(number(each, 1) for each in row.gb_months)
    return {
        "rank": rank,
        "name": row.candidate.name,
        "verdict": str(row.standing),
        "month": _amount(row.per_month),
        "total": _amount(row.total),
        "without": _amount(row.without_egress),
        "restore": _amount(row.per_restore),
        "time": _ends(span(row.restore.low), span(row.restore.high)),
        "stored": _ends(*stored),
        "checks": [
            {"name": str(each.check), "verdict": str(each.verdict), "reason": each.reason} for each in row.findings
        ],
    }


def _amount(amount: Amount | None) -> tuple[str, ...]:
    return ("-",) if amount is None else _ends(decimals(amount.low), decimals(amount.high))


def _ends(low: str, high: str) -> tuple[str, ...]:
    """Return both ends of a range, or the one that they are."""
    return (low,) if low == high else (low, high)


def _meters(found: Reconciliation) -> dict[str, Any]:
    outside = f"{len(found.failed)} of {len(found.rows)} meters are outside their gates"
    return {
        "title": f"Reconciled: {found.expected_name} against {found.actual_name}",
        "verdict": f"{'Every meter is within its gate' if found.passed else outside}; "
        f"the difference is {number(found.delta)} {found.currency}.",
        "rows": [_variance(row) for row in found.rows],
        "counts": [counts(ours, theirs) for ours, theirs in found.tallies],
    }


def _variance(row: Variance) -> dict[str, Any]:
    kind = [str(row.drift) if row.drift is not Drift.NONE else "no difference", f"gate {plain(row.limit * 100)} %"]
    return {
        "meter": row.key.meter,
        "verdict": "pass" if row.passed else "fail",
        "off": "-" if row.deviation is None else f"{number(row.deviation * 100)} %",
        "expected": quantity(row.expected),
        "actual": quantity(row.actual),
        "unit": row.unit,
        "by_quantity": number(row.quantity_effect),
        "by_rate": number(row.rate_effect),
        "delta": number(row.delta),
        "about": "; ".join(filter(None, (row.key.category, str(row.key.month), *kind, row.hint))),
    }


def _line(line: Line) -> dict[str, str]:
    about = line.about
    return {
        "meter": line.meter,
        "purpose": ", ".join(text for text in (about.category, about.reason, about.label) if text),
        "month": str(line.month),
        "quantity": " to ".join(_ends(quantity(line.low.quantity), quantity(line.high.quantity))),
        "unit": line.unit,
        "price": _prices(line.high) or "nothing charged",
        "amount": _line_amount(line),
    }


def _prices(charge: Charge) -> str:
    """Return what was charged, bracket by bracket."""
    parts = []
    for each in charge.slices:
        price = "free" if each.free else plain(each.unit_price)
        parts.append(f"{quantity(each.quantity)} at {price}" + (f" per {each.per:,}" if each.per != 1 else ""))
    return " + ".join(parts)


def _line_amount(line: Line) -> str:
    return " to ".join(_ends(decimals(line.low.amount, FINE), decimals(line.high.amount, FINE)))
