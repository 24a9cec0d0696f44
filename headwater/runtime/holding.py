"""What holds a watermark back, in words: the partition or input that nothing has come from while others went on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headwater.operators.keyed.inspect import OperatorState
from headwater.operators.keyed.watermark import NEVER, merge

#: Whoever was heard of so lately holds nothing back; it is only the slowest by chance.
QUIET_SECONDS = 10.0
#: Being so little behind in event time is no reason to name anybody.
BEHIND_US = 1_000_000
_ORDINALS = ("first", "second", "third", "fourth")


def held_by(states: Iterable[OperatorState], inputs: Sequence[str], *, now_us: int) -> str:
    """The reason in words, empty where everything comes along.

    The operator with the earliest watermark is asked: what it has seen says which of its inputs is behind.
    """
    found = list(states)
    if not found:
        return ""
    slowest = min(found, key=lambda one: NEVER if one.watermark_us is None else one.watermark_us)
    seen = merge(one.seen for one in found if one.operator == slowest.operator)
    places = [(latest, at, name, place) for name, some in seen.items() for place, (latest, at) in some.items()]
    if len(places) < 2:
        return ""
    latest, at, name, place = min(places)
    if latest <= NEVER:
        return f"{_input(name, inputs)} has had no rows yet, and there is no watermark until it has"
    quiet = (now_us - at) / 1e6
    if max(places)[0] - latest < BEHIND_US or quiet < QUIET_SECONDS:
        return ""
    return f"partition {place} of {_input(name, inputs)}, idle for {quiet:,.0f} s, holds the watermark"


def _input(name: str, inputs: Sequence[str]) -> str:
    """An operator with one input does not name it; others number theirs, which need not be in the order of the query's."""
    if len(inputs) == 1:
        return inputs[0]
    number = int(name) if name.isdigit() else 0
    return f"its {_ORDINALS[number] if number < len(_ORDINALS) else f'{number + 1}th'} input"
