"""A probe for people: what was tried, what came of it, and what that means.  At most 80 columns."""

import textwrap
from collections.abc import Iterator, Mapping

from tiers.probing.outcomes import ProbeReport, Subject, Verdict
from tiers.protocol import Fencing, Verification

WIDTH = 80
_LEFT = 32

_TITLES: Mapping[Subject, str] = {
    Subject.ROUND_TRIP: "bytes come back",
    Subject.RANGES: "reads ranges",
    Subject.SHA256_TAKEN: "takes a SHA-256",
    Subject.SHA256_PUT: "refuses a wrong SHA-256",
    Subject.SHA256_PART: "refuses it on a part too",
    Subject.SHA256_ECHO: "returns the SHA-256",
    Subject.SHA256_COPY: "proves copies of parts",
    Subject.SHA256_COPY_OBJECT: "proves copies of objects",
    Subject.WRONG_BYTES: "refuses wrong bytes",
    Subject.CONTENT_MD5: "refuses a wrong MD5",
    Subject.PAYLOAD_HASH: "checks the signed hash",
    Subject.MD5_ETAG: "ETag is the MD5",
    Subject.MULTIPART_ETAG: "ETag of parts is S3's",
    Subject.PUT_IF_ABSENT: "creates a key once",
    Subject.ONE_WINNER: "one of many writers wins",
    Subject.LIST_PAGES: "lists page by page",
    Subject.LIST_ORDER: "lists in order",
    Subject.RESUME: "keeps parts to resume",
    Subject.ABORT: "uploads can be aborted",
    Subject.DELETE: "deletes",
    Subject.CLOCK: "clocks agree",
    Subject.LIFECYCLE: "ends unfinished uploads",
    Subject.VERSIONING: "keeps old versions",
}
_ORDER = tuple(Subject)
_MARKS: Mapping[Verdict, str] = {Verdict.YES: "yes", Verdict.NO: "no ", Verdict.UNKNOWN: "?  "}
_WRITERS: Mapping[Fencing, str] = {
    Fencing.CAS: "of two machines that commit at once, the store lets one win and tells the other",
    Fencing.POSIX: "of two machines that commit at once, the file system lets one win and tells the other",
    Fencing.GIT: "of two machines that commit at once, the repository lets one win and tells the other",
    Fencing.ADVISORY: "a second machine could replace what the first committed, and neither would know: "
    "only one may ever write here, and `replicate` wants accept_advisory = true",
}
_PROOF: Mapping[Verification, str] = {
    Verification.STORE_SHA256: "the store itself refuses bytes that differ from those that were sealed",
    Verification.CRC64NVME: "the store computes a CRC of each object, which is compared",
    Verification.MD5_ETAG: "the store's MD5 of each object is compared with that of the bytes that were sent",
    Verification.READ_BACK: "the store's word proves nothing: each object is read back and compared, "
    "which takes as much traffic again",
}


def probe_table(report: ProbeReport) -> Iterator[str]:
    """Yield the lines of one tier."""
    yield ""
    about = f" (profile {report.profile})" if report.profile else ""
    yield from textwrap.wrap(f"{report.tier}: {report.store}{about}", WIDTH, subsequent_indent="  ")
    for one in sorted(report.outcomes, key=lambda outcome: _ORDER.index(outcome.subject)):
        left = f"  {_MARKS[one.verdict]}  {_TITLES[one.subject]}"
        yield from _row(left, one.evidence)
    yield from (line for note in report.notes for line in _row("  note", note))
    yield from _row(f"  writers: {report.fencing}", _WRITERS[report.fencing])
    yield from _row(f"  proof: {report.verification}", _PROOF[report.verification])


def _row(left: str, text: str) -> Iterator[str]:
    first, *rest = textwrap.wrap(text, WIDTH - _LEFT - 1, break_long_words=True) or [""]
    yield f"{left:<{_LEFT}} {first}"
    yield from (f"{'':<{_LEFT}} {line}" for line in rest)
