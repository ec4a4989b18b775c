"""What is answered, and refusals as exceptions."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tiers.testing.s3_emulator.documents import Node, document

XML = "application/xml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An HTTP answer; ``length`` is the Content-Length of a HEAD, whose body is not sent."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | memoryview = b""
    length: int | None = None


def xml_answer(body: bytes, headers: Mapping[str, str] | None = None) -> Answer:
    """Return a 200 with a document."""
    return Answer(headers={"Content-Type": XML, **(headers or {})}, body=body)


class Refusal(Exception):
    """A request that is answered with an error; raised before anything was changed.

    ``details`` are further elements of the error document.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        details: tuple[Node, ...] = (),
    ) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.message = message or code
        self.headers = dict(headers or {})
        self.details = details

    def answer(self, resource: str) -> Answer:
        """Return the error as an answer about ``resource``, a path."""
        return Answer(status=self.status, headers={"Content-Type": XML, **self.headers}, body=self.document(resource))

    def document(self, resource: str) -> bytes:
        """Return the error document."""
        return document(
            "Error", ("Code", self.code), ("Message", self.message), *self.details, ("Resource", resource), namespace=""
        )


def not_implemented(what: str) -> Refusal:
    """Return what a store says to a header or an operation that it does not know."""
    return Refusal(501, "NotImplemented", f"A header or query you provided is not implemented: {what}")
