"""License ids that a release may name, and what licenses of base models ask of what is made from them.

The Hub takes the ids of its own list and nothing else; an SPDX id that is not on it goes into a
card as ``other`` with its SPDX name and link.  What is said here of licenses are facts with a
date, for a finding that people answer; it is no legal advice and replaces no reading of the text.
"""

import difflib
import re
from dataclasses import dataclass
from datetime import date
from functools import cache
from types import MappingProxyType

from replicate.errors import CapabilityMissing, ConfigInvalid
from replicate.release.description import LicenseChoice

HUB_LIST = "https://huggingface.co/docs/hub/repositories-licenses"
HUB_LIST_READ = date(2026, 11, 30)
OTHER = "other"
NO_LICENSE = "unknown"
"""On the Hub's list, and no license."""

HUB_LICENSES = frozenset(
    {
        "apache-2.0", "mit", "openrail", "bigscience-openrail-m", "creativeml-openrail-m",
        "bigscience-bloom-rail-1.0", "bigcode-openrail-m", "afl-3.0", "artistic-2.0", "bsl-1.0", "bsd",
        "bsd-2-clause", "bsd-3-clause", "bsd-3-clause-clear", "c-uda", "cc", "cc0-1.0", "cc-by-2.0",
        "cc-by-2.5", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc-by-nc-2.0", "cc-by-nc-3.0",
        "cc-by-nc-4.0", "cc-by-nd-4.0", "cc-by-nc-nd-3.0", "cc-by-nc-nd-4.0", "cc-by-nc-sa-2.0",
        "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0", "cdla-sharing-1.0", "cdla-permissive-1.0", "cdla-permissive-2.0",
        "wtfpl", "ecl-2.0", "epl-1.0", "epl-2.0", "etalab-2.0", "eupl-1.1", "eupl-1.2", "agpl-3.0", "gfdl",
        "gpl", "gpl-2.0", "gpl-3.0", "lgpl", "lgpl-2.1", "lgpl-3.0", "isc", "h-research", "intel-research",
        "lppl-1.3c", "ms-pl", "apple-ascl", "apple-amlr", "mpl-2.0", "odc-by", "odbl", "openmdw-1.0",
        "openrail++", "osl-3.0", "postgresql", "ofl-1.1", "ncsa", "unlicense", "zlib", "pddl", "lgpl-lr",
        "deepfloyd-if-license", "fair-noncommercial-research-license", "llama2", "llama3", "llama3.1",
        "llama3.2", "llama3.3", "llama4", "grok2-community", "gemma", "unknown", "other",
    }
)  # fmt: skip
"""The Hub's ids, as its documentation listed them on ``HUB_LIST_READ``."""

