"""SFTP through fsspec: known hosts, deadlines, and writes whose failures are seen.

Hazards of what lies below, each met here: fsspec trusts any host key at the first
connection; paramiko's client is not safe to share between threads (a reply that another
thread waits for is dropped); pipelined writes lose the errors of those still under way
when the file is closed, and closing hides its own.

Two extensions that OpenSSH defines are asked for by hand, because paramiko has no method
for them: ``hardlink@openssh.com``, which makes a create that cannot replace anything, and
``fsync@openssh.com``, which makes bytes durable before they get their name.
"""

import logging
import stat
from collections.abc import Iterable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import paramiko
from fsspec.implementations.sftp import SFTPFileSystem  # type: ignore[import-untyped]
from paramiko.sftp import CMD_EXTENDED

from tiers.fsspec_backends import BadAnswer, Source
from tiers.fsspec_folders import FolderBackend
from tiers.fsspec_stores import MIB, CreateBy

CONNECT_TIMEOUT = 10.0
_KEEPALIVE = 30
_REQUEST = 1 << 15
"""Bytes in one SFTP write, so that this many at the end of a piece wait for all replies before them."""
SYSTEM_HOSTS = Path("/etc/ssh/ssh_known_hosts")


class UnknownHostKey(paramiko.SSHException):
    """The server is not in known_hosts."""


class NoHardLinks(Exception):
    """The server does not know hardlink@openssh.com."""


class _Refuse(paramiko.MissingHostKeyPolicy):
    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        del client, key
        raise UnknownHostKey(hostname)


class KnownHostsFileSystem(SFTPFileSystem):  # type: ignore[misc]  # fsspec has no types
    """fsspec's filesystem, connecting only to servers that ``known_hosts`` (a path) or the user's own files name."""

    cachable = False

    def __init__(self, host: str, *, known_hosts: str | None = None, reply_timeout: float, **ssh: Any) -> None:
        self._known_hosts = known_hosts
        self._reply_timeout = reply_timeout
        super().__init__(host, **ssh)

    def _connect(self) -> None:
        client = paramiko.SSHClient()
        if self._known_hosts is not None:
            client.load_host_keys(self._known_hosts)
        else:
            client.load_system_host_keys()
            if SYSTEM_HOSTS.exists():
                client.load_system_host_keys(str(SYSTEM_HOSTS))
        client.set_missing_host_key_policy(_Refuse())
        try:
            self._log_in(client)
            self.ftp = client.open_sftp()
            channel = self.ftp.get_channel()
            transport = client.get_transport()
            if channel is not None and transport is not None:  # always, once it is connected
                channel.settimeout(self._reply_timeout)
                transport.set_keepalive(_KEEPALIVE)
        except BaseException:
            client.close()
            raise
        self.client = client

    def _log_in(self, client: paramiko.SSHClient) -> None:
        try:
            client.connect(self.host, **self.ssh_kwargs)
        except paramiko.SSHException as error:
            # A key file is tried as every type of key, and only the last failure is told: "not a valid … key".
            transport = client.get_transport()
            if type(error) is paramiko.SSHException and transport is not None and transport.is_active():
                raise paramiko.AuthenticationException from error
            raise


def connect(options: dict[str, Any], timeout: float) -> KnownHostsFileSystem:
    """Connect, and wait ``timeout`` seconds for each reply.

    The SDK's own log, which prints tracebacks where nobody listens, is turned off.
    """
    logger = logging.getLogger("paramiko")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)
    limits = {"timeout": CONNECT_TIMEOUT, "banner_timeout": timeout, "auth_timeout": timeout, "reply_timeout": timeout}
    return KnownHostsFileSystem(**{**limits, **options}, skip_instance_cache=True)  # it keeps no listings


