"""Fixtures that several folders share: throw-away credentials, real servers, the fault proxy."""

import itertools
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
from support.canaries import words_shown
from support.moto_server import MotoServer
from support.proxy import FaultProxy
from support.rclone_server import RcloneServer
from support.seaweed import ACCESS_KEY, BUCKET, SECRET_KEY, SeaweedServer, require_weed

if TYPE_CHECKING:
    from support.s3_tiers import RawS3

    from tiers.s3 import S3Tier

pytest_plugins = ["support.figures"]

hypothesis.settings.register_profile("dev", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("nightly", deadline=None, max_examples=2_000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "dev"))

_prefixes = itertools.count(1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail every test, of whatever, in which a secret of the suite was printed or logged (I20)."""
    report = yield
    found = words_shown("".join(text for _, text in report.sections))
    if found and report.passed and not item.name.startswith("test_a_planted_leak"):
        report.outcome = "failed"
        report.longrepr = f"printed or logged by {item.nodeid}: {', '.join(found)}"
    return report


@pytest.fixture(scope="session", autouse=True)
def throw_away_credentials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep every test away from the credentials and settings of whoever runs it."""
    nowhere = tmp_path_factory.mktemp("aws") / "absent"
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        patch.setenv("AWS_CONFIG_FILE", str(nowhere))
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(nowhere))
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedServer]:
    """One SeaweedFS for the session, with the bucket BUCKET."""
    require_weed()
    directory = tmp_path_factory.mktemp("seaweed")
    with SeaweedServer(directory, access_key=ACCESS_KEY, secret_key=SECRET_KEY, buckets=(BUCKET,)) as server:
        yield server
        server.kill()  # nobody wants its data, and an orderly stop takes seconds


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    """One moto for the session."""
    log: Path = tmp_path_factory.mktemp("moto") / "moto.log"
    with MotoServer(log, bucket=BUCKET) as server:
        yield server


@pytest.fixture(scope="session")
def rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RcloneServer]:
    """One `rclone serve s3` for the session: a store that keeps no writers apart and checks no digest."""
    directory = tmp_path_factory.mktemp("rclone")
    with RcloneServer(directory, access_key=ACCESS_KEY, secret_key=SECRET_KEY, bucket=BUCKET) as server:
        yield server


@pytest.fixture
def bucket() -> str:
    """Return the bucket that both servers have.

    Shared, because SeaweedFS gives each bucket volumes of its own, and those run out.
    """
    return BUCKET


@pytest.fixture
def prefix() -> str:
    """Return a prefix in the bucket that no other test has."""
    return f"t{next(_prefixes):05d}"


@pytest.fixture
def proxy(seaweed: SeaweedServer) -> Iterator[FaultProxy]:
    """Run a fault proxy in front of SeaweedFS."""
    with FaultProxy(seaweed.port) as running:
        yield running


@pytest.fixture
def s3(proxy: FaultProxy, prefix: str) -> "Iterator[S3Tier]":
    """Open a tier on SeaweedFS, through the fault proxy."""
    from support.s3_tiers import s3_tier  # noqa: PLC0415 - tests without S3 do without boto3

    tier = s3_tier(proxy.endpoint_url, prefix)
    yield tier
    tier.close()


@pytest.fixture
def raw_s3(seaweed: SeaweedServer, prefix: str) -> "Iterator[RawS3]":
    """Reach what ``s3`` stores, past the tier and the proxy."""
    from support.s3_tiers import RawS3  # noqa: PLC0415 - as above

    store = RawS3(seaweed.endpoint_url, prefix)
    yield store
    store.close()
