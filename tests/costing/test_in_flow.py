"""Money beside ``replicate --dry-run``, ``restore --dry-run`` and ``status``: only where a card is configured."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from cli.driver import Done, Project, volume
from costing.cards import card, volume_card, write

from replicate.priced import Item, Priced, amount_text, money_lines

SIZE = 2000


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project with a volume tier and a generation of two files."""
    folder = tmp_path / "tier"
    folder.mkdir()
    project = Project(folder=tmp_path / "project", tiers={"place": volume(folder)}).write()
    project.publish(1)
    return project


def configure(project: Project, text: str | None, *, zone: bool = False, **keys: object) -> Project:
    """Name a card in the configuration, with zones where they are wanted."""
    if text is not None:
        write(project.folder / "rates" / "card.toml", text)
    zones = {"zone": "here"} if zone else {}
    return project.write(extra='zone = "machine"\n' if zone else "", rates="rates/card.toml", **zones, **keys)


def items(money: dict[str, Any]) -> dict[str, Decimal]:
    return {one["what"]: Decimal(one["low"]) for one in money["items"]}


def test_nothing_is_shown_without_a_card(project: Project) -> None:
    for command in (("replicate", "--dry-run"), ("status",)):
        done = project(*command)
        assert done.code == 0
        assert "cost" not in done.out + done.err
    assert project("replicate", "--once").code == 0
    done = project("restore", "--dry-run", "--to", str(project.folder / "out"))
    assert "cost" not in done.out
    assert project("status", "--json").result()["status"]["money"] == []


def test_a_dry_run_prices_requests_and_bytes(project: Project) -> None:
    """Two files are put and, on a volume, read back; a manifest, two entries and the hint; all of it known before."""
    configure(project, card())
    done = project("replicate", "--dry-run")
    assert done.code == 0
    done.says("cost: requests 7.06 USD", "stored bytes", "a month", "transfer not priced: no zone configured")
    (tier,) = project("replicate", "--dry-run", "--json").result()
    found = items(tier["money"])
    writes = 2 + 1 + 2 + 1 + 1  # files, manifest, claim and commit, hint, listing
    reads = 1 + 1 + 2 + 1 + 1  # no hint, claim, files, manifest, commit
    assert found["requests"] == writes + reads * Decimal("0.01")
    assert "transfer" not in found
    stored = sum(one["total_bytes"] for one in tier["generations"])
    assert found["stored bytes"] == Decimal(stored) / 10**9


def test_what_is_counted_is_what_the_dry_run_said(project: Project) -> None:
    configure(project, card(), zone=True)
    (tier,) = project("replicate", "--dry-run", "--json").result()
    before = items(tier["money"])
    assert project("replicate", "--once").code == 0
    (money,) = project("status", "--json").result()["status"]["money"]
    after = items(money)
    assert after["this month so far: requests"] == before["requests"]
    assert after["this month so far: transfer"] == before["transfer"] > 0
    assert after["stored bytes"] == before["stored bytes"]
    (again,) = project("replicate", "--dry-run", "--json").result()
    assert again["money"]["items"] == []


def test_a_restore_is_priced_with_its_way_back(project: Project) -> None:
    configure(project, card(), zone=True)
    assert project("replicate", "--once").code == 0
    other = Project(folder=project.folder.with_name("other"), tiers=project.tiers)
    configure(other, card(), zone=True)
    done = other("restore", "--dry-run")
    assert done.code == 0
    done.says("would restore", "place: cost: requests", "transfer")
    (money,) = other("restore", "--dry-run", "--json").result()["money"]
    assert money["tier"] == "place"
    found = items(money)
    reads = 1 + 2 + 1 + 1 + 2  # hint, two entries, the end of the log, manifest, a leaf of each file
    listing = Decimal("1.00")  # a restore lists the log, lest a lost entry hide later ones
    assert found["requests"] == reads * Decimal("0.01") + listing
    assert found["transfer"] > Decimal(SIZE) * 2 / 10**9
    mine = project("restore", "--dry-run", "--json").result()["money"]
    assert items(mine[0])["requests"] == 4 * Decimal("0.01") + listing, "the store has it: only the log is read"


def check_warned(done: Done, *words: str) -> None:
    assert done.code == 0, done
    lines = [line for line in done.out.splitlines() if "warning:" in line]
    assert len(lines) == 1
    done.says(*words)


def test_a_bad_card_is_one_line_of_warning(project: Project) -> None:
    """The command itself works, whatever is wrong with the prices."""
    assert project("replicate", "--once").code == 0
    project.publish(2)
    out = str(project.folder / "out")
    commands = (("replicate", "--dry-run"), ("status",), ("restore", "--dry-run", "--to", out))
    bad = {"no toml": "= [", "found nothing": card(without=("ListParts",)), "400 days ago": card(age=400)}
    for text in (*bad.values(), None):
        configure(project, text)
        for command in commands:
            if text is None:
                (project.folder / "rates" / "card.toml").unlink(missing_ok=True)
            check_warned(project(*command), "warning: not priced:")
    configure(project, card(age=100))
    for command in commands:
        check_warned(project(*command), "STALE", "cost: ")


def test_an_example_says_whose_prices_they_are(project: Project) -> None:
    configure(project, card(kind="example"))
    project("replicate", "--dry-run").says("EXAMPLE rates", "not your prices")


def test_a_volume_is_paid_for_by_its_size(project: Project) -> None:
    configure(project, volume_card())
    project("replicate", "--dry-run").says("the volume is paid for by its size")
    assert project("replicate", "--once").code == 0
    project("status").says("the volume is not priced: no provisioned_bytes configured")
    configure(project, None, provisioned_bytes=10 * 10**9)
    project("status").says("stored bytes 1.00 USD a month")


def test_a_zone_that_the_card_does_not_know(project: Project) -> None:
    configure(project, card(legs=False), zone=True)
    check_warned(project("replicate", "--dry-run"), "no rate for the leg machine to here")
    configure(project, card(), zone=True, network_path="pigeon")
    check_warned(project("replicate", "--dry-run"), "'pigeon' is no network path")


@pytest.mark.parametrize(
    ("low", "text"),
    [("0", "0.00"), ("0.005", "0.01"), ("1.005", "1.01"), ("0.004", "0.00400"), ("0.000001234", "0.00000123")],
)
def test_small_amounts_do_not_read_as_nothing(low: str, text: str) -> None:
    assert amount_text(Decimal(low), Decimal(low), "USD") == f"{text} USD"


def test_a_range_has_two_ends() -> None:
    one = Item(what="stored bytes", low=Decimal(1), high=Decimal(2), monthly=True)
    (line,) = money_lines(Priced(tier="t", currency="EUR", items=(one,)))
    assert line == "cost: stored bytes 1.00 to 2.00 EUR a month"
