"""Which dead letters a command is about, as people say it: by reason, query, time, offset, text and state."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.arguments import known_topics
from headwater.cli.positions import parse_position
from headwater.errors import ArgumentInvalid

if TYPE_CHECKING:
    from headwater.log.letters import Selection

_RATE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?:/\s*(?P<unit>s|min|h))?")
_PER_SECOND = {"s": 1.0, "min": 60.0, "h": 3600.0}


def _letters_of(context: typer.Context, incomplete: str) -> list[str]:
    return [name for name in known_topics(context, incomplete) if name.endswith(".dlq")]


Letters = Annotated[
    str, typer.Argument(help="A topic, or its dead-letter topic.", metavar="TOPIC", autocompletion=_letters_of)
]
Reason = Annotated[
    list[str] | None,
    typer.Option("--reason", "-r", help="Only this class of error; may be repeated.", metavar="ERROR"),
]
Query = Annotated[str | None, typer.Option("--query", help="Only what this query, queue or group gave up.")]
Since = Annotated[
    str | None, typer.Option("--since", help="Only letters from @TIME (UTC) or @-1h on.", metavar="@TIME")
]
Until = Annotated[str | None, typer.Option("--until", help="Only letters before @TIME or @-1h.", metavar="@TIME")]
Offset = Annotated[
    list[str] | None,
    typer.Option("--offset", "-o", help="Only these letters: 7, or 7-12; may be repeated.", metavar="N|N-M"),
]
Contains = Annotated[str | None, typer.Option("--contains", help="Only letters whose message has this text.")]


def selection_of(
    reason: Iterable[str] | None,
    query: str | None,
    since: str | None,
    until: str | None,
    offset: Iterable[str] | None,
    contains: str | None,
    state: str | None,
) -> Selection:
    from headwater.log.letters import STATES, Selection

    states = [one for one in STATES if one == state]
    if state is not None and not states:
        raise ArgumentInvalid(name="--state", value=state, expected=", ".join(STATES))
    return Selection(
        reasons=tuple(reason or ()),
        query=query,
        since_us=_time(since, "--since"),
        until_us=_time(until, "--until"),
        offsets=tuple(map(_offsets, offset or ())),
        text=contains,
        states=tuple(states),
    )


def _time(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    return parse_position(text if text.startswith("@") else f"@{text}", name=name).time_us


def _offsets(text: str) -> range:
    """Offsets as people write them.

    >>> _offsets("7"), _offsets("7-12")
    (range(7, 8), range(7, 13))
    """
    first, _, last = text.partition("-")
    if not first.isdecimal() or not (last or first).isdecimal() or int(last or first) < int(first):
        raise ArgumentInvalid(name="--offset", value=text, expected="a letter's offset (7), or two with a dash (7-12)")
    return range(int(first), int(last or first) + 1)


def parse_rate(text: str) -> float:
    """Rows per second.

    >>> parse_rate("100/s"), parse_rate("30/min"), parse_rate("5")
    (100.0, 0.5, 5.0)
    """
    match = _RATE.fullmatch(text.strip())
    if match is None or float(match["number"]) <= 0:
        raise ArgumentInvalid(name="--rate", value=text, expected='a rate above 0, such as "100/s" or "30/min"')
    return float(match["number"]) / _PER_SECOND[match["unit"] or "s"]
