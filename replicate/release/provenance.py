"""``provenance.json``: where the weights of a release come from, without anything of the run's own names or places."""

import re
from collections import Counter
from typing import Annotated, Literal

from pydantic import Field

from replicate import canonical
from replicate.manifest import GenerationRecord
from replicate.release.bundle import Action, Exporter, Kind, SourceIdentity, Transform
from replicate.release.description import Adapter, ReleaseDescription
from replicate.release.documents import Count, Document, Name, Sha256, Text

FILE = "provenance.json"
SCOPE = (
    "Says which sealed generation the tensors come from and how they were made from it. "
    "A digest identifies bytes and authenticates nobody: signatures and authorizations are kept apart. "
    "How the training data were chosen or licensed is not part of it."
)
_DIGEST = re.compile(r"[0-9a-f]{40,128}")


class BaseModel(Document):
    """The model that an adapter belongs to, at a commit."""

    id: Name
    revision: Name
    license: Name


class TransformSummary(Document):
    """How many entries of the source met with what; ``cast_to`` are the dtypes that were cast to."""

    kept: Count
    cast: Count
    alias: Count
    omitted: Count
    cast_to: Annotated[tuple[Name, ...], Field(strict=False)] = ()


class Provenance(Document):
    """The whole document.  Its only time is that at which the generation was sealed."""

    format: Literal[1] = 1
    kind: Kind
    name: Name
    version: Name
    source: SourceIdentity
    code_version: Name
    exporter: Exporter
    transforms: TransformSummary
    content_sha256: Sha256
    base_model: BaseModel | None = None
    scope: Text = SCOPE


def source_identity(record: GenerationRecord, record_bytes: bytes) -> SourceIdentity:
    """Return what is published of a generation.

    A part of its contract that is a digest is published as it is; of any other text only the
    digest is, since it may hold a path.
    """
    return SourceIdentity(
        generation=record.id,
        record_sha256=canonical.sha256(record_bytes),
        next_update=record.next_update,
        sealed_at=record.sealed_at,
        contract={name: _hidden(value) for name, value in sorted(record.contract.items())},
    )


def provenance(
    description: ReleaseDescription,
    source: SourceIdentity,
    exporter: Exporter,
    transforms: tuple[Transform, ...],
    content_sha256: str,
) -> Provenance:
    """Put the document together."""
    counts = Counter(one.action for one in transforms)
    return Provenance(
        kind=description.kind,
        name=description.name,
        version=description.version,
        source=source,
        code_version=description.code_version,
        exporter=exporter,
        transforms=TransformSummary(
            kept=counts[Action.KEPT],
            cast=counts[Action.CAST],
            alias=counts[Action.ALIAS],
            omitted=counts[Action.OMITTED],
            cast_to=tuple(sorted({one.to_dtype or "" for one in transforms if one.action is Action.CAST})),
        ),
        content_sha256=content_sha256,
        base_model=_base_model(description.adapter),
    )


def _base_model(adapter: Adapter | None) -> BaseModel | None:
    if adapter is None:
        return None
    return BaseModel(id=adapter.base_model, revision=adapter.base_revision, license=adapter.base_license)


def _hidden(value: str) -> str:
    return value if _DIGEST.fullmatch(value) else f"sha256:{canonical.sha256(value.encode())}"
