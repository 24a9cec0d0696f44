"""When a test runs is decided by what it starts. A pytest plug-in that knows it, checks it, and keeps the times.

A test that starts something carries a mark for it; what a fixture starts is known here, and needs no mark:

    spark      a JVM, or uses the one of the fixture `spark`
    process    a child process: a command of ours, a server, a database
    browser    Chromium
    long       series of kills, benchmarks in small, the whole demo: minutes

A test that starts something without its mark fails. The tiers are:

    make test     all that start nothing, and of the others those marked `core`      laws: quick
    make slow     the others that are not `long`, and all laws once more             laws: full
    make night    the long ones, and all laws once more                              laws: explore

All Spark tests of a process share one JVM: they are one group of xdist's, so that on two cores one process is busy with
Spark while the other does everything else.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings

from tests.laws import EXAMPLES, SEED

KINDS = ("browser", "spark", "process")
#: What fixtures start, by their names.
FIXTURES = {
    "spark": "spark",
    "browser": "browser",
    "running": "process",
    "postgres": "process",
    "mariadb": "process",
    "redis_url": "process",
    "objects": "process",
    "mosquitto": "process",
    "kafka": "process",
}
#: Examples in docstrings cannot carry a mark.
DOCTESTS = {"headwater.testing.crash.run_until_killed": ("process", "core")}
#: The marks under which each kind may be started: a command may run Spark, and a browser looks at a server.
ALLOWED = {"spark": ("spark", "process"), "process": ("process", "browser"), "browser": ("browser",)}
TIERS = {"test": "quick", "slow": "full", "night": "explore"}
#: Programs that answer a question about the machine and end.
HARMLESS = ("uname", "ldconfig", "gcc", "cc", "ld", "git", "lsb_release", "mount", "umount", "file", "getconf")
BUDGET_SECONDS = {"test": 300, "slow": 1080}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=list(TIERS), help="run one tier of the tests; without it, all but the long ones")
    parser.addoption("--failed-to", type=Path, help="a file for the names of failed tests, for pytest's `@file`")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile(TIERS.get(config.getoption("--tier"), "quick"))
    for line in (
        "spark: uses a JVM",
        "process: starts a child process",
        "browser: uses Chromium",
        "long: takes minutes; run by `make night`",
        "kafka: uses the one broker of the fixture `kafka`",
        "core: run by `make test` although it starts something",
        "law: states a law under `@given`; set by tests/tiers.py",
    ):
        config.addinivalue_line("markers", line)
    config.pluginmanager.register(_Times(config), "headwater-times")
    if config.getoption("--failed-to") is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Failed(config), "headwater-failed")


# -- which tests run, and where ---------------------------------------------------------------------------------------


# A wrapper, because xdist reads the groups in a hook of its own that also wants to be first.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    tier = config.getoption("--tier")
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in FIXTURES:
                item.add_marker(FIXTURES[fixture])
        for mark in DOCTESTS.get(item.name, ()):
            item.add_marker(mark)
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("law")
        if not marked(item, "xdist_group"):
            item.add_marker(pytest.mark.xdist_group(group_of(item)))
        (kept if is_in(item, tier) else dropped).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
    # Groups are handed out in this order: what takes longest must not begin last.
    items[:] = sorted(kept, key=_turn)
    return (yield)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exempt what the collection has loaded from garbage collection: each full one would visit all of it."""
    gc.collect()
    gc.freeze()


def is_in(item: pytest.Item, tier: str | None) -> bool:
    """Whether a tier runs a test; without a tier, all run but the long ones."""
    is_long, is_law = marked(item, "long"), marked(item, "law")
    is_quick = not kinds_of(item) or marked(item, "core")
    if tier == "night":
        return is_long or is_law
    if tier == "slow":
        return not is_long and (is_law or not is_quick)
    return not is_long and (is_quick or tier is None)


def _turn(item: pytest.Item) -> int:
    started = kinds_of(item)
    return 0 if "spark" in started else 1 if started else 2


def group_of(item: pytest.Item) -> str:
    """Tests of one group run in one process, one after the other."""
    if "running" in getattr(item, "fixturenames", ()):
        return "company"
    if marked(item, "browser"):
        return "browser"
    if marked(item, "spark"):
        return "spark"
    if marked(item, "kafka") or "kafka" in getattr(item, "fixturenames", ()):
        return "kafka"
    return item.path.relative_to(item.config.rootpath).as_posix()


def marked(item: pytest.Item, name: str) -> bool:
    return item.get_closest_marker(name) is not None


def kinds_of(item: pytest.Item) -> list[str]:
    """What a test starts, by its marks."""
    return [kind for kind in KINDS if marked(item, kind)]


