"""``ckptier cost``: what it prints, what it exits with, and what it refuses."""

import json
from decimal import Decimal
from pathlib import Path

import pytest
from cli.driver import refused, run_command
from costing.cards import PLAN, card, volume_card, write

from replicate.errors import ExitCode

COMMANDS = ("estimate", "report", "compare", "reconcile", "rates check")
NEEDS = '\n[needs]\nrecover_within = "30min"\nbandwidth = 1_000_000\n'


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """Return a plan file beside its card."""
    write(tmp_path / "card.toml", card())
    return write(tmp_path / "plan.toml", PLAN)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_and_names_json(command: str) -> None:
    done = run_command("cost", *command.split(), "--help")
    assert done.code == 0
    assert "--json" in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_an_estimate_counts_the_protocols_own_requests(plan: Path) -> None:
    """Ten generations of three files: each puts 3 files, a manifest and an entry; one claim, two hints, one listing."""
    done = run_command("cost", "estimate", str(plan), "--json")
    assert done.code == 0
    result = done.result()
    writes = 10 * 5 + 1 + 1 + 1  # objects, manifests and entries; the claim, its hint, the listing
    reads = 10 * 2 + 1 + 1 + 9  # what was written is read back; the claim too; no hint; the end of the log, nine times
    lines = {line["meter"]: line for line in result["lines"] if line["meter"].startswith("shop/standard/requests/")}
    assert Decimal(lines["shop/standard/requests/write"]["low"]["amount"]) == writes
    assert Decimal(lines["shop/standard/requests/read"]["low"]["amount"]) == reads * Decimal("0.01")
    assert any("transfer not priced: no zone configured" in line for line in result["assumptions"])


def test_text_json_and_page(plan: Path, tmp_path: Path) -> None:
    done = run_command("cost", "estimate", str(plan), "--html", str(tmp_path / "page.html"))
    assert done.code == 0
    assert max(map(len, done.out.splitlines())) <= 80
    done.says("Cost of run", "shop/standard", "no zone configured")
    page = (tmp_path / "page.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    assert "Cost of run" in page
    report = run_command("cost", "report", str(plan), "--json").result()
    assert report["sensitivity"]
    assert report["cadence"]


def test_a_budget_is_an_exit_code(plan: Path) -> None:
    over = run_command("cost", "estimate", str(plan), "--budget", "1.00")
    assert over.code == ExitCode.PARTIAL
    over.says("exceeds the budget")
    assert run_command("cost", "estimate", str(plan), "--budget", "1000").code == 0
    assert run_command("cost", "estimate", str(plan), "--budget", "1000", "--monthly").code == 0
    assert run_command("cost", "estimate", str(plan), "--budget", "1.00", "--json").document()["exit_code"] == 3


@pytest.mark.parametrize("text", ["-1", "nan", "1e3", "fifty", ""])
def test_a_budget_is_a_plain_decimal(plan: Path, text: str) -> None:
    refused(ExitCode.USAGE, "cost", "estimate", str(plan), f"--budget={text}")


def test_a_stale_card_warns_and_one_that_is_too_old_is_refused(plan: Path) -> None:
    write(plan.with_name("card.toml"), card(age=100))
    done = run_command("cost", "estimate", str(plan))
    assert done.code == 0
    done.says("STALE", "100 days ago")
    write(plan.with_name("card.toml"), card(age=400))
    refused(ExitCode.CONFIG, "cost", "estimate", str(plan)).says("400 days ago", "360 is the limit")
    run_command("cost", "estimate", str(plan), "--allow-stale").says("STALE", "the run")


def test_an_operation_without_a_rate_is_named_with_its_line(plan: Path) -> None:
    """Never zero: the card is refused before anything is priced."""
    write(plan.with_name("card.toml"), card(without=("ListParts",)))
    done = run_command("cost", "estimate", str(plan))
    assert done.code == ExitCode.CONFIG
    assert not done.out
    done.says("card.toml:", "tier.0.operations.ListParts", "found nothing")


def test_a_leg_without_a_rate_is_named(plan: Path) -> None:
    write(plan.with_name("card.toml"), card(legs=False))
    write(plan, PLAN.replace("every =", 'zone = "machine"\nevery =') + 'zone = "here"\n')
    refused(ExitCode.CONFIG, "cost", "estimate", str(plan)).says("no rate for the leg machine to here")


def test_both_legs_are_priced_where_zones_are_given(plan: Path) -> None:
    write(plan, PLAN.replace("every =", 'zone = "machine"\nevery =') + 'zone = "here"\nrestores = 2\n')
    result = run_command("cost", "estimate", str(plan), "--json").result()
    categories = {line["category"] for line in result["lines"]}
    assert {"upload-transfer", "restore-transfer"} <= categories
    assert not any("not priced" in line for line in result["assumptions"])


def test_candidates_by_rank(plan: Path) -> None:
    write(plan.with_name("disk.toml"), volume_card())
    more = '\n[[tier]]\nname = "disk"\ntier = "disk/volume"\nstore = "volume"\nprovisioned_bytes = 1_000_000_000\n'
    write(plan, PLAN.replace('["card.toml"]', '["card.toml", "disk.toml"]') + more)
    refused(ExitCode.CONFIG, "cost", "compare", str(plan)).says("plan.toml:", "needs", "found nothing")
    write(plan, plan.read_text() + NEEDS)
    done = run_command("cost", "compare", str(plan), "--json")
    assert done.code == 0
    rows = done.result()["comparison"]["rows"]
    assert [row["name"] for row in rows] == ["disk", "shop/standard"]


def test_one_tier_of_a_plan(plan: Path) -> None:
    """--tier takes its name, or card/tier; the others are neither priced nor checked."""
    write(plan.with_name("disk.toml"), volume_card())
    more = '\n[[tier]]\nname = "disk"\ntier = "disk/volume"\nstore = "volume"\nprovisioned_bytes = 1_000_000_000\n'
    write(plan, PLAN.replace('["card.toml"]', '["card.toml", "disk.toml"]') + more)
    for name, ref in (("disk", "disk/volume"), ("shop/standard", "shop/standard")):
        result = run_command("cost", "estimate", str(plan), "--tier", name, "--json").result()
        assert {line["tier"] for line in result["lines"]} == {ref}
    refused(ExitCode.CONFIG, "cost", "estimate", str(plan), "--tier", "nope").says("'nope'", "shop/standard, disk")


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "found"),
    [
        ("plan = 1", "plan = 2", 1, "plan", "2"),
        ("plan = 1\n", "", 1, "plan", "nothing"),
        ('"run"', '"Not a name"', 2, "name", '"Not a name"'),
        ('"10h"', '"ten hours"', 5, "length", '"ten hours"'),
        ('"10h"', "36000", 5, "length", "36000"),
        ('"1h"', '"0s"', 6, "every", '"0s"'),
        ('"1h"', '"11h"', 6, "every", "39600 s"),
        ("1_000", "-1", 9, "object.0.bytes", "-1"),
        ("1_000", "1e3", 9, "object.0.bytes", "1e3"),
        ("count = 3", "count = 0", 10, "object.0.count", "0"),
        ("count = 3", "counts = 3", 10, "object.0.counts", "3"),
        ("2026-04-01", '"2026-04-01"', 4, "start", '"2026-04-01"'),
        ("2026-04-01", "2026-04-01T00:00:00", 4, "start", "2026-04-01 00:00:00"),
        ('"r2"', '"r3"', 14, "tier.0.profile", '"r3"'),
        ('profile = "r2"\n', "", 12, "tier.0.profile", "nothing"),
        ("shop/standard", "shop/archive", 13, "tier.0.tier", '"shop/archive"'),
        ('profile = "r2"', 'profile = "r2"\nread_data = "10%"', 15, "tier.0.read_data", "10%"),
        ('profile = "r2"', 'profile = "r2"\nverify_every="1h"\nread_data = "lots"', 16, "tier.0.read_data", '"lots"'),
        ('profile = "r2"', 'profile = "r2"\nkeep_last = 0', 15, "tier.0.keep_last", "0"),
    ],
)
def test_a_plan_file_names_every_fault(plan: Path, old: str, new: str, line: int, field: str, found: str) -> None:
    assert old in PLAN
    write(plan, PLAN.replace(old, new))
    done = run_command("cost", "estimate", str(plan))
    assert done.code == ExitCode.CONFIG, done
    done.says(f"plan.toml:{line}: {field}: found {found}")


