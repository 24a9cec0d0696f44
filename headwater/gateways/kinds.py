"""The kinds of gateways by name, and a gateway from settings as text: `statsd port=8125 topic=metrics`."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast

from headwater.errors import ArgumentInvalid, NotFound, did_you_mean
from headwater.gateways.port import Gateway

#: The module and the class of each kind; a module is imported when it is needed.
KINDS = {
    "statsd": ("headwater.gateways.statsd", "StatsD"),
    "webhook-in": ("headwater.gateways.webhook_in", "WebhookIn"),
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
    """The settings of a kind: their types, and their defaults.

    >>> settings_of("statsd")["port"]
    ('int', 8125)
    """
    found = {}
    for one in dataclasses.fields(gateway_class(kind)):
        default = one.default if one.default_factory is dataclasses.MISSING else one.default_factory()
        found[one.name] = (str(one.type), None if default is dataclasses.MISSING else default)
    return found


def gateway_from_text(kind: str, settings: Sequence[str]) -> Gateway:
    """A gateway from settings of the form NAME=VALUE.

    >>> gateway_from_text("statsd", ["topic=load", "port=0"])
    StatsD(topic='load', host='127.0.0.1', port=0, datagram_bytes_max=8932, buffer_bytes=67108864, partitions=1)
    """
    made = gateway_class(kind)
    hints = typing.get_type_hints(made)
    known = {one.name for one in dataclasses.fields(made)}
    values = {}
    for text in settings:
        name, sign, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not sign or name not in known:
            expected = f"NAME=VALUE with a setting of {kind}: {', '.join(sorted(known))}"
            raise ArgumentInvalid(name="setting", value=text, expected=expected)
        values[name] = _value(name, value.strip(), hints[name])
    return cast(Gateway, made(**values))  # every class of KINDS is one


# Any: a type, as annotations have it.
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
