"""Values are found wherever they stand, and nothing else is."""

from __future__ import annotations

import gzip
import struct
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.sourcing.byte_search import ByteSearch, needles_of
from headwater.sourcing.compressed_frames import frames
from headwater.sourcing.file_search import search_files

NEEDLES = st.binary(min_size=4, max_size=20)


@given(
    needles=st.lists(NEEDLES, min_size=1, max_size=8, unique=True), data=st.binary(max_size=200), random=st.randoms()
)
def test_a_search_finds_what_a_naive_one_finds(needles: list[bytes], data: bytes, random: Random) -> None:
    for needle in needles[::2]:
        at = random.randrange(len(data) + 1)
        data = data[:at] + needle + data[at:]
    search = ByteSearch({needle: {needle.hex()} for needle in needles})
    assert search.find(data) == {needle.hex() for needle in needles if needle in data}


def test_a_value_across_two_blocks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.sourcing.byte_search._BLOCK_BYTES", 16)
    search = ByteSearch({b"Ada Lovelace": {"c-1"}})
    for shift in range(40):
        assert search.find(bytes(shift) + b"Ada Lovelace" + bytes(7)) == {"c-1"}


def test_a_short_value_in_a_cipher_text_is_chance() -> None:
    search = ByteSearch({b"Anna": {"c-1"}})
    assert not search.find(b'{"name":{"$personal":[4711,"x8AnnaQ==","Registered"]}}')
    assert search.find(b'{"name":{"$personal":[4711,"x8AnnaQ==","Registered"]},"friend":"Anna"}')


def test_numbers_and_times_are_found_as_they_are_stored() -> None:
    numbers, _ = needles_of(123_456_789)
    assert {b"123456789", struct.pack("<q", 123_456_789), struct.pack("<d", 123_456_789)} == numbers
    times, _ = needles_of("1815-12-10T06:00:00+00:00")
    at = datetime(1815, 12, 10, 6, tzinfo=UTC)
    [_, data] = pa.array([at], pa.timestamp("us", tz="UTC")).buffers()
    assert any(needle in data.to_pybytes() for needle in times)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_frames_of_arrow_are_decompressed(codec: str) -> None:
    table = pa.table({"name": [f"name-of-{number:05d}" for number in range(5_000)]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table, max_chunksize=1_000)
    data = b"before" + sink.getvalue().to_pybytes()
    assert b"name-of-04321" not in data
    assert any(b"name-of-04321" in piece for piece in frames(data))


def test_blocks_of_sparks_streams_are_decompressed() -> None:
    def block(token: int, data: bytes, size: int) -> bytes:
        return b"LZ4Block" + struct.pack("<BIII", token, len(data), size, 0) + data

    plain = b"Ada Lovelace " * 20
    packed = pa.compress(plain, codec="lz4_raw", asbytes=True)
    [piece] = frames(b"x" + block(0x26, packed, len(plain)) + block(0x16, b"Grace", 5))
    assert piece == plain + b"Grace"


@given(data=st.binary(max_size=200))
def test_what_only_looks_like_a_frame_is_passed_over(data: bytes) -> None:
    for magic in (b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"LZ4Block", b"\x1f\x8b\x08"):
        tail = gzip.compress(b"Ada Lovelace")
        list(frames(magic + data))
        assert any(b"Ada Lovelace" in piece for piece in frames(magic[:-1] + tail))


def test_parquet_zip_and_duckdb_files_are_searched(tmp_path: Path) -> None:
    import duckdb

    search = ByteSearch({b"Ada Lovelace": {"c-1"}})
    pq.write_table(pa.table({"name": ["Ada Lovelace"] * 100}), tmp_path / "a.parquet", compression="snappy")
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("copy", "Ada Lovelace " * 100)
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr("000001.sst", "blocks")
    (tmp_path / "d.parquet").write_bytes(b"PAR1 is not one")
    with duckdb.connect(str(tmp_path / "e.duckdb")) as database:
        database.execute("CREATE TABLE people AS SELECT 'Ada ' || 'Lovelace' AS name FROM range(10_000)")
    findings = search_files([tmp_path], search)
    assert findings.found["c-1"] == {tmp_path / name for name in ("a.parquet", "b.zip", "e.duckdb")}
    assert sorted(findings.unreadable) == [tmp_path / "c.zip", tmp_path / "d.parquet"]
    assert findings.files == 5
