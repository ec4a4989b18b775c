"""Words that must never be seen again, the forms in which they might be, and the search for them."""

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from support.seaweed import SECRET_KEY

from tiers.testing.s3_emulator import DEFAULT_CREDENTIALS

# The parts of a secret are put together here, so that no scanner of repositories takes them for real ones.
CANARIES: Mapping[str, str] = {
    "AWS_ACCESS_KEY_ID": "AKIA" + "CANARYCANARY0001",
    "AWS_SECRET_ACCESS_KEY": "canary/secret+000000000000000000000000002",
    "AWS_SESSION_TOKEN": "canary-session-token/00000000000000000003==",
    "HF_TOKEN": "hf_" + "canaryCANARYcanaryCANARYcanary0004",
    "AZURE_STORAGE_KEY": "canary-azure-key-000000000000000000000005==",
    "AZURE_STORAGE_CONNECTION_STRING": "AccountName=a;AccountKey=canary-azure-000000006==",
    "GOOGLE_API_KEY": "canary-google-0000000000000000000000007",
    "CKPTIER_WEBDAV_PASSWORD": "canary-webdav-password-00000000000008",
    "CKPTIER_SSH_PASSWORD": "canary-ssh-password-00000000000000009",
    "WANDB_API_KEY": "canary-wandb-0000000000000000000000010",
}
"""What the environment of a training machine may hold, by the name that it has there."""

WORDS: Mapping[str, str] = {
    "proxy password": "canary-proxy-password-0011",
    "password in a url": "canary-url-password-000012",
    "signature in a query": "canary0query0signature00000013",
    "option": "canary-fsspec-option-000000014",
    "key in a file": "AKIA" + "CANARYCANARY0015",
    "secret in a file": "canary/file/secret+000000000000000000016",
    "sse-c key": "canary-sse-c-key-00000000000017",
}
"""What may stand in configurations, URLs and the SDK's own files."""


SUITE: Mapping[str, str] = {"SeaweedFS's secret": SECRET_KEY, "the emulator's secret": DEFAULT_CREDENTIALS.secret_key}
"""Secrets that most tests work with: what they print and log is searched for these as well."""


def words_shown(text: str) -> list[str]:
    """Return which secrets stand in what a test printed or logged, as they are."""
    return [name for name, word in {**CANARIES, **WORDS, **SUITE}.items() if word in text]


def spellings(word: str) -> Iterator[bytes]:
    """Yield the bytes of a word, and what URLs, hex and base64 (wherever it begins) make of them."""
    data = word.encode()
    yield data
    yield quote(word, safe="").encode()
    yield data.hex().encode()
    yield data.hex().upper().encode()
    for start in range(3):
        whole = base64.b64encode(b"\0" * start + data)
        yield whole[4 if start else 0 : len(whole) // 4 * 4 - 4]


def leaks(places: Mapping[str, bytes], words: Mapping[str, str]) -> list[str]:
    """Return which word is found where, without saying the word."""
    forms = {name: tuple(dict.fromkeys(spellings(word))) for name, word in words.items()}
    return [
        f"{name} in {place}"
        for place, data in places.items()
        for name, each in forms.items()
        if any(form in data for form in each)
    ]


def files_below(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder, its name included in what is searched."""
    return {
        str(path.relative_to(folder)): str(path).encode() + b"\n" + path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
