"""Paths: refused alike when sealing, uploading and restoring."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicate.errors import IntegrityFailure
from replicate.layout import RemoteRun, encode_path
from replicate.paths import UnsafePath, check_path, check_paths

AWKWARD = ["w+b.bin", "a b.pt", "x#1", "q?.pt", "50%25.bin", "it's.pt", ".hidden", "é.pt", "dir/.metadata"]


@pytest.mark.parametrize("path", [*AWKWARD, "x" * 255, "/".join(["d" * 15] * 64), "connect", "com10", "a/nullable.pt"])
def test_path_is_taken(path: str) -> None:
    """Names that other tools stumble over, and names right at the limits."""
    assert check_path(path) == path


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "empty"),
        ("..", "component '..'"),
        ("a/../b", "component '..'"),
        ("a/./b", "component '.'"),
        ("a//b", "component ''"),
        ("a/", "component ''"),
        ("/etc/passwd", "absolute"),
        ("//server/share", "absolute"),
        ("C:/windows", "absolute"),
        ("c:evil", "absolute"),
        ("\\\\server\\share", "backslash"),
        ("a\\b", "backslash"),
        ("a\0b", "control"),
        ("a\nb", "control"),
        ("a\x7fb", "control"),
        ("a\x85b", "control"),
        ("con", "reserved"),
        ("a/NUL.txt", "reserved"),
        ("nul .txt", "reserved"),
        ("Com1", "reserved"),
        ("lpt¹.bin", "reserved"),
        ("CONIN$", "reserved"),
        ("a.", "dot"),
        ("a /b", "space"),
        ("x" * 256, "255 bytes"),
        ("é" * 128, "255 bytes"),
        ("/".join(["d" * 204] * 5) + "/x", "1024 bytes"),
        ("/".join("d" * 65), "64 deep"),
        ("bad-\ud800", "UTF-8"),
    ],
)
def test_path_is_refused(path: str, reason: str) -> None:
    with pytest.raises(UnsafePath, match=re.escape(reason)):
        check_path(path)


def test_path_of_1024_bytes_is_taken() -> None:
    assert check_path("/".join(["d" * 204] * 5))


@pytest.mark.parametrize(
    ("files", "directories"),
    [
        (["a", "a"], []),
        (["Model.pt", "model.pt"], []),
        (["é.pt", unicodedata.normalize("NFD", "é.pt")], []),
        (["straße", "STRASSE"], []),
        (["a", "a/b"], []),
        (["A", "a/b"], []),
        (["a"], ["a"]),
        (["a/b"], ["a"]),
        (["a"], ["a/b"]),
        (["A/x", "a/y"], []),
        (["é/x", unicodedata.normalize("NFD", "é/y")], []),
        (["A/x"], ["a/y"]),
    ],
)
def test_sets_that_would_collide_somewhere_are_refused(files: list[str], directories: list[str]) -> None:
    """A file system that folds case or normalises would restore fewer files, or other ones."""
    with pytest.raises(UnsafePath):
        check_paths(files, directories)


def test_set_without_collisions_is_taken() -> None:
    check_paths(["a/b/c", "a/b/d", "a/e", "x"], ["a/empty", "y"])


def test_unsafe_path_is_an_integrity_failure() -> None:
    """A manifest with such a path is hostile: exit code 5, and the whole path is not echoed for ever."""
    with pytest.raises(IntegrityFailure) as caught:
        check_path("../" + "x" * 5000)
    assert len(caught.value.message) < 400


def valid(path: str) -> bool:
    try:
        check_path(path)
    except UnsafePath:
        return False
    return True


NAME = st.one_of(
    st.sampled_from([name for name in AWKWARD if "/" not in name] + ["%41", "A", "~", "~" + "0" * 64]),
    st.text(alphabet=st.sampled_from("aAé%~ +#/.\u0301💾"), min_size=1, max_size=80),
    st.text(min_size=1, max_size=120),
)
PATHS = st.lists(NAME, min_size=1, max_size=12).map("/".join).filter(valid)


@given(PATHS, PATHS)
def test_encoding_is_injective_and_plain(one: str, other: str) -> None:
    """Two files never share a key, and every tier stores every key literally."""
    assert (encode_path(one) == encode_path(other)) == (one == other)
    key = RemoteRun.of("r" * 63).object("r" * 63 + "/generations/" + "g" * 100 + "/", one)
    assert re.fullmatch(r"[A-Za-z0-9._/%~-]+", key)
    assert len(key) <= 1024
    assert not {"", ".", ".."} & set(key.split("/"))
    assert all(len(name) <= 200 for name in encode_path(one).split("/"))


@pytest.mark.parametrize("path", ["/".join(["é" * 15] * 32), "/".join(["d" * 204] * 5), "x" * 255])
def test_key_of_a_long_path_fits_every_store(path: str) -> None:
    """A path at the limit may be sealed, so its key has to be storable: 1,024 bytes with all prefixes."""
    assert len(encode_path(path)) <= 700


def test_plain_names_stay_readable() -> None:
    """Any tool can read the tree on the tier."""
    assert encode_path("sub/model-00001.safetensors") == "sub/model-00001.safetensors"
    assert encode_path("a b.pt") == "a%20b.pt"
    assert encode_path("~x") == "%7Ex"
