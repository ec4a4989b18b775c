"""Durable, provable replication of training checkpoints.

One import for a training script: ``from replicate import RunStore``.  Nothing heavy
is loaded before it is used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replicate.generation.store import RunStore as RunStore

__all__ = ["RunStore"]


def __getattr__(name: str) -> Any:
    if name == "RunStore":
        from replicate.generation.store import RunStore  # noqa: PLC0415 - pydantic costs 0.1 s that --help should not pay

        return RunStore
    raise AttributeError(name)
