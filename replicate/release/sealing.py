"""Hashing a finished tree: every file once, every tensor in the same reading, and the export manifest over both."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from replicate.digests import BLOCK, CountedSha256
from replicate.errors import IntegrityFailure
from replicate.formats.safetensors import read_header
from replicate.generation.disk import local_io
from replicate.release.bundle import PublishedFile, PublishedTensor

WEIGHTS = ".safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedFile:
    """A file of the tree, and the tensors in it."""

    file: PublishedFile
    tensors: tuple[PublishedTensor, ...] = ()


def hash_file(tree: Path, path: str) -> HashedFile:
    """Hash one file of the tree; raises LocalDisk, and IntegrityFailure for a container that is not whole."""
    with local_io(tree / path, "hashing it"):
        if not path.endswith(WEIGHTS):
            size = (tree / path).stat().st_size
            whole = CountedSha256()
            with (tree / path).open("rb") as file:
                _feed(file.fileno(), size, path, whole)
            return HashedFile(file=PublishedFile(path=path, size=size, sha256=whole.hexdigest()))
        return _hash_weights(tree, path)


def _hash_weights(tree: Path, path: str) -> HashedFile:
    header = read_header(tree / path, what=path)
    whole = CountedSha256()
    tensors = []
    with (tree / path).open("rb") as file:
        start = header.tensors[0].start if header.tensors else header.file_size
        _feed(file.fileno(), start, path, whole)
        for tensor in header.tensors:  # in order of their data, which they cover without a gap
            own = CountedSha256()
            _feed(file.fileno(), tensor.size, path, whole, own)
            tensors.append(
                PublishedTensor(
                    name=tensor.name, file=path, dtype=tensor.dtype, shape=tensor.shape, sha256=own.hexdigest()
                )
            )
    return HashedFile(
        file=PublishedFile(path=path, size=header.file_size, sha256=whole.hexdigest()), tensors=tuple(tensors)
    )


def _feed(fd: int, length: int, path: str, *digests: CountedSha256) -> None:
    for block in _blocks(fd, length, path):
        for digest in digests:
            digest.update(block)


def _blocks(fd: int, length: int, path: str) -> Iterator[bytes]:
    while length:
        block = os.read(fd, min(BLOCK, length))
        if not block:
            raise IntegrityFailure(f"{path} ended while it was hashed", hint="let nothing else write there")
        length -= len(block)
        yield block
