"""The bundle that people without ckptier verify: what it covers, and whose key counts."""

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from release.verifying_by_hand import sharded

from replicate.errors import ConfigInvalid, IntegrityFailure, TrustFailure, UsageError
from replicate.release.verifying.signing import SIGNATURE, sign_tree, verify_signature


def keys(folder: Path, name: str) -> tuple[Path, Path]:
    """Write a key pair, and return the private and the public file."""
    key = ec.generate_private_key(ec.SECP256R1())
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


@pytest.fixture
def signer(tmp_path: Path) -> tuple[Path, Path]:
    return keys(tmp_path, "signer")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return sharded(tmp_path / "prepared")


def test_every_file_is_signed_and_the_bundle_lies_beside_the_tree(tree: Path, signer: tuple[Path, Path]) -> None:
    (tree / ".gitattributes").write_text("*.safetensors filter=lfs\n")
    private, public = signer
    before = sorted(path.name for path in tree.iterdir())
    bundle = sign_tree(tree, private)
    assert bundle == tree.parent / SIGNATURE
    assert sorted(path.name for path in tree.iterdir()) == before
    assert list(verify_signature(tree, bundle, public)) == before
    statement = json.loads(base64.b64decode(json.loads(bundle.read_text())["dsseEnvelope"]["payload"]))
    assert statement["predicateType"] == "https://model_signing/signature/v1.0"
    assert "ignore_paths" not in statement["predicate"]["serialization"]


def test_a_tree_may_be_moved_and_its_signature_inside_of_it(tree: Path, signer: tuple[Path, Path]) -> None:
    private, public = signer
    sign_tree(tree, private, signature=tree / SIGNATURE)
    moved = tree.rename(tree.parent / "downloaded")
    assert SIGNATURE not in verify_signature(moved, moved / SIGNATURE, public)


def _added(tree: Path) -> None:
    (tree / "extra.py").write_text("")


def _attributes(tree: Path) -> None:
    (tree / ".gitattributes").write_text("")


def _changed(tree: Path) -> None:
    (tree / "config.json").write_text("{}")


def _removed(tree: Path) -> None:
    (tree / "config.json").unlink()


def _cached(tree: Path) -> None:
    (tree / ".cache").mkdir()


def _linked(tree: Path) -> None:
    (tree / "more").symlink_to("config.json")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (_added, "extra.py"),
        (_attributes, ".gitattributes"),
        (_changed, "config.json"),
        (_removed, "config.json"),
        (_cached, ".cache"),
        (_linked, "more"),
    ],
)
def test_what_is_not_as_it_was_signed_is_named(
    tree: Path, signer: tuple[Path, Path], change: Callable[[Path], None], name: str
) -> None:
    private, public = signer
    bundle = sign_tree(tree, private)
    change(tree)
    with pytest.raises(IntegrityFailure, match=name):
        verify_signature(tree, bundle, public)


def test_only_the_pinned_key_counts(tree: Path, signer: tuple[Path, Path], tmp_path: Path) -> None:
    bundle = sign_tree(tree, keys(tmp_path, "somebody")[0])
    with pytest.raises(TrustFailure, match=r"was not made with signer\.pub") as raised:
        verify_signature(tree, bundle, signer[1])
    assert "pin the signer's public key" in raised.value.hint


def test_an_altered_statement_is_not_believed(tree: Path, signer: tuple[Path, Path]) -> None:
    private, public = signer
    bundle = sign_tree(tree, private)
    document = json.loads(bundle.read_text())
    payload = json.loads(base64.b64decode(document["dsseEnvelope"]["payload"]))
    payload["predicate"]["resources"].pop()
    document["dsseEnvelope"]["payload"] = base64.b64encode(json.dumps(payload).encode()).decode()
    bundle.write_text(json.dumps(document))
    with pytest.raises(TrustFailure, match="was altered"):
        verify_signature(tree, bundle, public)


def test_a_signature_that_looks_away_is_refused(tree: Path, signer: tuple[Path, Path], tmp_path: Path) -> None:
    """The library takes the ignored paths from the bundle itself, and would pass whatever lies there."""
    from model_signing import hashing, signing  # noqa: PLC0415 - slow

    private, public = signer
    bundle = tmp_path / "lenient.sig"
    lenient: Any = hashing.Config()  # type: ignore[no-untyped-call]
    lenient.set_ignored_paths(paths=[tree / "config.json"], ignore_git_paths=False)
    config: Any = signing.Config()  # type: ignore[no-untyped-call]
    config.use_elliptic_key_signer(private_key=private)
    config.set_hashing_config(lenient).sign(tree, bundle)
    with pytest.raises(TrustFailure, match=r"lenient\.sig does not cover config\.json"):
        verify_signature(tree, bundle, public)


@pytest.mark.parametrize("name", [".cache/huggingface/x.lock", ".git/config", ".env"])
def test_what_was_never_prepared_is_never_signed(tree: Path, signer: tuple[Path, Path], name: str) -> None:
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text("x")
    with pytest.raises(IntegrityFailure, match="is no part of a release"):
        sign_tree(tree, signer[0])
    assert not (tree.parent / SIGNATURE).exists()


def test_devices_are_never_signed(tree: Path, signer: tuple[Path, Path]) -> None:
    os.mkfifo(tree / "pipe")
    with pytest.raises(IntegrityFailure, match="pipe is a link or a device"):
        sign_tree(tree, signer[0])


def test_no_signature_is_replaced(tree: Path, signer: tuple[Path, Path]) -> None:
    sign_tree(tree, signer[0])
    with pytest.raises(UsageError, match="exists"):
        sign_tree(tree, signer[0])


def test_what_is_no_key_or_no_bundle_is_named(tree: Path, signer: tuple[Path, Path], tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    with pytest.raises(ConfigInvalid, match=r"nonsense\.pem cannot be used as a key"):
        sign_tree(tree, nonsense)
    bundle = sign_tree(tree, signer[0])
    with pytest.raises(ConfigInvalid, match=r"nonsense\.pem cannot be used as a key"):
        verify_signature(tree, bundle, nonsense)
    for text in ("{}", "[]", "nonsense"):
        nonsense.write_text(text)
        with pytest.raises(IntegrityFailure, match="is no model-signing bundle"):
            verify_signature(tree, nonsense, signer[1])
    with pytest.raises(UsageError, match="is no folder"):
        sign_tree(tmp_path / "absent", signer[0], signature=tmp_path / "other.sig")
