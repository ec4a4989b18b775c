"""A small byte-level transformer, and the text that it reads: Python's own standard library."""

import sysconfig
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from replicate import canonical
from replicate.errors import NothingFound

VOCABULARY = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Size of the model.  ``context`` is in bytes of text."""

    layers: int = 2
    width: int = 64
    heads: int = 4
    context: int = 64
    dropout: float = 0.1


class Block(nn.Module):
    """Attention and a feed-forward layer, normalised before each."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.before_attention = nn.LayerNorm(shape.width)
        self.attention = nn.Linear(shape.width, 3 * shape.width)
        self.join = nn.Linear(shape.width, shape.width)
        self.before_forward = nn.LayerNorm(shape.width)
        self.widen = nn.Linear(shape.width, 4 * shape.width)
        self.narrow = nn.Linear(4 * shape.width, shape.width)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, time, width) to the same shape."""
        batch, time, width = x.shape
        projected = self.attention(self.before_attention(x)).view(batch, time, 3, self.heads, width // self.heads)
        query, key, value = projected.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.dropout(self.join(mixed.transpose(1, 2).reshape(batch, time, width)))
        hidden: Tensor = self.narrow(functional.gelu(self.widen(self.before_forward(x))))
        out: Tensor = x + self.dropout(hidden)
        return out


class ByteTransformer(nn.Module):
    """Predicts the next byte.  ``positions`` is a buffer, so that a checkpoint has one."""

    positions: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.register_buffer("positions", torch.arange(shape.context))
        self.bytes = nn.Embedding(VOCABULARY, shape.width)
        self.places = nn.Embedding(shape.context, shape.width)
        self.dropout = nn.Dropout(shape.dropout)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, VOCABULARY, bias=False)

    def forward(self, text: Tensor) -> Tensor:
        """Map bytes (batch, time) to logits (batch, time, 256)."""
        x = self.dropout(self.bytes(text) + self.places(self.positions[: text.shape[1]]))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Text as one tensor of bytes; ``digest`` names the files it came from and what was in them."""

    text: Tensor
    digest: str

    @classmethod
    def of_standard_library(cls, max_bytes: int) -> "Corpus":
        """Read the top-level modules of this interpreter's library, in name order, up to ``max_bytes``."""
        shards: list[dict[str, str]] = []
        text = bytearray()
        for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
            data = path.read_bytes()[: max_bytes - len(text)]
            text += data
            shards.append({"name": path.name, "sha256": canonical.sha256(data)})
            if len(text) >= max_bytes:
                break
        if not text:
            raise NothingFound("the standard library of this Python has no source files", hint="use another Python")
        return cls(text=torch.frombuffer(text, dtype=torch.uint8), digest=canonical.sha256(canonical.dump(shards)))
