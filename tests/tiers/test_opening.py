"""From URL to tier: which backend, in which wrappers, and what is refused with which hint."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tiers.bodies import BytesBody
from tiers.errors import TierUnavailable
from tiers.metered import Meter
from tiers.opening import BadTierUrl, TierSpec, open_tier
from tiers.protocol import Key, Tier
from tiers.retrying import RetryPolicy
from tiers.testing import (
    Fault,
    FaultyTier,
    ManualClock,
    PassThroughTier,
    TierConformance,
    TierFactory,
    When,
    read_all,
)


def open_url(url: str, **fields: str) -> Tier:
    return open_tier(TierSpec(name="t", url=url, **fields), clock=ManualClock())  # type: ignore[arg-type]


class TestWholeStack(TierConformance):
    """The tier that callers get is a tier."""

    @pytest.fixture
    def tier_factory(self, tmp_path: Path) -> TierFactory:
        return lambda: open_url(tmp_path.as_uri())


def test_file(tmp_path: Path) -> None:
    open_url(tmp_path.as_uri()).put(Key("a"), BytesBody(b"x"))
    assert (tmp_path / "a").read_bytes() == b"x"


def test_file_with_percent(tmp_path: Path) -> None:
    folder = tmp_path / "with space %41"
    folder.mkdir()
    open_url(f"file://{tmp_path}/with%20space%20%2541").put(Key("a"), BytesBody(b"x"))
    assert (folder / "a").read_bytes() == b"x"


@pytest.mark.parametrize(
    "url",
    ["file://relative/path", "file:relative", "file:", "file://", "file:///a?b", "file:///a#b", "file:///a%00b"],
)
def test_file_that_is_not_absolute(url: str) -> None:
    with pytest.raises(BadTierUrl) as caught:
        open_url(url)
    assert "file:///" in caught.value.hint


def test_missing_root_is_found_on_use(tmp_path: Path) -> None:
    """Opening asks nothing, so that a volume may be mounted later."""
    tier = open_tier(TierSpec(name="t", url=f"{tmp_path.as_uri()}/absent"), clock=ManualClock())
    with pytest.raises(TierUnavailable):
        tier.stat(Key("a"))


def test_memory_is_shared_by_name() -> None:
    open_url("memory://test-opening").put(Key("a"), BytesBody(b"x"))
    assert read_all(open_url("memory://test-opening").open(Key("a"))) == b"x"
    assert open_url("memory://test-opening-2").list_objects("").objects == ()
    assert open_url("memory://test-opening").name == "t"


def test_memory_without_name() -> None:
    with pytest.raises(BadTierUrl):
        open_url("memory://")


@pytest.mark.parametrize("url", ["ftp://host/path", "/plain/path", "", "S4://x"])
def test_unknown_scheme(url: str) -> None:
    with pytest.raises(BadTierUrl) as caught:
        open_url(url)
    for scheme in ("file://", "memory://", "s3://"):
        assert scheme in caught.value.hint


@pytest.mark.parametrize(
    ("url", "fields"),
    [
        ("s3://user:hunter2@bucket/prefix", {}),
        ("s3://hunter2@bucket", {}),
        ("ftp://user:hunter2@host", {}),
        ("file://user:hunter2@host/path", {}),
        ("s3://bucket", {"endpoint_url": "https://user:hunter2@host"}),
        ("s3://[hunter2", {}),
    ],
)
def test_secret_in_the_url(url: str, fields: dict[str, str]) -> None:
    """It is refused before anything can echo it."""
    with pytest.raises(BadTierUrl) as caught:
        open_url(url, **fields)
    assert "hunter2" not in f"{caught.value!r} {caught.value.hint} {caught.value.__cause__!r}"


@pytest.mark.parametrize(
    ("url", "key", "value"),
    [
        ("file:///mnt/v", "timeout_seconds", 30.0),
        ("file:///mnt/v", "deadline_seconds", 30.0),
        ("file:///mnt/v", "ca_bundle", "/etc/ca.pem"),
        ("file:///mnt/v", "storage_class", "STANDARD"),
        ("memory://m", "mode", "direct"),
        ("memory://m", "encryption", "sse-s3"),
        ("memory://m", "data_path", "sdk"),
        ("s3://bucket/p", "mode", "direct"),
    ],
)
def test_a_key_that_would_be_ignored_is_refused(url: str, key: str, value: object) -> None:
    """Whoever sets a timeout for a volume must not believe to have one."""
    with pytest.raises(BadTierUrl, match=f"tier t: {key} means nothing to ") as caught:
        open_url(url, **{key: value})  # type: ignore[arg-type]
    assert caught.value.hint


def test_bandwidth_and_connections_reach_the_pacing() -> None:
    """Each attempt of the retry pays for its bytes; a store that asks to slow down is met below the retry."""
    clock = ManualClock()
    faults: list[FaultyTier] = []

    def busy(tier: str, verb: str, key: str) -> Exception:
        return TierUnavailable("slow down", tier=tier, operation=verb, key=key, throttled=True)

    def below(tier: Tier) -> Tier:
        faults.append(FaultyTier(tier, [Fault(verb="put", when=When.AFTER, error=busy)]))
        return faults[0]

    spec = TierSpec(
        name="t", url="memory://test-pacing", bandwidth=1_000_000, connections=8, retry=RetryPolicy(base=0.0)
    )
    tier = open_tier(spec, clock=clock, below=below)
    tier.put(Key("a"), BytesBody(bytes(1_000_000)))
    faults[0].assert_all_fired()
    assert clock.monotonic() == pytest.approx(2.0, abs=0.06)


def in_a_new_process(script: str) -> str:
    """Return what a script prints that starts with nothing imported."""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()


def test_missing_extra_names_the_line_to_type() -> None:
    script = (
        "import sys; sys.modules['boto3'] = sys.modules['botocore'] = None\n"
        "from tiers.clock import SystemClock; from tiers.errors import Unsupported\n"
        "from tiers.opening import TierSpec, open_tier\n"
        "try: open_tier(TierSpec(name='t', url='s3://bucket/prefix'), clock=SystemClock())\n"
        "except Unsupported as error: print(error.hint)\n"
    )
    assert in_a_new_process(script) == "pip install 'ckptier[s3]'"


def test_backends_are_imported_only_where_used() -> None:
    """Opening a volume must not cost the import of an SDK."""
    script = (
        "import sys; from tiers.clock import SystemClock; from tiers.opening import TierSpec, open_tier; "
        "open_tier(TierSpec(name='t', url='file:///tmp'), clock=SystemClock()); "
        "print([n for n in sys.modules if n.startswith(('boto', 'tiers.s3', 'tiers.memory', 'pytest'))])"
    )
    assert in_a_new_process(script) == "[]"


def test_stack() -> None:
    """The hooks sit below the meter and above the retry; stop and policy reach the retry."""
    meter, stop, clock = Meter(), threading.Event(), ManualClock()
    faults: list[FaultyTier] = []

    def below(tier: Tier) -> Tier:
        faults.append(FaultyTier(tier, [Fault(verb="stat", times=2), Fault(verb="delete", times=9)]))
        return faults[0]

    spec = TierSpec(name="t", url="memory://test-stack", retry=RetryPolicy(attempts=3, base=0.0))
    tier = open_tier(spec, clock=clock, meter=meter, stop=stop, below=below, above=PassThroughTier)
    assert isinstance(tier, PassThroughTier)
    tier.put(Key("a"), BytesBody(b"x"))
    tier.stat(Key("a"))
    assert meter.snapshot().count("stat", "TierUnavailable") == 2
    stop.set()
    with pytest.raises(TierUnavailable):
        tier.delete(Key("a"))
    assert meter.snapshot().count("delete") == 1
    assert len(faults[0].fired) == 3
