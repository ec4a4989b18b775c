"""From URL and options to a filesystem: which store, where, with what, and what is refused with which hint."""

import subprocess
import sys
from typing import Any

import pytest

from tiers.fsspec_opening import webdav_login
from tiers.fsspec_stores import MAX_BLOCK, MIN_BLOCK, REFUSED, STORES, choose_store
from tiers.fsspec_urls import Place, locate, protocol_of
from tiers.opening import BadTierUrl, TierSpec, open_tier
from tiers.protocol import Fencing, Tier
from tiers.testing import ManualClock


def place(url: str, **fields: Any) -> Place:
    return locate(TierSpec(name="t", url=url, **fields))


def open_url(url: str, **fields: Any) -> Tier:
    return open_tier(TierSpec(name="t", url=url, **fields), clock=ManualClock())


@pytest.mark.parametrize(
    ("url", "store", "root", "options"),
    [
        ("gs://bucket/a/b", "gcs", "bucket/a/b", {}),
        ("gcs://bucket", "gcs", "bucket", {}),
        ("az://container/a/", "azure-blob", "container/a", {}),
        ("abfs://container/a", "azure-blob", "container/a", {}),
        ("sftp://host/data/runs", "sftp", "/data/runs", {"host": "host"}),
        ("sftp://me@host:2222/data%20x/%25", "sftp", "/data x/%", {"host": "host", "port": 2222, "username": "me"}),
        ("ssh://host/", "sftp", "", {"host": "host"}),
        ("webdav://host/a", "webdav", "/a", {"base_url": "https://host"}),
        ("webdav+https://host:8443/a/b", "webdav", "/a/b", {"base_url": "https://host:8443"}),
        ("webdav+http://127.0.0.1:8080/", "webdav", "", {"base_url": "http://127.0.0.1:8080"}),
        ("fsspec+memory://name/x", "fsspec-memory", "/name/x", {}),
        ("fsspec+file:///mnt/a%20b/", "fsspec-local", "/mnt/a b", {}),
        ("fsspec+s3://bucket/a", "s3fs", "bucket/a", {}),
        ("oci://bucket/a", "fsspec-other", "bucket/a", {}),
        ("fsspec+smb://host/share/a", "fsspec-other", "host/share/a", {}),
    ],
)
def test_places(url: str, store: str, root: str, options: dict[str, object]) -> None:
    found = place(url)
    assert (found.store.name, found.root, dict(found.options)) == (store, root, options)


@pytest.mark.parametrize("scheme", ["file", "memory", "s3", "s3a", "hf", "local", "http", "ftp", "zip", "nonsense", ""])
def test_schemes_that_do_not_go_through_fsspec(scheme: str) -> None:
    assert protocol_of(scheme) is None


@pytest.mark.parametrize(
    ("url", "fields", "part"),
    [
        ("gs:///a", {}, "gs://bucket/prefix"),
        ("gs://bucket/a*b", {}, "not a key"),
        ("gs://bucket/a?generation=1", {}, "query"),
        ("gs://bucket/a#1", {}, "fragment"),
        ("gs://bucket", {"region": "eu"}, "region means nothing"),
        ("gs://bucket", {"endpoint_url": "http://example.org"}, "plain http"),
        ("az://container", {"endpoint_url": "https://example.org"}, "endpoint_url means nothing"),
        ("sftp:///data", {}, "user@host"),
        ("sftp://host/data/../other", {}, "absolute and plain"),
        ("sftp://host/%00", {}, "absolute and plain"),
        ("webdav+http://example.org/a", {}, "plain http"),
        ("webdav+https:///a", {}, "webdav+https://host"),
        ("fsspec+file://relative/a", {}, "absolute/path"),
        ("fsspec+s3://bucket", {"endpoint_url": "http://example.org"}, "plain http"),
        ("fsspec+s3://bucket", {"profile": "no-such"}, "unknown profile"),
        ("gs://bucket", {"profile": "sftp"}, "known: gcs"),
        ("fsspec+nonsense://a/b", {}, "knows no protocol"),
        ("fsspec+smb://host/[ab]", {}, "without wildcards"),
        ("fsspec+smb://host/a*", {}, "without wildcards"),
        ("fsspec+ftp://host/a", {}, "in the clear"),
        ("fsspec+http://host/a", {}, "webdav+https://"),
        ("fsspec+simplecache://a", {}, "cache"),
        ("fsspec+hf://a/b", {}, "no filesystem"),
        ("gs://bucket", {"options": {"use_listings_cache": True}}, "not to be set"),
        ("sftp://host/a", {"options": {"host_key_policy": "auto_add"}}, "not to be set"),
        ("gs://bucket", {"encryption": "aws:kms"}, "encryption has no effect"),
        ("sftp://host/a", {"storage_class": "COLD"}, "storage_class has no effect"),
        ("memory://a", {"options": {"x": 1}}, "options mean nothing"),
    ],
)
def test_bad_specs(url: str, fields: dict[str, Any], part: str) -> None:
    with pytest.raises(BadTierUrl) as caught:
        open_url(url, **fields)
    assert part in str(caught.value), str(caught.value)
    assert str(caught.value).startswith("tier t: ")
    assert caught.value.hint


