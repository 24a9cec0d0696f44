"""A history: the operations of every process, their answers, and what it read, from the journals of all processes.

An operation that may change the log is recorded before it begins and after it ends. The outcome of one without an end
is unknown: its process was killed, and it may have happened or not. A read is recorded when it has ended, since a read
that was killed returned nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.crash.journal import Act, Part, lines_of

Status = Literal["ok", "failed", "unknown"]
Ranges = dict[str, dict[int, tuple[int, int]]]
"""Topic → partition → first offset and the one behind the last."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An acknowledgement: its time, and the offsets of the rows."""

    at_ns: int
    ranges: Ranges


@dataclass(kw_only=True)
class Operation:
    """An act with its outcome; a retried one has an answer for each attempt."""

    act: Act
    invoked_ns: int
    answers: list[Answer] = field(default_factory=list)
    refused_ns: int | None = None
    actual: int = -1
    prepared: bool = False
    resolving: str = ""
    resolving_ns: int = 0

    @property
    def status(self) -> Status:
        """Whether it happened; an operation that was refused, rolled back or only prepared has not."""
        if self.answers:
            return "ok"
        if self.refused_ns is not None or self.resolving == "rollback" or (self.prepared and not self.resolving):
            return "failed"
        return "unknown"

    @property
    def ok_ns(self) -> int | None:
        return self.answers[0].at_ns if self.answers else None

    @property
    def visible_from_ns(self) -> int:
        """Its rows must not be visible before this moment."""
        return self.resolving_ns if self.prepared else self.invoked_ns

    def ids_of(self, topic: str) -> list[int]:
        return [row for part in self.act.parts if part.topic == topic for row in part.ids]


@dataclass(frozen=True, kw_only=True)
class Span:
    """Rows of one partition that were read at once. `offsets` is None where they are all of `start` to `stop`."""

    topic: str
    partition: int
    start: int
    stop: int
    ids: list[int]
    offsets: list[int] | None = None

    def rows(self) -> Iterable[tuple[int, int]]:
        return zip(range(self.start, self.stop) if self.offsets is None else self.offsets, self.ids, strict=True)


@dataclass(frozen=True, kw_only=True)
class Read:
    """What one reader saw of one topic, or one poll of a group of several.

    `tail` says that it went up to the end that the log had; `final` that it came after everything else and is whole.
    """

    reader: str
    began_ns: int
    ended_ns: int
    spans: list[Span]
    group: str = ""
    tail: bool = False
    final: bool = False


@dataclass(frozen=True, kw_only=True)
class Positions:
    """Offsets that a process was told: the starts of a topic's partitions or, with a group, how far that has come."""

    topic: str
    began_ns: int
    ended_ns: int
    offsets: Mapping[int, int]
    group: str = ""


@dataclass
class History:
    """All operations, reads and positions of a run, and the errors that no operation allows for."""

    operations: dict[int, Operation] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)
    positions: list[Positions] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, journals: Iterable[Path]) -> History:
        """Put the journals of all processes together, in the order of the clock that they share."""
        lines = [line for path in journals for line in lines_of(path)]
        history = cls()
        for line in sorted(lines, key=lambda line: int(line["at_ns"])):
            history._learn(line)
        return history

    def _learn(self, line: dict[str, Any]) -> None:
        match line["kind"]:
            case "tried":
                body = line["act"]
                act = Act(**{**body, "parts": [Part(**part) for part in body["parts"]]})
                self.operations.setdefault(act.number, Operation(act=act, invoked_ns=line["at_ns"]))
            case "acknowledged":
                ranges = {
                    topic: {int(number): (start, stop) for number, (start, stop) in places.items()}
                    for topic, places in line["ranges"].items()
                }
                self.operations[line["number"]].answers.append(Answer(at_ns=line["at_ns"], ranges=ranges))
            case "refused":
                operation = self.operations[line["number"]]
                operation.refused_ns, operation.actual = line["at_ns"], line["actual"]
            case "prepared":
                self.operations[line["number"]].prepared = True
            case "resolving":
                operation = self.operations[line["number"]]
                operation.resolving = line["value"]
                operation.resolving_ns = operation.resolving_ns or line["at_ns"]
            case "read":
                spans = [
                    Span(topic=topic, partition=number, start=start, stop=stop, ids=ids, offsets=offsets)
                    for topic, number, start, stop, ids, offsets in line["spans"]
                ]
                self.reads.append(
                    Read(
                        reader=line["reader"],
                        began_ns=line["began_ns"],
                        ended_ns=line["at_ns"],
                        spans=spans,
                        group=line["group"],
                        tail=line["tail"],
                        final=line["final"],
                    )
                )
            case "positions":
                self.positions.append(
                    Positions(
                        topic=line["topic"],
                        began_ns=line["began_ns"],
                        ended_ns=line["at_ns"],
                        offsets={int(number): offset for number, offset in line["offsets"].items()},
                        group=line["group"],
                    )
                )
            case "error":
                self.errors.append(line["text"])
