"""Words that identify: user, host, run, places of this machine; e-mail addresses and telephone numbers.

A word is looked for whole (no letter or digit beside it) and without regard to case.  Words of
fewer than four characters and names that many machines share (root, ubuntu, …) are looked for
only beside an ``@`` or inside a path, else each README would be full of them.  Inside a
tokenizer's vocabulary, learned from data, and inside binary data, a word must be distinctive as well: hold a digit, a
hyphen, a dot or an underscore, or have twelve characters.  A word that the description says
openly (the release's name, title, repository) is no leak; the run's uid always is one.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

from replicate.release.findings import Rule
from replicate.release.scan.fragments import Block, Origin
from replicate.release.scan.hits import digest_of
from replicate.release.scan.inputs import Identities, ScanContext
from replicate.release.scan.matching import Match

MIN_WORD = 4
MIN_DISTINCTIVE = 12
SHARED_NAMES = frozenset(
    {
        "root", "user", "users", "admin", "administrator", "ubuntu", "debian", "centos", "ec2-user", "azureuser",
        "runner", "nobody", "guest", "default", "jovyan", "vscode", "app", "test", "train", "training", "main",
        "model", "models", "localhost", "local", "host", "worker", "node", "master", "server", "data", "home",
        "base", "demo", "example", "tiny", "small", "large", "checkpoint", "checkpoints", "final", "default-run",
        "experiment",
    }
)  # fmt: skip

_EMAIL = re.compile(
    r"(?<![A-Za-z0-9._%+-])([A-Za-z0-9][A-Za-z0-9._%+-]{0,63}+)@((?:[A-Za-z0-9-]{1,63}+\.){1,8}[A-Za-z]{2,24}+)(?![\w-])"
)
_PHONES = (
    re.compile(r"(?<![\w.+-])\+[1-9]\d{0,2}[ .-]?(?:\(\d{1,4}\)[ .-]?)?\d{2,4}(?:[ .-]?\d{2,4}){2,4}(?![\w-])"),
    re.compile(r"(?<![\w.+-])(?:\(\d{3}\) ?|\d{3}-)\d{3}-\d{4}(?![\w-])"),
)
_OPEN_DOMAINS = ("example.com", "example.org", "example.net", "users.noreply.github.com")
"""Domains of documentation (RFC 2606), and one that stands for no mailbox."""


_LEARNED = (Origin.VOCABULARY, Origin.BYTES)


class _Word(NamedTuple):
    rule: Rule
    kind: str
    word: str
    expression: re.Pattern[str]
    distinctive: bool


def find_identities(block: Block, context: ScanContext) -> Iterator[Match]:
    """Find the words of ``Identities``."""
    for word in _words(context.identities):
        if word.word not in block.lowered or (block.origin in _LEARNED and not word.distinctive):
            continue
        if word.kind != "uid of the run" and _is_public(word.word, context.public_words):
            continue
        for found in word.expression.finditer(block.text):
            detail = f"{word.kind} (sha256 {digest_of(word.word)}); take it out"
            yield Match(rule=word.rule, start=found.start(), detail=detail)


def find_personal(block: Block, _: ScanContext) -> Iterator[Match]:
    """Find e-mail addresses and telephone numbers in the card and in templates."""
    if block.origin not in (Origin.CARD, Origin.TEMPLATE):
        return
    if "@" in block.text:
        for found in _EMAIL.finditer(block.text):
            if found[1] != "git" and not found[2].lower().endswith(_OPEN_DOMAINS):
                yield _personal("e-mail address", found)
    for expression in _PHONES:
        for found in expression.finditer(block.text):
            yield _personal("telephone number", found)


def hidden_words(identities: Identities) -> tuple[str, ...]:
    """Return the words that a report must not repeat: those that are looked for as they are."""
    return tuple(word.word for word in _words(identities) if word.word not in SHARED_NAMES)


def _personal(kind: str, found: re.Match[str]) -> Match:
    detail = f"{kind} (sha256 {digest_of(found[0])}); take it out, or say who agreed"
    return Match(rule=Rule.PERSONAL_DATA, start=found.start(), detail=detail)


@lru_cache(maxsize=8)
def _words(identities: Identities) -> tuple[_Word, ...]:
    words = [
        _word(Rule.USER_OR_HOST, "name of this machine's user", identities.user),
        _word(Rule.USER_OR_HOST, "name of this machine", identities.host),
        _word(Rule.USER_OR_HOST, "name of this machine", identities.host.partition(".")[0]),
        _word(Rule.RUN_IDENTITY, "name of the run", identities.run),
        _word(Rule.RUN_IDENTITY, "uid of the run", identities.run_uid),
    ]
    for place in identities.places:
        words += _of_place(place)
    unique = {(word.rule, word.word): word for word in words if word is not None}
    return tuple(unique.values())


def _of_place(place: str) -> list[_Word | None]:
    parts = urlsplit(place)
    if parts.scheme in ("", "file"):
        return [_literal(Rule.ABSOLUTE_PATH, "folder of this machine or of a tier", parts.path or place)]
    host = parts.netloc.rpartition("@")[2]
    return [
        _literal(Rule.INTERNAL_ADDRESS, "address of a tier", place),
        _word(Rule.INTERNAL_ADDRESS, "bucket or host of a tier", host),
    ]


def _word(rule: Rule, kind: str, text: str) -> _Word | None:
    word = text.strip().lower()
    if not word:
        return None
    quoted = re.escape(word)
    if len(word) < MIN_WORD or word in SHARED_NAMES:
        name = r"[\w.-]{1,64}"
        beside = rf"(?<![A-Za-z0-9@.-])(?:{quoted}@{name}|/(?:home|Users)/{quoted}(?![A-Za-z0-9]))"
        return _Word(rule, kind, word, re.compile(beside, re.IGNORECASE), distinctive=True)
    whole = re.compile(rf"(?<![A-Za-z0-9]){quoted}(?![A-Za-z0-9])", re.IGNORECASE)
    distinctive = len(word) >= MIN_DISTINCTIVE or not word.isalpha()
    return _Word(rule, kind, word, whole, distinctive)


def _literal(rule: Rule, kind: str, text: str) -> _Word | None:
    place = text.strip().rstrip("/").lower()
    if len(place) < MIN_WORD + 1 or place.lstrip("/") in SHARED_NAMES:
        return None
    expression = re.compile(rf"(?<![A-Za-z0-9]){re.escape(place)}(?![A-Za-z0-9])", re.IGNORECASE)
    return _Word(rule, kind, place, expression, distinctive=True)


def _is_public(word: str, public: str) -> bool:
    return re.search(rf"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])", public) is not None
