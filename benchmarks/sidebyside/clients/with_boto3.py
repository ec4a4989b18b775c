"""boto3's own transfer, in four ways.

``default``: as it comes.  ``tuned``: large parts and few threads, payload and checksum as they come.
``unsigned``: the same, told to hash nothing.  ``sha256``: unsigned, but the store is asked to check SHA-256.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

from benchmarks.sidebyside.clients.marks import operation, spec

MIB = 1 << 20
PART = 64 * MIB
SMALL_AT_ONCE = 8
LARGE_AT_ONCE = 2


def _client(asked: dict[str, Any]) -> Any:
    way = asked["way"]
    options: dict[str, Any] = {"s3": {"addressing_style": "path"}, "max_pool_connections": 16}
    if way in ("unsigned", "sha256"):
        options["s3"]["payload_signing_enabled"] = False
        options["request_checksum_calculation"] = "when_required"
        options["response_checksum_validation"] = "when_required"
    return boto3.client("s3", endpoint_url=asked["endpoint"], config=Config(**options), verify=asked.get("ca"))


def main() -> None:
    """Move every file of a folder."""
    asked = spec()
    source, bucket, prefix = Path(asked["source"]), asked["bucket"], asked["prefix"]
    names = sorted(path.name for path in source.iterdir())
    large = (source / names[0]).stat().st_size > 8 * MIB
    transfer = TransferConfig()
    if asked["way"] != "default":
        transfer = TransferConfig(multipart_threshold=PART, multipart_chunksize=PART, max_concurrency=LARGE_AT_ONCE)
    more = {"ChecksumAlgorithm": "SHA256"} if asked["way"] == "sha256" else None
    with operation():
        client = _client(asked)

        def move(name: str) -> None:
            if asked["action"] == "up":
                client.upload_file(str(source / name), bucket, f"{prefix}/{name}", Config=transfer, ExtraArgs=more)
            else:
                client.download_file(bucket, f"{prefix}/{name}", str(Path(asked["target"]) / name), Config=transfer)

        with ThreadPoolExecutor(LARGE_AT_ONCE if large else SMALL_AT_ONCE) as pool:
            list(pool.map(move, names))


main()
