"""Tokens and keys of a fixed form, which no text has by chance.

Every expression starts at a literal that is looked for first, and none can look twice at the
same text from many starts: a run is entered only at its beginning, and is not given back.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from replicate.release.findings import Rule
from replicate.release.scan.fragments import Block
from replicate.release.scan.hits import digest_of
from replicate.release.scan.inputs import ScanContext
from replicate.release.scan.matching import Match

NEVER = "a token of a known form is withdrawn and taken out, never published"


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of token: ``literals`` of which one occurs in each (lower case), and its expression.

    Where the expression has a group, that is the secret.
    """

    kind: str
    literals: tuple[str, ...]
    expression: re.Pattern[str]


def _form(kind: str, literals: str, expression: str, *, words: bool = True) -> Form:
    start = r"(?<![A-Za-z0-9])" if words else ""
    return Form(kind, tuple(literals.split()), re.compile(start + expression))


FORMS = (
    _form("Hugging Face token", "hf_ api_org_", r"(?:hf_(?:oauth_)?|api_org_)[A-Za-z0-9]{20,}+"),
    _form("AWS access key id", "akia asia abia acca", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _form(
        "AWS secret access key",
        "secret_access_key secretaccesskey",
        r"(?i:secret_?access_?key)[^A-Za-z0-9\n]{1,8}([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])",
        words=False,
    ),
    _form("private key", "private key", r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY", words=False),
    _form("JSON web token", "eyj", r"eyJ[\w-]{8,}+\.eyJ[\w-]{8,}+\.[\w-]{8,}+"),
    _form("secret key (sk-)", "sk-", r"sk-(?:(?:proj|ant|or|svcacct|admin|lf)-[\w-]{20,}+|[A-Za-z0-9]{20,}+)"),
    _form("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", r"(?:gh[pousr]_[A-Za-z0-9]|github_pat_\w)\w{29,}+"),
    _form("GitLab token", "glpat- gldt- glrt-", r"gl(?:pat|dt|rt)-[\w-]{20,}+"),
    _form("Weights & Biases key", "wandb_v", r"wandb_v\d_[A-Za-z0-9_]{20,}+"),
    _form(
        "Weights & Biases key",
        "wandb",
        r"(?i:wandb)[^\n]{0,60}?(?<![0-9A-Za-z])([0-9a-f]{40})(?![0-9A-Za-z])",
        words=False,
    ),
    _form("Google API key", "aiza", r"AIza[\w-]{35}"),
    _form("Google OAuth token", "ya29.", r"ya29\.[\w-]{20,}+"),
    _form("Slack token", "xox xapp-", r"(?:xox[a-z]|xapp)-[A-Za-z0-9-]{10,}+"),
    _form("Stripe key", "sk_live_ rk_live_", r"[sr]k_live_[A-Za-z0-9]{16,}+"),
    _form("npm token", "npm_", r"npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    _form("package index token", "pypi-age", r"pypi-AgE[\w-]{50,}+"),
    _form("Docker token", "dckr_pat_", r"dckr_pat_[\w-]{20,}+"),
    _form("Databricks token", "dapi", r"dapi[0-9a-f]{32}(?![A-Za-z0-9])"),
    _form("NVIDIA key", "nvapi-", r"nvapi-[\w-]{40,}+"),
    _form("Groq key", "gsk_", r"gsk_[A-Za-z0-9]{40,}+"),
    _form("Replicate token", "r8_", r"r8_[A-Za-z0-9]{37}(?![A-Za-z0-9])"),
    _form("RunPod key", "rpa_", r"rpa_[A-Z0-9]{30,}+"),
    _form("DigitalOcean token", "dop_v1_", r"dop_v1_[0-9a-f]{64}"),
    _form("age secret key", "age-secret-key-", r"AGE-SECRET-KEY-1[0-9A-Z]{50,}+"),
    _form("bearer token", "bearer", r"(?i:bearer)[ \t]{1,4}([\w.~+/-]{24,}+)"),
    _form(
        "credentials in a URL", "://", r"://[^\s:/?#@\[\]\"'<>{}]{1,128}+:([^\s:/?#@\[\]\"'<>{}]{1,256}+)@", words=False
    ),
)


def find_tokens(block: Block, _: ScanContext) -> Iterator[Match]:
    """Find every token of a fixed form."""
    for form in FORMS:
        if not any(literal in block.lowered for literal in form.literals):
            continue
        for found in form.expression.finditer(block.text):
            secret = found[found.re.groups and 1]
            yield Match(
                rule=Rule.SECRET,
                start=found.start(),
                detail=f"{form.kind} (sha256 {digest_of(secret)}); withdraw it where it was issued",
                never=NEVER,
                secret=secret,
            )
