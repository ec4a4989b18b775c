"""The emulator's bad days: each fault and lie does what it says, is recorded, and never outlasts the emulator."""

import http.client
import threading
from collections.abc import Iterator

import pytest
from support.emulated import Reply, connection, put_raw, s3_client, send, settled, signed_headers

from tiers.s3_sdk import ClientError, ResponseParserError, exceptions
from tiers.testing import content
from tiers.testing.s3_emulator import (
    BUCKET,
    Action,
    Fault,
    Fired,
    Lie,
    LieKind,
    S3Emulator,
    Told,
    When,
)

DATA = content(100_000)
TARGET = f"/{BUCKET}/k"


@pytest.fixture(params=[False, True], ids=["http", "https"])
def emulator(request: pytest.FixtureRequest) -> Iterator[S3Emulator]:
    with S3Emulator(tls=request.param) as running:
        running.put("k", DATA)
        yield running


def get(emulator: S3Emulator, target: str = TARGET) -> Reply:
    return send(emulator, "GET", target, signed_headers(emulator, "GET", target, {}))


@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
@pytest.mark.parametrize("action", [Action.DROP, Action.TRUNCATE, Action.STATUS, Action.STALL, Action.DELAY])
def test_faults_before_and_after(emulator: S3Emulator, when: When, action: Action) -> None:
    fault = Fault(operation="PutObject", key="new", when=when, action=action, seconds=0.01, body=b"<Error/>")
    emulator.inject(fault)
    if action in {Action.STATUS, Action.DELAY}:
        reply = put_raw(emulator, "new", DATA)
        assert (reply.status, reply.body) == ((503, b"<Error/>") if action is Action.STATUS else (200, b""))
    else:
        with pytest.raises((http.client.HTTPException, OSError)):
            put_raw(emulator, "new", DATA)
    assert emulator.fired == [Fired(fault=fault, operation="PutObject", key="new")]
    assert ("new" in emulator.objects()) is (when is When.AFTER or action is Action.DELAY)
    assert put_raw(emulator, "new", DATA).status == 200


