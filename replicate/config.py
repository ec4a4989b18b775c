"""``ckptier.toml``: found upwards from the working directory, checked, never holding a secret."""

import math
import os
import re
import tomllib
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from replicate.digests import default_workers
from replicate.errors import ConfigInvalid
from replicate.layout import LocalRun, RemoteRun, RunName, run_name
from replicate.signing.remembered import last_seen
from replicate.signing.trust import find_signer, load_trust
from replicate.tomltext import parse_toml
from tiers.timetable import EXAMPLE, SLOWEST, BadTimetable, parse_timetable

FILE_NAME = "ckptier.toml"
MIB = 1024 * 1024
MAX_FAULTS = 20
"""How many are named at once."""
_WITH_USER = frozenset({"sftp", "ssh", "fsspec+sftp", "fsspec+ssh"})
_USER = re.compile(r"[A-Za-z0-9._-]+")
"""A user name alone is no secret, and SSH has no other place for it."""


class Section(BaseModel):
    """A frozen part of the configuration; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class TierConfig(Section):
    """One ``[[tier]]``.  Sizes in bytes, times in seconds, ``replicate_every`` in updates.

    ``rates`` names a rate card, relative to the file, and ``rates_tier`` the tier on it.  ``zone`` and
    ``network_path`` are words of the card's transfers; ``provisioned_bytes`` is a volume's size.  ``bandwidth`` is in
    bytes a second, for each direction, or a timetable of such ("08:00,10M 19:00,off") by the clock of ``timezone``, an
    IANA name; UTC where none is given.  ``timeout_seconds`` bounds the time without any progress, ``deadline_seconds``
    one whole request.  ``ca_bundle`` is a file of certificates, relative to the file.  ``options`` are those of an
    fsspec filesystem, ``mode`` says what a volume can do, ``data_path`` who moves the bodies of S3.
    ``keep_last`` and ``min_generations`` count generations, ``keep_every`` updates; ``retire_delay_seconds`` pass
    between retiring one and deleting it.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
    url: str
    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    allow_insecure: bool = False
    replicate_every: Annotated[int, Field(ge=1)] | None = None
    keep_last: Annotated[int, Field(ge=1)] | None = None
    keep_every: Annotated[int, Field(ge=1)] | None = None
    min_generations: Annotated[int, Field(ge=1)] = 1
    retire_delay_seconds: Annotated[float, Field(ge=0, le=366 * 86400)] = 86400.0
    rates: Annotated[str, Field(min_length=1)] | None = None
    rates_tier: Annotated[str, Field(min_length=1)] | None = None
    zone: Annotated[str, Field(min_length=1)] | None = None
    network_path: Annotated[str, Field(min_length=1)] | None = None
    provisioned_bytes: Annotated[int, Field(ge=1)] | None = None
    part_size: Annotated[int, Field(ge=5 * MIB, le=5 * 1024 * MIB)] | None = None
    connections: Annotated[int, Field(ge=1, le=64)] = 8
    accept_advisory: bool = False
    storage_class: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")] | None = None
    encryption: Literal["sse-s3", "sse-kms"] | None = None
    kms_key: Annotated[str, Field(min_length=1, max_length=2048)] | None = None
    reuse: bool = True
    bandwidth: int | str | None = None
    timezone: Annotated[str, Field(min_length=1)] | None = None
    ca_bundle: Annotated[str, Field(min_length=1)] | None = None
    timeout_seconds: Annotated[float, Field(ge=5, le=3600)] | None = None
    deadline_seconds: Annotated[float, Field(ge=5, le=7 * 86400)] | None = None
    options: dict[str, str | int | bool] = Field(default_factory=dict)
    mode: Literal["auto", "rename", "direct", "modal"] | None = None
    data_path: Literal["auto", "sdk"] | None = None

    @field_validator("url", "endpoint_url")
    @classmethod
    def _no_secret_in_url(cls, url: str | None) -> str | None:
        scheme, _, rest = (url or "").partition("://")
        user, at, _host = rest.partition("/")[0].rpartition("@")
        if at and not (scheme in _WITH_USER and _USER.fullmatch(user)):
            raise ValueError("holds credentials: leave them to the environment or the SDK's own files")
        return url

    @field_validator("bandwidth", mode="before")
    @classmethod
    def _bandwidth_is_a_limit(cls, bandwidth: Any) -> Any:
        """Refuse anything else in one sentence; a timetable is read where its zone is known too."""
        if bandwidth is None or isinstance(bandwidth, str) or (type(bandwidth) is int and bandwidth >= SLOWEST):
            return bandwidth
        raise ValueError(f"is neither bytes a second, {SLOWEST} at least, nor a timetable such as {EXAMPLE}")

    @field_validator("url")
    @classmethod
    def _url_has_a_scheme(cls, url: str) -> str:
        if "://" not in url:
            raise ValueError("is not a URL: write file:///absolute/path, s3://bucket/prefix or memory://name")
        return url

    @model_validator(mode="after")
    def _keys_go_together(self) -> Self:
        if self.kms_key is not None and self.encryption != "sse-kms":
            raise ValueError('kms_key means nothing without encryption = "sse-kms"')
        if self.timezone is not None and not isinstance(self.bandwidth, str):
            raise ValueError("timezone means nothing without a timetable in bandwidth")
        if isinstance(self.bandwidth, str):
            _check_timetable(self.bandwidth, self.timezone or "UTC")
        if (self.deadline_seconds or math.inf) < (self.timeout_seconds or 0.0):
            raise ValueError("deadline_seconds is shorter than timeout_seconds")
        return self


