"""What a file really is, by its bytes: pickles, archives and programs under an innocent name.

Nothing is unpickled or unpacked: opcodes are listed, and an archive's own table is read.
"""

import io
import pickletools
import re
import zipfile
from collections.abc import Iterator

from replicate.release.findings import Rule
from replicate.release.scan.hits import Hit
from replicate.release.scan.names import FileKind
from replicate.release.scan.tree import UNSCANNED, TreeFile

HEAD = 64 * 1024
TAIL = 1024 * 1024
_TORCH_MAGIC = bytes.fromhex("6cfc9c46f9206aa85019")
"""The number that a torch file of before 1.6 starts with, as a pickle holds it."""
_MAGICS = (
    (b"\x7fELF", Rule.CODE_FILE, "is a program (ELF)"),
    (b"MZ", Rule.CODE_FILE, "is a program (PE)"),
    (b"\xcf\xfa\xed\xfe", Rule.CODE_FILE, "is a program (Mach-O)"),
    (b"#!", Rule.CODE_FILE, "is a script"),
    (b"\x93NUMPY", Rule.PICKLE, "is a file of NumPy arrays, which may hold pickles"),
    (b"\x89HDF", Rule.PICKLE, "is an HDF5 file"),
    (b"\x1f\x8b", Rule.FILE_NOT_ALLOWED, "is compressed: nothing can look into it"),
    (b"\x28\xb5\x2f\xfd", Rule.FILE_NOT_ALLOWED, "is compressed: nothing can look into it"),
    (b"BZh", Rule.FILE_NOT_ALLOWED, "is compressed: nothing can look into it"),
    (b"\xfd7zXZ", Rule.FILE_NOT_ALLOWED, "is compressed: nothing can look into it"),
    (b"SQLite format 3", Rule.TRAINING_STATE, "is a database"),
)
_BINARY_PROTOCOLS = range(2, 6)
_MIN_OPCODES = 3
_MANY_OPCODES = 64
_IMPORTING = frozenset({"GLOBAL", "INST"})
_IMPORTED = re.compile(r"[A-Za-z_][\w.]* [A-Za-z_][\w.]*")
_BUILDING = _IMPORTING | {
    "REDUCE", "BUILD", "OBJ", "DICT", "LIST", "TUPLE", "SETITEM", "SETITEMS", "APPEND", "APPENDS", "PUT",
}  # fmt: skip


def find_pickles(file: TreeFile) -> Iterator[Hit]:
    """Say what the bytes of a file are that its name does not say."""
    with file.absolute.open("rb") as opened:
        head = opened.read(HEAD)
    for magic, rule, detail in _MAGICS:
        if head.startswith(magic) and (file.kind is not FileKind.WEIGHTS or len(magic) > len("MZ")):
            yield Hit(rule=rule, path=file.path, detail=detail, never=UNSCANNED)
    yield from _archive(file)
    detail = pickle_fault(head)
    if detail and (file.kind is not FileKind.WEIGHTS or "torch" in detail):
        yield Hit(rule=Rule.PICKLE, path=file.path, detail=detail)


def pickle_fault(head: bytes) -> str:
    """Say which kind of pickle starts like this; empty where none does.

    Pickles of the old text protocols are told from prose by reading their opcodes: prose runs into
    a letter that is none, or ends within an argument.
    """
    if _TORCH_MAGIC in head[:32]:
        return "is a torch file of the old form, a pickle"
    if head[:1] == b"\x80" and len(head) > 1 and head[1] in _BINARY_PROTOCOLS:
        return f"starts as a pickle of protocol {head[1]}"
    return "is a pickle of a text protocol" if _is_text_pickle(head) else ""


def _is_text_pickle(head: bytes) -> bool:
    seen: list[str] = []
    try:
        for opcode, argument, _ in pickletools.genops(io.BytesIO(head)):
            if opcode.name in _IMPORTING and not _IMPORTED.fullmatch(str(argument)):
                return False
            seen.append(opcode.name)
    except Exception:  # noqa: BLE001 - it raises whatever its readers do; a long pickle is cut within an argument
        return len(seen) > _MANY_OPCODES
    return len(seen) >= _MIN_OPCODES and not _BUILDING.isdisjoint(seen)


def _archive(file: TreeFile) -> Iterator[Hit]:
    if not zipfile.is_zipfile(file.absolute):
        return
    with file.absolute.open("rb") as opened:  # its own table of names lies at the end, and may claim any size
        head = opened.read(HEAD)
        opened.seek(max(0, file.size - TAIL))
        tail = opened.read(TAIL)
    pickled = any(word in part for word in (b".pkl", b".pickle") for part in (head, tail))
    detail = "is an archive with a pickle in it, a torch file" if pickled else "is an archive, or ends as one"
    yield Hit(rule=Rule.PICKLE, path=file.path, detail=detail)
