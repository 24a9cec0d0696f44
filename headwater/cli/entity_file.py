"""The entities that a Python file declares."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.cli.session import Session
from headwater.errors import ArgumentInvalid, NotPossible
from headwater.home import is_server

if TYPE_CHECKING:
    from headwater.log import Log
    from headwater.services.entities import EntityService
    from headwater.sourcing import Entities


# Any: the user's state, command and event classes; here and below.
def load_entities(file: str) -> list[Entities[Any, Any, Any]]:
    """All `Entities` that are variables of a file."""
    from headwater.apps.app_file import load_module
    from headwater.sourcing import CommandRejected, Entities, VersionConflict

    try:
        module = load_module(Path(file))
    except (CommandRejected, VersionConflict) as error:
        # Without this, it would look as if the command of the command line had been rejected.
        expected = f"a file that only declares entities; send commands below `if __name__ == '__main__':` ({error})"
        raise ArgumentInvalid(name="FILE", value=file, expected=expected) from error
    found = {value.name: value for value in vars(module).values() if isinstance(value, Entities)}
    if not found:
        expected = 'a file with entities: a variable such as `accounts = hw.Entities(log, "account", decider)`'
        raise ArgumentInvalid(name="FILE", value=file, expected=expected)
    return list(found.values())


@contextlib.contextmanager
def entities_on(log: Log, file: str | None) -> Iterator[list[Entities[Any, Any, Any]]]:
    """The entities of a file in this log, whichever log the file opens; none without a file."""
    declared = [] if file is None else load_entities(file)
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(each.on(log)) for each in declared]


@contextlib.contextmanager
def entity_service(session: Session, file: str | None) -> Iterator[EntityService]:
    """The service of entities: with the deciders of a file, or as the log or its server has them.

    The log is that of the command line or else the file's own.
    """
    if file is None:
        with session.services() as services:
            yield services.entities
        return
    if is_server(session.flags.log or ""):
        raise NotPossible(
            why=f"{session.flags.log} decides commands itself, not by a file of this machine",
            instead="Leave out `--file`, and start the server with `headwater serve --entities FILE`",
        )
    with contextlib.ExitStack() as stack:
        if session.flags.log is None:
            declared = [stack.enter_context(each) for each in load_entities(file)]
            log = declared[0].log
            if any(each.log.address != log.address for each in declared):
                raise ArgumentInvalid(name="--log", value=None, expected="the log to use: the file opens several")
        else:
            log = stack.enter_context(session.log(write=True))
            declared = stack.enter_context(entities_on(log, file))
        yield stack.enter_context(session.services_on(log, entities=declared)).entities
