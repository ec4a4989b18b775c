"""Who an SFTP tier talks to, and as whom."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest
from support.fsspec_tiers import sftp_spec
from support.sftp_server import HOST, SftpServer

from tiers.errors import AccessDenied, TierError, TierUnavailable, Unsupported
from tiers.fsspec_opening import open_fsspec
from tiers.opening import TierSpec
from tiers.protocol import Key


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SftpServer]:
    (tmp_path / "served").mkdir()
    with SftpServer(tmp_path / "served", tmp_path) as running:
        yield running


def refusal(spec: TierSpec) -> TierError:
    """Return what the first request of a tier is refused with."""
    with closing(open_fsspec(spec)) as tier, pytest.raises(TierError) as caught:
        tier.stat(Key("a"))
    return caught.value


def with_options(server: SftpServer, **options: str | int | bool) -> TierSpec:
    spec = sftp_spec(server, "")
    return replace(spec, options={**spec.options, **options})


def test_a_host_that_nobody_vouches_for(server: SftpServer, tmp_path: Path) -> None:
    """By itself, fsspec trusts any key at the first connection; whoever is in between would get the checkpoints."""
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    found = refusal(with_options(server, known_hosts=str(empty)))
    assert isinstance(found, AccessDenied)
    assert "known_hosts" in found.hint
    assert server.logins == 0


def test_a_host_with_another_key(server: SftpServer, tmp_path: Path) -> None:
    other = paramiko.ECDSAKey.generate()
    wrong = tmp_path / "wrong"
    wrong.write_text(f"[{HOST}]:{server.port} {other.get_name()} {other.get_base64()}\n", encoding="ascii")
    found = refusal(with_options(server, known_hosts=str(wrong)))
    assert isinstance(found, AccessDenied)
    assert "somebody may be in between" in found.hint
    assert server.logins == 0


def test_a_key_that_the_server_does_not_know(server: SftpServer, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger"
    paramiko.ECDSAKey.generate().write_private_key_file(str(stranger))
    found = refusal(with_options(server, key_filename=str(stranger), allow_agent=False, look_for_keys=False))
    assert isinstance(found, AccessDenied)
    assert "key_filename" in found.hint


def test_the_user_of_the_url_is_used(server: SftpServer) -> None:
    spec = with_options(server, allow_agent=False, look_for_keys=False)
    assert isinstance(refusal(replace(spec, url=spec.url.replace("trainer@", "stranger@"))), AccessDenied)
    with closing(open_fsspec(spec)) as tier:
        assert tier.list_objects("").objects == ()


@pytest.mark.parametrize("option", ["key_filename", "known_hosts"])
def test_files_that_are_not_there(server: SftpServer, option: str) -> None:
    """A missing key file is no missing object."""
    spec = with_options(server, allow_agent=False, look_for_keys=False)
    found = refusal(replace(spec, options={**spec.options, option: "/no/such/file"}))
    assert not isinstance(found, TierUnavailable)
    assert type(found) is not TierError or "FileNotFoundError" in str(found)


def test_an_option_that_does_not_exist(server: SftpServer) -> None:
    found = refusal(with_options(server, no_such_option=1))
    assert isinstance(found, Unsupported)
    assert "options" in found.hint


def test_nobody_listens(tmp_path: Path) -> None:
    found = refusal(TierSpec(name="t", url="sftp://me@127.0.0.1:1/a", options={"known_hosts": "/dev/null"}))
    assert isinstance(found, TierUnavailable)


def test_a_server_without_hard_links(tmp_path: Path) -> None:
    """It is told, with the way out; nothing racy happens in their place."""
    (tmp_path / "served").mkdir()
    with (
        SftpServer(tmp_path / "served", tmp_path, extensions=False) as server,
        closing(open_fsspec(sftp_spec(server, ""))) as tier,
    ):
        with pytest.raises(Unsupported) as caught:
            tier.create(Key("a"), b"x")
        assert "sftp-basic" in caught.value.hint
        assert tier.list_objects("").objects == ()
