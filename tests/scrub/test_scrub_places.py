"""Several places, each hurt in its own way: what verify says still works is what a restore gives."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scrub.judge import config_of, restored, told, verified
from scrub.scene import PARTED, Objects, Scene, scene, write
from support.commits import REMOTE, RUN, flip, tamper

from replicate.errors import ExitCode
from replicate.layout import LocalRun
from replicate.render.verify import render_verified, verify_exit
from replicate.verify import Finding
from tiers.clock import SystemClock
from tiers.memory import MemoryTier
from tiers.opening import TierSpec, open_tier
from tiers.protocol import Key, Tier
from tiers.testing.s3_emulator import BUCKET, S3Emulator
from tiers.volume import VolumeTier

BENDS = ("flip", "cut", "longer", "delete")


def bend(objects: Objects, key: str, how: str, at: int) -> None:
    data = objects.pop(key)
    if how == "flip" and data:
        objects[key] = flip(at % len(data))(data)
    elif how == "cut":
        objects[key] = data[: at % max(1, len(data))]
    elif how == "longer":
        objects[key] = data + b"x"


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.sampled_from(["old", "mid", "new"]),
            st.sampled_from(["manifest", "model.bin", PARTED, "config.json"]),
            st.sampled_from(BENDS),
            st.integers(min_value=0, max_value=3000),
        ),
        max_size=9,
    )
)
def test_what_is_said_to_work_is_what_a_restore_gives(room: Path, damage: list[tuple[str, str, str, str, int]]) -> None:
    of = scene()
    objects = {"a": of.pristine(), "b": of.pristine()}
    for place, generation, what, how, at in damage:
        role = f"manifest/{generation}" if what == "manifest" else f"object/{generation}/{what}"
        if of.roles[role] in objects[place]:
            bend(objects[place], of.roles[role], how, at)
    tiers = [of.tier(objects[name], name) for name in objects]
    found = verified(tiers, room)
    with tempfile.TemporaryDirectory(dir=room) as folder:
        back = restored(tiers, Path(folder) / "out", of.made)
        alone = [restored([tier], Path(folder) / tier.name, of.made).generation for tier in tiers]
    assert found.works == back.generation
    assert [report.works for report in found.reports] == alone


def test_two_half_good_copies_are_a_whole_one_and_each_is_told(room: Path) -> None:
    of = scene()
    objects = {"a": of.pristine(), "b": of.pristine()}
    bend(objects["a"], of.roles["object/new/model.bin"], "flip", 0)
    bend(objects["b"], of.roles["object/new/model.bin"], "flip", 2400)
    tiers = [of.tier(objects[name], name) for name in objects]
    found = verified(tiers, room)
    assert found.works == of.newest.id == restored(tiers, room / "out", of.made).generation
    assert [report.works for report in found.reports] == [of.made[-2].id] * 2
    assert verify_exit(found) is ExitCode.INTEGRITY
    text = render_verified(found)
    assert text.splitlines()[-1] == f"a restore from all places gives: {of.newest.id}"
    assert "model.bin: leaf 2 (bytes 2048 to 2500) is not what was sealed" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.fixture(params=["volume", "s3"])
def written(request: pytest.FixtureRequest, room: Path) -> Iterator[tuple[Tier, Scene]]:
    """Yield the run on a store that is real, or as good as real."""
    if request.param == "volume":
        (room / "volume").mkdir()
        tier: Tier = VolumeTier("a", room / "volume")
        yield tier, write(tier)[0]
        return
    with S3Emulator() as emulator, pytest.MonkeyPatch.context() as patch:
        known = emulator.credentials[0]
        patch.setenv("AWS_ACCESS_KEY_ID", known.access_key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", known.secret_key)
        spec = TierSpec(name="a", url=f"s3://{BUCKET}/x", endpoint_url=emulator.endpoint_url, profile="aws")
        tier = open_tier(spec, clock=SystemClock())
        try:
            yield tier, write(tier)[0]
        finally:
            tier.close()


def test_on_other_stores_too(written: tuple[Tier, Scene], room: Path) -> None:
    """One after another, newest first: each is found, and each time the next older one is what works."""
    tier, of = written
    assert verified([tier], room).works == of.newest.id
    hurt = (
        ("object/new/model.bin", flip(1100), of.newest.id, "leaf 1 (bytes 1024 to 2048)"),
        ("manifest/mid", lambda data: data[:-1], of.made[-2].id, "the manifest"),
        ("object/old/empty", lambda data: b"x", of.made[-3].id, "has 1 bytes, sealed were 0"),
    )
    for number, (role, change, generation, words) in enumerate(hurt):
        assert verified([tier], room).works == generation
        tamper(tier, Key(of.roles[role]), change)
        found = verified([tier], room)
        (verdict,) = (one for one in found.reports[0].generations if one.generation == generation)
        assert verdict.verdict is Finding.HURT
        assert words in verdict.reasons[0], told(found)
        assert found.works == restored([tier], room / str(number), of.made).generation
    assert found.works is None


def test_a_tier_that_does_not_answer_is_unknown_and_hides_nothing_of_the_others(room: Path) -> None:
    of = scene()
    gone = VolumeTier("gone", room / "absent")
    found = verified([of.tier(of.objects), gone], room)
    assert found.unanswered == ("gone",)
    assert found.works == of.newest.id
    assert verify_exit(found) is ExitCode.UNREACHABLE
    text = render_verified(found)
    assert "gone: UNKNOWN, it did not answer" in text
    assert text.splitlines()[-1].strip() == "gone may hold something newer, and did not answer"


def test_a_generation_may_be_in_one_place_only(room: Path) -> None:
    of = scene()
    tiers = [of.tier(of.objects), MemoryTier("b")]
    found = verified(tiers, room, generation=of.newest.id)
    assert verify_exit(found) is ExitCode.OK
    assert "is not on b" in render_verified(found)


def test_the_config_is_that_of_the_run(room: Path) -> None:
    assert config_of([], room).local == LocalRun(room / "runs" / RUN)
    assert config_of([], room).remote.run == REMOTE.run
