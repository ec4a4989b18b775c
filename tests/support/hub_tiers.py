"""A Hub of the test's own with a private dataset repo, and tiers on it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import HfApi, constants
from support.hub import HubServer, Limits, Operation, OrgRole, TokenRole
from support.hub.client import isolate_library
from support.hub.repos import Repo

from tiers.clock import SystemClock
from tiers.hub import HubTier, client_for
from tiers.opening import TierSpec

REPO = "acme/states"
PREFIX = "runs"
SMALL_PAGES = Limits(page=7, expanded_page=5)


@dataclass(frozen=True, slots=True)
class HubSite:
    """The Hub, with the repo as alice has made it; her token is the library's."""

    hub: HubServer
    api: HfApi
    token: str = field(repr=False)
    opened: ExitStack = field(repr=False)

    def spec(self, prefix: str = PREFIX, **fields: object) -> TierSpec:
        """Describe a tier in the repo."""
        url = f"hf://datasets/{REPO}" + (f"/{prefix}" if prefix else "")
        return TierSpec(name="hub", url=url, endpoint_url=self.hub.url, **fields)  # type: ignore[arg-type]

    def open(self, prefix: str = PREFIX, *, checked: bool = False, linger: float = 0.0, **fields: object) -> HubTier:
        """Open a tier in the repo, as another machine would; it is closed when the Hub is."""
        spec = self.spec(prefix, **fields)
        tier = HubTier(spec.name, client_for(spec, SystemClock()), checked=checked, linger=linger)
        self.opened.callback(tier.close)
        return tier

    @property
    def repo(self) -> Repo:
        """The repo as the server has it."""
        return self.hub.repos[f"datasets/{REPO}"]

    def commits(self) -> int:
        """Return how many commits the branch has."""
        return len(self.repo.history)

    def asked(self, operation: Operation) -> int:
        """Return how often something was asked since the record was emptied."""
        return self.hub.operations().count(operation.value)


@dataclass(frozen=True, slots=True)
class RawHub:
    """The stored bytes without the tier: read in the server, written by the real library."""

    site: HubSite
    prefix: str = PREFIX

    def get(self, key: str) -> bytes | None:
        """Return the bytes of a file, or None where there is none."""
        path = f"{self.prefix}/{key}"
        repo = self.site.repo
        return repo.read("main", path) if path in repo.files() else None

    def put(self, key: str, data: bytes) -> None:
        """Store bytes as any user of the Hub would."""
        path = f"{self.prefix}/{key}"
        self.site.api.upload_file(path_or_fileobj=data, path_in_repo=path, repo_id=REPO, repo_type="dataset")


@contextmanager
def hub_site(home: Path, *, limits: Limits = SMALL_PAGES) -> Iterator[HubSite]:
    """Run a Hub, and point the library at it, with alice's token where the library looks for one."""
    with HubServer(limits) as server, pytest.MonkeyPatch.context() as patch, ExitStack() as opened:
        server.add_org("acme", {"alice": OrgRole.WRITE, "bob": OrgRole.READ})
        isolate_library(patch, home, endpoint=server.url)
        token = server.add_token("writer", user="alice")
        patch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", False)
        patch.setenv("HF_TOKEN", token)
        site = HubSite(server, HfApi(endpoint=server.url, token=token), token, opened)
        site.api.create_repo(REPO, repo_type="dataset", private=True)
        server.forget_requests()
        yield site
        huggingface_hub.close_session()


__all__ = ["PREFIX", "REPO", "HubSite", "RawHub", "TokenRole", "hub_site"]
