"""Bodies: what is sent is stated beforehand, and a short one never looks complete."""

import hashlib
import os
from pathlib import Path

import pytest

from tiers.bodies import BytesBody, FileSlice, SliceReader
from tiers.checks import body_chunks
from tiers.errors import IntegrityError
from tiers.testing import content, read_all


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(content(10_000))
    return path


def test_bytes_body() -> None:
    body = BytesBody(b"abc")
    assert (body.size, body.sha256) == (3, hashlib.sha256(b"abc").hexdigest())
    assert read_all(body.open()) == read_all(body.open()) == b"abc"


@pytest.mark.parametrize(("start", "size"), [(0, 10_000), (0, 0), (10_000, 0), (9_999, 1), (123, 4_567)])
def test_file_slice(file: Path, start: int, size: int) -> None:
    """Exactly the slice, however often, in pieces or at once."""
    body = FileSlice(path=file, start=start, size=size, sha256=None)
    expected = content(10_000)[start : start + size]
    assert read_all(body.open(), 100) == expected
    with body.open() as reader:
        assert reader.read() == expected
        assert reader.read(1) == b""


def test_seeking_stays_in_the_slice(file: Path) -> None:
    with FileSlice(path=file, start=100, size=50, sha256=None).open() as reader:
        assert reader.seek(0, os.SEEK_END) == 50
        assert reader.seek(-10, os.SEEK_CUR) == 40
        assert reader.read() == content(10_000)[140:150]
        assert reader.seek(-1_000, os.SEEK_SET) == 0
        assert reader.read(5) == content(10_000)[100:105]
        assert (reader.tell(), reader.seekable(), reader.readable()) == (5, True, True)


def test_length_of_a_reader(file: Path) -> None:
    """SDKs ask a body for its length."""
    with SliceReader(file, 100, 50) as reader:
        assert len(reader) == 50


def test_file_that_shrank(file: Path) -> None:
    """It raises; EOF would make a short object."""
    with FileSlice(path=file, start=9_000, size=1_000, sha256=None).open() as reader:
        os.truncate(file, 9_500)
        assert reader.read(1_000) == content(10_000)[9_000:9_500]
        with pytest.raises(OSError, match="shorter"):
            reader.read(1)


def test_link_is_not_followed(file: Path, tmp_path: Path) -> None:
    """A sealed file is a file; one that became a link is not it."""
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(OSError, match="symbolic links"):
        FileSlice(path=tmp_path / "link", start=0, size=1, sha256=None).open()


def test_closing_twice(file: Path) -> None:
    reader = FileSlice(path=file, start=0, size=1, sha256=None).open()
    reader.close()
    reader.close()


def chunks(body: BytesBody | FileSlice) -> bytes:
    return b"".join(bytes(chunk) for chunk in body_chunks(body, tier="t", operation="put", key="k"))


def test_chunks(file: Path) -> None:
    assert chunks(BytesBody(b"")) == b""
    assert chunks(BytesBody(content(3 << 20))) == content(3 << 20)
    assert chunks(FileSlice(path=file, start=10, size=9_000, sha256=None)) == content(10_000)[10:9_010]


def test_chunks_of_a_file_that_shrank(file: Path) -> None:
    with pytest.raises(IntegrityError, match="shorter"):
        chunks(FileSlice(path=file, start=0, size=10_001, sha256=None))


def test_chunks_of_a_file_that_is_gone(tmp_path: Path) -> None:
    """A failing local disk is not the tier's failure and keeps its own name."""
    with pytest.raises(FileNotFoundError):
        chunks(FileSlice(path=tmp_path / "gone", start=0, size=1, sha256=None))
