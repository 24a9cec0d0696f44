"""Load an app from a user's file."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from headwater.apps.app import App
from headwater.apps.errors import AppFileFailed, AppFileInvalid
from headwater.errors import HeadwaterError, sentence
from headwater.optional import missing_package
from headwater.workers import make_importable


def load_app(address: str) -> App:
    """Return the app that a file makes: `fraud.py`, or `fraud.py:app` if it makes several."""
    path, _, attribute = address.partition(":")
    module = load_module(Path(path))
    apps = {name: value for name, value in vars(module).items() if isinstance(value, App)}
    if attribute:
        if attribute not in apps:
            raise AppFileInvalid(path=path, why=f"it has no app called {attribute!r}")
        return apps[attribute]
    unique = {id(app): app for app in apps.values()}
    if not unique:
        raise AppFileInvalid(path=path, why="it makes no app")
    if len(unique) > 1:
        names = ", ".join(sorted(apps))
        raise AppFileInvalid(path=path, why=f"it makes {len(unique)} apps; name one, as `{path}:NAME` ({names})")
    return next(iter(unique.values()))


def load_module(path: Path) -> ModuleType:
    """Run a file as a module, with its folder importable here and in Spark's workers."""
    if path.suffix != ".py" or not path.is_file():
        raise AppFileInvalid(path=str(path), why="there is no such Python file")
    folder = str(path.parent.absolute())
    make_importable(folder)
    name = path.stem
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise AppFileInvalid(path=str(path), why="Python cannot load it")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    try:
        specification.loader.exec_module(module)
    except HeadwaterError:
        raise
    except (Exception, SystemExit) as error:
        raise AppFileFailed(path=str(path), why=_why(error, path)) from error
    return module


def send_by_value(app: App) -> None:
    """Send functions of the app's own files to Spark's workers by value.

    A worker may not find the file, or may find a version of it that was edited since.
    """
    from pyspark import cloudpickle

    register: Any = cloudpickle.register_pickle_by_value  # Any: it has no types
    for query in app.queries:
        module = inspect.getmodule(query.function)
        if module is not None and module.__name__ != "__main__" and module.__name__ in sys.modules:
            register(module)


def _why(error: BaseException, path: Path) -> str:
    """Describe an error with the line of the user's file that it came from."""
    missing = missing_package(error)
    text = str(missing) if missing else sentence(f"{type(error).__name__}: {error}".removesuffix(": "))
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f"line {error.lineno}: {text}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).absolute() == path.absolute()]
    return f"line {lines[-1]}: {text}" if lines else text
