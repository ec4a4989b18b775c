"""Secrets in the environment appear nowhere: not on a terminal, not in a log, not in a file, not on a tier."""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cli.driver import Project, volume

from replicate.errors import ExitCode

CANARIES = {
    "AWS_ACCESS_KEY_ID": "CANARYKEYID00000001",
    "AWS_SECRET_ACCESS_KEY": "canary/secret/0000000000000000000000002",
    "AWS_SESSION_TOKEN": "canary-token-0000000000000000000000000003",
}
COMMANDS = (
    ("check",),
    ("status", "--remote"),
    ("list",),
    ("explain",),
    ("verify",),
    ("safe-to-terminate",),
    ("replicate", "--dry-run"),
    ("replicate", "--once", "-v"),
    ("restore", "-v"),
)


class _Parrot(BaseHTTPRequestHandler):
    """Refuses everything, and quotes what was sent, as some servers do."""

    def refuse(self) -> None:
        said = "".join(f"{name}: {value}\n" for name, value in self.headers.items())
        length = int(self.headers.get("content-length", 0))
        self.rfile.read(length)
        body = f"<Error><Code>SignatureDoesNotMatch</Code><Message>{said}</Message></Error>".encode()
        self.send_response(403)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("x-amz-request-id", "0001")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Keep quiet."""


for _verb in ("GET", "HEAD", "PUT", "POST", "DELETE"):
    setattr(_Parrot, f"do_{_verb}", _Parrot.refuse)


@pytest.fixture
def parrot() -> Iterator[str]:
    """Return the URL of a server that quotes the credentials in its errors."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Parrot) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def watched(tmp_path: Path, parrot: str, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return a project with canaries for credentials, one good tier and one that quotes them."""
    for name, value in CANARIES.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "volume").mkdir()
    tiers = {"good": volume(tmp_path / "volume"), "bad": "s3://bucket/x"}
    project = Project(folder=tmp_path / "p", tiers=tiers).write()
    text = project.config.read_text()
    project.config.write_text(f'{text}endpoint_url = "{parrot}"\nprofile = "seaweedfs"\n')
    project.publish(100)
    return project


def assert_no_canary(*texts: str) -> None:
    for name, value in CANARIES.items():
        assert not any(value in text for text in texts), name


def assert_no_canary_below(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.name == "status.json" for path in files)
    assert any(path.name.startswith("tracker.sqlite") for path in files)
    for path in files:
        assert_no_canary(str(path), path.read_bytes().decode("latin-1"))


def test_no_command_shows_or_stores_a_secret(
    watched: Project, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    seen = set()
    for command in COMMANDS:
        for done in (watched(*command), watched(*command, "--json")):
            assert_no_canary(done.out, done.err)
            seen.add(done.code)
    assert {ExitCode.DENIED, ExitCode.PARTIAL} <= seen, "the parrot was asked and refused"
    assert_no_canary(caplog.text)
    assert_no_canary_below(tmp_path)


def test_a_process_of_its_own_shows_no_secret_either(watched: Project, tmp_path: Path) -> None:
    """Without the test's own log handlers: what reaches a terminal or a service's journal."""
    command = [
        sys.executable,
        "-m",
        "ckptier_command",
        "replicate",
        "--once",
        "--json",
        "-v",
        "-c",
        str(watched.config),
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=dict(os.environ))
    assert done.returncode == ExitCode.PARTIAL, done.stderr
    assert "SignatureDoesNotMatch" in done.stdout
    assert "Found credentials" not in done.stderr
    assert_no_canary(done.stdout, done.stderr)
    assert_no_canary_below(tmp_path)
