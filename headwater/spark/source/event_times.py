"""What a source knows of event time when it plans a batch: the latest time of each partition, and what punctuations promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from headwater.engine.event_time import EVER, NEVER, WatermarkStrategy
from headwater.log import Log
from headwater.log.port import EventTimes
from headwater.log.topic import Topic
from headwater.schema.event_time import EventTime
from headwater.spark.source import offsets
from headwater.spark.source.offsets import Offsets, Progress
from headwater.spark.source.options import Options
from headwater.spark.source.topics import recorded_time

#: Of a partition: from where to where it was looked at, how far it reached then, and what was found.
Look = tuple[int, int, tuple[int, int], EventTimes]
NOTHING = EventTimes(None, None)


@dataclass
class EventTimeProgress:
    """Follows the event time of a source's partitions from batch to batch. A partition in which nothing happened is not read."""

    options: Options
    _looks: dict[tuple[str, int], Look] = field(default_factory=dict)

    def promised(
        self, log: Log, topics: dict[str, Topic], before: Progress, ends: Offsets, *, now_us: int, is_end: bool
    ) -> Offsets:
        """The latest promise of each partition up to these offsets; at the end of the input, that nothing follows."""
        found: Offsets = {}
        time = recorded_time(topics, self.options)
        oldest = cache(log.start_offsets)
        for topic, stops in ends.items():
            # Without a time no operator goes by what this source would record, and to look for it has its price.
            places = {} if time is None else log.tails(topic)
            for number, stop in stops.items():
                look = NOTHING
                if time is not None:
                    look = self._look(log, time, before, oldest, topic, number, stop, places[number], now_us=now_us)
                known = [before.promised.get(topic, {}).get(number), look.promised_us, EVER if is_end else None]
                promises = [one for one in known if one is not None]
                if promises:
                    found.setdefault(topic, {})[number] = max(promises)
        return found

    def times(self, before: Progress, ends: Offsets, promised: Offsets, *, now_us: int) -> offsets.EventTimes:
        """The latest event time of each partition up to these offsets, and when it was seen."""
        times = {topic: dict(partitions) for topic, partitions in before.times.items()}
        for topic, stops in ends.items():
            for number in stops:
                known = before.times.get(topic, {}).get(number)
                latest_us = self._looks[topic, number][3].latest_us if (topic, number) in self._looks else None
                is_promise = promised.get(topic, {}).get(number) != before.promised.get(topic, {}).get(number)
                if latest_us is not None or (is_promise and known is not None):
                    before_us = NEVER if known is None else known[0]
                    latest_us = before_us if latest_us is None else max(latest_us, before_us)
                    times.setdefault(topic, {})[number] = (latest_us, now_us)
        return times

    def _look(
        self,
        log: Log,
        time: EventTime,
        before: Progress,
        oldest: Callable[[str], Mapping[int, int]],
        topic: str,
        number: int,
        stop: int,
        place: tuple[int, int],
        *,
        now_us: int,
    ) -> EventTimes:
        start = before.topics.get(topic, {}).get(number, stop)
        known = self._looks.get((topic, number))
        if known is not None and known[:3] == (start, stop, place):
            return known[3]
        first = max(start, oldest(topic)[number])
        until_us = WatermarkStrategy.of(time).bound_us(now_us)
        found = log.event_times(topic, number, start=min(first, stop), stop=stop, until_us=until_us)
        self._looks[topic, number] = (start, stop, place, found)
        return found