@pytest.mark.parametrize("data", [b"plan = [", b"\xff\xfe", b"#" * 300_000, b"a" * 40 + b" ="])
def test_what_is_no_plan_at_all(plan: Path, data: bytes) -> None:
    plan.write_bytes(data)
    done = run_command("cost", "estimate", str(plan))
    assert done.code == ExitCode.CONFIG
    done.says("plan.toml:1: file")


def test_a_plan_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        refused(ExitCode.CONFIG, "cost", "estimate", str(path))


def test_a_plan_that_names_no_card(plan: Path) -> None:
    write(plan, PLAN.replace('rates = ["card.toml"]\n', ""))
    assert run_command("cost", "estimate", str(plan)).code == ExitCode.CONFIG
    assert run_command("cost", "estimate", str(plan), "--rates", str(plan.with_name("card.toml"))).code == 0


def test_parts_that_a_tier_does_not_take(plan: Path) -> None:
    write(plan, PLAN.replace("bytes = 1_000", "bytes = 60_000_000_000_000"))
    assert run_command("cost", "estimate", str(plan)).code == ExitCode.CAPABILITY


def test_a_new_card_names_what_is_left_to_fill_in(tmp_path: Path) -> None:
    done = run_command("cost", "rates", "new")
    assert done.code == 0
    path = write(tmp_path / "mine.toml", done.out)
    checked = run_command("cost", "rates", "check", str(path))
    assert checked.code == ExitCode.CONFIG
    assert not checked.out
    faults = checked.err.splitlines()
    assert len(faults) > 10
    assert all("fill this in" in line for line in faults[:-1])


def test_checking_cards(tmp_path: Path) -> None:
    fresh, stale = write(tmp_path / "a.toml", card(name="a")), write(tmp_path / "b.toml", volume_card(age=500))
    done = run_command("cost", "rates", "check", str(fresh), str(stale))
    assert done.code == 0
    done.says("a.toml: ok: a", "b.toml: ok: disk", "warning: disk: STALE", "estimates refuse it")
    found = run_command("cost", "rates", "check", str(fresh), str(stale), "--json").result()
    assert [one["card"] for one in found] == ["a", "disk"]
    write(stale, card(name="a"))
    twice = run_command("cost", "rates", "check", str(fresh), str(stale))
    assert twice.code == ExitCode.CONFIG
    twice.says("b.toml:", 'found "a"')
    refused(ExitCode.CONFIG, "cost", "rates", "check", str(tmp_path / "none.toml"))


def test_the_schema_is_json() -> None:
    assert json.loads(run_command("cost", "rates", "schema").out)["title"].startswith("ckptier rate card")


@pytest.mark.parametrize(
    "options",
    [("--every", "2h"), ("--every", "soon", "--for", "30d"), ("--every", "0s", "--for", "1d"), ("--start", "tomorrow")],
)
def test_options_that_say_too_little(plan: Path, options: tuple[str, ...]) -> None:
    refused(ExitCode.USAGE, "cost", "estimate", str(plan), *options)
