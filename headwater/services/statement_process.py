"""The process in which statements run: it reads requests one after the other and answers them, bounded by the kernel.

    python -m headwater.services.statement_process LOG MEMORY_BYTES

A request is its length (8 bytes) and JSON, and for a condition on rows an Arrow stream, on stdin. An answer is a line of
JSON, and without an error an Arrow stream, on stdout. The process ends when stdin ends, also while a statement runs; by
SIGALRM when a statement exceeds its time and cannot be interrupted; and by itself when its memory is used up.
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
from headwater.services.statements import StatementRequest, run_here
from headwater.units import KIB, MIB, format_bytes
from headwater.views.errors import StatementExceeded

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.log import Log

#: How long an interrupted statement may take to end, before the kernel ends the process.
GRACE_SECONDS = 2.0
#: Beyond the bound itself: stacks of threads, and unused memory of allocators.
MARGIN_BYTES = 256 * MIB


def main(address: str, memory_max: int) -> None:
    requests: queue.SimpleQueue[StatementRequest] = queue.SimpleQueue()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # output of libraries must not mix with answers
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    token = Config.load().token
    with open_log(address, read_only=True, config=Config(maintenance="manual"), token=token) as log:
        _warm_up(log)
        base = _data_bytes()
        if base:
            most = base + memory_max + max(MARGIN_BYTES, memory_max // 4)
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        # Only now: rows that are read count for the bound, and the modules that read them do not.
        threading.Thread(target=_listen, args=(sys.stdin.buffer, requests), daemon=True).start()
        # Free memory may be fragmented: the next process begins with all of it.
        enough = base + max(memory_max, MARGIN_BYTES) // 2
        while not _answer(log, requests.get(), answers, memory_max, retires_at=enough):
            pass
    os._exit(0)  # at once, though the other thread reads


def _listen(source: BinaryIO, requests: queue.SimpleQueue[StatementRequest]) -> None:
    try:
        while (request := StatementRequest.read(source)) is not None:
            requests.put(request)
            del request  # or its rows would be kept beside those that come next
    except Exception:  # the request was cut off, or its rows exceed the memory of this process
        traceback.print_exc()
    finally:
        os._exit(0)  # the server has ended, or has closed this process


def _answer(log: Log, request: StatementRequest, answers: BinaryIO, memory_max: int, *, retires_at: int) -> bool:
    """Answer one request; return whether the process shall be replaced after it."""
    memory = min(request.bounds.memory_max or memory_max, memory_max)
    request = replace(request, bounds=replace(request.bounds, memory_max=memory))
    if request.bounds.seconds_max is not None:
        signal.setitimer(signal.ITIMER_REAL, request.bounds.seconds_max + GRACE_SECONDS)
    table: pa.Table | None = None
    reply: dict[str, Any] = {"error": None, "cause": ""}
    try:
        table = run_here(log, request)
    except MemoryError:
        exceeded = StatementExceeded(statement=request.statement[:200], bound=format_bytes(memory_max))
        reply |= error_to_json(exceeded)
    except HeadwaterError as error:
        reply |= {**error_to_json(error), "cause": str(error.__cause__ or "")}
    except Exception as error:
        traceback.print_exc()
        reply |= {"error": type(error).__name__, "message": f"it failed with {type(error).__name__}"}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    reply["retires"] = _data_bytes() > retires_at
    answers.write(orjson.dumps(reply) + b"\n")
    if table is not None:
        import pyarrow as pa

        with pa.ipc.new_stream(answers, table.schema) as writer:
            writer.write_table(table)
    answers.flush()
    return bool(reply["retires"])


def _warm_up(log: Log) -> None:
    """Load what every statement needs, so that the bound counts only what statements take."""
    from headwater.views.sql import Sql

    Sql(log, files=False).query("SELECT count(*) AS n FROM range(10000)")


def _data_bytes() -> int:
    """The bytes that count for the bound: private memory of this process, without mapped files such as segments."""
    with contextlib.suppress(OSError):  # the system has no /proc, and no bound
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmData:"):
                return int(line.split()[1]) * KIB
    return 0


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
