"""`headwater dev`: run the app of a file, and reload it whenever one of its source files is saved."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import sysconfig
import threading
import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import typer

from headwater.cli import let_pandas_in
from headwater.cli.commands.run import (
    File,
    Master,
    Only,
    Port,
    check_machine,
    chosen_file,
    interruptible,
    start_java_early,
    work,
)
from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.config import project_file
from headwater.errors import HeadwaterError, InUse

if TYPE_CHECKING:
    from headwater.apps import App
    from headwater.apps.runner import Runner

LOOK_SECONDS = 0.2


COMMANDS = Noun()


@COMMANDS.command("dev")
def dev(session: Session, file: File = None, master: Master = None, only: Only = None, port: Port = 0) -> None:
    """Run the app of a file, and reload it whenever the file is saved.

    Modules that the app imports from its folder and `headwater.toml` are watched, too. Spark and the address of the
    console stay the same. If a file cannot be loaded, the app runs on unchanged.
    """
    let_pandas_in()
    check_machine()
    start_java_early(chosen_file(session, file), master=master)
    from headwater.apps.runner import Runner
    from headwater.console import served_with_console

    sources = Sources(session, file)
    app: App | None = sources.load()
    spark = None
    while app is not None:
        served = served_with_console
        runner = Runner(
            app, log=session.flags.log, master=master, only=only or (), port=port, served=served, spark=spark
        )
        saves = Saves(session, sources, runner)
        with interruptible(session, runner):
            saves.start()
            runner.start_spark_early()
            try:
                with runner.ready():
                    port = urlsplit(runner.announced.address).port or port  # pages that are open find it again
                    work(session, runner, until_caught_up=False)
            except InUse:
                raise
            except HeadwaterError as error:  # a mistake in the file: the next save may fix it
                session.warn(str(error))
                if session.flags.verbose:
                    session.say("".join(traceback.format_exception(error)))
                saves.join()
        spark, app = runner.spark or spark, saves.fresh
    if spark is not None:
        spark.stop()


class Saves(threading.Thread):
    """Watches the source files of an app. After a save that loads, `fresh` is the new app, and the runner is stopped."""

    def __init__(self, session: Session, sources: Sources, runner: Runner) -> None:
        super().__init__(name="headwater-dev", daemon=True)
        self._session = session
        self._sources = sources
        self._runner = runner
        self.fresh: App | None = None

    def run(self) -> None:
        while not self._runner.wait_for_stop(LOOK_SECONDS):
            saved = self._sources.saved()
            if saved is None:
                continue
            try:
                self.fresh = self._sources.load()
            except (HeadwaterError, typer.BadParameter) as error:
                self._session.warn(f"{error} The app runs on unchanged.")
                continue
            self._session.say(f"{saved} was saved: reloading the app.")
            self._runner.request_stop()


class Sources:
    """The source files of one app: its file, the modules that it imports from its folder, and `headwater.toml`.

    They are loaded together, and the time at which each was written is kept.
    """

    def __init__(self, session: Session, file: str | None) -> None:
        self._flags = session.flags
        self._given = file
        self._path = Path()
        self._written: dict[Path, int | None] = {}

    def load(self) -> App:
        """Load the app from its files as they are now; if they do not load, all modules stay unchanged."""
        from headwater.apps.app_file import load_app

        settings = project_file(os.environ, Path())
        before = {path: _time(path) for path in self._written}  # a file written after this may not be in the app
        known = _modules_in(self._path.parent)
        suspects: set[Path] = set()
        try:
            chosen = chosen_file(Session.begin(self._flags), self._given)
            self._path = Path(chosen.partition(":")[0]).absolute()
            with _fresh_imports(self._path.parent):
                app = load_app(chosen)
        except Exception as error:
            suspects = _suspects(error, self._path.parent)
            sys.modules.update(known)
            raise
        finally:
            places = filter(None, map(_place, _modules_in(self._path.parent).values()))
            own = {place for place in places if place.suffix == ".py"}
            files = {settings, self._path, *own, *suspects}
            self._written = {path: before[path] if path in before else _time(path) for path in files}
        _send_by_value(_modules_in(self._path.parent))
        return app

    def saved(self) -> Path | None:
        """A file that was written since the last load. A missing file does not count: editors replace files in two steps."""
        changed = next((path for path, when in self._written.items() if _time(path) not in (when, None)), None)
        here = Path.cwd()
        return changed.relative_to(here) if changed is not None and changed.is_relative_to(here) else changed


@contextlib.contextmanager
def _fresh_imports(folder: Path) -> Iterator[None]:
    """Import all modules of a folder again while the block runs."""
    for name in _modules_in(folder):
        del sys.modules[name]
    importlib.invalidate_caches()
    keeps = sys.dont_write_bytecode
    # Python would take a file of the same size and second for the one that it compiled before.
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = keeps


def _modules_in(folder: Path) -> dict[str, ModuleType]:
    """The modules that were imported from a folder, without those installed in it and those of Headwater."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name == "__main__" or name.partition(".")[0] == "headwater" or not isinstance(module, ModuleType):
            continue
        place = _place(module)
        if place is not None and _is_own(place, folder):
            found[name] = module
    return found


def _place(module: ModuleType) -> Path | None:
    """The file of a module; the folder of a package that has none."""
    known = vars(module)
    place = known.get("__file__") or next(iter(known.get("__path__") or ()), None)
    return Path(place) if isinstance(place, str) else None


def _is_own(path: Path, folder: Path) -> bool:
    """Whether a file was written by the user, and not installed into the folder.

    >>> project = Path("/shop")
    >>> [_is_own(project / name, project) for name in ("rules.py", "shop/prices.py", ".venv/lib/numpy/__init__.py")]
    [True, True, False]
    """
    if not path.is_relative_to(folder):
        return False
    if any(path.is_relative_to(place) for place in _installed()):
        return False
    parts = path.relative_to(folder).parts
    return not any(part.startswith(".") or part in ("site-packages", "dist-packages") for part in parts)


@cache
def _installed() -> frozenset[Path]:
    """The folders of Python's own and of installed modules: an app may be in a folder above them."""
    return frozenset(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def _suspects(error: BaseException, folder: Path) -> set[Path]:
    """The files in the traceback of an error and those beside them: the user will fix or add one of them."""
    found: set[Path] = set()
    cause: BaseException | None = error
    while cause is not None:
        found |= {Path(frame.filename) for frame in traceback.extract_tb(cause.__traceback__)}
        if isinstance(cause, SyntaxError) and cause.filename:
            found.add(Path(cause.filename))
        cause = cause.__cause__
    folders = {folder, *(path.parent for path in found if _is_own(path, folder))}
    return {path for one in folders for path in one.glob("*.py")}


# Any: cloudpickle has no types.
def _send_by_value(modules: dict[str, ModuleType]) -> None:
    """Pickle these modules by value: Spark's workers would otherwise use the version that they imported before.

    A value that cannot be pickled, such as a lock, must be created inside the functions that use it.
    """
    from pyspark import cloudpickle

    register: Any = cloudpickle.register_pickle_by_value
    for module in modules.values():
        register(module)


def _time(path: Path) -> int | None:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime_ns
    return None
