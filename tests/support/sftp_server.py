"""An SFTP server over a folder, on this machine's loopback, in threads of the test's process.

It speaks what OpenSSH's does and paramiko's toolkit leaves out: exclusive opens, renames
that replace and renames that do not, hard links and fsync.
"""

import errno
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import paramiko
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL, OPEN_SUCCEEDED
from paramiko.message import Message
from paramiko.sftp import CMD_EXTENDED, SFTP_FAILURE, SFTP_OK

HOST = "127.0.0.1"
Result = TypeVar("Result")
USER = "trainer"


class SftpServer:
    """Serves ``root``; ``key_file`` is the client's key, ``known_hosts`` what it should know.

    ``extensions``: whether hard links and fsync are offered.  ``room``: bytes that may still
    be written before the disk is full, None for no limit.
    """

    def __init__(self, root: Path, keys: Path, *, extensions: bool = True) -> None:
        self.root = root
        self.extensions = extensions
        self.room: int | None = None
        self.synced = 0
        self.logins = 0
        self.key_file = keys / "id_ecdsa"
        self.known_hosts = keys / "known_hosts"
        self._host_key = paramiko.ECDSAKey.generate()
        self.client_key = paramiko.ECDSAKey.generate()
        self.client_key.write_private_key_file(str(self.key_file))
        self._listener = socket.create_server((HOST, 0))
        self.port = int(self._listener.getsockname()[1])
        line = f"[{HOST}]:{self.port} {self._host_key.get_name()} {self._host_key.get_base64()}\n"
        self.known_hosts.write_text(line, encoding="ascii")
        self._transports: list[paramiko.Transport] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def url(self) -> str:
        """The tier's URL for the whole folder."""
        return f"sftp://{USER}@{HOST}:{self.port}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        self.drop()

    def drop(self) -> None:
        """Cut every connection."""
        transports, self._transports = self._transports, []
        for transport in transports:
            transport.close()
            transport.join(10)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            transport = paramiko.Transport(connection)
            transport.daemon = True
            transport.add_server_key(self._host_key)
            transport.set_subsystem_handler("sftp", _Session, _Folder, self)
            self._transports.append(transport)
            with suppress(paramiko.SSHException, EOFError):
                transport.start_server(event=threading.Event(), server=_Login(self))


class _Login(paramiko.ServerInterface):
    def __init__(self, server: SftpServer) -> None:
        self._server = server

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        known = username == USER and key == self._server.client_key
        self._server.logins += known
        return AUTH_SUCCESSFUL if known else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED


class _Session(paramiko.SFTPServer):
    """Adds two of OpenSSH's extensions."""

    def _process(self, t: int, request_number: int, msg: Message) -> None:
        folder = self.server
        assert isinstance(folder, _Folder)
        if t == CMD_EXTENDED and folder.owner.extensions:
            tag = msg.get_text()
            if tag == "hardlink@openssh.com":
                self._answer(request_number, folder.link(msg.get_text(), msg.get_text()))
                return
            if tag == "fsync@openssh.com":
                folder.owner.synced += 1
                self._answer(request_number, SFTP_OK)
                return
            msg.rewind()
            msg.get_int()
        super()._process(t, request_number, msg)  # type: ignore[misc]  # the stubs leave it out

    def _answer(self, request_number: int, code: int) -> None:
        self._send_status(request_number, code)  # type: ignore[attr-defined]  # as above


class _File(paramiko.SFTPHandle):
    def __init__(self, fd: int, flags: int, owner: SftpServer) -> None:
        super().__init__(flags)
        self._fd = fd
        self._owner = owner

    def read(self, offset: int, length: int) -> bytes | int:
        return os.pread(self._fd, length, offset)

    def write(self, offset: int, data: Any) -> int:
        owner = self._owner
        if owner.room is not None:
            if len(data) > owner.room:
                return SFTP_FAILURE  # all that the protocol can say of a full disk
            owner.room -= len(data)
        os.pwrite(self._fd, data, offset)
        return SFTP_OK

    def stat(self) -> paramiko.SFTPAttributes:
        return paramiko.SFTPAttributes.from_stat(os.fstat(self._fd))

    def close(self) -> None:
        os.close(self._fd)


class _Folder(paramiko.SFTPServerInterface):
    def __init__(self, server: paramiko.ServerInterface, owner: SftpServer, *_: Any) -> None:
        super().__init__(server)
        self.owner = owner

    def _real(self, path: str) -> str:
        return f"{self.owner.root}/{path.lstrip('/')}"

    def list_folder(self, path: str) -> list[paramiko.SFTPAttributes] | int:
        def act() -> list[paramiko.SFTPAttributes]:
            found = []
            for entry in os.scandir(self._real(path)):
                with suppress(FileNotFoundError):
                    found.append(paramiko.SFTPAttributes.from_stat(entry.stat(follow_symlinks=False), entry.name))
            return found

        return _answer(act)

    def stat(self, path: str) -> paramiko.SFTPAttributes | int:
        return _answer(lambda: paramiko.SFTPAttributes.from_stat(os.stat(self._real(path))))  # noqa: PTH116

    def lstat(self, path: str) -> paramiko.SFTPAttributes | int:
        return _answer(lambda: paramiko.SFTPAttributes.from_stat(os.lstat(self._real(path))))

    def open(self, path: str, flags: int, attr: paramiko.SFTPAttributes) -> paramiko.SFTPHandle | int:
        return _answer(lambda: _File(os.open(self._real(path), flags, 0o666), flags, self.owner))

    def remove(self, path: str) -> int:
        return _done(lambda: os.remove(self._real(path)))  # noqa: PTH107

    def rename(self, oldpath: str, newpath: str) -> int:
        if os.path.lexists(self._real(newpath)):
            return SFTP_FAILURE
        return self.posix_rename(oldpath, newpath)

    def posix_rename(self, oldpath: str, newpath: str) -> int:
        return _done(lambda: os.rename(self._real(oldpath), self._real(newpath)))  # noqa: PTH104

    def link(self, oldpath: str, newpath: str) -> int:
        return _done(lambda: os.link(self._real(oldpath), self._real(newpath)))

    def mkdir(self, path: str, attr: paramiko.SFTPAttributes) -> int:
        return _done(lambda: os.mkdir(self._real(path)))  # noqa: PTH102

    def rmdir(self, path: str) -> int:
        return _done(lambda: os.rmdir(self._real(path)))  # noqa: PTH106


def _answer(act: Callable[[], Result]) -> Result | int:
    try:
        return act()
    except OSError as error:
        return paramiko.SFTPServer.convert_errno(error.errno or errno.EIO)


def _done(act: Callable[[], None]) -> int:
    return _answer(act) or SFTP_OK
