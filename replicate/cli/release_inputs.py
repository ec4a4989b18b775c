"""What the release commands take and how they report: options, people with keys, the desk of a policy."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replicate.cli.options import configured, generation_id
from replicate.cli.reporting import Reporter
from replicate.cli.reporting import reporting as plainly_reporting
from replicate.errors import CkptierError, ConfigInvalid, ExitCode, UsageError

if TYPE_CHECKING:
    from replicate.release.authorizing import Authorization
    from replicate.release.policy import Policy
    from replicate.release.verbs import Desk, Signer, Sourcing
    from replicate.signing.keys import Passphrase

PreparedArgument = Annotated[Path, typer.Argument(metavar="PREPARED", help="Folder that `release prepare` made.")]
AuthorizationArgument = Annotated[Path, typer.Argument(metavar="AUTHORIZATION", help="File of an authorization.")]
PolicyOption = Annotated[Path, typer.Option("--policy", metavar="FILE", help="release-policy.toml.")]
AsOption = Annotated[str, typer.Option("--as", metavar="NAME", help="Who you are in the policy.")]
KeyOption = Annotated[Path, typer.Option("--key", metavar="FILE", help="Your private key.")]
PassphraseOption = Annotated[
    Path | None,
    typer.Option("--passphrase-file", metavar="FILE", help="Its passphrase (default: asked at the terminal)."),
]
TokenOption = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="The Hub's token (default: HF_TOKEN, or the login).")
]
TierOption = Annotated[str | None, typer.Option("--tier", "-t", help="Read from this tier (default: the local store).")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; it stands in the release log.")]

_NEXT = {
    ExitCode.INTEGRITY: "take it again from where it was made: what lies here is not that any more",
    ExitCode.TRUST: "`ckptier release log` and `ckptier release show` say what is on record",
    ExitCode.CONFIG: "correct what is named; docs/release.md shows every key",
    ExitCode.DISK: "look at the path, its permissions and its disk",
}
"""What to do next where an error itself does not know better."""


@contextmanager
def reporting(*, as_json: bool, verbose: bool = False) -> Iterator[Reporter]:
    """Report as every command does, with next steps that fit a release and not a store."""
    with plainly_reporting(as_json=as_json, verbose=verbose) as out:
        try:
            yield out
        except CkptierError as error:
            error.hint = error.hint or _NEXT.get(error.exit_code, "")
            raise


def sourcing_of(config: Path | None, generation: str | None, tier: str | None) -> "Sourcing":
    """Return where weights come from, by the options that say so."""
    from replicate.release.verbs import Sourcing  # noqa: PLC0415 - keeps --help fast

    return Sourcing(config=configured(config), generation=generation_id(generation), tier=tier)


def known_source(config: Path | None, generation: str | None, tier: str | None) -> "Sourcing":
    """Return where the source is; where nothing says so, a release can be verified without it."""
    try:
        return sourcing_of(config, generation, tier)
    except ConfigInvalid as error:
        error.hint = f"{error.hint}; --no-source verifies without the source"
        raise


def show_authorization(out: Reporter, found: "Authorization", policy: "Policy | None", *, file: Path) -> None:
    """Show an authorization: its record, and what is known of its signatures."""
    from replicate.jsonable import jsonable  # noqa: PLC0415 - keeps --help fast
    from replicate.release.rendering import render_authorization  # noqa: PLC0415 - as above
    from replicate.release.signatures import signature_states  # noqa: PLC0415 - as above

    known = signature_states(found, policy)
    approvals = [
        {"approver": signed.approval.approver, "approved_at": signed.approval.approved_at, "signature": state.name}
        for signed, state in zip(found.approvals, known.approvals, strict=True)
    ]
    document = {
        **jsonable(found.record),
        "record_sha256": found.record_sha256,
        "requester_signature": known.requester.name,
        "approvals": jsonable(approvals),
    }
    out.show(document, render_authorization(found, policy, file=file))


def desk_of(policy: Path, token_file: Path | None) -> "Desk":
    """Return what is done under a policy."""
    from replicate.release.publishing.opening import read_token  # noqa: PLC0415 - keeps --help fast
    from replicate.release.verbs import Desk  # noqa: PLC0415 - as above

    return Desk(policy, token=read_token(token_file) if token_file else None)


def signer_of(name: str, key: Path, passphrase_file: Path | None) -> "Signer":
    """Return somebody with a private key; asks for its passphrase where the file has one."""
    from replicate.release.verbs import Signer  # noqa: PLC0415 - as above
    from replicate.signing import keys  # noqa: PLC0415 - keeps --help fast

    return Signer(name=name, key=keys.load(key, passphrase=passphrase_of(passphrase_file, confirm=False)))


def passphrase_of(file: Path | None, *, confirm: bool) -> "Passphrase":
    """Return what is asked for a passphrase: the file, or whoever sits at the terminal."""
    from replicate.signing import keys  # noqa: PLC0415 - keeps --help fast

    if file is not None:
        return keys.passphrase_from(file)

    def ask() -> bytes:
        if not _has_terminal():
            raise UsageError(
                "there is no terminal to ask for the passphrase at",
                hint="give --passphrase-file FILE" + (", or --no-passphrase" if confirm else ""),
            )
        return str(typer.prompt("Passphrase", hide_input=True, confirmation_prompt=confirm, err=True)).encode()

    return ask


def _has_terminal() -> bool:
    try:
        with Path("/dev/tty").open("rb"):
            return True
    except OSError:
        return sys.stdin.isatty()


def reason_of(text: str) -> str:
    """Return a reason; raises UsageError where it says nothing."""
    if not text.strip():
        raise UsageError("--reason is empty", hint="say why: it stands in the release log for ever")
    return text
