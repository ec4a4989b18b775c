"""From a configured tier to an open one."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from replicate.config import Config, TierConfig
from replicate.errors import CapabilityMissing, ConfigInvalid, from_tier_error
from replicate.layout import BULK_KEYS
from replicate.probes import remembered
from tiers.clock import Clock
from tiers.errors import TierError
from tiers.metered import Meter
from tiers.opening import TierSpec, open_tier
from tiers.profiles import PROFILES
from tiers.protocol import Fencing, Tier

_log = logging.getLogger(__name__)

Opener = Callable[[TierSpec, Clock, Meter, threading.Event], Tier]


def default_opener(spec: TierSpec, clock: Clock, meter: Meter, stop: threading.Event) -> Tier:
    """Open a tier with the whole wrapper stack."""
    return open_tier(spec, clock=clock, meter=meter, stop=stop)


def probed_opener(config: Config, opener: Opener) -> Opener:
    """Return an opener that also knows what an earlier probe of each tier found."""

    def opened(spec: TierSpec, clock: Clock, meter: Meter, stop: threading.Event) -> Tier:
        settings = next((tier for tier in config.tier if tier.name == spec.name), None)
        if settings is None or spec.probed is not None:
            return opener(spec, clock, meter, stop)
        known = remembered(config, settings, clock.now())
        if known.unused:
            _log.warning("%s: %s; run `ckptier check --probe` again", spec.name, known.unused)
        return opener(replace(spec, probed=known.facts), clock, meter, stop)

    return opened


def sharing_opener(opener: Opener, leave: Callable[[], bool]) -> Opener:
    """Return an opener of tiers that ask for leave before each piece of a body: the process's share of the CPU."""

    def opened(spec: TierSpec, clock: Clock, meter: Meter, stop: threading.Event) -> Tier:
        return opener(replace(spec, leave=leave), clock, meter, stop)

    return opened


def tier_spec(config: TierConfig) -> TierSpec:
    """Return what opening a configured tier needs."""
    return TierSpec(
        name=config.name,
        url=config.url,
        endpoint_url=config.endpoint_url,
        region=config.region,
        profile=config.profile,
        allow_insecure=config.allow_insecure,
        connections=config.connections,
        storage_class=config.storage_class,
        encryption=config.encryption,
        kms_key=config.kms_key,
        bandwidth=config.bandwidth,
        timezone=config.timezone or "UTC",
        ca_bundle=config.ca_bundle,
        timeout_seconds=config.timeout_seconds,
        deadline_seconds=config.deadline_seconds,
        options=config.options,
        mode=config.mode,
        data_path=config.data_path,
        bulk_keys=BULK_KEYS,
    )


def near_of(tiers: Sequence[TierConfig]) -> frozenset[str]:
    """Return the names of the tiers that are read without a network."""
    return frozenset(tier.name for tier in tiers if urlsplit(tier.url).scheme in ("file", "memory"))


def volumes_of(tiers: Sequence[TierConfig]) -> dict[str, Path]:
    """Return the folders of the tiers that are folders on this machine, by the tiers' names."""
    parts = {tier.name: urlsplit(tier.url) for tier in tiers}
    return {name: Path(unquote(url.path)) for name, url in parts.items() if url.scheme == "file"}


def open_configured(settings: TierConfig, opener: Opener, clock: Clock, meter: Meter, stop: threading.Event) -> Tier:
    """Open a configured tier; no request is made.

    Raises ConfigInvalid for a URL or profile that is wrong, and CapabilityMissing where an
    extra is not installed.
    """
    try:
        tier = opener(tier_spec(settings), clock, meter, stop)
    except ValueError as error:
        hint = getattr(error, "hint", "") or "correct it in ckptier.toml"
        message = str(error)
        named = message if message.startswith(f"tier {settings.name}: ") else f"tier {settings.name}: {message}"
        raise ConfigInvalid(named, hint=hint) from error
    except TierError as error:
        raise from_tier_error(error) from error
    return tier


def require_fencing(settings: TierConfig, tier: Tier) -> None:
    """Refuse to write where two writers cannot be kept apart and the user has not accepted that; reading is free.

    Raises CapabilityMissing.
    """
    if tier.capabilities.fencing is Fencing.ADVISORY and not settings.accept_advisory:
        tier.close()
        raise CapabilityMissing(
            f"{settings.name}: this store cannot keep two writers apart (no reliable put-if-absent)",
            hint=f"name the kind of store with profile in its [[tier]] (known: {', '.join(sorted(PROFILES))}); "
            "or, where only one writer ever exists, say accept_advisory = true",
        )
