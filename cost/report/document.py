"""The report as JSON: decimals as strings with every digit, fields added and never repurposed.

Quantities are exact fractions; they are written as decimals of up to 60 significant digits.
"""

import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from cost.budget import Judgement
from cost.compare import Comparison, Row
from cost.estimate import Amount, CardUse
from cost.pricing.brackets import Slice, as_decimal
from cost.pricing.lines import Charge, Line
from cost.pricing.periods import instant_of
from cost.reconcile import Reconciliation, Tally, Variance
from cost.report.contents import Report
from cost.units import plain, rfc3339

FORMAT = 1
"""Raised when a field changes its meaning, never for one that is added."""


def render(report: Report) -> str:
    """Return the report as one JSON document, ended by a newline."""
    return json.dumps(document(report), indent=2, ensure_ascii=False) + "\n"


def document(report: Report) -> dict[str, Any]:
    """Return the report as plain values: strings, integers, booleans, lists and objects."""
    estimate, found = report.estimate, report.totals
    return {
        "format": FORMAT,
        "plan": estimate.plan_id,
        "version": report.version,
        "currency": estimate.currency,
        "taxes": "excluded",
        "estimated_on": estimate.today.isoformat(),
        "start": _instant(estimate.start),
        "end": _instant(estimate.end),
        "cards": [_card(card) for card in report.cards],
        "banners": list(report.banners),
        "bases": [{"tier": b.tier, "unit": b.unit, "month": b.month, "metering": b.metering} for b in report.bases],
        "assumptions": list(estimate.assumptions),
        "assumptions_digest": report.digest,
        "totals": {
            "run": _amount(found.total),
            "month": _amount(found.per_month),
            "generation": _amount(found.per_generation),
            "retained_generation": _amount(found.per_retained),
            "restore": _amount(found.per_restore),
            "protected_tb_month": _amount(found.per_protected),
            "open_liability": _amount(found.liability),
        },
        "generations": estimate.generations,
        "retained_generations": found.retained,
        "restores": estimate.restores,
        "bound_bytes": report.bound,
        "breakdowns": {
            name.replace(" ", "_"): {key: _amount(amount) for key, amount in sums.items()}
            for name, sums in report.breakdowns().items()
        },
        "lines": [_line(line, report.formulas) for line in estimate.lines],
        "liabilities": [_line(line, report.formulas) for line in estimate.liabilities],
        "budgets": [_judgement(each) for each in report.judgements],
        **_studies(report),
    }


def _studies(report: Report) -> dict[str, Any]:
    study = report.cadence
    return {
        "recovery": {
            tier: {
                "low_s": each.low,
                "high_s": each.high,
                "target_s": each.target,
                "verdict": str(each.verdict),
                "reason": each.reason,
            }
            for tier, each in report.recovery.items()
        },
        "comparison": None if report.comparison is None else comparison(report.comparison),
        "cadence": None
        if study is None
        else {
            "current_s": study.current,
            "best_s": None if study.best is None else round(study.best),
            "points": [{"cadence_s": p.cadence, "bill": _amount(p.bill), "lost": plain(p.lost)} for p in study.points],
        },
        "sensitivity": [
            {
                "name": swing.name,
                "base": _amount(swing.base),
                "outcomes": [{"change": text, "total": _amount(amount)} for text, amount in swing.outcomes],
            }
            for swing in report.sensitivity
        ],
        "reconciliation": None if report.reconciliation is None else reconciliation(report.reconciliation),
    }


def comparison(found: Comparison) -> dict[str, Any]:
    """Return a comparison as plain values, rows by rank."""
    needs = found.needs
    return {
        "currency": found.currency,
        "estimated_on": found.today.isoformat(),
        "recover_within_s": needs.recover_within,
        "private": needs.private,
        "rows": [{"rank": rank, **_row(row)} for rank, row in enumerate(found.rows, 1)],
    }


