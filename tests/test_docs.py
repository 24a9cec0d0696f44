"""Run the Python and the commands of the documentation, page by page, and compare their output.

Each page is one test. Its blocks run from top to bottom in an empty folder, with one namespace:

- ```` ```python ````: run as a script, or as an interactive session if the block begins with `>>>`;
- ```` ```console ````: lines that begin with `$ ` and call `headwater`, `pytest` or `cd` run and must succeed.
  If the page shows output, it must match; `…` stands for any text in a line, and alone on a line for any lines.
- A block after "Save this as `FILE`:" is written to that file.
- "change `OLD` in `FILE` to `NEW`" in the text of the page is done.

Blocks in other languages (`text`, `py`, `pycon`, `sh`) are only shown.

A command that needs no shell runs in this process. Pages that need Spark use the session that all tests share, and apps
that run until they have caught up join it. A command that needs a shell is a child process. So is one that runs until
Ctrl-C, such as `headwater dev`: the page goes on when it has shown its output, and Ctrl-C ends it with the page; where the
output of a later command depends on it, the command is repeated until its output is the one that the page shows. A gateway gets a free
port, which the page has from then on in the place of the one that it shows; what `curl` and the shell send to it is run, too.
"""

from __future__ import annotations

import contextlib
import doctest
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peer_servers import free_port
from headwater.cli.app import run
from tests.conditions import until
from tests.shared_session import left_as_it_was

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SECONDS_MAX = 240
#: Pages that `make test` runs: the first pages of a newcomer, and one for each thing that a page can start.
CORE = (
    "README.md",
    "docs/how-to/verify-and-repair.md",
    "docs/tutorials/a-first-log.md",
)
#: Python that needs Spark; commands that join its session; and commands that run until Ctrl-C.
SPARK = re.compile(r"\bsession\(|\bAppTest\(")
JOINS = re.compile(r"headwater (?:run\b.* --until-caught-up|check\b)")
ENDLESS = re.compile(r"headwater (?:dev|serve|run|gateway run)\b(?!.* --until-caught-up).*")
SAVED = re.compile(r"[Ss]ave this as `(?P<file>[\w./-]+)`:$")
CHANGED = re.compile(r"[Cc]hange `(?P<old>[^`]+)` in `(?P<file>[\w./-]+)` to `(?P<new>[^`]+)`")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block, and the line of the page on which its text begins."""

    language: str
    text: str
    line: int
    #: The text of the page between the block before and this one.
    before: str = ""


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
    end = 0
    for match in fence.finditer(page):
        text = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        line = page.count("\n", 0, match.start("text")) + 1
        yield Block(language=match["language"], text=text, line=line, before=page[end : match.start()])
        end = match.end()


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
    >>> plain("headwater group list | wc -l"), plain("headwater sql $QUERY")
    (None, None)
    """
    match = _PLAIN.fullmatch(shell.replace("\\\n", " "))
    if match is None:
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
    return re.search(r"(?:^|\| *)headwater |^pytest\b|^cd ", command.shell, re.MULTILINE) is not None


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
    exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True), namespace)


def run_session(block: Block, page: Path, namespace: dict[str, Any]) -> None:
    name = str(page.relative_to(ROOT))
    text = block.text.replace("…", "...")
    test = doctest.DocTestParser().get_doctest(text, namespace, name, str(page), block.line - 1)
    test.globs = namespace  # the parser copies it, but later blocks need the names that this one defines
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append, clear_globs=False)
    assert result.failed == 0, "".join(report)


def run_console(block: Block, page: Path, folder: Path, terminals: Terminals) -> None:
    for command in commands(block):
        if not is_ours(command) and not terminals.is_sent_to(command):
            continue
        command = replace(command, shell=terminals.with_ports(command.shell))
        where = f"{page.relative_to(ROOT)}:{command.line}: $ {command.shell}"
        if command.shell.startswith("cd "):
            os.chdir(command.shell.removeprefix("cd "))
        elif ENDLESS.fullmatch(command.shell):
            terminals.open(command, where)
        elif terminals and command.output and "headwater produce" not in command.shell:
            until(lambda command=command: _is_as_shown(command, folder), where)  # type: ignore[misc]
        else:
            code, output = run_command(command, folder)
            assert code == 0, f"{where}\n{output}"
            assert not command.output or matches(command.output, output.splitlines()), f"{where}\n{output}"


