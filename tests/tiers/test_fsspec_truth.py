"""What a tier through fsspec says is so: nothing cached, nothing made up, nothing but the key that was named."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from support.fsspec_tiers import FOLDERS, Served, s3fs_spec, serve
from support.s3_tiers import RawS3
from support.seaweed import SeaweedServer

from tiers.bodies import BytesBody
from tiers.errors import AccessDenied, ObjectExists, ObjectNotFound, TierError, TierUnavailable, Unsupported
from tiers.fsspec_opening import open_fsspec
from tiers.opening import TierSpec, open_tier
from tiers.protocol import Fencing, Key, ObjectInfo, Tier
from tiers.testing import ManualClock, content, read_all
from tiers.testing.base import race


@pytest.fixture(params=FOLDERS)
def served(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    with serve(request.param, tmp_path, monkeypatch) as running:
        yield running


@pytest.fixture
def tier(served: Served) -> Iterator[Tier]:
    with closing(served.open()) as opened:
        yield opened


def keys(tier: Tier, prefix: str = "") -> list[str]:
    return [info.key for info in tier.list_objects(prefix).objects]


def verbs(tier: Tier) -> list[Callable[[], object]]:
    key = Key("a/b")
    return [
        partial(tier.stat, key),
        partial(tier.open, key),
        partial(tier.open, key, 0, 0),
        partial(tier.list_objects, ""),
        partial(tier.list_objects, "a/"),
        partial(tier.delete, key),
        partial(tier.put, key, BytesBody(b"x")),
        partial(tier.create, key, b"x"),
    ]


def test_what_others_do_is_seen_at_once(tier: Tier, served: Served) -> None:
    """Objects that appear, grow and go behind the tier's back are never answered from a listing."""
    folder = served.folder / "a"
    folder.mkdir()
    assert keys(tier, "a/") == []
    for size in (3, 300, 0):
        (folder / "b").write_bytes(content(size))
        assert [info.size for info in tier.list_objects("a/").objects] == [size]
        assert tier.stat(Key("a/b")).size == size
        assert read_all(tier.open(Key("a/b"))) == content(size)
    (folder / "b").unlink()
    assert keys(tier, "a/") == []
    with pytest.raises(ObjectNotFound):
        tier.stat(Key("a/b"))
    tier.create(Key("a/b"), b"mine")
    assert (folder / "b").read_bytes() == b"mine"


def test_names_on_the_server_are_the_keys(tier: Tier, served: Served) -> None:
    """Nothing is quoted, unquoted or expanded on the way, in either direction."""
    for key in ("a%2Fb", "%25", "~/x", "~root", "a%20b/c%C3%A9", "%", "-rf", "a..b"):
        tier.put(Key(key), BytesBody(key.encode()))
        assert (served.folder / key).read_bytes() == key.encode()
        assert key in keys(tier, key)
        tier.delete(Key(key))
        assert not (served.folder / key).exists()
    assert keys(tier) == []


def test_names_that_are_no_keys_are_nobodys(tier: Tier, served: Served) -> None:
    """Brackets, stars and spaces are names like others to the server; the tier neither lists nor expands them."""
    for name in ("layer[0].bin", "a*", "what?", "with space", "#1"):
        (served.folder / name).write_bytes(b"theirs")
    (served.folder / "layer0.bin").write_bytes(b"ours")
    assert keys(tier) == ["layer0.bin"]
    for name in ("layer[0].bin", "a*", "what?", "../x", "a//b", "/a", ".ckptier/tmp/x"):
        with pytest.raises(ValueError, match="not a key"):
            tier.delete(Key(name))
    assert len(list(served.folder.iterdir())) == 6


def test_a_folder_is_no_object(tier: Tier, served: Served) -> None:
    """It is not found, not deleted, and never replaced: what is in it would go with it."""
    tier.put(Key("a/b/c"), BytesBody(b"kept"))
    with pytest.raises(ObjectNotFound):
        tier.stat(Key("a/b"))
    with pytest.raises(ObjectNotFound):
        tier.open(Key("a/b"))
    tier.delete(Key("a/b"))
    for act in (partial(tier.put, Key("a/b"), BytesBody(b"x")), partial(tier.create, Key("a/b"), b"x")):
        with pytest.raises((Unsupported, ObjectExists)):
            act()
    assert (served.folder / "a/b/c").read_bytes() == b"kept"
    assert keys(tier) == ["a/b/c"]


def test_an_object_is_no_folder(tier: Tier) -> None:
    """A key below an object is refused for good, not retried."""
    tier.put(Key("a"), BytesBody(b"kept"))
    for act in (partial(tier.put, Key("a/b"), BytesBody(b"x")), partial(tier.create, Key("a/b"), b"x")):
        with pytest.raises(TierError) as caught:
            act()
        assert isinstance(caught.value, Unsupported)
    assert keys(tier, "a/") == []
    assert read_all(tier.open(Key("a"))) == b"kept"


@pytest.mark.parametrize("number", range(8))
def test_a_root_that_is_not_there(served: Served, number: int) -> None:
    """A share that is not mounted never looks like one without checkpoints, and is never made up."""
    served.folder.rmdir()
    with closing(served.open()) as tier:
        with pytest.raises(TierUnavailable) as caught:
            verbs(tier)[number]()
        assert "mounted" in caught.value.hint
    assert not served.folder.exists()


