"""s3fs: put and get of a folder, as fsspec does them."""

from pathlib import Path

import s3fs

from benchmarks.sidebyside.clients.marks import operation, spec


def main() -> None:
    """Move every file of a folder."""
    asked = spec()
    source, place = Path(asked["source"]), f"{asked['bucket']}/{asked['prefix']}"
    names = sorted(path.name for path in source.iterdir())
    here = [str(source / name) for name in names]
    there = [f"{place}/{name}" for name in names]
    with operation():
        files = s3fs.S3FileSystem(endpoint_url=asked["endpoint"])
        if asked["action"] == "up":
            files.put(here, there)
        else:
            files.get(there, [str(Path(asked["target"]) / name) for name in names])


main()
