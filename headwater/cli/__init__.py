"""The `headwater` command: one file per noun, and one set of rules for all of them."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import types
import warnings
from typing import Any, NoReturn

#: Whether this process is there for one command, and may start at once what the command will need.
is_own_process = False


def main() -> NoReturn:
    """Run the command line of this process, and end the process with the command's exit code."""
    global is_own_process
    is_own_process = True
    if "--no-color" in sys.argv:
        # The library that draws the help pages does not know `--no-color`, but it reads this variable.
        os.environ["NO_COLOR"] = "1"
    leave_pandas_out()
    load_compute_later()
    warnings.showwarning = _tell
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # an exception, so that a consumer leaves its group and commits the rows that were printed
    from headwater.cli.app import run

    sys.exit(run(sys.argv[1:]))


# Any: the signature is that of `warnings.showwarning`; where a warning was raised is of no use to a reader.
def _tell(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"warning: {message}", file=sys.stderr)


class _NoPandas:
    """An import finder that hides pandas and leaves every other module to the next finder."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("no command needs pandas", name=name)


def leave_pandas_out() -> None:
    """Keep Arrow from importing pandas, which it does to check whether a value is a Series.

    No command passes a Series, and the import takes longer than the rest of a command.
    """
    sys.meta_path.insert(0, _NoPandas)


def let_pandas_in() -> None:
    """Allow pandas again, for a command that runs code of the user or Spark, which needs pandas."""
    if _NoPandas in sys.meta_path:
        sys.meta_path.remove(_NoPandas)
    if isinstance(late := sys.modules.get(_COMPUTE), _LateModule):
        late.load()  # code of the user may be pickled with the module


_COMPUTE = "pyarrow.compute"


class _LateModule(types.ModuleType):
    """Stands for a module until an attribute of it is used, then has all of its attributes."""

    _lock = threading.RLock()
    _is_loaded = False

    def __getattr__(self, name: str) -> Any:  # Any: whatever the module has
        self.load()
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None

    def load(self) -> None:
        with self._lock:
            if not self._is_loaded:
                self._is_loaded = True
                del sys.modules[self.__name__]
                self.__dict__.update(importlib.import_module(self.__name__).__dict__)


def load_compute_later() -> None:
    """Load Arrow's functions when one of them is used: they take longer to load than all topics take to list."""
    sys.modules.setdefault(_COMPUTE, _LateModule(_COMPUTE))


__all__ = ["main"]