class SftpBackend(FolderBackend):
    """Objects as files on an SFTP server.  One connection serves one thread at a time."""

    shared = False
    prunes = True
    window = 2 * MIB
    _fsync = True

    def open(self, key: str) -> Source:
        """Open and ask the handle what it is, so that size and bytes are of one file."""
        with ExitStack() as stack:
            file = stack.enter_context(closing(self.fs.open(self.path(key), "rb")))
            info = file.stat()
            if not stat.S_ISREG(info.st_mode or 0):
                raise FileNotFoundError(key)
            stack.pop_all()
        return _SftpSource(file, info.st_size or 0)

    def write(self, path: str, size: int, chunks: Iterable[memoryview]) -> None:
        """Write exclusively, piece by piece; each piece waits for its replies before the next."""
        del size
        file = self.fs.open(path, "wxb")
        try:
            for chunk in chunks:
                file.set_pipelined(True)
                file.write(chunk[:-_REQUEST])
                # The last request is not pipelined: it collects every reply before it, and so their errors.
                file.set_pipelined(False)
                file.write(chunk[-_REQUEST:])
            self._make_durable(file)
        finally:
            file.close()

    def replace(self, source: str, target: str) -> None:
        """Rename, replacing; a basic server that cannot is left without the object for a moment."""
        try:
            self.fs.ftp.posix_rename(source, target)
        except OSError as error:
            if self.store.create_by is CreateBy.HARD_LINK or not _is_unsupported(error):
                raise
            with suppress(FileNotFoundError):
                self.fs.ftp.remove(target)
            self.fs.ftp.rename(source, target)

    def link_new(self, source: str, target: str) -> None:
        """Hard-link where the store is known to, else look and rename."""
        try:
            if self.store.create_by is CreateBy.HARD_LINK:
                self._extended("hardlink@openssh.com", source, target)
            elif self.refuse_folder(target):
                raise FileExistsError(target)
            else:
                self.fs.ftp.rename(source, target)
        except OSError as error:
            if error.errno is not None or isinstance(error, FileExistsError):
                raise
            if _is_unsupported(error):
                raise NoHardLinks from error
            # The protocol has one word, "failure", for a name that is taken and for a full disk.
            if self.refuse_folder(target):
                raise FileExistsError(target) from error
            raise

    def make_folder(self, path: str) -> None:
        """Make one folder; fsspec's ``mkdir`` asks first, and takes a failure to ask for an absence."""
        self.fs.ftp.mkdir(path)

    def close(self) -> None:
        """Close channel and connection."""
        self.fs.ftp.close()
        self.fs.client.close()

    def _make_durable(self, file: Any) -> None:
        if not self._fsync:
            return
        try:
            self._extended("fsync@openssh.com", file.handle)
        except OSError as error:
            if not _is_unsupported(error):
                raise
            self._fsync = False  # then a close is as durable as this server makes anything

    def _extended(self, name: str, *arguments: str | bytes) -> None:
        self.fs.ftp._request(CMD_EXTENDED, name, *arguments)  # noqa: SLF001 - as paramiko's own posix_rename does


class _SftpSource:
    """Reads a window at a time, its requests sent together: one by one they are ten times slower, on loopback too."""

    def __init__(self, file: Any, size: int) -> None:
        self._file = file
        self.size = size
        # paramiko sends them from a thread of its own, whose failure nobody would catch; these few need none
        file._start_prefetch = self._send  # noqa: SLF001 - as above

    def fetch(self, position: int, count: int) -> bytes:
        found = next(iter(self._file.readv([(position, count)])), None)
        if found is None:
            raise BadAnswer
        return bytes(found)

    def close(self) -> None:
        self._file.close()

    def _send(self, chunks: list[tuple[int, int]], _limit: int | None = None) -> None:
        self._file._prefetching, self._file._prefetch_done = True, False  # noqa: SLF001 - as above
        self._file._prefetch_thread(chunks, None)  # noqa: SLF001 - as above


def _is_unsupported(error: OSError) -> bool:
    return error.errno is None and "unsupported" in str(error).lower()
