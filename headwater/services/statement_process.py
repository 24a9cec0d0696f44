"""The process in which statements run: reads one after the other, answers each, and is bounded by the kernel.

    python -m headwater.services.statement_process LOG MEMORY_BYTES

A question is its length (8 bytes) and JSON, and an Arrow stream where it is a condition on rows, on stdin. An answer is
a line of JSON, and an Arrow stream where there is no error, on stdout. The process ends when stdin does, also while a
statement runs; by SIGALRM when a statement takes longer than it may and does not let itself be interrupted; and by
itself when its memory is used up.
"""

from __future__ import annotations

import contextlib
import os
import queue
import resource
import signal
import sys
import threading
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from headwater.config import Config
from headwater.errors import HeadwaterError
from headwater.log import open as open_log
from headwater.log.remote.wire import error_to_json
from headwater.services.statements import Asked, answered
from headwater.units import KIB, MIB, format_bytes
from headwater.views.errors import StatementExceeded

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.log import Log

#: A statement has so long to end when DuckDB is asked to, before the kernel ends the process.
GRACE_SECONDS = 2.0
#: Beyond the bound itself: stacks of threads, and what allocators hold without using it.
MARGIN_BYTES = 256 * MIB


def main(path: str, memory_max: int) -> None:
    questions: queue.SimpleQueue[Asked] = queue.SimpleQueue()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints must not stand among answers
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with open_log(path, read_only=True, config=Config(upkeep="manual")) as log:
        _warm_up(log)
        base = _data_bytes()
        _bound_memory(base, memory_max)
        # Not before: rows that come count for the bound, and all that reads them is imported.
        threading.Thread(target=_listen, args=(sys.stdin.buffer, questions), daemon=True).start()
        # What is free may be in pieces: the process that comes next begins with all of it.
        enough = base + max(memory_max, MARGIN_BYTES) // 2
        while not _answer(log, questions.get(), answers, memory_max, retires_at=enough):
            pass
    os._exit(0)  # at once, though the other thread listens


def _listen(source: BinaryIO, questions: queue.SimpleQueue[Asked]) -> None:
    try:
        while (asked := Asked.read(source)) is not None:
            questions.put(asked)
            del asked  # or its rows would be kept beside those that come next
    except Exception:  # it was cut off, or its rows are more than this process may have
        traceback.print_exc()
    finally:
        os._exit(0)  # the server has gone, or wants no more of this process


def _answer(log: Log, asked: Asked, answers: BinaryIO, memory_max: int, *, retires_at: int) -> bool:
    """Answer one question, and say whether the process is of no more use after it."""
    memory = min(asked.bounds.memory_max or memory_max, memory_max)
    asked = replace(asked, bounds=replace(asked.bounds, memory_max=memory))
    if asked.bounds.seconds_max is not None:
        signal.setitimer(signal.ITIMER_REAL, asked.bounds.seconds_max + GRACE_SECONDS)
    table: pa.Table | None = None
    told: dict[str, Any] = {"error": None, "cause": ""}
    try:
        table = answered(log, asked)
    except MemoryError:
        exceeded = StatementExceeded(statement=asked.statement[:200], bound=format_bytes(memory_max))
        told |= error_to_json(exceeded)
    except HeadwaterError as error:
        told |= {**error_to_json(error), "cause": str(error.__cause__ or "")}
    except Exception as error:
        traceback.print_exc()
        told |= {"error": type(error).__name__, "message": f"it failed with {type(error).__name__}"}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    told["retires"] = _data_bytes() > retires_at
    answers.write(orjson.dumps(told) + b"\n")
    if table is not None:
        import pyarrow as pa

        with pa.ipc.new_stream(answers, table.schema) as writer:
            writer.write_table(table)
    answers.flush()
    return bool(told["retires"])


def _warm_up(log: Log) -> None:
    """Load what every statement needs, so that the bound counts what statements take and nothing else."""
    from headwater.views.sql import Sql

    Sql(log, files=False).query("SELECT count(*) AS n FROM range(10000)")


def _bound_memory(base: int, memory_max: int) -> None:
    if base:
        most = base + memory_max + max(MARGIN_BYTES, memory_max // 4)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _data_bytes() -> int:
    """What counts for the bound: memory that is this process's own. Files that are mapped, as segments are, do not."""
    with contextlib.suppress(OSError):  # the system has no /proc, and no bound that could be kept
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmData:"):
                return int(line.split()[1]) * KIB
    return 0


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
