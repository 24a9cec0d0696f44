"""`Global`: one window of all time, for panes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.engine.window_operator import WindowOperator
from headwater.engine.window_spans import Spans, Whole
from headwater.errors import ArgumentInvalid

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, kw_only=True)
class Global(WindowOperator):
    """All rows of a key, whatever their time: one window, which ends with the input.

    In a stream it would never say anything, so it stands in `Panes` alone, with a trigger that says when. No row is ever
    late. State: one row per key, for ever.

    >>> from headwater.operators import Global, Panes, agg
    >>> from headwater.operators.trigger import Repeatedly, rows
    >>> Panes(window=Global(), by="user", compute={"n": agg.count()}, trigger=Repeatedly(rows(100))).mode
    'accumulating'
    """

    def __call__(self, rows: DataFrame) -> DataFrame:  # noqa: ARG002 - as all operators are called
        raise self._alone()

    def spans(self) -> Spans:
        return Whole()

    def column(self) -> Column:
        raise self._alone()

    def _alone(self) -> ArgumentInvalid:
        expected = "Panes(window=Global(), trigger=…): a stream never ends, so a trigger must say when it is told of"
        return ArgumentInvalid(name="window", value="Global()", expected=expected)
