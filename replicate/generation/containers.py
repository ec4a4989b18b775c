"""Whether files of known formats are whole as far as their structure tells: nothing is loaded, no torch is needed.

Held to a format is what has its marks: a suffix of torch together with the beginning of a zip,
``.safetensors``, and a ``.metadata`` beside ``.distcp`` files.  Everything else is opaque.
"""

from collections.abc import Callable
from pathlib import Path, PurePosixPath

from replicate.errors import IntegrityFailure
from replicate.formats import dcp
from replicate.formats.pickled import MAX_BYTES, TooLarge
from replicate.formats.safetensors import read_header
from replicate.formats.torch_zip import MAGIC, check_torch_zip
from replicate.generation.disk import local_io
from replicate.manifest import GenerationRecord, SealedFile

TORCH_SUFFIXES = frozenset({".pt", ".pth", ".ckpt", ".bin"})
SAFETENSORS = ".safetensors"


def check_containers(files: Path, record: GenerationRecord) -> tuple[str, ...]:
    """Check every container; returns what could not be judged, raises IntegrityFailure for the first that is hurt."""
    unjudged: list[str] = []
    sizes = {file.path: file.size for file in record.files}
    folders = {_folder(file.path) for file in record.files if file.path.endswith(dcp.DATA_SUFFIX)}
    for file in record.files:
        check = _check_of(file, folders)
        if check is None:
            continue
        try:
            with local_io(files / file.path, "checking its container"):
                check(files / file.path, file, sizes)
        except TooLarge as error:
            unjudged.append(error.message)
        except IntegrityFailure as error:
            raise IntegrityFailure(f"{file.path}: unloadable: {error.message}") from error
    return tuple(unjudged)


Check = Callable[[Path, SealedFile, dict[str, int]], None]


def _check_of(file: SealedFile, checkpoints: set[str]) -> Check | None:
    suffix = PurePosixPath(file.path).suffix
    if suffix in TORCH_SUFFIXES:
        return _check_torch
    if suffix == SAFETENSORS:
        return _check_safetensors
    name = file.path.rpartition("/")[2]
    if dcp.METADATA_NAME.fullmatch(name) and _folder(file.path) in checkpoints:
        return _check_metadata
    return None


def _check_torch(path: Path, file: SealedFile, _: dict[str, int]) -> None:
    if file.size == 0:
        if path.suffix == ".bin":  # anybody's suffix; the others are torch's, and never empty
            return
        raise IntegrityFailure("it is empty")
    with path.open("rb") as stream:
        if stream.read(len(MAGIC)) == MAGIC:
            check_torch_zip(stream, file.size)


def _check_safetensors(path: Path, _: SealedFile, __: dict[str, int]) -> None:
    read_header(path, what="it", any_dtype=True)


def _check_metadata(path: Path, file: SealedFile, sizes: dict[str, int]) -> None:
    with path.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    fault = dcp.metadata_fault(dcp.read_metadata(data, what="it"), _folder(file.path), sizes)
    if fault:
        raise IntegrityFailure(fault)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]