def _check_timetable(text: str, zone: str) -> None:
    try:
        parse_timetable(text, zone)
    except BadTimetable as error:
        raise ValueError(f"bandwidth: {error}") from error


class RehearseConfig(Section):
    """``[rehearse]``: what ``ckptier rehearse`` calls, and its bounds.

    ``function`` is ``package.module:function``, looked for in ``python_path`` (folders relative to the file) and
    among what is installed.  ``memory_bytes`` bounds the private memory of each process of it.
    """

    function: Annotated[str, Field(pattern=r"^[^\s:]+:[^\s:]+$")] | None = None
    timeout_seconds: Annotated[float, Field(gt=0, le=7 * 86400)] = 1800.0
    memory_bytes: Annotated[int, Field(ge=64 * MIB)] | None = None
    python_path: Annotated[tuple[str, ...], Field(strict=False)] = (".",)


class TrustConfig(Section):
    """``[trust]``: whose log entries count.  ``keyring`` is a file, relative to this one; docs/design.md says more.

    ``unsigned_until`` has, by tier, the anchor (``SLOT:SHA256``) of what was written before signing began.
    ``run_uid`` is the only run whose commits count.  A restore refuses a newest commit older than
    ``max_age_seconds``.
    """

    keyring: Annotated[str, Field(min_length=1)] | None = None
    unsigned_until: dict[str, str] = Field(default_factory=dict)
    run_uid: Annotated[str, Field(min_length=1)] | None = None
    max_age_seconds: Annotated[float, Field(gt=0)] | None = None


class SigningConfig(Section):
    """``[signing]``: files, relative to this one, of the private key and its passphrase; never the key itself."""

    key: Annotated[str, Field(min_length=1)] | None = None
    passphrase_file: Annotated[str, Field(min_length=1)] | None = None


class Config(Section):
    """The whole configuration.  ``zone`` is where this machine is; ``source`` is the file it came from.

    ``nice``, ``io_priority`` and ``cpu_share`` (of the CPUs that the process may use) bound the daemon.
    """

    run: RunName
    store: str
    keep_last: Annotated[int, Field(ge=1)] | None = None
    keep_every: Annotated[int, Field(ge=1)] | None = None
    local_requires: Literal["replicated", "read-back", "rehearsed"] = "replicated"
    local_headroom: bool = True
    state_dir: str | None = None
    backlog: Annotated[int, Field(ge=1)] = 8
    hash_workers: Annotated[int, Field(ge=1, le=64)] = Field(default_factory=default_workers)
    nice: Annotated[int, Field(ge=0, le=19)] = 10
    io_priority: Literal["idle", "low", "normal"] = "low"
    cpu_share: Annotated[float, Field(gt=0, le=1)] | None = None
    poll_seconds: Annotated[float, Field(gt=0, le=3600)] = 5.0
    drain_seconds: Annotated[float, Field(ge=0, le=3600)] = 30.0
    zone: Annotated[str, Field(min_length=1)] | None = None
    tier: Annotated[tuple[TierConfig, ...], Field(strict=False)] = ()
    rehearse: RehearseConfig = RehearseConfig()
    trust: TrustConfig = TrustConfig()
    signing: SigningConfig = SigningConfig()
    source: Annotated[Path | None, Field(exclude=True)] = None

    @field_validator("run", mode="before")
    @classmethod
    def _run_is_a_name(cls, run: Any) -> RunName:
        if not isinstance(run, str):
            raise ValueError("is not a string")  # noqa: TRY004 - pydantic collects ValueError only
        try:
            return run_name(run)
        except ConfigInvalid as error:
            raise ValueError(f"{error.message}: {error.hint}") from error

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [tier.name for tier in self.tier]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"two tiers have the same name, {twice!r}")
        unknown = sorted(set(self.trust.unsigned_until) - set(names))
        if unknown:
            raise ValueError(f"trust.unsigned_until names {unknown[0]!r}, and no tier is called that")
        return self

    @property
    def base(self) -> Path:
        """Folder that relative paths in the file are relative to."""
        return self.source.parent if self.source else Path.cwd()

    @property
    def local(self) -> LocalRun:
        """Where this run's local generations lie."""
        return LocalRun(self.base / self.store / self.run)

    @property
    def remote(self) -> RemoteRun:
        """Where this run lies on every tier, and whose entries count there.

        Reads the keyring; raises ConfigInvalid and Denied.
        """
        trust = load_trust(
            self.base,
            keyring=self.trust.keyring,
            unsigned_until=self.trust.unsigned_until,
            run_uid=self.trust.run_uid,
            max_age=self.trust.max_age_seconds,
            signer=find_signer(self.base, self.signing.key, self.signing.passphrase_file),
        )
        return RemoteRun(self.run, trust=trust, memory=partial(last_seen, self.state))

    @property
    def state(self) -> Path:
        """Folder of the tracker: ``state_dir`` where given, else the run's folder."""
        return self.base / self.state_dir / self.run if self.state_dir else self.local.root

    def select(self, name: str | None) -> tuple[TierConfig, ...]:
        """Return the named tier, or all; raises ConfigInvalid for a name that is not configured."""
        if name is None:
            return self.tier
        chosen = tuple(tier for tier in self.tier if tier.name == name)
        if not chosen:
            known = ", ".join(tier.name for tier in self.tier) or "none"
            raise ConfigInvalid(f"no tier is called {name!r}", hint=f"configured tiers: {known}")
        return chosen


