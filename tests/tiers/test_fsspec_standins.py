"""Stores whose filesystems are not installed here, played by stand-ins that behave as their sources say."""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib import import_module
from typing import Any

import pytest
from fsspec.asyn import AsyncFileSystem  # type: ignore[import-untyped]
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem  # type: ignore[import-untyped]

from tiers.bodies import BytesBody
from tiers.errors import AccessDenied, IntegrityError, ObjectExists, ObjectNotFound, TierUnavailable
from tiers.fsspec_opening import open_fsspec
from tiers.opening import TierSpec
from tiers.protocol import Fencing, Key, Tier
from tiers.testing import TierConformance, TierFactory, content, read_all

_buckets = itertools.count(1)


class BucketFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file that is stored when it is closed, as gcsfs's and adlfs's are."""

    def _initiate_upload(self) -> None:
        self.blocks: list[bytes] = []

    def _upload_chunk(self, final: bool = False) -> bool:
        self.blocks.append(self.buffer.getvalue())
        if final:
            self.fs.objects[self.path] = b"".join(self.blocks)
        return True

    def discard(self) -> None:
        self.blocks = []


class Buckets(AbstractFileSystem):  # type: ignore[misc]
    """A flat store: buckets, objects, and a listing cache that lies if it is asked."""

    objects: dict[str, bytes]
    buckets: frozenset[str]
    opened: list[dict[str, Any]]
    lock = threading.Lock()

    def __init__(self, *, requests_timeout: int | None = None, anon: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.opened.append({"requests_timeout": requests_timeout, "anon": anon, **options})

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **options: Any) -> BucketFile:
        return BucketFile(self, path, mode, block_size=block_size, cache_type=options.get("cache_type", "none"))

    def _require(self, path: str) -> None:
        if path.partition("/")[0] not in self.buckets:
            raise FileNotFoundError(path)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        self._require(path)
        if path in self.objects:
            size = len(self.objects[path])
            return {"name": path, "size": size, "type": "file", "etag": f'"{hash(self.objects[path])}"'}
        if any(name.startswith(f"{path}/") for name in self.objects):
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    def find(self, path: str, *, detail: bool = False, prefix: str = "", **_: Any) -> Any:
        self._require(path)
        found = [name for name in self.objects if name.startswith(f"{path}/{prefix}")]
        return {name: self.info(name) for name in found} if detail else found

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        return self.objects[path][start:end]

    def rm_file(self, path: str) -> None:
        self._require(path)
        if path not in self.objects:
            raise FileNotFoundError(path)
        del self.objects[path]

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        self._require(path)
        with self.lock:
            if mode == "create" and path in self.objects:
                raise FileExistsError(path)
            self.objects[path] = value


class OldBuckets(Buckets):
    """A release that swallows a condition that it does not know."""

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:  # type: ignore[override]  # that is the point
        self.objects[path] = value


class OldAsync(AsyncFileSystem):  # type: ignore[misc]
    """The same as a coroutine, behind a method of fsspec's that has the parameter."""

    async def _pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        raise NotImplementedError


class NewAsync(AsyncFileSystem):  # type: ignore[misc]
    """A release that knows the condition."""

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        raise NotImplementedError


class Renaming(MemoryFileSystem):  # type: ignore[misc]
    """A filesystem that renames, and refuses to where the target exists."""

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        if self.exists(path2):
            raise FileExistsError(path2)
        self.cp_file(path1, path2)
        self.rm_file(path1)


Register = Callable[[str, type[AbstractFileSystem]], None]


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Register:
    """Put a class into fsspec's registry for one test."""

    def put(protocol: str, cls: type[AbstractFileSystem]) -> None:
        monkeypatch.setitem(import_module("fsspec.registry")._registry, protocol, cls)

    return put


def fresh(cls: type[Buckets]) -> type[Buckets]:
    """Return a class with a store of its own."""
    fields = {"objects": {}, "buckets": frozenset({"bucket"}), "opened": []}
    return type(f"{cls.__name__}{next(_buckets)}", (cls,), fields)


class TestGcsStandIn(TierConformance):
    @pytest.fixture
    def tier_factory(self, register: Register) -> TierFactory:
        register("gs", fresh(Buckets))
        return lambda: open_fsspec(TierSpec(name="gcs", url="gs://bucket/some/prefix"))


class TestOldAzureStandIn(TierConformance):
    """An old release: creates look first, and that is said."""

    @pytest.fixture
    def tier_factory(self, register: Register) -> TierFactory:
        register("az", fresh(OldBuckets))
        return lambda: open_fsspec(TierSpec(name="azure", url="az://bucket"))


