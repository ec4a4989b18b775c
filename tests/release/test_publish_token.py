"""The Hub's token: where it comes from, and that it is not told."""

from pathlib import Path

import pytest
from huggingface_hub import constants
from release.publish_hub_stage import REPO

from replicate.errors import ConfigInvalid
from replicate.release.destination import Destination, Visibility
from replicate.release.publishing.hub_library import resolve_token
from replicate.release.publishing.publishing import open_place, read_token
from tiers.testing import ManualClock

DESTINATION = Destination(url=f"hf://{REPO}", visibility=Visibility.PRIVATE)


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "tab\tbed", "ünicode"])
def test_a_token_that_is_none_is_refused_without_being_repeated(token: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        open_place(DESTINATION, clock=ManualClock(), token=token)
    assert token not in str(caught.value) + caught.value.hint
    path = tmp_path / "token"
    path.write_text(f"{token}\n")
    if token != "ünicode":
        with pytest.raises(ConfigInvalid) as caught:
            read_token(path)
        assert token not in str(caught.value) + caught.value.hint


def test_without_a_token_the_librarys_own_chain_is_asked_unless_it_is_switched_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_from_the_environment")
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", False)
    assert resolve_token(None) == "hf_from_the_environment"
    assert resolve_token(" hf_given\n") == "hf_given"
    assert resolve_token("") is None
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", True)
    assert resolve_token(None) is None


def test_a_token_comes_from_a_file_of_one_line(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("hf_secret\n")
    assert read_token(path) == "hf_secret"


@pytest.mark.parametrize("endpoint", ["http://hub.example", "ftp://hub.example", "hub.example"])
def test_a_token_is_not_sent_in_the_clear_beyond_this_machine(endpoint: str) -> None:
    destination = Destination(url=f"hf://{REPO}", endpoint=endpoint, visibility=Visibility.PRIVATE)
    with pytest.raises(ConfigInvalid, match=r"destination\.endpoint"):
        open_place(destination, clock=ManualClock(), token="hf_x")
