"""A process of its own that captures all there is, and prints its peak of memory.

python -m benchmarks.capture.children LOG CAPTURE
"""

from __future__ import annotations

import json
import resource
import sys
import time

import headwater as hw
from headwater.capture import Capture


def main() -> None:
    address, name = sys.argv[1:]
    with hw.open(address) as log, Capture.open(log, name) as capture:
        began = time.monotonic()
        rows = capture.catch_up()
        seconds = time.monotonic() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"rows": rows, "seconds": seconds, "peak_bytes": peak}))


if __name__ == "__main__":
    main()
