"""What can be damaged, and how. A new kind of file is one line in `FILES`."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from headwater.log.embedded.segment import SEGMENT_HEADER_BYTES, SegmentMap, walk

BLOCK = 512


def _segments(folder: Path, pattern: str, *, active: bool) -> list[Path]:
    found: list[Path] = []
    for partition in folder.glob(pattern):
        chain = sorted(partition.glob("*.log"))
        found += [chain[-1]] if active else [path for path in chain[:-1] if "-" not in path.name]
    return sorted(found)


#: Kinds of files, and where a log has them.
FILES: dict[str, Callable[[Path], list[Path]]] = {
    "sealed segment": lambda log: _segments(log, "topics/[pe]*/*[0-9]", active=False),
    "sealed segment, never synced": lambda log: _segments(log, "topics/loose/0", active=False),
    "rewritten segment": lambda log: sorted(log.glob("topics/joined/0/*-*.log")),
    "compacted segment": lambda log: sorted(log.glob("topics/table/0/*-*.log")),
    "active segment": lambda log: _segments(log, "topics/[a-z]*/*[0-9]", active=True),
    "offsets of groups": lambda log: sorted(log.glob("topics/__offsets/0/*.log")),
    "state": lambda log: sorted(log.glob("topics/*/state")),
    "topic.json": lambda log: sorted(log.glob("topics/*/topic.json")),
    "headwater.json": lambda log: [log / "headwater.json"],
    "start record": lambda log: sorted(log.glob("topics/*/*/*.start")),
    "producer index": lambda log: sorted(log.glob("topics/*/*/*.producers")),
    "producer": lambda log: [log / "producers/p"],
    "lock": lambda log: sorted([*log.glob("topics/*/*/*.lock"), *log.glob("transactions/**/*lock*")]),
    "commit log": lambda log: sorted(log.glob("transactions/commits*.log")),
    "copy of the commit log": lambda log: sorted(log.glob("transactions/commits*.copy")),
    "commit state": lambda log: [log / "transactions/state"],
    "prepared": lambda log: sorted(log.glob("transactions/prepared/*")),
    "staged": lambda log: sorted(log.glob("transactions/staged/*/*")),
}


def flip_a_bit(path: Path, chance: random.Random, _older: Path) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)


def zero_a_block(path: Path, chance: random.Random, _older: Path) -> None:
    data = bytearray(path.read_bytes())
    if data:
        start = chance.randrange(len(data)) // BLOCK * BLOCK
        data[start : start + BLOCK] = bytes(len(data[start : start + BLOCK]))
        path.write_bytes(data)


def cut_between_frames(path: Path, chance: random.Random, _older: Path) -> None:
    size = path.stat().st_size
    places = [size // 2 // 8 * 8]
    if path.suffix == ".log" and path.name[0].isdigit():
        places = [SEGMENT_HEADER_BYTES, *(position for position, _ in walk(SegmentMap(path).view))]
    _cut(path, chance.choice(places))


def cut_anywhere(path: Path, chance: random.Random, _older: Path) -> None:
    size = path.stat().st_size
    _cut(path, chance.randrange(size) if size else 0)


def delete(path: Path, _chance: random.Random, _older: Path) -> None:
    path.unlink()


def restore_an_older_copy(path: Path, _chance: random.Random, older: Path) -> None:
    if older.exists():
        shutil.copyfile(older, path)


def double(path: Path, _chance: random.Random, _older: Path) -> None:
    path.write_bytes(path.read_bytes() * 2)


def copy_beside(path: Path, _chance: random.Random, _older: Path) -> None:
    shutil.copyfile(path, path.with_name(f"{path.stem} (copy){path.suffix}"))


def _cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


DAMAGES: dict[str, Callable[[Path, random.Random, Path], None]] = {
    damage.__name__.replace("_", " "): damage
    for damage in (
        flip_a_bit,
        zero_a_block,
        cut_between_frames,
        cut_anywhere,
        delete,
        restore_an_older_copy,
        double,
        copy_beside,
    )
}
