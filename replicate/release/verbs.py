"""Wiring of the release commands: one function a verb, each a short path from files to a report."""

import getpass
import json
import socket
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

from pydantic import Field, ValidationError

from replicate.config import Config
from replicate.errors import ConfigInvalid, Denied, NothingFound, UsageError
from replicate.generation.lineage import read_lineage
from replicate.layout import GenerationId
from replicate.release.authorization import Act
from replicate.release.authorizing import (
    Authorization,
    approve,
    merge,
    read_authorization,
    replace_authorization,
    request,
    write_authorization,
)
from replicate.release.bundle import MANIFEST, Prepared
from replicate.release.deciding import require, strangers
from replicate.release.description import ReleaseDescription, load_description
from replicate.release.destination import Destination, Gating, Visibility
from replicate.release.documents import Document, faults, read
from replicate.release.findings import Waiver
from replicate.release.history import ReleaseHistory
from replicate.release.policy import Policy, load_policy
from replicate.release.preparing import PrepareReport, prepare
from replicate.release.publishing.opening import open_place
from replicate.release.publishing.places import Place, Step
from replicate.release.publishing.publishing import (
    PublishReport,
    VisibilityReport,
    WithdrawReport,
    change_visibility,
    publish,
    withdraw,
)
from replicate.release.releaselog import ReleaseLog, open_log, revoke
from replicate.release.rescanning import require_scanned
from replicate.release.scan.inputs import Identities
from replicate.release.source import SourceGeneration, fetch, open_local
from replicate.release.subject import observe
from replicate.release.verifying.verifying import VerifyReleaseReport, verify_release
from replicate.signing.keys import SigningKey
from replicate.tomltext import parse_toml
from tiers.clock import Clock, SystemClock

Choice = TypeVar("Choice", Visibility, Gating)


