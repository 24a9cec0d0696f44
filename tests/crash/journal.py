"""The journal of a workload: attempts, acknowledgements and reads, as lines of a file that survives the process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

IDS_PER_ACT = 100


@dataclass(frozen=True, kw_only=True)
class Part:
    """Rows for one topic; `partition` is None if the log chooses it."""

    topic: str
    partition: int | None
    ids: list[int]
    keys: list[str]
    dead: list[bool]


@dataclass(frozen=True, kw_only=True)
class Act:
    """One attempt of a writer."""

    number: int
    kind: str
    writer: str
    parts: list[Part] = field(default_factory=list)
    producer: str | None = None
    sequence: int | None = None
    offsets: dict[str, int] = field(default_factory=dict)
    topic: str = ""
    starts: dict[str, int] = field(default_factory=dict)
    expected_offset: int | None = None
    expected_key_offset: int | None = None

    @property
    def ids(self) -> list[int]:
        return [row for part in self.parts for row in part.ids]


@dataclass
class Outcome:
    """The known outcome of an act."""

    act: Act
    acknowledged: bool = False
    refused: bool = False
    ranges: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    prepared: str = ""
    resolving: str = ""
    resolved: str = ""
    at_us: int = 0


class Journal:
    """Append-only, one `write` per line, so that lines survive `kill -9`.

    A line within a page of memory is there whole or not at all; a longer one may be cut, and is then the last of its
    process. Each line says when it was written, by a clock that all processes of the machine share.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)

    def tell(self, kind: str, **facts: Any) -> None:
        line = {"kind": kind, **facts, "at_ns": time.monotonic_ns()}
        os.write(self._descriptor, orjson.dumps(line, option=orjson.OPT_NON_STR_KEYS) + b"\n")

    def tried(self, act: Act, *, at_us: int) -> None:
        self.tell("tried", act=asdict(act), at_us=at_us)

    def acknowledged(self, act: Act, ranges: dict[str, dict[int, tuple[int, int]]] | None = None) -> None:
        self.tell("acknowledged", number=act.number, ranges=ranges or {})

    def refused(self, act: Act, *, actual: int) -> None:
        """The log has refused the act, for a reason that it allows for; nothing of it happened."""
        self.tell("refused", number=act.number, actual=actual)

    def saw(self, reader: str, turn: int, topic: str, rows: Sequence[tuple[int, int, int]]) -> None:
        self.tell("saw", reader=reader, turn=turn, topic=topic, rows=rows)


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a journal; the last one may be incomplete because its process was killed, and is then ignored."""
    lines = path.read_bytes().split(b"\n")
    for line in lines[:-1]:
        yield orjson.loads(line)


@dataclass
class Story:
    """A journal read back, or several of one writer in the order of their processes."""

    outcomes: dict[int, Outcome] = field(default_factory=dict)
    sights: list[dict[str, Any]] = field(default_factory=list)
    turns: set[tuple[str, int]] = field(default_factory=set)
    now_us: int = 0

    @classmethod
    def read(cls, *paths: Path) -> Story:
        story = cls()
        for path in paths:
            for line in lines_of(path):
                story._learn(line)
        return story

    def _learn(self, line: dict[str, Any]) -> None:
        match line["kind"]:
            case "tried":
                body = line["act"]
                act = Act(**{**body, "parts": [Part(**part) for part in body["parts"]]})
                self.outcomes.setdefault(act.number, Outcome(act)).at_us = line["at_us"]
                self.now_us = max(self.now_us, line["at_us"])
            case "acknowledged":
                outcome = self.outcomes[line["number"]]
                outcome.acknowledged, outcome.ranges = True, line["ranges"]
            case "refused":
                self.outcomes[line["number"]].refused = True
            case "prepared" | "resolving" | "resolved":
                setattr(self.outcomes[line["number"]], line["kind"], line["value"])
            case "saw":
                self.sights.append(line)
            case "turn":
                self.turns.add((line["reader"], line["turn"]))
            case "clock":
                self.now_us = max(self.now_us, line["at_us"])

    @property
    def number_next(self) -> int:
        return max(self.outcomes, default=0) + 1
