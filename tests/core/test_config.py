"""ckptier.toml: found, checked, and never a place for secrets."""

from pathlib import Path

import pytest

from replicate.config import Config, find_config, load_config
from replicate.digests import default_workers
from replicate.errors import ConfigInvalid, ExitCode
from replicate.opening import tier_spec

TIER = '[[tier]]\nname = "volume"\nurl = "file:///mnt/v"\n'
HEAD = 'run = "llm-7b"\nstore = "runs"\n'


def written(folder: Path, text: str) -> Path:
    path = folder / "ckptier.toml"
    path.write_text(text)
    return path


def fault(folder: Path, text: str) -> ConfigInvalid:
    """Return what is said about a configuration that is wrong."""
    with pytest.raises(ConfigInvalid) as caught:
        load_config(written(folder, text))
    assert caught.value.exit_code is ExitCode.CONFIG
    return caught.value


def test_shape_of_the_docs_is_read(tmp_path: Path) -> None:
    text = HEAD + "keep_last = 2\npoll_seconds = 5\n" + TIER + 'replicate_every = 2500\nrates = "rates/r2.toml"\n'
    config = load_config(written(tmp_path, text))
    assert (config.run, config.keep_last, config.backlog) == ("llm-7b", 2, 8)
    assert config.tier[0].replicate_every == 2500
    assert config.local.root == tmp_path / "runs" / "llm-7b"
    assert config.state == config.local.root


def test_relative_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, HEAD + 'state_dir = "/var/lib/ckptier"\n')
    monkeypatch.chdir(tmp_path.parent)
    config = load_config(path.relative_to(tmp_path.parent))
    assert config.local.root == tmp_path / "runs" / "llm-7b"
    assert config.state == Path("/var/lib/ckptier/llm-7b")


def test_unknown_keys_name_the_known_ones(tmp_path: Path) -> None:
    top = fault(tmp_path, HEAD + "keep_lasst = 2\n")
    assert "keep_lasst: unknown key" in top.message
    assert "keep_last" in top.hint
    assert "drain_seconds" in top.hint
    tier = fault(tmp_path, HEAD + TIER + "replicate_evry = 5\n")
    assert "[[tier]] 1, replicate_evry: unknown key" in tier.message
    assert "replicate_every" in tier.hint


def test_source_is_no_key(tmp_path: Path) -> None:
    """It is a field of the model, and still nothing that a file may say."""
    assert "unknown key" in fault(tmp_path, HEAD + 'source = "/elsewhere"\n').message


@pytest.mark.parametrize(
    "line",
    [
        'url = "s3://AKIAXXXX:hunter2@bucket/prefix"',
        'url = "s3://bucket/prefix"\nendpoint_url = "https://AKIAXXXX:hunter2@host"',
    ],
)
def test_secret_in_a_url_is_refused_and_not_repeated(tmp_path: Path, line: str) -> None:
    found = fault(tmp_path, HEAD + f'[[tier]]\nname = "r2"\n{line}\n')
    assert "credentials" in found.message
    assert "hunter2" not in found.message + found.hint + str(found)
    assert "AKIAXXXX" not in found.message + found.hint


def test_a_user_of_ssh_is_no_secret_and_a_password_is(tmp_path: Path) -> None:
    section = HEAD + '[[tier]]\nname = "nas"\nurl = "sftp://{}@nas/data"\n'
    assert load_config(written(tmp_path, section.format("me"))).tier[0].url == "sftp://me@nas/data"
    assert "credentials" in fault(tmp_path, section.format("me:hunter2")).message
    assert "credentials" in fault(tmp_path, section.format("me").replace("sftp", "s3")).message