class _WaiverFile(Document):
    """``waivers.toml``: ``[[waiver]]`` tables."""

    waiver: Annotated[tuple[Waiver, ...], Field(strict=False)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sourcing:
    """Which generation: of the store, or of a tier; the newest, or one by id.  ``config`` is ckptier.toml as read."""

    config: Config
    generation: GenerationId | None = None
    tier: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """Somebody in the policy, and the key."""

    name: str
    key: SigningKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a requester asks for beyond the prepared bytes.  ``valid_for`` counts from ``not_before`` (None: now)."""

    act: Act
    statement: str
    valid_for: timedelta
    not_before: datetime | None = None
    commit: str | None = None
    visibility: Visibility | None = None
    gating: Gating | None = None


def wish(
    *,
    statement: str,
    valid_for: timedelta,
    not_before: datetime | None,
    visibility: str | None,
    gating: str | None,
    commit: str | None,
) -> Wish:
    """Read what was asked for in words; raises UsageError for a word that is none, or a half of a change."""
    if (visibility is None) != (commit is None) or (gating is not None and visibility is None):
        raise UsageError(
            "a change of visibility needs both --set-visibility and --commit",
            hint="`ckptier release log` shows the commit that was published",
        )
    return Wish(
        act=Act.PUBLISH if visibility is None else Act.SET_VISIBILITY,
        statement=statement,
        valid_for=valid_for,
        not_before=not_before,
        commit=commit,
        visibility=_word(Visibility, visibility, "--set-visibility"),
        gating=_word(Gating, gating, "--gating"),
    )


def _word(kind: type[Choice], text: str | None, option: str) -> Choice | None:
    if text is None:
        return None
    try:
        return kind(text)
    except ValueError:
        known = ", ".join(one.value for one in kind)
        raise UsageError(f"{option}: {text!r} is none of {known}", hint="take one of these words") from None


@contextmanager
def opened(sourcing: Sourcing, description: ReleaseDescription, clock: Clock) -> Iterator[SourceGeneration]:
    """Hand out the generation that weights come from; what had to be fetched is gone afterwards."""
    patterns = description.source.files
    if sourcing.tier is None:
        yield open_local(sourcing.config.local, sourcing.generation, patterns=patterns)
        return
    with TemporaryDirectory(prefix="ckptier-release-") as scratch:
        yield fetch(sourcing.config, sourcing.generation, sourcing.tier, Path(scratch), patterns, clock)


def prepare_release(
    description_path: Path, out: Path, sourcing: Sourcing, *, waivers: Path | None, clock: Clock | None = None
) -> PrepareReport:
    """Make a prepared release; what the scan found is in the report."""
    clock = clock or SystemClock()
    description = load_description(description_path)
    answered = load_waivers(waivers) if waivers is not None else ()
    with opened(sourcing, description, clock) as source:
        return prepare(
            description,
            description_path.absolute().parent,
            source,
            out,
            identities=identities(sourcing.config),
            waivers=answered,
            clock=clock,
        )


def load_waivers(path: Path) -> tuple[Waiver, ...]:
    """Read a waiver file; raises ConfigInvalid that names every fault."""
    try:
        document = parse_toml(path.read_text(encoding="utf-8"))
        return _WaiverFile.model_validate_json(_as_json(document)).waiver
    except OSError as error:
        raise ConfigInvalid(f"{path} cannot be read: {error.strerror}", hint="name the waiver file") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigInvalid(f"{path} is not valid TOML: {error}", hint="correct the line that is named") from error
    except ValidationError as error:
        hint = "a [[waiver]] has rule, path, reason, author and expires (a time with its zone)"
        raise ConfigInvalid(f"{path}: {faults(error)}", hint=hint) from error


def _as_json(document: object) -> str:
    """Return TOML as JSON: its times have to be told as text."""
    return json.dumps(document, default=lambda value: value.isoformat())


def identities(config: Config) -> Identities:
    """Return the words of this machine and this run that no release may hold."""
    lineage = read_lineage(config.local) if config.local.root.is_dir() else None
    buckets = [parts.netloc for parts in (urlsplit(tier.url) for tier in config.tier) if parts.netloc]
    places = (*(tier.url for tier in config.tier), *buckets, str(Path.home()), str(config.local.root))
    return Identities(
        user=getpass.getuser(),
        host=socket.gethostname(),
        run=config.run,
        run_uid=lineage.run_uid if lineage else "",
        places=places,
    )


def prepared_at(folder: Path) -> Prepared:
    """Return the prepared release in a folder; raises NothingFound where none is."""
    prepared = Prepared(folder)
    if not prepared.manifest.is_file():
        raise NothingFound(
            f"{folder} is no prepared release: it holds no {prepared.manifest.relative_to(folder)}",
            hint="name the folder that `ckptier release prepare --out` made",
        )
    return prepared


def is_described(target: Path, description_path: Path | None) -> bool:
    """Tell whether the description of a release is known, which names what is looked for in its source."""
    return description_path is not None or Prepared(target).description.is_file()


def published_tree(target: Path) -> Path:
    """Return the tree of a prepared release, or the folder itself where it is one; raises NothingFound."""
    for tree in (Prepared(target).tree, target):
        if (tree / MANIFEST).is_file():
            return tree
    raise NothingFound(
        f"{target} holds no {MANIFEST}", hint="name a prepared release, or the folder of a downloaded one"
    )


def verify_tree(
    target: Path,
    *,
    description_path: Path | None,
    sourcing: Sourcing | None,
    manifest_sha256: str | None,
    deep: bool,
    clock: Clock | None = None,
) -> VerifyReleaseReport:
    """Verify a prepared release or a downloaded tree, with as much as is known of where it came from."""
    prepared = Prepared(target)
    tree = published_tree(target)
    description = load_description(description_path) if description_path is not None else None
    if description is None and prepared.description.is_file():
        description = read(ReleaseDescription, prepared.description, what="description.json")
    base = description_path.absolute().parent if description_path is not None else None
    with ExitStack() as stack:
        source = None
        if sourcing is not None and description is not None:
            source = stack.enter_context(opened(sourcing, description, clock or SystemClock()))
        return verify_release(
            tree,
            description=description,
            base=base,
            source=source,
            manifest_sha256=manifest_sha256,
            deep=deep,
            downloaded=tree == target,
        )


class Desk:
    """What is done under a policy: asking, approving, publishing, taking back."""

    def __init__(self, policy: Path, *, clock: Clock | None = None, token: str | None = None) -> None:
        self.policy: Policy = load_policy(policy)
        self._clock = clock or SystemClock()
        self._token = token

    def authorize(self, prepared: Prepared, wish: Wish, requester: Signer, out: Path) -> Authorization:
        """Write a signed record for a prepared release to a new file; the place is looked at, not changed."""
        if out.exists():
            raise UsageError(f"{out} exists", hint="name a new file: a record is never overwritten")
        observed = observe(prepared)
        self._require_known(observed.destination)
        require_scanned(prepared, observed, self._clock.now())
        with self._log() as log, self._place(observed.destination) as place:
            parent = place.state().parent
            authorization = request(
                observed,
                self.policy,
                act=wish.act,
                expected_parent=parent,
                commit=wish.commit,
                requester_key=requester.key,
                requester=requester.name,
                statement=wish.statement,
                not_before=wish.not_before or self._clock.now(),
                valid_for=wish.valid_for,
                log_position=log.read().position,
                clock=self._clock,
                visibility=wish.visibility,
                gating=wish.gating,
            )
        write_authorization(authorization, out)
        return authorization

    def approve(self, path: Path, prepared: Prepared, approver: Signer) -> Authorization:
        """Add an approval to a file, after everything was recomputed from the bytes that it is about, and scanned."""
        authorization = read_authorization(path)
        observed = observe(prepared)
        approved = approve(authorization, self.policy, approver.key, approver.name, self._clock, observed=observed)
        require_scanned(prepared, observed, self._clock.now())
        replace_authorization(approved, path)
        return approved

    def merge(self, path: Path, others: tuple[Path, ...]) -> Authorization:
        """Add the approvals that were given on copies of one record."""
        merged = merge(read_authorization(path), *(read_authorization(other) for other in others))
        replace_authorization(merged, path)
        return merged

    def publish(
        self, prepared: Prepared, authorization: Authorization, publisher: Signer, *, resume: bool, step: Step
    ) -> PublishReport | VisibilityReport:
        """Do what the authorization permits: publish, or change who may see what was published."""
        require(strangers(self.policy, authorization.record.destination))
        step("scan the prepared release")
        require_scanned(prepared, observe(prepared), self._clock.now())
        act = change_visibility if authorization.record.act is Act.SET_VISIBILITY else publish
        with self._log() as log, self._place(authorization.record.destination) as place:
            return act(
                prepared,
                authorization,
                self.policy,
                place=place,
                log=log,
                clock=self._clock,
                publisher=publisher.name,
                resume=resume,
                step=step,
                key=publisher.key,
            )

    def revoke(self, authorization: Authorization, *, reason: str, who: Signer) -> None:
        """Take an authorization back for ever."""
        with self._log() as log:
            revoke(log, authorization.record_sha256, reason=reason, who=who.name, key=who.key, clock=self._clock)

    def withdraw(self, prepared: Prepared, *, reason: str, who: Signer, step: Step) -> WithdrawReport:
        """Log that a release must not be used, and hide it where ckptier manages that."""
        observed = observe(prepared)
        self._require_known(observed.destination)
        with self._log() as log, self._place(observed.destination) as place:
            return withdraw(
                observed.destination,
                observed.subject.export_manifest_sha256,
                place=place,
                log=log,
                clock=self._clock,
                who=who.name,
                key=who.key,
                reason=reason,
                step=step,
            )

    def history(self) -> ReleaseHistory:
        """Return the release log, checked from its first entry."""
        with self._log() as log:
            return log.read()

    @contextmanager
    def _log(self) -> Iterator[ReleaseLog]:
        log = open_log(self.policy, clock=self._clock)
        try:
            yield log
        finally:
            log.close()

    def _require_known(self, destination: Destination) -> None:
        """Raise Denied, before a token goes there, for a place that the policy does not name."""
        field = self.policy.stranger(destination)
        if field:
            raise Denied(
                f"destination.{field}: the policy names no {destination.url}"
                + (f" at {destination.endpoint}" if destination.endpoint else ""),
                hint="name another destination, or add a [[destination]] to the policy",
            )

    @contextmanager
    def _place(self, destination: Destination) -> Iterator[Place]:
        place = open_place(destination, clock=self._clock, token=self._token)
        try:
            yield place
        finally:
            place.close()
