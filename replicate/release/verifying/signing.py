"""An OpenSSF model-signing bundle over a release, as an export: signed with a key, verified with a pinned one.

It says who vouches for the bytes, to people who have no ckptier.  It is no authorization, and
with a key it carries no proof of time.  Every file of the tree is signed, the card included;
nothing is ignored but the signature itself, where it lies in the tree.
"""

import ast
import base64
import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from replicate.errors import CapabilityMissing, ConfigInvalid, IntegrityFailure, TrustFailure, UsageError
from replicate.generation.disk import local_io, write_new
from replicate.release.documents import read_bytes

SIGNATURE = "model.sig"
_NAME_IT = "name the file that `ckptier release sign` wrote"
_CACHE = ".cache"
_NEVER = frozenset({_CACHE, ".git", ".env"})
"""What lies in a folder after somebody worked in it, and is no part of a release."""


def sign_tree(tree: Path, private_key: Path, *, signature: Path | None = None, password: str | None = None) -> Path:
    """Sign every file of ``tree`` with an elliptic-curve key (PEM), and return where the bundle is.

    It is written to ``signature``, by default ``model.sig`` beside the tree; one that is named inside
    of the tree is the one path that it ignores.  Raises UsageError for a signature that exists,
    IntegrityFailure for links and for folders such as ``.cache`` that were not prepared,
    ConfigInvalid for a key that is none, CapabilityMissing without the library.
    """
    tree = tree.resolve()
    target = signature.parent.resolve() / signature.name if signature else tree.parent / SIGNATURE
    if target.is_symlink() or target.exists():
        raise UsageError(f"{target} exists", hint="name a new file")
    _refuse_unprepared(tree)
    library = _library("signing")
    ignored = _ignored(tree, target)
    with _foreign_errors(private_key), tempfile.TemporaryDirectory(prefix="ckptier-sign-") as scratch:
        config = library.Config()
        config.use_elliptic_key_signer(private_key=private_key, password=password)
        config.set_hashing_config(_hashing(ignored))
        written = Path(scratch) / SIGNATURE
        config.sign(tree, written)
        bundle = written.read_bytes()
    with local_io(target, "writing the signature"):
        write_new(target, bundle)
    return target


def verify_signature(tree: Path, signature: Path, public_key: Path) -> tuple[str, ...]:
    """Check that a bundle was made with the pinned key over exactly these files; return their paths.

    The bundle names no key that could be believed, so the key is the caller's.  Raises TrustFailure
    for another key or a signature that ignores files, and IntegrityFailure that names files which
    were added, changed or removed.
    """
    tree, signature = tree.resolve(), signature.resolve()
    statement = _statement(signature)
    ignored = _ignored(tree, signature)
    said = statement.get("predicate", {}).get("serialization", {}).get("ignore_paths", [])
    foreign = sorted(set(map(str, said)) - {SIGNATURE, *ignored})
    if foreign:
        raise TrustFailure(f"{signature.name} does not cover {foreign[0]}: the signer ignored it", hint="sign it again")
    _refuse_unprepared(tree)
    library = _library("verifying")
    with _foreign_errors(public_key):
        config = library.Config()
        config.use_elliptic_key_verifier(public_key=public_key)
        config.set_hashing_config(_hashing(ignored))
    try:
        config.verify(tree, signature)
    except Exception as error:
        message = " ".join(str(error).split()) or type(error).__name__
        if "Signature mismatch" in message or "symlink" in message:
            raise IntegrityFailure(
                f"{tree.name} is not what was signed: {_differing(message.removeprefix('Signature mismatch: '))}",
                hint="download it again, or ask the signer",
            ) from error
        raise TrustFailure(
            f"{signature.name} was not made with {public_key.name}, or was altered: {message}",
            hint="pin the signer's public key, from a place that is not the release",
        ) from error
    return tuple(sorted(one["name"] for one in statement["predicate"]["resources"]))


def _differing(listed: str) -> str:
    """Shorten the library's list of differences: names, without the repr of digests."""
    try:
        faults = [str(one) for one in ast.literal_eval(listed)]
    except (ValueError, SyntaxError):
        return listed
    changed = [re.fullmatch(r"Hash mismatch for '(.*)': Expected .*", fault) for fault in faults]
    return "; ".join(
        f"{found[1]} has other bytes" if found else fault for found, fault in zip(changed, faults, strict=True)
    )


def _refuse_unprepared(tree: Path) -> None:
    if not tree.is_dir():
        raise UsageError(f"{tree} is no folder", hint="name the tree of a release")
    with local_io(tree, "listing it"):
        for path in sorted(tree.rglob("*")):
            name = path.relative_to(tree).as_posix()
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise IntegrityFailure(f"{name} is a link or a device", hint="sign what `ckptier release prepare` made")
            if path.name in _NEVER:
                raise IntegrityFailure(
                    f"{name} is no part of a release", hint=f"remove {name}, or sign a tree as it was prepared"
                )


def _ignored(tree: Path, signature: Path) -> list[str]:
    return [signature.relative_to(tree).as_posix()] if signature.is_relative_to(tree) else []


def _hashing(ignored: list[str]) -> Any:
    config = _library("hashing").Config()
    config.use_file_serialization(hashing_algorithm="sha256", allow_symlinks=False)
    return config.set_ignored_paths(paths=ignored, ignore_git_paths=False)


def _statement(signature: Path) -> dict[str, Any]:
    """Read the signed statement for its file names; what it says is believed only after the verification."""
    data = read_bytes(signature, what="the signature")
    try:
        payload: dict[str, Any] = json.loads(base64.b64decode(json.loads(data)["dsseEnvelope"]["payload"]))
        ok = isinstance(payload, dict) and isinstance(payload["predicate"]["resources"], list)
    except (ValueError, KeyError, TypeError) as error:
        raise IntegrityFailure(f"{signature} is no model-signing bundle", hint=_NAME_IT) from error
    if not ok:
        raise IntegrityFailure(f"{signature} is no model-signing bundle", hint=_NAME_IT)
    return payload


def _library(name: str) -> ModuleType:
    """Import a module of model-signing: slow, so only here."""
    import importlib  # noqa: PLC0415 - only who signs pays for it

    try:
        return importlib.import_module(f"model_signing.{name}")
    except ImportError as error:
        raise CapabilityMissing(
            f"model-signing cannot be imported ({error})", hint="pip install 'ckptier[release]' (it needs pyOpenSSL)"
        ) from error


def _why(error: Exception) -> str:
    return "it is not of an elliptic curve" if isinstance(error, AttributeError) else " ".join(str(error).split())


@contextmanager
def _foreign_errors(key: Path) -> Iterator[None]:
    """Say which key is at fault; the library raises whatever reading it raised."""
    try:
        yield
    except OSError as error:
        raise ConfigInvalid(
            f"{key} cannot be used as a key: {error.strerror or error}", hint="name the file of an elliptic-curve key"
        ) from error
    except (ValueError, TypeError, AttributeError) as error:  # AttributeError: a key of another kind has no curve
        raise ConfigInvalid(
            f"{key} cannot be used as a key: {_why(error)}",
            hint="sign with an EC private key (PEM, no passphrase; not one of `keygen`), verify with its public key",
        ) from error