def test_how_a_tier_is_used(tmp_path: Path) -> None:
    """Every key reaches whoever opens the tier; certificates are looked for beside the file."""
    text = (
        'storage_class = "STANDARD_IA"\nencryption = "sse-kms"\nkms_key = "arn:k"\nbandwidth = 50_000_000\n'
        'timeout_seconds = 30\ndeadline_seconds = 600.5\nca_bundle = "certs/ca.pem"\nmode = "direct"\n'
        'data_path = "sdk"\n'
        'options = { project = "x", depth = 3, anon = false }\n'
    )
    config = load_config(written(tmp_path, HEAD + TIER + text))
    spec = tier_spec(config.tier[0])
    assert (spec.storage_class, spec.encryption, spec.kms_key) == ("STANDARD_IA", "sse-kms", "arn:k")
    assert (spec.bandwidth, spec.timeout_seconds, spec.deadline_seconds) == (50_000_000, 30.0, 600.5)
    assert spec.ca_bundle == str(tmp_path / "certs" / "ca.pem")
    assert (spec.mode, spec.data_path, spec.options) == ("direct", "sdk", {"project": "x", "depth": 3, "anon": False})
    elsewhere = load_config(written(tmp_path, HEAD + TIER + 'ca_bundle = "/etc/ca.pem"\n'))
    assert elsewhere.tier[0].ca_bundle == "/etc/ca.pem"
    plain = load_config(written(tmp_path, HEAD + TIER))
    assert (tier_spec(plain.tier[0]).bandwidth, tier_spec(plain.tier[0]).timezone) == (None, "UTC")
    assert (plain.nice, plain.io_priority, plain.cpu_share) == (10, "low", None)
    assert plain.hash_workers == default_workers()
    table = 'bandwidth = "Mon-08:00,10M Fri-19:00,off"\ntimezone = "Europe/Berlin"\n'
    timed = tier_spec(load_config(written(tmp_path, HEAD + TIER + table)).tier[0])
    assert (timed.bandwidth, timed.timezone) == ("Mon-08:00,10M Fri-19:00,off", "Europe/Berlin")


def test_at_sign_in_a_path_is_no_secret(tmp_path: Path) -> None:
    assert load_config(written(tmp_path, HEAD + '[[tier]]\nname = "v"\nurl = "file:///mnt/a@b"\n'))


@pytest.mark.parametrize("name", ["../x", "", "UPPER", "a/b", "a..b", "r" * 64])
def test_bad_run_name_is_refused(tmp_path: Path, name: str) -> None:
    assert "run" in fault(tmp_path, f'run = "{name}"\nstore = "runs"\n').message


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('store = "runs"\n', "run"),
        ('run = 7\nstore = "runs"\n', "not a string"),
        ('run = "a"\n', "store"),
        (HEAD + TIER + TIER, "two tiers have the same name"),
        (HEAD + '[[tier]]\nname = "v"\nurl = "/mnt/v"\n', "not a URL"),
        (HEAD + '[[tier]]\nname = "v\\n"\nurl = "file:///v"\n', "[[tier]] 1, name"),
        (HEAD + '[[tier]]\nname = "../v"\nurl = "file:///v"\n', "[[tier]] 1, name"),
        (HEAD + TIER + "part_size = 1\n", "part_size"),
        (HEAD + TIER + "connections = 0\n", "connections"),
        (HEAD + "keep_last = 0\n", "keep_last"),
        (HEAD + 'keep_last = "2"\n', "keep_last"),
        (HEAD + "backlog = true\n", "backlog"),
        (HEAD + TIER + 'storage_class = "cold"\n', "storage_class"),
        (HEAD + TIER + 'encryption = "aes"\n', "'sse-s3' or 'sse-kms'"),
        (
            HEAD + TIER + 'encryption = "sse-s3"\nkms_key = "k"\n',
            'kms_key means nothing without encryption = "sse-kms"',
        ),
        (HEAD + TIER + "bandwidth = 1000\n", "bandwidth"),
        (HEAD + TIER + 'bandwidth = "5MB"\n', "[[tier]] 1: bandwidth: at position 1: '5MB' is no rate"),
        (HEAD + TIER + "bandwidth = true\n", "neither bytes a second, 65536 at least, nor a timetable such as"),
        (HEAD + TIER + 'bandwidth = "08:00,10M 24:00,off"\n', "at position 11: 24:00 is no time of day"),
        (HEAD + TIER + 'bandwidth = "08:00,10M"\ntimezone = "Mars/Olympus"\n', "IANA name such as Europe/Berlin"),
        (HEAD + TIER + 'bandwidth = 100_000\ntimezone = "UTC"\n', "timezone means nothing without a timetable"),
        (HEAD + "nice = 20\n", "nice"),
        (HEAD + "nice = -1\n", "nice"),
        (HEAD + 'io_priority = "high"\n', "'idle', 'low' or 'normal'"),
        (HEAD + "cpu_share = 0\n", "cpu_share"),
        (HEAD + "cpu_share = 4\n", "cpu_share"),
        (HEAD + TIER + "timeout_seconds = 0.1\n", "timeout_seconds"),
        (HEAD + TIER + "timeout_seconds = 60\ndeadline_seconds = 30\n", "deadline_seconds is shorter"),
        (HEAD + TIER + 'ca_bundle = ""\n', "ca_bundle"),
        (HEAD + TIER + "options = { depth = [1] }\n", "options"),
        (HEAD + TIER + 'mode = "fast"\n', "'auto', 'rename', 'direct' or 'modal'"),
        (HEAD + 'tier = "volume"\n', "tier"),
        (HEAD + "tier = [3]\n", "[[tier]] 1"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, word: str) -> None:
    assert word in fault(tmp_path, text).message