def _row(row: Row) -> dict[str, Any]:
    stored = row.gb_months
    return {
        "name": row.candidate.name,
        "standing": str(row.standing),
        "reason": row.reason,
        "cards": [card.card_id for card in row.candidate.cards],
        "gb_month": None if stored is None else {"low": _fraction(stored[0]), "high": _fraction(stored[1])},
        "month": _amount(row.per_month),
        "restore": _amount(row.per_restore),
        "total": _amount(row.total),
        "without_egress": _amount(row.without_egress),
        "egress": _amount(row.egress),
        "open_liability": None if row.estimate is None else _amount(row.estimate.open_liability),
        "restore_low_s": row.restore.low,
        "restore_high_s": row.restore.high,
        "checks": [
            {"check": str(each.check), "verdict": str(each.verdict), "reason": each.reason} for each in row.findings
        ],
    }


def reconciliation(found: Reconciliation) -> dict[str, Any]:
    """Return a reconciliation as plain values, the largest difference first."""
    return {
        "expected": found.expected_name,
        "actual": found.actual_name,
        "currency": found.currency,
        "passed": found.passed,
        "difference": _fraction(found.delta),
        "meters": [_variance(row) for row in found.rows],
        "counts": [{"expected": _tally(ours), "actual": _tally(theirs)} for ours, theirs in found.tallies],
    }


def _variance(row: Variance) -> dict[str, Any]:
    return {
        "tier": row.key.tier,
        "meter": row.key.meter,
        "category": str(row.key.category),
        "month": str(row.key.month),
        "unit": row.unit,
        "expected_quantity": _fraction(row.expected),
        "actual_quantity": _fraction(row.actual),
        "expected_amount": _fraction(row.expected_amount),
        "actual_amount": _fraction(row.actual_amount),
        "difference": _fraction(row.delta),
        "quantity_effect": _fraction(row.quantity_effect),
        "rate_effect": _fraction(row.rate_effect),
        "drift": str(row.drift),
        "deviation": None if row.deviation is None else _fraction(row.deviation),
        "gate": plain(row.limit),
        "passed": row.passed,
        "hint": row.hint,
    }


def _tally(tally: Tally | None) -> dict[str, Any] | None:
    if tally is None:
        return None
    return {
        "tier": tally.tier,
        "attempts": tally.attempts,
        "billable_attempts": tally.billable,
        "bytes_moved": tally.bytes_moved,
        "byte_seconds": tally.byte_seconds,
        "deleted_objects": tally.deleted,
        "mean_age_at_deletion_s": None if tally.mean_age is None else _fraction(tally.mean_age),
    }


def _line(line: Line, formulas: Mapping[str, str]) -> dict[str, Any]:
    return {
        "card": line.card,
        "meter": line.meter,
        "tier": line.about.tier,
        "category": str(line.about.category),
        "reason": line.about.reason,
        "label": line.about.label,
        "month": str(line.month),
        "formula": formulas[line.meter],
        "unit": line.unit,
        "price_currency": line.price_currency,
        "low": _charge(line.low),
        "high": _charge(line.high),
    }


def _charge(charge: Charge) -> dict[str, Any]:
    return {
        "quantity": _fraction(charge.quantity),
        "amount": plain(charge.amount),
        "slices": [_slice(each) for each in charge.slices],
    }


def _slice(piece: Slice) -> dict[str, Any]:
    return {
        "quantity": _fraction(piece.quantity),
        "unit_price": plain(piece.unit_price),
        "per": piece.per,
        "free": piece.free,
        "amount": _fraction(piece.amount),
    }


def _card(card: CardUse) -> dict[str, Any]:
    return {
        "id": card.card_id,
        "as_of": card.as_of.isoformat(),
        "age_days": card.age_days,
        "source_kind": str(card.source_kind),
        "source_url": card.source_url,
        "freshness": str(card.freshness),
    }


def _judgement(judged: Judgement) -> dict[str, Any]:
    return {
        "per": str(judged.budget.per),
        "month": None if judged.month is None else str(judged.month),
        "limit": plain(judged.budget.limit),
        "spent": _amount(judged.spent),
        "over": plain(judged.over),
        "within": judged.within,
    }


def _amount(amount: Amount | None) -> dict[str, Any] | None:
    """Return a sum; ``expected`` is null where a card leaves the metering open."""
    if amount is None:
        return None
    return {
        "low": plain(amount.low),
        "expected": None if amount.expected is None else plain(amount.expected),
        "high": plain(amount.high),
    }


def _fraction(value: Fraction) -> str:
    return plain(as_decimal(value))


def _instant(at: int) -> str:
    return rfc3339(instant_of(at))
