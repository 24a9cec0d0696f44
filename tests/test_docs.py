"""Run the Python and the commands of the documentation, page by page, and compare their output.

Each page is one test. Its blocks run from top to bottom in an empty folder, with one namespace:

- ```` ```python ````: run as a script, or as an interactive session if the block begins with `>>>`;
- ```` ```console ````: lines that begin with `$ ` and call `headwater` run and must succeed.
  If the page shows output, it must match; `…` stands for any text in a line, and alone on a line for any lines.

Blocks in other languages (`text`, `py`, `pycon`, `sh`) are only shown.

A command that needs no shell runs in this process. A command that needs a shell, or runs an app, is a child process.
Pages that need Spark use the session that all tests share.
"""

from __future__ import annotations

import contextlib
import doctest
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.app import run
from tests.shared_session import left_as_it_was

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SECONDS_MAX = 240
#: Pages that `make test` runs: the first pages of a newcomer, and one for each thing that a page can start.
CORE = (
    "README.md",
    "docs/how-to/read-topics-with-spark.md",
    "docs/how-to/verify-and-repair.md",
)
#: Python that needs Spark; and commands that run an app in a session of their own.
SPARK = re.compile(r"\bsession\(|\bAppTest\(")
APP = re.compile(r"\bheadwater (?:run|dev)\b")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block, and the line of the page on which its text begins."""

    language: str
    text: str
    line: int


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command of a page, with the output that the page shows below it."""

    line: int
    shell: str
    output: list[str]


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page.

    >>> [(block.language, block.text, block.line) for block in blocks("a\\n```python\\n1\\n2\\n```\\n")]
    [('python', '1\\n2\\n', 3)]
    """
    fence = re.compile(r"^(?P<indent> *)```(?P<language>\w*)[^\n`]*\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
    for match in fence.finditer(page):
        text = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        yield Block(language=match["language"], text=text, line=page.count("\n", 0, match.start("text")) + 1)


def commands(block: Block) -> Iterator[Command]:
    """The commands of a console block; a backslash at the end of a line continues it.

    >>> [(c.shell, c.output) for c in commands(Block(language="console", text="$ a\\nx\\n\\n$ b \\\\\\n  c\\n", line=1))]
    [('a', ['x']), ('b \\\\\\n  c', [])]
    """
    lines = block.text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, stop in zip(starts, [*starts[1:], len(lines)], strict=True):
        shown = lines[start:stop]
        length = next(number for number, line in enumerate(shown, start=1) if not line.endswith("\\"))
        output = [line.rstrip() for line in shown[length:]]
        while output and not output[-1]:
            output.pop()
        yield Command(line=block.line + start, shell="\n".join(shown[:length]).removeprefix("$ "), output=output)


@dataclass(frozen=True, kw_only=True)
class Plain:
    """A command that needs no shell: its words after `headwater`, and its standard input."""

    words: list[str]
    stdin: str


# A word without variables, patterns or escapes. A line with anything else needs a shell.
_WORD = r"""(?:[\w./:=,@%+-]|'[^']*'|"[^"$`\\!]*")+"""
_PLAIN = re.compile(rf"(?:(?P<source>(?:echo|printf) +{_WORD}) *\| *)?headwater(?P<words>(?: +{_WORD})*) *")


def plain(shell: str) -> Plain | None:
    """Parse a command that needs no shell; return `None` if it needs one.

    >>> plain("echo '{}' | headwater produce orders -q")
    Plain(words=['produce', 'orders', '-q'], stdin='{}\\n')
    >>> plain("headwater group list | wc -l"), plain("headwater run shop.py"), plain("headwater sql $QUERY")
    (None, None, None)
    """
    match = _PLAIN.fullmatch(shell.replace("\\\n", " "))
    if match is None or APP.search(shell):
        return None
    words = shlex.split(match["words"])
    if match["source"] is None:
        return Plain(words=words, stdin="")
    program, text = shlex.split(match["source"])
    if program == "echo":
        return Plain(words=words, stdin=f"{text}\n") if "\\" not in text else None
    text = text.replace("\\n", "\n")
    return Plain(words=words, stdin=text) if not {"\\", "%"} & set(text) else None


def is_ours(command: Command) -> bool:
    """Whether a command is run. Commands of other programs are only shown."""
    return re.search(r"(?:^|\| *)headwater ", command.shell, re.MULTILINE) is not None


def matches(shown: list[str], actual: list[str]) -> bool:
    """Whether the output is the one that the page shows.

    >>> matches(["a … z", "…", "end"], ["a b z", "1", "2", "end"]), matches(["a"], ["a", "b"])
    (True, False)
    """
    # The blanks after a wildcard only align columns, so they belong to the wildcard.
    patterns = [r"(?:.*\n)*" if line == "…" else re.sub(r"…(?:\\ )*", ".*", re.escape(line)) + r"\n" for line in shown]
    return re.fullmatch("".join(patterns), "".join(f"{line.rstrip()}\n" for line in actual)) is not None


