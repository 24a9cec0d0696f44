"""One run of a command: its settings, the log it works on, and where its output goes."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.cli.tables import Column, table
from headwater.cli.terminal import data_stream, is_terminal, painted, wants_color, width_of
from headwater.config import Config
from headwater.errors import ArgumentInvalid

if TYPE_CHECKING:
    from headwater.log import Log
    from headwater.services import Services

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
    """What a command needs to know and to speak."""

    flags: Flags
    config: Config

    @classmethod
    def begin(cls, flags: Flags) -> Session:
        return cls(flags=flags, config=Config.load(flags.settings()))

    @property
    def output(self) -> str:
        return self.config.output

    @property
    def is_interactive(self) -> bool:
        """Whether there is a person to ask."""
        return is_terminal(sys.stdin) and is_terminal(sys.stderr)

    @property
    def shows_progress(self) -> bool:
        return is_terminal(sys.stderr) and not self.flags.quiet

    # -- the log ------------------------------------------------------------------------------------------------------

    @property
    def is_remote(self) -> bool:
        """Whether the log is a server's."""
        return is_server(self.config.log)

    def need_folder(self) -> None:
        """For a command that works on the log's own files."""
        refuse_server(self.config.log)

    @contextlib.contextmanager
    def log(self, *, create: bool = False, write: bool = False, folder: bool = False) -> Iterator[Log]:
        """The log of this run, open. A command that only reads also takes a folder that it may not write.

        With `folder` a server's log is refused, for a command that works on the log's own files.
        """
        import headwater.log
        from headwater.log.errors import ReadOnly

        if folder:
            self.need_folder()
        try:
            log = headwater.log.open(self.config.log, config=self.config, create=create)
        except ReadOnly:
            if write or create:
                raise
            log = headwater.log.open(self.config.log, config=self.config, read_only=True)
        with log:
            yield log

    @contextlib.contextmanager
    def services(self, *, create: bool = False, write: bool = False, folder: bool = False) -> Iterator[Services]:
        """What can be done with the log of this run, whether it is in a folder or a server has it; see `log`."""
        from headwater.log.remote.connection import Connection
        from headwater.services import Audit, Settings, local, remote_services
        from headwater.services.callers import user_at_the_command_line
        from headwater.services.host import Host

        if folder:
            self.need_folder()
        if self.is_remote:
            connection = Connection(self.config.log, token=self.config.token)
            with contextlib.closing(connection):
                yield remote_services(connection)
        else:
            with self.log(create=create, write=write) as log:
                host = Host(log=log, settings=Settings(), audit=None if log.read_only else Audit(log))
                yield local(host, user_at_the_command_line(), address="command line")

    # -- to people ----------------------------------------------------------------------------------------------------

    def paint(self, text: str, style: str, *, error: bool = False) -> str:
        stream = sys.stderr if error else sys.stdout
        wanted = {"always": True, "never": False}.get(self.config.color, wants_color(stream))
        return painted(text, style, color=wanted)

    def say(self, text: str) -> None:
        """Tell people what happened; `-q` silences it."""
        if not self.flags.quiet:
            sys.stdout.flush()  # where both go to one terminal, they keep their order
            print(text, file=sys.stderr)

    def warn(self, text: str) -> None:
        sys.stdout.flush()
        print(f"{self.paint('warning:', 'yellow', error=True)} {text}", file=sys.stderr)

    # -- data ---------------------------------------------------------------------------------------------------------

    def write(self, text: str) -> None:
        """Data, as one or more lines."""
        data_stream().write(text.encode("utf-8", "surrogateescape") + b"\n")

    def show(self, record: Record, lines: Sequence[str] = ()) -> None:
        """One thing: its record to programs, some lines to people."""
        if self.output == "table":
            for text in lines:
                self.write(text)
        elif self.output == "csv":
            self._write_csv([record])
        else:
            self.write(json.dumps(record, ensure_ascii=False, indent=2 if self.output == "json" else None))

    def show_all(self, records: Sequence[Record], columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """A list of things: records to programs, a table to people."""
        if self.output == "table":
            for text in self.table(columns, rows):
                self.write(text)
        elif self.output == "csv":
            self._write_csv(records)
        elif self.output == "jsonl":
            for record in records:
                self.write(json.dumps(record, ensure_ascii=False))
        else:
            self.write(json.dumps(records, ensure_ascii=False, indent=2))

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
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


def is_server(address: str) -> bool:
    return address.startswith(("http://", "https://"))


def refuse_server(address: str) -> None:
    """One clear sentence, where only the folder of a log will do."""
    if is_server(address):
        expected = "the folder of the log: this command works on its files, so run it on the machine that has them"
        raise ArgumentInvalid(name="--log", value=address, expected=expected)


def csv_cell(value: Any) -> str:
    """A JSON value as the text of a CSV cell: null is empty, what is nested stays JSON.

    >>> csv_cell(73314510714175488), csv_cell(None), csv_cell(True), csv_cell(["a"])
    ('73314510714175488', '', 'true', '["a"]')
    """
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
