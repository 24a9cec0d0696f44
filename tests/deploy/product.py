"""What the product has, for files that name it: commands, settings, paths of the server."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typer.main import get_command

from headwater.cli.app import build
from headwater.config import ENVIRONMENT_PREFIX, Config
from headwater.http.guard import OPEN_PATHS

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


# Any: typer gives no types to the commands that it builds, and to what they were given.
@functools.cache
def _root() -> Any:
    return get_command(build())


def options_of(arguments: Sequence[str]) -> dict[str, Any]:
    """Parse a command line of ours to the last option, as the command does before it runs; return what it was given."""
    command: Any = _root()
    context, given = command.make_context("headwater", list(arguments)), list(arguments)
    while hasattr(command, "commands"):
        name, command, given = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, list(given), parent=context)
    values: dict[str, Any] = dict(context.params)
    return values


def settings_of(environment: Mapping[str, str]) -> Config:
    """The settings that an environment gives; a name or a value that is none of ours raises."""
    ours = {name: value for name, value in environment.items() if name.startswith(ENVIRONMENT_PREFIX)}
    return Config.load(environ={**ours, "XDG_CONFIG_HOME": "/nowhere"}, directory="/nowhere")


def probed(command: Sequence[str]) -> tuple[int, str]:
    """The port and the path that a probe by Python asks, if the path is one that needs no token."""
    program, flag, code = command
    found = re.fullmatch(
        r"import urllib\.request; urllib\.request\.urlopen\('http://127\.0\.0\.1:(\d+)(/\w+)', timeout=\d\)", code
    )
    assert (program, flag) == ("python", "-c")
    assert found is not None, code
    compile(code, "probe", "exec")
    assert found[2] in OPEN_PATHS
    return int(found[1]), found[2]


def is_plain_image(name: str) -> bool:
    """Whether an image is named without the address of a registry."""
    return re.fullmatch(r"([a-z0-9]+/)?[a-z0-9-]+(:[a-z0-9.-]+)?", name) is not None
