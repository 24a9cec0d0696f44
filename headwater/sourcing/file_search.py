"""Search all files of a log for values: as they are, and what compressed frames, zip, Parquet and DuckDB files hold."""

from __future__ import annotations

import mmap
import os
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.optional import require
from headwater.sourcing.byte_search import ByteSearch
from headwater.sourcing.compressed_frames import frames

#: Values may stand across the border of two pieces of a frame.
OVERLAP_BYTES = 4096
_PARQUET, _ZIP, _DUCKDB = b"PAR1", b"PK\x03\x04", b"DUCK"
#: Tables of RocksDB, in zip files of Spark's state: their blocks are compressed without a frame.
_UNREADABLE = (".sst",)


@dataclass
class FileFindings:
    """What a search of files has found: the files with values, by name, and those that could not be read."""

    files: int = 0
    bytes: int = 0
    found: dict[str, set[Path]] = field(default_factory=lambda: defaultdict(set))
    unreadable: list[Path] = field(default_factory=list)


def search_files(paths: Iterable[Path], search: ByteSearch) -> FileFindings:
    """Search each byte of files, and of all files below folders, once."""
    findings = FileFindings()
    for path in _files(paths):
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                findings.files += 1
                findings.bytes += size
                if size:
                    with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
                        _search(path, data, search, findings)
        except FileNotFoundError:  # maintenance has removed it
            continue
        except OSError:
            findings.unreadable.append(path)
    return findings


def _search(path: Path, mapped: mmap.mmap, search: ByteSearch, findings: FileFindings) -> None:
    with memoryview(mapped) as data:
        names = search.find(data)
        for piece in frames(data, overlap=OVERLAP_BYTES):
            names |= search.find(piece)
        head, second = bytes(data[:4]), bytes(data[8:12])
    if second == _DUCKDB:
        names |= _in_duckdb(path, search, findings)
    elif head == _PARQUET:
        names |= _in_parquet(path, search, findings)
    elif head == _ZIP:
        names |= _in_zip(path, search, findings)
    for name in names:
        findings.found[name].add(path)


def _in_parquet(path: Path, search: ByteSearch, findings: FileFindings) -> set[str]:
    names: set[str] = set()
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches():
                names |= search.find_in_table(pa.Table.from_batches([batch]))
    except (OSError, pa.ArrowException):
        findings.unreadable.append(path)
    return names


def _in_duckdb(path: Path, search: ByteSearch, findings: FileFindings) -> set[str]:
    names: set[str] = set()
    duckdb = require("duckdb", extra="views")
    try:
        with duckdb.connect(str(path), read_only=True) as database:
            tables = database.execute("SELECT schema_name, table_name FROM duckdb_tables()").fetchall()
            for schema, table in tables:
                reader = database.sql(f'SELECT * FROM "{schema}"."{table}"').to_arrow_reader(65_536)
                for batch in reader:
                    names |= search.find_in_table(pa.Table.from_batches([batch]))
    except duckdb.Error:  # another process writes it
        findings.unreadable.append(path)
    return names


def _in_zip(path: Path, search: ByteSearch, findings: FileFindings) -> set[str]:
    names: set[str] = set()
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if entry.filename.endswith(_UNREADABLE):
                    findings.unreadable.append(path)
                data = archive.read(entry)
                names |= search.find(data)
                for piece in frames(data, overlap=OVERLAP_BYTES):
                    names |= search.find(piece)
    except (OSError, zipfile.BadZipFile, NotImplementedError):
        findings.unreadable.append(path)
    return names


def _files(places: Iterable[Path]) -> Iterator[Path]:
    seen: set[str] = set()
    for place in places:
        found = [place] if place.is_file() else (Path(at, name) for at, _, names in os.walk(place) for name in names)
        for path in found:
            real = os.path.realpath(path)
            if real not in seen and path.is_file():
                seen.add(real)
                yield path
