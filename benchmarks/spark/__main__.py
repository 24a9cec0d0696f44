"""`python -m benchmarks.spark`: sources, sinks and keyed operators, ours and Spark's own in turn."""

from __future__ import annotations

from benchmarks.harness import main
from benchmarks.spark.keyed_state import keyed_native, keyed_tws
from benchmarks.spark.scans import guard, scan
from benchmarks.spark.sinks import sink

PARTS = {
    "scan": scan,
    "guard": guard,
    "sink": sink,
    "keyed.native": keyed_native,
    "keyed.tws": keyed_tws,
}

if __name__ == "__main__":
    main("spark", PARTS)
