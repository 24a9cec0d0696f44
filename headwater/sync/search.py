"""A full-text index as a target: one folder for each table, one document for each row.

The index (tantivy, in this process) changes by commits, and each commit has a document with the position. Search it with
`headwater.sinks.SearchSink(path=…, key=…, text=…).search("…")`, in any process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson
import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.faults import reach
from headwater.optional import require
from headwater.sinks.errors import SinkRefused
from headwater.sinks.search import ROW, SearchSink
from headwater.sync.address import path_address
from headwater.sync.config import SyncConfig
from headwater.sync.errors import TargetRefused
from headwater.sync.port import Position, TableChanges, TargetTable, is_pending
from headwater.sync.values import json_texts_of, texts_of

OPTIONS = {"text": "", "language": ""}
_SCHEME = "search:///"
_OLD = "__old"


class SearchTarget:
    """Full-text indexes in a folder. `text` names the columns that are searched, with commas between."""

    def __init__(self, config: SyncConfig) -> None:
        require("tantivy", extra="search")
        config.check_no_transactions()
        config.check_current()
        options = config.check_options(OPTIONS)
        self._texts = tuple(one.strip() for one in options["text"].split(",") if one.strip())
        if not self._texts:
            raise ArgumentInvalid(
                name="option", value="text=", expected="the columns to search, such as `--option text=title,body`"
            )
        self._language = options["language"] or None
        self._root = Path(config.url.removeprefix(_SCHEME))
        self._sync = config.name

    @classmethod
    def address(cls, url: str) -> str:
        return path_address(url, expected="search:///path/to/folder")

    @classmethod
    def open(cls, config: SyncConfig) -> SearchTarget:
        return cls(config)

    @property
    def name(self) -> str:
        return f"{_SCHEME}{self._root}"

    def close(self) -> None:
        """Nothing is open between steps."""

    def prepare(self, table: TargetTable) -> None:
        self._finish_switch(table)
        texts = self._texts_of(table)
        for name in texts:
            if not pa.types.is_string(table.columns.field(name).type):
                raise TargetRefused(
                    target=self.name,
                    why=f"column {name!r} of topic {table.topic!r} is {table.columns.field(name).type}, and not text",
                    instead="Name columns of text with `--option text=…`",
                )
        if not texts:
            raise TargetRefused(
                target=self.name,
                why=f"topic {table.topic!r} has none of the columns {', '.join(self._texts)}",
                instead="Name fewer topics with `--topics`, or other columns with `--option text=…`",
            )
        with self._explained():
            self._index(table).index()

    def position(self, table: TargetTable) -> Position | None:
        self._finish_switch(table)
        if not (self._folder(table) / "meta.json").exists():
            return None
        with self._explained():
            found = self._index(table).remembered(self._marker)
        return None if found is None else Position.from_json(found)

    def apply(self, changes: Sequence[TableChanges], *, trial: bool = False) -> None:
        if trial:
            return  # an index has no constraints
        for one in changes:
            with self._explained():
                self._apply(one)
            reach("target.committed")

    def _apply(self, changes: TableChanges) -> None:
        index = self._index(changes.table)
        with index.writing() as writer:  # one writer at a time
            if not is_pending(self._sync, self.position(changes.table), changes):
                return
            for step in changes.steps:
                for key in _keys(step.gone, changes.table):
                    writer.delete_documents_by_term("_key", key)
                index.put(writer, step.rows)
            index.remember(writer, self._marker, changes.after.to_json().encode())
            reach("target.written")
            reach("target.before_commit")

    def scan(self, table: TargetTable) -> tuple[Position | None, Iterator[pa.Table]]:
        return self.position(table), self._scanned(table)

    def _scanned(self, table: TargetTable) -> Iterator[pa.Table]:
        from tantivy import Query

        searcher = self._index(table).index().searcher()
        if not searcher.num_docs:
            return
        rows = []
        for _, address in searcher.search(Query.all_query(), searcher.num_docs).hits:
            row = searcher.doc(address).get_first(ROW)
            if row is not None:
                rows.append(orjson.loads(row))
        yield texts_of(rows, table.columns.names)

    def stored(self, rows: pa.Table) -> pa.Table:
        return json_texts_of(rows)

    def switch(self, table: TargetTable, new: TargetTable) -> None:
        # Two renames: if the process dies between them, the next one that opens the index does the second.
        old = self._folder(table).with_name(table.name + _OLD)
        shutil.rmtree(old, ignore_errors=True)
        reach("target.before_switch")
        if self._folder(table).exists():
            os.rename(self._folder(table), old)
        else:
            old.mkdir(parents=True)
        os.rename(self._folder(new), self._folder(table))
        shutil.rmtree(old, ignore_errors=True)

    def _finish_switch(self, table: TargetTable) -> None:
        folder = self._folder(table)
        old, new = folder.with_name(folder.name + _OLD), folder.with_name(folder.name + "__rebuild")
        if old.exists() and not folder.exists() and new.exists():
            os.rename(new, folder)
            shutil.rmtree(old, ignore_errors=True)

    def discard(self, table: TargetTable) -> None:
        shutil.rmtree(self._folder(table), ignore_errors=True)

    def forget(self) -> None:
        from tantivy import Index

        for meta in self._root.glob("*/meta.json"):
            writer = Index.open(str(meta.parent)).writer(heap_size=64 * 1024 * 1024, num_threads=1)
            writer.delete_documents_by_term("_query", self._marker)
            writer.commit()
            writer.wait_merging_threads()

    # -- inside -------------------------------------------------------------------------------------------------------

    @property
    def _marker(self) -> str:
        return f"sync {self._sync}"

    def _folder(self, table: TargetTable) -> Path:
        return self._root / table.name

    def _texts_of(self, table: TargetTable) -> tuple[str, ...]:
        return tuple(name for name in self._texts if name in table.columns.names)

    def _index(self, table: TargetTable) -> SearchSink:
        return SearchSink(path=self._folder(table), key=table.key, text=self._texts_of(table), language=self._language)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except SinkRefused as error:
            instead = "Run `headwater sync rebuild` if columns or the language have changed"
            raise TargetRefused(target=self.name, why=error.why, instead=instead) from error


def _keys(rows: pa.Table, table: TargetTable) -> Iterator[str]:
    from headwater.sinks.driver import key_texts

    return key_texts(rows, table.key)
