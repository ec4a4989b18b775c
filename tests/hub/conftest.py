"""One emulator a test, an organisation with members, and the real library pointed at it."""

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import HfApi
from support.hub import HubServer, Limits, OrgRole, TokenRole
from support.hub.client import Naps, isolate_library


@pytest.fixture
def limits() -> Limits:
    """Return small limits: pages of three, and several parts from 64 KiB."""
    return Limits(page=3, expanded_page=2, paths=5, folder=8, multipart_above=64 * 1024, part=24 * 1024)


@pytest.fixture
def hub(limits: Limits) -> Iterator[HubServer]:
    """Run a Hub with the organisation acme: alice writes, bob reads, mallory is nobody."""
    with HubServer(limits) as server:
        server.add_org("acme", {"alice": OrgRole.WRITE, "bob": OrgRole.READ})
        yield server
        huggingface_hub.close_session()


@pytest.fixture
def naps(hub: HubServer, tmp_path: Path) -> Iterator[Naps]:
    """Isolate the library; return what it would have slept."""
    with pytest.MonkeyPatch.context() as patch:
        yield isolate_library(patch, tmp_path / "hf-home", endpoint=hub.url)


@pytest.fixture
def api(hub: HubServer, naps: Naps) -> HfApi:
    """Return the library as alice, who may write."""
    return HfApi(endpoint=hub.url, token=hub.add_token("writer", user="alice"))


@pytest.fixture
def reader(hub: HubServer, naps: Naps) -> HfApi:
    """Return the library as alice with a token that only reads."""
    return HfApi(endpoint=hub.url, token=hub.add_token("reader", user="alice", role=TokenRole.READ))


@pytest.fixture
def member(hub: HubServer, naps: Naps) -> HfApi:
    """Return the library as bob, who may only read whatever his token says."""
    return HfApi(endpoint=hub.url, token=hub.add_token("member", user="bob"))


@pytest.fixture
def stranger(hub: HubServer, naps: Naps) -> HfApi:
    """Return the library as mallory."""
    return HfApi(endpoint=hub.url, token=hub.add_token("stranger", user="mallory"))


@pytest.fixture
def anonymous(hub: HubServer, naps: Naps) -> HfApi:
    """Return the library without a token."""
    return HfApi(endpoint=hub.url, token=False)


@pytest.fixture
def repo_id(api: HfApi, hub: HubServer) -> str:
    """Make a private model repo, and forget that it was made."""
    api.create_repo("acme/model", private=True)
    hub.forget_requests()
    return "acme/model"
