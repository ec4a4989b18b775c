"""Files of known formats, written by hand byte by byte, so that each can lie in one respect."""

import io
import json
import struct
import zipfile
from pathlib import Path
from typing import Any

DCP = "torch.distributed.checkpoint"
DISTCP = "__0_0.distcp"


def safetensors(entries: dict[str, Any], data: bytes = b"", *, length: int | None = None) -> bytes:
    """Write the container; ``length`` is what it says of its header, instead of the truth."""
    header = json.dumps(entries).encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def tensor(begin: int, end: int, *, dtype: str = "F32", shape: tuple[int, ...] | None = None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape or ((end - begin) // 4,)), "data_offsets": [begin, end]}


def torch_zip(*, compression: int = zipfile.ZIP_STORED, pickled: bytes = b"\x80\x02}.", **records: bytes) -> bytes:
    """Write what torch.save writes, as far as the container goes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", "3\n")
        for name, content in records.items():
            archive.writestr(f"archive/data/{name}", content)
    return buffer.getvalue()


def with_field(archive: bytes, number: int, at: int, value: int, width: str = "<L") -> bytes:
    """Change a field of the ``number``-th entry in a zip's directory."""
    data, where = bytearray(archive), -1
    for _ in range(number + 1):
        where = data.index(b"PK\x01\x02", where + 1)
    struct.pack_into(width, data, where + at, value)
    return bytes(data)


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def number(value: int) -> bytes:
    data = value.to_bytes(9, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def name(module: str, what: str) -> bytes:
    return b"c" + module.encode() + b"\n" + what.encode() + b"\n"


def pairs(items: list[tuple[bytes, bytes]]) -> bytes:
    return b"}(" + b"".join(key + value for key, value in items) + b"u"


def made(what: bytes, **fields: bytes) -> bytes:
    """Write an object with these fields."""
    return what + b")\x81" + pairs([(text(key), value) for key, value in fields.items()]) + b"b"


def size(*numbers: int) -> bytes:
    return name("torch", "Size") + b"(" + b"".join(map(number, numbers)) + b"t\x85R"


def of_dcp(kind: str, **fields: bytes) -> bytes:
    module = "filesystem" if kind == "_StorageInfo" else "metadata"
    return made(name(f"{DCP}.{module}", kind), **fields)


def chunk(*offsets: int) -> bytes:
    return of_dcp("ChunkStorageMetadata", offsets=size(*offsets), sizes=size(4))


def place(tensor: str, offset: int, length: int, *, at: bytes = b"N", path: str = DISTCP) -> tuple[bytes, bytes]:
    """Write where a chunk lies."""
    index = of_dcp("MetadataIndex", fqn=text(tensor), offset=at, index=b"N")
    info = of_dcp("_StorageInfo", relative_path=text(path), offset=number(offset), length=number(length))
    return index, info


def dcp_metadata(chunks: list[bytes], places: list[tuple[bytes, bytes]], **more: bytes) -> bytes:
    """Write a .metadata of one tensor, ``w``, and one value, ``step``."""
    stored = of_dcp("TensorStorageMetadata", chunks=b"](" + b"".join(chunks) + b"e")
    state = pairs([(text("w"), stored), (text("step"), of_dcp("BytesStorageMetadata"))])
    return b"\x80\x02" + of_dcp("Metadata", state_dict_metadata=state, storage_data=pairs(places), **more) + b"."


def honest_dcp() -> dict[str, bytes]:
    """Return a checkpoint whose files hold what its metadata says."""
    places = [place("w", 0, 40, at=size(0)), place("w", 40, 40, at=size(4)), place("step", 80, 20)]
    return {".metadata": dcp_metadata([chunk(0), chunk(4)], places), DISTCP: bytes(100)}


def executing(canary: Path) -> bytes:
    """Write a pickle that makes a folder wherever it is loaded."""
    return b"\x80\x02" + name("os", "mkdir") + text(str(canary)) + b"\x85R."
