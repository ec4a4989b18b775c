"""The link: no more than its rate leaves, in order, and a real one passes on what it is given."""

import socket
import threading
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from benchmarks.sidebyside.servers import ShapedLink
from benchmarks.sidebyside.shaping import Bucket
from tiers.clock import SystemClock

RATE, DELAY, BURST = 1000.0, 0.02, 100
ARRIVALS = some.lists(some.tuples(some.floats(0, 2), some.integers(1, 400)), min_size=1, max_size=40)
PIECE = 1 << 18


@given(ARRIVALS)
def test_never_more_than_rate_and_burst(arrivals: list[tuple[float, int]]) -> None:
    bucket = Bucket(rate=RATE, delay=DELAY, burst=BURST)
    now, sent = 0.0, []
    for pause, size in arrivals:
        now += pause
        sent.append((now, bucket.admit(now, size), size))
    assert all(due >= came + DELAY for came, due, _ in sent)
    assert all(one[1] <= other[1] for one, other in pairwise(sent))
    for first in range(len(sent)):
        for last in range(first, len(sent)):
            # From the first piece's arrival to the last one's end the bucket gave no more than this.
            span = sent[last][1] - DELAY - sent[first][0]
            assert sum(size for _, _, size in sent[first : last + 1]) <= BURST + RATE * span + 1e-6


def test_a_busy_link_is_used_in_full() -> None:
    bucket = Bucket(rate=RATE, delay=DELAY, burst=BURST)
    ends = [bucket.admit(0.0, 50) for _ in range(100)]
    assert ends[-1] == pytest.approx((5000 - BURST) / RATE + DELAY)
    assert bucket.backlog(0.0) == pytest.approx((5000 - BURST) / RATE)
    assert bucket.backlog(10.0) == 0.0


def test_a_link_without_a_rate_only_delays() -> None:
    bucket = Bucket(rate=0.0, delay=DELAY)
    assert [bucket.admit(1.0, 10**9), bucket.admit(1.0, 1)] == [1.02, 1.02]


def test_a_real_link_passes_all_bytes_and_takes_its_time() -> None:
    """Both ways at once; a machine that is slow only makes it slower."""
    sent, clock = bytes(range(256)) * (PIECE // 256), SystemClock()
    listener = socket.create_server(("127.0.0.1", 0))

    def echo() -> None:
        sock, _ = listener.accept()
        with sock, sock.makefile("rb") as stream:
            sock.sendall(stream.read(PIECE))

    thread = threading.Thread(target=echo)
    thread.start()
    rate, round_trip = 4.0 * PIECE, 0.02
    with listener, ShapedLink(listener.getsockname()[1], rate=rate, round_trip=round_trip) as link:
        began = clock.monotonic()
        with socket.create_connection(("127.0.0.1", link.port), timeout=20) as sock, sock.makefile("rb") as stream:
            sock.sendall(sent)
            assert stream.read(PIECE) == sent
        elapsed = clock.monotonic() - began
        thread.join(20)
        passed = link.ask("counters")
    # A connection, there, back: and both ways all but the burst has to wait for its turn.
    assert elapsed >= 2 * round_trip + 2 * (PIECE - 64 * 1024) / rate
    assert (passed["up"], passed["down"], passed["connections"]) == (PIECE, PIECE, 1)
