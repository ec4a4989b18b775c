"""A stage whose place is the emulated Hub, reached by the real library."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import huggingface_hub
import pytest
from release.authorized_by_hand import Scene
from release.publish_stage import set_stage
from support.hub import HubServer, OrgRole, Repo, TokenRole
from support.hub.client import CLASSIC_LFS_WARNING, isolate_library

from replicate.release.destination import Destination, Gating, Visibility
from replicate.release.publishing.hub import HubPlace
from replicate.release.publishing.publishing import open_place

REPO = "acme/tiny"
TAG = "v1.0"
OLD = {"README.md": b"---\nlicense: mit\n---\n# Old\n", "old-shard.safetensors": b"\0old"}
"""What an earlier release left in the repository."""
LIBRARY_WARNING = CLASSIC_LFS_WARNING


@dataclass(slots=True, kw_only=True)
class HubStage:
    """A scene, the Hub that it publishes to, and the token for that."""

    scene: Scene
    hub: HubServer
    token: str
    api: huggingface_hub.HfApi

    def place(self, token: str | None = None) -> HubPlace:
        opened = open_place(
            self.scene.observed.destination, clock=self.scene.clock, token=self.token if token is None else token
        )
        assert isinstance(opened, HubPlace)
        return opened

    @property
    def repo(self) -> Repo:
        return self.hub.repos[REPO]

    @property
    def exists(self) -> bool:
        return REPO in self.hub.repos

    def files(self, revision: str) -> dict[str, bytes]:
        """Return what a revision holds, but for the Hub's own file."""
        return {path: self.repo.read(revision, path) for path in self.repo.files(revision) if path != ".gitattributes"}

    def made_before(self, files: dict[str, bytes]) -> str:
        """Make the repository as an earlier release left it; returns its head."""
        self.api.create_repo(REPO, private=True)
        operations = [huggingface_hub.CommitOperationAdd(path, data) for path, data in files.items()]
        made = self.api.create_commit(REPO, operations, commit_message="before")
        self.hub.forget_requests()
        return made.oid


def hub_destination(hub: HubServer, **changes: object) -> Destination:
    said: dict[str, object] = {
        "url": f"hf://{REPO}",
        "endpoint": hub.url,
        "tag": TAG,
        "visibility": Visibility.PRIVATE,
        "gating": Gating.NONE,
    }
    return Destination.model_validate(said | changes)


@contextmanager
def hub_stage(folder: Path, **changes: object) -> Iterator[HubStage]:
    """Run a Hub with one organisation, and prepare a release for it."""
    with HubServer() as hub, pytest.MonkeyPatch.context() as patch:
        isolate_library(patch, folder / "hf-home", endpoint=hub.url)
        hub.add_org("acme", {"alice": OrgRole.WRITE, "bob": OrgRole.WRITE})
        token = hub.add_token("release", user="alice", role=TokenRole.WRITE)
        api = huggingface_hub.HfApi(endpoint=hub.url, token=token)
        scene = set_stage(folder / "stage", hub_destination(hub, **changes))
        yield HubStage(scene=scene, hub=hub, token=token, api=api)
        huggingface_hub.close_session()