# Any: the namespace of a page may have values of any type.
def run_python(block: Block, page: Path, namespace: dict[str, Any]) -> None:
    if block.text.startswith(">>>"):
        run_session(block, page, namespace)
        return
    # Empty lines before the code make a traceback point to the line of the page.
    exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), namespace)


def run_session(block: Block, page: Path, namespace: dict[str, Any]) -> None:
    name = str(page.relative_to(ROOT))
    text = block.text.replace("…", "...")
    test = doctest.DocTestParser().get_doctest(text, namespace, name, str(page), block.line - 1)
    test.globs = namespace  # the parser copies it, but later blocks need the names that this one defines
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append, clear_globs=False)
    assert result.failed == 0, "".join(report)


def run_console(block: Block, page: Path, folder: Path) -> None:
    for command in filter(is_ours, commands(block)):
        direct = plain(command.shell)
        code, output = run_here(direct, folder) if direct is not None else run_shell(command.shell, folder)
        where = f"{page.relative_to(ROOT)}:{command.line}: $ {command.shell}\n{output}"
        assert code == 0, where
        if command.output:
            assert matches(command.output, output.splitlines()), where


def run_here(command: Plain, folder: Path) -> tuple[int, str]:
    """Run a command in this process: its exit code, and its output in the order in which a process would write it."""
    given, taken = folder.with_name("stdin"), folder.with_name("output")
    given.write_text(command.stdin, encoding="utf-8")
    taken.write_bytes(b"")
    # Two descriptors of one file, buffered as Python does for a process: stdout by blocks, stderr by lines.
    with (
        given.open(encoding="utf-8") as stdin,
        taken.open("a", encoding="utf-8") as stdout,
        taken.open("a", encoding="utf-8", buffering=1) as stderr,
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "stdin", stdin)
        code = run(command.words)
    return code, taken.read_text(encoding="utf-8")


def run_shell(shell: str, folder: Path) -> tuple[int, str]:
    words = ["bash", "-o", "pipefail", "-c", shell]
    done = subprocess.run(
        words, cwd=folder, timeout=SECONDS_MAX, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return done.returncode, done.stdout


def marks_of(page: Path, number: int) -> list[pytest.MarkDecorator]:
    """Marks for what the blocks of a page start, and for pages that `make test` runs in spite of it."""
    marks = [pytest.mark.core] if page.relative_to(ROOT).as_posix() in CORE else []
    of_page = list(blocks(page.read_text(encoding="utf-8")))
    consoles = [block for block in of_page if block.language == "console"]
    if any(is_ours(command) and plain(command.shell) is None for block in consoles for command in commands(block)):
        marks.append(pytest.mark.process)
    if any(block.language == "python" and SPARK.search(block.text) for block in of_page):
        return [*marks, pytest.mark.spark]
    return [*marks, pytest.mark.xdist_group(f"docs-{number % 4}")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to work in, without the settings of the user; and the same output on every machine."""
    for name in [name for name in os.environ if name.startswith("HEADWATER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))  # a page that loads an app changes it
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "path", [*sys.path])
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield folder
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(folder)):
            del sys.modules[name]


@pytest.fixture
def session_of_page(request: pytest.FixtureRequest) -> Iterator[None]:
    """The shared session, for a page that needs it; its settings are restored afterwards."""
    if request.node.get_closest_marker("spark") is None:
        yield
        return
    with left_as_it_was(request.getfixturevalue("spark")):
        yield


@pytest.mark.usefixtures("session_of_page")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=marks_of(page, number), id=str(page.relative_to(ROOT)))
        for number, page in enumerate(PAGES)
    ],
)
def test_what_a_page_shows_is_what_happens(page: Path, folder: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "python":
            run_python(block, page, namespace)
        elif block.language == "console":
            run_console(block, page, folder)


def test_the_core_pages_are_there() -> None:
    assert set(CORE) <= {page.relative_to(ROOT).as_posix() for page in PAGES}


def test_the_index_of_decisions_lists_every_decision() -> None:
    decisions = ROOT / "docs" / "decisions"
    listed = re.findall(r"\]\((0.+)\)$", (decisions / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == sorted(path.name for path in decisions.glob("0*.md"))


def relative_links(page: Path) -> list[str]:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)|(?:src|srcset)=\"([^\"]+)\"", text)
    return [link for pair in links for link in pair if link and "://" not in link and not link.startswith("mailto:")]


@pytest.mark.parametrize(
    "page",
    [*PAGES, *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_each_link_of_a_page_leads_to_a_file(page: Path) -> None:
    assert [link for link in relative_links(page) if not (page.parent / link).exists()] == []
