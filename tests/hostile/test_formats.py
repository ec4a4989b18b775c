"""Containers of checkpoint files that lie: seen through by their structure, with nothing loaded and all bounded."""

import io
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile.payloads import (
    DISTCP,
    chunk,
    dcp_metadata,
    executing,
    honest_dcp,
    name,
    place,
    safetensors,
    size,
    tensor,
    text,
    torch_zip,
    with_field,
)
from hypothesis import given
from hypothesis import strategies as st

from replicate import RunStore
from replicate.errors import IntegrityFailure
from replicate.formats import dcp, pickled
from replicate.formats import torch_zip as torch_zips
from replicate.formats.dcp import read_metadata
from replicate.formats.pickled import BadPickle, TooLarge
from replicate.formats.safetensors import MAX_HEADER_BYTES, read_header
from replicate.formats.torch_zip import BadZip, check_torch_zip
from replicate.generation.evidence import Evidence, Level

ARCHIVE = torch_zip(a=b"0123", b=b"4567")


def judged(folder: Path, files: dict[str, bytes]) -> Evidence:
    """Seal these files as opaque ones and say how they are found."""
    store = RunStore(folder / "run", hash_workers=1)
    publication = store.publish(next_update=1, validate=False)
    with publication as directory:
        for path, content in files.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_bytes(content)
    assert publication.generation is not None
    return store.validate(publication.generation.id)


@pytest.mark.parametrize(
    "files",
    [
        {"m.safetensors": safetensors({"a": tensor(0, 8), "b": tensor(8, 8, shape=(0, 3))}, bytes(8))},
        {"m.safetensors": safetensors({"a": tensor(0, 5, dtype="F2_OF_THE_FUTURE")}, bytes(5))},
        {"m.pt": ARCHIVE, "opt.bin": b"anything", "nothing.bin": b""},
        honest_dcp(),
        {f"step-1/{path}": content for path, content in honest_dcp().items()},
        {".metadata": b"of something else altogether"},
    ],
    ids=["safetensors", "a dtype of the future", "torch", "dcp", "dcp below", "no dcp"],
)
def test_what_is_whole_is_validated_without_torch(files: dict[str, bytes], tmp_path: Path) -> None:
    found = judged(tmp_path, files)
    assert (found.level, found.detail) == (Level.VALIDATED, "digests"), found.reason


WRONG_SAFETENSORS = {
    "cut": (safetensors({"a": tensor(0, 8)}, bytes(7)), "end at byte"),
    "with a tail": (safetensors({"a": tensor(0, 8)}, bytes(9)), "end at byte"),
    "hole": (safetensors({"a": tensor(4, 8)}, bytes(8)), "starts at byte"),
    "overlap": (safetensors({"a": tensor(0, 8), "b": tensor(4, 12)}, bytes(12)), "starts at byte"),
    "backwards": (safetensors({"a": {"dtype": "X9", "shape": [], "data_offsets": [8, 0]}}, bytes(8)), "do not hold"),
    "shape": (safetensors({"a": tensor(0, 8, shape=(3,))}, bytes(8)), "do not hold"),
    "huge shape": (safetensors({"a": tensor(0, 8, shape=(2**52,) * 128)}, bytes(8)), "do not hold"),
    "float offset": (safetensors({"a": {**tensor(0, 8), "data_offsets": [0, 8.0]}}, bytes(8)), "natural"),
    "true offset": (safetensors({"a": {**tensor(0, 8), "data_offsets": [False, 8]}}, bytes(8)), "natural"),
    "no object": (b"\2\0\0\0\0\0\0\0[]", "not a JSON object"),
    "twice": (b"\x0d\0\0\0\0\0\0\0" + b'{"a":1,"a":1}', "twice"),
    "deep": (b"\x10\x27\0\0\0\0\0\0" + b"[" * 10_000, "not valid JSON"),
    "ten gigabytes": (safetensors({}, length=10_000_000_000), "does not fit"),
    "beyond all": (safetensors({}, length=2**64 - 1), "does not fit"),
    "empty": (b"", "does not fit"),
    "short": (b"\0\0\0", "does not fit"),
}


@pytest.mark.parametrize("case", WRONG_SAFETENSORS)
def test_safetensors_that_lie_are_quarantined(case: str, tmp_path: Path) -> None:
    content, words = WRONG_SAFETENSORS[case]
    found = judged(tmp_path, {"m.safetensors": content})
    assert found.level is Level.QUARANTINED
    assert words in found.reason
    assert found.reason.startswith("m.safetensors: unloadable: ")


