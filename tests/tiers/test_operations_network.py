"""Proxies, certificates, transport that is not encrypted, and what one request is on the wire."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from daemon.stage import Machine, publish
from support.connect_proxy import connect_proxy
from support.emulated import resolve_localhost, settled

from replicate.checking import Grade, check_transport
from replicate.config import TierConfig
from replicate.errors import ConfigInvalid
from replicate.opening import default_opener, open_configured
from replicate.session import Session
from tiers.bodies import BytesBody
from tiers.clock import SystemClock
from tiers.errors import AccessDenied, TierError, TierUnavailable
from tiers.memory import MemoryTier
from tiers.metered import Meter
from tiers.opening import TierSpec, unencrypted_host
from tiers.protocol import Key, Tier
from tiers.s3 import open_s3
from tiers.testing import ManualClock, content, read_all
from tiers.testing.s3_emulator import BUCKET, DEFAULT_CREDENTIALS, Action, Fault, S3Emulator, When

MIB = 1 << 20


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", DEFAULT_CREDENTIALS.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", DEFAULT_CREDENTIALS.secret_key)


@pytest.fixture(scope="module")
def tls() -> Iterator[S3Emulator]:
    with S3Emulator(tls=True) as emulator:
        yield emulator


@contextmanager
def opened(endpoint_url: str, **fields: object) -> Iterator[Tier]:
    settings = {"profile": "aws", "region": "us-east-1", **fields}
    spec = TierSpec(name="store", url=f"s3://{BUCKET}/p", endpoint_url=endpoint_url, **settings)  # type: ignore[arg-type]
    with closing(open_s3(spec)) as tier:
        yield tier


class TestProxy:
    @pytest.mark.parametrize("login", [None, "worker:pass-word"])
    def test_https_goes_through_it(self, tls: S3Emulator, monkeypatch: pytest.MonkeyPatch, login: str | None) -> None:
        """Bodies both ways, inside a tunnel; the proxy sees a host and a port."""
        with connect_proxy(login) as proxy:
            monkeypatch.setenv("HTTPS_PROXY", proxy.url)
            with opened(tls.endpoint_url, ca_bundle=str(tls.ca_bundle)) as tier:
                tier.put(Key("a"), BytesBody(content(MIB)))
                assert read_all(tier.open(Key("a"))) == content(MIB)
            assert set(proxy.tunnels) == {f"127.0.0.1:{tls.port}"}

    def test_no_proxy_is_honoured(self, tls: S3Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
        with connect_proxy() as proxy:
            monkeypatch.setenv("HTTPS_PROXY", proxy.url)
            monkeypatch.setenv("NO_PROXY", "127.0.0.1,.example")
            with opened(tls.endpoint_url, ca_bundle=str(tls.ca_bundle)) as tier:
                assert tier.put(Key("b"), BytesBody(b"x")).size == 1
            assert proxy.tunnels == []

    def test_one_that_wants_a_password(self, tls: S3Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
        with connect_proxy("worker:pass-word") as proxy:
            monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("pass-word", "canary"))
            with opened(tls.endpoint_url, ca_bundle=str(tls.ca_bundle)) as tier, pytest.raises(TierError) as caught:
                tier.stat(Key("a"))
            assert proxy.refused
            assert "HTTPS_PROXY" in caught.value.hint
            assert "canary" not in f"{caught.value} {caught.value.hint}"

    def test_one_that_is_not_there(self, tls: S3Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
        with connect_proxy() as proxy:
            url = proxy.url
        monkeypatch.setenv("HTTPS_PROXY", url)
        with opened(tls.endpoint_url, ca_bundle=str(tls.ca_bundle)) as tier, pytest.raises(TierUnavailable) as caught:
            tier.stat(Key("a"))
        assert "HTTPS_PROXY" in caught.value.hint

    def test_a_stall_behind_it_is_ended(self, tls: S3Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
        with connect_proxy() as proxy:
            monkeypatch.setenv("HTTPS_PROXY", proxy.url)
            tls.inject(Fault(operation="PutObject", key="p/stalled", action=Action.STALL, when=When.AFTER))
            with opened(tls.endpoint_url, ca_bundle=str(tls.ca_bundle), timeout_seconds=0.4) as tier:
                with pytest.raises(TierUnavailable, match="while the store owed its answer"):
                    tier.put(Key("stalled"), BytesBody(b"x"))
                assert tls.fired


class TestCertificates:
    def test_a_bundle_in_the_config_and_one_in_the_environment(
        self, tls: S3Emulator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with opened(tls.endpoint_url, ca_bundle=str(tls.ca_bundle)) as tier:
            tier.put(Key("c"), BytesBody(b"x"))
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tls.ca_bundle))
        with opened(tls.endpoint_url) as tier:
            assert tier.stat(Key("c")).size == 1

    def test_a_store_that_nobody_vouches_for_is_denied_with_the_remedy(self, tls: S3Emulator) -> None:
        with opened(tls.endpoint_url) as tier, pytest.raises(AccessDenied) as caught:
            tier.stat(Key("c"))
        assert "set ca_bundle of this tier (or AWS_CA_BUNDLE)" in caught.value.hint

    def test_the_wrong_authority(self, tls: S3Emulator) -> None:
        with (
            S3Emulator(tls=True) as other,
            opened(tls.endpoint_url, ca_bundle=str(other.ca_bundle)) as tier,
            pytest.raises(AccessDenied, match="SSLError") as caught,
        ):
            tier.stat(Key("c"))
        assert "ca_bundle" in caught.value.hint

    @pytest.mark.parametrize(("text", "words"), [(None, "does not exist"), ("nonsense", "no certificates in PEM")])
    def test_a_file_that_is_none(self, tmp_path: Path, text: str | None, words: str) -> None:
        path = tmp_path / "ca.pem"
        if text is not None:
            path.write_text(text)
        settings = TierConfig(name="r2", url="s3://bucket/p", endpoint_url="https://127.0.0.1:1", ca_bundle=str(path))
        with pytest.raises(ConfigInvalid, match=f"ca_bundle names .*{words}") as caught:
            open_configured(settings, default_opener, ManualClock(), Meter(), threading.Event())
        assert caught.value.message.startswith("tier r2: ")

    def test_a_file_of_the_environment_that_is_none(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "absent"))
        with pytest.raises(ValueError, match=r"AWS_CA_BUNDLE names .* does not exist"), opened("https://127.0.0.1:1"):
            pass


class TestPlainTransport:
    @pytest.mark.parametrize(
        ("url", "endpoint_url", "host"),
        [
            ("s3://bucket/p", "http://nas.example:9000", "nas.example"),
            ("webdav+http://dav.example/p", None, "dav.example"),
            ("fsspec+s3://bucket/p", "http://nas.example", "nas.example"),
            ("s3://bucket/p", "http://127.0.0.1:9000", None),
            ("s3://bucket/p", "http://minio.localhost", None),
            ("s3://bucket/p", "https://nas.example", None),
            ("s3://bucket/p", None, None),
            ("webdav+https://dav.example/p", None, None),
            ("file:///mnt/v", None, None),
        ],
    )
    def test_where_it_is_shown(self, url: str, endpoint_url: str | None, host: str | None) -> None:
        assert unencrypted_host(url, endpoint_url) == host
        found = check_transport(TierConfig(name="t", url=url, endpoint_url=endpoint_url, allow_insecure=True))
        assert [(one.grade, f"what goes to {host} and" in one.detail) for one in found] == (
            [(Grade.WARNING, True)] if host else []
        )

    def test_an_endpoint_from_the_environment_is_shown_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://nas.example")
        assert unencrypted_host("s3://bucket", None) == "nas.example"
        assert unencrypted_host("file:///mnt", None) is None

    def test_a_replicating_process_says_it_too(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """In its log and in status.json, for as long as it is so."""
        machine = Machine(tmp_path / "machine")
        tier = {"name": "nas", "url": "s3://bucket/p", "endpoint_url": "http://nas.example", "allow_insecure": True}
        machine.configure(tier)
        publish(machine.root, 1)

        def in_memory(spec: TierSpec, *_: object) -> Tier:
            return MemoryTier(spec.name)

        stop = threading.Event()
        with Session(machine.config, clock=SystemClock(), stop=stop, opener=in_memory) as session:
            assert session.run_tier("nas", session.prepare()).failure is None
        shown = machine.tier("nas")
        assert shown is not None
        assert any("nas.example and comes from there is not encrypted" in note for note in shown.notes)
        assert "nas.example and comes from there is not encrypted" in caplog.text


STATUSES = (400, 401, 403, 404, 405, 408, 409, 412, 413, 416, 418, 429, 500, 501, 502, 503, 504, 507, 520)
VERBS: dict[str, tuple[str, Callable[[Tier], object]]] = {
    "put": ("PutObject", lambda tier: tier.put(Key("a"), BytesBody(b"x"))),
    "create": ("PutObject", lambda tier: tier.create(Key("a"), b"x")),
    "open": ("GetObject", lambda tier: tier.open(Key("a"))),
    "list_objects": ("ListObjectsV2", lambda tier: tier.list_objects("")),
    "delete": ("DeleteObject", lambda tier: tier.delete(Key("a"))),
    "begin_upload": ("CreateMultipartUpload", lambda tier: tier.begin_upload(Key("a"), size=1, part_size=5 * MIB)),
}


@pytest.fixture(scope="module")
def plain() -> Iterator[S3Emulator]:
    with S3Emulator() as emulator:
        yield emulator


@pytest.mark.parametrize("verb", VERBS)
def test_the_sdk_makes_one_attempt_whatever_happens(plain: S3Emulator, verb: str) -> None:
    """Retrying is counted, waited for and bounded in one place, which is not the SDK."""
    operation, act = VERBS[verb]
    failures = [
        *(Fault(operation=operation, action=Action.STATUS, status=status) for status in STATUSES),
        *(Fault(operation=operation, action=action) for action in (Action.DROP, Action.TRUNCATE)),
        Fault(operation=operation, action=Action.STATUS, status=307, headers={"Location": plain.endpoint_url}),
        Fault(operation=operation, action=Action.STATUS, status=301, headers={"x-amz-bucket-region": "eu-west-1"}),
    ]
    with opened(plain.endpoint_url) as tier:
        for fault in failures:
            plain.forget_requests()
            plain.inject(fault)
            with pytest.raises(TierError):
                act(tier)
            assert [request.operation for request in settled(plain, 1)] == [operation], fault
            assert len(plain.fired) == 1, fault


def test_a_name_that_leads_to_this_machine_is_no_other(monkeypatch: pytest.MonkeyPatch, plain: S3Emulator) -> None:
    resolve_localhost(monkeypatch)
    endpoint_url = f"http://store.localhost:{plain.port}"
    assert unencrypted_host("s3://bucket", endpoint_url) is None
    with opened(endpoint_url) as tier:
        assert tier.put(Key("here"), BytesBody(b"x")).size == 1
