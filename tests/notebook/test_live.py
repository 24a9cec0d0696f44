"""One output that follows something: it shows changes, it stops by itself, and it leaves nothing open."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest

from headwater.apps.errors import RunnerNotFound
from headwater.errors import ArgumentInvalid
from headwater.notebook import follow
from headwater.notebook.live import Frame
from headwater.optional import PackageMissing


class Output:
    """A notebook's output: every frame that it was given. `react` is called with each, as a person sees it."""

    def __init__(self) -> None:
        self.frames: list[str] = []
        self.react: Callable[[str], None] = lambda _: None

    def display(self, frame: Frame, *, display_id: bool) -> Output:
        assert display_id
        self.update(frame)
        return self

    def update(self, frame: Frame) -> None:
        self.frames.append(frame._repr_html_())
        self.react(self.frames[-1])


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> Output:
    """A display of IPython's, whether that is installed or not."""
    output, package, module = Output(), ModuleType("IPython"), ModuleType("IPython.display")
    module.display = output.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return output


class Scripted:
    """Changes as a script has them: numbers are changes, errors are raised, and at its end nothing more comes."""

    def __init__(self, *script: int | BaseException) -> None:
        self.script = list(script)
        self.is_open = False

    def next(self, *, timeout: float | None = None) -> int | None:
        assert self.is_open
        assert timeout is not None
        assert timeout > 0
        if not self.script:
            return None
        step = self.script.pop(0)
        if isinstance(step, BaseException):
            raise step
        return step

    @contextmanager
    def opened(self) -> Iterator[Scripted]:
        self.is_open = True
        try:
            yield self
        finally:
            self.is_open = False


def shown(changes: Scripted, **settings: float) -> None:
    follow(lambda note: f"{len(changes.script)} left. {note}", changes.opened, name="it", **settings)


def test_many_changes_are_one_picture_and_the_end_is_told(output: Output) -> None:
    changes = Scripted(*range(1000))
    shown(changes)
    assert output.frames == ["1000 left. Live.", "0 left. Live.", "0 left. Stopped: nothing more comes."]
    assert not changes.is_open


def test_it_stops_when_its_time_is_over(output: Output) -> None:
    changes = Scripted()
    shown(changes, seconds=0.01)
    assert output.frames[-1] == "0 left. Stopped after 0.01 s; call it again to go on."
    assert not changes.is_open


def test_an_interrupt_ends_it_quietly(output: Output) -> None:
    changes = Scripted(KeyboardInterrupt(), 1)
    shown(changes)
    assert output.frames[-1] == "1 left. Interrupted; call it again to go on."
    assert not changes.is_open


def test_an_interrupt_while_a_picture_is_drawn_ends_it_too(output: Output) -> None:
    def interrupt(html: str) -> None:
        if html == "0 left. Live.":
            output.react = lambda _: None
            raise KeyboardInterrupt

    output.react = interrupt
    changes = Scripted(1)
    shown(changes)
    assert output.frames[-1].endswith("Interrupted; call it again to go on.")
    assert not changes.is_open


def test_an_app_that_ends_meanwhile_is_told_in_the_output(output: Output) -> None:
    changes = Scripted(1, RunnerNotFound(name="shop"))
    shown(changes)
    assert "shop" in output.frames[-1]
    assert not changes.is_open


def test_any_other_failure_is_raised_and_nothing_stays_open(output: Output) -> None:
    changes = Scripted(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        shown(changes)
    assert len(output.frames) == 1
    assert not changes.is_open


@pytest.mark.parametrize("seconds", [0, -1, 3601, float("inf"), float("nan")])
def test_for_how_long_is_checked(output: Output, seconds: float) -> None:
    with pytest.raises(ArgumentInvalid, match="seconds"):
        shown(Scripted(), seconds=seconds)
    assert output.frames == []


def test_without_ipython_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    changes = Scripted()
    with pytest.raises(PackageMissing, match=r"headwater\[notebook\]"):
        shown(changes)
    assert not changes.is_open


def test_the_real_ipython_shows_it_in_one_output() -> None:
    pytest.importorskip("IPython")
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    InteractiveShell.instance()
    try:
        with capture_output() as captured:
            shown(Scripted(1, 2))
    finally:
        InteractiveShell.clear_instance()
    assert [output.data["text/html"] for output in captured.outputs] == [
        "2 left. Live.", "0 left. Live.", "0 left. Stopped: nothing more comes.",
    ]  # fmt: skip
    assert [output.update for output in captured.outputs] == [False, True, True]
    assert len({output.transient["display_id"] for output in captured.outputs}) == 1
