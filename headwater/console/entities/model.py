"""What the pages of entities show, as values: pages of a history, the states around an event, and commands from a form."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import SequenceMatcher
from html import escape
from typing import Any
from urllib.parse import urlencode

import orjson

from headwater.clock import time_us
from headwater.console.kit.values import coloured, pretty
from headwater.console.kit.words import clipped, whole_number
from headwater.console.pages import path_to
from headwater.errors import ArgumentInvalid, HeadwaterError, NotFound
from headwater.services.entities import CommandField, EntityEvent, EntityService

#: Data of events are cut in a table; the event itself shows all of them.
DATA_CHARACTERS_MAX = 100
#: Longer states are shown without marks: to compare their lines would take too long.
MARKED_LINES_MAX = 2_000
#: Places in a history, and what to write for each.
PLACES = {"version": "Version", "offset": "Offset", "time": "Time"}
HINTS = {
    "version": "how many events had happened, such as 3",
    "offset": "of its partition, such as 1200",
    "time": "in UTC, such as 2026-11-15 23:30",
}
#: Types whose values are written as they are, without quotes; those of others are JSON.
_TEXT_TYPES = ("str", "Decimal", "date", "datetime", "time", "UUID", "bytes")


def kind_path(kind: str) -> str:
    """The address of the page of a kind of entities."""
    return path_to("entities", kind)


def entity_path(kind: str, id: str, version: int | None = None) -> str:
    """The address of the page of an entity, at one of its events.

    >>> entity_path("bill", "logic/Kim", 2)
    '/console/entities/bill/entity?id=logic%2FKim&version=2'
    """
    words = {"id": id, **({} if version is None else {"version": version})}
    return f"{path_to('entities', kind, 'entity')}?{urlencode(words)}"


def cause_path(causation: str | None, kinds: Collection[str]) -> str | None:
    """The address of the event that a saga gave as the cause: `kind/id/version`, of a kind that the caller sees.

    >>> cause_path("course/logic/1", ["course"]), cause_path("a phone call", ["course"])
    ('/console/entities/course/entity?id=logic&version=1', None)
    """
    found = re.fullmatch(r"([^/]+)/(.+)/([0-9]{1,18})", causation or "")
    return entity_path(found[1], found[2], int(found[3])) if found and found[1] in kinds else None


# -- a history --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class States:
    """The states before and after an event as JSON; or why they are not shown."""

    before: str = ""
    after: str = ""
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A place in a history as a form says it."""

    kind: str
    at: str

    def number(self) -> int:
        """The version, the offset, or the time in microseconds since 1970."""
        if self.kind != "time":
            return whole_number(self.at, name=self.kind, expected=HINTS[self.kind], least=0)
        try:
            moment = datetime.fromisoformat(self.at.strip())
        except ValueError:
            raise ArgumentInvalid(name="time", value=self.at, expected=f"a time {HINTS['time']}") from None
        return time_us(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


class History:
    """The history of an entity. A page shows its newest events first."""

    def __init__(self, service: EntityService, kind: str, id: str) -> None:
        self._service, self._kind, self._id = service, kind, id

    def version(self) -> int:
        """How many events the entity has; `NotFound` if it has none."""
        found = self._service.ids(self._kind, prefix=self._id, limit=1).entities
        if not found or found[0].id != self._id:
            raise NotFound(kind="entity", name=self._id)
        return found[0].version

    def page(self, newest: int, size: int) -> list[EntityEvent]:
        """So many events up to the version `newest`, the newest first."""
        after = max(0, newest - size)
        events = self._service.history(self._kind, self._id, after=after, limit=max(1, newest - after)).events
        return [event for event in reversed(events) if event.version <= newest]

    def event(self, version: int) -> EntityEvent:
        """The event that made a version."""
        events = self._service.history(self._kind, self._id, after=version - 1, limit=1).events if version > 0 else []
        if not events:
            raise NotFound(kind=f"version of {self._kind} {self._id!r}", name=str(version))
        return events[0]

    def version_at(self, place: Place) -> int:
        """The version at a place: 0 before the first event. The search reads a few events, however long the history is."""
        newest, wanted = self.version(), place.number()
        if place.kind == "version":
            if wanted > newest:
                raise NotFound(kind=f"version of {self._kind} {self._id!r}", name=str(wanted))
            return wanted
        low, high = 0, newest
        while low < high:
            middle = (low + high + 1) // 2
            event = self.event(middle)
            if (event.offset if place.kind == "offset" else event.at_us) <= wanted:
                low = middle
            else:
                high = middle - 1
        return low

    def states(self, version: int) -> States:
        """The states before and after an event, if this process has the decider and the caller may see them."""
        try:
            before, after = (
                self._service.state(self._kind, self._id, version=at).state for at in (version - 1, version)
            )
        except HeadwaterError as error:
            return States(problem=str(error))
        return States(before=json_text(before), after=json_text(after))


# -- JSON -------------------------------------------------------------------------------------------------------------


# Any: JSON.
def json_text(value: Any) -> str:
    """A value over many lines."""
    return pretty(orjson.dumps(value).decode())


# Any: JSON.
def data_text(data: Any) -> str:
    """The data of an event on one line.

    >>> data_text({"amount": 20}), data_text({})
    ('{"amount":20}', '')
    """
    return "" if data in ({}, None) else clipped(orjson.dumps(data).decode(), DATA_CHARACTERS_MAX)


def marked(before: str, after: str) -> tuple[str, str]:
    """Two states as HTML: lines that only one of them has are marked, in colour and by a sign.

    >>> marked("1", "1"), marked("1", "<")
    (('  <span class="json-number">1</span>', '  <span class="json-number">1</span>'), ('<span class="line-before">− <span class="json-number">1</span></span>', '<span class="line-after">+ <span class="json-literal">&lt;</span></span>'))
    """
    lines = before.split("\n"), after.split("\n")
    if max(map(len, lines)) > MARKED_LINES_MAX:
        return escape(before), escape(after)
    same: tuple[set[int], set[int]] = (set(), set())
    matcher = SequenceMatcher(None, _placed(lines[0]), _placed(lines[1]), autojunk=False)
    for block in matcher.get_matching_blocks():
        same[0].update(range(block.a, block.a + block.size))
        same[1].update(range(block.b, block.b + block.size))
    return _marked(lines[0], same[0], "line-before", "−"), _marked(lines[1], same[1], "line-after", "+")


def _placed(lines: Sequence[str]) -> list[str]:
    """Each line with the lines that it is inside of: a value that has moved from one list to another is a difference.

    A comma behind a line is none.
    """
    inside: list[str] = []
    placed = []
    for line in lines:
        bare = line.strip().removesuffix(",")
        if bare in ("]", "}"):
            inside.pop()
        placed.append("\n".join([*inside, bare]))
        if bare.endswith(("[", "{")):
            inside.append(bare)
    return placed


def _marked(lines: Sequence[str], same: Collection[int], name: str, sign: str) -> str:
    ends = ["\n"] * (len(lines) - 1) + [""]
    return "".join(
        f"  {coloured(line)}{end}" if number in same else f'<span class="{name}">{sign} {coloured(line)}{end}</span>'
        for number, (line, end) in enumerate(zip(lines, ends, strict=True))
    )


# -- commands ---------------------------------------------------------------------------------------------------------


def signature(name: str, fields: Sequence[CommandField]) -> str:
    """A command with its fields, as it is written in Python.

    >>> signature("Withdraw", [CommandField(name="amount", type="int"), CommandField(name="note", type="str", required=False)])
    'Withdraw(amount: int, note: str = …)'
    """
    texts = [f"{field.name}: {field.type}{'' if field.required else ' = …'}" for field in fields]
    return f"{name}({', '.join(texts)})"


# Any: JSON.
def command_data(fields: Sequence[CommandField], texts: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a command from what was written into a form. A field that is not required may be empty.

    >>> amount, note = CommandField(name="amount", type="int"), CommandField(name="note", type="str", required=False)
    >>> command_data([amount, note], {"amount": "20", "note": ""})
    {'amount': 20}
    """
    data: dict[str, Any] = {}
    for field in fields:
        text = texts.get(field.name, "").strip()
        if text or field.required:
            data[field.name] = _value(text, field)
    return data


# Any: JSON.
def _value(text: str, field: CommandField) -> Any:
    if field.type.split(" ")[0] in _TEXT_TYPES:
        return text
    if not text:
        raise ArgumentInvalid(name=field.name, value=text, expected=f"a value: {field.type}")
    try:
        return orjson.loads(text.lower() if field.type.startswith("bool") else text)
    except orjson.JSONDecodeError:
        return text
