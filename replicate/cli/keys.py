"""``ckptier keys``: keys that sign log entries, and the keyring that says which ones count."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replicate.cli.options import ConfigOption, JsonOption, TierOption, configured
from replicate.cli.reporting import reporting

if TYPE_CHECKING:
    from replicate.keykeeping import KeyLines
    from replicate.signing.keys import PublicKey

keys = typer.Typer(
    help="Keys that sign the log, and whose signatures count.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

KeyArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The private key's file.")]
PassphraseOption = Annotated[
    Path | None, typer.Option("--passphrase-file", metavar="FILE", help="The key's passphrase (default: it has none).")
]
CommentOption = Annotated[str, typer.Option("--comment", help="Whose key it is, for the keyring.")]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.add_typer(keys, name="keys", short_help="Sign the log, and say whose signatures count.")


@keys.command(short_help="Make a signing key.")
def new(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="New file for the private key.")],
    *,
    passphrase_file: PassphraseOption = None,
    comment: CommentOption = "",
    as_json: JsonOption = False,
) -> None:
    """Make an Ed25519 key in a file that only you can read; prints its entry for the keyring."""
    with reporting(as_json=as_json) as out:
        from replicate.signing import keys as files  # noqa: PLC0415 - keeps --help fast

        passphrase = files.passphrase_from(passphrase_file) if passphrase_file else None
        made = files.generate(path, passphrase=passphrase).public
        out.show(_described(made), _block(made, comment))


@keys.command(short_help="Show a key's entry for the keyring.")
def show(
    path: KeyArgument,
    *,
    passphrase_file: PassphraseOption = None,
    comment: CommentOption = "",
    as_json: JsonOption = False,
) -> None:
    """Print the public half of a key, as an entry for the keyring."""
    with reporting(as_json=as_json) as out:
        public = _public(path, passphrase_file)
        out.show(_described(public), _block(public, comment))


@keys.command(short_help="Pin a log that was written unsigned.")
def adopt(*, tier: TierOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Print the line for ckptier.toml that pins what each tier's log says now, so that signing can begin there.

    Only do this where you know that these logs are right: they are trusted from then on.
    """
    with reporting(as_json=as_json) as out:
        from replicate.keykeeping import KeyKeeping  # noqa: PLC0415 - keeps --help fast

        found = KeyKeeping(configured(config)).adopt(tier)
        out.show(found, _told(found))


@keys.command(short_help="Go on with a new key.")
def rotate(
    path: KeyArgument,
    *,
    passphrase_file: PassphraseOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the keyring's lines that give up the keys in use where the logs end now, and go on with the key in FILE.

    What the old keys signed is pinned by its digest, so that they are worth nothing to a thief.
    Stop the daemon before, and give every machine the keyring before it goes on.
    """
    with reporting(as_json=as_json) as out:
        from replicate.keykeeping import KeyKeeping  # noqa: PLC0415 - keeps --help fast

        found = KeyKeeping(configured(config)).rotate(_public(path, passphrase_file))
        out.show(found, _told(found))


def _public(path: Path, passphrase_file: Path | None) -> "PublicKey":
    from replicate.signing import keys as files  # noqa: PLC0415 - keeps --help fast

    return files.load(path, passphrase=files.passphrase_from(passphrase_file) if passphrase_file else None).public


def _described(public: "PublicKey") -> dict[str, str]:
    from replicate.signing.lines import key_id  # noqa: PLC0415 - keeps --help fast

    return {"id": key_id(public), "public": public.text, "fingerprint": public.fingerprint}


def _block(public: "PublicKey", comment: str) -> str:
    from replicate.signing.keyring import block  # noqa: PLC0415 - keeps --help fast

    return block(public, comment=comment)


def _told(found: "KeyLines") -> str:
    lines = [
        f"# {end.tier}: {end.generations} generations, newest {end.newest or 'none'}, run {end.run_uid}"
        if end.anchor
        else f"# {end.tier}: empty"
        for end in found.ends
    ]
    return "\n".join([*lines, found.lines])
