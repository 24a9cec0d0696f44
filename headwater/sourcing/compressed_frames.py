"""Find compressed frames anywhere in bytes, and decompress them: ZSTD, LZ4 (frames, and the blocks of Spark) and gzip.

So the buffers of Arrow files and of the log's frames are read whatever stands around them. Bytes that only look like the
begin of a frame are passed over.
"""

from __future__ import annotations

import contextlib
import re
import struct
import zlib
from collections.abc import Iterator
from functools import partial

import pyarrow as pa

_ZSTD, _LZ4, _SPARK, _GZIP = b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"LZ4Block", b"\x1f\x8b\x08"
_MAGIC = re.compile(b"|".join(map(re.escape, (_ZSTD, _LZ4, _SPARK, _GZIP))))
#: A piece of what a frame decompresses to.
PIECE_BYTES = 8 * 1024 * 1024
_SPARK_HEADER = struct.Struct("<BIII")
_SPARK_RAW, _SPARK_LZ4 = 0x10, 0x20


def frames(data: bytes | memoryview, *, overlap: int = 0) -> Iterator[bytes]:
    """What the frames in some bytes decompress to, in pieces that overlap.

    >>> import gzip
    >>> [piece for piece in frames(b"..." + gzip.compress(b"Ada Lovelace") + b"...")]
    [b'Ada Lovelace']
    """
    view = memoryview(data)
    spark: list[bytes] = []
    done = 0
    for match in _MAGIC.finditer(view):
        if match.start() < done:
            continue
        kind, start = match.group(), match.start()
        if kind == _SPARK:
            block, end = _spark_block(view, start)
            if block is not None:
                spark.append(block)
                done = end
            continue
        with contextlib.suppress(ValueError, OSError, IndexError, struct.error, zlib.error):
            if kind == _GZIP:
                inflate = zlib.decompressobj(wbits=31)
                yield from _overlapping(_inflated(inflate, view[start:]), overlap)
                done = len(view) - len(inflate.unused_data) if inflate.eof else start
                continue
            end = _zstd_end(view, start) if kind == _ZSTD else _lz4_end(view, start)
            codec = "zstd" if kind == _ZSTD else "lz4"
            with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(view[start:end])), codec) as stream:
                yield from _overlapping(iter(partial(stream.read, PIECE_BYTES), b""), overlap)
            done = end
    if spark:
        yield b"".join(spark)


def _overlapping(pieces: Iterator[bytes], overlap: int) -> Iterator[bytes]:
    before = b""
    for piece in pieces:
        joined = before + piece
        yield joined
        before = joined[len(joined) - overlap :] if overlap else b""


def _inflated(inflate: zlib._Decompress, data: memoryview) -> Iterator[bytes]:
    rest: bytes | memoryview = data
    while not inflate.eof:
        piece = inflate.decompress(rest, PIECE_BYTES)
        if not piece:
            return
        yield piece
        rest = inflate.unconsumed_tail


def _zstd_end(view: memoryview, start: int) -> int:
    """Where a frame of ZSTD ends: its header says how long that is, and each block how long it is."""
    descriptor = view[start + 4]
    is_single = descriptor >> 5 & 1
    size_bytes = (1 if is_single else 0, 2, 4, 8)[descriptor >> 6]
    at = start + 5 + (0 if is_single else 1) + (0, 1, 2, 4)[descriptor & 3] + size_bytes
    while True:
        block = int.from_bytes(view[at : at + 3], "little")
        if at + 3 > len(view) or block >> 1 & 3 == 3:
            raise ValueError
        at += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
        if block & 1:
            return at + (4 if descriptor >> 2 & 1 else 0)


def _lz4_end(view: memoryview, start: int) -> int:
    """Where a frame of LZ4 ends: behind the block of size zero."""
    flags = view[start + 4]
    if flags >> 6 != 1:
        raise ValueError
    at = start + 7 + (8 if flags >> 3 & 1 else 0) + (4 if flags & 1 else 0)
    while True:
        (size,) = struct.unpack_from("<I", view, at)
        at += 4
        if not size:
            return at + (4 if flags >> 2 & 1 else 0)
        at += (size & 0x7FFFFFFF) + (4 if flags >> 4 & 1 else 0)


def _spark_block(view: memoryview, start: int) -> tuple[bytes | None, int]:
    """A block of Spark's LZ4 streams, and where it ends."""
    try:
        token, size, size_plain, _ = _SPARK_HEADER.unpack_from(view, start + 8)
        at = start + 8 + _SPARK_HEADER.size
        data = bytes(view[at : at + size])
        if token & 0xF0 == _SPARK_RAW:
            return data, at + size
        if token & 0xF0 == _SPARK_LZ4 and size_plain <= 64 * PIECE_BYTES:
            return pa.decompress(data, size_plain, codec="lz4_raw", asbytes=True), at + size
    except (struct.error, OSError, pa.ArrowException):
        pass
    return None, start
