"""Reading the files that a description names: regular files only, bounded, each under its own base name."""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from replicate.errors import ConfigInvalid, LocalDisk
from replicate.release.bundle import MANIFEST, Kind
from replicate.release.description import ReleaseDescription, ReleaseFiles
from replicate.release.provenance import FILE as PROVENANCE

CARD = "README.md"
ATTRIBUTES = ".gitattributes"
CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
ADAPTER_CONFIG = "adapter_config.json"
CHAT_TEMPLATE = "chat_template.jinja"
MAX_FILE_BYTES = 64 * 1024 * 1024
"""What a tokenizer of a very large vocabulary stays below; weights do not come in this way."""
_MADE = (CARD, ATTRIBUTES, PROVENANCE, MANIFEST)
_WEIGHTS = (".safetensors", ".safetensors.index.json")
_BY_KEY = {
    CONFIG: "files.config",
    GENERATION_CONFIG: "files.generation_config",
    ADAPTER_CONFIG: "files.adapter_config",
    CHAT_TEMPLATE: "files.chat_template",
}
"""Names that loaders go by, and the keys of the description that know what they mean."""


def gather(description: ReleaseDescription, base: Path) -> Mapping[str, bytes]:
    """Return the bytes of every named file, by the name under which it is published.

    Paths are relative to ``base``.  Raises ConfigInvalid that names the key for a file that is not
    there, is a link or anything but a regular file, is too large, or has a name that is taken.
    """
    if description.kind is Kind.ADAPTER and description.files.config is not None:
        raise ConfigInvalid(
            "files.config: an adapter has adapter_config.json; with a config.json it would look like a whole model",
            hint="leave files.config out",
        )
    gathered: dict[str, bytes] = {}
    taken = {name.casefold(): name for name in _MADE}
    for key, path in _named(description.files):
        name = PurePosixPath(path).name
        _check_name(key, path, name)
        other = taken.setdefault(name.casefold(), name)
        if other in _MADE or other != name:
            raise ConfigInvalid(f"{key}: {path} would be published as {name}, and {other} is there", hint="rename it")
        gathered[name] = _read(base / path, f"{key}: {path}")
    return gathered


def _named(files: ReleaseFiles) -> Iterator[tuple[str, str]]:
    """Yield (key of the description, path)."""
    for key in ("config", "generation_config", "adapter_config", "chat_template", "license"):
        path = getattr(files, key)
        if path is not None:
            yield f"files.{key}", path
    for key in ("tokenizer", "other"):
        yield from ((f"files.{key}.{number}", path) for number, path in enumerate(getattr(files, key)))


def _check_name(key: str, path: str, name: str) -> None:
    due = {known: own for own, known in _BY_KEY.items()}.get(key, name)
    if name == due and name in _BY_KEY and key != _BY_KEY[name]:
        raise ConfigInvalid(
            f"{key}: {path} would be published as {name}, which loaders take for more than a further file",
            hint=f"name it in {_BY_KEY[name]}, which is checked, or leave it out",
        )
    if name != due:
        raise ConfigInvalid(f"{key}: {path} would be published as {name}, loaders look for {due}", hint="rename it")
    if name.casefold().endswith(_WEIGHTS):
        raise ConfigInvalid(f"{key}: {path}: weights come from the generation only", hint="name them in source.files")
    if PurePosixPath(path).is_absolute() or not name:
        raise ConfigInvalid(f"{key}: {path} is not relative to the description", hint="put the file beside it")


def _read(path: Path, what: str) -> bytes:
    """Read a regular file; a link is not followed and a FIFO not waited for."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        words = "is a link" if path.is_symlink() else f"cannot be read ({error.strerror})"
        raise ConfigInvalid(f"{what} {words}", hint=f"name a regular file in {path.parent}") from error
    try:
        return _read_regular(fd, path, what)
    finally:
        os.close(fd)


def _read_regular(fd: int, path: Path, what: str) -> bytes:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise ConfigInvalid(f"{what} is not a regular file", hint=f"name a regular file in {path.parent}")
    if status.st_size > MAX_FILE_BYTES:
        raise ConfigInvalid(
            f"{what} has {status.st_size} bytes, more than the {MAX_FILE_BYTES} that one may have",
            hint="weights come from the generation only; leave it out",
        )
    try:
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise LocalDisk(f"{what} cannot be read: {error.strerror}", hint="check the disk") from error
