"""s3torchconnector: its client's writer and reader, a file after another."""

import shutil
from pathlib import Path

from s3torchconnector import S3ClientConfig
from s3torchconnector._s3client import S3Client

from benchmarks.sidebyside.clients.marks import operation, spec

CHUNK = 8 << 20


def main() -> None:
    """Move every file of a folder."""
    asked = spec()
    source, bucket, prefix = Path(asked["source"]), asked["bucket"], asked["prefix"]
    with operation():
        client = S3Client(
            "us-east-1", endpoint=asked["endpoint"], s3client_config=S3ClientConfig(force_path_style=True)
        )
        for name in sorted(path.name for path in source.iterdir()):
            key = f"{prefix}/{name}"
            if asked["action"] == "up":
                with (source / name).open("rb") as stream:
                    writer = client.put_object(bucket, key)
                    shutil.copyfileobj(stream, writer, CHUNK)
                    writer.close()
            else:
                with (Path(asked["target"]) / name).open("wb") as stream:
                    shutil.copyfileobj(client.get_object(bucket, key), stream, CHUNK)


main()
