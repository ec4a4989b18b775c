"""``ckptier release``: weights for others, made, proved and published.

Exit codes: 0; 1 where the scan blocks; 5 where bytes are not what they should be; 6 where it is not authorized.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from replicate.cli.options import ConfigOption, GenerationOption, JsonOption, VerboseOption
from replicate.cli.release_inputs import (
    AsOption,
    AuthorizationArgument,
    KeyOption,
    PassphraseOption,
    PolicyOption,
    PreparedArgument,
    ReasonOption,
    TierOption,
    TokenOption,
    desk_of,
    known_source,
    passphrase_of,
    reason_of,
    reporting,
    show_authorization,
    signer_of,
    sourcing_of,
)
from replicate.cli.reporting import write_error
from replicate.errors import ExitCode

release = typer.Typer(
    help="Publish weights: exactly the bytes that were approved, exactly where.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.add_typer(release, name="release", short_help="Publish weights, authorized.")


@release.command(short_help="Write templates to fill in.")
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write them.")] = Path(),
    *,
    as_json: JsonOption = False,
) -> None:
    """Write release.toml and release-policy.toml, commented, to be filled in; nothing is overwritten."""
    with reporting(as_json=as_json) as out:
        from replicate.release.templates import POLICY, RELEASE, write_templates  # noqa: PLC0415 - keeps --help fast

        write_templates(folder)
        lines = [f"wrote {folder / name}" for name in (RELEASE, POLICY)]
        next_step = "next: fill in what is empty; `ckptier release prepare` names what is missing"
        out.show({"wrote": [str(folder / RELEASE), str(folder / POLICY)]}, "\n".join([*lines, next_step]))


@release.command(short_help="Make a release from a generation, and scan it.")
def prepare(
    description: Annotated[Path, typer.Argument(metavar="DESCRIPTION", help="release.toml.")],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="New folder for the prepared release.")],
    generation: GenerationOption = None,
    tier: TierOption = None,
    waivers: Annotated[Path | None, typer.Option("--waivers", metavar="FILE", help="Answers to findings.")] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Make a release from a generation: weights, configs, card, provenance; nothing is sent anywhere.

    Exit 1 where the scan found something that must not be published: the folder is there to look at.
    """
    with reporting(as_json=as_json, verbose=verbose) as out_:
        from replicate.jsonable import jsonable  # noqa: PLC0415 - keeps --help fast
        from replicate.release.rendering import counted, render_prepared  # noqa: PLC0415 - as above
        from replicate.release.verbs import prepare_release  # noqa: PLC0415 - as above

        report = prepare_release(description, out, sourcing_of(config, generation, tier), waivers=waivers)
        code = ExitCode.ERROR if report.scan.blocking else ExitCode.OK
        named = {"export_manifest_sha256": report.manifest.sha256, **jsonable(report)}
        out_.show(named, render_prepared(report), exit_code=code)
        if report.scan.blocking:
            write_error(
                f"what blocks this release: {counted(len(report.scan.blocking), 'finding')}, in {out}",
                "remove the cause (README.md is made from [card]) and prepare again, or answer for it by --waivers",
            )


