"""The form of a tree, from its bytes alone: files, modes, manifest, headers, shards and index.

No torch, no library of safetensors, nothing executed.  What the producer says (manifest,
index) is held against the files, both ways.
"""

import hashlib
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from replicate.canonical import load
from replicate.digests import BLOCK, CountedSha256
from replicate.errors import IntegrityFailure, LocalDisk
from replicate.formats.safetensors import FileHeader, TensorHeader, read_header
from replicate.release.bundle import MANIFEST, ExportManifest, Kind, PublishedTensor, content_sha256
from replicate.release.documents import MAX_DOCUMENT_BYTES
from replicate.release.verifying.checks import Check, judged, listed
from replicate.release.verifying.plainfiles import is_plain, read_plain

WEIGHTS = ".safetensors"
METADATA = (("format", "pt"),)
FILES, HEADERS, SHARDS, TENSORS = "files", "headers", "shards", "tensors"
_STEMS = {Kind.FULL: "model", Kind.CUSTOM: "model", Kind.ADAPTER: "adapter_model"}
_SHARD = re.compile(r"(?P<stem>\w+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors")
_ATTRIBUTES, _CACHE = ".gitattributes", ".cache/huggingface/"
"""What the Hub and its client add to a download."""
_READERS = 0o044
_EXECUTE = 0o111


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """What was found: the checks, and the headers by file for whoever goes on."""

    checks: tuple[Check, ...]
    headers: Mapping[str, FileHeader]

    @property
    def weight_files(self) -> list[str]:
        """Files that hold tensors, sorted."""
        return sorted(self.headers)

    @property
    def tensors(self) -> dict[str, TensorHeader]:
        """Every tensor by name."""
        return {tensor.name: tensor for header in self.headers.values() for tensor in header.tensors}


def check_structure(tree: Path, manifest: ExportManifest, *, downloaded: bool) -> Structure:
    """Do the checks that need nothing but the tree; raises LocalDisk where it cannot be read.

    In what was ``downloaded``, the Hub's ``.gitattributes`` and its client's cache are not looked at.
    """
    try:
        said = {one.path for one in manifest.files}
        every = sorted(_walk(tree))
        present = [path for path in every if path in said or not (downloaded and _is_added(path))]
        files = judged(
            FILES, [*_file_faults(tree, manifest, present)], f"{len(present)} files are those of the manifest"
        )
        headers, faults = _read_headers(tree, [path for path in present if path.endswith(WEIGHTS)])
        count = sum(len(header.tensors) for header in headers.values())
        checks = (
            files,
            judged(HEADERS, faults, f"{count} tensors cover {len(headers)} files without a hole or a tail"),
            judged(SHARDS, [*_form_faults(tree, manifest.kind, headers, present)], _form_words(headers)),
            judged(TENSORS, [*_tensor_faults(tree, manifest, headers)], f"{count} tensors have the manifest's digests"),
        )
    except OSError as error:
        raise LocalDisk(f"{tree} cannot be read: {error.strerror or error}", hint="check the path") from error
    return Structure(checks=checks, headers=headers)


def _is_added(path: str) -> bool:
    return path == _ATTRIBUTES or path.startswith(_CACHE)


