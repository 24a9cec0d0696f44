"""When changes are told: those of a batch together (`net`), or each for itself in the order of processing (`each`).

Changes that have no place in a topic have no order among themselves: those of one batch then count as one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.agg.groups import Groups, Int64s
from headwater.operators.changelog import rounds
from headwater.operators.keyed.contract import Stepped
from headwater.operators.keyed.engine import INPUT, KEY, TOPIC

Emit = Literal["net", "each"]
Net = Callable[[pa.Table, pa.Table], Stepped]
#: Where a change stands among others, the first that tells them apart first.
PLACE = (INPUT, TOPIC, "_partition", "_offset")


def check_emit(emit: str) -> None:
    if emit not in ("net", "each"):
        raise ArgumentInvalid(name="emit", value=emit, expected='"net" or "each"')


def emitted(net: Net, state: pa.Table, rows: pa.Table, *, emit: Emit, places: bool = False) -> Stepped:
    """Run a step over all rows at once, or over those of each place after the other.

    With `places`, the changes of `each` carry the place of the row that caused them, for the next operator.
    """
    if emit == "net" or not rows.num_rows:
        return net(state, rows)
    outputs = []
    for number in _rounds(rows):
        part = rows.take(pa.array(number))
        stepped = net(state, part)
        state = stepped.state.take(pa.array(np.argsort(_keys(stepped.state), kind="stable")))
        if stepped.output is not None:
            outputs.append(_placed(stepped.output, part) if places else stepped.output)
    table = pa.concat_tables(outputs).combine_chunks()
    return Stepped(state, table.take(pa.array(np.argsort(_keys(table), kind="stable"))))


def _rounds(rows: pa.Table) -> list[Int64s]:
    """The rows of each round, in which every key has the rows of one place at most."""
    names = [name for name in PLACE if name in rows.column_names]
    columns = [rows.column(name).combine_chunks() for name in names]
    values = [np.asarray(one.dictionary_encode(null_encoding="encode").indices) for one in columns]
    keys = _keys(rows)
    places = Groups.of(keys, *values)
    members = [np.arange(start, start + size) for start, size in zip(places.starts, places.sizes(), strict=True)]
    return [np.concatenate([members[one] for one in chosen]) for chosen in rounds(keys[places.starts])]


def _placed(output: pa.Table, rows: pa.Table) -> pa.Table:
    keys = _keys(rows)
    row_of = np.zeros(int(keys.max(initial=-1)) + 1, np.int64)
    row_of[keys] = np.arange(len(keys))
    causes = pa.array(row_of[_keys(output)])
    for name in PLACE:
        if name in rows.column_names:
            output = output.append_column(name, rows.column(name).take(causes))
    return output


def _keys(table: pa.Table) -> Int64s:
    return np.asarray(table.column(KEY).combine_chunks())
