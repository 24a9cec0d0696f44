"""The soak runs, its last line can be read by a machine, and it can write its page. No figure is judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.soak import page, picture
from benchmarks.soak.samples import MEASURES, Sample, of_jvm, trend, usage

ROOT = Path(__file__).resolve().parent.parent.parent


def samples(minutes: int, *, rise: float = 0.0) -> list[Sample]:
    names = [measure.name for measure in MEASURES]
    return [{"seconds": 60.0 * now, **dict.fromkeys(names, 100.0 + rise * now)} for now in range(minutes + 1)]


def test_what_is_steady_has_no_trend() -> None:
    found = trend(samples(30), "jvm")
    assert (found.middle, found.last, found.highest, found.per_hour) == (100.0, 100.0, 100.0, 0.0)


def test_what_rises_is_told_by_the_hour() -> None:
    found = trend(samples(30, rise=2.0), "jvm")
    assert round(found.per_hour) == 120
    assert found.last > found.middle


def test_files_and_bytes_are_counted_without_the_apps(tmp_path: Path) -> None:
    for name in ("a", "apps/b", "deep/c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * 5_000)
    files, taken = usage(tmp_path, without=tmp_path / "apps")
    assert files == 2
    assert taken >= 10_000


def test_a_line_of_the_jvm_that_is_not_whole_yet_is_left_out(tmp_path: Path) -> None:
    line = {"heap_used": 2**20, "heap_committed": 2**21, "heap_alive": 0, "non_heap": 0, "threads": 5}
    (tmp_path / "jvm").write_text(json.dumps(line) + "\n" + '{"heap_us')
    assert of_jvm(tmp_path / "jvm") == {"committed": 2.0, "heap": 1.0, "alive": 0.0, "non_heap": 0.0, "threads": 5.0}
    assert of_jvm(tmp_path / "none") == {}


def test_the_picture_has_a_line_for_each_measure_of_each_panel() -> None:
    root = ElementTree.fromstring(picture.svg(samples(10, rise=1.0), title="An app & its memory"))
    lines = [one for one in root.iter() if one.tag.endswith("polyline")]
    assert len(lines) == sum(len(measures) for _, measures in picture.PANELS)
    assert all(len(line.attrib["points"].split()) == 11 for line in lines)


def test_a_run_replaces_the_section_of_the_run_before(tmp_path: Path) -> None:
    (tmp_path / "explanation").mkdir()
    (tmp_path / "images").mkdir()
    place = tmp_path / "explanation" / "app-performance.md"
    place.write_text("# Apps\n\n## Results\n\nGood.\n\n## What sets the limits\n\nThings.\n")
    for minutes in (10, 30):
        page.write(samples(minutes), rows=7, rate=2_000, machine="a machine", docs=tmp_path)
    text = place.read_text()
    assert text.count(page.HEADING) == 1
    assert "for 30 minutes" in text
    assert "for 10 minutes" not in text
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# Apps",
        "## Results",
        page.HEADING,
        "## What sets the limits",
    ]
    assert (tmp_path / "images" / "soak.svg").exists()


@pytest.mark.long
@pytest.mark.process
def test_an_app_is_watched(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "benchmarks.soak", "--quick", "--dir", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    results = {one["name"]: one for one in json.loads(done.stdout.splitlines()[-1])["results"]}
    assert set(results) == {f"soak.{measure.name}" for measure in MEASURES}
    assert all(results[f"soak.{name}"]["value"] > 0 for name in ("driver", "jvm", "workers", "open_files", "log"))
    assert list(tmp_path.iterdir()) == []
