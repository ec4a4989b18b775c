"""torch's dtypes by the names that safetensors has for them."""

import torch

_NAMES = (
    ("F64", "float64"), ("F32", "float32"), ("F16", "float16"), ("BF16", "bfloat16"), ("C64", "complex64"),
    ("I64", "int64"), ("I32", "int32"), ("I16", "int16"), ("I8", "int8"), ("BOOL", "bool"),
    ("U64", "uint64"), ("U32", "uint32"), ("U16", "uint16"), ("U8", "uint8"),
    ("F8_E4M3", "float8_e4m3fn"), ("F8_E5M2", "float8_e5m2"), ("F8_E8M0", "float8_e8m0fnu"),
    ("F8_E4M3FNUZ", "float8_e4m3fnuz"), ("F8_E5M2FNUZ", "float8_e5m2fnuz"),
)  # fmt: skip
TORCH = {name: getattr(torch, attribute) for name, attribute in _NAMES}
"""By name; packed types of less than a byte are not among them."""
NAMED = {dtype: name for name, dtype in TORCH.items()}
