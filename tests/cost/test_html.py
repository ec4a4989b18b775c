"""The page in headless Chromium: it opens offline, asks for nothing, complains of nothing and shows its figures."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import cache
from html import escape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from support.example_run import DAY, GENERATION, HOUR, START, priced, r7b, requests

from cost.budget import Budget, judge
from cost.cadence import Machine
from cost.compare import Needs, compare
from cost.estimate import Plan
from cost.rates.loading import load_cards
from cost.rates.model import RateCard
from cost.rates.terms import Operation, TransferPath
from cost.report import html
from cost.report.cadence import study
from cost.report.candidates import Move, Route, moved
from cost.report.contents import Report, report
from cost.report.plots.canvas import apart
from cost.report.sensitivity import sensitivity
from cost.usage import Retrieval, Transfer, Usage

RATES = Path(__file__).parents[2] / "examples" / "rates"
TODAY = date(2026, 10, 20)
FIGURES = ("stored", "cumulative", "frontier", "cadence", "sensitivity")
SECONDS = 60
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--enable-logging=stderr",
    "--v=0",
    "--dump-dom",
)
HOSTILE = (
    "</title><script>console.error('owned')</script><img src=http://127.0.0.1/x onerror=alert(1)>&\"'$x_{$\x00\u202e"
)


@cache
def card(name: str) -> RateCard:
    (found,) = load_cards([RATES / f"{name}.toml"], today=TODAY, allow_too_old=True).cards
    return found


def plan(plan_id: str, label: str) -> Plan:
    """Return the worked example on S3 Standard, with an upload and two restores over the internet."""
    ref = "aws-s3-us-east-1-example/standard"
    back = Transfer(
        from_zone="us-east-1", to_zone="internet", path=TransferPath.INTERNET, bytes=2 * GENERATION,
        at=START + 11 * DAY, tier=ref, label="restore",
    )  # fmt: skip
    usage = Usage(
        requests=(requests(ref, Operation.UPLOAD_PART, 554_400, label=label),),
        retrievals=(Retrieval(tier=ref, bytes=2 * GENERATION, objects=70, at=START + 11 * DAY),),
        transfers=(back,),
    )
    run = r7b(ref, upload=196, leaves=None)
    return Plan(plan_id=plan_id, runs=(run,), usage=usage, restores=2, allow_stale=True)


WHERE = (
    ("aws-s3-us-east-1", "standard", "us-east-1", ""),
    ("aws-s3-us-east-1", "standard-ia", "us-east-1", "immediate"),
    ("aws-s3-us-east-1", "glacier", "us-east-1", "expedited"),
    ("aws-s3-us-east-1", "deep-archive", "us-east-1", "standard"),
    ("r2", "standard", "global", ""),
    ("gcs-us-central1", "standard", "us-central1", ""),
    ("runpod-volume", "volume", "", ""),
    ("hf-hub", "private-bucket", "global", ""),
    ("hf-hub", "public-repo", "global", ""),
)


@cache
def built(plan_id: str = "r7b", label: str = "replicate", prefix: str = "") -> Report:
    """Return the report of the worked example with everything in it."""
    mine, aws = plan(plan_id, label), card("aws-s3-us-east-1")
    candidates = []
    for name, tier, zone, mode in WHERE:
        route = Route(from_zone=zone, to_zone="internet", path=TransferPath.INTERNET) if zone else None
        move = Move(tier=f"{card(name).card_id}/{tier}", mode=mode, restore=route, name=f"{prefix}{name} {tier}")
        candidates.append(moved(mine, (card(name),), move))
    needs = Needs(recover_within=1800, bandwidths=(500_000_000,), detect=60, provision=300, load=100)
    result = priced(mine, aws, today=TODAY)
    machine = Machine(blocked=60, mtti=4 * HOUR)
    return report(
        mine,
        result,
        (aws,),
        needs=needs,
        comparison=compare(candidates, needs, TODAY),
        judgements=(judge(result, Budget(limit=Decimal(40), currency="USD")),),
        cadence=study(mine, (aws,), TODAY, machine=machine, burn_per_hour=Decimal("111.68"), cadences=(1200, HOUR)),
        sensitivity=sensitivity(mine, (aws,), TODAY),
        version="0.1.0",
    )


@cache
def page(plan_id: str = "r7b", label: str = "replicate", prefix: str = "") -> str:
    return html.render(built(plan_id, label, prefix))


def hostile() -> str:
    return page(HOSTILE, HOSTILE, HOSTILE)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the browser; a suite that skips itself proves nothing."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        message = "Chromium is not installed (Debian: chromium)"
        if os.environ.get("CKPTIER_ALLOW_SKIP") == "1":
            pytest.skip(message)
        pytest.fail(f"{message}; CKPTIER_ALLOW_SKIP=1 would skip what needs it")
    return found


@dataclass(frozen=True)
class Seen:
    """What a browser made of a page: its DOM, its console, and what the page itself asked of the network."""

    dom: str
    console: list[str]
    requested: list[str]


@dataclass(frozen=True)
class Browser:
    """Chromium with a new profile for every page, nothing resolvable, and its network log."""

    binary: str
    folder: Path

    def open(self, text: str, *flags: str) -> Seen:
        """Return what becomes of a page; what the browser asks for on its own account is left out."""
        (self.folder / "page.html").write_text(text, encoding="utf-8")
        log = self.folder / "net.json"
        profile = f"--user-data-dir={self.folder / 'profile'}"
        command = [self.binary, *FLAGS, *flags, profile, f"--log-net-log={log}", (self.folder / "page.html").as_uri()]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
        console = [line for line in done.stderr.splitlines() if ":CONSOLE:" in line]
        return Seen(done.stdout, console, list(_asked(log.read_text(encoding="utf-8"))))


def _asked(log: str) -> Iterator[str]:
    """Yield addresses that a page asked for: the browser's own requests have no origin at all."""
    try:
        events = json.loads(log)["events"]
    except json.JSONDecodeError:  # killed before it closed the list
        events = json.loads(log.rstrip().rstrip(",") + "]}")["events"]
    for event in events:
        asked = event.get("params", {})
        if asked.get("initiator", "not an origin") != "not an origin" and asked.get("url", "").startswith("http"):
            yield asked["url"]


