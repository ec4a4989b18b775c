"""Volumes that show changes only after commit and reload: case C14 and its neighbours."""

import sys
import types
from pathlib import Path

import pytest
from support.modal_volume import ModalVolume, View

from tiers.bodies import BytesBody
from tiers.clock import SystemClock
from tiers.errors import ObjectExists, ObjectNotFound, TierUnavailable, Unsupported
from tiers.opening import BadTierUrl, TierSpec, open_tier
from tiers.protocol import Fencing, Key, walk
from tiers.testing import RawStore, TierConformance, TierFactory, content, read_all
from tiers.volume import VolumeTier
from tiers.volume_facts import VolumeMode
from tiers.volume_modal import ModalTier


def on(view: View, page_size: int = 1000) -> ModalTier:
    """Open a tier on one container's view."""
    return ModalTier(VolumeTier("modal", view.root, mode=VolumeMode.MODAL, page_size=page_size), view.hooks)


class Committed:
    """What was committed, seen without the tier."""

    def __init__(self, volume: ModalVolume) -> None:
        self.volume = volume

    def get(self, key: str) -> bytes | None:
        path = self.volume.committed / key
        return path.read_bytes() if path.is_file() else None

    def put(self, key: str, data: bytes) -> None:
        path = self.volume.committed / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@pytest.fixture
def volume(tmp_path: Path) -> ModalVolume:
    return ModalVolume(tmp_path)


class TestModal(TierConformance):
    """Every tier of the suite is another container, with a view of its own."""

    @pytest.fixture
    def tier_factory(self, volume: ModalVolume) -> TierFactory:
        return lambda: on(volume.view(), page_size=3)

    @pytest.fixture
    def raw(self, volume: ModalVolume) -> RawStore:
        return Committed(volume)


class TestC14:
    """The pointer went backwards: it was written through one view and read through another, older one."""

    def test_what_a_commit_returned_for_is_seen_everywhere(self, volume: ModalVolume) -> None:
        writer, reader = on(volume.view()), on(volume.view())
        for number in range(3):
            writer.create(Key(f"log/{number}"), b"entry %d" % number)
            writer.put(Key("head.json"), BytesBody(b"head %d" % number))
            assert read_all(reader.open(Key("head.json"))) == b"head %d" % number
            assert [info.key for info in walk(reader, "log/")] == [f"log/{n}" for n in range(number + 1)]

    def test_bytes_are_visible_before_the_entry_that_names_them(self, volume: ModalVolume) -> None:
        view = volume.view()
        tier = on(view)
        tier.put(Key("data"), BytesBody(b"data"))
        assert (volume.committed / "data").read_bytes() == b"data"
        view.broken = 1
        with pytest.raises(TierUnavailable, match="commit failed: ConnectionError"):
            tier.create(Key("log/0"), b"entry")
        assert not (volume.committed / "log/0").exists()
        assert (volume.committed / "data").exists()

    def test_a_commit_that_failed_is_made_up_for_before_anything_is_read(self, volume: ModalVolume) -> None:
        """Else the process would read its own entry back, and take for committed what nobody else sees."""
        view = volume.view()
        tier, elsewhere = on(view), on(volume.view())
        view.broken = 2
        with pytest.raises(TierUnavailable):
            tier.create(Key("log/0"), b"entry")
        with pytest.raises(TierUnavailable):
            tier.stat(Key("log/0"))
        with pytest.raises(ObjectNotFound):
            elsewhere.stat(Key("log/0"))
        assert read_all(tier.open(Key("log/0"))) == b"entry"
        assert read_all(elsewhere.open(Key("log/0"))) == b"entry"

    def test_a_view_older_than_what_was_written_is_reported(self, volume: ModalVolume) -> None:
        """Looked at twice, then said to be stale: never "there is no such entry"."""
        view = volume.view()
        tier = on(view)
        tier.create(Key("log/0"), b"entry")
        (view.root / "log" / "0").unlink()
        view.frozen, view.calls = True, []
        for look in (lambda: tier.open(Key("log/0")), lambda: tier.stat(Key("log/0"))):
            with pytest.raises(TierUnavailable, match="older than what this process has committed"):
                look()
        assert view.calls == ["reload"] * 4
        with pytest.raises(TierUnavailable, match="older"):
            tier.list_objects("log/")

    def test_there_is_no_reload_while_a_file_is_open(self, volume: ModalVolume) -> None:
        view = volume.view()
        tier, elsewhere = on(view), on(volume.view())
        tier.put(Key("a"), BytesBody(content(3000)))
        with tier.open(Key("a")) as stream:
            elsewhere.put(Key("b"), BytesBody(b"b"))
            view.calls = []
            with pytest.raises(ObjectNotFound):
                tier.stat(Key("b"))
            assert view.calls == []
            assert stream.read(10) == content(3000)[:10]
        assert tier.stat(Key("b")).size == 1

    def test_create_sees_what_others_have_committed(self, volume: ModalVolume) -> None:
        first, second = on(volume.view()), on(volume.view())
        first.create(Key("log/0"), b"first")
        with pytest.raises(ObjectExists):
            second.create(Key("log/0"), b"second")
        assert read_all(first.open(Key("log/0"))) == b"first"

    def test_a_key_that_was_deleted_is_not_stale(self, volume: ModalVolume) -> None:
        tier = on(volume.view())
        tier.create(Key("log/0"), b"entry")
        tier.delete(Key("log/0"))
        with pytest.raises(ObjectNotFound):
            tier.stat(Key("log/0"))
        assert list(walk(tier, "")) == []

    def test_close_commits(self, volume: ModalVolume) -> None:
        view = volume.view()
        tier = on(view)
        view.broken = 1
        with pytest.raises(TierUnavailable):
            tier.put(Key("a"), BytesBody(b"a"))
        tier.close()
        assert (volume.committed / "a").read_bytes() == b"a"


