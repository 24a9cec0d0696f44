"""Every setting, as one frozen value that is checked when built and passed by hand.

Precedence: flags > `HEADWATER_*` environment > `./headwater.toml` > the user's file > defaults.
`Config.load` is the only reader of the environment and of those files; nothing else in the package looks there.
A name that is no setting is an error wherever it stands, for a misspelt setting is one that silently does nothing.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, get_args

from headwater.errors import ArgumentInvalid, EncodingInvalid, UsageError
from headwater.units import KIB, MIB, format_bytes, format_seconds, parse_bytes, parse_seconds

Durability = Literal["fsync", "os", "memory"]
Codec = Literal["none", "lz4", "zstd"]
Color = Literal["auto", "always", "never"]
Maintenance = Literal["auto", "manual"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
Output = Literal["table", "json", "jsonl", "csv"]

FILE_NAME = "headwater.toml"
ENVIRONMENT_PREFIX = "HEADWATER_"

ENVIRONMENT_OTHER = frozenset({"HEADWATER_CONFIG"})
"""Variables with our prefix that are no settings: `HEADWATER_CONFIG` names a file to read instead of `./headwater.toml`.

Variables that begin with `HEADWATER_TEST_` belong to the test suite, and are let through as well.
"""

_Parse = Callable[[Any], Any]


@dataclass(eq=False, kw_only=True)
class SettingInvalid(UsageError):
    """A setting has a value that cannot work."""

    name: str
    value: Any
    expected: str
    origin: str = "a default"
    problem = "The setting `{name}` is {value!r} (from {origin})."
    remedy = "It takes {expected}."


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting as it stands: its value, and where that came from."""

    name: str
    value: Any
    text: str
    origin: str
    help: str


# -- what a setting may be: each parser takes what people write and raises ArgumentInvalid for the rest -------------


def _refuse(value: object, expected: str) -> ArgumentInvalid:
    return ArgumentInvalid(name="", value=value, expected=expected)


