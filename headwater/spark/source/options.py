"""The options of a read, checked as a whole before anything is read."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from headwater.errors import ArgumentInvalid, UsageError
from headwater.schema.event_time import EventTime
from headwater.units import parse_bytes, parse_seconds

Position = Literal["earliest", "latest", "now"] | int | datetime | dict[str, dict[int, int]]
OnExpired = Literal["fail", "skip"]
Format = Literal["json", "avro"]
BadRows = Literal["dead_letter", "fail"]
Metadata = Literal["none", "position", "all"]

ROWS_MAX = 4_000_000
_GLOB = re.compile(r"[*?\[]")
_POSITION = "'earliest', 'latest', an offset, an ISO 8601 time, or JSON such as {\"orders\": {\"0\": 120}}"
_TIME = "an ISO 8601 time such as 2026-11-15T10:00:00Z"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `format("headwater")` on the reading side; `docs/reference/spark-source.md` has the table."""

    log: str
    topics: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    start: Position = "earliest"
    stop: Position = "latest"
    since_us: int | None = None
    until_us: int | None = None
    rows_max: int | None = ROWS_MAX
    bytes_max: int | None = None
    on_expired: OnExpired = "fail"
    tick_seconds: float | None = None
    ticks_max: int | None = None
    tick_rest_seconds: float = 0.0
    metadata: Metadata | None = None
    punctuations: bool = False
    clock: str = "system"
    state: str | None = None
    partitions_min: int = 1
    format: Format | None = None
    schema: str | None = None
    #: The event time of the rows, where it is another than that of their topics.
    time: EventTime | None = None
    bad_rows: BadRows = "dead_letter"
    #: What the reader does to its rows for an operator, as `headwater.engine.reader_protocol` encodes it.
    reader_stage: str | None = None
    #: The topic of questions to the query, and what they call it: a batch begins when one comes.
    asks: tuple[str, str] | None = None
    #: Whether nothing follows what is there when the read has caught up.
    end_of_input: bool = False

    @property
    def several(self) -> bool:
        """Whether rows of more than one topic can come, so that each must say whose it is.

        >>> Options(log="data", topics=("orders",)).several, Options(log="data", topics=("orders.*",)).several
        (False, True)
        """
        return len(self.topics) > 1 or is_pattern(self.topics[0])

    @property
    def source(self) -> str:
        """A name for this source that is the same after each restart, and another for other rows."""
        facts = [self.log, self.topics, self.columns, self.since_us, self.until_us, self.format]
        facts += [] if self.reader_stage is None else [self.reader_stage.partition(":")[0]]
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]

    @staticmethod
    def parse(given: Mapping[str, str], *, log: str | None = None) -> Options:
        """Parse what is in `.option(…)` and `.load(…)`; an unknown name is an error.

        >>> Options.parse({"path": "orders", "log": "data", "rows_max": "500"}).rows_max
        500
        """
        values: dict[str, Any] = {"log": log, "topics": ()}
        for name, text in given.items():
            key = name.lower()
            if key not in _RULES:
                raise ArgumentInvalid(name=name, value=text, expected=f"another option: {_nearest(key)}")
            field, parse = _RULES[key]
            try:
                value = parse(text)
            except (UsageError, ValueError) as error:
                expected = error.expected if isinstance(error, ArgumentInvalid) else str(error)
                raise ArgumentInvalid(name=name, value=text, expected=expected) from None
            values[field] = (*values["topics"], *value) if field == "topics" else value
        if not values["topics"]:
            raise ArgumentInvalid(name="topics", value="", expected="at least one topic, as in `.load('orders')`")
        if values["log"] is None:
            raise ArgumentInvalid(
                name="log", value=None, expected="the log's address, as in `.option('log', './data')`"
            )
        return Options(**values)


def is_pattern(topic: str) -> bool:
    """Whether a name stands for all topics that match it."""
    return _GLOB.search(topic) is not None


def micros(moment: datetime) -> int:
    """Microseconds since 1970; a time without a zone is UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1_000_000)


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, _RULES, n=1)
    return f"did you mean `{near[0]}`?" if near else f"there are {', '.join(sorted(_RULES))}"


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _position(text: str) -> Position:
    word = text.strip()
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    if re.fullmatch(r"-?\d+", word):
        return int(word)
    if word.startswith("{"):
        return _positions(word)
    return _moment(word, expected=_POSITION)


def _positions(text: str) -> dict[str, dict[int, int]]:
    try:
        body = json.loads(text)
        return {
            topic: {int(partition): int(offset) for partition, offset in offsets.items()}
            for topic, offsets in body.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise ArgumentInvalid(name="", value=text, expected=_POSITION) from None


def _moment(text: str, *, expected: str = _TIME) -> datetime:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ArgumentInvalid(name="", value=text, expected=expected) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _count(text: str) -> int:
    if not text.strip().replace("_", "").isdecimal() or int(text) < 1:
        raise ArgumentInvalid(name="", value=text, expected="a whole number of at least 1")
    return int(text)


def _flag(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ArgumentInvalid(name="", value=text, expected="true or false")
    return text.strip().lower() == "true"


def _metadata(text: str) -> str:
    known = {"none": "none", "false": "none", "position": "position", "all": "all", "true": "all"}
    if text.strip().lower() not in known:
        raise ArgumentInvalid(name="", value=text, expected="none, position or all")
    return known[text.strip().lower()]


def _or_none(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: None if text.strip().lower() == "none" else parse(text)


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ArgumentInvalid(name="", value=text, expected=" or ".join(choices))
        return text

    return parse


def _topic_and_query(text: str) -> tuple[str, str]:
    topic, _, query = text.partition("/")
    if not topic or not query:
        raise ArgumentInvalid(
            name="", value=text, expected="a topic and the name of a query, such as shop.questions/spend"
        )
    return topic, query


# Any: each parser gives what its field takes, which the dataclass says.
_RULES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "log": ("log", str),
    "path": ("topics", _names),
    "topics": ("topics", _names),
    "pattern": ("topics", _names),
    "columns": ("columns", _names),
    "start": ("start", _position),
    "stop": ("stop", lambda text: "now" if text.strip().lower() == "now" else _position(text)),
    "since": ("since_us", lambda text: micros(_moment(text))),
    "until": ("until_us", lambda text: micros(_moment(text))),
    "rows_max": ("rows_max", _or_none(_count)),
    "bytes_max": ("bytes_max", _or_none(parse_bytes)),
    "on_expired": ("on_expired", _one_of("fail", "skip")),
    "tick": ("tick_seconds", _or_none(parse_seconds)),
    "ticks_max": ("ticks_max", _or_none(_count)),
    "tick_rest": ("tick_rest_seconds", parse_seconds),
    "metadata": ("metadata", _metadata),
    "punctuations": ("punctuations", _flag),
    "clock": ("clock", str),
    "state": ("state", str),
    "partitions_min": ("partitions_min", _count),
    "format": ("format", _one_of("json", "avro")),
    "schema": ("schema", str),
    "time": ("time", EventTime.of),
    "bad_rows": ("bad_rows", _one_of("dead_letter", "fail")),
    "reader_stage": ("reader_stage", str),
    "asks": ("asks", _topic_and_query),
    "end_of_input": ("end_of_input", _flag),
}
OPTION_NAMES = frozenset(_RULES)
