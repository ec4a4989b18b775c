"""What a probe has found, as far as it changes how a tier is used."""

from dataclasses import dataclass

from tiers.protocol import Fencing, Verification


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFacts:
    """Findings that override a profile; None where the probe could not tell.

    ``fencing``: how writers are kept apart.  ``verification``: the strongest proof of an
    object that the store gave.  ``checks_sha256``: a wrong ``x-amz-checksum-sha256`` is
    refused and a right one is returned, by PUT, HEAD, parts and Complete alike.
    ``checks_payload_hash``: a body that is not the one that was signed is refused.
    ``copy_part``: a part can be copied inside the store, and its SHA-256 is returned.
    ``copy``: so can an object, and the SHA-256 is the store's own finding, not carried over.
    ``sorted_listing``: listings come in ascending order of bytes.
    """

    fencing: Fencing | None = None
    verification: Verification | None = None
    checks_sha256: bool | None = None
    checks_payload_hash: bool | None = None
    copy_part: bool | None = None
    copy: bool | None = None
    sorted_listing: bool | None = None
