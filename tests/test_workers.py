"""A Python worker of Spark collects garbage after every task: modules that stay loaded are kept out of it."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Iterator

import pytest

from headwater import workers


@pytest.fixture
def collections(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[None]]:
    """One entry for each full collection that was made on purpose."""
    made: list[None] = []
    collect = gc.collect
    monkeypatch.setattr(workers, "_modules_frozen", 0)

    def counted() -> int:
        made.append(None)
        return collect()

    monkeypatch.setattr(gc, "collect", counted)
    yield made
    gc.unfreeze()


@pytest.mark.usefixtures("collections")
def test_what_is_loaded_is_out_of_the_collectors_sight() -> None:
    workers.freeze_modules()
    assert gc.get_freeze_count() > 10_000
    assert len(gc.get_objects()) < 10_000


def test_it_costs_nothing_until_further_modules_are_loaded(
    collections: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        workers.freeze_modules()
    assert len(collections) == 1
    monkeypatch.setitem(sys.modules, "loaded_later", types.ModuleType("loaded_later"))
    workers.freeze_modules()
    assert len(collections) == 2


@pytest.mark.usefixtures("collections")
def test_garbage_that_comes_later_is_still_collected() -> None:
    workers.freeze_modules()
    ring: list[object] = []
    ring.append(ring)
    del ring
    assert gc.collect() >= 1
