"""How a failed command is reported: one message with the problem and the remedy, and an exit code.

0 done, 1 an error, 2 wrong usage, 3 not found, 4 not allowed, 5 a conflict, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import sys
import traceback

import typer

from headwater.cli.terminal.streams import painted, wants_color
from headwater.errors import HeadwaterError, NotFound

# Remedies for the command line, where that of the error is written for programs. By name, so that no class is loaded.
_REMEDIES = {
    "OffsetExpired": "Begin at the oldest row with `--offset start`, or raise the topic's retention.",
    "OffsetAhead": "Begin with `--offset start` or `--offset end`; the topic may have been deleted and made again.",
    "SchemaConflict": "Add nullable columns or widen types; to drop a column, say `--force`; otherwise make a new topic.",
    "GroupActive": "Stop them first; each lets go of its partitions when it ends.",
    "TokenInvalid": "Give one that `headwater token create` has made for this server: as HEADWATER_TOKEN, or as `token` in headwater.toml.",
    "ReadOnly": "Work as a user who may, or change the folder's permissions.",
}
_NO_LOG = "Correct the path (`--log PATH` or HEADWATER_LOG), or make a log there with `headwater topic create NAME`."


def report(error: BaseException, *, color: bool, verbose: bool) -> int:
    """Print an error to stderr and return its exit code."""
    if verbose:
        traceback.print_exception(error)
    with contextlib.suppress(OSError):  # the reader of stdout may be gone; the error is printed all the same
        sys.stdout.flush()  # data that was written before the error comes first
    message, code = explain(error)
    print(f"{painted('error:', 'red', color=color and wants_color(sys.stderr))} {message}", file=sys.stderr)
    return code


def explain(error: BaseException) -> tuple[str, int]:
    """The message and the exit code of a failure.

    >>> explain(NotFound(kind="topic", name="orders"))[1]
    3
    """
    if isinstance(error, HeadwaterError):
        return _of_ours(error), error.exit_code
    if isinstance(error, typer.TyperException):
        return _of_usage(error), error.exit_code
    if isinstance(error, OSError):
        return _of_system(error)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"{text}. This should not happen: please report it, with what `--verbose` shows.", 1


def _of_ours(error: HeadwaterError) -> str:
    remedy = _REMEDIES.get(type(error).__name__)
    if isinstance(error, NotFound) and error.kind == "log":
        remedy = _NO_LOG
    return str(error) if remedy is None else f"{error.problem.format(**error.facts())} {remedy}"


def _of_usage(error: typer.TyperException) -> str:
    message = error.format_message().removeprefix("Invalid value: ").strip()
    message = message if message.endswith((".", "?", "!", "`")) else f"{message}."
    context = getattr(error, "ctx", None)
    # A message that names a command or a flag says already what to do.
    return f"{message} See `{context.command_path} --help`." if context is not None and "`" not in message else message


def _of_system(error: OSError) -> tuple[str, int]:
    where = f"{error.filename}: " if error.filename else ""
    message = f"{where}{error.strerror or error}."
    if isinstance(error, FileNotFoundError):
        return f"{message} Correct the path.", 3
    if isinstance(error, PermissionError):
        return f"{message} Work as a user who may, or change the permissions.", 4
    return message, 1