def _walk(tree: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(tree):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        yield from ((Path(folder) / name).relative_to(tree).as_posix() for name in files + links)


def _file_faults(tree: Path, manifest: ExportManifest, present: list[str]) -> Iterator[str]:
    """Compare the exact file set, both ways; regular files of normal modes; sizes and digests."""
    listed_paths = [one.path for one in manifest.files]
    yield from (f"{path} is listed twice" for path, count in Counter(listed_paths).items() if count > 1)
    yield from (f"{path} is not in the manifest" for path in sorted(set(present) - {*listed_paths, MANIFEST}))
    yield from (f"{path} is missing" for path in sorted(set(listed_paths) - set(present)))
    readers = stat.S_IMODE(tree.stat().st_mode) & _READERS
    for path in present:
        yield from _mode_faults(tree / path, path, readers)
    for one in manifest.files:
        if one.path in present and stat.S_ISREG((tree / one.path).lstat().st_mode):
            size = (tree / one.path).stat().st_size
            if size != one.size:
                yield f"{one.path} has {size} bytes, the manifest says {one.size}"
            elif digest(tree / one.path) != one.sha256:
                yield f"{one.path} has not the digest that the manifest says"


def _mode_faults(path: Path, name: str, readers: int) -> Iterator[str]:
    """Whoever may look into the folder may read its files, and nothing in it is a program."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        yield f"{name} is no regular file"
        return
    if found.st_nlink > 1:
        yield f"{name} has a second name (hard link)"
    mode = stat.S_IMODE(found.st_mode)
    if readers & ~mode or mode & _EXECUTE:
        yield f"{name} has mode {mode:04o}; 0644 is due"


def digest(path: Path) -> str:
    """Hash a whole file."""
    sha256 = CountedSha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            sha256.update(memoryview(block))
    return sha256.hexdigest()


def _read_headers(tree: Path, paths: list[str]) -> tuple[dict[str, FileHeader], list[str]]:
    headers: dict[str, FileHeader] = {}
    faults: list[str] = []
    for path in paths:
        if not is_plain(tree / path):
            continue  # a fault of its file already: a link may lead anywhere, a FIFO be waited for in vain
        try:
            headers[path] = read_header(tree / path, what=path)
        except IntegrityFailure as error:
            faults.append(error.message)
            continue
        if headers[path].metadata != METADATA:
            said = dict(headers[path].metadata)
            faults.append(f'{path}: its metadata is {said}, exactly {{"format": "pt"}} is due')
    if not paths:
        faults.append("there is no safetensors file")
    return headers, faults


def _form_words(headers: Mapping[str, FileHeader]) -> str:
    total = sum(header.data_size for header in headers.values())
    return (
        f"{len(headers)} files and their index agree, {total} bytes" if len(headers) > 1 else f"one file, {total} bytes"
    )


def _form_faults(tree: Path, kind: Kind, headers: Mapping[str, FileHeader], present: list[str]) -> Iterator[str]:
    """One file, or numbered shards with an index."""
    stem = _STEMS[kind]
    single, index = f"{stem}{WEIGHTS}", f"{stem}{WEIGHTS}.index.json"
    weights = [path for path in present if path.endswith(WEIGHTS)]
    yield from (f"{path}: weights lie in no folder" for path in weights if "/" in path)
    indexes = [path for path in present if path.endswith(".index.json")]
    yield from (f"{path} is no index of these weights" for path in indexes if path != index)
    holders = Counter(tensor.name for header in headers.values() for tensor in header.tensors)
    yield from (f"{name} lies in {count} files" for name, count in sorted(holders.items()) if count > 1)
    if index in present:
        yield from _index_faults(tree / index, headers, weights)
        yield from _numbering_faults(stem, weights)
    elif weights != [single]:
        yield f"weights are {listed(weights) or 'absent'}; without {index} there is {single} alone"
    yield from _kind_faults(kind, holders, present)


def _numbering_faults(stem: str, weights: list[str]) -> Iterator[str]:
    """``<stem>-00001-of-0000n``: each number up to n, once."""
    matches = {path: _SHARD.fullmatch(path) for path in weights}
    yield from (
        f"{path} is no shard: {stem}-00001-of-0000n.safetensors is due"
        for path, match in matches.items()
        if match is None or match["stem"] != stem
    )
    shards = [match for match in matches.values() if match is not None]
    counts = {int(match["count"]) for match in shards}
    if len(counts) > 1:
        yield f"shards say that there are {', '.join(map(str, sorted(counts)))} of them"
    elif counts:
        numbers, count = {int(match["number"]) for match in shards}, counts.pop()
        missing = set(range(1, count + 1)) - numbers
        extra = numbers - set(range(1, count + 1))
        yield from (f"shard {number} of {count} is missing" for number in sorted(missing))
        yield from (f"there is a shard {number} of {count}" for number in sorted(extra))


def _index_faults(path: Path, headers: Mapping[str, FileHeader], weights: list[str]) -> Iterator[str]:
    """Every entry is in that very shard, every tensor has an entry, every shard is named, the size is the headers'."""
    try:
        weight_map, total = _index(path)
    except IntegrityFailure as error:
        yield error.message
        return
    where = {tensor.name: file for file, header in headers.items() for tensor in header.tensors}
    for name, file in sorted(weight_map.items()):
        if PurePosixPath(file).is_absolute() or {"..", ""} & set(PurePosixPath(file).parts) or "\\" in file:
            yield f"{path.name}: {name} is said to be in {file!r}, which leads out of the folder"
        elif file not in weights:
            yield f"{path.name}: {name} is said to be in {file}, which is missing"
        elif file in headers and name not in {tensor.name for tensor in headers[file].tensors}:
            yield f"{path.name}: {name} is said to be in {file}, which does not hold it"
    yield from (f"{path.name}: {name} (in {where[name]}) is not in it" for name in sorted(set(where) - set(weight_map)))
    yield from (
        f"{file} is named by no entry of {path.name}" for file in sorted(set(weights) - set(weight_map.values()))
    )
    found = sum(header.data_size for header in headers.values())
    if total != found:
        yield f"{path.name}: total_size is {total}, the headers add up to {found}"


def _index(path: Path) -> tuple[Mapping[str, str], Any]:
    document = load(read_plain(path), what=path.name, max_bytes=MAX_DOCUMENT_BYTES)
    weight_map, metadata = document.get("weight_map"), document.get("metadata")
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
        raise IntegrityFailure(f"{path.name}: weight_map is no map of names to files")
    if not isinstance(metadata, dict):
        raise IntegrityFailure(f"{path.name}: metadata is missing")
    return weight_map, metadata.get("total_size")


def _kind_faults(kind: Kind, names: Mapping[str, int], present: list[str]) -> Iterator[str]:
    """Require that a release is what it says it is: an adapter is no model, a model no adapter."""
    adapter = [name for name in names if name.startswith("base_model.model.") or ".lora_" in name]
    if kind is Kind.ADAPTER:
        if "adapter_config.json" not in present:
            yield "adapter_config.json is missing"
        if not adapter:
            yield "no tensor has an adapter's name (base_model.model.…)"
        if "config.json" in present:
            yield "config.json is there: loaders would take an adapter for a whole model"
        return
    if adapter:
        yield f"released as {kind.value}, and these are an adapter's tensors: {listed(adapter)}"
    if "adapter_config.json" in present:
        yield f"released as {kind.value}, and adapter_config.json is there"
    if "config.json" not in present:
        yield "config.json is missing"


def _tensor_faults(tree: Path, manifest: ExportManifest, headers: Mapping[str, FileHeader]) -> Iterator[str]:
    """Compare the manifest's tensors with those of the headers, both ways, and their bytes with its digests."""
    said = {one.name: one for one in manifest.tensors}
    found = {tensor.name: (file, tensor) for file, header in headers.items() for tensor in header.tensors}
    if len(said) != len(manifest.tensors):
        yield "the manifest names a tensor twice"
    yield from (f"{name} is in the manifest and in no file" for name in sorted(set(said) - set(found)))
    yield from (f"{name} (in {found[name][0]}) is not in the manifest" for name in sorted(set(found) - set(said)))
    for name in sorted(set(said) & set(found)):
        file, tensor = found[name]
        one = said[name]
        if (one.file, one.dtype, one.shape) != (file, tensor.dtype, tensor.shape):
            here = f"{tensor.dtype} {list(tensor.shape)} in {file}"
            yield f"{name} is {here}, the manifest says {one.dtype} {list(one.shape)} in {one.file}"
        elif tensor_digest(tree / file, tensor) != one.sha256:
            yield f"{name}: its bytes have not the digest that the manifest says"
    yield from _content_fault(manifest.tensors, manifest.content_sha256)


def _content_fault(tensors: tuple[PublishedTensor, ...], said: str) -> Iterator[str]:
    if content_sha256(tensors) != said:
        yield "content_sha256 of the manifest is not that of its tensors"


def tensor_digest(path: Path, tensor: TensorHeader) -> str:
    """Hash the data of one tensor."""
    sha256 = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(tensor.start)
        left = tensor.size
        while left and (block := file.read(min(BLOCK, left))):
            sha256.update(block)
            left -= len(block)
    return sha256.hexdigest()
