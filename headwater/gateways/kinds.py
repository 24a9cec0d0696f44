"""The kinds of gateways by name, and gateways from text: `statsd port=8125 topic=metrics`, or a TOML file with several."""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from headwater.errors import ArgumentInvalid, NotFound, did_you_mean
from headwater.gateways.port import Gateway
from headwater.units import Duration

#: The module and the class of each kind; a module is imported when it is needed.
KINDS = {
    "mqtt-in": ("headwater.gateways.mqtt_in", "MqttIn"),
    "mqtt-out": ("headwater.gateways.mqtt_out", "MqttOut"),
    "statsd": ("headwater.gateways.statsd", "StatsD"),
    "syslog": ("headwater.gateways.syslog", "Syslog"),
    "tail": ("headwater.gateways.tail", "Tail"),
    "udp-in": ("headwater.gateways.udp_in", "UdpIn"),
    "udp-out": ("headwater.gateways.udp_out", "UdpOut"),
    "webhook-in": ("headwater.gateways.webhook_in", "WebhookIn"),
    "webhook-out": ("headwater.gateways.webhook_out", "WebhookOut"),
    "zeromq-in": ("headwater.gateways.zeromq_in", "ZeroMqIn"),
    "zeromq-out": ("headwater.gateways.zeromq_out", "ZeroMqOut"),
}


# Any: a class whose instances are gateways.
def gateway_class(kind: str) -> Any:
    """The class of a kind."""
    if kind not in KINDS:
        raise NotFound(
            kind="kind of gateway", name=kind, near=did_you_mean(kind, KINDS) or f" There are {', '.join(KINDS)}."
        )
    module, name = KINDS[kind]
    return getattr(import_module(module), name)


def settings_of(kind: str) -> dict[str, tuple[str, object]]:
    """The settings of a kind: what each may be, in words, and its default.

    >>> settings_of("statsd")["port"], settings_of("webhook-in")["scheme"]
    (('number', 8125), ('standard, github or stripe', 'standard'))
    """
    found = {}
    made = gateway_class(kind)
    hints = typing.get_type_hints(made)
    for one in dataclasses.fields(made):
        default = one.default if one.default_factory is dataclasses.MISSING else one.default_factory()
        found[one.name] = (_in_words(hints[one.name]), None if default is dataclasses.MISSING else default)
    return found


def gateway_from_text(kind: str, settings: Sequence[str]) -> Gateway:
    """A gateway from settings of the form NAME=VALUE.

    >>> gateway_from_text("statsd", ["topic=load", "port=0"])
    StatsD(topic='load', host='127.0.0.1', port=0, datagram_bytes_max=8932, buffer_bytes=67108864, partitions=1)
    """
    pairs = []
    for text in settings:
        name, sign, value = text.partition("=")
        if not sign:
            expected = f"NAME=VALUE with a setting of {kind}: {', '.join(sorted(settings_of(kind)))}"
            raise ArgumentInvalid(name="setting", value=text, expected=expected)
        pairs.append((name.strip().replace("-", "_"), value.strip()))
    return _gateway(kind, pairs)


def gateways_from_file(path: Path) -> list[Gateway]:
    """The gateways of a TOML file: a table `[[gateway]]` for each, with its `kind` and its settings.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "gateways.toml"
    >>> _ = path.write_text('[[gateway]]\\nkind = "statsd"\\ntopic = "load"\\nport = 0\\n')
    >>> [gateway.name for gateway in gateways_from_file(path)]
    ['statsd-load']
    """
    try:
        tables = tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise NotFound(kind="file", name=str(path), near="") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ArgumentInvalid(name=str(path), value="…", expected=f"TOML ({error})") from error
    described = tables.get("gateway")
    if set(tables) != {"gateway"} or not isinstance(described, list) or not described:
        raise ArgumentInvalid(name=str(path), value=", ".join(tables), expected="tables [[gateway]] and nothing else")
    made = []
    for settings in described:
        kind = settings.pop("kind", None)
        if not isinstance(kind, str):
            raise ArgumentInvalid(name="kind", value=kind, expected=f"one of {', '.join(KINDS)}, in each [[gateway]]")
        pairs = []
        for name, value in settings.items():
            is_list = isinstance(value, list) and all(isinstance(one, (str, int, float)) for one in value)
            if not is_list and not isinstance(value, (str, int, float, bool)):
                raise ArgumentInvalid(
                    name=name, value=value, expected="a text, a number, true, false or a list of them"
                )
            text = ",".join(map(str, value)) if is_list else str(value)
            pairs.append((name.replace("-", "_"), text))
        made.append(_gateway(kind, pairs))
    return made


def _gateway(kind: str, pairs: Sequence[tuple[str, str]]) -> Gateway:
    made = gateway_class(kind)
    hints = typing.get_type_hints(made)
    known = {one.name for one in dataclasses.fields(made)}
    for name, value in pairs:
        if name not in known:
            near = did_you_mean(name, known)
            expected = f"a setting of {kind}: {', '.join(sorted(known))}.{near}".rstrip(".")
            raise ArgumentInvalid(name=name, value=value, expected=expected)
    values = {name: _value(name, value, hints[name]) for name, value in pairs}
    return cast(Gateway, made(**values))  # every class of KINDS is one


# Any: a type, as annotations have it, here and below.
def _in_words(kind: Any) -> str:
    if kind == Duration:
        return "duration"
    if typing.get_origin(kind) is typing.Literal:
        *others, last = typing.get_args(kind)
        return f"{', '.join(others)} or {last}" if others else str(last)
    if typing.get_origin(kind) is tuple:
        return "texts, with commas between"
    if kind is bool:
        return "true or false"
    return "number" if kind in (int, float) else "text"


def _value(name: str, text: str, kind: Any) -> object:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ArgumentInvalid(name=name, value=text, expected="true or false")
        return text.lower() == "true"
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError as error:
            raise ArgumentInvalid(name=name, value=text, expected="a number") from error
    origin = typing.get_origin(kind)
    if origin is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if origin in (types.UnionType, typing.Union) and int in typing.get_args(kind) and text.isdigit():
        return int(text)
    return text