class TestOpening:
    """Where the hooks come from."""

    @staticmethod
    def spec(tmp_path: Path, **options: str | int | bool) -> TierSpec:
        return TierSpec(name="m", url=f"file://{tmp_path}", mode="modal", options=options)

    def test_hooks_of_ones_own(self, volume: ModalVolume, monkeypatch: pytest.MonkeyPatch) -> None:
        view = volume.view()
        module = types.ModuleType("my_volume_hooks")
        module.publish, module.refresh = view.commit, view.reload  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        spec = self.spec(view.root, commit="my_volume_hooks:publish", reload="my_volume_hooks:refresh")
        tier = open_tier(spec, clock=SystemClock())
        assert tier.capabilities.fencing is Fencing.ADVISORY
        tier.put(Key("a"), BytesBody(b"a"))
        assert (volume.committed / "a").exists()
        tier.close()

    def test_modals_own_package(self, volume: ModalVolume, monkeypatch: pytest.MonkeyPatch) -> None:
        view = volume.view()
        asked: list[str] = []

        class Volume:
            @staticmethod
            def from_name(name: str) -> View:
                asked.append(name)
                return view

        module = types.ModuleType("modal")
        module.Volume = Volume  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "modal", module)
        tier = open_tier(self.spec(view.root, volume="checkpoints"), clock=SystemClock())
        tier.put(Key("a"), BytesBody(b"a"))
        assert asked == ["checkpoints"]
        assert (volume.committed / "a").exists()
        tier.close()

    def test_without_the_package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "modal", None)
        with pytest.raises(Unsupported) as caught:
            open_tier(self.spec(tmp_path, volume="checkpoints"), clock=SystemClock())
        assert "pip install modal" in caught.value.hint

    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"volume": 1},
            {"volume": "v", "commit": "os:sync"},
            {"commit": "os:sync"},
            {"commit": "os:sync", "reload": "os:no_such_name"},
            {"commit": "no_such_module_at_all:x", "reload": "os:sync"},
            {"commit": "os:sync", "reload": ":"},
            {"commit": "os:sync", "reload": "os:name"},
        ],
    )
    def test_options_that_name_none(self, tmp_path: Path, options: dict[str, str | int | bool]) -> None:
        with pytest.raises(BadTierUrl) as caught:
            open_tier(self.spec(tmp_path, **options), clock=SystemClock())
        assert "module:function" in caught.value.hint

    def test_options_in_another_mode(self, tmp_path: Path) -> None:
        spec = TierSpec(name="m", url=f"file://{tmp_path}", options={"volume": "v"})
        with pytest.raises(BadTierUrl, match="options mean nothing to file:// in mode auto"):
            open_tier(spec, clock=SystemClock())