class TestRenamingStandIn(TierConformance):
    """A folder filesystem that nobody has looked at."""

    @pytest.fixture
    def tier_factory(self, register: Register) -> TierFactory:
        register("strange", Renaming)
        root = f"share{next(_buckets)}/root"
        Renaming(skip_instance_cache=True).makedirs(root)
        return lambda: open_fsspec(TierSpec(name="other", url=f"fsspec+strange://{root}"))


@pytest.fixture
def gcs(register: Register) -> Iterator[tuple[Tier, type[Buckets]]]:
    cls = fresh(Buckets)
    register("gs", cls)
    with closing(open_fsspec(TierSpec(name="gcs", url="gs://bucket/p", options={"project": "x"}))) as tier:
        yield tier, cls


@pytest.mark.parametrize(
    ("url", "cls", "fencing"),
    [
        ("gs://bucket", Buckets, Fencing.CAS),
        ("gs://bucket", OldBuckets, Fencing.ADVISORY),
        ("az://bucket", Buckets, Fencing.CAS),
        ("abfs://bucket", OldBuckets, Fencing.ADVISORY),
        ("oss://bucket", Buckets, Fencing.ADVISORY),
    ],
)
def test_fencing_is_that_of_the_release(register: Register, url: str, cls: type[Buckets], fencing: Fencing) -> None:
    """An installed release that would drop the condition unseen keeps nobody apart."""
    register(url.partition(":")[0], fresh(cls))
    assert open_fsspec(TierSpec(name="t", url=url)).capabilities.fencing is fencing


@pytest.mark.parametrize(("cls", "fencing"), [(OldAsync, Fencing.ADVISORY), (NewAsync, Fencing.CAS)])
def test_fencing_is_that_of_the_coroutine(register: Register, cls: type[AsyncFileSystem], fencing: Fencing) -> None:
    register("gs", cls)
    assert open_fsspec(TierSpec(name="t", url="gs://bucket")).capabilities.fencing is fencing


def test_how_a_filesystem_is_opened(gcs: tuple[Tier, type[Buckets]]) -> None:
    """Not before the first request; without caches; with deadlines, and never anonymously unless that was said."""
    tier, cls = gcs
    assert cls.opened == []
    tier.list_objects("")
    assert cls.opened == [{"requests_timeout": 120, "anon": False, "use_listings_cache": False, "project": "x"}]


def test_objects_lie_where_the_url_says(gcs: tuple[Tier, type[Buckets]]) -> None:
    tier, cls = gcs
    cls.objects["bucket/other"] = b"not ours"
    tier.put(Key("a%b/c"), BytesBody(content(20_000_000)))
    assert cls.objects["bucket/p/a%b/c"] == content(20_000_000)
    assert [info.key for info in tier.list_objects("").objects] == ["a%b/c"]
    assert read_all(tier.open(Key("a%b/c"), 8_000_000, 9_000_000)) == content(20_000_000)[8_000_000:17_000_000]


def test_a_bucket_that_does_not_exist(register: Register) -> None:
    register("gs", fresh(Buckets))
    with closing(open_fsspec(TierSpec(name="t", url="gs://elsewhere/p"))) as tier:
        for act in (lambda: tier.stat(Key("a")), lambda: tier.list_objects(""), lambda: tier.delete(Key("a"))):
            with pytest.raises(AccessDenied) as caught:
                act()
            assert "bucket" in caught.value.hint


def test_a_store_that_keeps_too_little(gcs: tuple[Tier, type[Buckets]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The size is looked at after every write."""
    tier, cls = gcs
    real = cls.info

    def short(self: Buckets, path: str, **options: Any) -> dict[str, Any]:
        found = real(self, path, **options)
        return {**found, "size": found["size"] - 1}

    monkeypatch.setattr(cls, "info", short)
    with pytest.raises(IntegrityError):
        tier.put(Key("a"), BytesBody(b"12345"))
    with pytest.raises(IntegrityError):
        tier.create(Key("b"), b"12345")


def test_what_it_means_when_a_file_vanishes_in_mid_write(
    gcs: tuple[Tier, type[Buckets]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tier, cls = gcs
    monkeypatch.setattr(cls, "pipe_file", _vanish)
    with pytest.raises(TierUnavailable):
        tier.create(Key("a"), b"x")


def _vanish(_self: object, path: str, _value: bytes, mode: str = "") -> None:
    raise FileNotFoundError(path)


def test_an_object_that_is_there_is_not_created_again(register: Register) -> None:
    """Also by the store's own condition, when a second writer was faster than the look."""
    cls = fresh(Buckets)
    register("gs", cls)
    with closing(open_fsspec(TierSpec(name="t", url="gs://bucket"))) as tier:
        cls.objects["bucket/a"] = b"theirs"
        with pytest.raises(ObjectExists):
            tier.create(Key("a"), b"ours")
        assert cls.objects["bucket/a"] == b"theirs"
        tier.delete(Key("a"))
        with pytest.raises(ObjectNotFound):
            tier.stat(Key("a"))
