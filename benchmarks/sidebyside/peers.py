"""Who is measured: how each client is started, and what it verifies as it comes."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.sidebyside.servers import BUCKET, ROOT

PEERS = ROOT / ".venv" / "peers"
UP, DOWN = "up", "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One transfer of all files of ``source``; downloads go to ``target``.  ``ca`` is there for TLS."""

    action: str
    endpoint: str
    prefix: str
    source: Path
    target: Path
    ca: Path | None = None

    def spec(self, **more: Any) -> str:
        """Return it for a child of ours."""
        return json.dumps(
            {
                "action": self.action,
                "endpoint": self.endpoint,
                "bucket": BUCKET,
                "prefix": self.prefix,
                "source": str(self.source),
                "target": str(self.target),
                "ca": str(self.ca) if self.ca else None,
                **more,
            }
        )


Command = Callable[[Task], list[str]]
Variables = Callable[[Task], Mapping[str, str]]


def _nothing(_task: Task) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One client.  ``proof_up`` and ``proof_down`` say what it verifies by default.

    ``seldom``: so slow that one round has to do.  ``down_as``: whose downloads are the same, and not measured again.
    ``program``: measured as a whole process, for it has no imports to wait for.
    """

    name: str
    command: Command
    proof_up: str
    proof_down: str = "none"
    program: bool = False
    needs: Path | None = None
    variables: Variables = field(default=_nothing)
    actions: tuple[str, ...] = (UP, DOWN)
    seldom: bool = False
    down_as: str = ""

    @property
    def missing(self) -> bool:
        """Whether it could not be installed."""
        return self.needs is not None and not self.needs.exists()


def _python(module: str, folder: str = "", **more: Any) -> tuple[Command, Variables]:
    def command(task: Task) -> list[str]:
        return [sys.executable, "-m", f"benchmarks.sidebyside.clients.{module}", task.spec(**more)]

    def variables(_task: Task) -> Mapping[str, str]:
        return {"PYTHONPATH": f"{ROOT}:{PEERS / folder}"} if folder else {}

    return command, variables


def _boto3(way: str, proof_up: str, *, seldom: bool = False, down_as: str = "") -> Peer:
    command, variables = _python("with_boto3", way=way)
    return Peer(
        name=f"boto3-{way}",
        command=command,
        variables=variables,
        proof_up=proof_up,
        seldom=seldom,
        down_as=down_as,
    )


def _obstore(way: str, proof_up: str, down_as: str = "") -> Peer:
    command, variables = _python("with_obstore", "obstore", way=way)
    name = "obstore" if way == "default" else f"obstore-{way}"
    return Peer(
        name=name,
        command=command,
        variables=variables,
        proof_up=proof_up,
        needs=PEERS / "obstore" / ".stamp",
        down_as=down_as,
    )


def _library(
    name: str, module: str, proof_up: str, *, apart: bool = True, actions: tuple[str, ...] = (UP, DOWN)
) -> Peer:
    command, variables = _python(module, name if apart else "")
    needs = PEERS / name / ".stamp" if apart else None
    return Peer(
        name=name, command=command, variables=variables, proof_up=proof_up, needs=needs, actions=actions, seldom=True
    )


_S5CMD = PEERS / "s5cmd" / "s5cmd" / "bin" / "s5cmd"


def _s5cmd(task: Task) -> list[str]:
    place = f"s3://{BUCKET}/{task.prefix}"
    ends = [f"{task.source}/*", f"{place}/"] if task.action == UP else [f"{place}/*", f"{task.target}/"]
    more = ["--no-verify-ssl"] if task.ca else []
    return [str(_S5CMD), "--endpoint-url", task.endpoint, *more, "--log", "error", "cp", *ends]


def _rclone(*more: str) -> tuple[Command, Variables]:
    def command(task: Task) -> list[str]:
        place = f"bench:{BUCKET}/{task.prefix}"
        ends = [str(task.source), place] if task.action == UP else [place, str(task.target)]
        program = str(Path(sys.executable).with_name("rclone"))
        return [program, "copy", *ends, "--config", "", "--s3-no-check-bucket", "--quiet", *more]

    def variables(task: Task) -> Mapping[str, str]:
        return {
            "RCLONE_CONFIG_BENCH_TYPE": "s3",
            "RCLONE_CONFIG_BENCH_PROVIDER": "Other",
            "RCLONE_CONFIG_BENCH_ENV_AUTH": "true",
            "RCLONE_CONFIG_BENCH_REGION": "us-east-1",
            "RCLONE_CONFIG_BENCH_ENDPOINT": task.endpoint,
        }

    return command, variables


def _rclone_peer(name: str, proof_up: str, proof_down: str, *more: str, seldom: bool = False) -> Peer:
    command, variables = _rclone(*more)
    return Peer(
        name=name,
        command=command,
        variables=variables,
        proof_up=proof_up,
        proof_down=proof_down,
        program=True,
        seldom=seldom,
        needs=Path(sys.executable).with_name("rclone"),
    )


def _awscli(task: Task) -> list[str]:
    place = f"s3://{BUCKET}/{task.prefix}/"
    ends = [f"{task.source}/", place] if task.action == UP else [place, f"{task.target}/"]
    shared = ["s3", "cp", "--recursive", "--only-show-errors", "--endpoint-url", task.endpoint, *ends]
    return [sys.executable, str(PEERS / "awscli" / "bin" / "aws"), *shared]


BOTO3_DEFAULT = _boto3("default", "signed SHA-256, CRC32", seldom=True)
BOTO3_TUNED = _boto3("tuned", "signed SHA-256, CRC32", down_as="boto3-unsigned")
BOTO3_UNSIGNED = _boto3("unsigned", "none")
BOTO3_SHA256 = _boto3("sha256", "store-checked SHA-256", down_as="boto3-unsigned")
OBSTORE = _obstore("default", "signed SHA-256", "obstore-unsigned")
OBSTORE_UNSIGNED = _obstore("unsigned", "none")
OBSTORE_SHA256 = _obstore("sha256", "store-checked SHA-256", "obstore-unsigned")
S5CMD = Peer(name="s5cmd", command=_s5cmd, proof_up="Content-MD5, signed SHA-256", program=True, needs=_S5CMD)
RCLONE = _rclone_peer("rclone", "MD5", "MD5 where known", seldom=True)
RCLONE_BARE = _rclone_peer(
    "rclone-bare",
    "none",
    "none",
    "--ignore-checksum",
    "--s3-disable-checksum",
    "--s3-use-unsigned-payload=true",
    "--s3-upload-concurrency=4",
    "--s3-chunk-size=16M",
    "--transfers=8",
)
USUAL = (
    BOTO3_DEFAULT,
    BOTO3_TUNED,
    BOTO3_UNSIGNED,
    BOTO3_SHA256,
    S5CMD,
    RCLONE,
    RCLONE_BARE,
    OBSTORE,
    OBSTORE_UNSIGNED,
)
MORE = (
    Peer(
        name="awscli",
        command=_awscli,
        proof_up="signed SHA-256, CRC64",
        program=True,
        seldom=True,
        needs=PEERS / "awscli" / ".stamp",
        variables=lambda _task: {"PYTHONPATH": f"{ROOT}:{PEERS / 'awscli'}", "AWS_CONFIG_FILE": "/dev/null"},
    ),
    _library("minio", "with_minio", "signed SHA-256"),
    _library("s3fs", "with_s3fs", "signed SHA-256", apart=False),
    _library("s3torchconnector", "with_s3torch", "CRC32C"),
    _library("moonclip", "with_moonclip", "xxh3 of its own", actions=(UP,)),
)
KNOWN = (*USUAL, OBSTORE_SHA256, *MORE)
