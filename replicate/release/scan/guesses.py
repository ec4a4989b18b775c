"""What looks like a secret: detect-secrets over every run of characters that is long and not words.

Its plugins are used as functions over pieces of lines.  They could ask the services that issued
a token whether it is valid: that is never called, nothing here uses the network.
"""

import re
from collections.abc import Iterator
from functools import cache

from detect_secrets.filters.heuristic import (
    is_potential_uuid,
    is_sequential_string,
    is_templated_secret,
)
from detect_secrets.plugins import (
    artifactory,
    aws,
    azure_storage_key,
    cloudant,
    discord,
    github_token,
    gitlab_token,
    high_entropy_strings,
    ibm_cloud_iam,
    ibm_cos_hmac,
    jwt,
    keyword,
    mailchimp,
    npm,
    openai,
    private_key,
    pypi_token,
    sendgrid,
    slack,
    softlayer,
    square_oauth,
    stripe,
    telegram_token,
    twilio,
)
from detect_secrets.plugins.base import BasePlugin

from replicate.release.findings import Rule
from replicate.release.scan.fragments import Block, Origin
from replicate.release.scan.hits import digest_of
from replicate.release.scan.inputs import ScanContext
from replicate.release.scan.matching import Match
from replicate.release.scan.tokens import NEVER

WINDOW = 512
"""Characters given to a plugin at a time: some of its expressions are quadratic in them."""
OVERLAP = 128
MARGIN = 96
"""Characters of a line before and after a run that a plugin sees: names of variables."""
MIN_RUN = 16
MIN_HEX = 32
MIN_RANDOM = 20
BASE64_LIMIT = 4.5
_DECIMAL = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
HEX_LIMIT = 3.0
"""Bits of entropy a character above which a run is no text; the limits of detect-secrets."""

_RUN = re.compile(rf"(?<![A-Za-z0-9_+/=~.-])[A-Za-z0-9_+/=~.-]{{{MIN_RUN},}}+")
_PARTS = re.compile(r"[^A-Za-z0-9]+")
_HEX = re.compile(r"[0-9a-fA-F]+")
_CREDENTIAL_WORD = re.compile(r"key|pass|pwd|secret|contrase", re.IGNORECASE)
_ASSIGNED = re.compile(r"[=:(]")

_FIXED: tuple[type[BasePlugin], ...] = (
    aws.AWSKeyDetector,
    azure_storage_key.AzureStorageKeyDetector,
    discord.DiscordBotTokenDetector,
    github_token.GitHubTokenDetector,
    gitlab_token.GitLabTokenDetector,
    jwt.JwtTokenDetector,
    npm.NpmDetector,
    openai.OpenAIDetector,
    private_key.PrivateKeyDetector,
    pypi_token.PypiTokenDetector,
    sendgrid.SendGridDetector,
    slack.SlackDetector,
    square_oauth.SquareOAuthDetector,
    stripe.StripeDetector,
    telegram_token.TelegramBotTokenDetector,
)
_LOOSE: tuple[type[BasePlugin], ...] = (
    artifactory.ArtifactoryDetector,
    cloudant.CloudantDetector,
    ibm_cloud_iam.IbmCloudIamDetector,
    ibm_cos_hmac.IbmCosHmacDetector,
    mailchimp.MailchimpDetector,
    softlayer.SoftlayerDetector,
    twilio.TwilioKeyDetector,
)


def find_guesses(block: Block, context: ScanContext) -> Iterator[Match]:
    """Find what the plugins take for a secret, and runs that are too random for text."""
    text, seen_to = block.text, 0
    for run in _RUN.finditer(text):
        if _is_dull(run[0]):
            continue
        yield from _random_runs(run, block.origin, context)
        begin = max(seen_to, text.rfind("\n", 0, run.start()) + 1, run.start() - MARGIN)
        newline = text.find("\n", run.end(), run.end() + MARGIN)
        end = newline if newline >= 0 else min(len(text), run.end() + MARGIN)
        seen_to = max(seen_to, run.end())
        for start in range(begin, end, WINDOW - OVERLAP):
            yield from _by_plugins(text[start : min(end, start + WINDOW)], start)


