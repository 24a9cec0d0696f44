"""Customers, whose names are personal: a decider that tests share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import headwater as hw
from headwater.sourcing import Personal


@dataclass(frozen=True)
class Register:
    name: str


@dataclass(frozen=True)
class Registered:
    name: Annotated[str, Personal()]


def decide(_: str, command: Register) -> list[Registered]:
    return [Registered(command.name)]


def evolve(_: str, event: Registered) -> str:
    return event.name


CUSTOMER = hw.Decider(initial="", decide=decide, evolve=evolve)
