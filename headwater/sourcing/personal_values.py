"""What the events say of subjects whose keys are being erased: the values to search for, and to replace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import Log
from headwater.sourcing.byte_search import ByteSearch, needles_of, union
from headwater.sourcing.event_rows import SCHEMA, SUFFIX
from headwater.sourcing.keys import MARK, KeyStore, is_encrypted, opened
from headwater.sourcing.personal import ERASED


@dataclass
class SubjectValues:
    """What the events said of one subject. `shared` values are also those of other persons: to find them proves nothing."""

    entities: set[tuple[str, str]] = field(default_factory=set)
    needles: set[bytes] = field(default_factory=set)
    values: set[str] = field(default_factory=set)
    shared: int = 0
    too_short: int = 0
    events: int = 0


class PersonalValues:
    """The values of all subjects that are being erased."""

    def __init__(self, subjects: dict[str, SubjectValues]) -> None:
        self.subjects = subjects
        self.search = ByteSearch(union((name, each.needles) for name, each in subjects.items()))
        texts = {text for each in subjects.values() for text in each.values}
        forms = {form for text in texts for form in (text, orjson.dumps(text)[1:-1].decode())}
        self._texts = sorted(forms, key=len, reverse=True)

    @property
    def topics(self) -> set[str]:
        """The topics of events that have values of the subjects."""
        return {topic for each in self.subjects.values() for topic, _ in each.entities}

    def without_values(self, text: str | None) -> str | None:
        """A text with "[erased]" in the place of values."""
        return None if text is None else self._replaced(text)

    def change(self, rows: pa.RecordBatch, *, keep: tuple[str, ...] = ()) -> pa.RecordBatch | None:
        """Rows with "[erased]" in the place of values, and null for what is no text; None if there are no values in them.

        The columns of a key stay, since a row under another key would be another row.
        """
        columns = list(rows.columns)
        changed = False
        for place, name in enumerate(rows.schema.names):
            if name in keep or name in ("_offset", "_partition", "_appended_at", "_sent_at", "_tombstone"):
                continue
            values = columns[place].to_pylist()
            if self.search.find_in_values(values):
                columns[place] = pa.array([self._replaced(value) for value in values], rows.schema.field(place).type)
                changed = True
        return pa.RecordBatch.from_arrays(columns, schema=rows.schema) if changed else None

    # Any: a value of a row.
    def _replaced(self, value: Any) -> Any:
        if isinstance(value, str):
            for text in self._texts:
                value = value.replace(text, ERASED)
            return ERASED if self.search.find(value.encode()) else value
        if isinstance(value, bytes):
            for text in self._texts:
                value = value.replace(text.encode(), ERASED.encode())
            return ERASED.encode() if self.search.find(value) else value
        if isinstance(value, dict):
            return {name: self._replaced(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._replaced(each) for each in value)
        return None if self.search.find_in_values(value) else value


def personal_values(log: Log, keys: KeyStore) -> PersonalValues:
    """Decrypt the values of the keys that are being erased, in the events of all entities."""
    erasing = keys.erasing()
    found = {subject: SubjectValues() for subject, _ in erasing.values()}
    values: dict[str, set[str]] = defaultdict(set)
    for topic, row, event, body in _marked_events(log):
        seen = set()
        for sealed in body.values():
            if is_encrypted(sealed) and sealed[MARK][0] in erasing:
                subject, cipher = erasing[sealed[MARK][0]]
                plain = opened(cipher, sealed[MARK][1], event)
                if plain is not None:
                    values[subject].add(plain.decode())
                    found[subject].entities.add((topic, row))
                    seen.add(subject)
        for subject in seen:
            found[subject].events += 1
    for subject, texts in values.items():
        for text in texts:
            needles, too_short = needles_of(value := orjson.loads(text))
            found[subject].needles |= needles
            found[subject].too_short += too_short
            found[subject].values |= {part for part in _texts(value) if needles_of(part)[0]}
    _leave_out_shared(log, keys, found)
    return PersonalValues(found)


def _leave_out_shared(log: Log, keys: KeyStore, found: dict[str, SubjectValues]) -> None:
    """Forget needles that are in values of persons who are not being erased."""
    search = ByteSearch(union((name, each.needles) for name, each in found.items()))
    if not search:
        return
    shared: set[bytes] = set()
    plain: list[bytes] = []
    for _, _, event, body in _marked_events(log):
        for sealed in body.values():
            if is_encrypted(sealed):
                value = keys.decrypt_if_known(sealed, event)
                if value is not None:
                    plain.append(value)
        if len(plain) >= 10_000:
            shared |= search.needles_in(b"\n".join(plain))
            plain = []
    shared |= search.needles_in(b"\n".join(plain))
    for each in found.values():
        ours = {text for text in each.values if text.encode() in shared or orjson.dumps(text)[1:-1] in shared}
        each.shared = len(ours)
        each.values -= ours
        for text in ours:
            each.needles -= needles_of(text)[0]
        each.needles -= shared


# Any: the JSON of an event.
def _marked_events(log: Log) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """The events of all entities that have encrypted values: topic, entity, name and JSON."""
    for topic in log.topics(f"*{SUFFIX}"):
        if not set(SCHEMA.names) <= set(log.schema(topic).names):
            continue
        for batch in log.read(topic, columns=["entity", "event", "data"]):
            marked = batch.filter(pc.match_substring(batch.column("data"), MARK))
            for row in marked.to_pylist():
                yield topic, row["entity"], row["event"], orjson.loads(row["data"])


# Any: JSON.
def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)
