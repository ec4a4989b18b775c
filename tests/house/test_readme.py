"""The README's quickstart, run as it stands: what a tired person pastes has to work."""

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_quickstart_works(tmp_path: Path) -> None:
    """Publish, init, check, replicate, status, safe-to-terminate, lose the store, restore, go on."""
    text = README.read_text(encoding="utf-8")
    script = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    block = re.search(r"^Then, in the same folder:\n\n((?: {4}.*\n)+)", text, re.MULTILINE)
    assert script is not None
    assert block is not None
    (tmp_path / "train.py").write_text(script[1], encoding="utf-8")
    commands = re.sub(r"^ {4}", "", block[1], flags=re.MULTILINE)
    verbs = re.findall(r"^ckptier ([a-z-]+)", commands, re.MULTILINE)
    assert verbs == ["init", "check", "replicate", "status", "safe-to-terminate", "restore"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0, done.stderr
    assert "{'next_update': 30, " in done.stdout
    assert "restart from update 30" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("{'next_update': 60, ")