def find_config(explicit: Path | None, *, start: Path) -> Path:
    """Return ``--config``, else ``CKPTIER_CONFIG``, else the nearest ckptier.toml upwards."""
    named = explicit or (Path(value) if (value := os.environ.get("CKPTIER_CONFIG")) else None)
    if named is not None:
        return named
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    raise ConfigInvalid(
        f"no {FILE_NAME} in {start} or above it",
        hint="write one with `ckptier init`, or name one with --config",
    )


def load_config(path: Path) -> Config:
    """Read and check a configuration file; every fault is named in one ConfigInvalid."""
    try:
        document = parse_toml(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigInvalid(f"{path} does not exist", hint="write one with `ckptier init`") from error
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigInvalid(f"{path} cannot be read: {why}", hint=f"name the file itself: {FILE_NAME}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigInvalid(f"{path} is not valid TOML: {error}", hint="correct the line that is named") from error
    if "source" in document:
        raise ConfigInvalid(f"{path}: source: unknown key", hint="remove it")
    try:
        return Config.model_validate({**_anchored(document, path.resolve().parent), "source": path.resolve()})
    except ValidationError as error:
        raise ConfigInvalid(f"{path}: {_faults(error)}", hint=_hint(error)) from error


def _anchored(document: dict[str, Any], base: Path) -> dict[str, Any]:
    """Return the document with certificates made relative to the file, since a tier does not know where that is."""
    sections = document.get("tier")
    if not isinstance(sections, list):
        return document
    return {**document, "tier": [_anchored_tier(section, base) for section in sections]}


def _anchored_tier(section: Any, base: Path) -> Any:
    bundle = section.get("ca_bundle") if isinstance(section, dict) else None
    if not isinstance(bundle, str) or not bundle:
        return section
    return {**section, "ca_bundle": str(base / bundle)}


def _faults(error: ValidationError) -> str:
    every = error.errors(include_url=False, include_input=False)
    named = "; ".join(f"{_place(fault['loc'])}: {_words(fault['type'], fault['msg'])}" for fault in every[:MAX_FAULTS])
    return named if len(every) <= MAX_FAULTS else f"{named}; and {len(every) - MAX_FAULTS} more"


def _place(where: tuple[str | int, ...]) -> str:
    """Name a key as it stands in the file; the tiers are counted from 1."""
    match where:
        case ("tier", int(number), *rest):
            return ", ".join([f"[[tier]] {number + 1}", *([".".join(map(str, rest))] if rest else [])])
    return ".".join(map(str, where)) or "the file"


def _words(kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        return "unknown key"
    return message.removeprefix("Value error, ")


_SECTIONS = {"tier": "[[tier]]", "rehearse": "[rehearse]", "trust": "[trust]", "signing": "[signing]"}


def _hint(error: ValidationError) -> str:
    unknown = [fault["loc"] for fault in error.errors() if fault["type"] == "extra_forbidden"]
    if unknown:
        sections = {
            "top": sorted(set(Config.model_fields) - {"source"}),
            "[[tier]]": sorted(TierConfig.model_fields),
            "[rehearse]": sorted(RehearseConfig.model_fields),
            "[trust]": sorted(TrustConfig.model_fields),
            "[signing]": sorted(SigningConfig.model_fields),
        }
        named = {_SECTIONS.get(str(where[0]), "top") if len(where) > 1 else "top" for where in unknown}
        return "; ".join(f"known {name} keys: {', '.join(keys)}" for name, keys in sections.items() if name in named)
    return "correct the keys named above; docs/design.md shows every key"
