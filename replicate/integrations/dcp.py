"""Load a ``torch.distributed.checkpoint`` straight from a tier or the store into tensors; no file is written.

    with TierReader.open("ckptier.toml") as reader:            # the newest provable generation
        torch.distributed.checkpoint.load(state, storage_reader=reader)

Only the leaves that the wanted tensors lie in are read, each once, and none of their bytes is
handed to torch before the leaf's SHA-256 is the sealed one.  What is wrong at one place is
taken from the next.  Under several ranks each reads its own part; name the ``generation``
there, or let one rank choose it, since a newer one may be committed between two looks.
"""

import io
import os
import pickle
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from replicate.config import find_config, load_config
from replicate.errors import CapabilityMissing, IntegrityFailure, NothingFound, TrustFailure, UsageError
from replicate.formats import dcp, pickled
from replicate.layout import GenerationId, LocalRun, RemoteRun
from replicate.opening import default_opener, near_of, open_configured, probed_opener
from replicate.restore import RestoreRequest
from replicate.restore.opened import OpenedGeneration, open_generation
from replicate.restore.ranges import Span
from tiers.clock import SystemClock
from tiers.metered import Meter
from tiers.protocol import Tier

CLOCK = SystemClock()
GIB = 1024**3
Loaded = tuple[ReadItem, Any]