# -- what a test starts -----------------------------------------------------------------------------------------------

_started: list[tuple[str, str]] | None = None


# Any: what Python tells an audit hook.
def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _started is None:
        return
    if event == "subprocess.Popen":
        program = Path(os.fsdecode(arguments[0])).name
        words = [program] if isinstance(arguments[1], (str, bytes)) else [str(word) for word in arguments[1]]
        if program not in HARMLESS:
            _started.append((kind_of_program(program, words), " ".join(words)[:120]))
    elif event in ("os.fork", "os.forkpty", "os.posix_spawn"):
        _started.append(("process", event))


sys.addaudithook(_audit)


def kind_of_program(program: str, words: list[str]) -> str:
    """The kind of what a command starts.

    >>> kind_of_program("java", ["java"]), kind_of_program("node", ["node", "playwright/cli.js"])
    ('spark', 'browser')
    """
    if program in ("java", "spark-submit", "spark-class") or any("fork_server" in word for word in words[:3]):
        return "spark"
    if "chrom" in program or any("playwright" in word for word in words[:3]):
        return "browser"
    return "process"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    global _started
    _started = []
    try:
        return (yield)
    finally:
        _started = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    result = yield
    for kind, command in _started or ():
        if not any(marked(item, mark) for mark in ALLOWED[kind]):
            pytest.fail(f"this test starts `{command}`: mark it @pytest.mark.{kind}", pytrace=False)
    return result


# -- how long it took -------------------------------------------------------------------------------------------------


class _Times:
    """Adds up what each file and each kind of test took, for the lines at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._tier: str | None = config.getoption("--tier")
        self._is_worker = hasattr(config, "workerinput")
        self._began = time.monotonic()
        self._files: dict[str, float] = defaultdict(float)
        self._kinds: dict[str, float] = defaultdict(float)
        self._counts: Counter[str] = Counter()
        self._skips: Counter[str] = Counter()
        self._laws = 0
        self._long: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        kind = next((kind for kind in KINDS if kind in report.keywords), "nothing")
        self._files[report.nodeid.partition("::")[0]] += report.duration
        self._kinds[kind] += report.duration
        self._counts[kind] += report.when == "call"
        if report.when == "call" and "long" in report.keywords:
            self._long.append(f"{report.nodeid.partition('@')[0]} {report.outcome} {report.duration:.0f} s")
        elif report.when == "call" and "law" in report.keywords:
            self._laws += 1
        if report.skipped and isinstance(report.longrepr, tuple):
            self._skips[report.longrepr[2].removeprefix("Skipped: ")] += 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:  # Any: pytest does not export its class
        if self._is_worker or not self._counts:
            return
        for reason, count in sorted(self._skips.items()):
            terminalreporter.write_line(f"LEFT OUT {count}: {reason}")
        passed = time.monotonic() - self._began
        budget = BUDGET_SECONDS.get(self._tier or "")
        told = f"{passed:.0f} s" + (f" of {budget} s" if budget else "")
        kinds = [f"{kind} {self._kinds[kind]:.0f} s in {self._counts[kind]}" for kind in ("nothing", *KINDS)]
        terminalreporter.write_line(f"{self._tier or 'tests'}: {told}. By what tests start: {', '.join(kinds)}")
        if self._tier == "night":
            examples = f"{EXAMPLES['explore']:,} examples at seed {SEED}"
            terminalreporter.write_line(
                f"Covered: {self._laws} laws with up to {examples}; {len(self._long)} long tests:"
            )
            for name in sorted(self._long):
                terminalreporter.write_line(f"  {name}")
        slowest = sorted(self._files.items(), key=lambda pair: -pair[1])[:5]
        terminalreporter.write_line(f"Slowest: {', '.join(f'{name} {seconds:.0f} s' for name, seconds in slowest)}")
        if budget and passed > budget:
            terminalreporter.write_line("Over the budget: see «The budget» in CONTRIBUTING.md", red=True)


# -- which tests failed -----------------------------------------------------------------------------------------------


class _Failed:
    """Writes the names of the tests that failed to a file, if nothing else went wrong; otherwise there is no file."""

    def __init__(self, config: pytest.Config) -> None:
        self._path: Path = config.getoption("--failed-to")
        self._names: dict[str, None] = {}
        self._has_unread_files = False
        self._path.unlink(missing_ok=True)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._has_unread_files |= report.failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            # xdist adds the group to the names of tests that it hands out.
            is_handed_out = hasattr(report, "node")
            self._names[report.nodeid.rpartition("@")[0] if is_handed_out else report.nodeid] = None

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.TESTS_FAILED and not self._has_unread_files:
            self._path.write_text("".join(f"{name}\n" for name in self._names), encoding="utf-8")
