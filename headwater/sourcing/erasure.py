"""Erase what the events say of a person: destroy the keys, and search all bytes for what was encrypted with them."""

from __future__ import annotations

import mmap
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import NotFound
from headwater.log import Log
from headwater.schema import parse_schema
from headwater.sourcing.event_rows import SCHEMA, SUFFIX
from headwater.sourcing.keys import MARK, SNAPSHOTS, KeyStore, keys_folder, plain_values

#: The topic with the certificates of all erasures.
ERASURES = "erasures"
_SCHEMA = parse_schema(
    "subject string not null, at timestamp not null, by string, why string, keys int64 not null, events int64 not null, "
    "entities int64 not null, values_searched int64 not null, values_too_short int64 not null, files int64 not null, "
    "bytes int64 not null, remaining list<string> not null"
)
#: Shorter values are found everywhere by chance.
SEARCHED_BYTES_MIN = 4


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What an erasure did, and where values of the subject were still found: a row of the topic `erasures`."""

    subject: str
    at_us: int
    by: str | None
    why: str | None
    keys: int
    events: int
    entities: int
    values_searched: int
    values_too_short: int
    files: int
    bytes: int
    remaining: list[str]

    @property
    def complete(self) -> bool:
        """Whether no value of the subject was found anywhere."""
        return not self.remaining


@dataclass
class _Trace:
    """What the events said of one subject."""

    entities: set[tuple[str, str]]
    values: set[bytes]
    too_short: set[bytes]
    events: int = 0


def erase(
    log: Log,
    subjects: str | Sequence[str],
    *,
    keys: str | Path | None = None,
    by: str | None = None,
    why: str | None = None,
    others: Iterable[tuple[str, pa.Table]] = (),
) -> list[Certificate]:
    """Destroy the keys of subjects, so that their personal values in events, indexes and snapshots cannot be read.

    Then every byte below the log's folder, every row of compressed topics, and `others` (tables by the name of their
    place) are searched for those values. Where one is found is in the certificate's `remaining`: copies in plain text
    that programs have made, which they have to delete. Raises `NotFound` for a subject without a key.
    """
    chosen = [subjects] if isinstance(subjects, str) else list(dict.fromkeys(subjects))
    store = KeyStore(keys_folder(log, keys))
    try:
        ids = store.ids(chosen)
        missing = sorted(set(chosen) - set(ids.values()))
        if missing:
            raise NotFound(kind="key of subject", name=missing[0])
        traces = _traces(log, store, ids)
        store.destroy([*chosen, SNAPSHOTS])
        folder = store.folder
    finally:
        store.close()
    needles: dict[bytes, set[str]] = defaultdict(set)
    for subject, trace in traces.items():
        for value in trace.values:
            needles[value].add(subject)
    remaining: dict[str, set[str]] = defaultdict(set)
    files = size = 0
    for path in _files({Path(log.address), log.home, folder}):
        files += 1
        size += _search_file(path, needles, remaining)
    for place, table in (*_compressed(log), *others):
        _search_table(place, table, needles, remaining)
    at_us = log.clock.now_us()
    certificates = [
        Certificate(
            subject=subject,
            at_us=at_us,
            by=by,
            why=why,
            keys=list(ids.values()).count(subject),
            events=traces[subject].events,
            entities=len(traces[subject].entities),
            values_searched=len(traces[subject].values),
            values_too_short=len(traces[subject].too_short),
            files=files,
            bytes=size,
            remaining=sorted(remaining[subject]),
        )
        for subject in chosen
    ]
    log.create(ERASURES, _SCHEMA, exist_ok=True)
    rows = [asdict(each) for each in certificates]
    log.append(ERASURES, [{"at": row.pop("at_us"), **row} for row in rows])
    return certificates


def _traces(log: Log, keys: KeyStore, ids: dict[int, str]) -> dict[str, _Trace]:
    """What the events of all entities say of the subjects of some keys."""
    found = {subject: _Trace(set(), set(), set()) for subject in ids.values()}
    for topic in log.topics(f"*{SUFFIX}"):
        if not set(SCHEMA.names) <= set(log.schema(topic).names):
            continue
        for batch in log.read(topic, columns=["entity", "event", "data"]):
            marked = batch.filter(pc.match_substring(batch.column("data"), MARK))
            for row in marked.to_pylist():
                values = plain_values(keys, orjson.loads(row["data"]), row["event"], ids)
                for subject, value in values:
                    trace = found[subject]
                    trace.entities.add((topic, row["entity"]))
                    for form in _forms(value):
                        (trace.values if len(form) >= SEARCHED_BYTES_MIN else trace.too_short).add(form)
                for subject in {subject for subject, _ in values}:
                    found[subject].events += 1
    return found


# Any: JSON.
def _forms(value: Any) -> Iterator[bytes]:
    """How a value may stand in a file."""
    if isinstance(value, str):
        yield value.encode()
        yield orjson.dumps(value)[1:-1]
    elif isinstance(value, dict):
        for each in value.values():
            yield from _forms(each)
    elif isinstance(value, list):
        for each in value:
            yield from _forms(each)
    elif value is not None and not isinstance(value, bool):
        yield orjson.dumps(value)


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    seen: set[str] = set()
    for folder in folders:
        for parent, _, names in os.walk(folder):
            for name in names:
                path = Path(parent, name)
                real = os.path.realpath(path)
                if real not in seen and path.is_file():
                    seen.add(real)
                    yield path


def _search_file(path: Path, needles: dict[bytes, set[str]], remaining: dict[str, set[str]]) -> int:
    """Search the bytes of a file; return its size."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                return 0
            with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
                for needle, subjects in needles.items():
                    if data.find(needle) >= 0:
                        for subject in subjects:
                            remaining[subject].add(str(path))
    except FileNotFoundError:  # maintenance has removed it
        return 0
    return size


def _compressed(log: Log) -> Iterator[tuple[str, pa.Table]]:
    """The rows of topics whose files are compressed."""
    for topic in log.topics(internal=True):
        if log.topic(topic).codec != "none":
            for batch in log.read(topic):
                yield f"topic {topic}", pa.Table.from_batches([batch])


def _search_table(place: str, table: pa.Table, needles: dict[bytes, set[str]], remaining: dict[str, set[str]]) -> None:
    """Search the values of a table as text."""
    if table.num_rows:
        text = orjson.dumps(table.to_pylist(), default=_text)
        for needle, subjects in needles.items():
            if needle in text:
                for subject in subjects:
                    remaining[subject].add(place)


# Any: a value of Arrow.
def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
