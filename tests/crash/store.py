"""An independent look at what a store holds."""

import hashlib
import json
from pathlib import Path

from crash.stage import RUN

from replicate import RunStore, canonical
from replicate.generation.evidence import Level


def check_whole(root: Path) -> list[int]:
    """Check that every generation which can be seen is exactly what it says; returns their sequences."""
    folder = root / "generations"
    sequences = []
    for one in sorted(folder.iterdir()) if folder.is_dir() else []:
        document = json.loads((one / "generation.json").read_bytes())
        assert document["id"] == one.name
        sequences.append(document["sequence"])
        found = {str(path.relative_to(one / "files")) for path in (one / "files").rglob("*") if path.is_file()}
        assert found == {file["path"] for file in document["files"]}
        for file in document["files"]:
            data = (one / "files" / file["path"]).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (file["size"], file["sha256"])
        assert all((one / "files" / path).is_dir() for path in document["directories"])
    assert len(set(sequences)) == len(sequences)
    return sequences


def check_latest(root: Path) -> None:
    """Check that LATEST.json, where there is one, names a generation that is there and good."""
    hint = root / "LATEST.json"
    if not hint.exists():
        return
    document = json.loads(hint.read_bytes())
    store = RunStore(root, run=RUN)
    named = store.get(document["generation"])
    assert named.level.reaches(Level.VALIDATED)
    assert canonical.sha256(named.record_bytes) == document["generation_sha256"]


def leftovers(root: Path) -> list[str]:
    return [path.name for path in root.iterdir() if path.name.startswith((".incoming", ".staged", ".tmp", ".trash"))]
