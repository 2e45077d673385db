"""The data and the page of `archiver report`; the page is also drawn by Chromium, where that is installed."""

import hashlib
import html
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import archiver.archive.format.handle
from archiver.archive.index.inventory import Gap, PartitionInventory
from archiver.archive.segments.segment_facts import HoleCause
from archiver.cli.main import main
from archiver.config.model import IndexUse
from archiver.upkeep.report.contents import ReportRequest, collect_report
from archiver.upkeep.report.page import page_of
from archiver.upkeep.report.timelines import BINS, CODES, Axis, line_of, lost_ranges, shape_of
from tests.golden.test_commands import Shop
from tests.support.brokers import REPOSITORY
from tests.support.report_data import data_in, report_data

HERE: Final = REPOSITORY / "archiver" / "upkeep" / "report"
# Of the npm package uplot 1.6.32.
VENDORED: Final = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
EVIL: Final = "<img src=x onerror=\"document.title='owned'\"></script><script>document.title='owned'</script><!--"
NOW_MS: Final = 1_767_225_600_000 + 10 * 86_400_000
BROWSER: Final = shutil.which("chromium-headless-shell") or shutil.which("chromium")


class Columns:
    """Segments with these columns alone."""

    def __init__(self, *rows: tuple[int, int, int, int]) -> None:
        self._rows, self.known = np.array(rows, np.int64), self

    def __len__(self) -> int:
        return len(self._rows)

    def numbers(self, name: str) -> Any:  # noqa: ANN401 - numbers
        return self._rows[:, ("first", "last", "min_timestamp", "max_timestamp").index(name)]


def drawn(lost: Sequence[tuple[int, int, str]], *rows: tuple[int, int, int, int]) -> str:
    """The line of objects with offsets and times, on an axis of one unit a bin from 1,000 on, as lengths of runs."""
    segments: Any = Columns(*rows)
    line = line_of([segments], lost, Axis(1_000, 1_000 + BINS))
    return re.sub(r"(.)\1+", lambda found: f"{len(found[0])}{found[1]}", line)


def test_a_line_shows_the_times_of_records() -> None:
    assert drawn([], (0, 9, 1_010, 1_019), (10, 19, 1_020, 1_020), (20, 29, 1_100, 1_109)) == "10.11a79.10a10."


def test_times_outside_the_axis_are_cut() -> None:
    assert drawn([], (0, 9, -(2**63), 1_001), (10, 19, 1_118, 2**63 - 1)) == "2a116.2a"
    assert drawn([], (0, 9, 0, 999), (10, 19, 2_000, 3_000)) == f"{BINS}."


def test_a_loss_lies_between_its_neighbours() -> None:
    assert drawn([(10, 19, "missing")], (0, 9, 1_000, 1_039), (20, 29, 1_060, 1_120)) == "39a22m59a"


def test_every_cause_has_a_code_that_the_page_knows() -> None:
    assert CODES.keys() == {*map(str, HoleCause), "missing", "swept"}
    script = (HERE / "page.js").read_text()
    assert dict(re.findall(r'\["(\w)", "([a-z-]+)"', script)).items() >= {(code, name) for name, code in CODES.items()}


def test_gaps_and_swept_offsets_are_lost_ranges() -> None:
    found = PartitionInventory(
        readable=(),
        shadowed=(),
        gaps=(Gap(first_offset=5, last_offset=9),),
        swept=(Gap(first_offset=0, last_offset=4),),
    )
    assert lost_ranges(found) == [(0, 4, "swept"), (5, 9, "missing")]


def test_a_rate_has_a_digit_a_bin() -> None:
    assert shape_of(np.array([0, 1, 500, 1_000])) == "0159"
    assert shape_of(np.zeros(3, np.int64)) == "000"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(tmp_path_factory.mktemp("spool"))


def collected(shop: Shop, topics: str = ".*", now_ms: int = NOW_MS) -> dict[str, Any]:
    asked = ReportRequest(re.compile(topics), None, 2.0, 1.0, "USD")
    found: dict[str, Any] = json.loads(json.dumps(collect_report(shop.archive, asked, IndexUse.CHECK, now_ms)))
    return found


