"""The child process that is killed: it runs the app as `headwater run` does, until SIGTERM."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import traceback
from pathlib import Path

from headwater.apps.runner import Runner
from tests.chaos.app.declaration import declare_app
from tests.chaos.kills import FOLDER, Control


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("--url")
    parser.add_argument("--standby", action="store_true")
    chosen = parser.parse_args()
    control = Control(Path(os.environ[FOLDER]))
    life = os.environ[f"{FOLDER}_LIFE"]
    began = time.monotonic()
    runner = Runner(declare_app(chosen.home, url=chosen.url), standby=chosen.standby)
    if chosen.standby:
        print(f"life {life}: waits", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: runner.request_stop())
    with runner.ready():
        control.write("pids.json", {"driver": os.getpid()})
        print(f"life {life}: runs the app after {time.monotonic() - began:.1f} s", flush=True)
        java = runner.start_spark()._jvm
        assert java is not None
        control.write("pids.json", {"driver": os.getpid(), "jvm": java.java.lang.ProcessHandle.current().pid()})
        print(f"life {life}: session after {time.monotonic() - began:.1f} s", flush=True)
        runner.supervise()
    if runner.spark is not None:
        runner.spark.stop()
    return 0


if __name__ == "__main__":
    try:
        code = main()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # without a JVM, Spark's own shutdown may wait for it
    sys.exit(code)
