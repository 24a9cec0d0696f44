"""Write docs/reference/cli.md from the command line itself.

python tools/cli_reference.py            write the page
python tools/cli_reference.py --check    exit with 1 if the page is not what the commands say
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from headwater.cli.app import HELP, build

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"
MADE_BY = "<!-- Made by tools/cli_reference.py from the commands; change them, then run that script. -->"
RULES = """\
Data goes to stdout, everything else to stderr. Colour and progress are shown on a terminal only, and `NO_COLOR` is respected.
`--output` is `table`, `json`, `jsonl` or `csv`; the names in JSON are a contract. Commands that give rows (`consume`, `tail`)
print one JSON object per line for `json`, too. Integers keep all their digits, times are ISO 8601 in UTC. What destroys something
asks on a terminal, needs `--yes` elsewhere, and offers `--dry-run`. A reader that closes the pipe ends a command quietly."""
CODES = """\
| Code | Meaning |
|---|---|
| 0 | done |
| 1 | an error |
| 2 | wrong usage, or a row that does not fit |
| 3 | a topic, group, log or file that does not exist |
| 4 | not allowed |
| 5 | a conflict: another process was first, or it exists already |
| 130 | interrupted with Ctrl-C |"""
PLACES = """\
| Place | Meaning |
|---|---|
| `start`, `end` | the oldest row, or behind the newest |
| `120` | this offset, in each partition |
| `-10` | the last ten rows of the topic |
| `@2026-11-15T10:00`, `@2026-11-15T10:00+01:00` | the first row appended at that time or later; UTC where no zone is given |
| `@-1h`, `@now` | the same, counted from now |"""


# Any: typer gives no types to the commands that it builds.
def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every command that is shown, with the words that call it."""
    for name, below in sorted(command.commands.items()):
        if below.hidden:
            continue
        if hasattr(below, "commands"):
            if below.invoke_without_command:  # a noun that is a command itself
                yield f"{path} {name}", below
            yield from commands(below, f"{path} {name}")
        else:
            yield f"{path} {name}", below


def entry(path: str, command: Any) -> Iterator[str]:
    own = [parameter for parameter in command.params if not parameter.name.startswith("flag_")]
    arguments = [parameter for parameter in own if parameter.param_type_name == "argument"]
    options = [parameter for parameter in own if parameter.param_type_name == "option"]
    words = " ".join([path, *(_word(argument) for argument in arguments), *(["[OPTIONS]"] if options else [])])
    yield f"## {path}"
    yield f"```text\n{words}\n```"
    yield inspect.cleandoc(command.help or "")
    aliases = _aliases(path)
    if aliases:
        yield f"Also: {aliases}."
    if own:
        rows = [f"| {_names(one)} | {_cell(one.help or '')}{_default(one)} |" for one in [*arguments, *options]]
        yield "\n".join(["| Option | Meaning |", "|---|---|", *rows])


def _word(argument: Any) -> str:
    return str(argument.metavar if argument.required else f"[{argument.metavar}]")


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar}`"
    names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    return names if parameter.is_flag else f"{names} {_cell(parameter.metavar or 'TEXT')}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _default(parameter: Any) -> str:
    if parameter.default in (None, False, True, ()) or callable(parameter.default):
        return ""
    return f" Default: `{parameter.default}`."


def _aliases(path: str) -> str:
    names = {"list": "ls", "describe": "info", "delete": "rm"}
    words = path.split()
    return f"`{' '.join([*words[:-1], names[words[-1]]])}`" if words[-1] in names else ""


def page() -> str:
    root = typer.main.get_command(build())
    shared: list[Any] = [parameter for parameter in root.params if parameter.name.startswith("flag_")]
    flags = "\n".join(
        ["| Flag | Meaning |", "|---|---|", *(f"| {_names(one)} | {_cell(one.help or '')} |" for one in shared)]
    )
    parts = [
        MADE_BY,
        "# Command line",
        HELP.partition(". ")[0] + ".",
        RULES,
        "## Flags of every command",
        "They may stand before or after the command's name.",
        flags,
        "## Exit codes",
        CODES,
        "## Places in a topic",
        "Wherever a command takes a `PLACE`:",
        PLACES,
        *(part for path, command in commands(root, "headwater") for part in entry(path, command)),
        "## Completion",
        "`headwater --install-completion` teaches your shell the commands, their options, and the names of topics and groups.",
    ]
    return "\n\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Write docs/reference/cli.md from the commands.")
    parser.add_argument("--check", action="store_true", help="only say whether the page is out of date")
    check = parser.parse_args().check
    text = page()
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    print(f"docs/reference/cli.md {'is out of date; run tools/cli_reference.py' if check else 'was updated'}")
    if not check:
        PAGE.write_text(text, encoding="utf-8")
    return int(check)


if __name__ == "__main__":
    sys.exit(main())
