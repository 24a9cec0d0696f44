"""Where among the rows of a match a measure looks, and what it adds up: loops over all that comes out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.operators.match.kernel import codes
from headwater.operators.match.kernel.codes import Bools, Float64s, Int32s, Int64s
from headwater.operators.match.kernel.machine_code import compiled, count_steps, run

#: Whole or real numbers: there is machine code for each.
Numbers = npt.NDArray[Any]


def resolve(
    begin: Int64s, variables: Int32s, members: Bools, match: Int64s, upto: Int64s, last: bool, offset: int
) -> Int64s:
    """For each output the place, among all rows of all matches, that a reference means; -1: none."""
    return run(resolve_each, lambda each: each(begin, variables, members, match, upto, last, offset))


@compiled
def resolve_each(
    begin: Int64s, variables: Int32s, members: Bools, match: Int64s, upto: Int64s, last: bool, offset: int
) -> Int64s:
    found = np.full(len(match), -1, np.int64)
    for output in range(len(match)):
        count_steps(upto[output])
        first, left = begin[match[output]], offset
        for step in range(upto[output]):
            at = first + (upto[output] - 1 - step if last else step)
            if members[variables[at]]:
                if left == 0:
                    found[output] = at
                    break
                left -= 1
    return found


def fold(
    begin: Int64s,
    rows: Int64s,
    variables: Int32s,
    members: Bools,
    match: Int64s,
    upto: Int64s,
    kind: int,
    values: Numbers,
    null: Bools,
) -> tuple[Int64s, Numbers, Float64s, Int64s]:
    """For each output: how many values, their sum, their spread about the mean, and the row of the extreme one.

    Outputs of one match come in the order of its rows, so each goes on where the one before it stopped.
    """
    return run(fold_each, lambda each: each(begin, rows, variables, members, match, upto, kind, values, null))


@compiled
def fold_each(
    begin: Int64s,
    rows: Int64s,
    variables: Int32s,
    members: Bools,
    match: Int64s,
    upto: Int64s,
    kind: int,
    values: Numbers,
    null: Bools,
) -> tuple[Int64s, Numbers, Float64s, Int64s]:
    size = len(match)
    counts, places = np.zeros(size, np.int64), np.full(size, -1, np.int64)
    sums, spreads = np.zeros(size, values.dtype), np.zeros(size, np.float64)
    zero = np.zeros(1, values.dtype)[0]
    before, done = -1, 0
    count, place, total, mean, spread = 0, -1, zero, 0.0, 0.0
    for output in range(size):
        if match[output] != before or upto[output] < done:
            before, done = match[output], 0
            count, place, total, mean, spread = 0, -1, zero, 0.0, 0.0
        count_steps(upto[output] - done)
        for at in range(begin[before] + done, begin[before] + upto[output]):
            row = rows[at]
            if not members[variables[at]] or null[row]:
                continue
            value = values[row]
            count += 1
            total += value
            difference = value - mean
            mean += difference / count
            spread += difference * (value - mean)
            smaller = kind == codes.SMALLEST and place >= 0 and value < values[place]
            larger = kind == codes.LARGEST and place >= 0 and value > values[place]
            if place < 0 or smaller or larger:
                place = row
        done = upto[output]
        counts[output], sums[output], spreads[output], places[output] = count, total, spread, place
    return counts, sums, spreads, places


def expanded(begin: Int64s, variables: Int32s, members: Bools, match: Int64s, upto: Int64s) -> tuple[Int64s, Int64s]:
    """All pairs of an output and a place that belongs to it."""
    return run(expand_each, lambda each: each(begin, variables, members, match, upto))


@compiled
def expand_each(begin: Int64s, variables: Int32s, members: Bools, match: Int64s, upto: Int64s) -> tuple[Int64s, Int64s]:
    size = 0
    for output in range(len(match)):
        count_steps(upto[output])
        for at in range(begin[match[output]], begin[match[output]] + upto[output]):
            size += members[variables[at]]
    outputs, places = np.empty(size, np.int64), np.empty(size, np.int64)
    size = 0
    for output in range(len(match)):
        for at in range(begin[match[output]], begin[match[output]] + upto[output]):
            if members[variables[at]]:
                outputs[size], places[size] = output, at
                size += 1
    return outputs, places
