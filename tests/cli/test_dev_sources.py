"""What `headwater dev` takes in again: the app's file, its own modules, the settings; and what it leaves alone."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from pyspark import cloudpickle

from headwater.apps.errors import AppFileFailed
from headwater.cli.commands.dev import Sources, _is_own
from headwater.cli.session import Flags, Session

APP = """
import headwater as hw
import prices
from shop.rules import large

app = hw.App("shop")
app.input("orders", {"amount": "float64"})
answer = (prices.TEA, large(1))
"""


@pytest.fixture(autouse=True)
def _what_is_loaded_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    others = _taken_out()
    yield
    _taken_out()
    sys.modules.update(others)


def _taken_out() -> dict[str, ModuleType]:
    """The modules whose names these tests use; nothing knows them afterwards, for other tests have some of the same name."""
    names = [name for name in sys.modules if name.partition(".")[0] in ("app", "other", "prices", "shop", "lost")]
    return {name: sys.modules.pop(name) for name in names}


@pytest.fixture
def sources() -> Sources:
    write("app.py", APP)
    write("prices.py", "TEA = 3")
    write("shop/rules.py", "def large(amount): return amount > 9")
    write("aside.py", "UNUSED = 1")
    return Sources(Session.begin(Flags()), "app.py")


_ticks = iter(range(1, 1_000))


def write(name: str, text: str) -> None:
    """Save a file, later than everything before: clocks of file systems tick slowly."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    when = 1_700_000_000_000_000_000 + next(_ticks) * 1_000_000
    os.utime(path, ns=(when, when))


def answer() -> object:
    return vars(sys.modules["app"])["answer"]


def test_what_the_app_has_loaded_is_watched_and_loaded_again(sources: Sources) -> None:
    assert sources.load().name == "shop"
    assert (answer(), sources.saved()) == ((3, False), None)
    write("prices.py", "TEA = 4")  # the same size, in the same second
    assert sources.saved() == Path("prices.py")
    sources.load()
    assert (answer(), sources.saved()) == ((4, False), None)
    write("shop/rules.py", "def large(amount): return amount > 0")
    assert sources.saved() == Path("shop/rules.py")
    sources.load()
    assert answer() == (4, True)
    write("app.py", APP.replace("large(1)", "large(-1)"))
    assert sources.saved() == Path("app.py")
    sources.load()
    assert (answer(), sources.saved()) == ((4, False), None)


def test_what_the_app_has_not_loaded_does_not_matter(sources: Sources) -> None:
    sources.load()
    write("aside.py", "UNUSED = 2")
    write("data/notes.txt", "rows")
    Path("prices.py").unlink()  # editors replace a file in two steps
    assert sources.saved() is None


def test_a_mistake_in_a_module_leaves_everything_as_it_was_until_it_is_fixed(sources: Sources) -> None:
    sources.load()
    prices, rules = sys.modules["prices"], sys.modules["shop.rules"]
    write("shop/rules.py", "def large(amount) return amount")
    with pytest.raises(AppFileFailed, match="SyntaxError"):
        sources.load()
    assert (sys.modules["prices"], sys.modules["shop.rules"]) == (prices, rules)
    assert answer() == (3, False)
    assert sources.saved() is None
    write("shop/rules.py", "def large(amount): return 'fixed'")
    assert sources.saved() == Path("shop/rules.py")
    sources.load()
    assert answer() == (3, "fixed")


def test_a_module_that_was_missing_is_noticed_when_it_comes(sources: Sources) -> None:
    sources.load()
    write("app.py", APP + "import lost\n")
    with pytest.raises(AppFileFailed, match="lost"):
        sources.load()
    assert sources.saved() is None
    write("lost.py", "FOUND = 1")
    write("app.py", APP + "import lost\nanswer = lost.FOUND\n")
    assert sources.saved() is not None
    sources.load()
    assert answer() == 1


def test_the_settings_say_which_file_it_is_and_are_watched() -> None:
    write("headwater.toml", 'app = "app.py"\nlog = "./first"')
    write("app.py", 'import headwater as hw\napp = hw.App("one")')
    write("other.py", 'import headwater as hw\napp = hw.App("two")')
    sources = Sources(Session.begin(Flags()), None)
    assert sources.load().log == "./first"
    write("headwater.toml", 'app = "other.py"\nlog = "./second"')
    assert sources.saved() == Path("headwater.toml")
    second = sources.load()
    assert (second.name, second.log, sources.saved()) == ("two", "./second", None)
    write("headwater.toml", "")
    with pytest.raises(typer.BadParameter, match="No file"):
        sources.load()
    write("headwater.toml", 'app = "app.py"')
    assert sources.saved() == Path("headwater.toml")
    assert sources.load().name == "one"


def test_functions_of_its_modules_travel_whole(sources: Sources) -> None:
    """A worker that has imported a module once would call its old functions for ever."""
    sources.load()
    pickled: Any = cloudpickle  # Any: it has no types
    sent = pickled.dumps(vars(sys.modules["shop.rules"])["large"])
    del sys.modules["shop.rules"], sys.modules["shop"]
    write("shop/rules.py", "def large(amount): return 'another'")
    assert pickled.loads(sent)(10) is True


def test_what_is_installed_below_the_folder_is_not_the_apps_own(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(".venv/lib/site-packages/installed_here.py", "COUNT = []")
    monkeypatch.syspath_prepend(str(Path(".venv/lib/site-packages").absolute()))
    write("prices.py", "import installed_here\nTEA = 3")
    sources.load()
    installed = sys.modules["installed_here"]
    sources.load()
    assert sys.modules["installed_here"] is installed
    del sys.modules["installed_here"]


@pytest.mark.parametrize("module", [json, threading, pytest])
def test_an_app_above_pythons_own_folder_does_not_take_it_for_its_own(module: ModuleType) -> None:
    assert not _is_own(Path(module.__file__ or ""), Path("/"))
