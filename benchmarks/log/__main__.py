"""`python -m benchmarks.log`: every limit of the log, ours and peers in turn."""

from __future__ import annotations

from benchmarks.harness import main
from benchmarks.log.appends import append_dicts, append_events, append_os
from benchmarks.log.many import open_log, start_cli, topics
from benchmarks.log.reads import read_backlog, read_scan, reader_memory
from benchmarks.log.sync import ack_single, append_fsync
from benchmarks.log.tails import tail_local

PARTS = {
    "append.os": append_os,
    "append.events": append_events,
    "append.dicts": append_dicts,
    "append.fsync": append_fsync,
    "ack.single": ack_single,
    "read.scan": read_scan,
    "read.backlog": read_backlog,
    "reader.memory": reader_memory,
    "tail.local": tail_local,
    "open": open_log,
    "topics": topics,
    "start.cli": start_cli,
}

if __name__ == "__main__":
    main("log", PARTS)
