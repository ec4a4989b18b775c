"""I20: secrets appear nowhere: not on a terminal, in a log, an error or an argument, not in a file, not on a tier."""

import base64
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.driver import Project, volume
from secrecy.conftest import Machine
from secrecy.parrot import Parrot, parrot
from support.canaries import CANARIES, WORDS, files_below, leaks

from replicate.config import load_config
from replicate.engine import Replicator
from replicate.errors import ExitCode
from tiers.testing.s3_emulator import BUCKET, S3Emulator
from tiers.testing.s3_emulator.signing import Credentials

KNOWN = Credentials(
    access_key=CANARIES["AWS_ACCESS_KEY_ID"],
    secret_key=CANARIES["AWS_SECRET_ACCESS_KEY"],
    session_token=CANARIES["AWS_SESSION_TOKEN"],
)
IN_FILE = Credentials(access_key=WORDS["key in a file"], secret_key=WORDS["secret in a file"])


@pytest.fixture(scope="module")
def store() -> Iterator[S3Emulator]:
    """Return a store that knows the canaries, from the environment and from the SDK's file, and nobody else."""
    with S3Emulator(credentials=(KNOWN, IN_FILE)) as running:
        yield running


@pytest.fixture
def echo() -> Iterator[Parrot]:
    with parrot() as running:
        yield running


def project(machine: Machine, name: str, url: str, **keys: object) -> Project:
    """Return a project with a volume and a tier called ``s3`` or whatever else is at the URL."""
    (machine.folder / f"{name}-volume").mkdir()
    folder = machine.folder / name
    made = Project(folder=folder, tiers={"good": volume(machine.folder / f"{name}-volume")}).write()
    lines = [f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}" for key, value in keys.items()]
    text = "\n".join([made.config.read_text(), "[[tier]]", 'name = "other"', f'url = "{url}"', *lines])
    made.config.write_text(text.replace("'", '"') + "\n")
    return made


def test_what_is_searched_for_would_be_found() -> None:
    """The control: in each form, at each place of a text."""
    for word in {**CANARIES, **WORDS}.values():
        data = word.encode()
        for place in (b"x" + data + b"x", b"--" + base64.b64encode(b"abcd" + data + b"ef"), data.hex().encode()):
            assert leaks({"place": place}, {"word": word}) == ["word in place"]
    assert leaks({"place": CANARIES["AWS_SECRET_ACCESS_KEY"][:-1].encode()}, CANARIES) == []


def test_a_planted_leak_fails_the_check(machine: Machine) -> None:
    """The control of the whole bench: a file, a log line and an output, each with one canary in it."""
    (machine.folder / "status.json").write_text(f'{{"note":"{WORDS["option"]}"}}')
    machine.said["list"] = CANARIES["HF_TOKEN"].encode()
    logging.getLogger("replicate").debug("x-amz-security-token: %s", CANARIES["AWS_SESSION_TOKEN"])
    with pytest.raises(AssertionError) as caught:
        machine.check()
    for name in ("option in file status.json", "HF_TOKEN in list", "AWS_SESSION_TOKEN in log"):
        assert name in str(caught.value)


def test_i20_no_verb_shows_or_stores_a_secret_where_all_is_well(machine: Machine, store: S3Emulator) -> None:
    made = project(machine, "well", f"s3://{BUCKET}/well", endpoint_url=store.endpoint_url, profile="aws")
    machine.run(made, "check", "--probe", "--json")
    (generation,) = made.publish(100)
    machine.run(made, "replicate", "--once", "--json", "-v")
    made.publish(101)
    for command in (
        ("replicate", "--dry-run"),
        ("replicate", "--once", "-v"),
        ("check",),
        ("status", "--remote", "--json"),
        ("list",),
        ("show", str(generation)),
        ("explain", "--json"),
        ("verify", "--read-data", "100%"),
        ("pin", str(generation), "--reason", "kept"),
        ("unpin", str(generation)),
        ("prune",),
        ("gc", "--json"),
        ("copy", "--from", "other", "--to", "good", "--all"),
        ("safe-to-terminate",),
        ("restore", "--to", str(machine.folder / "out"), "-v", "--json"),
    ):
        machine.run(made, *command)
    assert ExitCode.OK in machine.codes
    stored = dict(store.objects())
    assert any("/log/" in key for key in stored)
    assert any(key.endswith("tracker.sqlite") for key in files_below(machine.folder))
    assert 403 not in {seen.status for seen in store.requests}, "the secrets were in use"
    assert machine.log.records
    machine.check(stored)


