"""Ed25519 keys: files that only their owner reads, one spelling, and errors that give nothing away."""

import base64
import importlib
import pickle
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from replicate.errors import CapabilityMissing, ConfigInvalid, Denied, LocalDisk, UsageError
from replicate.signing import keys
from replicate.signing.keys import PublicKey, generate, load, passphrase_from

RFC_KEY = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
RFC_SIGNATURE = (
    "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
    "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
)
"""Test 1 of section 7.1 of RFC 8032, over no bytes at all."""


def test_a_published_signature_is_accepted() -> None:
    key = PublicKey(bytes.fromhex(RFC_KEY))
    assert key.verifies(bytes.fromhex(RFC_SIGNATURE), b"")
    assert not key.verifies(bytes.fromhex(RFC_SIGNATURE), b"x")
    assert not key.verifies(bytes.fromhex(RFC_SIGNATURE)[:-1], b"")
    assert not PublicKey(b"\xff" * 32).verifies(bytes.fromhex(RFC_SIGNATURE), b"")


def test_a_key_survives_its_file(tmp_path: Path) -> None:
    made = generate(tmp_path / "key.pem")
    read = load(tmp_path / "key.pem", passphrase=lambda: pytest.fail("a key without a passphrase asks for none"))
    assert stat.S_IMODE((tmp_path / "key.pem").stat().st_mode) == 0o600
    assert read.public == made.public == PublicKey.parse(made.public.text)
    assert made.public.text.startswith("ed25519:")
    assert made.public.fingerprint.startswith("sha256:")
    assert made.public.verifies(read.sign(b"bytes"), b"bytes")


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    generate(tmp_path / "key.pem")
    before = (tmp_path / "key.pem").read_bytes()
    with pytest.raises(UsageError, match="never overwritten"):
        generate(tmp_path / "key.pem")
    (tmp_path / "link.pem").symlink_to(tmp_path / "elsewhere.pem")
    with pytest.raises(UsageError, match="never overwritten"):
        generate(tmp_path / "link.pem")
    assert (tmp_path / "key.pem").read_bytes() == before
    assert not (tmp_path / "elsewhere.pem").exists()


def test_an_encrypted_key_asks_for_its_passphrase(tmp_path: Path) -> None:
    secret = tmp_path / "passphrase"
    secret.write_bytes(b"correct horse\n")
    secret.chmod(0o600)
    made = generate(tmp_path / "key.pem", passphrase=passphrase_from(secret))
    assert load(tmp_path / "key.pem", passphrase=lambda: b"correct horse").public == made.public
    with pytest.raises(Denied, match="encrypted"):
        load(tmp_path / "key.pem")
    with pytest.raises(Denied, match="wrong") as refused:
        load(tmp_path / "key.pem", passphrase=lambda: b"battery staple")
    assert "staple" not in str(refused.value)
    with pytest.raises(Denied, match="empty"):
        load(tmp_path / "key.pem", passphrase=lambda: b"")
    with pytest.raises(Denied, match="empty"):
        generate(tmp_path / "other.pem", passphrase=lambda: b"")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_a_file_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    generate(tmp_path / "key.pem")
    (tmp_path / "key.pem").chmod(mode)
    with pytest.raises(Denied, match="read by others") as refused:
        load(tmp_path / "key.pem")
    assert "chmod 600" in refused.value.hint
    secret = tmp_path / "passphrase"
    secret.write_bytes(b"correct horse")
    secret.chmod(mode)
    with pytest.raises(Denied, match="read by others"):
        passphrase_from(secret)()


def test_what_is_no_key_is_named(tmp_path: Path) -> None:
    def private(data: bytes) -> Path:
        path = tmp_path / "file.pem"
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(data)
        return path

    other = generate_private_key(SECP256R1())
    pem = other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pytest.raises(ConfigInvalid, match="another kind of key"):
        load(private(pem))
    with pytest.raises(ConfigInvalid, match="no private key"):
        load(private(b"not a key"))
    with pytest.raises(ConfigInvalid, match="larger"):
        load(private(b"x" * 20_000))
    with pytest.raises(LocalDisk, match="cannot be read"):
        load(tmp_path / "absent.pem")
    with pytest.raises(LocalDisk, match="cannot be created"):
        generate(tmp_path / "absent" / "key.pem")
    (tmp_path / "folder").mkdir(mode=0o700)
    with pytest.raises(ConfigInvalid, match="no regular file"):
        load(tmp_path / "folder")


def test_a_private_key_is_not_shown(tmp_path: Path) -> None:
    made = generate(tmp_path / "key.pem")
    assert repr(made) == f"SigningKey({made.public.fingerprint})"
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(made)


WEAK = [
    (0).to_bytes(32, "little"),
    (1).to_bytes(32, "little"),
    (2**255 - 20).to_bytes(32, "little"),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa"),
    (2**255 - 19).to_bytes(32, "little"),
]


@pytest.mark.parametrize("raw", WEAK, ids=lambda raw: raw.hex()[:8])
def test_a_key_under_which_anybody_can_sign_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="no point"):
        PublicKey.parse("ed25519:" + base64.b64encode(raw).decode())


@pytest.mark.parametrize(
    "text",
    ["", "rsa:AAAA", "ed25519:", "ed25519:AAAA", "ed25519:" + "A" * 43, "ed25519:!" + "A" * 43, "ed25519:" + "é" * 44],
)
def test_another_spelling_is_no_key(text: str) -> None:
    with pytest.raises(ValueError, match="public key"):
        PublicKey.parse(text)


def test_one_key_has_one_spelling(tmp_path: Path) -> None:
    """The last letter of the base64 carries bits that say nothing: they have to be zero."""
    text = generate(tmp_path / "key.pem").public.text
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    assert text.endswith("=")
    other = text[:-2] + alphabet[alphabet.index(text[-2]) ^ 1] + "="
    with pytest.raises(ValueError, match="base64 of 32 bytes"):
        PublicKey.parse(other)


def test_without_cryptography_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    with pytest.raises(CapabilityMissing) as missing:
        generate(tmp_path / "key.pem")
    assert missing.value.hint == "pip install 'ckptier[sign]'"
    assert not (tmp_path / "key.pem").exists()


def test_importing_loads_nothing_heavy() -> None:
    """The command line imports what refuses and decides; only a signature needs cryptography."""
    modules = ("authorizing", "deciding", "releaselog", "policy", "subject", "envelope", "history")
    listed = ", ".join(f"replicate.release.{name}" for name in modules)
    heavy = ("cryptography", "torch", "huggingface_hub", "transformers", "numpy", "boto3")
    program = f"import sys, {listed}; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_the_module_is_no_part_of_a_release() -> None:
    """The signing of other logs uses it as it is."""
    source = Path(str(importlib.import_module(keys.__name__).__file__)).read_text(encoding="utf-8")
    assert "replicate.release" not in source
    assert "release" not in source.lower()