def test_every_fault_is_named_at_once(tmp_path: Path) -> None:
    """One edit, not one for each start."""
    message = fault(tmp_path, 'run = "UP"\nstore = 1\nzzz = 1\n').message
    assert all(word in message for word in ("run", "store", "zzz"))


def test_missing_unreadable_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="does not exist") as caught:
        load_config(tmp_path / "absent.toml")
    assert "ckptier init" in caught.value.hint
    with pytest.raises(ConfigInvalid, match="cannot be read"):
        load_config(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'run = "\xe9"\n')
    with pytest.raises(ConfigInvalid, match="cannot be read"):
        load_config(tmp_path / "latin.toml")
    assert "line 1" in fault(tmp_path, "run = \n").message


def test_file_is_found_upwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CKPTIER_CONFIG", raising=False)
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    outer = written(tmp_path, HEAD)
    assert find_config(None, start=deep) == outer
    nearer = written(tmp_path / "a", HEAD)
    assert find_config(None, start=deep) == nearer


def test_named_file_wins_over_the_environment_and_that_over_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, HEAD)
    monkeypatch.setenv("CKPTIER_CONFIG", "/from/env.toml")
    assert find_config(Path("/named.toml"), start=tmp_path) == Path("/named.toml")
    assert find_config(None, start=tmp_path) == Path("/from/env.toml")
    monkeypatch.setenv("CKPTIER_CONFIG", "")
    assert find_config(None, start=tmp_path) == tmp_path / "ckptier.toml"


def test_nothing_found_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CKPTIER_CONFIG", raising=False)
    with pytest.raises(ConfigInvalid, match=r"no ckptier\.toml") as caught:
        find_config(None, start=tmp_path)
    assert "--config" in caught.value.hint


def test_tier_is_selected_by_name(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, HEAD + TIER + TIER.replace('"volume"', '"r2"')))
    assert [tier.name for tier in config.select(None)] == ["volume", "r2"]
    assert [tier.name for tier in config.select("r2")] == ["r2"]
    with pytest.raises(ConfigInvalid, match="no tier is called") as caught:
        config.select("r3")
    assert "volume, r2" in caught.value.hint


def test_config_is_frozen(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, HEAD))
    with pytest.raises(ValueError, match="frozen"):
        config.run = Config.model_fields["run"].default
