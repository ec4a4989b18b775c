"""Keeps the real library away from the network, from whoever runs the tests, and from sleeping."""

import importlib
import threading
from dataclasses import dataclass, field
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants, file_download
from huggingface_hub.utils import _http

CLASSIC_LFS_WARNING = "ignore:Use 'content=:DeprecationWarning"
"""For ``pytest.mark.filterwarnings``: the library's LFS upload makes httpx2 warn on every PUT."""


@dataclass(slots=True)
class Naps:
    """Stands in for ``time`` in the library: sleeps are written down and not slept."""

    slept: list[float] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def sleep(self, seconds: float) -> None:
        """Write it down."""
        with self._lock:
            self.slept.append(seconds)


def isolate_library(patch: pytest.MonkeyPatch, home: Path, *, endpoint: str, xet: bool = False) -> Naps:
    """Let the library know only ``endpoint`` and ``home``, send large files by LFS, and not wait between retries.

    Works after the import, which is when the library has read its environment.
    Ends with ``patch``; call ``huggingface_hub.close_session()`` then, or sockets stay open.
    """
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT"):
        patch.delenv(name, raising=False)
    settings: dict[str, object] = {
        "ENDPOINT": endpoint,
        "HUGGINGFACE_CO_URL_TEMPLATE": endpoint + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HOME": str(home),
        "HF_HUB_CACHE": str(home / "hub"),
        "HF_TOKEN_PATH": str(home / "token"),
        "HF_STORED_TOKENS_PATH": str(home / "stored_tokens"),
        "HF_XET_CACHE": str(home / "xet"),
        "AGENT_HARNESSES_PATH": str(home / "agent_harnesses.json"),
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": True,
        "HF_HUB_DISABLE_TELEMETRY": True,
        "HF_HUB_DISABLE_XET": not xet,
        "HF_HUB_OFFLINE": False,
    }
    for name, value in settings.items():
        patch.setattr(constants, name, value)
    naps = Naps()
    patch.setattr(_http, "time", naps)
    patch.setattr(file_download, "time", naps)
    bars = importlib.import_module("huggingface_hub.utils.tqdm")  # the package has a class of that name
    patch.setattr(bars, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    huggingface_hub.close_session()
    return naps
