"""The full-text index: what is found, and what is not any more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import ArgumentInvalid, ColumnMisfit, NotFound
from headwater.sinks import SearchSink
from headwater.sinks.errors import SinkRefused
from tests.sinks.places import micro


def rows(**columns: list[Any]) -> list[pa.RecordBatch]:
    return [pa.record_batch(columns)]


def test_words_phrases_and_columns_are_found(tmp_path: Path) -> None:
    sink = SearchSink(path=tmp_path, key="id", text=("title", "body"), language="en")
    titles, texts = ["Red boats", "Blue house", "Green"], ["sailing on the sea", "a red door", None]
    sink.commit(rows(id=[1, 2, 3], title=titles, body=pa.array(texts, pa.string()), price=[1.5, 2.5, 3.5]), micro(0))

    def found(text: str) -> list[int]:
        return [row["id"] for row in sink.search(text)]

    assert sorted(found("red")) == [1, 2]
    assert found("title:red") == [1]
    assert found("boat") == [1], "words are cut to their stems"
    assert found('"red door"') == [2]
    assert found("red -door") == [1]
    assert found('an unfinished "phrase AND (') == []
    assert sink.search("green")[0]["price"] == 3.5
    assert sink.search("green")[0]["_score"] > 0


def test_a_changed_row_is_found_by_its_new_words_only(tmp_path: Path) -> None:
    sink = SearchSink(path=tmp_path, key="id", text="title")
    sink.commit(rows(id=[1, 2], title=["old", "gone"]), micro(0))
    sink.commit(rows(id=[1, 2], title=["new", "gone"], _op=["+U", "-D"]), micro(1))
    assert [sink.search(word) for word in ("old", "gone")] == [[], []]
    assert [row["id"] for row in sink.search("new")] == [1]


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    sink = SearchSink(path=tmp_path, key="id", text="title")
    with pytest.raises(NotFound, match="There is no index"):
        sink.search("word")
    with pytest.raises(ColumnMisfit, match=r"'title' .*: it is int64, and not text"):
        sink.check(pa.schema([("id", pa.int64()), ("title", pa.int64())]))
    with pytest.raises(ColumnMisfit, match=r"'title' .*: it is to be searched"):
        sink.check(pa.schema([("id", pa.int64())]))
    with pytest.raises(ArgumentInvalid, match="`key`"):
        SearchSink(path=tmp_path, text="title")
    sink.commit(rows(id=[1], title=["word"]), micro(0))
    with pytest.raises(SinkRefused, match="the same `text`"):
        SearchSink(path=tmp_path, key="id", text="body").begin(micro(0))