class TierReader(StorageReader):
    """Reads one generation, chosen when it is opened; a context manager.

    Where all that a rank wants is at most ``whole_up_to`` bytes, all of it is proved before the first
    tensor is touched; what is larger goes into the tensors leaf by leaf, and after an error the state is
    partly overwritten.  ``folder`` is where the checkpoint lies in the generation.
    """

    def __init__(
        self,
        opened: OpenedGeneration,
        *,
        folder: str | None = None,
        whole_up_to: int = GIB,
        owned: Sequence[Tier] = (),
    ) -> None:
        super().__init__()
        self._opened = opened
        self._whole_up_to = whole_up_to
        self._sizes = {file.path: file.size for file in opened.record.files}
        self._folder = _folder(self._sizes, opened.id) if folder is None else folder.strip("/")
        self._places: Mapping[Any, Any] = {}
        self._owned = owned

    @classmethod
    def open(cls, config: str | Path | None = None, *, generation: str | None = None, **options: Any) -> "TierReader":
        """Open the newest provable generation that a configuration leads to, or the one named.

        ``config`` is a ckptier.toml (default: searched upwards); ``options`` are ``folder``, ``whole_up_to``,
        ``workers`` (leaves fetched beside each other), ``tier`` (bytes come from there alone, else from the store,
        then from volumes, then from the other tiers in their order) and ``accept_older``.  Raises as
        ``ckptier restore`` does.
        """
        settings = load_config(find_config(Path(config) if config else None, start=Path.cwd()))
        stop, opener = threading.Event(), probed_opener(settings, default_opener)
        wanted = {name: options.pop(name) for name in ("tier", "accept_older") if name in options}
        named = GenerationId.parse(generation) if generation else None
        request = RestoreRequest(generation=named, near=near_of(settings.tier), **wanted)
        with ExitStack() as stack:
            tiers: list[Tier] = []
            for one in settings.tier:
                tiers.append(open_configured(one, opener, CLOCK, Meter(), stop))
                stack.callback(tiers[-1].close)
            reader = cls.of(request, tiers, settings.local, remote=settings.remote, owned=tiers, **options)
            stack.pop_all()
        return reader

    @classmethod
    def of(
        cls,
        request: RestoreRequest,
        tiers: Sequence[Tier],
        local: LocalRun,
        *,
        remote: RemoteRun,
        workers: int = 4,
        **options: Any,
    ) -> "TierReader":
        """Open a generation on tiers that are open; ``owned`` ones are closed with the reader."""
        opened = open_generation(request, tiers, local, CLOCK, remote=remote, workers=workers)
        with ExitStack() as stack:
            stack.callback(opened.close)
            reader = cls(opened, **options)
            stack.pop_all()
        return reader

    @property
    def generation(self) -> str:
        """Id of the generation that is read."""
        return str(self._opened.id)

    @property
    def checkpoint_id(self) -> str:
        """The same, by the name that torch asks for."""
        return self.generation

    @property
    def opened(self) -> OpenedGeneration:
        """The generation: its record, what was passed over for it, and the faults met so far."""
        return self._opened

    def close(self) -> None:
        """Let go of the generation and of the tiers that were opened for it; safe to repeat."""
        self._opened.close()
        for tier in self._owned:
            tier.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begin anew; another generation than the opened one is a UsageError."""
        self._places = {}
        if checkpoint_id is not None and str(checkpoint_id) != self.generation:
            raise UsageError(
                f"this reader has {self.generation} open, not {checkpoint_id}",
                hint="leave checkpoint_id out, or open the other one: TierReader.open(generation=...)",
            )

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Tell whether this is a generation id."""
        try:
            GenerationId.parse(str(checkpoint_id))
        except UsageError:
            return False
        return True

    def read_metadata(self, *_args: Any, **kwargs: Any) -> Metadata:
        """Read ``.metadata`` (of one ``rank`` where it is given); what it says is compared with the sealed files."""
        rank = kwargs.get("rank")
        name = ".metadata" if rank is None else f"__{rank}.metadata"
        path = self._path(name)
        if path not in self._sizes:
            raise NothingFound(
                f"{path!r} is not in {self.generation}",
                hint="name the folder of the checkpoint: TierReader.open(folder=...)",
            )
        if self._sizes[path] > pickled.MAX_BYTES:
            raise IntegrityFailure(
                f"{path!r} has {self._sizes[path]} bytes, more than the {pickled.MAX_BYTES} that one may have"
            )
        data = self._opened.ranges.read(Span(path=path, start=0, length=self._sizes[path]))
        fault = dcp.metadata_fault(dcp.read_metadata(data, what=path), self._folder, self._sizes)
        if fault:
            raise IntegrityFailure(f"{self.generation}: {fault}", hint="its writer failed; load another generation")
        metadata: Metadata = _Unpickler(io.BytesIO(data)).load()
        if getattr(metadata, "storage_meta", None) is None:
            metadata.storage_meta = StorageMeta()
        return metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *_args: Any, **_kwargs: Any) -> None:  # noqa: ARG002, FBT001 - torch's signature
        """Take note of where each chunk lies."""
        self._places = metadata.storage_data or {}

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Say which generation this rank has open."""
        return replace(plan, storage_data=self.generation)

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Refuse ranks that opened different generations: a mixture of two was never a state of the training."""
        chosen = sorted({str(plan.storage_data) for plan in plans})
        if len(chosen) > 1:
            raise TrustFailure(
                f"the ranks opened different generations: {', '.join(chosen)}",
                hint="let one rank choose, and give its id to all: TierReader.open(generation=...)",
            )
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Load what the plan wants; raises NotProved where no place has a leaf as it was sealed."""
        found = self._items(plan)
        if sum(self._span(item).length for item in plan.items) <= self._whole_up_to:
            found = iter(list(found))  # everything is proved before anything is overwritten
        for item, value in found:
            _hand_over(item, value, planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}" if self._folder else name

    def _span(self, item: ReadItem) -> Span:
        place = self._places[item.storage_index]
        if getattr(place, "transform_descriptors", None):
            raise CapabilityMissing(
                f"{item.storage_index.fqn!r} was written through {', '.join(map(str, place.transform_descriptors))}",
                hint="restore the files (ckptier restore --to DIR), and load with torch's own reader",
            )
        return Span(path=self._path(place.relative_path), start=place.offset, length=place.length)

    def _items(self, plan: LoadPlan) -> Iterator[Loaded]:
        """Yield what is wanted in the order in which it lies in the files, each chunk read once."""
        wanted: dict[Span, list[ReadItem]] = {}
        for item in plan.items:
            wanted.setdefault(self._span(item), []).append(item)
        for span, stream in self._opened.ranges.each(list(wanted)):
            items = wanted[span]
            tensors = [item for item in items if item.type is not LoadItemType.BYTE_IO]
            if tensors:
                whole = torch.load(stream, map_location="cpu", weights_only=True)
                yield from ((item, _part(whole, item)) for item in tensors)
            if len(tensors) < len(items):
                stream.seek(0)
                data = stream.read()
                yield from ((item, data) for item in items if item.type is LoadItemType.BYTE_IO)


class _Unpickler(pickle.Unpickler):
    """Looks up the names that a ``.metadata`` has, and no others."""

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in dcp.NAMES:
            raise IntegrityFailure(f"{module}.{name} has no business in a .metadata")
        return super().find_class(module, name)


def _hand_over(item: ReadItem, value: Any, planner: LoadPlanner) -> None:
    if item.type is LoadItemType.BYTE_IO:
        planner.load_bytes(item, io.BytesIO(value))
        return
    target = planner.resolve_tensor(item).detach()
    if target.size() != value.size():
        raise IntegrityFailure(
            f"{item.storage_index.fqn!r} has the shape {tuple(value.size())}, and {tuple(target.size())} is wanted",
            hint="build the model and optimizer as they were when it was saved",
        )
    target.copy_(value)
    planner.commit_tensor(item, target)


def _part(whole: torch.Tensor, item: ReadItem) -> torch.Tensor:
    """Cut what one item wants out of a stored chunk."""
    part = whole
    for dimension, (offset, size) in enumerate(zip(item.storage_offsets, item.lengths, strict=False)):
        if size < whole.size(dimension):
            part = part.narrow(dimension, offset, size)
    return part


def _folder(sizes: Mapping[str, int], generation: GenerationId) -> str:
    """Return the one folder of a generation that holds a checkpoint of this kind."""
    found = sorted({path.rpartition("/")[0] for path in sizes if dcp.METADATA_NAME.fullmatch(path.rpartition("/")[2])})
    if len(found) == 1:
        return found[0]
    named = f"several: {', '.join(map(repr, found))}" if found else "none"
    raise (UsageError if found else NothingFound)(
        f"{generation} should hold one checkpoint of torch.distributed.checkpoint, and holds {named}",
        hint="name its folder: TierReader.open(folder=...)" if found else "`ckptier show` lists its files",
    )
