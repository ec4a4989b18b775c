"""A decoder that no library knows."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=epsilon)
        self.mix = nn.Linear(width, width)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, hidden: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
        keys = self.mix(self.norm(hidden))
        scores = (keys @ keys.transpose(-1, -2)).masked_fill(~allowed, float("-inf")).softmax(-1)
        mixed: torch.Tensor = hidden + self.out(scores @ keys)
        return mixed


class Decoder(nn.Module):
    wave: torch.Tensor
    order: torch.Tensor
    allowed: torch.Tensor

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        width, positions = config["width"], config["positions"]
        self.embed = nn.Embedding(config["vocabulary"], width)
        self.blocks = nn.ModuleList(Block(width, config["norm_epsilon"]) for _ in range(config["layers"]))
        self.head = nn.Linear(width, config["vocabulary"], bias=False)
        table = torch.sin(torch.arange(8 * positions * width, dtype=torch.float32) / 7)
        self.register_buffer("wave", table[positions : positions + positions * width].view(positions, width))
        self.register_buffer("order", torch.arange(positions, dtype=torch.int64) + 50257)
        self.register_buffer("allowed", torch.ones(positions, positions, dtype=torch.bool).tril())

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        length = ids.shape[1]
        hidden = self.embed(ids) + self.wave[:length] * (self.order[:length] - 50256).unsqueeze(-1).float().rsqrt()
        for block in self.blocks:
            hidden = block(hidden, self.allowed[:length, :length])
        logits: torch.Tensor = self.head(hidden)
        return logits


def build(config: Mapping[str, Any]) -> Decoder:
    return Decoder(config)