_LINK = re.compile(r"https://[^\s<>]+|[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What a license asks of a derivative: ``accepts`` are ids that it may have, ``why`` a fact of its text.

    ``prefixes`` are what the derivative's name has to begin with (one of them; empty: any name).
    """

    accepts: tuple[str, ...]
    why: str
    prefixes: tuple[str, ...] = ()
    read: date = HUB_LIST_READ


def _llama(license_id: str, *prefixes: str) -> Binding:
    return Binding(
        accepts=(license_id, OTHER),
        why="its agreement goes along with whatever is distributed that was made from it (section 1.b)",
        prefixes=prefixes,
    )


def _use_restrictions(license_id: str) -> Binding:
    return Binding(
        accepts=(license_id, OTHER),
        why="its use restrictions have to bind whoever gets a derivative",
    )


def _no_derivatives() -> Binding:
    return Binding(accepts=(), why="it gives no right to share adapted material")


BINDING = MappingProxyType(
    {
        "llama2": _llama("llama2"),
        "llama3": _llama("llama3", "Llama-3", "Llama 3", "Llama3"),
        "llama3.1": _llama("llama3.1", "Llama"),
        "llama3.2": _llama("llama3.2", "Llama"),
        "llama3.3": _llama("llama3.3", "Llama"),
        "llama4": _llama("llama4", "Llama"),
        "gemma": Binding(
            accepts=("gemma", OTHER),
            why="whoever gets a derivative has to be bound to its use restrictions and get its terms (section 3.1)",
        ),
        "bigscience-openrail-m": _use_restrictions("bigscience-openrail-m"),
        "bigscience-bloom-rail-1.0": _use_restrictions("bigscience-bloom-rail-1.0"),
        "bigcode-openrail-m": _use_restrictions("bigcode-openrail-m"),
        "creativeml-openrail-m": _use_restrictions("creativeml-openrail-m"),
        "openrail++": _use_restrictions("openrail++"),
        "cc-by-nd-4.0": _no_derivatives(),
        "cc-by-nc-nd-3.0": _no_derivatives(),
        "cc-by-nc-nd-4.0": _no_derivatives(),
    }
)
"""Licenses of base models that bind what is made from them."""

_LICENSE_OF_BASE = tuple(
    (re.compile(pattern, re.IGNORECASE), license_id)
    for pattern, license_id in (
        (r"^meta-llama/(meta-)?llama-2\b", "llama2"),
        (r"^meta-llama/(meta-)?llama-3-", "llama3"),
        (r"^meta-llama/(meta-)?llama-3\.1\b", "llama3.1"),
        (r"^meta-llama/(meta-)?llama-3\.2\b", "llama3.2"),
        (r"^meta-llama/(meta-)?llama-3\.3\b", "llama3.3"),
        (r"^meta-llama/(meta-)?llama-4\b", "llama4"),
        (r"^google/gemma-(2b|7b|1\.1|2-|3-|3n-)", "gemma"),
        (r"^bigscience/bloom\b", "bigscience-bloom-rail-1.0"),
        (r"^bigcode/starcoder", "bigcode-openrail-m"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardLicense:
    """How a card says it: the Hub's id, and name and link where that is ``other``."""

    id: str
    name: str | None = None
    link: str | None = None


def check_license(choice: LicenseChoice) -> None:
    """Refuse a license that the Hub and SPDX do not know; raises ConfigInvalid that names the field.

    Ids are lower-case, as the Hub writes them.  ``other`` needs a name and a link (an https URL, or
    the name of a file of the release).
    """
    if choice.id == OTHER:
        _check_other(choice)
        return
    if choice.id == NO_LICENSE:
        raise ConfigInvalid(
            "license.id: 'unknown' gives nobody any right",
            hint='name the license, or id = "other" with license.name and license.link',
        )
    if choice.id not in HUB_LICENSES and choice.id not in _spdx_ids():
        raise ConfigInvalid(f"license.id: {choice.id!r} is no id of the Hub's list or of SPDX", hint=_hint(choice.id))
    if choice.id in HUB_LICENSES and (choice.name or choice.link):
        field = "license.name" if choice.name else "license.link"
        raise ConfigInvalid(f"{field}: {choice.id} needs none, the Hub knows it", hint=f"leave {field} out")


def card_license(choice: LicenseChoice) -> CardLicense:
    """Return how the card says it: what the Hub does not list becomes ``other`` with SPDX's name and link."""
    if choice.id == OTHER:
        return CardLicense(id=OTHER, name=choice.name, link=choice.link)
    if choice.id in HUB_LICENSES:
        return CardLicense(id=choice.id)
    spdx = _spdx_ids()[choice.id]
    return CardLicense(
        id=OTHER, name=choice.name or choice.id, link=choice.link or f"https://spdx.org/licenses/{spdx}.html"
    )


def license_of_base(base_model: str) -> str | None:
    """Return the license of a well-known base model; None says nothing about it."""
    return next((license_id for pattern, license_id in _LICENSE_OF_BASE if pattern.search(base_model)), None)


def derivative_faults(base_model: str, base_license: str, choice: LicenseChoice, name: str) -> tuple[str, ...]:
    """Say what the license of a base model and this release disagree about; empty where nothing is known."""
    binding = BINDING.get(base_license.lower())
    if binding is None:
        return ()
    told = f"{base_model} is under {base_license}: {binding.why} (read {binding.read.isoformat()})"
    faults = []
    if choice.id not in binding.accepts:
        wanted = " or ".join(binding.accepts) or "another base model"
        faults.append(f"{told}; the release is under {choice.id}, expected {wanted}")
    if binding.prefixes and not name.lower().startswith(tuple(prefix.lower() for prefix in binding.prefixes)):
        faults.append(f"{told}; the name of the release has to begin with {binding.prefixes[0]!r} and is {name!r}")
    return tuple(faults)


def _check_other(choice: LicenseChoice) -> None:
    for field, value in (("license.name", choice.name), ("license.link", choice.link)):
        if not value.strip():
            raise ConfigInvalid(
                f"{field}: is missing, and license.id is 'other'",
                hint="name the license and link its text (an https address, or LICENSE)",
            )
    if not _LINK.fullmatch(choice.link):
        raise ConfigInvalid(
            f"license.link: {choice.link!r} is neither an https address nor the name of a file of the release",
            hint='write link = "LICENSE" or an https address',
        )


def _hint(unknown: str) -> str:
    lowered = unknown.lower()
    known = {*HUB_LICENSES, *_spdx_ids()}
    if lowered in known:
        return f"write {lowered!r}: the Hub takes lower-case ids"
    near = difflib.get_close_matches(lowered, sorted(known), n=3, cutoff=0.6)
    listed = f"the Hub's list: {HUB_LIST}; a license of your own is 'other' with name and link"
    return f"did you mean {', '.join(map(repr, near))}? {listed}" if near else listed


@cache
def _spdx_ids() -> MappingProxyType[str, str]:
    """Return SPDX's ids by their lower-case spelling; exceptions and references are no licenses."""
    try:
        from license_expression import (  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra, and slow to load
            get_spdx_licensing,
        )
    except ModuleNotFoundError as error:
        raise CapabilityMissing(
            "checking a license needs the package license-expression", hint="pip install 'ckptier[release]'"
        ) from error
    symbols = get_spdx_licensing().known_symbols
    return MappingProxyType(
        {
            name.lower(): name
            for name, symbol in symbols.items()
            if not symbol.is_exception and not name.startswith("LicenseRef-")
        }
    )
