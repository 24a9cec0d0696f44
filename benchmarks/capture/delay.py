"""The delay from COMMIT in the database to the row in the topic, at an even rate of small transactions."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

from benchmarks.capture.shop import Shop, postgres_shop
from benchmarks.harness import Bar, Bench, Result, percentile

CHANGES_PER_SECOND = 1_000
CHANGES_PER_COMMIT = 5
WAIT_SECONDS_MAX = 60.0
TOPIC = "shop.public.orders"


def postgres_delay(bench: Bench) -> list[Result]:
    """A process runs the capture; this one writes, and reads the topic as any consumer does."""
    rows = CHANGES_PER_SECOND * bench.size(15, 2)
    with bench.scratch("postgres.delay") as folder, postgres_shop(folder) as shop:
        shop.create_capture("shop")
        with (folder / "said").open("wb") as said:
            words = [str(Path(sys.executable).with_name("headwater")), "--log", str(folder / "log")]
            child = subprocess.Popen([*words, "capture", "run", "shop"], stdout=said, stderr=said)
        try:
            shop.insert(0, 1, each=1)
            seen: dict[int, float] = {}
            _follow(shop, seen, 1, child)
            committed: dict[int, float] = {}
            writer = threading.Thread(target=_write, args=(shop, rows, committed))
            writer.start()
            _follow(shop, seen, rows + 1, child)
            writer.join()
        except RuntimeError:
            bench.say(f"the capture said: {(folder / 'said').read_text()[-2_000:]}")
            raise
        finally:
            child.terminate()
            child.wait()
    # The first tenth warms up.
    delays = [(seen[one] - at) * 1000 for one, at in committed.items() if one > rows // 10]
    p50, p99 = percentile(delays, 0.5), percentile(delays, 0.99)
    return [
        Result(
            name="postgres.delay",
            value=p50,
            unit="ms",
            p50=p50,
            p99=p99,
            more={"changes_per_second": CHANGES_PER_SECOND, "max": max(delays)},
            bars=[Bar(figure="p50", most=100), Bar(figure="p99", most=500)],
        )
    ]


def _write(shop: Shop, rows: int, committed: dict[int, float]) -> None:
    """Insert rows at an even rate, and note when the database confirmed each."""
    statement = "INSERT INTO orders SELECT g, 1, 1.0, 'tea', 'a note', now() FROM generate_series(%s::int, %s::int) g"
    began = time.monotonic()
    with shop.connect() as connection:
        for first in range(1, rows + 1, CHANGES_PER_COMMIT):
            time.sleep(max(0.0, began + first / CHANGES_PER_SECOND - time.monotonic()))
            last = min(rows, first + CHANGES_PER_COMMIT - 1)
            connection.execute(statement, (first, last))
            now = time.monotonic()
            committed.update((one, now) for one in range(first, last + 1))


def _follow(shop: Shop, seen: dict[int, float], count: int, child: subprocess.Popen[bytes]) -> None:
    """Note when each row becomes visible, until there are so many."""
    log = shop.log
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    offset = len(seen)
    while len(seen) < count:
        if child.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{len(seen)} of {count} rows arrived; the capture's code is {child.returncode}")
        if TOPIC not in log.topics():
            time.sleep(0.05)
            continue
        if log.wait(TOPIC, after={0: offset}, seconds=1):
            for data in log.read(TOPIC, start={0: offset}, columns=["id"]):
                now = time.monotonic()
                for one in data.column("id").to_pylist():
                    seen.setdefault(one, now)
                offset += data.num_rows
