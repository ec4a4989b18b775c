"""Reading a commit back from the Hub: by its id, past every cache, every byte hashed.

Files are streamed and not downloaded through the library's cache, which believes a file of the
right size and may hold one from before.
"""

import hashlib
from collections.abc import Mapping
from math import prod

import httpx2
from huggingface_hub import hf_hub_url
from huggingface_hub.hf_api import ModelInfo, RepoFile
from huggingface_hub.utils._http import get_session, hf_raise_for_status

from replicate.digests import CountedSha256
from replicate.errors import IntegrityFailure, Unreachable
from replicate.formats.safetensors import FLOATING
from replicate.release.bundle import ExportManifest
from replicate.release.publishing.carrying import Carried, check_set, differs
from replicate.release.publishing.hub_library import ATTRIBUTES, AskedToWait, HubLibrary

_BREAKS = 5
"""How often in a row a stream may break without a byte in between."""


def read_back(
    library: HubLibrary,
    tree: Mapping[str, RepoFile],
    files: tuple[Carried, ...],
    commit: str,
    manifest: ExportManifest,
) -> None:
    """Compare a commit with the release: names, sizes and digests that the Hub lists, then every byte.

    Raises IntegrityFailure that names the file.
    """
    where = f"{library.repo}@{commit[:12]}"
    wanted = {file.path for file in files}
    check_set(where, {path for path in tree if path in wanted or path != ATTRIBUTES}, files)
    for file in files:
        listed = tree[file.path]
        if listed.size != file.size or (listed.lfs is not None and listed.lfs.sha256 != file.sha256):
            raise differs(where, file, "the Hub lists another size or SHA-256 than was sent")
    for file in files:
        _read_file(library, file, tree[file.path], commit, where)
    _check_parameters(library, commit, manifest, where)


def _read_file(library: HubLibrary, file: Carried, listed: RepoFile, commit: str, where: str) -> None:
    """Hash one file; what arrives wrong is asked for once more, since the transfer may be at fault."""
    for again in (True, False):
        stream = _Stream(library, file, commit)
        stream.read()
        if stream.matches(listed):
            return
        if not again:
            raise differs(where, file, "the Hub hands out other bytes than were sent")


class _Stream:
    """One file on its way; goes on where a broken connection stopped."""

    def __init__(self, library: HubLibrary, file: Carried, commit: str) -> None:
        self._library = library
        self._file = file
        self._url = hf_hub_url(library.repo, file.path, revision=commit, endpoint=library.api.endpoint)
        self._restart()

    def read(self) -> None:
        """Read to the end, or to where it is longer than it should be."""
        breaks = 0
        while True:
            before = self._done
            try:
                self._library.ask(f"reading {self._file.path} back", self._receive)
            except AskedToWait:
                raise
            except Unreachable:
                breaks = breaks + 1 if self._done == before else 1
                if breaks >= _BREAKS:
                    raise
                self._library.clock.wait(2.0 ** (breaks - 1))
            else:
                return

    def matches(self, listed: RepoFile) -> bool:
        """Tell whether it was the authorized file; for a regular one the Hub's blob id is compared as well."""
        blob = listed.lfs is not None or listed.blob_id == self._blob.hexdigest()
        return self._done == self._file.size and self._digest.hexdigest() == self._file.sha256 and blob

    def _restart(self) -> None:
        self._done = 0
        self._digest = CountedSha256()
        self._blob = hashlib.sha1(f"blob {self._file.size}\0".encode(), usedforsecurity=False)

    def _receive(self) -> None:
        asked = {"Range": f"bytes={self._done}-"} if self._done else {}
        headers = self._library.headers(**{"Accept-Encoding": "identity", **asked})
        with get_session().stream("GET", self._url, headers=headers) as response:
            hf_raise_for_status(response)
            if self._done and response.status_code != httpx2.codes.PARTIAL_CONTENT:
                self._restart()
            for block in response.iter_raw():
                self._digest.update(block)
                self._blob.update(block)
                self._done += len(block)
                if self._done > self._file.size:
                    return  # longer than it should be, however long


def _check_parameters(library: HubLibrary, commit: str, manifest: ExportManifest, where: str) -> None:
    """Compare how many parameters the Hub read from the headers, by dtype, where it says that.

    Only floating ones: it counts packed and integer tensors by rules of its own.
    """
    info = library.insist("asking for its parameters", lambda: library.api.repo_info(library.repo, revision=commit))
    told = info.safetensors if isinstance(info, ModelInfo) else None
    if told is None:
        return
    counts: dict[str, int] = {}
    for tensor in manifest.tensors:
        counts[tensor.dtype] = counts.get(tensor.dtype, 0) + prod(tensor.shape)
    for dtype in sorted(counts.keys() & FLOATING):
        found = told.parameters.get(dtype, 0)
        if found != counts[dtype]:
            raise IntegrityFailure(
                f"{where}: the Hub counts {found} parameters of {dtype}, the release has {counts[dtype]}",
                hint="do not use this commit",
            )
