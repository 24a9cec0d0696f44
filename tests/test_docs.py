"""What the documentation shows is what happens: its Python and its commands run, page by page.

Every page is one test. Its blocks run from top to bottom in an empty folder, with one namespace:

- ```` ```python ````: run as a script, or as an interactive session where the block begins with `>>>`;
- ```` ```console ````: lines that begin with `$ ` and call `headwater` run in a shell and must succeed.
  If output is shown it must match; `…` stands for any text in a line, and alone on a line for any lines.

Blocks in other languages (`text`, `py`, `pycon`, `sh`) are only shown.
"""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SECONDS_MAX = 240


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block, and the line of the page on which its text begins."""

    language: str
    text: str
    line: int


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command as it is shown, with the output shown below it."""

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
    """The commands of a console block; a backslash at the end of a line carries it on.

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


def matches(shown: list[str], actual: list[str]) -> bool:
    """Whether output is what was shown.

    >>> matches(["a … z", "…", "end"], ["a b z", "1", "2", "end"]), matches(["a"], ["a", "b"])
    (True, False)
    """
    # The blanks after a wildcard only keep columns in line, so they belong to it.
    patterns = [r"(?:.*\n)*" if line == "…" else re.sub(r"…(?:\\ )*", ".*", re.escape(line)) + r"\n" for line in shown]
    return re.fullmatch("".join(patterns), "".join(f"{line.rstrip()}\n" for line in actual)) is not None


# Any: the namespace of a page holds whatever its author put there.
def run_python(block: Block, page: Path, namespace: dict[str, Any]) -> None:
    if block.text.startswith(">>>"):
        run_session(block, page, namespace)
        return
    # Empty lines in front make a traceback point to the line of the page.
    exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), namespace)


def run_session(block: Block, page: Path, namespace: dict[str, Any]) -> None:
    name = str(page.relative_to(ROOT))
    text = block.text.replace("…", "...")
    test = doctest.DocTestParser().get_doctest(text, namespace, name, str(page), block.line - 1)
    test.globs = namespace  # the parser copies it, and later blocks need what this one defines
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append, clear_globs=False)
    assert result.failed == 0, "".join(report)


def run_console(block: Block, page: Path, folder: Path) -> None:
    # The same look on every machine: plain, and as wide as the page.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
    environ |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "NO_COLOR": "1", "COLUMNS": "100"}
    for command in commands(block):
        if not re.search(r"(?:^|\| *)headwater ", command.shell, re.MULTILINE):
            continue
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command.shell],
            cwd=folder, env=environ, timeout=SECONDS_MAX, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        where = f"{page.relative_to(ROOT)}:{command.line}: $ {command.shell}\n{done.stdout}"
        assert done.returncode == 0, where
        if command.output:
            assert matches(command.output, done.stdout.splitlines()), where


@pytest.fixture(autouse=True)
def _swept() -> Iterator[None]:
    """A JVM that runs already keeps to the folder in which it was started: a page's checkpoints may lie there."""
    started = Path.cwd()
    yield
    for name in ("checkpoint", "checkpoints"):
        shutil.rmtree(started / name, ignore_errors=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_is_what_happens(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "python":
            run_python(block, page, namespace)
        elif block.language == "console":
            run_console(block, page, tmp_path)


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
