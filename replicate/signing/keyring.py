"""The keyring: whose signatures count in a log, and in which slots.

A TOML file that goes with ``ckptier.toml`` and holds no secret:

    [[key]]
    id = "1f3a9c2e5b6d7788"           # follows from the key, so that a slip cannot name another
    public = "ed25519:…"
    comment = "trainer, since March"
    first_slot = 0                    # or one for each tier: { r2 = 13, volume = 412 }
    last_slot = { r2 = "12:5f1c…", volume = "411:09ab…" }

Logs of different tiers are of different length, so a limit is said for each tier; one number counts for all.
A ``last_slot`` with a digest pins what that key signed: even its thief can add nothing below.  Where
``last_slot`` names tiers, the key signs nothing on any other.
"""

import json
import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from replicate.errors import ConfigInvalid, Denied, UsageError
from replicate.signing.anchor import Anchor
from replicate.signing.keys import PublicKey
from replicate.signing.lines import key_id
from replicate.tomltext import parse_toml

MAX_KEYRING_BYTES = 1024 * 1024
_Slot = Annotated[int, Field(ge=0, lt=10**12)]
_Last = _Slot | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The slots of one log that a key may sign; ``pinned`` is the last of them where its digest is known."""

    first: int
    last: int | None
    pinned: Anchor | None

    def holds(self, slot: int) -> bool:
        """Whether the slot lies within."""
        return self.first <= slot and (self.last is None or slot <= self.last)


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class TrustedKey(_Section):
    """One ``[[key]]``."""

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    public: str
    comment: str = ""
    first_slot: _Slot | dict[str, _Slot] = 0
    last_slot: _Last | dict[str, _Last] | None = None

    @field_validator("public")
    @classmethod
    def _is_a_key(cls, public: str) -> str:
        return PublicKey.parse(public).text

    @field_validator("last_slot")
    @classmethod
    def _is_a_limit(cls, last: object) -> object:
        for one in last.values() if isinstance(last, dict) else (last,):
            if isinstance(one, str):
                _anchor(one)
        return last

    @model_validator(mode="after")
    def _id_follows(self) -> Self:
        if key_id(self.key) != self.id:
            raise ValueError(f"id {self.id} is not that of the key, which is {key_id(self.key)}")
        return self

    @property
    def key(self) -> PublicKey:
        """The key itself."""
        return PublicKey.parse(self.public)

    def span(self, tier: str) -> Span | None:
        """Return what it may sign in the log of a tier; None for nothing."""
        first = self.first_slot.get(tier, 0) if isinstance(self.first_slot, dict) else self.first_slot
        last = self.last_slot
        if isinstance(last, dict):
            if tier not in last:
                return None
            last = last[tier]
        pinned = _anchor(last) if isinstance(last, str) else None
        return Span(first=first, last=pinned.slot if pinned else last if isinstance(last, int) else None, pinned=pinned)


class Keyring(_Section):
    """All keys of a run."""

    key: Annotated[tuple[TrustedKey, ...], Field(strict=False, min_length=1, max_length=1000)]

    @model_validator(mode="after")
    def _keys_are_unique(self) -> Self:
        ids = [key.id for key in self.key]
        if len(set(ids)) != len(ids):
            raise ValueError("two keys have the same id")
        return self

    def find(self, key: str) -> TrustedKey | None:
        """Return a key by its id."""
        return next((one for one in self.key if one.id == key), None)


def _anchor(text: str) -> Anchor:
    try:
        return Anchor.parse(text)
    except UsageError as error:
        raise ValueError(error.message) from None


def block(key: PublicKey, *, comment: str = "", first_slot: Mapping[str, int | str] | None = None) -> str:
    """Write a key's entry for a keyring."""
    lines = ["[[key]]", f'id = "{key_id(key)}"', f'public = "{key.text}"']
    lines += [f"comment = {json.dumps(comment, ensure_ascii=False)}"] if comment else []
    lines += [f"first_slot = {table(first_slot)}"] if first_slot else []
    return "\n".join(lines)


def table(values: Mapping[str, int | str]) -> str:
    """Write values by tier as TOML; the names are quoted, since a dot in one would mean something."""
    return f"{{ {', '.join(f'{json.dumps(tier)} = {json.dumps(value)}' for tier, value in values.items())} }}"


def read_keyring(path: Path) -> Keyring:
    """Read and check a keyring; raises ConfigInvalid, and Denied where anybody may write to it."""
    try:
        return Keyring.model_validate(_document(path))
    except ValidationError as error:
        raise ConfigInvalid(f"keyring {path}: {_faults(error)}", hint="`ckptier keys show` prints a [[key]]") from error


def _document(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & stat.S_IWOTH:
                raise Denied(
                    f"keyring {path} can be written by everybody, so it vouches for nobody", hint=f"chmod o-w {path}"
                )
            data = file.read(MAX_KEYRING_BYTES + 1)
        if len(data) > MAX_KEYRING_BYTES:
            raise ConfigInvalid(f"keyring {path} is larger than {MAX_KEYRING_BYTES} bytes", hint="name the right file")
        return parse_toml(data.decode())
    except FileNotFoundError as error:
        raise ConfigInvalid(
            f"keyring {path} does not exist", hint="write it with what `ckptier keys show` prints"
        ) from error
    except OSError as error:
        raise ConfigInvalid(f"keyring {path} cannot be read: {error.strerror}", hint="check the path") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        hint = "correct the line that is named"
        raise ConfigInvalid(f"keyring {path} is not valid TOML: {error}", hint=hint) from error


def _faults(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, fault['loc'])) or 'file'}: "
        + ("unknown key" if fault["type"] == "extra_forbidden" else fault["msg"].removeprefix("Value error, "))
        for fault in error.errors(include_url=False, include_input=False)
    )
