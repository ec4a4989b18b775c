"""docs/providers.md says what is so: profiles, real servers, and policies that are enough and no more."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from cli.driver import Project
from support.moto_server import MotoServer
from support.rclone_server import RcloneServer
from support.seaweed import ACCESS_KEY, BUCKET, SECRET_KEY, SeaweedServer

from replicate.errors import ExitCode
from tiers.clock import SystemClock
from tiers.errors import AccessDenied
from tiers.opening import TierSpec, open_tier
from tiers.probing.outcomes import ProbeReport, Subject, Verdict
from tiers.probing.s3_probe import probe_s3
from tiers.profiles import PROFILES
from tiers.protocol import Key, walk
from tiers.testing.s3_emulator import AWS, Credentials, Operation, S3Emulator

DOCUMENT = Path(__file__).parents[2] / "docs" / "providers.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
POLICIES = dict(zip(("writer", "reader", "collector"), re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL), strict=False))
ALLOWED: Mapping[str, frozenset[Operation]] = {
    "s3:PutObject": frozenset(
        {Operation.PUT_OBJECT, Operation.CREATE_UPLOAD, Operation.UPLOAD_PART, Operation.COMPLETE_UPLOAD}
        | {Operation.UPLOAD_PART_COPY, Operation.COPY_OBJECT}
    ),
    "s3:GetObject": frozenset({Operation.GET_OBJECT, Operation.HEAD_OBJECT}),
    "s3:DeleteObject": frozenset({Operation.DELETE_OBJECT}),
    "s3:AbortMultipartUpload": frozenset({Operation.ABORT_UPLOAD}),
    "s3:ListMultipartUploadParts": frozenset({Operation.LIST_PARTS}),
    "s3:ListBucket": frozenset({Operation.LIST_OBJECTS_V2, Operation.HEAD_BUCKET}),
    "s3:ListBucketMultipartUploads": frozenset({Operation.LIST_MULTIPART_UPLOADS}),
    "s3:GetLifecycleConfiguration": frozenset({Operation.GET_BUCKET_LIFECYCLE}),
    "s3:GetBucketVersioning": frozenset({Operation.GET_BUCKET_VERSIONING}),
}
READER = Credentials(access_key="reader-key", secret_key="reader-secret")
COLLECTOR = Credentials(access_key="collector-key", secret_key="collector-secret")


def rows(heading: str) -> dict[str, list[str]]:
    """Return the table under a heading, by the first word of each row."""
    section = TEXT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].split()[0]: row[1:] for row in cells}


def policy(name: str) -> frozenset[Operation]:
    statements = json.loads(POLICIES[name])["Statement"]
    actions = [action for statement in statements for action in statement["Action"]]
    return frozenset().union(*(ALLOWED[action] for action in actions))


def test_every_profile_is_described_as_it_is() -> None:
    described = {name: (row[0], row[1]) for name, row in rows("Profiles").items()}
    assert described == {name: (known.fencing, known.verification) for name, known in PROFILES.items()}


def found(report: ProbeReport) -> list[str]:
    """Say what a probe found in the words of the table."""
    subjects = (Subject.SHA256_PUT, Subject.SHA256_PART, Subject.CONTENT_MD5, Subject.PAYLOAD_HASH)
    words = []
    for subject in subjects:
        outcome = report.outcome(subject)
        assert outcome is not None
        refused = outcome.verdict is Verdict.YES or "is refused" in outcome.evidence
        words.append("refused" if refused else "taken")
    winner, alone = report.outcome(Subject.ONE_WINNER), report.outcome(Subject.PUT_IF_ABSENT)
    assert alone is not None
    one = alone.verdict is Verdict.YES and winner is not None and winner.verdict is Verdict.YES
    return [*words, "one wins" if one else "all win"]


@pytest.mark.parametrize("name", ["seaweedfs", "rclone", "moto"])
def test_what_real_servers_refuse(
    name: str, seaweed: SeaweedServer, rclone: RcloneServer, moto: MotoServer, prefix: str
) -> None:
    servers: dict[str, SeaweedServer | RcloneServer | MotoServer]
    servers = {"seaweedfs": seaweed, "rclone": rclone, "moto": moto}
    spec = TierSpec(name=name, url=f"s3://{BUCKET}/{prefix}", endpoint_url=servers[name].endpoint_url)
    table = rows("Which bytes a server refuses itself")
    assert set(table) == set(servers)
    assert found(probe_s3(spec, nonce="docs", clock=SystemClock())) == table[name]


def test_the_policies_are_enough_and_keep_the_writer_from_deleting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = (
        Credentials(access_key=ACCESS_KEY, secret_key=SECRET_KEY, may=policy("writer")),
        replace(READER, may=policy("reader")),
        replace(COLLECTOR, may=policy("collector")),
    )
    with S3Emulator(AWS, buckets=(BUCKET,), credentials=keys) as emulator:
        project = Project(folder=tmp_path / "one", tiers={"store": f"s3://{BUCKET}/root"})
        settings = {"endpoint_url": emulator.endpoint_url, "profile": "aws", "region": "us-east-1"}
        project.write(**settings)
        project.publish(1)
        project("check", "--probe").says("may not delete", "small objects stay under .ckptier-probe/")
        assert project("replicate", "--once").code == ExitCode.OK

        become(monkeypatch, READER)
        other = Project(folder=tmp_path / "two", tiers=project.tiers).write(**settings)
        assert other("restore", "--to", str(tmp_path / "restored")).code == ExitCode.OK
        assert (tmp_path / "restored" / "model.bin").exists()
        project.publish(2)
        assert project("replicate", "--once").code == ExitCode.DENIED

        spec = TierSpec(name="store", url=f"s3://{BUCKET}/root", **settings)  # type: ignore[arg-type]
        become(monkeypatch, COLLECTOR)
        tier = open_tier(spec, clock=SystemClock())
        for info in list(walk(tier, ".ckptier-probe/")):
            tier.delete(info.key)
        tier.create(Key("toy/log/999"), b"an entry")
        tier.close()
        become(monkeypatch, READER)
        tier = open_tier(spec, clock=SystemClock())
        with pytest.raises(AccessDenied):
            tier.delete(Key("toy/log/999"))
        tier.close()


def become(monkeypatch: pytest.MonkeyPatch, who: Credentials) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", who.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", who.secret_key)


def test_the_rule_is_the_one_that_the_probe_looks_for() -> None:
    documents = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    (rule,) = json.loads(documents[3])["Rules"]
    assert rule["Status"] == "Enabled"
    assert rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"] > 0
