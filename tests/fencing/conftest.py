"""Machines for fencing tests."""

from flows.conftest import machine, volume

__all__ = ["machine", "volume"]
