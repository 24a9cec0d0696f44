"""What Headwater does for a Python worker of Spark as a whole, beside the task that the worker runs."""

from __future__ import annotations

import gc
import os
import sys

_modules_frozen = 0


def freeze_modules() -> None:
    """Exempt the modules that this worker has loaded from garbage collection. Call it as a task begins.

    PySpark runs a full collection after every task. A worker with Arrow, pandas and numba holds more than a hundred
    thousand objects that live as long as the process, and visiting all of them took longer than the tasks of a small
    batch. Objects are frozen only when modules were loaded since the last call, so that what is frozen stays bounded;
    a collection before it keeps garbage out of it.
    """
    global _modules_frozen
    if len(sys.modules) == _modules_frozen:
        return
    gc.collect()
    gc.freeze()
    _modules_frozen = len(sys.modules)


def make_importable(folder: str) -> None:
    """Make the modules of a folder importable in this process and in the processes that it starts."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
    known = os.environ.get("PYTHONPATH", "")
    if folder not in known.split(os.pathsep):  # workers are started by the JVM, and inherit the environment only
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, known]))
