"""Where a release goes: a repository of the Hub, a folder, or a tier.

A destination is compared as a whole and by field: what was approved for one place is not
approved for another, and visibility is part of the place.
"""

import re
from enum import StrEnum
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from replicate.release.documents import Document, Name, Text

HUB = "https://huggingface.co"
HUB_SCHEME = "hf"
_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_COMMIT = re.compile(r"[0-9a-f]{40}")


class Visibility(StrEnum):
    """Who may see it.  A folder or a tier manages that itself: ``unmanaged``."""

    PRIVATE = "private"
    PUBLIC = "public"
    UNMANAGED = "unmanaged"


class Gating(StrEnum):
    """How the Hub lets people in."""

    NONE = "none"
    AUTO = "auto"
    MANUAL = "manual"


class Destination(Document):
    """One place.

    ``url`` is ``hf://owner/name``, ``file:///folder`` or a tier's URL.  ``endpoint`` is the Hub's
    (or an S3 store's) address.  ``revision`` is the branch and ``tag`` the name that the published
    commit gets; both are the Hub's.  ``repo_type`` is always a model: weights are nothing else.
    """

    url: Name
    endpoint: Text = ""
    repo_type: Annotated[str, Field(pattern="^model$")] = "model"
    revision: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w./-]{0,127}$")] = "main"
    tag: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.+-]{0,127}$")] | None = None
    visibility: Annotated[Visibility, Field(strict=False)]
    gating: Annotated[Gating, Field(strict=False)] = Gating.NONE

    @property
    def scheme(self) -> str:
        """The scheme of the URL, as in ``hf`` or ``file``."""
        return urlsplit(self.url).scheme

    @property
    def repo(self) -> str:
        """``owner/name`` of a repository of the Hub; raises ValueError elsewhere."""
        if self.scheme != HUB_SCHEME:
            raise ValueError(f"{self.url} is no repository of the Hub")
        return self.url.removeprefix(f"{HUB_SCHEME}://")

    @property
    def hub(self) -> str:
        """The Hub's address."""
        return self.endpoint or HUB

    def _check_names(self) -> None:
        """Refuse names that would mean two things: a tag that is the branch, or either that reads as a commit."""
        if self.tag == self.revision:
            raise ValueError(f"tag {self.tag!r}: it is the branch's name; one name would mean two commits")
        for field, name in (("revision", self.revision), ("tag", self.tag or "")):
            if _COMMIT.fullmatch(name):
                raise ValueError(f"{field} {name!r}: it reads as the id of a commit")
            if name.startswith("refs/") or ".." in name or "//" in name or name.endswith(("/", ".lock")):
                raise ValueError(f"{field} {name!r}: it is no name that a branch or a tag can have")

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        parts = urlsplit(self.url)
        if not parts.scheme or "://" not in self.url:
            raise ValueError(f"url {self.url!r}: write hf://owner/name, file:///folder or a tier's URL")
        if "@" in parts.netloc:
            raise ValueError("url: holds credentials; leave them to the environment")
        if "@" in urlsplit(self.endpoint).netloc:
            raise ValueError("endpoint: holds credentials; leave them to the environment")
        on_hub = parts.scheme == HUB_SCHEME
        if on_hub and (not _REPO.fullmatch(self.repo) or any(odd in self.repo for odd in ("..", "--"))):
            raise ValueError(f"url {self.url!r}: a repository is hf://owner/name, of letters, digits, - _ and .")
        self._check_names()
        if on_hub and self.visibility is Visibility.UNMANAGED:
            raise ValueError("visibility: the Hub needs private or public")
        if not on_hub and self.visibility is not Visibility.UNMANAGED:
            raise ValueError(f"visibility: ckptier does not manage who sees {parts.scheme}://; say unmanaged")
        if not on_hub and (self.tag is not None or self.gating is not Gating.NONE):
            raise ValueError(f"tag and gating are the Hub's; {parts.scheme}:// has none")
        return self
