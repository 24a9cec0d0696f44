"""Fresh logs of each adapter, for suites that say what holds on every kind of log."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from headwater.log import Log
from headwater.log import open as open_log
from tests.http.process import ServerProcess, server_process

#: Makes a new, empty log each time.
Logs = Callable[[], AbstractContextManager[Log]]
#: The folders of remote logs, by their addresses.
FOLDERS: dict[str, Path] = {}


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    with server_process() as process:
        yield process


@pytest.fixture(params=["embedded", pytest.param("remote", marks=pytest.mark.process)])
def logs(request: pytest.FixtureRequest, tmp_path: Path) -> Logs:
    folders = (tmp_path / f"log{number}" for number in itertools.count())
    if request.param == "embedded":
        return lambda: open_log(next(folders))
    server: ServerProcess = request.getfixturevalue("server")

    @contextlib.contextmanager
    def served() -> Iterator[Log]:
        folder = next(folders)
        address = server.serve(folder)
        FOLDERS[address] = folder
        with open_log(address) as log:
            yield log
        server.stop(address)

    return served


def folder_of(log: Log) -> Path:
    """The folder with the files of a log, also of a remote one."""
    return FOLDERS.get(log.address, log.home)
