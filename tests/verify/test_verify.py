"""Verification of a tier and of the store: every kind of damage is found and named, nothing is changed."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.commits import (
    REMOTE,
    RUN,
    Made,
    Writer,
    expected,
    flip,
    generation,
    keys,
    make,
    payload,
    seal_local,
    tamper,
    tree,
)

from replicate.errors import NothingFound, Unreachable, UsageError
from replicate.generation.lineage import open_first
from replicate.layout import LocalRun
from replicate.verify import Finding, Share, attests, parse_share, verify, verify_local
from tiers.bodies import BytesBody
from tiers.memory import MemoryTier
from tiers.protocol import Key, ObjectInfo, Tier
from tiers.testing.faulty import Fault, FaultyTier
from tiers.testing.manual_clock import ManualClock

ALL = Share()


@pytest.fixture
def writer() -> Writer:
    """Return the hand that writes to a tier."""
    return Writer(MemoryTier("a"))


@pytest.fixture
def old(writer: Writer) -> Made:
    made = generation(1)
    writer.commit(made)
    return made


@pytest.fixture
def new(writer: Writer, old: Made) -> Made:
    made = generation(2)
    writer.commit(made)
    return made


def key_of(writer: Writer, made: Made, path: str) -> Key:
    assert writer.view.state is not None
    commit = writer.view.state.find(made.id)
    assert commit is not None
    return Key(commit.manifest_key) if path == "manifest.json" else keys(writer.tier, made, commit)[path]


def test_what_is_intact_is_said_to_be(writer: Writer, old: Made, new: Made) -> None:
    report = verify(writer.tier, REMOTE, read_data=ALL)
    assert report.sound
    assert report.newest_intact == new.id
    assert [found.generation for found in report.generations] == [new.id, old.id]
    assert {found.bytes_read for found in report.generations} == {new.record.total_bytes}


def test_without_reading_the_stores_own_digests_count(writer: Writer, new: Made) -> None:
    """One file has one leaf, so the store's plain SHA-256 is comparable; the others went up in one request."""
    found = verify(writer.tier, REMOTE).generations[0]
    assert (found.verdict, found.attested, found.bytes_read) == (Finding.INTACT, 1, 0)


