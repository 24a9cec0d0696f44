"""Spark's Python processes are forked from one that has loaded what they need, and are otherwise as Spark starts them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from headwater.spark import fork_server
from tests.conditions import until

pytestmark = pytest.mark.process

PARENT = """
import sys
from headwater.spark import fork_server
print(fork_server.start(), fork_server._server.pid, flush=True)
sys.stdin.read()
"""


class Parent:
    """A process that has started a fork server."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        program, pid = self.process.stdout.readline().split()
        self.program, self.server = Path(program), psutil.Process(int(pid))

    def close(self) -> None:
        self.process.communicate("")


@pytest.fixture(scope="module")
def parent() -> Iterator[Parent]:
    started = Parent()
    yield started
    started.close()


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modules")
    sources = {
        "told": """
            import json, os, sys
            words = sys.stdin.read()
            print(json.dumps([sys.argv[1:], os.getcwd(), os.environ.get("TOLD"), os.environ.get("HOME"), words]))
            print("complaint", file=sys.stderr)
            sys.exit(7)
        """,
        "loaded": "import sys; print('pyarrow.compute' in sys.modules, 'headwater.spark.datasource' in sys.modules)",
        "chance": "import numpy, random; print(numpy.random.randint(1 << 30), random.random())",
        "hashed": "print(hash('headwater'))",
        "failed": "raise ValueError('seven')",
        "pause": "import signal; print('here', flush=True); signal.pause()",
    }
    for name, text in sources.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    return folder


def run(parent: Parent, folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder), **variables}
    return subprocess.run(
        [str(parent.program), "-m", *words],
        cwd=folder,
        env=environment,
        input="words",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.core
def test_a_forked_process_has_the_arguments_environment_folder_and_streams_of_an_ordinary_one(
    parent: Parent, modules: Path
) -> None:
    done = run(parent, modules, "told", "a", "b c", TOLD="yes")
    assert done.stdout.strip() == f'[["a", "b c"], "{modules}", "yes", null, "words"]'
    assert done.stderr == "complaint\n"
    assert done.returncode == 7
    assert run(parent, modules, "loaded").stdout.split() == ["True", "True"]


def test_an_exception_and_a_missing_module_end_it_with_a_trace(parent: Parent, modules: Path) -> None:
    done = run(parent, modules, "failed")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "ValueError: seven")
    assert "No module named nothing_there" in run(parent, modules, "nothing_there").stderr


def test_forked_processes_share_the_hash_of_a_text_and_no_random_numbers(parent: Parent, modules: Path) -> None:
    numbers = [word for _ in range(2) for word in run(parent, modules, "chance").stdout.split()]
    assert len(set(numbers)) == 4
    assert len({run(parent, modules, "hashed").stdout for _ in range(2)}) == 1


def test_ending_what_spark_has_started_ends_the_forked_process(parent: Parent, modules: Path) -> None:
    before = set(parent.server.children())
    client = subprocess.Popen(
        [str(parent.program), "-m", "pause"],
        env={"PYTHONPATH": str(modules)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "here\n"
    assert len(set(parent.server.children()) - before) == 1
    client.kill()
    client.communicate()
    until(lambda: set(parent.server.children()) <= before)


def test_without_the_server_an_ordinary_python_runs_the_module(modules: Path) -> None:
    parent = Parent()
    parent.server.kill()
    until(lambda: parent.server.status() == psutil.STATUS_ZOMBIE)  # its parent waits for it at its own end
    done = run(parent, modules, "told", "a", TOLD="yes")
    assert (done.returncode, done.stderr) == (7, "complaint\n")
    parent.close()


def test_the_server_and_its_folder_are_gone_when_its_parent_is_killed() -> None:
    parent = Parent()
    os.kill(parent.process.pid, signal.SIGKILL)
    parent.process.communicate()
    until(lambda: not parent.server.is_running() or parent.server.status() == psutil.STATUS_ZOMBIE)
    assert not parent.program.exists()


def test_a_process_has_one_server() -> None:
    first, second = fork_server.start(), fork_server.start()
    assert first == second
