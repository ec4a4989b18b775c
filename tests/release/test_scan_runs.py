"""Printable runs in binary data: each of them whole, wherever pieces of the file end."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replicate.release.scan import runs


@settings(max_examples=80)
@given(
    data=st.lists(st.one_of(st.binary(max_size=12), st.text("abc /", max_size=60).map(str.encode))).map(b"".join),
    piece=st.integers(1, 40),
)
def test_runs_do_not_depend_on_pieces(tmp_path_factory: pytest.TempPathFactory, data: bytes, piece: int) -> None:
    path = tmp_path_factory.mktemp("runs") / "data"
    path.write_bytes(b"\0\0" + data + b"\0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "_PIECE", piece)
        found = list(runs.printable_runs(path, 2, 2 + len(data)))
    assert found == [run.decode() for run in re.findall(rb"[\x20-\x7e]{8,}", data)]


def test_a_run_longer_than_a_piece_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "data"
    text = ("0123456789" * 2_000)[: runs.MAX_RUN * 3 + 100]
    path.write_bytes(b"\0" + text.encode() + b"\0")
    assert "".join(runs.printable_runs(path, 0, path.stat().st_size)) == text