def test_i20_a_program_that_logs_everything_logs_no_secret(
    machine: Machine, store: S3Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    """Not the command but a library in somebody's trainer, whose root logger is at DEBUG: the SDK would log headers."""
    made = project(machine, "library", f"s3://{BUCKET}/library", endpoint_url=store.endpoint_url, profile="aws")
    made.publish(100)
    for name in ("botocore", "boto3", "urllib3", "replicate", "tiers"):
        logging.getLogger(name).setLevel(logging.NOTSET)
    with caplog.at_level(logging.DEBUG):
        report = Replicator(load_config(made.config)).replicate_once()
    assert report.exit_code == ExitCode.OK
    assert {record.levelno for record in machine.log.records} >= {logging.DEBUG}
    machine.check(dict(store.objects()))


def test_i20_secrets_of_the_sdks_own_file_are_as_silent(
    machine: Machine, store: S3Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    made = project(machine, "file", f"s3://{BUCKET}/file", endpoint_url=store.endpoint_url, profile="aws")
    made.publish(100)
    assert machine.run(made, "replicate", "--once", "-v", "--json").code == ExitCode.OK
    machine.run(made, "status", "--remote")
    machine.check(dict(store.objects()))


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("check",),
    ("status", "--remote"),
    ("list", "--json"),
    ("explain",),
    ("verify",),
    ("replicate", "--dry-run"),
    ("replicate", "--once", "-v"),
    ("copy", "--from", "good", "--to", "other"),
    ("gc",),
    ("restore", "-v", "--json"),
)


@pytest.mark.parametrize("status", [403, 500])
def test_i20_a_store_that_quotes_what_it_was_sent_is_not_quoted(machine: Machine, echo: Parrot, status: int) -> None:
    echo.status = status
    made = project(machine, "echo", "s3://bucket/x", endpoint_url=echo.url, profile="seaweedfs")
    made.publish(100)
    for command in COMMANDS if status == 403 else COMMANDS[1:7]:
        machine.run(made, *command)
    failed = ExitCode.DENIED if status == 403 else ExitCode.UNREACHABLE
    assert {failed, ExitCode.PARTIAL} <= machine.codes
    assert any(CANARIES["AWS_SESSION_TOKEN"] in said for said in echo.said), "it had something to quote"
    machine.check()


def test_i20_connections_that_fail_say_nothing_of_who_wanted_them(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate that nobody vouches for, a name that does not exist, and a proxy with a password that is away."""
    with S3Emulator(credentials=(KNOWN,), tls=True) as strange:
        made = project(machine, "tls", f"s3://{BUCKET}/x", endpoint_url=strange.endpoint_url, profile="aws")
        made.publish(100)
        for command in COMMANDS[:2]:
            machine.run(made, *command)
        machine.run(made, "replicate", "--once", "-v")
    nowhere = project(machine, "dns", f"s3://{BUCKET}/x", endpoint_url="https://nowhere.invalid", profile="aws")
    nowhere.publish(100)
    machine.run(nowhere, "check")
    proxied = f"http://worker:{WORDS['proxy password']}@127.0.0.1:1"
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, proxied)
    for command in (*COMMANDS[:2], ("replicate", "--once", "-v")):
        machine.run(nowhere, *command)
    assert machine.codes & {ExitCode.UNREACHABLE, ExitCode.DENIED, ExitCode.PARTIAL}
    machine.check()


REFUSED = {
    "userinfo in the url": ("s3://user:{password in a url}@bucket/x", {}),
    "userinfo in the endpoint": ("s3://bucket/x", {"endpoint_url": "https://u:{password in a url}@host.example"}),
    "a query in the endpoint": (
        "s3://bucket/x",
        {"endpoint_url": "https://host.example/?X-Amz-Signature={signature in a query}"},
    ),
    "a query in the url": ("s3://bucket/x?X-Amz-Signature={signature in a query}", {}),
    "a secret among the options": ("fsspec+memory://x", {"options": "{{ password = '{option}' }}"}),
    "a token among the options": ("gs://bucket/x", {"options": "{{ token = '{option}' }}"}),
    "credentials of the hub": ("hf://user:{password in a url}@datasets/acme/x", {}),
    "an sse-c key": ("s3://bucket/x", {"sse_c_key": "{sse-c key}"}),
    "a key as a setting": ("s3://bucket/x", {"secret_access_key": "{option}"}),
    "webdav": ("webdav+https://user:{password in a url}@host.example/x", {}),
    "sftp": ("sftp://user:{password in a url}@host.example/x", {}),
    "fsspec": ("fsspec+ftp://user:{password in a url}@host.example/x", {}),
    "a kms key of another kind": ("s3://bucket/x", {"kms_key": "{option}"}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_i20_a_configuration_with_a_secret_is_refused_without_repeating_it(case: str, machine: Machine) -> None:
    url, keys = REFUSED[case]
    made = project(
        machine, "refused", url.format_map(WORDS), **{key: str(value).format_map(WORDS) for key, value in keys.items()}
    )
    text = made.config.read_text()
    if '"{' in text:
        made.config.write_text(text.replace('"{', "{").replace('}"', "}"))
    for command in (("check",), ("replicate", "--once", "--json")):
        done = machine.run(made, *command)
        assert done.code != ExitCode.OK
    planted = made.config.read_text()
    made.config.unlink()
    assert leaks({"config": planted.encode()}, machine.words), "a secret was there"
    assert leaks({**machine.said, "log": machine.log.text.encode(), **files_below(machine.folder)}, machine.words) == []


def test_i20_a_process_of_its_own_shows_no_secret_either(machine: Machine, echo: Parrot) -> None:
    """Without the test's own log handlers: what reaches a terminal or a service's journal."""
    made = project(machine, "child", "s3://bucket/x", endpoint_url=echo.url, profile="seaweedfs")
    made.publish(100)
    arguments = ["replicate", "--once", "--json", "-v", "-c", str(made.config)]
    command = [sys.executable, "-m", "ckptier_command", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=dict(os.environ))
    assert done.returncode == ExitCode.PARTIAL, done.stderr
    assert "SignatureDoesNotMatch" in done.stdout
    assert "Found credentials" not in done.stderr
    machine.said["child"] = (done.stdout + done.stderr).encode()
    machine.check()


def test_a_folder_is_searched_by_name_and_content(tmp_path: Path) -> None:
    (tmp_path / WORDS["option"]).write_text("harmless")
    assert leaks(files_below(tmp_path), WORDS)