def _one_of(choices: tuple[str, ...]) -> _Parse:
    expected = " or ".join(filter(None, [", ".join(choices[:-1]), choices[-1]]))

    def parse(value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise _refuse(value, expected)
        return value

    return parse


def _count(*, most: int) -> _Parse:
    expected = f"a whole number from 1 to {most}"

    def parse(value: Any) -> int:
        if isinstance(value, str) and value.strip().isdecimal():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise _refuse(value, expected)
        return value

    return parse


def _bytes(*, least: int) -> _Parse:
    def parse(value: Any) -> int:
        size = parse_bytes(value)
        if size < least:
            raise _refuse(value, f"at least {format_bytes(least)}")
        return size

    return parse


def _seconds_above_zero(value: Any) -> float:
    seconds = parse_seconds(value)
    if seconds == 0:
        raise _refuse(value, "more than 0 seconds")
    return seconds


def _optional(parse: _Parse) -> _Parse:
    """TOML and the environment have no null, so the word "none" says it."""
    return lambda value: None if value is None or value == "none" else parse(value)


def _flag(value: Any) -> bool:
    words = {"true": True, "false": False, "1": True, "0": False}
    found = value if isinstance(value, bool) else words.get(str(value).strip().lower())
    if found is None:
        raise _refuse(value, "true or false")
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _refuse(value, "some text")
    return value


def _path(value: Any) -> Path:
    return value if isinstance(value, Path) else Path(_text(value)).expanduser()


def _hidden(_value: Any) -> str:
    """What stands for a secret wherever settings are shown."""
    return "(set, not shown)"


def _without_password(value: Any) -> str:
    """An address as it may be shown.

    >>> _without_password("https://ada:secret@registry:8081")
    'https://ada:…@registry:8081'
    """
    return str(value) if value is None else re.sub(r"(?<=//)([^/@:]*):[^/@]*@", r"\1:…@", str(value))


# -- the settings ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """What one setting is for, how its text is read, and how its value is shown."""

    help: str
    parse: _Parse
    show: Callable[[Any], str] = str


_RULES = {
    "log": _Rule(help="Address of the log: a folder, the http://… of a server, or kafka://HOST:PORT.", parse=_text),
    "token": _Rule(
        help="What commands show to a server of the log; see `headwater token`.", parse=_optional(_text), show=_hidden
    ),
    "app": _Rule(
        help="The file of the app that `headwater dev` and `headwater run` run where none is named; FILE:NAME where it makes several.",
        parse=_optional(_text),
    ),
    "durability": _Rule(
        help="When a row of a new topic counts as written: fsync, os or memory.", parse=_one_of(get_args(Durability))
    ),
    "codec": _Rule(help="Compression of new topics: none, lz4 or zstd.", parse=_one_of(get_args(Codec))),
    "partitions": _Rule(help="Partitions of a new topic.", parse=_count(most=65_536)),
    "segment_bytes_max": _Rule(
        help="Size at which a segment file is closed and the next begun.",
        parse=_bytes(least=4 * KIB),
        show=format_bytes,
    ),
    "frame_rows_max": _Rule(help="Most rows in one frame.", parse=_count(most=2**31 - 1)),
    "frame_bytes_max": _Rule(
        help="Most bytes in one frame, and so in one row.", parse=_bytes(least=4 * KIB), show=format_bytes
    ),
    "linger_seconds": _Rule(
        help="How long a producer waits for more rows before it appends.", parse=parse_seconds, show=format_seconds
    ),
    "batch_rows_max": _Rule(help="Rows at which a producer waits no longer.", parse=_count(most=2**31 - 1)),
    "batch_bytes_max": _Rule(
        help="Bytes at which a producer waits no longer.", parse=_bytes(least=1), show=format_bytes
    ),
    "retention_seconds_max": _Rule(
        help="Age at which rows of a new topic are deleted; none keeps them.",
        parse=_optional(_seconds_above_zero),
        show=format_seconds,
    ),
    "retention_bytes_max": _Rule(
        help="Bytes that each partition of a new topic keeps; none keeps all.",
        parse=_optional(_bytes(least=1)),
        show=format_bytes,
    ),
    "session_seconds_max": _Rule(
        help="Silence after which a group counts a member as dead.", parse=_seconds_above_zero, show=format_seconds
    ),
    "heartbeat_seconds": _Rule(
        help="How often a group member says that it lives.", parse=_seconds_above_zero, show=format_seconds
    ),
    "open_partitions_max": _Rule(help="Partitions whose files one process keeps open.", parse=_count(most=2**20)),
    "lock_seconds_max": _Rule(
        help="How long a call waits for a lock of the log that another process holds.",
        parse=_seconds_above_zero,
        show=format_seconds,
    ),
    "archive_dir": _Rule(
        help="Where archived segments go; none is the folder `archive` inside the log.", parse=_optional(_path)
    ),
    "state_cache_dir": _Rule(
        help="Where a machine keeps copies of state that lies in an object store; none is a folder among the temporary ones.",
        parse=_optional(_path),
    ),
    "state_cache_bytes_max": _Rule(
        help="Bytes that copies of state in an object store may take.", parse=_bytes(least=1), show=format_bytes
    ),
    "maintenance": _Rule(
        help="Whether retention, coalescing and compaction run in the background after appends (auto), or only on request (manual).",
        parse=_one_of(get_args(Maintenance)),
    ),
    "alert_webhook_secret": _Rule(
        help="What webhooks of alerts are signed with; none leaves them without a signature.",
        parse=_optional(_text),
        show=_hidden,
    ),
    "alert_mail_server": _Rule(
        help="Mail server of alerts, such as smtp+starttls://USER:PASSWORD@HOST:587, smtps://… or smtp://…; none sends no mail.",
        parse=_optional(_text),
        show=_hidden,
    ),
    "alert_mail_sender": _Rule(help="Who writes the mails of alerts.", parse=_text),
    "kafka_user": _Rule(
        help="User at the brokers of a log on Kafka (SASL); none uses no credentials.", parse=_optional(_text)
    ),
    "kafka_password": _Rule(help="Password of that user.", parse=_optional(_text), show=_hidden),
    "kafka_mechanism": _Rule(
        help="How the password is proven to brokers: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.",
        parse=_one_of(get_args(Mechanism)),
    ),
    "kafka_tls": _Rule(help="Whether brokers are reached over TLS; certificates that follow imply it.", parse=_flag),
    "kafka_ca_file": _Rule(
        help="File with the certificates that brokers are checked against; none trusts the system's.",
        parse=_optional(_path),
    ),
    "kafka_certificate_file": _Rule(
        help="File with the certificate that this process shows to brokers.", parse=_optional(_path)
    ),
    "kafka_key_file": _Rule(help="File with the key of that certificate.", parse=_optional(_path)),
    "kafka_values": _Rule(
        help="Format of the values of a new topic on Kafka, such as json; see docs/reference/kafka.md.", parse=_text
    ),
    "kafka_registry": _Rule(
        help="Address of a schema registry with Confluent's API, for formats of values that need one.",
        parse=_optional(_text),
        show=_without_password,
    ),
    "kafka_replication": _Rule(
        help="Copies of a new topic on Kafka; none takes the brokers' default.", parse=_optional(_count(most=32_767))
    ),
    "kafka_seconds_max": _Rule(
        help="How long a call waits for the brokers of a log on Kafka.",
        parse=_seconds_above_zero,
        show=format_seconds,
    ),
    "color": _Rule(help="Colour in the terminal: auto, always or never.", parse=_one_of(get_args(Color))),
    "output": _Rule(help="How commands print: table, json, jsonl or csv.", parse=_one_of(get_args(Output))),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Every setting of Headwater; each default works on a laptop.

    Built by hand it takes values or the text that people write for them; either way it is checked at once.

    >>> Config(partitions=4).partitions
    4
    >>> Config.load({"segment_bytes_max": "1 GiB"}, environ={}).segment_bytes_max
    1073741824
    """

    log: str = "./data"
    token: str | None = field(default=None, repr=False)
    app: str | None = None
    durability: Durability = "fsync"
    codec: Codec = "none"
    partitions: int = 1
    segment_bytes_max: int = 64 * MIB
    frame_rows_max: int = 65_536
    frame_bytes_max: int = 16 * MIB
    linger_seconds: float = 0.005
    batch_rows_max: int = 65_536
    batch_bytes_max: int = 8 * MIB
    retention_seconds_max: float | None = None
    retention_bytes_max: int | None = None
    session_seconds_max: float = 10.0
    heartbeat_seconds: float = 1.0
    open_partitions_max: int = 256
    lock_seconds_max: float = 30.0
    archive_dir: Path | None = None
    state_cache_dir: Path | None = None
    state_cache_bytes_max: int = 4096 * MIB
    maintenance: Maintenance = "auto"
    alert_webhook_secret: str | None = field(default=None, repr=False)
    alert_mail_server: str | None = field(default=None, repr=False)
    alert_mail_sender: str = "headwater@localhost"
    kafka_user: str | None = None
    kafka_password: str | None = field(default=None, repr=False)
    kafka_mechanism: Mechanism = "PLAIN"
    kafka_tls: bool = False
    kafka_ca_file: Path | None = None
    kafka_certificate_file: Path | None = None
    kafka_key_file: Path | None = None
    kafka_values: str = "json"
    kafka_registry: str | None = field(default=None, repr=False)
    kafka_replication: int | None = None
    kafka_seconds_max: float = 30.0
    color: Color = "auto"
    output: Output = "table"
    origins: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, rule in _RULES.items():
            # A frozen value may still be completed while it is being built: text becomes the value that it means.
            object.__setattr__(self, name, self._checked(name, rule.parse))
        if self.heartbeat_seconds >= self.session_seconds_max:
            raise SettingInvalid(
                name="heartbeat_seconds",
                value=self.heartbeat_seconds,
                expected=f"less than `session_seconds_max`, which is {format_seconds(self.session_seconds_max)}",
                origin=self.origin("heartbeat_seconds"),
            )

    def _checked(self, name: str, parse: _Parse) -> Any:
        value = getattr(self, name)
        try:
            return parse(value)
        except ArgumentInvalid as error:
            origin = self.origin(name)
            value = _hidden(value) if _RULES[name].show is _hidden else value
            raise SettingInvalid(name=name, value=value, expected=error.expected, origin=origin) from None

    @classmethod
    def load(
        cls,
        flags: Mapping[str, Any] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        directory: str | Path | None = None,
    ) -> Self:
        """The settings of this process; the only place that reads the environment and the configuration files.

        `flags` are settings by name; one that is None was not given. `directory` is where `headwater.toml` is
        sought, by default the current folder. Relative addresses in a file mean the current folder, too.
        """
        environ = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}
        # From the weakest to the strongest: each layer covers what lies below.
        for origin, layer in (
            *_files(environ, Path() if directory is None else Path(directory)),
            *_environment(environ),
            *_flags(flags or {}),
        ):
            values.update(layer)
            origins.update(dict.fromkeys(layer, origin))
        return cls(**values, origins=origins)

    def origin(self, name: str) -> str:
        """Where the value of a setting came from.

        >>> Config.load({"partitions": 4}, environ={}).origin("partitions")
        'flag --partitions'
        """
        if name not in _RULES:
            raise _unknown(name, None, origin="the program")
        # A default of a dataclass stays on its class as a plain attribute.
        return self.origins.get(name, "default" if getattr(self, name) == getattr(Config, name) else "the program")

    def describe(self) -> list[Setting]:
        """Every setting with its value, where that came from, and what it is for."""
        return [self._described(name, rule) for name, rule in _RULES.items()]

    def _described(self, name: str, rule: _Rule) -> Setting:
        value = getattr(self, name)
        text = "none" if value is None else rule.show(value)
        value = text if value is not None and rule.show in (_hidden, _without_password) else value
        return Setting(name=name, value=value, text=text, origin=self.origin(name), help=rule.help)


# -- the layers, weakest first --------------------------------------------------------------------------------------

_Layer = tuple[str, dict[str, Any]]


def _files(environ: Mapping[str, str], directory: Path) -> Iterable[_Layer]:
    chosen = environ.get("HEADWATER_CONFIG")
    for path in (user_file(environ), project_file(environ, directory)):
        # `os.path.isfile` takes a folder that may not be entered for one without the file, and a home may be such.
        if path and (os.path.isfile(path) or (chosen and path == Path(chosen))):
            origin = f"./{FILE_NAME}" if path == Path(FILE_NAME) else str(path)
            yield origin, _known(_toml(path, origin), origin)


def _toml(path: Path, origin: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EncodingInvalid(encoding="TOML", position=origin, why=error.strerror or str(error)) from error
    except ValueError as error:  # not UTF-8, or not TOML
        raise EncodingInvalid(encoding="TOML", position=origin, why=str(error)) from error


def _environment(environ: Mapping[str, str]) -> Iterable[_Layer]:
    # https://no-color.org: present and not empty, whatever its value.
    if environ.get("NO_COLOR"):
        yield "environment NO_COLOR", {"color": "never"}
    for variable, value in environ.items():
        # An empty variable is an unset one: shells have no other way to take a value away for one command.
        if _is_setting(variable) and value:
            origin = f"environment {variable}"
            yield origin, _known({variable.removeprefix(ENVIRONMENT_PREFIX).lower(): value}, origin)


def _is_setting(variable: str) -> bool:
    if variable in ENVIRONMENT_OTHER or variable.startswith("HEADWATER_TEST_"):
        return False
    return variable.startswith(ENVIRONMENT_PREFIX)


def _flags(flags: Mapping[str, Any]) -> Iterable[_Layer]:
    for name, value in flags.items():
        if value is not None:
            origin = f"flag --{name.replace('_', '-')}"
            yield origin, _known({name: value}, origin)


def _known(layer: dict[str, Any], origin: str) -> dict[str, Any]:
    for name, value in layer.items():
        if name not in _RULES:
            raise _unknown(name, value, origin=origin)
    return layer


def _unknown(name: str, value: object, *, origin: str) -> SettingInvalid:
    near = difflib.get_close_matches(name, _RULES, n=1)
    hint = f"did you mean `{near[0]}`?" if near else "`headwater config show` lists them all"
    return SettingInvalid(
        name=name, value=value, expected=f"another name, for no setting is called so: {hint}", origin=origin
    )


def project_file(environ: Mapping[str, str], directory: Path) -> Path:
    """Where the settings of a project are looked for."""
    chosen = environ.get("HEADWATER_CONFIG")
    return Path(chosen) if chosen else directory / FILE_NAME


def user_file(environ: Mapping[str, str]) -> Path | None:
    """The user's own configuration file, where the platform keeps such files; None for a process without a home."""
    home = environ.get("HOME") or environ.get("USERPROFILE")
    if sys.platform == "darwin":
        folder = f"{home}/Library/Application Support" if home else None
    elif sys.platform == "win32":
        folder = environ.get("APPDATA")
    else:
        folder = environ.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else None)
    return Path(folder, "headwater", "config.toml") if folder else None
