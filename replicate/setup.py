"""``ckptier init``: write a first ``ckptier.toml`` and make the folders that it names."""

import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from replicate.config import FILE_NAME, TierConfig, load_config
from replicate.errors import CapabilityMissing, CkptierError, ConfigInvalid, LocalDisk, UsageError
from replicate.layout import run_name
from replicate.opening import default_opener, open_configured
from tiers.clock import SystemClock
from tiers.metered import Meter

_HEAD = """\
# ckptier keeps this run's state alive; `ckptier check` tries everything named here.
run = "{run}"
store = "{store}"                # local generations live under {store}/{run}/
"""
_TIER = """
[[tier]]
name = "{name}"
url = "{url}"
"""
_NO_TIER = """
# [[tier]]
# name = "pod-volume"
# url = "file:///mnt/volume/ckptier"
#
# [[tier]]
# name = "r2"
# url = "s3://bucket/prefix"
# endpoint_url = "https://ACCOUNT.r2.cloudflarestorage.com"
# replicate_every = 2500             # only milestones go here
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Initialised:
    """What was made."""

    config: Path
    created: tuple[Path, ...]


def initialise(
    directory: Path, *, run: str, store: str, tiers: tuple[str, ...], endpoint_url: str | None
) -> Initialised:
    """Write ``ckptier.toml`` into ``directory``; an existing one is never overwritten.

    ``tiers`` are NAME=URL.  Raises ConfigInvalid, UsageError and LocalDisk, having written nothing.
    """
    run_name(run)
    path = directory / FILE_NAME
    text = _HEAD.format(run=run, store=_plain(store, "the store"))
    text += "".join(_tier(spec, endpoint_url) for spec in tiers) or _NO_TIER
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        raise ConfigInvalid(f"{path} exists already", hint="edit it, or remove it first") from None
    except OSError as error:
        raise LocalDisk(f"{path} cannot be written: {error.strerror}", hint="choose another --directory") from error
    with os.fdopen(fd, "w") as stream:
        stream.write(text)
    try:
        config = load_config(path)
        for tier in config.tier:
            _refuse_bad_url(tier)
        return Initialised(config=path, created=_folders([config.local.root, *map(_volume, tiers)]))
    except CkptierError:
        path.unlink()
        raise


def _refuse_bad_url(tier: TierConfig) -> None:
    """Raise ConfigInvalid for a URL that names no tier; what is missing on this machine is `check`'s business."""
    with suppress(CapabilityMissing):
        open_configured(tier, default_opener, SystemClock(), Meter(), threading.Event()).close()


def _tier(spec: str, endpoint_url: str | None) -> str:
    name, equals, url = spec.partition("=")
    if not equals or not name or "://" not in url:
        raise UsageError(f"--tier {spec!r} is not NAME=URL", hint="write --tier pod=file:///mnt/volume/ckptier")
    text = _TIER.format(name=_plain(name, "a tier's name"), url=_plain(url, "a tier's URL"))
    if endpoint_url and url.startswith("s3://"):
        text += f'endpoint_url = "{_plain(endpoint_url, "--endpoint-url")}"\n'
    return text


def _plain(text: str, what: str) -> str:
    if any(letter in text for letter in '"\\\n\r'):
        raise UsageError(f"{what} holds a quote, backslash or line break", hint="write it into ckptier.toml by hand")
    return text


def _volume(spec: str) -> Path | None:
    url = urlsplit(spec.partition("=")[2])
    return Path(unquote(url.path)) if url.scheme == "file" else None


def _folders(wanted: list[Path | None]) -> tuple[Path, ...]:
    missing = [path for path in wanted if path is not None and not path.is_dir()]
    made: list[Path] = []
    for path in missing:
        try:
            for folder in reversed([path, *path.parents]):
                if not folder.is_dir():
                    folder.mkdir()
                    made.append(folder)
        except OSError as error:
            for folder in reversed(made):
                folder.rmdir()
            raise LocalDisk(
                f"{path} cannot be created: {error.strerror}", hint="check the path and its mount"
            ) from error
    return tuple(missing)
