"""One run of a command: its settings, its log, and its output.

The JSON of a command is the JSON form of the answer that its service gave, as over HTTP.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from headwater.cli.terminal.streams import data_stream, is_terminal, painted, wants_color, width_of
from headwater.cli.terminal.tables import Column, table
from headwater.config import Config
from headwater.errors import ArgumentInvalid
from headwater.home import is_remote, is_server

if TYPE_CHECKING:
    from headwater.log import Log
    from headwater.services import Services
    from headwater.sourcing import Entities

# Any: a record is JSON, whose values are of any type.
Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Flags:
    """The flags that every command takes; None and False mean that a flag was not given."""

    log: str | None = None
    json: bool = False
    output: str | None = None
    no_color: bool = False
    quiet: bool = False
    verbose: bool = False

    def over(self, weaker: Flags) -> Flags:
        """These flags, and those of the weaker set that are not given here."""
        names = self.__dataclass_fields__
        return Flags(**{name: getattr(self, name) or getattr(weaker, name) for name in names})

    def settings(self) -> Mapping[str, str | None]:
        """The flags that are settings, by the setting's name."""
        return {
            "log": self.log,
            "output": "json" if self.json else self.output,
            "color": "never" if self.no_color else None,
        }


@dataclass(frozen=True, kw_only=True)
class Session:
    """The settings, the log and the output of one run."""

    flags: Flags
    config: Config

    @classmethod
    def begin(cls, flags: Flags) -> Session:
        return cls(flags=flags, config=Config.load(flags.settings()))

    @property
    def output(self) -> str:
        return self.config.output

    @property
    def shows_progress(self) -> bool:
        return is_terminal(sys.stderr) and not self.flags.quiet

    # -- the log ------------------------------------------------------------------------------------------------------

    @property
    def is_remote(self) -> bool:
        """Whether the log is reached through a server."""
        return is_server(self.config.log)

    @contextlib.contextmanager
    def log(
        self, *, create: bool = False, write: bool = False, folder: bool = False, direct: bool = False
    ) -> Iterator[Log]:
        """Open the log of this run. A command that only reads also opens a folder without write permission.

        With `folder`, the log must be a folder: the command works on its files. With `direct`, it must not be that of a server.
        """
        import headwater.log
        from headwater.log.errors import ReadOnly

        if direct:
            refuse_server(self.config.log)
        if folder:
            refuse_remote(self.config.log)
        try:
            log = headwater.log.open(self.config.log, config=self.config, create=create)
        except ReadOnly:
            if write or create:
                raise
            log = headwater.log.open(self.config.log, config=self.config, read_only=True)
        with log:
            yield log

    @contextlib.contextmanager
    def services(self, *, create: bool = False, write: bool = False, direct: bool = False) -> Iterator[Services]:
        """Open the services of this run's log, directly or through a server; see `log` for the arguments."""
        from headwater.log.remote.connection import Connection
        from headwater.services import remote_services

        if direct:
            refuse_server(self.config.log)
        if self.is_remote:
            connection = Connection(self.config.log, token=self.config.token)
            with contextlib.closing(connection):
                yield remote_services(connection)
        else:
            with self.log(create=create, write=write) as log, self.services_on(log) as services:
                yield services

    # Any: the user's state, command and event classes.
    @contextlib.contextmanager
    def services_on(self, log: Log, *, entities: Iterable[Entities[Any, Any, Any]] = ()) -> Iterator[Services]:
        """The services of a log that is open, with the deciders of these entities, while the block runs."""
        from headwater.services import Audit, Settings, local
        from headwater.services.callers import user_at_the_command_line
        from headwater.services.host import Host

        audit = None if log.read_only else Audit(log)
        host = Host(log=log, settings=Settings(), audit=audit, entities={each.name: each for each in entities})
        with contextlib.closing(host):
            yield local(host, user_at_the_command_line(), address="command line")

    # -- messages, on stderr ------------------------------------------------------------------------------------------

    def paint(self, text: str, style: str, *, error: bool = False) -> str:
        stream = sys.stderr if error else sys.stdout
        wanted = {"always": True, "never": False}.get(self.config.color, wants_color(stream))
        return painted(text, style, color=wanted)

    def say(self, text: str) -> None:
        """Print a message for the user to stderr, unless `-q` was given."""
        if not self.flags.quiet:
            sys.stdout.flush()  # on a terminal that shows both, they keep their order
            print(text, file=sys.stderr)

    def warn(self, text: str) -> None:
        sys.stdout.flush()
        print(f"{self.paint('warning:', 'yellow', error=True)} {text}", file=sys.stderr)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before a change that cannot be undone, unless `--yes` was given; without a terminal, `--yes` is required."""
        if yes:
            return
        if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
            hint = "There is no terminal to ask on: repeat it with `--yes`, or look first with `--dry-run`."
            raise typer.BadParameter(f"{question} {hint}")
        typer.confirm(f"{question} Go on?", abort=True, err=True)

    # -- data, on stdout ----------------------------------------------------------------------------------------------

    def write(self, text: str) -> None:
        """Write a text and a line feed to stdout."""
        data_stream().write(text.encode("utf-8", "surrogateescape") + b"\n")

    def clear(self) -> None:
        """Clear the terminal and write the time, before a table is shown again."""
        if self.output == "table" and is_terminal(sys.stdout):
            self.write("\x1b[H\x1b[2J" + time.strftime("%H:%M:%S"))

    # Any, here and below: facts of a command beside the answer, such as `deleted=True`.
    def show(self, answer: object, lines: Sequence[str] = (), **facts: Any) -> None:
        """Show the answer of a service: as lines for people, or as a record in the output format."""
        if self.output == "table":
            for text in lines:
                self.write(text)
        elif self.output == "csv":
            self._write_csv([_record(answer, facts)])
        else:
            indent = 2 if self.output == "json" else None
            self.write(json.dumps(_record(answer, facts), ensure_ascii=False, indent=indent))

    def show_all(
        self, answers: Iterable[object], columns: Sequence[Column], rows: Sequence[Sequence[str]], **facts: Any
    ) -> None:
        """Show a list of answers: as a table for people, or as records in the output format."""
        if self.output == "table":
            for text in self.table(columns, rows):
                self.write(text)
            return
        records = [_record(answer, facts) for answer in answers]
        if self.output == "csv":
            self._write_csv(records)
        elif self.output == "jsonl":
            for record in records:
                self.write(json.dumps(record, ensure_ascii=False))
        else:
            self.write(json.dumps(records, ensure_ascii=False, indent=2))

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
        """The lines of a table that fits the terminal; none without rows."""
        if not rows:
            return []
        title, lines = table(columns, rows, width=width_of(sys.stdout))
        return [self.paint(title, "bold"), *lines]

    def _write_csv(self, records: Sequence[Record]) -> None:
        text = io.StringIO()
        if records:
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(records[0])
            writer.writerows([csv_cell(value) for value in record.values()] for record in records)
        data_stream().write(text.getvalue().encode())


def _record(answer: object, facts: Record) -> Record:
    if isinstance(answer, dict):  # JSON already
        return {**answer, **facts}
    from headwater.services.json_form import to_json

    return {**to_json(answer), **facts}


def refuse_server(address: str) -> None:
    """Raise if the address is that of a server: the command works on files that the server's machine has."""
    if is_server(address):
        expected = (
            "the folder of the log, or kafka://… of its brokers: run this command on the machine that serves them"
        )
        raise ArgumentInvalid(name="--log", value=address, expected=expected)


def refuse_remote(address: str) -> None:
    """Raise if the address is that of a server or a cluster: the command works on the log's files."""
    if is_remote(address):
        expected = "the folder of the log: this command works on its files, so run it on the machine that has them"
        raise ArgumentInvalid(name="--log", value=address, expected=expected)


def csv_cell(value: Any) -> str:
    """A JSON value as a CSV cell: null is empty, nested values are JSON.

    >>> csv_cell(73314510714175488), csv_cell(None), csv_cell(True), csv_cell(["a"])
    ('73314510714175488', '', 'true', '["a"]')
    """
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
