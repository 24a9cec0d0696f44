"""The column-wise decoder and the assembler of transactions, against naive ones that read byte by byte."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.capture.postgres import transactions
from headwater.capture.postgres.decoder import decode
from headwater.capture.postgres.messages import format_lsn, parse_lsn, parse_relation
from headwater.capture.postgres.transactions import Assembler, EventSegment
from headwater.capture.postgres.visibility import XidSnapshot

UNCHANGED = object()
Row = tuple[Any, ...]  # Any: texts, None, or UNCHANGED

values = st.one_of(st.none(), st.just(UNCHANGED), st.text(st.characters(exclude_characters="\0"), max_size=12))


def encoded_tuple(row: Row) -> bytes:
    out = struct.pack(">H", len(row))
    for value in row:
        if value is None:
            out += b"n"
        elif value is UNCHANGED:
            out += b"u"
        else:
            text = value.encode()
            out += b"t" + struct.pack(">I", len(text)) + text
    return out


def encoded(kind: str, mark: str, old: Row, new: Row, *, xid: int | None = None, relation: int = 9) -> bytes:
    out = kind.encode() + (b"" if xid is None else struct.pack(">I", xid)) + struct.pack(">I", relation)
    if mark:
        out += mark.encode() + encoded_tuple(old)
    if kind != "D":
        out += b"N" + encoded_tuple(new)
    return out


@st.composite
def messages(draw: st.DrawFn) -> tuple[int, list[tuple[str, str, Row, Row]]]:
    columns = draw(st.integers(1, 4))
    row = st.tuples(*[values] * columns)
    shapes = st.sampled_from([("I", ""), ("U", ""), ("U", "K"), ("U", "O"), ("D", "K"), ("D", "O")])
    return columns, draw(st.lists(st.tuples(shapes, row, row).map(lambda one: (*one[0], one[1], one[2])), max_size=12))


@given(messages(), st.booleans())
def test_the_decoder_reads_what_a_naive_one_reads(given_messages: Any, streamed: bool) -> None:
    columns, rows = given_messages
    payloads = [encoded(*one, xid=7 if streamed else None) for one in rows]
    decoded = decode(payloads, columns=columns, streamed=streamed)
    assert decoded.count == len(rows)
    news = (
        [[decoded.new.text(place).to_pylist(), decoded.new.unchanged(place)] for place in range(columns)]
        if len(rows)
        else []
    )
    olds = [decoded.old.text(place).to_pylist() for place in range(columns)] if len(rows) else []
    for place, (kind, mark, old, new) in enumerate(rows):
        assert chr(decoded.operations[place]) == kind
        at = decoded.new_of[place]
        assert (at >= 0) == (kind != "D")
        for column in range(columns):
            if at >= 0:
                texts, unchanged = news[column]
                assert texts[at] == (None if new[column] is UNCHANGED else new[column])
                assert unchanged[at] == (new[column] is UNCHANGED)
            if mark:
                was = old[column]
                assert olds[column][decoded.old_of[place]] == (None if was is UNCHANGED else was)
        assert (decoded.old_of[place] >= 0) == bool(mark)
        if mark:
            assert decoded.old_is_whole[decoded.old_of[place]] == (mark == "O")


# -- transactions -----------------------------------------------------------------------------------------------------


def relation(number: int = 9, *, xid: int | None = None, columns: int = 1) -> bytes:
    out = b"R" + (b"" if xid is None else struct.pack(">I", xid)) + struct.pack(">I", number)
    out += b"public\0orders\0d" + struct.pack(">H", columns)
    for column in range(columns):
        out += b"\1c%d\0" % column + struct.pack(">Ii", 25, -1)
    return out


def begin(lsn: int, xid: int) -> bytes:
    return b"B" + struct.pack(">QqI", lsn, 0, xid)


def commit(lsn: int) -> bytes:
    return b"C\0" + struct.pack(">QQq", lsn, lsn + 1, 0)


def stream_commit(xid: int, lsn: int) -> bytes:
    return b"c" + struct.pack(">I", xid) + b"\0" + struct.pack(">QQq", lsn, lsn + 1, 0)


def interleaved(seed: int) -> Iterator[tuple[bytes, list[str] | None]]:
    """Random transactions, ordinary and streamed, with savepoints; with each commit the rows that it brings."""
    chance = random.Random(seed)
    lsn, xid, number = 100, 10, 0
    open_streams: dict[int, list[tuple[int, str]]] = {}
    subs: dict[int, list[int]] = {}
    yield relation(), None
    for _ in range(chance.randrange(1, 40)):
        lsn += 10
        act = chance.random()
        if act < 0.4:
            xid += 1
            yield begin(lsn, xid), None
            rows = []
            for _ in range(chance.randrange(4)):
                number += 1
                yield encoded("I", "", (), (str(number),)), None
                rows.append(str(number))
            yield commit(lsn), rows
        elif act < 0.7:
            if not open_streams or chance.random() < 0.4:
                xid += 1
                open_streams[xid], subs[xid] = [], [xid]
            top = chance.choice(list(open_streams))
            first = b"\1" if not open_streams[top] else b"\0"
            yield b"S" + struct.pack(">I", top) + first, None
            if first == b"\1":
                yield relation(xid=top), None
            for _ in range(chance.randrange(1, 5)):
                if chance.random() < 0.3:
                    xid += 1
                    subs[top].append(xid)
                number += 1
                part = chance.choice(subs[top])
                yield encoded("I", "", (), (str(number),), xid=part), None
                open_streams[top].append((part, str(number)))
            yield b"E", None
        elif open_streams:
            top = chance.choice(list(open_streams))
            if act < 0.8 and len(subs[top]) > 1:
                part = chance.choice(subs[top][1:])
                yield b"A" + struct.pack(">II", top, part), None
                open_streams[top] = [one for one in open_streams[top] if one[0] != part]
                subs[top].remove(part)
            elif act < 0.85:
                yield b"A" + struct.pack(">II", top, top), None
                del open_streams[top]
            else:
                yield stream_commit(top, lsn), [row for _, row in open_streams.pop(top)]


def rows_of(assembler: Assembler) -> list[str]:
    batch = assembler.take()
    rows = []
    for run in batch.runs:
        for segment in run.segments():
            assert not isinstance(segment, EventSegment)
            cuts = np.cumsum(segment.lengths)
            payloads = [segment.joined[end - size : end] for end, size in zip(cuts, segment.lengths, strict=True)]
            for payload in payloads:
                part = int.from_bytes(payload[1:5], "big") if run.streamed else 0
                if part not in run.aborted:
                    rows += decode([payload], columns=1, streamed=run.streamed).new.text(0).to_pylist()
    assert len(rows) == batch.rows
    for run in batch.runs:
        run.release()
    return rows


@pytest.mark.parametrize("bytes_max", [10, 200, 10**9])
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_transactions_leave_whole_and_in_commit_order(bytes_max: int, seed: int, every: int) -> None:
    before = transactions.SEGMENT_BYTES_MAX, transactions.MEMORY_BYTES_MAX
    transactions.SEGMENT_BYTES_MAX = transactions.MEMORY_BYTES_MAX = bytes_max
    try:
        assembler, expected, got = Assembler(0), list[str](), list[str]()
        for place, (message, committed) in enumerate(interleaved(seed)):
            assembler.feed(message)
            expected += committed or []
            if not assembler.is_open and place % every == 0:
                got += rows_of(assembler)
                assert got == expected
        assert got + rows_of(assembler) == expected
        assembler.close()
    finally:
        transactions.SEGMENT_BYTES_MAX, transactions.MEMORY_BYTES_MAX = before


@given(st.integers(0, 10**6), st.integers(0, 60))
def test_what_is_durable_already_is_left_out(seed: int, cut: int) -> None:
    """A stream that begins again behind a position brings no transaction twice, wherever it was cut."""
    stream = list(interleaved(seed))
    first, durable = Assembler(0), list[str]()
    for message, committed in stream[:cut]:
        first.feed(message)
        durable += committed or []
    second = Assembler(first.lsn)
    for message, _ in stream:
        second.feed(message)
    assert durable + rows_of(second) == [row for _, committed in stream for row in committed or []]


def test_a_relation_is_read() -> None:
    parsed = parse_relation(relation(columns=2))
    assert (parsed.full_name, parsed.identity, [one.name for one in parsed.columns]) == (
        "public.orders",
        "d",
        ["c0", "c1"],
    )


@given(st.integers(0, 2**64 - 1))
def test_a_position_is_read_as_it_is_written(lsn: int) -> None:
    assert parse_lsn(format_lsn(lsn)) == lsn


@given(st.integers(2**31, 2**40), st.integers(0, 50), st.integers(-60, 60), st.data())
def test_a_snapshot_sees_what_ended_before_it(xmin: int, width: int, distance: int, data: st.DataObject) -> None:
    xmax = xmin + width
    running = data.draw(st.sets(st.integers(xmin, xmax - 1), max_size=3)) if width else set()
    xid = max(xmin + distance, 3)
    snapshot = XidSnapshot.parse(f"{xmin}:{xmax}:{','.join(map(str, sorted(running)))}")
    seen = xid < xmin or (xid < xmax and xid not in running)
    assert bool(snapshot.sees(np.array([xid & 0xFFFFFFFF]))[0]) == seen
