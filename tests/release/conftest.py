"""Tiny models, each trained and published once for all tests of a process; tests that change something copy first."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.releases import Built


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> "Callable[[str], Built]":
    """Return ``tiny("gpt2")``, built at its first use: also llama, moe, adapter, custom."""
    made: dict[str, Built] = {}

    def build(name: str) -> "Built":
        from support.releases import BUILDERS  # noqa: PLC0415 - tests of records do without torch and transformers

        if name not in made:
            made[name] = BUILDERS[name](tmp_path_factory.mktemp(name))
        return made[name]

    return build
