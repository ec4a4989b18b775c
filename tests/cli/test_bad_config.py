"""Configurations that cannot be used: exit 10, every fault named, nothing written."""

from pathlib import Path

import pytest
from cli.driver import Project, refused, run_command, volume
from support.commits import tree

from replicate.errors import ExitCode

HEAD = 'run = "toy"\nstore = "runs"\n'
TIER = '[[tier]]\nname = "volume"\nurl = "{url}"\n'
READING = (
    ("check",),
    ("status",),
    ("status", "--remote"),
    ("list",),
    ("show", "a0001-g000001-u000000000010-2159b57c"),
    ("explain",),
    ("verify",),
    ("wait", "--timeout", "0"),
    ("safe-to-terminate",),
)
WRITING = (
    ("replicate", "--once"),
    ("replicate", "--dry-run"),
    ("restore",),
    ("restore", "--if-absent", "--fresh-ok"),
    ("adopt", "/etc/hostname", "--update", "1"),
)


def written(folder: Path, text: str) -> Project:
    project = Project(folder=folder)
    folder.mkdir()
    project.config.write_text(text)
    return project


@pytest.mark.parametrize("command", [*READING, *WRITING], ids=" ".join)
def test_an_unknown_key_stops_every_command(tmp_path: Path, command: tuple[str, ...]) -> None:
    project = written(tmp_path / "p", HEAD + "keep_lasst = 2\n")
    done = project.refused(ExitCode.CONFIG, *command)
    done.says("keep_lasst: unknown key", "known top keys: ", "keep_last,")
    assert "[signing]" not in done.err, "the keys of one section, not a wall of all"
    assert set(tree(tmp_path / "p")) == {"ckptier.toml"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('run = "../x"\nstore = "runs"\n', "run name '../x' is not valid"),
        ('run = "UPPER"\nstore = "runs"\n', "run name 'UPPER' is not valid"),
        ('run = 3\nstore = "runs"\n', "run: is not a string"),
        ('run = "toy"\n', "store: "),
        ('run = "toy\n', "not valid TOML"),
        (HEAD + TIER.format(url="/mnt/v"), "is not a URL"),
        (HEAD + TIER.format(url="memory://a") + TIER.format(url="memory://b"), "two tiers have the same name"),
        (HEAD + TIER.format(url="memory://a") + "colour = 2\n", "[[tier]] 1, colour: unknown key"),
        (HEAD + TIER.format(url="memory://a") + "part_size = 7\n", "part_size"),
    ],
)
def test_each_fault_is_named(tmp_path: Path, text: str, words: str) -> None:
    project = written(tmp_path / "p", text)
    project.refused(ExitCode.CONFIG, "status").says(words)
    error = project("replicate", "--once", "--json").error()
    assert words in error["message"]
    assert set(tree(tmp_path / "p")) == {"ckptier.toml"}


@pytest.mark.parametrize("url", ["ftp://bucket/x", "file://relative/path", "memory://"])
def test_a_url_that_names_no_tier(tmp_path: Path, url: str) -> None:
    project = Project(folder=tmp_path / "p", tiers={"odd": url}).write()
    project.publish(1)
    before = project.snapshot()
    for command in (("list",), ("restore",), ("verify",), ("safe-to-terminate",), ("replicate", "--dry-run")):
        project.refused(ExitCode.CONFIG, *command).says("odd")
    assert project("check").code == ExitCode.CONFIG
    assert project.snapshot() == before
    done = project("replicate", "--once")
    assert done.code == ExitCode.CONFIG
    done.says("odd: FAILED", "next: ")


@pytest.mark.parametrize("key", ["url", "endpoint_url"])
def test_credentials_in_a_url_are_refused_and_not_echoed(tmp_path: Path, key: str) -> None:
    other = 'endpoint_url = "s3://bucket"\n' if key == "url" else 'url = "s3://bucket/x"\n'
    text = HEAD + f'[[tier]]\nname = "b"\n{key} = "https://canary-user:canary-pass@host/x"\n{other}'
    project = written(tmp_path / "p", text)
    for done in (
        project.refused(ExitCode.CONFIG, "status"),
        project("restore", "--json"),
        run_command("init", "--run", "x", "--tier", "b=s3://canary-user:canary-pass@host/x"),
    ):
        assert done.code == ExitCode.CONFIG
        done.says("credentials")
        assert "canary" not in done.out + done.err


def test_a_tier_that_is_not_configured(project: Project) -> None:
    project.publish(1)
    before = project.snapshot()
    for command in (("restore",), ("verify",), ("wait",), ("safe-to-terminate",)):
        done = project.refused(ExitCode.CONFIG, *command, "--tier", "volum")
        done.says("no tier is called 'volum'", "configured tiers: volume")
    assert project.snapshot() == before


def test_no_tier_at_all(tmp_path: Path) -> None:
    project = Project(folder=tmp_path / "p").write()
    project.publish(1)
    project.refused(ExitCode.CONFIG, "replicate", "--once").says("add a [[tier]]")
    assert project("safe-to-terminate").code == ExitCode.NOT_SAFE
    assert project("status").code == 0


def test_a_configuration_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(ExitCode.CONFIG, "status").says("no ckptier.toml in", "`ckptier init`", "--config")
    refused(ExitCode.CONFIG, "status", "-c", "absent.toml").says("absent.toml does not exist")
    refused(ExitCode.CONFIG, "status", "-c", str(tmp_path)).says("Is a directory", "ckptier.toml")
    monkeypatch.setenv("CKPTIER_CONFIG", str(tmp_path / "named.toml"))
    refused(ExitCode.CONFIG, "status").says("named.toml does not exist")


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (ExitCode.CONFIG, ("--run", "../x")),
        (ExitCode.CONFIG, ("--run", "x", "--tier", "a=ftp://host/x")),
        (ExitCode.CONFIG, ("--run", "x", "--tier", "a=file://relative/path")),
        (ExitCode.CONFIG, ("--run", "x", "--tier", "a=memory://1", "--tier", "a=memory://2")),
        (ExitCode.CONFIG, ("--run", "x", "--tier", "UPPER=memory://1")),
        (ExitCode.USAGE, ("--run", "x", "--tier", "memory://1")),
        (ExitCode.USAGE, ("--run", "x", "--tier", 'a=memory://"')),
        (ExitCode.USAGE, ("--run", "x", "--store", 'a"b')),
        (ExitCode.DISK, ("--run", "x", "--tier", "a=file:///dev/null/deep")),
        (ExitCode.DISK, ("--run", "x", "--store", "/dev/null/runs")),
    ],
)
def test_init_writes_all_or_nothing(tmp_path: Path, code: ExitCode, arguments: tuple[str, ...]) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    refused(code, "init", *arguments, "--directory", str(folder))
    assert tree(folder) == {}
    assert not Path("/path").exists()


def test_init_takes_back_the_folders_that_it_made(tmp_path: Path) -> None:
    good = volume(tmp_path / "deep" / "down")
    arguments = ("--run", "x", "--tier", f"a={good}", "--tier", "b=file:///dev/null/x", "--directory", str(tmp_path))
    before = tree(tmp_path)
    refused(ExitCode.DISK, "init", *arguments).says("/dev/null/x cannot be created")
    assert tree(tmp_path) == before


def test_init_never_overwrites(project: Project) -> None:
    before = tree(project.folder)
    refused(ExitCode.CONFIG, "init", "--run", "x", "--directory", str(project.folder)).says("exists already")
    refused(ExitCode.DISK, "init", "--run", "x", "--directory", str(project.folder / "absent"))
    assert tree(project.folder) == before
