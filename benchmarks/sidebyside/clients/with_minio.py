"""minio-py: fput_object and fget_object, some at once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from minio import Minio

from benchmarks.sidebyside.clients.marks import operation, spec
from benchmarks.sidebyside.servers import ACCESS_KEY, SECRET_KEY

AT_ONCE = 4


def main() -> None:
    """Move every file of a folder."""
    asked = spec()
    source, bucket, prefix = Path(asked["source"]), asked["bucket"], asked["prefix"]
    with operation():
        client = Minio(
            urlsplit(asked["endpoint"]).netloc,
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            secure=False,
            region="us-east-1",
        )

        def move(name: str) -> None:
            if asked["action"] == "up":
                client.fput_object(bucket, f"{prefix}/{name}", str(source / name))
            else:
                client.fget_object(bucket, f"{prefix}/{name}", str(Path(asked["target"]) / name))

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(move, sorted(path.name for path in source.iterdir())))


main()