def find_assigned(block: Block, _: ScanContext) -> Iterator[Match]:
    """Find ``password = "…"`` and its like in text that people write (values in JSON are found by their key)."""
    if block.origin not in (Origin.CARD, Origin.TEMPLATE, Origin.PROSE) or not _CREDENTIAL_WORD.search(block.text):
        return
    start = 0
    for line in block.text.split("\n"):
        for offset in range(0, len(line), WINDOW - OVERLAP):
            window = line[offset : offset + WINDOW]
            if _CREDENTIAL_WORD.search(window) and _ASSIGNED.search(window):
                yield from _assigned(window, start + offset)
        start += len(line) + 1


def _assigned(window: str, start: int) -> Iterator[Match]:
    for secret in _keyword().analyze_string(window):
        if secret and not is_templated_secret(secret):
            yield _match("value of a name like a password's", secret, start + window.find(secret))


def _is_dull(run: str) -> bool:
    """Whether a run is no token: rulers, repeated letters, plain words."""
    few_letters = 6
    return len(set(run[:WINDOW])) < few_letters or (len(run) < MIN_RANDOM and run.isalpha())


def _random_runs(run: re.Match[str], origin: Origin, context: ScanContext) -> Iterator[Match]:
    if origin is Origin.BYTES or _DECIMAL.fullmatch(run[0]):  # an error of a cast is written out in full
        return
    position = run.start()
    for part in run[0].split("."):
        core = part.strip("=-_/+~")
        if len(core) >= MIN_RANDOM and _is_random(core, context.known_digests):
            yield _match("random-looking text", core, position + part.find(core))
        position += len(part) + 1


def _is_random(core: str, known: frozenset[str]) -> bool:
    if is_potential_uuid(core) or is_sequential_string(core):
        return False
    parts = [part for part in _PARTS.split(core) if part.lower() not in known]
    if any(len(part) >= MIN_HEX and _HEX.fullmatch(part) and _hex_entropy(part) > HEX_LIMIT for part in parts):
        return True
    return any(map(_is_no_word, parts)) and _entropy(core) > BASE64_LIMIT


def _is_no_word(part: str) -> bool:
    """Whether a part of a run mixes letters and digits as no identifier does, or is very long."""
    many, long = 2, 40
    digits = sum(map(str.isdigit, part))
    return len(part) > long or (len(part) >= MIN_RUN and digits >= many and len(part) - digits >= many)


def _hex_entropy(part: str) -> float:
    return float(_hex().calculate_shannon_entropy(part[:WINDOW]))


def _entropy(core: str) -> float:
    return float(_base64().calculate_shannon_entropy(core[:WINDOW]))


def _by_plugins(window: str, start: int) -> Iterator[Match]:
    for plugin, never in _plugins():
        for secret in plugin.analyze_string(window):
            if isinstance(secret, str) and secret:
                yield _match(plugin.secret_type, secret, start + max(0, window.find(secret)), never)


def _match(kind: str, secret: str, start: int, never: str = "") -> Match:
    detail = f"{kind} (sha256 {digest_of(secret)})"
    return Match(rule=Rule.SECRET, start=start, detail=detail, never=never, secret=secret)


@cache
def _plugins() -> tuple[tuple[BasePlugin, str], ...]:
    return (*((plugin(), NEVER) for plugin in _FIXED), *((plugin(), "") for plugin in _LOOSE))


@cache
def _keyword() -> keyword.KeywordDetector:
    return keyword.KeywordDetector()


@cache
def _base64() -> high_entropy_strings.Base64HighEntropyString:
    return high_entropy_strings.Base64HighEntropyString(limit=BASE64_LIMIT)


@cache
def _hex() -> high_entropy_strings.HexHighEntropyString:
    return high_entropy_strings.HexHighEntropyString(limit=HEX_LIMIT)