def test_how_long_a_request_may_stall() -> None:
    assert place("sftp://host/a").timeout == 120
    assert place("sftp://host/a", timeout_seconds=7.5).timeout == 7.5


def test_plain_http_where_it_was_allowed() -> None:
    assert place("webdav+http://example.org/a", allow_insecure=True).options["base_url"] == "http://example.org"
    found = place("fsspec+s3://bucket", endpoint_url="http://example.org", allow_insecure=True)
    assert found.options["endpoint_url"] == "http://example.org"


def test_an_endpoint_from_the_environment_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://example.org")
    with pytest.raises(BadTierUrl, match="plain http"):
        place("fsspec+s3://bucket")


@pytest.mark.parametrize(
    "url",
    [
        "sftp://me:hunter2@host/a",
        "sftp://me:@host/a",
        "sftp://hunter2%21@host/a",
        "gs://hunter2@bucket/a",
        "webdav+https://me:hunter2@host/a",
        "webdav+https://hunter2@host/a",
        "abfs://hunter2@account.dfs.core.windows.net/a",
        "fsspec+s3://id:hunter2@bucket",
        "fsspec+ftp://me:hunter2@host",
    ],
)
def test_passwords_in_a_url_are_refused(url: str) -> None:
    """A user name alone is fine for SSH, and only there."""
    with pytest.raises(BadTierUrl) as caught:
        open_url(url)
    assert "hunter2" not in f"{caught.value!r} {caught.value.hint} {caught.value.__cause__!r}"


@pytest.mark.parametrize(
    ("url", "option", "where"),
    [
        ("gs://bucket", "token", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("az://container", "account_key", "AZURE_STORAGE_ACCOUNT_KEY"),
        ("az://container", "connection_string", "AZURE_STORAGE"),
        ("az://container", "sas_token", "AZURE_STORAGE"),
        ("az://container", "credential", "az login"),
        ("az://container", "client_secret", "az login"),
        ("sftp://host/a", "password", "SSH agent"),
        ("sftp://host/a", "passphrase", "SSH agent"),
        ("sftp://host/a", "pkey", "key_filename"),
        ("webdav+https://host/a", "auth", "CKPTIER_WEBDAV_PASSWORD"),
        ("webdav+https://host/a", "headers", "CKPTIER_WEBDAV_PASSWORD"),
        ("fsspec+s3://bucket", "key", "AWS_"),
        ("fsspec+s3://bucket", "secret", "AWS_"),
    ],
)
def test_options_that_look_like_secrets(url: str, option: str, where: str) -> None:
    """They are refused with the place where they belong, and without being repeated."""
    with pytest.raises(BadTierUrl) as caught:
        open_url(url, options={option: "hunter2"})
    assert option in str(caught.value)
    assert where in caught.value.hint
    assert "hunter2" not in f"{caught.value!r} {caught.value.hint} {caught.value.__cause__!r}"


@pytest.mark.parametrize("option", ["key_filename", "known_hosts", "account_name", "project", "anon", "compress"])
def test_options_that_name_places_are_fine(option: str) -> None:
    assert place("sftp://host/a", options={option: "x"}).options[option] == "x"


def test_a_switch_is_no_secret() -> None:
    assert place("sftp://host/a", options={"look_for_keys": False}).options["look_for_keys"] is False


MISSING = (
    "import sys; sys.modules.update(dict.fromkeys({names!r}))\n"
    "from tiers.clock import SystemClock; from tiers.errors import Unsupported\n"
    "from tiers.opening import TierSpec, open_tier\n"
    "try: open_tier(TierSpec(name='t', url={url!r}), clock=SystemClock())\n"
    "except Unsupported as error: print(error, '|', error.hint)\n"
)


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [
        ("gs://bucket/a", "gcsfs", "gs"),
        ("az://container/a", "adlfs", "azure"),
        ("sftp://host/a", "paramiko", "sftp"),
        ("webdav+https://host/a", "webdav4", "webdav"),
        ("fsspec+s3://bucket", "s3fs", "s3fs"),
        ("gs://bucket/b", "fsspec", "gs"),
    ],
)
def test_missing_extras_name_the_line_to_type(url: str, package: str, extra: str) -> None:
    script = MISSING.format(names=[package], url=url)
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip().endswith(f"| pip install 'ckptier[{extra}]'")