@pytest.mark.parametrize("number", range(8))
def test_a_root_that_goes_away(served: Served, number: int) -> None:
    """The same where it went while the tier was in use."""
    with closing(served.open()) as tier:
        tier.put(Key("a/b"), BytesBody(b"x"))
        shutil.rmtree(served.folder)
        with pytest.raises(TierUnavailable):
            verbs(tier)[number]()
    assert not served.folder.exists()


def test_a_root_without_rights(tier: Tier, served: Served) -> None:
    """A root that is a file is no root either."""
    served.folder.rmdir()
    served.folder.write_bytes(b"")
    with pytest.raises(TierError) as caught:
        tier.stat(Key("a"))
    assert not isinstance(caught.value, ObjectNotFound)


def test_folders_that_a_delete_leaves_empty_do_not_pile_up(tier: Tier, served: Served) -> None:
    """Where removing a folder cannot remove what is in it, empty ones go; on WebDAV they stay."""
    tier.put(Key("g/1/files/a"), BytesBody(b"x"))
    tier.put(Key("g/2/files/a"), BytesBody(b"x"))
    tier.delete(Key("g/1/files/a"))
    left = served.spec.name == "webdav"
    assert (served.folder / "g/1").exists() is left
    assert (served.folder / "g/2/files/a").exists()
    assert keys(tier) == ["g/2/files/a"]


def test_links_on_this_machine_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"secret")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(outside)
    os.mkfifo(root / "fifo")
    with closing(open_fsspec(TierSpec(name="t", url=f"fsspec+{root.as_uri()}"))) as tier:
        assert keys(tier) == []
        for key in ("link", "fifo"):
            with pytest.raises(ObjectNotFound):
                tier.open(Key(key))
            tier.delete(Key(key))
    assert outside.read_bytes() == b"secret"


class TestS3:
    """The same through s3fs, against a real server."""

    @pytest.fixture
    def tier(self, seaweed: SeaweedServer, prefix: str) -> Iterator[Tier]:
        with closing(open_fsspec(s3fs_spec(seaweed, prefix))) as opened:
            yield opened

    @pytest.fixture
    def raw(self, seaweed: SeaweedServer, prefix: str) -> Iterator[RawS3]:
        with closing(RawS3(seaweed.endpoint_url, prefix)) as store:
            yield store

    def test_what_others_do_is_seen_at_once(self, tier: Tier, raw: RawS3) -> None:
        assert keys(tier, "a/") == []
        for size in (3, 300, 0):
            raw.put("a/b", content(size))
            assert [info.size for info in tier.list_objects("a/").objects] == [size]
            assert tier.stat(Key("a/b")).size == size
            assert read_all(tier.open(Key("a/b"))) == content(size)
        raw.put("a/c", b"x")
        assert keys(tier, "a/") == ["a/b", "a/c"]

    @pytest.mark.parametrize("number", range(8))
    def test_a_bucket_that_does_not_exist(self, seaweed: SeaweedServer, number: int) -> None:
        """It needs a person, and is never a missing key."""
        spec = s3fs_spec(seaweed, "p", bucket="no-such-bucket")
        with closing(open_fsspec(spec)) as tier, pytest.raises(AccessDenied):
            verbs(tier)[number]()

    def test_wrong_credentials(self, seaweed: SeaweedServer, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2-wrong")
        with closing(open_fsspec(s3fs_spec(seaweed, prefix))) as tier:
            for act in verbs(tier):
                with pytest.raises(AccessDenied) as caught:
                    act()
                assert "hunter2" not in f"{caught.value} {caught.value.hint} {caught.value.__cause__!r}"

    def test_a_server_that_is_down(self) -> None:
        spec = TierSpec(name="t", url="fsspec+s3://bucket/p", endpoint_url="http://127.0.0.1:1", region="us-east-1")
        with closing(open_fsspec(spec)) as tier:
            for act in verbs(tier):
                with pytest.raises(TierUnavailable):
                    act()


def test_races_for_a_key(served: Served) -> None:
    """Where writers are kept apart, one wins, every time; where they are not, that is said."""
    tiers = [served.open() for _ in range(8)]
    claimed = {"local": Fencing.POSIX, "sftp": Fencing.POSIX}.get(served.spec.name, Fencing.ADVISORY)
    assert {tier.capabilities.fencing for tier in tiers} == {claimed}
    for number in range(5 if claimed is Fencing.POSIX else 0):
        key = Key(f"race/{number}")
        results = race(8, lambda n, key=key: tiers[n].create(key, content(5_000, seed=n)))  # type: ignore[misc]
        winners = [n for n, result in enumerate(results) if isinstance(result, ObjectInfo)]
        assert len(winners) == 1
        assert all(isinstance(result, (ObjectInfo, ObjectExists)) for result in results), results
        assert (served.folder / key).read_bytes() == content(5_000, seed=winners[0])
    for tier in tiers:
        tier.close()


def test_the_whole_stack_opens_one(served: Served) -> None:
    """From the URL, with retries and meter around it."""
    tier = open_tier(served.spec, clock=ManualClock())
    tier.put(Key("a"), BytesBody(b"x"))
    assert tier.name == served.spec.name
    assert read_all(tier.open(Key("a"))) == b"x"
    tier.close()
    assert read_all(tier.open(Key("a"))) == b"x", "it connects again after a close"
    tier.close()
