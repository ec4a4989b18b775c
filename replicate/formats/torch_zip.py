"""The container of a torch file: a zip whose entries lie one after the other, stored as they are.

Only the directory at the end is read.  torch never compresses, so that what is compressed
is none of its files and may unpack to anything.  A zip that torch did not write, under a
suffix that is anybody's, is held to lying inside its file and to nothing else.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from replicate.errors import IntegrityFailure

MAGIC = b"PK\x03\x04"
MAX_DIRECTORY_BYTES = 64 * 1024 * 1024
MAX_ENTRIES = 262_144
_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL_BYTES = 30
_MAX_COMMENT = 65_535
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF
_EXTRA64 = 1
_ENCRYPTED = 0x41
_RECORDS = ("data.pkl", "version")


class BadZip(IntegrityFailure):
    """A zip directory that is damaged, or says what cannot be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZipEntry:
    """One entry as the directory tells it; sizes and ``start`` (of its local header) in bytes."""

    name: str
    method: int
    flags: int
    packed: int
    size: int
    start: int

    @property
    def end(self) -> int:
        """The least byte at which it can end: the local header has the name again, and padding."""
        return self.start + _LOCAL_BYTES + len(self.name.encode("utf-8", "surrogateescape")) + self.packed


def check_torch_zip(stream: BinaryIO, size: int) -> tuple[ZipEntry, ...]:
    """Check the directory of a zip of ``size`` bytes; returns its entries, raises BadZip."""
    start, length, count = _where(stream, size)
    if length > MAX_DIRECTORY_BYTES or count > MAX_ENTRIES:
        raise BadZip(f"its zip directory has {count} entries in {length} bytes, more than any may have")
    stream.seek(start)
    data = stream.read(length)
    entries = tuple(_entries(data))
    if len(data) != length or len(entries) != count:
        raise BadZip(f"its zip directory holds {len(entries)} entries where {count} are due")
    outside = next((entry for entry in entries if entry.end > start), None)
    if outside is not None:
        raise BadZip(f"its zip directory points outside of it: {outside.name!r:.200}")
    if _is_of_torch(entries):
        _check_records(entries)
    return entries


def _where(stream: BinaryIO, size: int) -> tuple[int, int, int]:
    """Return where the directory begins, how long it is and how many entries it has."""
    tail_size = min(size, _END.size + _MAX_COMMENT + _LOCATOR64.size)
    stream.seek(size - tail_size)
    tail = stream.read(tail_size)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + _END.size > len(tail):
        raise BadZip("its zip directory is missing")
    _, disk, disk_of, here, count, length, start, comment = _END.unpack_from(tail, at)
    end = size - tail_size + at
    if end + _END.size + comment != size:
        raise BadZip("its zip directory does not end with the file")
    if _FULL16 in (count, here) or _FULL32 in (length, start):
        disk, disk_of, here, count, length, start, end = _where64(stream, tail, at, size)
    if disk or disk_of or here != count:
        raise BadZip("its zip directory says that it is one of several files")
    if start + length > end:
        raise BadZip("its zip directory is said to lie where it cannot")
    return start, length, count


def _where64(stream: BinaryIO, tail: bytes, at: int, size: int) -> tuple[int, int, int, int, int, int, int]:
    where = at - _LOCATOR64.size
    signature, _, offset, _ = _LOCATOR64.unpack_from(tail, where) if where >= 0 else (b"", 0, 0, 0)
    if signature != b"PK\x06\x07" or offset + _END64.size > size:
        raise BadZip("its zip64 directory is missing")
    stream.seek(offset)
    record = stream.read(_END64.size)
    if len(record) != _END64.size or record[:4] != b"PK\x06\x06":
        raise BadZip("its zip64 directory is missing")
    _, _, _, _, disk, disk_of, here, count, length, start = _END64.unpack(record)
    return disk, disk_of, here, count, length, start, offset


def _entries(data: bytes) -> Iterator[ZipEntry]:
    at = 0
    while at < len(data):
        if len(data) - at < _CENTRAL.size:
            raise BadZip("its zip directory is cut off")
        found = _CENTRAL.unpack_from(data, at)
        if found[0] != b"PK\x01\x02":
            raise BadZip("its zip directory is damaged")
        flags, method, packed, size, start = found[3], found[4], found[8], found[9], found[16]
        names, extras, comments = found[10:13]
        name = data[at + _CENTRAL.size : at + _CENTRAL.size + names]
        extra = data[at + _CENTRAL.size + names : at + _CENTRAL.size + names + extras]
        if _FULL32 in (packed, size, start):
            size, packed, start = _extra64(extra, (size, packed, start))
        yield ZipEntry(
            name=name.decode("utf-8", "surrogateescape"),
            method=method,
            flags=flags,
            packed=packed,
            size=size,
            start=start,
        )
        at += _CENTRAL.size + names + extras + comments
    if at != len(data):
        raise BadZip("its zip directory is cut off")


def _extra64(extra: bytes, short: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return size, packed size and start of an entry whose short fields say that the extra field holds them."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        body = extra[at + 4 : at + 4 + length]
        if kind == _EXTRA64:
            wide = iter(struct.unpack_from(f"<{len(body) // 8}Q", body))
            values = [next(wide, None) if value == _FULL32 else value for value in short]
            if None not in values:
                return tuple(values)  # type: ignore[return-value] # none of the three is None here
            break
        at += 4 + length
    raise BadZip("its zip64 sizes are missing")


def _is_of_torch(entries: tuple[ZipEntry, ...]) -> bool:
    """Whether the records that torch always writes lie in one top folder."""
    names = {entry.name for entry in entries}
    tops = {name.partition("/")[0] for name in names}
    return any(all(f"{top}/{record}" in names for record in _RECORDS) for top in tops)


def _check_records(entries: tuple[ZipEntry, ...]) -> None:
    """Check what holds for every file that torch wrote."""
    if len({entry.name for entry in entries}) != len(entries):
        raise BadZip("two records have one name")
    before: ZipEntry | None = None
    for entry in sorted(entries, key=lambda one: one.start):
        if entry.method or entry.packed != entry.size or entry.flags & _ENCRYPTED:
            raise BadZip(f"record {entry.name!r:.200} is compressed or encrypted, which torch never does")
        if before is not None and before.end > entry.start:
            raise BadZip(f"records {before.name!r:.200} and {entry.name!r:.200} overlap")
        if ".." in entry.name.split("/") or entry.name.startswith("/"):
            raise BadZip(f"record {entry.name!r:.200} has a name that leads outside")
        before = entry