@pytest.fixture
def browser(chromium: str, tmp_path: Path) -> Browser:
    return Browser(chromium, tmp_path)


def test_the_checks_would_notice(browser: Browser) -> None:
    """A page that complains and asks for something is caught."""
    bad = '<!doctype html><img src="http://example.org/x.png"><script>console.error("boom")</script>'
    seen = browser.open(bad)
    assert any("boom" in line for line in seen.console)
    assert any("example.org" in address for address in seen.requested)


@pytest.mark.parametrize("text", [page, hostile], ids=["r7b", "hostile names"])
def test_it_opens_offline_without_a_word(browser: Browser, text: Any) -> None:
    seen = browser.open(text())
    assert seen.console == []
    assert seen.requested == []
    for name in FIGURES:
        figure = seen.dom.partition(f'<figure id="figure-{name}"')[2].partition("</figure>")[0]
        assert figure.count("<svg") == 2
        assert figure.count("<path") > 4
    assert "owned" not in "".join(seen.console)
    assert "<script" not in seen.dom.lower()


PHONE = """<!doctype html>
<iframe style="width:{width}px;height:3000px;border:0" srcdoc="{page}"></iframe><output></output>
<script>addEventListener("load", () => {{
  const page = document.querySelector("iframe").contentDocument;
  const all = (what) => [...page.querySelectorAll(what)];
  const shown = (kind) => all("figure ." + kind + " svg").filter((svg) => svg.clientWidth > 0).length;
  const wide = all("main *, header *").filter((each) => !each.closest("svg, thead")
      && each.getBoundingClientRect().right > {width} + 1).map((each) => each.className + each.tagName);
  const heights = all("figure svg text").map((each) => each.getBoundingClientRect().height);
  document.querySelector("output").textContent = JSON.stringify({{
    scroll: page.documentElement.scrollWidth, desk: shown("desk"), phone: shown("phone"), wide: wide,
    small: Math.min(...heights.filter((height) => height > 0)) }});
}});</script>"""


@pytest.mark.parametrize(("width", "desk", "phone"), [(390, 0, 5), (1280, 5, 0)])
def test_nothing_sticks_out_on_a_phone_or_a_desk(browser: Browser, width: int, desk: int, phone: int) -> None:
    """Each width has its own figures with text of nine pixels or more, and nothing has to be scrolled sideways."""
    seen = browser.open(PHONE.format(width=width, page=escape(page(), quote=True)), f"--window-size={width + 200},3200")
    found = json.loads(re.search(r"<output>(.*?)</output>", seen.dom)[1])  # type: ignore[index]
    assert (found["desk"], found["phone"]) == (desk, phone)
    assert found["scroll"] <= width
    assert found["wide"] == []
    assert found["small"] >= 9


