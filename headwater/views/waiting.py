"""Read your own writes: wait until a view reflects so much of a topic, also through other views and topics.

Where a view does not read the topic itself but something that is made from it, the way is followed backwards: first
whatever stands in between must reflect the write, then the view must reflect all that stands there by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headwater.errors import ArgumentInvalid, ViewBehind
from headwater.log import Offsets
from headwater.views.keeper import ViewKeeper
from headwater.views.spec import Sources, reached

AtLeast = Mapping[str, Offsets]
TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """A reader's wish, and until when it waits."""

    keeper: ViewKeeper
    view: str
    began: float
    deadline: float

    def wait(self, at_least: AtLeast) -> None:
        own = self.keeper.upkeep(self.view).spec.topic
        for topic, offsets in at_least.items():
            wanted = _checked(topic, offsets)
            if topic == own:
                self._until(topic, wanted, lambda: self.keeper.upkeep(self.view).position.offsets)
            else:
                self._reflects(topic, wanted, self._sources, seen=frozenset({own}))

    def _sources(self) -> Sources:
        return self.keeper.upkeep(self.view).position.sources

    def _reflects(self, topic: str, wanted: Offsets, sources: Callable[[], Sources], *, seen: frozenset[str]) -> None:
        """Wait until what `sources` tells of covers the offsets of the topic, directly or by what lies in between."""
        self._until_known(topic, wanted, sources, seen)
        if topic in sources():
            self._until(topic, wanted, lambda: sources().get(topic, {}))
            return
        for middle in self._between(topic, sources(), seen):
            self._reflects(topic, wanted, lambda m=middle: self._sources_of(m), seen=seen | {middle})  # type: ignore[misc]
            end = self.keeper.end_offsets(middle)
            self._until(middle, end, lambda m=middle: sources().get(m, {}))  # type: ignore[misc]

    def _until_known(self, topic: str, wanted: Offsets, sources: Callable[[], Sources], seen: frozenset[str]) -> None:
        """Wait until the query has said what it reads; refuse a topic that is not among it."""
        if not self.keeper.wait_for(lambda: bool(sources()), deadline=self.deadline):
            raise self._behind(topic, wanted, {})
        now = sources()
        if topic not in now and not self._between(topic, now, seen):
            expected = f"topics that view {self.view!r} is made from: {', '.join(sorted(now))}"
            raise ArgumentInvalid(name="at_least", value=topic, expected=expected)

    def _between(self, topic: str, sources: Sources, seen: frozenset[str]) -> list[str]:
        """Those sources that are themselves made from the topic."""
        return [middle for middle in sources if middle not in seen and self._derives(middle, topic, seen | {middle})]

    def _derives(self, middle: str, topic: str, seen: frozenset[str]) -> bool:
        sources = self._sources_of(middle)
        return topic in sources or any(
            self._derives(inner, topic, seen | {inner}) for inner in sources if inner not in seen
        )

    def _sources_of(self, topic: str) -> Sources:
        return self.keeper.sources_of_topic(topic) or {}

    def _until(self, topic: str, wanted: Offsets, now: Callable[[], Offsets]) -> None:
        def met() -> bool:
            if reached(now(), wanted):
                return True
            problem = self.keeper.upkeep(self.view).problem
            if problem is not None:
                raise problem
            return False

        if not self.keeper.wait_for(met, deadline=self.deadline):
            raise self._behind(topic, wanted, now())

    def _behind(self, topic: str, wanted: Offsets, now: Offsets) -> ViewBehind:
        return ViewBehind(
            view=self.view,
            topic=topic,
            wanted=_shown(wanted),
            reached=_shown({partition: now.get(partition, 0) for partition in wanted}),
            waited=time.monotonic() - self.began,
        )


def wait_for_offsets(keeper: ViewKeeper, view: str, at_least: AtLeast | None, timeout: float | None) -> None:
    """Wait until a view reflects at least these next-offsets of topics, or raise `ViewBehind`."""
    if not at_least:
        return
    began = time.monotonic()
    seconds = TIMEOUT_SECONDS if timeout is None else timeout
    Requirement(keeper=keeper, view=view, began=began, deadline=began + seconds).wait(at_least)


# object: what a caller has given, before it is known to be right.
def _checked(topic: str, offsets: object) -> Offsets:
    if isinstance(offsets, Mapping) and all(
        isinstance(part, int) and isinstance(one, int) for part, one in offsets.items()
    ):
        return dict(offsets)
    raise ArgumentInvalid(name="at_least", value={topic: offsets}, expected="{topic: {partition: next offset}}")


def _shown(offsets: Offsets) -> str:
    return ", ".join(f"{offset} in partition {partition}" for partition, offset in sorted(offsets.items())) or "nothing"
