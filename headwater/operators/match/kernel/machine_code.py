"""Functions over arrays that run as they are written at first, and as machine code once that is worth it.

Compiling the search takes fifteen seconds of a core and more, and interpreting the small batches of many an app a few
milliseconds each. So a process interprets until it has done `STEPS_MAX` steps, then it compiles in a thread and goes on
interpreting meanwhile; a call that alone takes `CALL_STEPS_MAX` begins again in machine code. The results are the same.

Machine code is kept on disk for every process that comes after: beside the package where that can be written, else in the
user's cache folder; where neither can be, each process compiles for itself. Machine code of one file has code and constants
of others in it, and Numba looks only at the file itself: so the folder has a name that changes with any of them.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

from headwater.optional import PackageMissing, is_installed, require

Function = TypeVar("Function", bound=Callable[..., object])
Found = TypeVar("Found")

#: How many steps a process interprets before it compiles: some seconds in all.
STEPS_MAX = 1_000_000
#: How many steps of one call are interpreted: half a second.
CALL_STEPS_MAX = 100_000
_MODULES = ("conditions", "search", "folds")

if not is_installed("numba"):  # said at once, not when the first large batch comes
    raise PackageMissing(name="numba", extra="match")


class Outgrown(Exception):
    """A call takes too long to be interpreted."""


# Any: Numba's options.
_options: dict[Callable[..., object], Mapping[str, Any]] = {}


def compiled(function: Function) -> Function:
    """A function that can be machine code, with the types of its first call."""
    return _marked(function)


def inlined(function: Function) -> Function:
    """As machine code, it is put where it is called, and allocates nothing.

    LLVM does it, not Numba: a function's types are then found once, which takes less than half of the time to compile,
    and the code is faster.
    """
    return _marked(function, forceinline=True, _nrt=False)


def allocation_free(function: Function) -> Function:
    """As machine code, it allocates nothing: references to arrays need not be counted, which would take longer than most
    of what is done for a row."""
    return _marked(function, _nrt=False)


def _marked(function: Function, **options: Any) -> Function:
    _options[function] = options
    return function


class _Steps:
    """How many steps are left to be interpreted."""

    def __init__(self) -> None:
        self.of_process = STEPS_MAX
        self.of_call = 0


_steps = _Steps()


def count_steps(count: int) -> None:
    """Count what is interpreted, and raise `Outgrown` if it is too much; machine code counts nothing."""
    _steps.of_call -= count
    if _steps.of_call < 0:
        raise Outgrown


def run(function: Function, act: Callable[[Function], Found]) -> Found:
    """Call `act` with the function, or with its machine code. Where the call takes too long, `act` is called again."""
    code = _ready.get(function)
    if code is not None:
        return act(code)
    recorded = _Recorded(function)
    _steps.of_call = CALL_STEPS_MAX
    try:
        with np.errstate(all="ignore"):  # as machine code does
            found = act(recorded)  # type: ignore[arg-type]  # it is called as the function is
    except Outgrown:
        _compilation(function, recorded.arguments).join()
        return act(_machine_code()[function])
    _steps.of_process -= CALL_STEPS_MAX - _steps.of_call
    if _steps.of_process < 0:
        _compilation(function, recorded.arguments)
    return found


class _Recorded:
    """A function that keeps the arguments of its last call: machine code is made for their types."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function
        self.arguments: tuple[object, ...] = ()

    def __call__(self, *arguments: object) -> object:
        self.arguments = arguments
        return self._function(*arguments)


#: The functions that have been compiled, and the threads that compile. Any: Numba's dispatchers are called as the functions.
_ready: dict[Callable[..., object], Any] = {}
_compilations: dict[Callable[..., object], threading.Thread] = {}


def _compilation(function: Callable[..., object], arguments: tuple[object, ...]) -> threading.Thread:
    """The thread that compiles a function for such arguments. It is left alone: a process that ends does not wait for it."""
    known = _compilations.get(function)
    if known is not None:
        return known
    made = threading.Thread(target=_compile, args=(function, arguments), name="machine-code", daemon=True)
    _compilations[function] = made
    made.start()
    return made


def _compile(function: Callable[..., object], arguments: tuple[object, ...]) -> None:
    code = _machine_code()[function]
    code.compile(tuple(require("numba", extra="match").typeof(argument) for argument in arguments))
    _ready[function] = code


_MAKING = threading.Lock()


def _machine_code() -> Mapping[Callable[..., object], Any]:
    """All marked functions as Numba's, which are compiled when they are first called."""
    with _MAKING:
        return _made()


@cache
def _made() -> Mapping[Callable[..., object], Any]:
    numba = require("numba", extra="match")
    for name in _MODULES:
        import_module(f"{__package__}.{name}")
    modules = {function.__module__ for function in _options}
    # The functions call each other by the names of their modules, which stand for machine code in copies of them.
    names = {module: dict(vars(sys.modules[module])) for module in modules}
    made: dict[Callable[..., object], Any] = {}
    for function, options in _options.items():
        copy = FunctionType(function.__code__, names[function.__module__], function.__name__)
        made[function] = _compiled(numba, copy, options)
    nothing = _compiled(numba, _nothing, {"forceinline": True, "_nrt": False})
    for space in names.values():
        for name, value in space.items():
            if isinstance(value, FunctionType):
                space[name] = nothing if value is count_steps else made.get(value, value)
    return made


def _nothing(_count: int) -> None:
    """What machine code has in the place of `count_steps`."""


# Any: a module, a dispatcher, and options of Numba's.
def _compiled(numba: Any, function: Callable[..., object], options: Mapping[str, Any]) -> Any:
    try:
        with _kept_in(numba):
            return numba.njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:  # no folder for the code
        return numba.njit(nogil=True, **options)(function)


@contextmanager
def _kept_in(numba: Any) -> Iterator[None]:  # Any: a module
    """While functions are declared, their code is kept in the folder of all sources as they are now."""
    before = numba.config.CACHE_DIR
    own = Path(__file__).parent
    usual = own / "__pycache__" if os.access(own, os.W_OK) else Path.home() / ".cache" / "headwater"
    numba.config.CACHE_DIR = str((Path(before) if before else usual) / f"match-{sources_mark(own)}")
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


@cache
def sources_mark(folder: Path) -> str:
    """A mark of all sources that machine code may be made of."""
    found = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]
