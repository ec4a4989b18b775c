"""Which of the Hub's operations a request is."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote


class Surface(StrEnum):
    """The two origins: the Hub itself, and the storage that it redirects to."""

    HUB = "hub"
    STORAGE = "storage"


class Operation(StrEnum):
    """What a request asks for; a fault names it, or the HTTP method."""

    WHOAMI = "whoami"
    VALIDATE_CARD = "validate-card"
    CREATE_REPO = "create-repo"
    DELETE_REPO = "delete-repo"
    REPO_INFO = "repo-info"
    SETTINGS = "settings"
    AUTH_CHECK = "auth-check"
    REFS = "refs"
    CREATE_BRANCH = "create-branch"
    DELETE_BRANCH = "delete-branch"
    CREATE_TAG = "create-tag"
    DELETE_TAG = "delete-tag"
    SQUASH = "squash"
    COMMITS = "commits"
    TREE = "tree"
    PATHS_INFO = "paths-info"
    PREUPLOAD = "preupload"
    COMMIT = "commit"
    STAT_FILE = "stat-file"
    GET_FILE = "get-file"
    LFS_BATCH = "lfs-batch"
    LFS_PUT = "lfs-put"
    LFS_COMPLETE = "lfs-complete"
    LFS_VERIFY = "lfs-verify"
    LFS_GET = "lfs-get"
    LFS_FILES = "lfs-files"
    DELETE_LFS_FILES = "delete-lfs-files"
    XET_TOKEN = "xet-token"
    UNKNOWN = "unknown"


_READ_BY_POST = frozenset(
    {
        Operation.VALIDATE_CARD,
        Operation.PATHS_INFO,
        Operation.PREUPLOAD,
        Operation.LFS_BATCH,
        Operation.LFS_VERIFY,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """An operation, and the parts of the path that it is about."""

    operation: Operation
    args: Mapping[str, str]
    writes: bool


_REPO = r"/api/(?P<kind>models|datasets|spaces)/(?P<id>[^/]+/[^/]+)"
_PLAIN = r"/(?:(?P<kind>datasets|spaces)/)?(?P<id>[^/]+/[^/]+)"
_OBJECT = r"/lfs/(?P<kind>models|datasets|spaces)/(?P<id>[^/]+/[^/]+)/(?P<oid>[0-9a-f]{64})"


def _table(*rows: tuple[str, str, Operation]) -> list[tuple[frozenset[str], re.Pattern[str], Operation]]:
    return [(frozenset(methods.split()), re.compile(pattern), operation) for methods, pattern, operation in rows]


_TABLES = {
    Surface.HUB: _table(
        ("GET", r"/api/whoami-v2", Operation.WHOAMI),
        ("POST", r"/api/validate-yaml", Operation.VALIDATE_CARD),
        ("POST", r"/api/repos/create", Operation.CREATE_REPO),
        ("DELETE", r"/api/repos/delete", Operation.DELETE_REPO),
        ("POST", r"/api/complete_multipart" + _OBJECT, Operation.LFS_COMPLETE),
        ("GET", _REPO + r"(?:/revision/(?P<revision>[^/]+))?", Operation.REPO_INFO),
        ("PUT", _REPO + r"/settings", Operation.SETTINGS),
        ("GET", _REPO + r"/auth-check(?P<write>/write)?", Operation.AUTH_CHECK),
        ("GET", _REPO + r"/refs", Operation.REFS),
        ("POST", _REPO + r"/branch/(?P<name>[^/]+)", Operation.CREATE_BRANCH),
        ("DELETE", _REPO + r"/branch/(?P<name>[^/]+)", Operation.DELETE_BRANCH),
        ("POST", _REPO + r"/tag/(?P<revision>[^/]+)", Operation.CREATE_TAG),
        ("DELETE", _REPO + r"/tag/(?P<name>[^/]+)", Operation.DELETE_TAG),
        ("POST", _REPO + r"/super-squash/(?P<name>[^/]+)", Operation.SQUASH),
        ("GET", _REPO + r"/commits/(?P<revision>[^/]+)", Operation.COMMITS),
        ("GET", _REPO + r"/tree/(?P<revision>[^/]+)(?:/(?P<path>.+))?", Operation.TREE),
        ("POST", _REPO + r"/paths-info/(?P<revision>[^/]+)", Operation.PATHS_INFO),
        ("POST", _REPO + r"/preupload/(?P<revision>[^/]+)", Operation.PREUPLOAD),
        ("POST", _REPO + r"/commit/(?P<revision>[^/]+)", Operation.COMMIT),
        ("GET", _REPO + r"/lfs-files", Operation.LFS_FILES),
        ("POST", _REPO + r"/lfs-files/batch", Operation.DELETE_LFS_FILES),
        ("GET", _REPO + r"/xet-(?:read|write)-token(?:/(?P<revision>[^/]+))?", Operation.XET_TOKEN),
        ("POST", _PLAIN + r"\.git/info/lfs/objects/batch", Operation.LFS_BATCH),
        ("POST", _PLAIN + r"\.git/info/lfs/objects/verify", Operation.LFS_VERIFY),
        ("HEAD", _PLAIN + r"/resolve/(?P<revision>[^/]+)/(?P<path>.+)", Operation.STAT_FILE),
        ("GET", _PLAIN + r"/resolve/(?P<revision>[^/]+)/(?P<path>.+)", Operation.GET_FILE),
    ),
    Surface.STORAGE: _table(("PUT", _OBJECT, Operation.LFS_PUT), ("GET HEAD", _OBJECT, Operation.LFS_GET)),
}


def classify(surface: Surface, method: str, path: str) -> Route:
    """Find the operation of a request; what changes something, or is not known to be harmless, ``writes``."""
    for methods, pattern, operation in _TABLES[surface]:
        found = pattern.fullmatch(path) if method in methods else None
        if found is not None:
            args = {name: unquote(value) for name, value in found.groupdict().items() if value is not None}
            writes = method not in {"GET", "HEAD"} and operation not in _READ_BY_POST
            return Route(operation=operation, args=args, writes=writes)
    return Route(operation=Operation.UNKNOWN, args={}, writes=method not in {"GET", "HEAD"})
