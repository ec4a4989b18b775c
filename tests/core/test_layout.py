"""Names of runs and generations, and where their things lie."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicate.errors import ConfigInvalid, UsageError
from replicate.layout import GenerationId, RemoteRun, new_nonce, run_name

IDS = st.builds(
    GenerationId,
    st.integers(0, 10**9 - 1),
    st.integers(0, 10**12 - 1),
    st.integers(0, 10**18 - 1),
    st.from_regex(r"[0-9a-f]{8}", fullmatch=True),
)


@given(IDS)
def test_id_survives_its_text(one: GenerationId) -> None:
    assert GenerationId.parse(str(one)) == one


@given(IDS, IDS)
def test_order_is_attempt_then_sequence(one: GenerationId, other: GenerationId) -> None:
    """Never the text: a10000 sorts before a9999 there, and never the update."""
    if (one.attempt, one.sequence) != (other.attempt, other.sequence):
        assert (one < other) == ((one.attempt, one.sequence) < (other.attempt, other.sequence))


def test_newest_after_a_rollback_is_the_later_attempt_not_the_higher_update() -> None:
    before = GenerationId(1, 5, 500, "0" * 8)
    after = GenerationId(2, 6, 220, "0" * 8)
    assert max(before, after) == after
    assert max(GenerationId(9_999, 1, 0, "0" * 8), GenerationId(10_000, 1, 0, "0" * 8)).attempt == 10_000


def test_example_of_the_docs() -> None:
    assert str(GenerationId(2, 6, 220, "1f3a9c2e")) == "a0002-g000006-u000000000220-1f3a9c2e"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a1-g1-u1-1f3a9c2e",
        "a00002-g000006-u000000000220-1f3a9c2e",
        "a0002-g000006-u000000000220-1F3A9C2E",
        "a0002-g000006-u000000000220-1f3a9c2e\n",
        "a\u0660\u0660\u0660\u0662-g000006-u000000000220-1f3a9c2e",
        "../a0002-g000006-u000000000220-1f3a9c2e",
        "x" * 100_000,
    ],
)
def test_anything_else_is_no_id(text: str) -> None:
    with pytest.raises(UsageError, match="not a generation id") as caught:
        GenerationId.parse(text)
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("name", ["a", "0", "llm-7b", "a.b_c-d", "r" * 63])
def test_run_name_is_taken(name: str) -> None:
    assert run_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "../x", "a/b", "A", "-a", ".a", "a..b", "a b", "r" * 64, "a\n", "é", "a\\b", "a%2F", "a:b"]
)
def test_run_name_is_refused(name: str) -> None:
    """The name becomes a folder and a key prefix: it must not lead anywhere else."""
    with pytest.raises(ConfigInvalid, match="run name"):
        RemoteRun.of(name)


def test_log_keys_name_their_slot() -> None:
    remote = RemoteRun.of("llm-7b")
    assert remote.log(12) == "llm-7b/log/000000000012.json"
    assert remote.slot(remote.log(12)) == 12
    for stranger in ("llm-7b/log/12.json", "llm-7b/log/000000000012.json.bak", "other/log/000000000012.json"):
        assert remote.slot(type(remote.head)(stranger)) is None


def test_prefix_carries_term_and_nonce_and_nonces_do_not_repeat() -> None:
    prefix = RemoteRun.of("r").prefix(GenerationId(1, 2, 3, "0" * 8), 4, "ab")
    assert prefix == "r/generations/a0001-g000002-u000000000003-00000000.t4-ab/"
    assert len({new_nonce() for _ in range(100)}) == 100