class Collected(HTMLParser):
    """Every tag with its attributes, and all text outside of styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_nothing_in_it_is_loaded_from_anywhere() -> None:
    """Only inert links point outwards; the policy forbids everything but what stands in the page."""
    tags = Collected(page()).tags
    outwards = [
        (tag, name) for tag, attributes in tags for name, value in attributes.items()
        if value and re.match(r"\s*(https?:)?//", value) and name != "xmlns"
    ]  # fmt: skip
    assert {each for each in outwards if each != ("a", "href")} == set()
    assert "@import" not in page()
    assert set(re.findall(r"url\((.)", page())) <= {"#"}
    policy = next(a["content"] for tag, a in tags if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "script" not in policy
    assert not [tag for tag, _ in tags if tag in {"script", "iframe", "object", "embed", "form", "base"}]
    assert not [name for _, attributes in tags for name in attributes if name.startswith("on")]


def test_ids_are_unique_and_references_are_met() -> None:
    tags = Collected(page()).tags
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    named = [each for _, attributes in tags for each in (attributes.get("aria-labelledby") or "").split()]
    used = [str(attributes["href"])[1:] for tag, attributes in tags if tag == "use"]
    clips = re.findall(r"url\(#([^)]+)\)", page())
    assert named
    assert {*named, *used, *clips} <= set(ids)


def test_names_are_escaped_wherever_they_stand() -> None:
    text = hostile()
    assert "<script" not in text.lower()
    assert "<img" not in text.lower()
    assert "\x00" not in text
    assert "\u202e" not in text
    assert text.count("&lt;/title&gt;") > 20


def svgs(text: str) -> list[str]:
    return re.findall(r"<svg.*?</svg>", text, re.DOTALL)


def test_figures_are_named_for_those_who_cannot_see_them() -> None:
    assert len(svgs(page())) == 2 * len(FIGURES)
    for svg in svgs(page()):
        root = ET.fromstring(svg)
        space = "{http://www.w3.org/2000/svg}"
        assert root.attrib["role"] == "img"
        assert "viewBox" in root.attrib
        assert "width" not in root.attrib
        title, description = (root.findtext(space + name) for name in ("title", "desc"))
        assert title
        assert description
        assert len(description) > 40


def test_figures_say_what_they_show() -> None:
    text = {name: svgs(page().partition(f'id="figure-{name}"')[2])[0] for name in FIGURES}
    for part in ("(K+M)·S = 3.2 TB", "milestone", "last-k", "days since 2026-04-01 (UTC)", "stored, TB"):
        assert part in text["stored"]
    for part in ("storage", "requests", "restore-transfer", "spent so far, USD"):
        assert part in text["cumulative"]
    for part in ("target 30 min", "restore time, upper bound", "cost a month, USD", "r2 standard"):
        assert part in text["frontier"]
    for part in ("T* ", "now 2 h", "time between checkpoints", "lost work"):
        assert part in text["cadence"]
    for part in ("keep last", "milestone every", "total of the run, USD"):
        assert part in text["sensitivity"]


def test_it_is_the_same_bytes_every_time() -> None:
    assert html.render(built()) == page()
    assert not re.search(r"\d\d:\d\d:\d\d", page())


def test_what_is_said_in_words() -> None:
    text = page()
    for part in (
        "taxes excluded",
        "EXAMPLE rates of 2024-07-01, not your prices",
        "STALE",
        "exceeds the budget",
        "1 GiB = 1,073,741,824 bytes",
        "is public: anyone could read the state",
        "All lines",
        "Digest of cards and assumptions",
    ):
        assert part in text


def test_a_report_of_nothing_but_requests_has_no_empty_figures() -> None:
    mine = Plan(plan_id="few", usage=replace(plan("x", "y").usage, transfers=(), retrievals=()), allow_stale=True)
    aws = card("aws-s3-us-east-1")
    text = html.render(report(mine, priced(mine, aws, today=TODAY), (aws,)))
    assert 'id="figure-stored"' not in text
    assert 'id="figure-cumulative"' in text
    assert 'id="figure-frontier"' not in text


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([0.1, 0.5], [0.1, 0.5]),
        ([0.5, 0.5, 0.5], [0.4, 0.5, 0.6]),
        ([0.95, 0.99], [0.9, 1.0]),
        ([0.9, 0.2], [0.9, 0.2]),
        ([], []),
    ],
)
def test_labels_move_apart_and_keep_their_order(wanted: list[float], expected: list[float]) -> None:
    placed = apart(wanted, 0.1)
    assert len(placed) == len(wanted)
    ordered = sorted(placed)
    assert all(b - a > 0.1 - 1e-9 for a, b in pairwise(ordered))
    assert all(-1e-9 <= each <= 1 + 1e-9 for each in placed)
    if expected != [0.4, 0.5, 0.6]:
        assert placed == pytest.approx(expected)
