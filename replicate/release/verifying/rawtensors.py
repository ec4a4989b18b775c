"""In the child: tensors from bytes, by the independent header parser and nothing of safetensors' library."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from replicate.errors import IntegrityFailure
from replicate.formats.safetensors import TensorHeader, read_header
from replicate.release.verifying.building import library


def torch_dtypes() -> dict[str, Any]:
    """Return torch's dtype for each of safetensors' that torch has as such."""
    torch = library("torch")
    names = {
        "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "I32": "int32", "U32": "uint32",
        "I64": "int64", "U64": "uint64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
        "C64": "complex64", "F8_E5M2": "float8_e5m2", "F8_E4M3": "float8_e4m3fn", "F8_E8M0": "float8_e8m0fnu",
        "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
    }  # fmt: skip
    return {name: getattr(torch, dtype) for name, dtype in names.items() if hasattr(torch, dtype)}


def dtype_name(dtype: Any) -> str:
    """Return safetensors' name of a torch dtype, else torch's own."""
    return next((name for name, known in torch_dtypes().items() if known == dtype), str(dtype))


def read_tensor(path: Path, header: TensorHeader) -> Any:
    """Read one tensor; a packed dtype that torch does not have comes as its bytes."""
    torch = library("torch")
    with path.open("rb") as file:
        file.seek(header.start)
        data = bytearray(file.read(header.size))
    if len(data) != header.size:
        raise IntegrityFailure(f"{path.name}: {header.name} ends early")
    dtype = torch_dtypes().get(header.dtype)
    if not data:
        return torch.empty(header.shape, dtype=dtype or torch.uint8)
    if dtype is None:
        return torch.frombuffer(data, dtype=torch.uint8)
    return torch.frombuffer(data, dtype=dtype).reshape(header.shape)


def read_tensors(tree: Path, files: list[str]) -> dict[str, Any]:
    """Read every tensor of the files; raises IntegrityFailure for a name that lies in two of them."""
    tensors: dict[str, Any] = {}
    for file in files:
        for header in read_header(tree / file).tensors:
            if header.name in tensors:
                raise IntegrityFailure(f"{header.name} lies in {file} and in another file")
            tensors[header.name] = read_tensor(tree / file, header)
    return tensors


def bits(tensor: Any) -> Any:
    """Return the bytes of a tensor, in order of its elements; NaN equals NaN and -0.0 differs from 0.0."""
    torch = library("torch")
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def identical(one: Any, other: Any) -> bool:
    """Whether two tensors have one dtype, one shape and the same bits."""
    torch = library("torch")
    return one.dtype == other.dtype and one.shape == other.shape and bool(torch.equal(bits(one), bits(other)))


def source_entries(source: Mapping[str, Any]) -> dict[str, Any]:
    """Load the state dict that a release comes from, as plain tensors by the names it has there.

    Torch files are read with ``weights_only=True`` and never otherwise.
    """
    root = Path(source["root"])
    entries: dict[str, Any] = {}
    for file in source["files"]:
        for name, value in _loaded(root / file, source["entries"]):
            if name in entries:
                raise IntegrityFailure(f"the source has {name} in {file} and in another file")
            entries[name] = value
    return entries


def _loaded(path: Path, entries: str) -> Iterator[tuple[str, Any]]:
    if path.suffix == ".safetensors":
        for header in read_header(path).tensors:
            yield header.name, read_tensor(path, header)
        return
    torch = library("torch")
    payload: Any = torch.load(path, weights_only=True, map_location="cpu", mmap=True)
    while entries:
        keys = sorted(map(str, payload), key=len, reverse=True) if isinstance(payload, dict) else []
        step = next((key for key in keys if f"{entries}.".startswith(f"{key}.")), None)
        if step is None:
            raise IntegrityFailure(f"{path.name} has no entry {entries!r}")
        payload, entries = payload[step], entries[len(step) + 1 :]
    if not isinstance(payload, dict):
        raise IntegrityFailure(f"{path.name}: what is named is a {type(payload).__name__}, no state dict")
    yield from ((name, value) for name, value in payload.items() if isinstance(value, torch.Tensor))
