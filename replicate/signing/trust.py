"""Whom a log is believed: a trust root, or none; and with which key this machine signs.

Without a trust root every well-formed entry counts, since digests beside the data prove only
that it was not damaged.  With one, an entry counts that a key of the keyring has signed for its
slot, or that is part of a prefix whose last entry the configuration pins by its digest.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from replicate.errors import ConfigInvalid, ExitCode, IntegrityFailure, TrustFailure, UsageError
from replicate.signing.anchor import Anchor
from replicate.signing.keyring import Keyring, Span, TrustedKey, read_keyring
from replicate.signing.keys import SigningKey, load, passphrase_from
from replicate.signing.lines import Lines, key_id, sign, verifies

KEY_FILE_VARIABLE = "CKPTIER_SIGNING_KEY_FILE"


class NotTrusted(IntegrityFailure):
    """Bytes that are well-formed, perhaps, and that nobody vouches for who is trusted."""

    exit_code = ExitCode.TRUST


class Signer:
    """The key that this machine signs with; its file is read when it is first needed."""

    def __init__(self, path: Path, passphrase_file: Path | None = None) -> None:
        self.path = path
        self._passphrase_file = passphrase_file

    @cached_property
    def key(self) -> SigningKey:
        """The key; raises Denied, ConfigInvalid, LocalDisk or CapabilityMissing."""
        return load(self.path, passphrase=passphrase_from(self._passphrase_file) if self._passphrase_file else None)

    def __repr__(self) -> str:
        return f"Signer({str(self.path)!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTrust:
    """What counts in the logs of a run.  ``keyring`` None: there is no trust root, and nothing is signed.

    ``unsigned_until`` pins, by tier, the end of what was written before signing began;
    ``run_uid`` is the only run whose commits count; ``max_age`` is in seconds.
    """

    keyring: Keyring | None = None
    unsigned_until: Mapping[str, Anchor] = field(default_factory=dict)
    run_uid: str | None = None
    max_age: float | None = None
    signer: Signer | None = None

    def anchors(self, tier: str) -> tuple[Anchor, ...]:
        """Return the pinned slots of a tier's log, furthest first."""
        spans = [key.span(tier) for key in self.keyring.key] if self.keyring else []
        found = {span.pinned for span in spans if span is not None and span.pinned is not None}
        found |= {self.unsigned_until[tier]} if tier in self.unsigned_until else set()
        return tuple(sorted(found, key=lambda anchor: anchor.slot, reverse=True))

    def refusal(self, lines: Lines, *, tier: str, slot: int, pinned: Callable[[], bool]) -> str | None:
        """Say why an entry does not count, None where it does; nothing of it has been parsed.

        ``pinned`` tells whether the entry is part of the log that leads to an anchor.
        """
        if self.keyring is None:
            return None
        if lines.signature is None:
            return self._unsigned(tier, slot, pinned)
        key = self.keyring.find(lines.signature.key)
        if key is None:
            return f"it is signed by key {lines.signature.key}, which the keyring does not list"
        return self._signed(lines, key, tier, slot, pinned)

    def _signed(self, lines: Lines, key: TrustedKey, tier: str, slot: int, pinned: Callable[[], bool]) -> str | None:
        span = key.span(tier)
        if span is None or not span.holds(slot):
            return f"it is signed by key {key.id}, which is not trusted for slot {slot} of {tier}"
        if not verifies(key.key, lines):
            return f"its signature by key {key.id} does not verify"
        if span.pinned is not None and not pinned():
            return f"key {key.id} was given up, and this is not part of the log up to its pinned slot {span.last}"
        return None

    def _unsigned(self, tier: str, slot: int, pinned: Callable[[], bool]) -> str | None:
        until = self.unsigned_until.get(tier)
        if until is None or slot > until.slot:
            return "it is not signed"
        return None if pinned() else f"it is not signed, and not part of the log up to the pinned slot {until.slot}"

    def require_signer(self, tier: str, slot: int) -> None:
        """Raise where an entry for this slot could not be signed so that it counts; does nothing without a trust root.

        TrustFailure on a machine that only reads, ConfigInvalid for a key that is not trusted there, and what
        reading the key raises.
        """
        if self.keyring is None:
            return
        if self.signer is None:
            raise TrustFailure(
                f"{tier}: there is a trust root and no signing key, so this machine only reads",
                hint=f"name the key's file: key under [signing] in ckptier.toml, or {KEY_FILE_VARIABLE}",
            )
        span = self._own_span(self.signer.key, tier)
        if span is None or not span.holds(slot):
            raise ConfigInvalid(
                f"{tier}: the signing key {key_id(self.signer.key.public)} is not trusted for slot {slot}",
                hint="sign with a key whose first_slot and last_slot in the keyring allow it",
            )

    def _own_span(self, key: SigningKey, tier: str) -> Span | None:
        found = self.keyring.find(key_id(key.public)) if self.keyring else None
        if found is None:
            raise ConfigInvalid(
                f"the signing key {key_id(key.public)} is not in the keyring, so nobody would trust what it signs",
                hint="add what `ckptier keys show` prints for it to the keyring",
            )
        return found.span(tier)

    def seal(self, entry: bytes, *, tier: str, slot: int) -> bytes:
        """Return the bytes to write for an entry: signed where there is a trust root; raises as require_signer does."""
        self.require_signer(tier, slot)
        return entry if self.signer is None or self.keyring is None else sign(entry, self.signer.key)


UNSIGNED = LogTrust()
"""No trust root: nothing is signed and nothing is refused."""


def load_trust(
    base: Path,
    *,
    keyring: str | None,
    unsigned_until: Mapping[str, str],
    run_uid: str | None,
    max_age: float | None,
    signer: Signer | None,
) -> LogTrust:
    """Build what ``[trust]`` and ``[signing]`` say, relative to ``base``; raises ConfigInvalid and Denied."""
    if keyring is None and (unsigned_until or signer is not None):
        what = "unsigned_until" if unsigned_until else "a signing key"
        raise ConfigInvalid(
            f"{what} means nothing without a trust root", hint='name a keyring: keyring = "trust.toml" under [trust]'
        )
    return LogTrust(
        keyring=read_keyring(base / keyring) if keyring is not None else None,
        unsigned_until={tier: read_anchor(text, tier) for tier, text in unsigned_until.items()},
        run_uid=run_uid,
        max_age=max_age,
        signer=signer,
    )


def read_anchor(text: str, tier: str) -> Anchor:
    """Read an anchor of the configuration; raises ConfigInvalid."""
    try:
        return Anchor.parse(text)
    except UsageError as error:
        raise ConfigInvalid(
            f"trust.unsigned_until.{tier}: {error.message}", hint="`ckptier keys adopt` prints that line"
        ) from error


def find_signer(base: Path, key: str | None, passphrase_file: str | None) -> Signer | None:
    """Return the signing key of this machine: the environment's, else the configuration's; None where none is named."""
    named = os.environ.get(KEY_FILE_VARIABLE) or key
    if not named:
        return None
    return Signer(base / named, base / passphrase_file if passphrase_file else None)
