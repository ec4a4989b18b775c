"""What a log entry can say: one model a kind."""

from typing import Annotated, Literal

from pydantic import Field

from replicate.manifest import Count, GenerationText, Record, Sha256, Text


class Claim(Record):
    """A writer takes (or raises) the term.

    ``takeover`` is the operator's reason, if one forced it; ``start`` the generation that
    the writer's attempt goes on from.
    """

    kind: Literal["claim"] = "claim"
    writer: Text
    takeover: Text | None = None
    start: Text | None = None


class Commit(Record):
    """A generation exists on this tier from here on.

    ``adopted`` by a repair: its prefix may be of an earlier term than the entry's.
    """

    kind: Literal["commit"] = "commit"
    generation: GenerationText
    parent: str | None
    manifest_key: str
    manifest_size: Count
    manifest_sha256: Sha256
    total_bytes: Count
    objects: Count
    adopted: bool = False


class Retire(Record):
    """A generation no longer counts; its bytes go after a delay.

    ``swept`` names the manifests of generations retired before of which nothing is left.
    ``damaged``: this copy of it is hurt, so that no pin holds it.
    """

    kind: Literal["retire"] = "retire"
    generation: GenerationText
    manifest_key: str
    reason: Text
    swept: Annotated[tuple[str, ...], Field(strict=False)] = ()
    damaged: bool = False


class Pin(Record):
    """A generation must not be retired."""

    kind: Literal["pin"] = "pin"
    generation: GenerationText
    reason: Text


class Unpin(Record):
    """Takes a pin back."""

    kind: Literal["unpin"] = "unpin"
    generation: GenerationText


class Void(Record):
    """Names a damaged slot and the digest of the bytes found there, so that the log can go on.

    One that names its own slot fills a gap: what stood there is lost, and nothing else can come to stand there.
    """

    kind: Literal["void"] = "void"
    slot: Count
    found_sha256: Sha256


Body = Annotated[Claim | Commit | Retire | Pin | Unpin | Void, Field(discriminator="kind")]
