"""`python -m benchmarks.log`: every limit of the log, ours and peers in turn."""

from __future__ import annotations

from benchmarks.harness import main
from benchmarks.log.appends import append_dicts, append_events, append_os
from benchmarks.log.reads import read_scan
from benchmarks.log.synced import ack_single, append_fsync

PARTS = {
    "append.os": append_os,
    "append.events": append_events,
    "append.dicts": append_dicts,
    "append.fsync": append_fsync,
    "ack.single": ack_single,
    "read.scan": read_scan,
}

if __name__ == "__main__":
    main("log", PARTS)
