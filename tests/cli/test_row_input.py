"""Laws of what comes in: blocks may end anywhere, and rows do not care."""

from __future__ import annotations

import csv
import fcntl
import io
import os
import resource
import threading
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from headwater.cli.terminal.row_input import blocks_of_bytes, csv_blocks, json_blocks

CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), max_size=6)
TABLES = st.lists(st.lists(CELLS, min_size=2, max_size=2), max_size=8)


def cut(data: bytes, places: list[int]) -> Iterator[bytes]:
    """The data in blocks of whole lines, cut behind some of them."""
    lines = data.splitlines(keepends=True) if b"\n" not in data else [line + b"\n" for line in data.split(b"\n")[:-1]]
    block = b""
    for number, line in enumerate(lines):
        block += line
        if number in places:
            yield block
            block = b""
    if block:
        yield block


@given(table=TABLES, places=st.lists(st.integers(0, 20)))
def test_a_csv_file_is_the_same_however_its_blocks_are_cut(table: list[list[str]], places: list[int]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows([["a", "b"], *table])
    blocks = list(csv_blocks(cut(text.getvalue().encode(), places), None))
    assert [list(row.values()) for block in blocks for row in block.rows] == table
    assert not [bad for block in blocks for bad in block.bad]


@given(lines=st.lists(st.sampled_from(["1", "", "  ", "22"])), places=st.lists(st.integers(0, 20)))
def test_every_line_keeps_its_number(lines: list[str], places: list[int]) -> None:
    data = "".join(f"{line}\n" for line in lines).encode()
    blocks = json_blocks(cut(data, places), lambda texts: [{"text": text.decode()} for text in texts])
    numbered = [
        (number, row["text"]) for block in blocks for number, row in zip(block.numbers, block.rows, strict=True)
    ]
    assert numbered == [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]


def test_a_pipe_gives_whole_lines_and_the_rest_at_its_end() -> None:
    reader, writer = os.pipe()

    def write() -> None:
        for piece in (b"on", b"e\ntw", b"o\n", b"three"):
            os.write(writer, piece)
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    blocks = list(blocks_of_bytes(reader))
    thread.join()
    os.close(reader)
    assert b"".join(blocks) == b"one\ntwo\nthree"
    assert all(block.endswith(b"\n") for block in blocks[:-1])


def test_a_process_with_many_open_files_reads_its_input() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"one\ntwo\n")
    os.close(writing)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(2_048, before[0]), before[1]))
    high = fcntl.fcntl(reading, fcntl.F_DUPFD, 1_024)  # more than `select.select` takes
    try:
        assert b"".join(blocks_of_bytes(high)) == b"one\ntwo\n"
    finally:
        os.close(high)
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
