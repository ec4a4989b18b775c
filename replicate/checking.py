"""``ckptier check``: is everything in place, told before it is needed.

Each check names what was tried and what came of it.  One scratch object per tier is
created, created again (which has to be refused), read back and deleted.
"""

import os
import shutil
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import unquote, urlsplit

from replicate.config import Config, TierConfig
from replicate.errors import CkptierError, ExitCode, from_tier_error
from replicate.generation.lineage import read_lineage
from replicate.layout import RemoteRun, new_nonce
from replicate.log import LogView
from replicate.logbook import Logbook, check_related, name_slots, read_small
from replicate.signing.lines import key_id
from tiers.errors import AccessDenied, ObjectExists, ObjectNotFound, TierError, Unsupported
from tiers.opening import unencrypted_host
from tiers.probing.outcomes import ProbeReport
from tiers.protocol import Fencing, Key, Tier


class Grade(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was tried.  ``hint`` says what to do where it is not ok."""

    place: str
    subject: str
    grade: Grade
    detail: str
    hint: str = ""
    exit_code: ExitCode = ExitCode.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """Everything that was tried, in order; ``probes`` only where they were asked for."""

    run: str
    findings: tuple[Finding, ...]
    probes: tuple[ProbeReport, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """The code of the first failure; warnings do not count."""
        failed = [finding.exit_code for finding in self.findings if finding.grade is Grade.FAILED]
        return failed[0] if failed else ExitCode.OK


def check_store(config: Config) -> list[Finding]:
    """Look at the local store: writable, its history readable, space for another generation."""
    root = config.local.root
    present = next(folder for folder in (root, *root.parents) if folder.exists())
    if not present.is_dir() or not os.access(present, os.W_OK | os.X_OK):
        return [
            Finding(
                place="store",
                subject="writable",
                grade=Grade.FAILED,
                detail=f"{present} is not a folder that this user may write to",
                hint="change `store` in ckptier.toml or the folder's permissions",
                exit_code=ExitCode.DISK,
            )
        ]
    found = [Finding(place="store", subject="writable", grade=Grade.OK, detail=str(root))]
    try:
        lineage = read_lineage(config.local)
    except CkptierError as error:
        return [*found, failed("store", "lineage", error)]
    words = f"run {lineage.run_uid}, attempt {lineage.attempt}" if lineage else "nothing published yet"
    found.append(Finding(place="store", subject="lineage", grade=Grade.OK, detail=words))
    found.append(_space(root, present))
    found += [_writable_by_all(path) for path in (present, config.source) if path and _anybody_writes(path)]
    return found


def _anybody_writes(path: Path) -> bool:
    """Whether every user of the machine may replace what is there."""
    mode = path.stat().st_mode
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


def _writable_by_all(path: Path) -> Finding:
    return Finding(
        place="store",
        subject="permissions",
        grade=Grade.WARNING,
        detail=f"{path} can be written by every user of this machine",
        hint=f"chmod o-w {path}: who may write there decides what is restored, and where it goes",
    )


def _space(root: Path, present: Path) -> Finding:
    """Whether the next generation fits beside the newest one."""
    free = shutil.disk_usage(present).free
    newest = max(root.glob("generations/*"), default=None)
    need = sum(file.stat().st_size for file in newest.rglob("*") if file.is_file()) if newest else 0
    enough = free > need
    return Finding(
        place="store",
        subject="space",
        grade=Grade.OK if enough else Grade.WARNING,
        detail=f"{free} bytes free, the newest generation takes {need}",
        hint="" if enough else "make room: the next save would not fit",
    )


def check_apart(settings: TierConfig, store: Path) -> list[Finding]:
    """Warn where a volume tier lies on the store's own disk: a volume that is not mounted looks just like that."""
    url = urlsplit(settings.url)
    root = Path(unquote(url.path))
    present = next(folder for folder in (store, *store.parents) if folder.exists())
    if url.scheme != "file" or not root.is_dir() or root.stat().st_dev != present.stat().st_dev:
        return []
    return [
        Finding(
            place=settings.name,
            subject="another disk",
            grade=Grade.WARNING,
            detail=f"{root} is on the same file system as the store",
            hint="it is lost with this machine; is the volume mounted? Name a subfolder of the mount point",
        )
    ]


def check_transport(settings: TierConfig) -> list[Finding]:
    """Say where bytes and session tokens can be read on the way: it was allowed once, and is easily forgotten."""
    host = unencrypted_host(settings.url, settings.endpoint_url)
    if host is None:
        return []
    return [
        Finding(
            place=settings.name,
            subject="transport",
            grade=Grade.WARNING,
            detail=f"what goes to {host} and comes from there is not encrypted",
            hint="use https, with ca_bundle for an authority of your own, and take allow_insecure out",
        )
    ]


def check_tier(tier: Tier, remote: RemoteRun, run_uid: str | None) -> list[Finding]:
    """Try one tier: log readable, history ours, put-if-absent kept, written bytes read back."""
    try:
        view = Logbook(tier, remote).read()
        words = f"{len(view.live)} generations, log ends at slot {view.next_slot - 1}" if view.state else "empty"
        found = [Finding(place=tier.name, subject="reads", grade=Grade.OK, detail=words)]
        if run_uid is not None:
            check_related(view, run_uid, tier.name)
        found += [*_damage(tier.name, view), *_signing(tier.name, remote, view)]
        return [*found, *_writes(tier, remote), _meaning(tier)]
    except TierError as error:
        return [failed(tier.name, "answers", from_tier_error(error))]
    except CkptierError as error:
        return [failed(tier.name, "history", error)]


def _damage(tier: str, view: LogView) -> list[Finding]:
    if not view.damaged:
        return []
    trusted = all(damage.trusted for damage in view.damaged)
    return [
        Finding(
            place=tier,
            subject="log",
            grade=Grade.FAILED,
            detail=f"{name_slots([one.slot for one in view.damaged])} {'damaged' if trusted else 'not to be trusted'}",
            hint=f"intact generations can still be restored; `ckptier repair --tier {tier}` says how the log can go on"
            if trusted
            else "find out who wrote there, or which key the keyring lacks: docs/signing.md",
            exit_code=ExitCode.INTEGRITY if trusted else ExitCode.TRUST,
        )
    ]


def _signing(tier: str, remote: RemoteRun, view: LogView) -> list[Finding]:
    """Say with which key this machine would sign the next entry, where there is a trust root."""
    signer = remote.trust.signer
    if remote.trust.keyring is None:
        return []
    if signer is None:
        detail = "there is a trust root and no signing key: this machine only reads"
        return [Finding(place=tier, subject="signing", grade=Grade.OK, detail=detail)]
    try:
        remote.trust.require_signer(tier, view.next_slot)
    except CkptierError as error:
        return [failed(tier, "signing", error)]
    detail = f"slot {view.next_slot} would be signed by key {key_id(signer.key.public)}"
    return [Finding(place=tier, subject="signing", grade=Grade.OK, detail=detail)]


def _writes(tier: Tier, remote: RemoteRun) -> list[Finding]:
    """Create a scratch object twice: the second has to be refused, or two writers could both commit."""
    key = Key(f"{remote.run}/checks/{new_nonce()}.json")
    data = b'{"scratch":true}\n'
    tier.create(key, data)
    found = []
    try:
        tier.create(key, b'{"scratch":"second"}\n')
        won_twice = True
    except ObjectExists:
        won_twice = False
    except Unsupported:
        won_twice = True
    same = read_small(tier, key, 4096) == data
    if won_twice or not same:
        found.append(
            Finding(
                place=tier.name,
                subject="put-if-absent",
                grade=Grade.FAILED,
                detail="a second create on one key was accepted: two writers could overwrite each other",
                hint="use one writer only and say so with accept_advisory = true, or take another tier",
                exit_code=ExitCode.CAPABILITY,
            )
        )
    else:
        alone = tier.capabilities.fencing is Fencing.ADVISORY
        words = "a second creator is refused; of two at once both could win" if alone else "one creator wins"
        found.append(Finding(place=tier.name, subject="put-if-absent", grade=Grade.OK, detail=words))
    found.append(_cleanup(tier, key))
    return found


def _cleanup(tier: Tier, key: Key) -> Finding:
    try:
        tier.delete(key)
    except (AccessDenied, ObjectNotFound) as error:
        return Finding(
            place=tier.name,
            subject="deletes",
            grade=Grade.WARNING,
            detail=f"this key may not delete ({error.message}); {key} stays",
            hint="that is safe for a writer; use another key for deleting old generations",
        )
    return Finding(place=tier.name, subject="deletes", grade=Grade.OK, detail="the scratch object is gone")


def _meaning(tier: Tier) -> Finding:
    can = tier.capabilities
    advisory = can.fencing is Fencing.ADVISORY
    return Finding(
        place=tier.name,
        subject="proof",
        grade=Grade.WARNING if advisory else Grade.OK,
        detail=f"objects are verified by {can.verification}, writers are kept apart by {can.fencing}",
        hint="safe for a single writer only: `replicate` wants profile, or accept_advisory = true" if advisory else "",
    )


def failed(place: str, subject: str, error: CkptierError) -> Finding:
    """Return the finding for an error."""
    return Finding(
        place=place,
        subject=subject,
        grade=Grade.FAILED,
        detail=error.message,
        hint=error.hint,
        exit_code=error.exit_code,
    )
