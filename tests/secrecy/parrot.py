"""A server that refuses everything, and quotes what was sent to it, as some servers do."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FORBIDDEN = 403


@dataclass
class Parrot:
    """Where it listens, what it answers with, and how often it was asked."""

    url: str
    status: int = FORBIDDEN
    said: list[str] = field(default_factory=list)


@contextmanager
def parrot() -> Iterator[Parrot]:
    """Run one; its words hold every header that it got, credentials included."""

    class Handler(BaseHTTPRequestHandler):
        def refuse(self) -> None:
            said = "".join(f"{name}: {value}\n" for name, value in self.headers.items()) + self.path
            self.rfile.read(int(self.headers.get("content-length", 0)))
            running.said.append(said)
            code = "SignatureDoesNotMatch" if running.status == FORBIDDEN else "InternalError"
            body = f"<Error><Code>{code}</Code><Message>{said}</Message></Error>".encode()
            self.send_response(running.status)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("x-amz-request-id", "0001")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Keep quiet."""

    for verb in ("GET", "HEAD", "PUT", "POST", "DELETE"):
        setattr(Handler, f"do_{verb}", Handler.refuse)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        running = Parrot(url=f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield running
        finally:
            server.shutdown()
            thread.join()