def test_i14_a_header_that_claims_gigabytes_is_refused_before_a_byte_of_it_is_read(tmp_path: Path) -> None:
    """Also where the (sparse) file is that large."""
    path = tmp_path / "m.safetensors"
    with path.open("wb") as file:
        file.write((10_000_000_000).to_bytes(8, "little"))
        file.truncate(10_000_000_008)
    tracemalloc.start()
    with pytest.raises(IntegrityFailure, match="does not fit"):
        read_header(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000
    assert MAX_HEADER_BYTES == 100_000_000


def test_i14_a_header_of_too_many_values_is_refused_before_it_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replicate.formats.safetensors.MAX_VALUES", 50)
    path = tmp_path / "m.safetensors"
    path.write_bytes(safetensors({f"t{at}": tensor(0, 0, shape=(0,)) for at in range(10)}))
    monkeypatch.setattr("json.loads", lambda *_, **__: pytest.fail("it was parsed"))
    with pytest.raises(IntegrityFailure, match="more than 50 values"):
        read_header(path)


def overlapping() -> bytes:
    """Let one record's directory entry lead to the place of another (a zip that unpacks to more than it is)."""
    return with_field(ARCHIVE, 3, 42, ARCHIVE.index(b"archive/data/a") - 30)


WRONG_ZIPS: dict[str, tuple[Callable[[], bytes], str]] = {
    "cut": (lambda: ARCHIVE[:-1], "missing"),
    "cut in the directory": (lambda: ARCHIVE[:-30], "missing"),
    "with a tail": (lambda: ARCHIVE + b"x", "end with the file"),
    "compressed": (lambda: torch_zip(compression=zipfile.ZIP_DEFLATED, a=bytes(1_000_000)), "compressed"),
    "size lie": (lambda: with_field(ARCHIVE, 2, 24, 2**31), "compressed"),
    "both sizes lie": (lambda: with_field(with_field(ARCHIVE, 2, 24, 2**31), 2, 20, 2**31), "points outside"),
    "offset lie": (lambda: with_field(ARCHIVE, 2, 42, 2**31), "points outside"),
    "overlap": (overlapping, "overlap"),
    "encrypted": (lambda: with_field(ARCHIVE, 2, 8, 1, "<H"), "encrypted"),
    "zip64 without sizes": (lambda: with_field(ARCHIVE, 2, 24, 0xFFFFFFFF), "zip64"),
    "several disks": (lambda: ARCHIVE[:-18] + b"\1\0" + ARCHIVE[-16:], "several"),
    "count lie": (lambda: ARCHIVE[:-14] + b"\3\0\3\0" + ARCHIVE[-10:], "4 entries where 3"),
    "zip64 that is not there": (lambda: ARCHIVE[:-14] + b"\xff\xff\xff\xff" + ARCHIVE[-10:], "zip64"),
    "directory elsewhere": (lambda: ARCHIVE[:-6] + b"\xf0\xff\xff\x7f" + ARCHIVE[-2:], "cannot"),
    "same name": (lambda: ARCHIVE.replace(b"archive/data/b", b"archive/data/a"), "one name"),
    "climbs": (lambda: ARCHIVE.replace(b"archive/data/b", b"archive/../../b"[:14]), "leads outside"),
    "empty": (lambda: b"", "empty"),
}


@pytest.mark.parametrize("case", WRONG_ZIPS)
def test_torch_containers_that_lie_are_quarantined(case: str, tmp_path: Path) -> None:
    make, words = WRONG_ZIPS[case]
    found = judged(tmp_path, {"m.pt": make()})
    assert found.level is Level.QUARANTINED
    assert words in found.reason


def test_a_zip_of_anybody_may_be_compressed(tmp_path: Path) -> None:
    """``.bin`` is no suffix of torch's alone: what is not torch's is only held to lying inside its file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("notes.txt", "x" * 10_000)
    assert judged(tmp_path, {"notes.bin": buffer.getvalue()}).level is Level.VALIDATED


def test_i14_a_directory_of_too_many_entries_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_zips, "MAX_ENTRIES", 3)
    with pytest.raises(BadZip, match="more than any may have"):
        check_torch_zip(io.BytesIO(ARCHIVE), len(ARCHIVE))


def test_a_zip64_archive_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch writes beyond 4 GiB, at the size of a test."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 1)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    archive = torch_zip(a=b"0123")
    assert b"PK\x06\x06" in archive
    assert [entry.size for entry in check_torch_zip(io.BytesIO(archive), len(archive))] == [4, 2, 4]


HONEST = honest_dcp()
W0, W4, STEP = place("w", 0, 40, at=size(0)), place("w", 40, 40, at=size(4)), place("step", 80, 20)
BOTH = [chunk(0), chunk(4)]


def metadata(*places: tuple[bytes, bytes], chunks: list[bytes] | None = None) -> bytes:
    return dcp_metadata(BOTH if chunks is None else chunks, list(places))


WRONG_DCP: dict[str, tuple[dict[str, bytes], str]] = {
    "a writer thread that died": ({".metadata": metadata(W0, STEP)}, "'w' at [4] lies in no file"),
    "a value without a place": ({".metadata": metadata(W0, W4)}, "'step' lies in no file"),
    "a file that is short": ({DISTCP: bytes(99)}, "has 99 bytes, and 'step' ends at 100"),
    "a file that is missing": ({".metadata": metadata(W0, W4, place("step", 0, 1, path="__1_0.distcp"))}, "is missing"),
    "a file elsewhere": ({".metadata": metadata(W0, W4, place("step", 0, 1, path="../x"))}, "component '..'"),
    "an absolute file": ({".metadata": metadata(W0, W4, place("step", 0, 1, path="/etc/passwd"))}, "is absolute"),
    "a negative offset": ({".metadata": metadata(W0, W4, place("step", -5, 1))}, "no place that can be"),
    "a huge length": ({".metadata": metadata(W0, W4, place("step", 0, 2**70))}, "ends at"),
    "cut": ({".metadata": HONEST[".metadata"][:-9]}, "damaged"),
    "empty": ({".metadata": b""}, "damaged"),
    "another document": ({".metadata": b"\x80\x02}."}, "no metadata"),
    "text": ({".metadata": b"{}"}, "damaged"),
}


@pytest.mark.parametrize("case", WRONG_DCP)
def test_distributed_checkpoints_that_lie_are_quarantined(case: str, tmp_path: Path) -> None:
    change, words = WRONG_DCP[case]
    found = judged(tmp_path, {**HONEST, **change})
    assert found.level is Level.QUARANTINED
    assert words in found.reason


def nested(depth: int) -> bytes:
    """Write a tuple of two tuples of two tuples …: tiny, and a hash of it takes 2**depth steps."""
    return b"N" + b"q\0h\0\x86" * depth


BOMBS: dict[str, tuple[bytes, str]] = {
    "a string of petabytes": (b"\x80\x04\x8d" + (2**50).to_bytes(8, "little") + b"x.", "damaged"),
    "bytes of petabytes": (b"\x80\x04\x8e" + (2**50).to_bytes(8, "little") + b"x.", "damaged"),
    "a bytearray of petabytes": (b"\x80\x05\x96" + (2**50).to_bytes(8, "little") + b"x.", "damaged"),
    "a short string that is not there": (b"\x80\x04\x8c\xff.", "damaged"),
    "a memo of gigabytes": (b"\x80\x02Nr\xff\xff\xff\xff.", "no metadata"),
    "a number of megabytes": (b"\x80\x02\x8b" + (10**6).to_bytes(4, "little") + b"\xff" * 10**6 + b".", "LONG4"),
    "digits without end": (b"I" + b"9" * 100_000 + b"\n.", "damaged"),
    "a persistent id": (b"\x80\x02Pevil\n.", "PERSID"),
    "an extension": (b"\x80\x02\x82\x01.", "EXT1"),
    "an instance": (b"\x80\x02(ios\nmkdir\n.", "INST"),
    "an object by keyword": (b"\x80\x04" + name("os", "mkdir") + b"})\x92.", "os.mkdir"),
    "a dotted name": (b"\x80\x04" + text("torch.serialization") + text("os.system") + b"\x93.", "os.system"),
    "a name that is no text": (b"\x80\x04NN\x93.", "damaged"),
    "a call of a value": (b"\x80\x02N)R.", "damaged"),
    "a state for a value": (b"\x80\x02}}b.", "damaged"),
    "values from nowhere": (b"\x80\x02u.", "damaged"),
    "a mark as a value": (b"\x80\x02(a.", "damaged"),
    "an escape that is none": (b"S'\\q'\n.", "damaged"),
    "a frame that lies": (b"\x80\x04\x95" + (2**60).to_bytes(8, "little") + b"N.", "no metadata"),
}


@pytest.mark.parametrize("case", BOMBS)
def test_i14_pickles_that_would_explode_are_read_in_little_memory(case: str) -> None:
    data, words = BOMBS[case]
    tracemalloc.start()
    with pytest.raises(IntegrityFailure, match=words):
        read_metadata(data, what="it")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000


def test_a_key_whose_hash_takes_for_ever_is_never_hashed() -> None:
    data = b"\x80\x02}" + nested(200) + b"Ns."
    with pytest.raises(IntegrityFailure, match="no metadata"):
        read_metadata(data, what="it")


def test_a_list_that_holds_itself_is_read_and_refused() -> None:
    with pytest.raises(IntegrityFailure, match="no metadata"):
        read_metadata(b"\x80\x02]q\0h\0a.", what="it")


def test_i14_one_list_that_is_meant_a_thousand_times_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A billion laughs: a kilobyte of references to one list of chunks."""
    monkeypatch.setattr(dcp, "MAX_PLACES", 500)
    shared = of_many(b"](" + chunk(0) * 20 + b"e", 50)
    with pytest.raises(IntegrityFailure, match="more than 500 chunks"):
        read_metadata(shared, what="it")


def of_many(chunks: bytes, tensors: int) -> bytes:
    """Write a .metadata in which every tensor has the same list of chunks."""
    stored = name(f"{'torch.distributed.checkpoint'}.metadata", "TensorStorageMetadata")
    first = chunks + b"q\1" + b"0"
    entries = b"".join(text(f"t{one}") + stored + b")\x81}(" + text("chunks") + b"h\1ub" for one in range(tensors))
    head = name("torch.distributed.checkpoint.metadata", "Metadata") + b")\x81}("
    return b"\x80\x02" + first + head + text("state_dict_metadata") + b"}(" + entries + b"uub."


@pytest.mark.parametrize("cap", ["MAX_BYTES", "MAX_STEPS"])
def test_i14_a_metadata_too_large_to_be_read_is_not_judged_and_nothing_of_it_runs(
    cap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pickled, cap, 10)
    if cap == "MAX_BYTES":
        monkeypatch.setattr("replicate.generation.containers.MAX_BYTES", 10)
    with pytest.raises(TooLarge):
        read_metadata(HONEST[".metadata"], what="it")
    found = judged(tmp_path, HONEST)
    assert found.level is Level.VALIDATED
    assert "it " in found.detail


def test_a_metadata_that_would_execute_is_quarantined_and_does_not(tmp_path: Path) -> None:
    found = judged(tmp_path, {**HONEST, ".metadata": executing(tmp_path / "executed")})
    assert found.level is Level.QUARANTINED
    assert "'os.mkdir'" in found.reason
    assert not (tmp_path / "executed").exists()


EXAMPLES = {"pickle": 0, "zip": 0, "safetensors": 0}


@given(at=st.integers(0, len(HONEST[".metadata"]) - 1), value=st.integers(0, 255), cut=st.booleans())
def test_i12_a_pickle_with_a_byte_changed_is_read_or_refused_and_nothing_else(at: int, value: int, cut: bool) -> None:
    EXAMPLES["pickle"] += 1
    data = bytearray(HONEST[".metadata"])
    data[at] = value
    try:
        read_metadata(bytes(data[: at + 1] if cut else data), what="it")
    except IntegrityFailure:
        return


@given(at=st.integers(0, len(ARCHIVE) - 1), value=st.integers(0, 255), cut=st.booleans())
def test_i12_a_zip_with_a_byte_changed_is_read_or_refused_and_nothing_else(at: int, value: int, cut: bool) -> None:
    EXAMPLES["zip"] += 1
    data = bytearray(ARCHIVE)
    data[at] = value
    del data[at + 1 if cut else len(data) :]
    try:
        check_torch_zip(io.BytesIO(bytes(data)), len(data))
    except IntegrityFailure:
        return


def test_the_fuzzers_had_their_examples() -> None:
    ran = {kind: count for kind, count in EXAMPLES.items() if count}
    assert all(count >= 50 for count in ran.values()), ran


def test_everything_named_is_refused_but_what_the_format_has() -> None:
    """The list is exact: neither a parent, nor a child, nor another spelling of an allowed name passes."""
    for module, what in (
        ("torch", "load"),
        ("torch.Size", ""),
        ("", "torch.Size"),
        ("builtins", "eval"),
        ("os", "system"),
    ):
        with pytest.raises(BadPickle, match="would use"):
            read_metadata(b"\x80\x02" + name(module, what) + b".", what="it")
    assert not [one for one in dcp.NAMES if one.split(".")[0] not in ("torch", "pathlib", "collections")]