def _is_as_shown(command: Command, folder: Path) -> bool:
    code, output = run_command(command, folder)
    return code == 0 and matches(command.output, output.splitlines())


def run_command(command: Command, folder: Path) -> tuple[int, str]:
    direct = plain(command.shell)
    return run_here(direct, folder) if direct is not None else run_shell(command.shell)


class Terminals:
    """Further terminals of the reader, each with a command that runs until Ctrl-C."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        #: The ports of gateways, by those that the page shows.
        self._ports: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._processes)

    def open(self, command: Command, where: str) -> None:
        """Start the command, and wait until it has written what the page shows."""
        output = self._folder.with_name(f"terminal-{len(self._processes)}")
        shell = command.shell.replace("headwater serve", "headwater serve --port 0")  # tests may run side by side
        if "gateway run" in shell:
            self._ports |= {port: str(free_port()) for port in re.findall(r"\bport=(\d+)", shell)}
            shell = self.with_ports(shell)
        with output.open("wb") as file:
            self._processes.append(subprocess.Popen(shlex.split(shell), stdout=file, stderr=subprocess.STDOUT))
        shown = [re.sub(r"(127\.0\.0\.1:)\d+", r"\1…", line) for line in command.output]
        until(lambda: matches([*shown, "…"], output.read_text().splitlines()), where, self._processes[-1])

    def with_ports(self, text: str) -> str:
        """The text with the ports that gateways have in the place of those that the page shows."""
        for shown, port in self._ports.items():
            text = re.sub(rf"\b{shown}\b", port, text)
        return text

    def is_sent_to(self, command: Command) -> bool:
        """Whether a command sends something to a gateway of the page, by a program that is on this machine."""
        is_known = "/dev/udp/" in command.shell or "/dev/tcp/" in command.shell
        is_known = is_known or (command.shell.startswith("curl ") and shutil.which("curl") is not None)
        return is_known and any(re.search(rf"\b{port}\b", command.shell) for port in self._ports)

    def starts(self) -> int:
        """How often `headwater dev` has started its app."""
        return sum(path.read_text().count("Open http") for path in self._folder.parent.glob("terminal-*"))

    def close(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGINT)
        for process in self._processes:
            assert process.wait(SECONDS_MAX) in (0, 130)


def do_what_the_text_says(block: Block, terminals: Terminals) -> None:
    """Make the changes of files that the text before a block asks for, and save the block if the text says so."""
    text = " ".join(block.before.split())
    for match in CHANGED.finditer(text):
        file, before = Path(match["file"]), terminals.starts()
        assert match["old"] in file.read_text(), match[0]
        file.write_text(file.read_text().replace(match["old"], match["new"]))
        if terminals:
            until(lambda before=before: terminals.starts() > before, match[0])  # type: ignore[misc]
    if (saved := SAVED.search(text)) is not None:
        Path(saved["file"]).write_text(block.text)


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


def run_shell(shell: str) -> tuple[int, str]:
    words = ["bash", "-o", "pipefail", "-c", shell]
    done = subprocess.run(words, timeout=SECONDS_MAX, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def marks_of(page: Path, number: int) -> list[pytest.MarkDecorator]:
    """Marks for what the blocks of a page start, and for pages that `make test` runs in spite of it."""
    marks = [pytest.mark.core] if page.relative_to(ROOT).as_posix() in CORE else []
    of_page = list(blocks(page.read_text(encoding="utf-8")))
    consoles = [block for block in of_page if block.language == "console"]
    shells = [command.shell for block in consoles for command in commands(block) if is_ours(command)]
    endless = any(ENDLESS.fullmatch(shell) for shell in shells)
    if endless or any(plain(shell) is None and not shell.startswith("cd ") for shell in shells):
        marks.append(pytest.mark.process)
    if any("headwater dev" in shell for shell in shells):
        marks.append(pytest.mark.long)
    python = [block.text for block in of_page if block.language == "python"]
    if any(map(SPARK.search, python)) or any(map(JOINS.search, shells)):
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
    spark = request.getfixturevalue("spark")
    with left_as_it_was(spark), pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(spark), "stop", lambda _: None)  # a command stops the session that it takes for its own
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
    with contextlib.closing(Terminals(folder)) as terminals:
        for block in blocks(page.read_text(encoding="utf-8")):
            do_what_the_text_says(block, terminals)
            if block.language == "python":
                run_python(replace(block, text=terminals.with_ports(block.text)), page, namespace)
            elif block.language == "console":
                run_console(block, page, folder, terminals)


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