def test_the_data_of_an_archive(shop: Shop) -> None:
    found = collected(shop)
    assert [(one["topic"], one["life"], len(one["partitions"])) for one in found["topics"]] == [
        ("orders", 0, 2),
        ("orders", 1, 1),
        ("idle", 0, 0),
    ]
    holey = found["topics"][0]["partitions"][1]
    assert (holey["records"], holey["next_offset"], holey["lost"], holey["ranges"]) == (
        6,
        40,
        {"missing": 10},
        "20-29 missing",
    )
    assert found["problem_count"] == len(found["problems"]) == 1
    assert [(one["group"], one["lag"]) for one in found["groups"]] == [("billing", 38)]
    assert sum(found["puts"]["objects"]) == 5


def test_costs_are_of_a_month(shop: Shop) -> None:
    found = collected(shop)
    stored = sum(part["stored_bytes"] for one in found["topics"] for part in one["partitions"])
    cost = found["cost"]
    assert cost["storage_a_month"] == pytest.approx(stored / 2**30 * 2.0)
    assert (cost["puts_a_day"], cost["puts_a_month"]) == (0, 0)  # all puts are older than a week
    cost = collected(shop, now_ms=NOW_MS - 9 * 86_400_000)["cost"]
    assert cost["puts_a_day"] == 5
    assert cost["puts_a_month"] == pytest.approx(5 * 365 / 12 / 1_000, rel=1e-3)


def test_topics_are_chosen(shop: Shop) -> None:
    assert [one["topic"] for one in collected(shop, "id.*")["topics"]] == ["idle"]


def test_the_command_writes_the_page(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(archiver.archive.format.handle, "open_archive", lambda _: shop.archive)
    path = tmp_path / "report.html"
    command = ["report", "--url", "s3://bucket/p", "--html"]
    assert main([*command, str(path)]) == 3
    assert "offsets 20-29 are missing" in capsys.readouterr().err
    data = data_in(path.read_text())
    assert data["topics"]
    assert data["status"]["working"] is False  # no backup has left a note
    assert main([*command, str(tmp_path / "none" / "report.html")]) == 1
    assert "give another FILE" in capsys.readouterr().err
    for wrong in (["--price-gb", "x"], ["--last", "x"]):
        with pytest.raises(SystemExit) as left:
            main([*command, str(path), *wrong])
        assert left.value.code == 2


def test_vendored_files_are_the_published_ones() -> None:
    assert {name: hashlib.sha256((HERE / "uplot" / name).read_bytes()).hexdigest() for name in VENDORED} == VENDORED


class Tags(HTMLParser):
    """The elements of a page, as a browser takes it apart."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        assert not {"src", "href"} & {name for name, _ in attrs}, "a page fetches nothing"


def test_names_add_no_element() -> None:
    data = report_data(5, extra=EVIL)
    page = page_of(data)
    assert Tags(page).found == Tags(page_of(report_data(5))).found
    assert data_in(page) == json.loads(json.dumps(data))
    assert "innerHTML" not in (HERE / "page.js").read_text()


def dom_of(page: str, folder: Path) -> str:
    """The page after its scripts ran, as a tree that Chromium prints."""
    file = folder / "report.html"
    file.write_text(page, encoding="utf-8")
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    done = subprocess.run(
        [*command, "--virtual-time-budget=5000", "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=60, check=True
    )  # fmt: skip
    return done.stdout


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium (Debian: chromium-headless-shell)")
@pytest.mark.parametrize(("partitions", "a_topic"), [(5, 1), (5_000, 1), (5_000, 5_000)])
def test_a_browser_draws_the_page(partitions: int, a_topic: int, tmp_path: Path) -> None:
    dom = dom_of(page_of(report_data(partitions, a_topic)), tmp_path)
    assert 'data-drawn="yes"' in dom
    assert dom.count("<canvas") == 4
    topics = partitions // a_topic
    assert dom.count("<details") == min(topics, 100)
    assert dom.count('class="part"') == (0 if topics > 1 else 101)  # a hundred, and the button for more


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium (Debian: chromium-headless-shell)")
def test_a_page_without_any_run_says_why_it_does_not_work(tmp_path: Path) -> None:
    data = report_data(5)
    data["status"] |= {"working": False, "runs": [], "late": ["backup: no run has left a note"]}
    dom = dom_of(page_of(data), tmp_path)
    assert '<section id="runs">' in dom
    assert "late: backup: no run has left a note" in dom


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium (Debian: chromium-headless-shell)")
def test_a_browser_runs_no_script_of_a_name(tmp_path: Path) -> None:
    dom = dom_of(page_of(report_data(5, extra=EVIL)), tmp_path)
    assert 'data-drawn="yes"' in dom
    assert "<title>owned" not in dom
    assert "<img" not in dom
    assert html.escape(EVIL, quote=False) in dom