DAMAGE: dict[str, tuple[str, Callable[[Tier, Key], None], str]] = {
    "object gone": ("model.bin", lambda tier, key: tier.delete(key), "missing"),
    "truncated": ("model.bin", lambda tier, key: tamper(tier, key, lambda data: data[:-1]), "4999 bytes"),
    "extended": ("model.bin", lambda tier, key: tamper(tier, key, lambda data: data + b"x"), "5001 bytes"),
    "other bytes by the store's word": ("config.json", lambda tier, key: tamper(tier, key, flip(1)), "the store says"),
    "manifest gone": ("manifest.json", lambda tier, key: tier.delete(key), "the manifest: is missing"),
    "manifest flipped": ("manifest.json", lambda tier, key: tamper(tier, key, flip(9)), "not the one"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_without_reading_data(writer: Writer, old: Made, new: Made, damage: str) -> None:
    path, hurt, words = DAMAGE[damage]
    hurt(writer.tier, key_of(writer, new, path))
    report = verify(writer.tier, REMOTE)
    assert [found.verdict for found in report.generations] == [Finding.HURT, Finding.INTACT]
    assert words in report.generations[0].reasons[0]
    assert report.newest_intact == old.id
    assert not report.sound


def test_a_flipped_bit_is_found_by_reading_and_its_leaf_named(writer: Writer, new: Made) -> None:
    tamper(writer.tier, key_of(writer, new, "model.bin"), flip(2500))
    assert verify(writer.tier, REMOTE).generations[0].verdict is Finding.INTACT
    found = verify(writer.tier, REMOTE, read_data=ALL).generations[0]
    assert found.verdict is Finding.HURT
    assert found.reasons == ("model.bin: leaf 2 (bytes 2048 to 3072) is not what was sealed",)


def test_all_faults_of_a_generation_are_listed(writer: Writer, new: Made) -> None:
    for path in ("model.bin", "optim/state.bin"):
        writer.tier.delete(key_of(writer, new, path))
    assert len(verify(writer.tier, REMOTE).generations[0].reasons) == 2


def test_what_a_tier_does_not_hand_out_is_unknown_and_not_hurt(writer: Writer, old: Made, new: Made) -> None:
    fault = Fault(verb="stat", key=f"*{new.id}*", times=10**6)
    report = verify(FaultyTier(writer.tier, [fault]), REMOTE)
    assert [found.verdict for found in report.generations] == [Finding.UNKNOWN, Finding.INTACT]
    assert report.newest_intact == old.id
    assert not report.sound


def test_a_log_that_cannot_be_read_is_an_error(writer: Writer, new: Made) -> None:
    with pytest.raises(Unreachable):
        verify(FaultyTier(writer.tier, [Fault(verb="open", key="*/log/*", times=10**6)]), REMOTE)


def test_a_damaged_slot_is_reported_and_what_else_is_there_verified(writer: Writer, old: Made, new: Made) -> None:
    tamper(writer.tier, REMOTE.log(0), flip(12))
    report = verify(writer.tier, REMOTE)
    assert [damage.slot for damage in report.damaged] == [0]
    assert report.newest_intact == new.id
    assert not report.sound


def test_only_one_generation_may_be_asked_for(writer: Writer, old: Made, new: Made) -> None:
    assert [found.generation for found in verify(writer.tier, REMOTE, only=old.id).generations] == [old.id]
    with pytest.raises(NothingFound):
        verify(writer.tier, REMOTE, only=generation(9).id)


def test_an_empty_tier_is_sound_and_has_nothing() -> None:
    report = verify(MemoryTier("a"), REMOTE, read_data=ALL)
    assert (report.sound, report.newest_intact, report.generations) == (True, None, ())


def test_a_share_reads_about_that_much_and_a_seed_counted_up_reads_all(writer: Writer, old: Made, new: Made) -> None:
    total = 2 * new.record.total_bytes
    share = parse_share("1/4")
    tamper(writer.tier, key_of(writer, old, "optim/state.bin"), flip(2999))
    reports = [verify(writer.tier, REMOTE, read_data=share, seed=seed) for seed in range(4)]
    read = [sum(found.bytes_read for found in report.generations) for report in reports]
    assert all(total / 4 <= count + 1024 and count <= total / 4 + 2 * 1024 for count in read)
    assert sum(any(found.verdict is Finding.HURT for found in report.generations) for report in reports) == 1
    again = verify(writer.tier, REMOTE, read_data=share, seed=2)
    assert again == reports[2], "the same seed reads the same bytes"


def test_zero_reads_nothing(writer: Writer, new: Made) -> None:
    report = verify(writer.tier, REMOTE, read_data=parse_share("0%"), seed=3)
    assert {found.bytes_read for found in report.generations} == {0}


def test_empty_files_are_covered_by_a_full_read(writer: Writer) -> None:
    writer.commit(make({"empty": b""}, directories=("d",)))
    assert verify(writer.tier, REMOTE, read_data=ALL).sound


@pytest.mark.parametrize(
    ("text", "bytes_of_1000"),
    [("100%", 1000), ("10%", 100), ("0.05%", 1), ("1/7", 143), ("7/7", 1000), ("5GiB", 1000), ("100B", 100), ("0%", 0)],
)
def test_shares_are_read_as_written(text: str, bytes_of_1000: int) -> None:
    assert parse_share(text).of(1000) == bytes_of_1000


@pytest.mark.parametrize(
    ("text", "size"),
    [("1KiB", 1024), ("1kB", None), ("2MB", 2_000_000), ("3 GiB", 3 * 2**30), ("1T", 2**40), ("7B", 7), ("1K", 1024)],
)
def test_sizes_have_units(text: str, size: int | None) -> None:
    if size is None:
        with pytest.raises(UsageError):
            parse_share(text)
    else:
        assert parse_share(text).limit == size


@pytest.mark.parametrize(
    "text",
    ["", "%", "10", "101%", "-1%", "1/0", "8/7", "a lot", "1e3", "1/7/9", "5 apples", "NaN%"],
)
def test_other_shares_are_refused_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_share(text)
    assert "1/7" in caught.value.hint


def test_a_store_attests_by_plain_or_composite_digest(writer: Writer) -> None:
    made = generation(1)
    manifest = writer.manifest(made)
    for item, file in zip(manifest.objects, made.record.files, strict=True):
        info = ObjectInfo(key=Key(item.key), size=item.size, sha256=file.sha256)
        several = len(file.leaves) > 1
        assert attests(info, item, file) is (None if several else True)
        by_leaf = item.model_copy(update={"part_size": file.leaf_size})
        assert attests(info, by_leaf, file) is True
        wrong = ObjectInfo(key=Key(item.key), size=item.size, sha256="0" * 64)
        assert attests(wrong, by_leaf, file) is False
        silent = ObjectInfo(key=Key(item.key), size=item.size)
        assert attests(silent, by_leaf, file) is None


@pytest.fixture
def local(tmp_path: Path) -> LocalRun:
    return LocalRun(tmp_path / "runs/toy")


def relink(path: Path) -> None:
    path.unlink()
    path.symlink_to("elsewhere")


LOCAL_DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "flipped": (lambda files: (files / "model.bin").write_bytes(flip(3)(payload(2))), "not what was sealed"),
    "short": (lambda files: (files / "model.bin").write_bytes(b"x"), "1 bytes, sealed was 5000 bytes"),
    "gone": (lambda files: (files / "optim/state.bin").unlink(), "optim/state.bin: is missing"),
    "extra": (lambda files: (files / "core.1").write_bytes(b""), "core.1: does not belong"),
    "extra folder": (lambda files: (files / "tmp").mkdir(), "tmp: does not belong"),
    "link": (lambda files: relink(files / "config.json"), "special"),
    "record gone": (lambda files: (files.parent / "generation.json").unlink(), "cannot be read"),
    "record flipped": (lambda files: (files.parent / "generation.json").write_bytes(b"{}"), "damaged"),
}


@pytest.mark.parametrize("damage", LOCAL_DAMAGE)
def test_damage_in_the_store_is_found(local: LocalRun, damage: str) -> None:
    old, new = generation(1), generation(2)
    open_first(local, ManualClock(), run=RUN)
    seal_local(local, old)
    folder = seal_local(local, new)
    assert verify_local(local, read_data=ALL).sound
    hurt, words = LOCAL_DAMAGE[damage]
    hurt(folder / "files")
    report = verify_local(local, read_data=ALL)
    assert [found.verdict for found in report.generations] == [Finding.HURT, Finding.INTACT]
    assert words in report.generations[0].reasons[0]
    assert report.newest_intact == old.id


def test_verifying_the_store_changes_nothing_and_ignores_what_is_not_ours(local: LocalRun) -> None:
    made = generation(1)
    folder = seal_local(local, made)
    (local.generations / "notes").mkdir()
    report = verify_local(local, read_data=ALL)
    assert [found.generation for found in report.generations] == [made.id]
    assert report.generations[0].bytes_read == made.record.total_bytes
    assert tree(folder / "files") == expected(made)
    assert verify_local(local).generations[0].bytes_read == 0
    assert verify_local(LocalRun(local.root / "absent")).generations == ()
    with pytest.raises(NothingFound):
        verify_local(local, only=generation(9).id)


def test_one_entry_that_is_no_entry_at_all_is_damage(writer: Writer, new: Made) -> None:
    writer.tier.delete(REMOTE.log(1))
    writer.tier.put(REMOTE.log(1), BytesBody(b""))
    report = verify(writer.tier, REMOTE)
    assert [damage.slot for damage in report.damaged] == [1]
    assert report.newest_intact == new.id