def test_opening_loads_no_more_than_it_needs() -> None:
    """A volume does not pay for fsspec, and opening an SFTP tier connects to nothing."""
    script = (
        "import sys; from tiers.clock import SystemClock; from tiers.opening import TierSpec, open_tier; "
        "open_tier(TierSpec(name='t', url='file:///tmp'), clock=SystemClock()); "
        "print([n for n in sys.modules if 'fsspec' in n]); "
        "open_tier(TierSpec(name='t', url='sftp://127.0.0.1:1/a'), clock=SystemClock()).capabilities"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_webdav_logins(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The environment comes first, then the netrc file, then none."""
    path = tmp_path_factory.mktemp("home") / "netrc"
    monkeypatch.setenv("NETRC", str(path))
    assert webdav_login("example.org") is None
    path.write_text("machine example.org login me password from-netrc\n", encoding="utf-8")
    path.chmod(0o600)
    assert webdav_login("example.org") == ("me", "from-netrc")
    assert webdav_login("other.org") is None
    monkeypatch.setenv("CKPTIER_WEBDAV_USER", "you")
    monkeypatch.setenv("CKPTIER_WEBDAV_PASSWORD", "from-environment")
    assert webdav_login("example.org") == ("you", "from-environment")


def test_every_store_says_how_it_is_known() -> None:
    """A claim that two writers are kept apart needs evidence and a date."""
    for store in STORES.values():
        assert store.evidence
        assert store.as_of
        assert store.credentials
        if store.fencing is not Fencing.ADVISORY:
            assert store.create_by.value != "look first", store.name
            assert any(word in store.evidence for word in ("documented", "probed", "POSIX")), store.name


def test_protocols_are_either_served_or_refused() -> None:
    for protocol in REFUSED:
        assert choose_store(protocol, None).name == "fsspec-other", protocol


@pytest.mark.parametrize("name", sorted(STORES))
def test_blocks_fit_into_memory_and_limits(name: str) -> None:
    store = STORES[name]
    for size in (0, 1, 10**9, store.max_put):
        block = store.block_size(size)
        assert MIN_BLOCK <= block <= MAX_BLOCK
        assert not store.max_blocks or block * store.max_blocks >= size


def test_s3_fencing_is_what_the_provider_profile_says() -> None:
    fencing = {
        None: Fencing.CAS,
        "aws": Fencing.CAS,
        "generic-s3": Fencing.ADVISORY,
        "seaweedfs": Fencing.CAS,
    }
    for profile, expected in fencing.items():
        assert open_url("fsspec+s3://bucket", profile=profile).capabilities.fencing is expected, profile
    unknown = open_url("fsspec+s3://bucket", endpoint_url="https://s3.example.org")
    assert unknown.capabilities.fencing is Fencing.ADVISORY
