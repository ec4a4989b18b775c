"""Proof that an object holds the sealed bytes, by the strongest means of its tier."""

from replicate.digests import BLOCK
from replicate.origins import fill
from replicate.plan import ObjectPlan
from replicate.upload.shared import Shared
from tiers.errors import IntegrityError
from tiers.medium import reading_the_medium
from tiers.protocol import ObjectInfo, Part, Verification
from tiers.reliance import relying


def attested(shared: Shared, item: ObjectPlan, info: ObjectInfo) -> Verification | None:
    """Say how the store proves the object, None where it has to be read back; IntegrityError where it is wrong."""
    if info.size != item.file.size:
        raise wrong(shared, item, f"the object has {info.size} bytes, the file {item.file.size}")
    if not shared.attests:
        return None
    if info.sha256 is None:
        info = shared.tier.stat(item.key)
    if info.sha256 is None:
        return None
    if info.sha256 != item.stored_sha256:
        raise wrong(shared, item, "the store's SHA-256 is not the sealed one")
    return Verification.STORE_SHA256


def read_back(shared: Shared, item: ObjectPlan) -> Verification:
    """Compare what the tier hands out with the sealed file, block by block; IntegrityError where it differs."""
    with relying(), reading_the_medium() as reading:
        _compare(shared, item)
    return reading.proof


def _compare(shared: Shared, item: ObjectPlan) -> None:
    buffer = memoryview(bytearray(min(BLOCK, max(1, item.file.size))))
    with shared.origin.comparing(item.file) as sealed, shared.tier.open(item.key) as remote:
        left = item.file.size
        while left:
            shared.check_stop()
            block = buffer[:left]
            try:
                fill(remote, block)
            except OSError as error:
                raise wrong(shared, item, "the object is too short") from error
            if sealed.differs(block):
                raise wrong(shared, item, f"the tier hands out other bytes near {item.file.size - left}")
            left -= len(block)
        if remote.read(1):
            raise wrong(shared, item, "the object is too long")


def counts(part: Part, item: ObjectPlan, journalled: dict[int, Part]) -> bool:
    """Whether a part that the store lists is one of ours: by its sealed digest, or by the ETag that was journalled."""
    if not 1 <= part.number <= len(item.parts):
        return False
    wanted = item.parts[part.number - 1]
    if part.size != wanted.size:
        return False
    if part.sha256 is not None:
        return part.sha256 == wanted.sha256
    known = journalled.get(part.number)
    return known is not None and known.etag == part.etag


def wrong(shared: Shared, item: ObjectPlan, message: str) -> IntegrityError:
    """Return the error for an object that is not what was sealed."""
    return IntegrityError(message, tier=shared.tier.name, operation="verify", key=item.key)
