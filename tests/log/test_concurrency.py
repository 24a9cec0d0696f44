"""Eight processes append to and read the same partitions: offsets have no gap, every row is there once, in order."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import orjson
import pytest

from headwater.errors import HeadwaterError
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded import open_folder as open

PROCESSES = 8
SCHEMA = {"id": "int64", "writer": "int32", "pad": "string"}
TOPICS: dict[str, dict[str, Any]] = {
    "synced": {"partitions": 2, "segment_bytes_max": "64 KiB"},
    "quick": {"partitions": 2, "segment_bytes_max": "256 KiB", "durability": "os"},
    "single": {"segment_bytes_max": "64 KiB"},
}
Seen = dict[str, dict[int, list[tuple[int, int]]]]
"""Topic → partition → (offset, id), in the order in which a reader got them."""


def member(folder: Path, number: int, *, seconds: float, notes: Path) -> None:
    """The work of one process: append in several ways, read the rows of all processes, and record both."""
    with open(folder, create=False) as log:
        chance = random.Random(number)
        log.open_producer(f"writer{number}")
        written: dict[str, list[int]] = {topic: [] for topic in TOPICS}
        seen: Seen = {topic: defaultdict(list) for topic in TOPICS}
        turn = 0
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            turn += 1
            write(log, chance, number, turn, written)
            if turn % 5 == 0:
                catch_up(log, seen)
        catch_up(log, seen)  # also where the machine was too slow for a fifth turn
        notes.write_bytes(orjson.dumps({"written": written, "seen": seen}, option=orjson.OPT_NON_STR_KEYS))


def write(log: EmbeddedLog, chance: random.Random, number: int, turn: int, written: dict[str, list[int]]) -> None:
    def rows() -> list[dict[str, Any]]:
        first = (number * 1_000_000 + turn) * 100 + counter[0]
        made = [
            {"id": first + place, "writer": number, "pad": "x" * chance.randrange(50)}
            for place in range(chance.randrange(1, 8))
        ]
        counter[0] += len(made)
        return made

    counter = [0]
    topic = chance.choice(list(TOPICS))
    partition = chance.randrange(TOPICS[topic].get("partitions", 1))
    batch = rows()
    match chance.randrange(6):
        case 0 | 1:
            log.append(topic, batch, partition=partition)
        case 2 | 3:
            log.append(topic, batch, partition=partition, producer=f"writer{number}", sequence=turn)
            again = log.append(topic, batch, partition=partition, producer=f"writer{number}", sequence=turn)
            assert again.duplicate
        case 4:
            log.append(topic, batch, partition=partition, durable=False)
            log.flush(topic)
        case _:
            other = rows()
            with log.transaction() as transaction:
                transaction.append(topic, batch, partition=partition)
                transaction.append("single", other, partition=0)
            written["single"] += [row["id"] for row in other]
            if topic == "single":  # one partition, one order
                written["single"] = written["single"][: -len(other)]
                batch += other
    written[topic] += [row["id"] for row in batch]


def catch_up(log: EmbeddedLog, seen: Seen) -> None:
    for topic, partitions in seen.items():
        start = {partition: rows[-1][0] + 1 for partition, rows in partitions.items() if rows}
        for batch in log.read(topic, start=start, columns=["id", "_offset"]).batches():
            for row in batch.rows():
                partitions[batch.partition].append((row["_offset"], row["id"]))


def run_together(folder: Path, *, seconds: float) -> list[dict[str, Any]]:
    """Run eight new interpreters, as in production; return their records."""
    with open(folder / "log") as log:
        for topic, settings in TOPICS.items():
            log.create(topic, SCHEMA, **settings)
    script = "import sys; from pathlib import Path; from tests.log.test_concurrency import member\n"
    script += "member(Path(sys.argv[1]), int(sys.argv[2]), seconds=float(sys.argv[3]), notes=Path(sys.argv[4]))"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", script, folder / "log", str(number), str(seconds), folder / f"notes{number}"],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONWARNINGS": "error"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    for child in children:
        _, errors = child.communicate(timeout=seconds + 120)
        assert child.returncode == 0, errors
    return [orjson.loads((folder / f"notes{number}").read_bytes()) for number in range(PROCESSES)]


def check(folder: Path, notes: list[dict[str, Any]]) -> int:
    """Every law at once; returns how many rows there were."""
    total = 0
    with open(folder / "log", create=False) as log:
        for topic in TOPICS:
            final: dict[int, dict[int, int]] = defaultdict(dict)
            order: dict[tuple[int, int], list[int]] = defaultdict(list)
            for row in log.read(topic).rows():
                final[row["_partition"]][row["_offset"]] = row["id"]
                order[row["_partition"], row["writer"]].append(row["id"])
            for partition, end in log.end_offsets(topic).items():
                assert list(final[partition]) == list(range(end)), f"{topic}/{partition} has gaps"
            ids = [one for rows in final.values() for one in rows.values()]
            assert len(ids) == len(set(ids)), f"{topic} holds rows twice"
            acknowledged = [one for note in notes for one in note["written"][topic]]
            assert sorted(ids) == sorted(acknowledged), f"{topic} does not hold what was acknowledged"
            assert all(rows == sorted(rows) for rows in order.values()), f"{topic}: a writer's rows changed places"
            for note in notes:
                for partition_text, rows in note["seen"][topic].items():
                    truth = final[int(partition_text)]
                    assert [offset for offset, _ in rows] == list(range(len(rows))), "a reader missed rows"
                    assert all(truth[offset] == one for offset, one in rows), "a reader saw other rows"
            total += len(ids)
        assert not log.prepared()
    return total


@pytest.mark.process
def test_eight_processes_share_partitions_for_a_moment(tmp_path: Path) -> None:
    notes = run_together(tmp_path, seconds=3)
    assert check(tmp_path, notes) > 0


@pytest.mark.process
@pytest.mark.long
def test_eight_processes_share_partitions_for_thirty_seconds(tmp_path: Path) -> None:
    notes = run_together(tmp_path, seconds=30)
    assert check(tmp_path, notes) > 1_000
    assert all(any(note["seen"][topic] for topic in TOPICS) for note in notes)


def test_a_conditional_append_lets_one_of_many_win(tmp_path: Path) -> None:
    """Without locks of their own, two handles cannot both append at the same offset."""
    with open(tmp_path) as one, open(tmp_path) as other:
        one.create("rows", {"id": "int64"})
        one.append("rows", [{"id": 1}], expected_offset=0)
        with pytest.raises(HeadwaterError, match="rows were appended in between"):
            other.append("rows", [{"id": 2}], expected_offset=0)