@pytest.mark.parametrize("action", [Action.DROP, Action.TRUNCATE, Action.STALL, Action.DELAY])
def test_faults_in_a_request(emulator: S3Emulator, action: Action) -> None:
    emulator.inject(Fault(operation="PutObject", when=When.MID_BODY, action=action, seconds=0.01))
    if action is Action.DELAY:
        assert put_raw(emulator, "new", DATA).status == 200
    else:
        with pytest.raises((http.client.HTTPException, OSError)):
            put_raw(emulator, "new", DATA)
        assert "new" not in emulator.objects()
    assert len(emulator.fired) == 1
    cut = settled(emulator, 1)[0]
    assert cut.received == (len(DATA) if action is Action.DELAY else len(DATA) // 2)


@pytest.mark.parametrize("action", [Action.DROP, Action.TRUNCATE])
def test_faults_in_an_answer(emulator: S3Emulator, action: Action) -> None:
    emulator.inject(Fault(operation="GetObject", when=When.MID_BODY, action=action))
    with pytest.raises((http.client.HTTPException, OSError)):
        get(emulator)
    assert settled(emulator, 1)[0].sent == len(DATA) // 2


def test_a_bit_that_flips_in_either_direction(emulator: S3Emulator) -> None:
    emulator.inject(
        Fault(operation="GetObject", when=When.MID_BODY, action=Action.CORRUPT),
        Fault(operation="PutObject", when=When.MID_BODY, action=Action.CORRUPT),
    )
    assert put_raw(emulator, "new", DATA).status == 200
    for got in (get(emulator).body, emulator.objects()["new"]):
        assert [n for n, (a, b) in enumerate(zip(got, DATA, strict=True)) if a != b] == [len(DATA) // 2]


def test_the_nth_request_is_chosen(emulator: S3Emulator) -> None:
    emulator.inject(Fault(operation="Get*", key="k", nth=2, action=Action.STATUS))
    assert [get(emulator).status for _ in range(3)] == [200, 503, 200]


def test_impossible_faults_and_lies() -> None:
    with pytest.raises(ValueError, match="middle of a body"):
        Fault(operation="*", when=When.MID_BODY, action=Action.STATUS)
    with pytest.raises(ValueError, match="before or after"):
        Lie(operation="*", when=When.MID_BODY, kind=LieKind.HTML_PAGE)
    with pytest.raises(ValueError, match="only come after"):
        Lie(operation="*", when=When.BEFORE, kind=LieKind.WRONG_BYTES)
    with pytest.raises(ValueError, match="before the request was done"):
        Lie(operation="*", kind=LieKind.EARLY_REPLY)


# lies


@pytest.mark.parametrize("status", [200, 403, 502])
@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
def test_a_web_page(emulator: S3Emulator, status: int, when: When) -> None:
    lie = Lie(operation="PutObject", kind=LieKind.HTML_PAGE, status=status, when=when)
    emulator.inject(lie)
    reply = put_raw(emulator, "new", DATA)
    assert (reply.status, reply.headers["content-type"]) == (status, "text/html")
    assert reply.body.startswith(b"<!DOCTYPE html>")
    assert emulator.told == [Told(lie=lie, operation="PutObject", key="new")]
    assert ("new" in emulator.objects()) is (when is When.AFTER)


def test_an_error_in_a_success(emulator: S3Emulator) -> None:
    emulator.inject(Lie(operation="ListObjectsV2", kind=LieKind.ERROR_IN_200, code="SlowDown"))
    reply = get(emulator, f"/{BUCKET}?list-type=2")
    assert (reply.status, reply.code) == (200, "SlowDown")


def test_a_redirect_loop(emulator: S3Emulator) -> None:
    emulator.inject(*(Lie(operation="GetObject", kind=LieKind.REDIRECT_LOOP, nth=n) for n in range(1, 6)))
    for _ in range(5):
        reply = get(emulator)
        assert (reply.status, reply.headers["location"]) == (307, emulator.endpoint_url + TARGET)


def test_half_a_document(emulator: S3Emulator) -> None:
    emulator.inject(Lie(operation="ListObjectsV2", kind=LieKind.TRUNCATED_XML))
    with s3_client(emulator) as s3, pytest.raises((exceptions.BotoCoreError, ClientError, ResponseParserError)):
        s3.list_objects_v2(Bucket=BUCKET)
    reply = get(emulator, f"/{BUCKET}?list-type=2")
    assert reply.body.endswith(b"</ListBucketResult>")


def test_compression_that_nobody_asked_for(emulator: S3Emulator) -> None:
    emulator.inject(Lie(operation="GetObject", kind=LieKind.UNASKED_GZIP))
    reply = get(emulator)
    assert (reply.headers["content-encoding"], reply.body[:2]) == ("gzip", b"\x1f\x8b")


def test_wrong_bytes_under_the_right_headers(emulator: S3Emulator) -> None:
    true = get(emulator)
    emulator.inject(Lie(operation="GetObject", kind=LieKind.WRONG_BYTES))
    reply = get(emulator)
    assert (reply.headers["etag"], reply.headers["content-length"]) == (true.headers["etag"], str(len(DATA)))
    assert [n for n, (a, b) in enumerate(zip(reply.body, DATA, strict=True)) if a != b] == [len(DATA) // 2]


def test_a_length_that_is_too_short(emulator: S3Emulator) -> None:
    emulator.inject(Lie(operation="GetObject", kind=LieKind.LENGTH_TOO_SHORT))
    assert get(emulator).body == DATA[: len(DATA) // 2]


def test_a_short_read(emulator: S3Emulator) -> None:
    emulator.inject(Lie(operation="GetObject", kind=LieKind.SHORT_READ))
    with pytest.raises(http.client.IncompleteRead):
        get(emulator)


def test_an_endless_body_ends_with_the_client(emulator: S3Emulator) -> None:
    emulator.inject(Lie(operation="GetObject", kind=LieKind.ENDLESS_BODY, when=When.BEFORE))
    with connection(emulator) as opened:
        opened.request("GET", TARGET, headers=signed_headers(emulator, "GET", TARGET, {}))
        answer = opened.getresponse()
        assert answer.getheader("content-length") is None
        assert len(answer.read(20 << 20)) == 20 << 20
        answer.close()
    assert settled(emulator, 1)[0].sent >= 20 << 20


def test_an_endless_body_ends_with_the_emulator() -> None:
    with S3Emulator() as emulator:
        emulator.inject(Lie(operation="GetObject", kind=LieKind.ENDLESS_BODY))
        with connection(emulator) as opened:
            opened.request("GET", TARGET, headers=signed_headers(emulator, "GET", TARGET, {}))
            answer = opened.getresponse()
            emulator.stop()
            answer.close()


def test_something_that_is_not_http(emulator: S3Emulator) -> None:
    emulator.inject(Lie(operation="PutObject", kind=LieKind.GARBAGE_STATUS_LINE))
    with pytest.raises(http.client.BadStatusLine):
        put_raw(emulator, "new", DATA)
    assert emulator.objects()["new"] == DATA


def test_a_reply_before_the_body(emulator: S3Emulator) -> None:
    emulator.inject(Lie(operation="PutObject", kind=LieKind.EARLY_REPLY, when=When.BEFORE, status=503))
    headers = signed_headers(emulator, "PUT", TARGET, {}) | {"content-length": "1000000"}
    with connection(emulator) as opened:
        opened.putrequest("PUT", TARGET, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            opened.putheader(name, value)
        opened.endheaders()
        answer = opened.getresponse()
        assert (answer.status, answer.will_close) == (503, True)
    assert settled(emulator, 1)[0].received == 0
    assert emulator.objects() == {"k": DATA}


def test_closing_releases_what_is_stalled() -> None:
    """The stall asks for longer than this test may take."""
    failures: list[Exception] = []

    def put(emulator: S3Emulator) -> None:
        try:
            put_raw(emulator, "k", DATA)
        except (http.client.HTTPException, OSError) as error:
            failures.append(error)

    with S3Emulator() as emulator:
        emulator.inject(Fault(operation="PutObject", action=Action.STALL))
        thread = threading.Thread(target=put, args=(emulator,))
        thread.start()
        while not emulator.fired:
            thread.join(0.01)
    thread.join(5)
    assert not thread.is_alive()
    assert len(failures) == 1
    assert emulator.objects() == {}


def test_what_is_recorded(emulator: S3Emulator) -> None:
    put_raw(emulator, "new", DATA)
    get(emulator)
    put, got = emulator.requests
    assert (put.operation, put.key, put.status, put.received, put.sent) == ("PutObject", "new", 200, len(DATA), 0)
    assert (got.operation, got.status, got.received, got.sent) == ("GetObject", 200, 0, len(DATA))
    assert "authorization" not in put.headers
    emulator.forget_requests()
    assert (emulator.requests, emulator.fired, emulator.told) == ([], [], [])


def test_rot(emulator: S3Emulator) -> None:
    etag = get(emulator).headers["etag"]
    emulator.corrupt("k", at=3)
    reply = get(emulator)
    assert (reply.headers["etag"], reply.body[3] ^ DATA[3]) == (etag, 1)
    with pytest.raises(KeyError):
        emulator.corrupt("absent")


def test_an_emulator_that_was_never_started_can_be_stopped() -> None:
    emulator = S3Emulator(tls=True)
    bundle = emulator.ca_bundle
    assert bundle is not None
    assert bundle.exists()
    emulator.stop()
    assert not bundle.exists()