@release.command(short_help="Prove a release: structure, tensors, loading.")
def verify(
    target: Annotated[Path, typer.Argument(metavar="FOLDER", help="A prepared release, or a downloaded one.")],
    *,
    description: Annotated[
        Path | None, typer.Option("--description", metavar="FILE", help="release.toml, for code and base model.")
    ] = None,
    source: Annotated[
        bool, typer.Option("--source/--no-source", help="Compare every tensor with the generation.")
    ] = True,
    manifest_sha256: Annotated[
        str | None, typer.Option("--manifest-sha256", metavar="HEX", help="Digest that its manifest must have.")
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep/--no-deep", help="Load and run the model, in processes of its own.")
    ] = True,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 3 where a check could not be done.")] = False,
    generation: GenerationOption = None,
    tier: TierOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Prove a release; exit 5 where a check fails. What could not be checked is listed."""
    with reporting(as_json=as_json, verbose=verbose) as out:
        from replicate.release.rendering import render_verified  # noqa: PLC0415 - keeps --help fast
        from replicate.release.verbs import is_described, verify_tree  # noqa: PLC0415 - as above

        report = verify_tree(
            target,
            description_path=description,
            sourcing=known_source(config, generation, tier) if source and is_described(target, description) else None,
            manifest_sha256=manifest_sha256,
            deep=deep,
        )
        code = ExitCode.OK if report.complete or not strict else ExitCode.PARTIAL
        out.show(report, render_verified(report), exit_code=code if report.ok else ExitCode.INTEGRITY)
        if not report.ok:
            write_error(
                f"{target} is not what it should be: {', '.join(check.name for check in report.failed)}",
                "do not publish or use it; prepare or download it again",
            )


@release.command(short_help="Ask for permission, as a signed record.")
def authorize(
    prepared: PreparedArgument,
    *,
    policy: PolicyOption,
    name: AsOption,
    key: KeyOption,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="New file for the authorization.")],
    statement: Annotated[str, typer.Option("--statement", help="What approvers should know.")] = "",
    days: Annotated[int, typer.Option("--days", min=1, help="How long it is valid.")] = 7,
    not_before: Annotated[
        datetime | None,
        typer.Option("--not-before", formats=["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d"], help="UTC; default: now."),
    ] = None,
    set_visibility: Annotated[
        str | None, typer.Option("--set-visibility", metavar="public|private", help="Ask for this change instead.")
    ] = None,
    gating: Annotated[str | None, typer.Option("--gating", metavar="none|auto|manual", help="With it.")] = None,
    commit: Annotated[str | None, typer.Option("--commit", help="With it: the published commit.")] = None,
    passphrase_file: PassphraseOption = None,
    token_file: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a record that binds these bytes, this place and this visibility, signed by you. Others approve it."""
    with reporting(as_json=as_json) as output:
        from replicate.release import verbs  # noqa: PLC0415 - keeps --help fast

        desk = desk_of(policy, token_file)
        wish = verbs.wish(
            statement=statement,
            valid_for=timedelta(days=days),
            not_before=not_before.replace(tzinfo=UTC) if not_before else None,
            visibility=set_visibility,
            gating=gating,
            commit=commit,
        )
        found = desk.authorize(verbs.prepared_at(prepared), wish, signer_of(name, key, passphrase_file), out)
        show_authorization(output, found, desk.policy, file=out)


@release.command(short_help="Approve what somebody asked for.")
def approve(
    authorization: AuthorizationArgument,
    prepared: PreparedArgument,
    *,
    policy: PolicyOption,
    name: AsOption,
    key: KeyOption,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add your approval, after everything was recomputed from the bytes. Read `release show` first."""
    with reporting(as_json=as_json) as out:
        from replicate.release.verbs import prepared_at  # noqa: PLC0415 - keeps --help fast

        desk = desk_of(policy, None)
        found = desk.approve(authorization, prepared_at(prepared), signer_of(name, key, passphrase_file))
        show_authorization(out, found, desk.policy, file=authorization)


@release.command(short_help="Put approvals of one record together.")
def merge(
    authorization: AuthorizationArgument,
    others: Annotated[list[Path], typer.Argument(metavar="OTHER…", help="Copies with other approvals.")],
    *,
    policy: PolicyOption,
    as_json: JsonOption = False,
) -> None:
    """Add to a file the approvals that others gave on copies of it."""
    with reporting(as_json=as_json) as out:
        desk = desk_of(policy, None)
        show_authorization(out, desk.merge(authorization, tuple(others)), desk.policy, file=authorization)


@release.command(short_help="Show an authorization in words.")
def show(
    authorization: AuthorizationArgument,
    *,
    policy: Annotated[Path | None, typer.Option("--policy", metavar="FILE", help="release-policy.toml.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what an authorization permits; with a policy, also whether its signatures hold."""
    with reporting(as_json=as_json) as out:
        from replicate.release.authorizing import read_authorization  # noqa: PLC0415 - keeps --help fast

        found = read_authorization(authorization)
        show_authorization(out, found, desk_of(policy, None).policy if policy else None, file=authorization)


@release.command(short_help="Do what was authorized, and read it back.")
def publish(
    prepared: PreparedArgument,
    *,
    authorization: Annotated[Path, typer.Option("--authorization", "-a", metavar="FILE", help="The authorization.")],
    policy: PolicyOption,
    name: AsOption,
    key: KeyOption,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a publication that broke off.")] = False,
    passphrase_file: PassphraseOption = None,
    token_file: TokenOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Check everything again against the bytes, publish them whole, read them back, and write it down."""
    with reporting(as_json=as_json, verbose=verbose) as out:
        from replicate.release.authorizing import read_authorization  # noqa: PLC0415 - keeps --help fast
        from replicate.release.rendering import render_done  # noqa: PLC0415 - as above
        from replicate.release.verbs import prepared_at  # noqa: PLC0415 - as above

        desk, permitted = desk_of(policy, token_file), read_authorization(authorization)
        made, signer = prepared_at(prepared), signer_of(name, key, passphrase_file)
        try:
            report = desk.publish(made, permitted, signer, resume=resume, step=out.progress)
        except KeyboardInterrupt:
            write_error("interrupted: `ckptier release log` says how far it came", "run the same command with --resume")
            raise
        out.show(report, render_done(report))


@release.command(short_help="Take an authorization back.")
def revoke(
    authorization: AuthorizationArgument,
    *,
    policy: PolicyOption,
    name: AsOption,
    key: KeyOption,
    reason: ReasonOption,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take an authorization back for ever; what it published stays until it is withdrawn."""
    with reporting(as_json=as_json) as out:
        from replicate.release.authorizing import read_authorization  # noqa: PLC0415 - keeps --help fast

        found = read_authorization(authorization)
        desk_of(policy, None).revoke(found, reason=reason_of(reason), who=signer_of(name, key, passphrase_file))
        out.show({"revoked": found.record_sha256}, f"revoked {found.record_sha256}")


@release.command(short_help="Say that a release must not be used.")
def withdraw(
    prepared: PreparedArgument,
    *,
    policy: PolicyOption,
    name: AsOption,
    key: KeyOption,
    reason: ReasonOption,
    passphrase_file: PassphraseOption = None,
    token_file: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Void every authorization of a release, and make its repository private. Nothing is deleted."""
    with reporting(as_json=as_json) as out:
        from replicate.release.rendering import render_withdrawn  # noqa: PLC0415 - keeps --help fast
        from replicate.release.verbs import prepared_at  # noqa: PLC0415 - as above

        report = desk_of(policy, token_file).withdraw(
            prepared_at(prepared),
            reason=reason_of(reason),
            who=signer_of(name, key, passphrase_file),
            step=out.progress,
        )
        out.show(report, render_withdrawn(report))


@release.command(short_help="What was published where.")
def log(*, policy: PolicyOption, as_json: JsonOption = False) -> None:
    """List the release log, checked from its first entry."""
    with reporting(as_json=as_json) as out:
        from replicate.release.rendering import render_history  # noqa: PLC0415 - keeps --help fast

        history = desk_of(policy, None).history()
        out.show([one.entry for one in history.logged], render_history(history))


@release.command(short_help="Make a key.")
def keygen(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="New file for the private key.")],
    *,
    passphrase_file: PassphraseOption = None,
    no_passphrase: Annotated[bool, typer.Option("--no-passphrase", help="Leave the key unencrypted.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make an Ed25519 key; prints the public half for the policy. The file is readable by you only."""
    with reporting(as_json=as_json) as out:
        from replicate.signing import keys  # noqa: PLC0415 - keeps --help fast

        passphrase = None if no_passphrase else passphrase_of(passphrase_file, confirm=True)
        public = keys.generate(path, passphrase=passphrase).public
        out.show({"key": public.text, "fingerprint": public.fingerprint}, f'key = "{public.text}"')


@release.command(short_help="Sign a tree with OpenSSF model-signing.")
def sign(
    prepared: PreparedArgument,
    *,
    key: Annotated[Path, typer.Option("--ec-key", metavar="FILE", help="Elliptic-curve private key (PEM).")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="New file for the bundle.")],
    as_json: JsonOption = False,
) -> None:
    """Write an OpenSSF model-signing bundle over every file, for people who have no ckptier."""
    with reporting(as_json=as_json) as output:
        from replicate.release.verbs import prepared_at  # noqa: PLC0415 - keeps --help fast
        from replicate.release.verifying.signing import sign_tree  # noqa: PLC0415 - as above

        tree = prepared_at(prepared).tree
        bundle = sign_tree(tree, key, signature=out)
        output.show({"bundle": str(bundle)}, f"{bundle}: a signature over every file of {tree}")


@release.command("verify-signature", short_help="Check a model-signing bundle.")
def verify_signature(
    tree: Annotated[Path, typer.Argument(metavar="FOLDER", help="A prepared release, or a downloaded one.")],
    *,
    signature: Annotated[Path, typer.Option("--signature", metavar="FILE", help="The bundle.")],
    public_key: Annotated[Path, typer.Option("--public-key", metavar="FILE", help="The signer's key, pinned (PEM).")],
    as_json: JsonOption = False,
) -> None:
    """Check that a bundle was made with this key over exactly these files."""
    with reporting(as_json=as_json) as out:
        from replicate.release.verbs import published_tree  # noqa: PLC0415 - keeps --help fast
        from replicate.release.verifying import signing  # noqa: PLC0415 - as above

        files = signing.verify_signature(published_tree(tree), signature, public_key)
        out.show({"files": files}, f"signed with this key, and nothing else is there: {len(files)} files")
