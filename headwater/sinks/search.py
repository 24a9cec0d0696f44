"""The search sink: rows become documents of a full-text index in a folder, exactly once.

The index (tantivy, in this process) changes by commits. A commit takes the documents of a batch and a document that
holds the query's progress together, so that a batch that is done again is known.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import orjson
import pyarrow as pa

from headwater.engine.micro_batch import MicroBatch
from headwater.errors import ArgumentInvalid, ColumnMisfit, NotFound
from headwater.faults import reach
from headwater.optional import require
from headwater.schema.encodings import json as json_lines
from headwater.sinks.changes import Changes
from headwater.sinks.driver import DriverSink, Progress, Refusals, key_texts
from headwater.sinks.errors import SinkRefused
from headwater.sinks.port import Guarantee
from headwater.sinks.retry import RetryLater

if TYPE_CHECKING:
    from tantivy import Index, Searcher

KEY, ROW, QUERY, PROGRESS = "_key", "_row", "_query", "_progress"
WRITER_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class SearchSink(DriverSink):
    """Rows into a full-text index, one document for each key; exactly once.

    `text` names the columns that are searched; the whole row is kept and comes back from `search`. `language` cuts
    words to their stems, as in "en", so that "running" finds "run".

    >>> import tempfile
    >>> sink = SearchSink(path=tempfile.mkdtemp(), key="id", text="title")
    >>> rows = pa.record_batch({"id": [1, 2], "title": ["A red boat", "A blue house"]})
    >>> sink.commit([rows], MicroBatch(query="q", number=0))
    >>> [row["id"] for row in sink.search("boat")]
    [1]
    """

    path: str | Path
    text: str | tuple[str, ...]
    language: str | None = None

    guarantee: ClassVar[Guarantee] = "exactly once"

    def __post_init__(self) -> None:
        super().__post_init__()
        texts = (self.text,) if isinstance(self.text, str) else tuple(self.text)
        object.__setattr__(self, "text", texts)
        object.__setattr__(self, "path", Path(self.path).absolute())
        if not self.keys:
            raise ArgumentInvalid(name="key", value=self.key, expected="the columns that tell documents apart")
        if not texts or any(name.startswith("_") for name in texts):
            raise ArgumentInvalid(name="text", value=texts, expected="columns to search, none beginning with `_`")

    @property
    def name(self) -> str:
        return f"search:{self.path}"

    @property
    def texts(self) -> tuple[str, ...]:
        return self.text if isinstance(self.text, tuple) else (self.text,)

    def examine(self, columns: pa.Schema) -> None:
        super().examine(columns)
        for name in self.texts:
            if name not in columns.names:
                raise ColumnMisfit(target=self.name, column=name, why="is to be searched, but not among the columns")
            if not pa.types.is_string(columns.field(name).type):
                raise ColumnMisfit(target=self.name, column=name, why=f"is {columns.field(name).type}, and not text")
        self.index()

    def begin(self, batch: MicroBatch) -> bool:
        before = self._progress(batch)
        progress = before.admit(self.name, batch)
        if progress != before:
            with self.writing() as writer:
                self.remember(writer, batch.query, progress.as_json())
        return progress.has(batch)

    def apply(self, changes: Changes, batch: MicroBatch, refusals: Refusals) -> None:
        with self.writing() as writer:  # one writer at a time
            progress = self._progress(batch).admit(self.name, batch)
            if progress.has(batch):
                return
            for key in key_texts(changes.gone, self.keys):
                writer.delete_documents_by_term(KEY, key)
            self.put(writer, changes.rows)
            self.remember(writer, batch.query, progress.after(batch).as_json())
            reach("delivery.written")
            refusals.post()

    def search(self, text: str, *, limit: int = 10) -> list[dict[str, Any]]:
        """The rows that fit best, each with its `_score`; words, "phrases", `column:word`, AND, OR and -not.

        What cannot be understood of a query is left out rather than refused, for people type it.
        """
        if not (Path(self.path) / "meta.json").exists():
            raise NotFound(kind="index", name=str(self.path))
        index = self.index()
        searcher = index.searcher()
        query, _ = index.parse_query_lenient(text, list(self.texts))
        found = []
        for score, address in searcher.search(query, limit).hits:
            row = searcher.doc(address).get_first(ROW)
            if row is not None:
                found.append({**orjson.loads(row), "_score": score})
        return found

    # Any: tantivy's objects have no types.
    def put(self, writer: Any, rows: pa.Table) -> None:
        """Add or replace the documents of rows."""
        from tantivy import Document

        if not rows.num_rows:
            return
        lines = (line for part in rows.to_batches() for line in json_lines.encode_rows(part))
        texts = [rows.column(name).to_pylist() for name in self.texts]
        for key, line, *values in zip(key_texts(rows, self.keys), lines, *texts, strict=True):
            writer.delete_documents_by_term(KEY, key)
            document = Document()
            document.add_text(KEY, key)
            document.add_bytes(ROW, line)
            for name, value in zip(self.texts, values, strict=True):
                if value is not None:
                    document.add_text(name, value)
            writer.add_document(document)

    def remember(self, writer: Any, name: str, progress: bytes) -> None:
        """Put a document with the progress of a query or a sync into the next commit."""
        from tantivy import Document

        writer.delete_documents_by_term(QUERY, name)
        document = Document()
        document.add_text(QUERY, name)
        document.add_bytes(PROGRESS, progress)
        writer.add_document(document)

    def _progress(self, batch: MicroBatch) -> Progress:
        return Progress.from_json(self.remembered(batch.query))

    def remembered(self, name: str) -> bytes | None:
        """The progress of a query or a sync in the last commit; None if there is none."""
        from tantivy import Query

        index = self.index()
        searcher: Searcher = index.searcher()
        found = searcher.search(Query.term_query(index.schema, QUERY, name), 1).hits
        content = searcher.doc(found[0][1]).get_first(PROGRESS) if found else None
        return None if content is None else bytes(content)

    def index(self) -> Index:
        """Open the index, or create it."""
        require("tantivy", extra="search")
        from tantivy import Index, SchemaBuilder

        builder = SchemaBuilder()
        for name in (KEY, QUERY):
            builder.add_text_field(name, stored=True, tokenizer_name="raw", index_option="basic")
        for name in (ROW, PROGRESS):
            builder.add_bytes_field(name, stored=True, indexed=False)
        for name in self.texts:
            builder.add_text_field(name, tokenizer_name=f"{self.language}_stem" if self.language else "default")
        Path(self.path).mkdir(parents=True, exist_ok=True)
        try:
            return Index(builder.build(), path=str(self.path))
        except ValueError as error:
            self._explain(error)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Any]:
        """The one writer of the index. What was added counts when the block ends well."""
        try:
            writer = self.index().writer(heap_size=WRITER_BYTES, num_threads=1)
        except ValueError as error:
            self._explain(error)
        try:
            yield writer
            writer.commit()
        except BaseException:
            writer.rollback()
            raise
        finally:
            writer.wait_merging_threads()

    def _explain(self, error: ValueError) -> NoReturn:
        words = " ".join(str(error).split())
        if "Lock" in words:
            raise RetryLater(f"another process writes to it ({words})") from error
        what = "Give the same `text` and `language` as before, or an empty folder"
        raise SinkRefused(sink=self.name, why=words, what=what) from error
