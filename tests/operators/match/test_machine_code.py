"""What is small is interpreted, what is large is machine code; that which is kept on disk is never that of other sources."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.operators.match.kernel import machine_code
from headwater.operators.match.kernel.machine_code import CALL_STEPS_MAX, STEPS_MAX, run, sources_mark
from headwater.operators.match.kernel.search import search_keys

SOURCES = ["__init__.py", "codes.py", "conditions.py", "folds.py", "machine_code.py", "search.py"]


@pytest.mark.parametrize("changed", SOURCES)
def test_a_change_of_any_source_leaves_the_code_of_all_behind(changed: str, tmp_path: Path) -> None:
    own = Path(machine_code.__file__).parent
    folders = [tmp_path / "before", tmp_path / "after"]
    for folder in folders:
        folder.mkdir()
        for name in SOURCES:
            (folder / name).write_bytes((own / name).read_bytes())
    (folders[1] / changed).write_bytes((own / changed).read_bytes() + b"\n# other\n")
    assert sources_mark(folders[0]) == sources_mark(own)
    assert sources_mark(folders[1]) != sources_mark(own)


def test_the_code_lies_in_the_folder_of_its_sources() -> None:
    path = str(machine_code._machine_code()[search_keys].stats.cache_path)
    assert f"match-{sources_mark(Path(machine_code.__file__).parent)}" in path


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> machine_code._Steps:
    """A process that has interpreted nothing and compiled nothing."""
    monkeypatch.setattr(machine_code, "_ready", {})
    monkeypatch.setattr(machine_code, "_compilations", {})
    monkeypatch.setattr(machine_code, "_steps", machine_code._Steps())
    return machine_code._steps


def test_few_steps_are_interpreted(steps: machine_code._Steps) -> None:
    assert run(counted, lambda counted: counted(7)) == (7, "interpreted")
    assert steps.of_process == STEPS_MAX - 7
    assert not machine_code._compilations


def test_a_call_of_too_many_steps_begins_again_in_machine_code(
    steps: machine_code._Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    _marked_as(monkeypatch, lambda count: (count, "machine code"))
    assert run(counted, lambda counted: counted(CALL_STEPS_MAX + 1)) == (CALL_STEPS_MAX + 1, "machine code")
    assert run(counted, lambda counted: counted(1)) == (1, "machine code")
    assert steps.of_process == STEPS_MAX


def test_many_small_calls_are_compiled_in_the_background(
    steps: machine_code._Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    _marked_as(monkeypatch, lambda count: (count, "machine code"))
    steps.of_process = 1
    assert run(counted, lambda counted: counted(5)) == (5, "interpreted")
    machine_code._compilations[counted].join()
    assert run(counted, lambda counted: counted(5)) == (5, "machine code")


def counted(count: int) -> tuple[int, str]:
    machine_code.count_steps(count)
    return count, "interpreted"


class _Code:
    """Stands for Numba's dispatcher."""

    def __init__(self, call: Callable[[int], object]) -> None:
        self._call = call

    def __call__(self, count: int) -> object:
        return self._call(count)

    def compile(self, types: tuple[object, ...]) -> None:
        assert [str(one) for one in types] == ["int64"]


def _marked_as(monkeypatch: pytest.MonkeyPatch, call: Callable[[int], object]) -> None:
    monkeypatch.setattr(machine_code, "_machine_code", lambda: {counted: _Code(call)})
