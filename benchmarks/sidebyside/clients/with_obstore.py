"""obstore, which is Rust's object_store: its own multipart upload and its streams.

``default`` hashes the body for the signature; ``unsigned`` hashes nothing; ``sha256`` has the store check SHA-256.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

import obstore
from obstore.store import S3Store

from benchmarks.sidebyside.clients.marks import operation, spec

AT_ONCE = 16
CHUNK = 8 << 20


async def _move_all(asked: dict[str, Any], store: Any, names: list[str]) -> None:
    source, prefix = Path(asked["source"]), asked["prefix"]
    gate = asyncio.Semaphore(AT_ONCE)

    async def move(name: str) -> None:
        async with gate:
            if asked["action"] == "up":
                await obstore.put_async(store, f"{prefix}/{name}", source / name)
                return
            answer = await obstore.get_async(store, f"{prefix}/{name}")
            with (Path(asked["target"]) / name).open("wb", buffering=0) as stream:
                async for chunk in answer.stream(min_chunk_size=CHUNK):
                    stream.write(chunk)

    await asyncio.gather(*map(move, names))


def main() -> None:
    """Move every file of a folder."""
    asked = spec()
    options: dict[str, Any] = {"timeout": "600s"}
    if asked.get("ca"):
        options["allow_invalid_certificates"] = True
    else:
        options["allow_http"] = True
    way: dict[str, Any] = {
        "default": {},
        "unsigned": {"unsigned_payload": True},
        "sha256": {"checksum_algorithm": "SHA256"},
    }[asked["way"]]
    names = sorted(path.name for path in Path(asked["source"]).iterdir())
    with operation():
        store = S3Store(
            asked["bucket"],
            endpoint=asked["endpoint"],
            region="us-east-1",
            virtual_hosted_style_request=False,
            client_options=options,
            **way,
        )
        asyncio.run(_move_all(asked, store, names))
    os._exit(0)  # its runtime sometimes aborts when the interpreter ends, long after the work is done


main()
