"""A finding in the making: where a rule struck, what may be said of it, and whether it can be waived."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType

from replicate.release.findings import Finding, Rule

MAX_WORDS = 400
"""Characters of a detail or a place; more is cut."""
MAX_PATH = 900
MAX_OF_A_KIND = 50
"""Findings of one rule in one file that are listed; the rest is counted in one more."""

NEVER_WAIVED = MappingProxyType(
    {
        Rule.LINK_OR_DEVICE: "what a link leads to can change after it was approved",
        Rule.PICKLE: "loading a pickle runs what it says",
        Rule.TRAINING_STATE: "a release is never a restart state",
        Rule.CONTAINER: "damaged or incomplete weights load as other weights, silently",
        Rule.CODE_FILE: "a release is weights; code is published where it can be reviewed",
    }
)
"""Rules that nobody can answer for, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One place where a rule struck.

    ``never`` says why no waiver counts; empty where one does.  ``secret`` is the text that must
    not be repeated anywhere in the report.
    """

    rule: Rule
    path: str
    place: str = ""
    detail: str
    never: str = ""
    secret: str = ""

    @property
    def refusal(self) -> str:
        """Why a waiver does not count; empty where it does."""
        return self.never or NEVER_WAIVED.get(self.rule, "")


def digest_of(text: str) -> str:
    """Return the first eight hex digits of a SHA-256: enough to find a text again, not to tell it."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def printable(text: str, limit: int = MAX_WORDS) -> str:
    """Return text that a report can hold: no control characters, no lone surrogates, cut to ``limit``."""
    cut = text[:limit].encode("utf-8", "backslashreplace").decode()
    shown = "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in cut)
    return shown if len(text) <= limit else shown + "…"


def findings_of(hits: Iterable[Hit], *, hidden: Iterable[str] = ()) -> list[tuple[Finding, str]]:
    """Return each finding once, in order, with the reason why it cannot be waived (empty: it can).

    Secrets of the hits, and the ``hidden`` words, are replaced wherever they occur in a place or
    a detail; secrets also in a path.
    """
    hits = list(hits)
    secrets = sorted({hit.secret for hit in hits if hit.secret}, key=lambda text: (-len(text), text))
    words = sorted({word for word in hidden if word}, key=lambda text: (-len(text), text))
    told: dict[Finding, str] = {}
    for hit in hits:
        finding = Finding(
            rule=hit.rule,
            path=printable(_masked(hit.path, secrets), MAX_PATH) or ".",
            place=printable(_masked(_masked(hit.place, secrets), words)),
            detail=printable(_masked(_masked(hit.detail, secrets), words)),
        )
        told[finding] = told.get(finding, "") or hit.refusal
    return _bounded(sorted(told.items(), key=lambda item: _order(item[0])))


def _order(finding: Finding) -> tuple[str, str, str, str]:
    return (finding.path, finding.rule.value, finding.place, finding.detail)


def _masked(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, f"[sha256:{digest_of(secret)}]")
    return text


def _bounded(findings: list[tuple[Finding, str]]) -> list[tuple[Finding, str]]:
    kept: list[tuple[Finding, str]] = []
    counts: dict[tuple[str, Rule], int] = {}
    never: dict[tuple[str, Rule], str] = {}
    for finding, refusal in findings:
        kind = (finding.path, finding.rule)
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] <= MAX_OF_A_KIND:
            kept.append((finding, refusal))
        else:
            never[kind] = never.get(kind, "") or refusal
    for (path, rule), refusal in never.items():
        more = counts[path, rule] - MAX_OF_A_KIND
        kept.append((Finding(rule=rule, path=path, place="more", detail=f"{more} more of this kind"), refusal))
    return sorted(kept, key=lambda item: _order(item[0]))
