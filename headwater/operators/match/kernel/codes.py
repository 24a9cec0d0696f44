"""The numbers that programs and the kernel have in common: what each step, test, formula and fold does."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
# Steps of a pattern: (step, a, b).
ROW = 0  # take a row as variable a; b: it is excluded
SPLIT = 1  # go on at a, or else at b
JUMP = 2  # go on at a
SKIP = 3  # pass a row by that fits none of list a
NOT_NEXT = 4  # the next row fits none of list a
NOTHING = 5  # no row fits any of list a until the time is over
AT_START = 6  # ^
AT_END = 7  # $
ACCEPT = 8
MARK = 9  # note in slot a where the search stands
MOVED = 10  # it has moved since slot a was noted
# Tests of a variable: (test, a, b).
ALWAYS = 0
BIT = 1  # bit b of word a of the row's mask
FORMULA = 2  # the formula from a to b
# What comes of a test. A formula that looks at a row which is not there yet cannot say.
NO = 0
YES = 1
UNKNOWN = 2
# Formulas: (operation, a, b).
PUSH_WHOLE = 0
PUSH_REAL = 1
PUSH_NULL = 2
REFERENCE_WHOLE = 3  # reference a, column b
REFERENCE_REAL = 4
FOLD = 5  # fold a; b: as a real number
CLASSIFIER = 6  # of set a; -1: of the row at hand
MATCH_NUMBER = 7
TO_REAL = 8
TO_WHOLE = 9
ADD_WHOLE = 10
SUBTRACT_WHOLE = 11
MULTIPLY_WHOLE = 12
REMAINDER_WHOLE = 13
ADD_REAL = 14
SUBTRACT_REAL = 15
MULTIPLY_REAL = 16
REMAINDER_REAL = 17
DIVIDE = 18
NEGATE_WHOLE = 19
NEGATE_REAL = 20
ABS_WHOLE = 21
ABS_REAL = 22
EQUAL_WHOLE = 30
LESS_WHOLE = 31
LESS_EQUAL_WHOLE = 32
EQUAL_REAL = 33
LESS_REAL = 34
LESS_EQUAL_REAL = 35
AND = 40
OR = 41
NOT = 42
IS_NULL = 43
COALESCE = 44  # the first of two that is not null
CHOOSE = 45  # condition, value, otherwise: a case with one branch
# Folds: (set, fold, column, is real, each value once).
COUNT = 0
COUNT_VALUES = 1
SUM = 2
AVERAGE = 3
SMALLEST = 4
LARGEST = 5
DEVIATION = 6
# Where the search goes on.
PAST_LAST = 0
TO_NEXT = 1
TO_FIRST = 2
TO_LAST = 3
# What was found at a row.
MATCH = 0
TIMED_OUT = 1
TOO_MANY_STEPS = 2
TOO_MANY_ROWS = 3
CANNOT_SKIP = 4
KNOWN = 5  # a match that came out before; it is left out again
#: No limit, where a time or a number could stand.
NONE = -1


class Limits(NamedTuple):
    """The numbers that hold for a whole search."""

    within_us: int
    between_us: int
    after: int
    after_set: int
    every: bool
    #: Whether matches have a longest time at all.
    timed: bool
    #: Whether a match leaves as soon as it is certain, because no start depends on another: see `search`.
    prompt: bool
    #: How many rows behind its last one a match must see before its measures are known.
    ahead: int
    steps_max: int
    #: How many rows, from its start on, a search may look at.
    rows_max: int


class Code(NamedTuple):
    """A rule as flat arrays: what the kernel runs."""

    steps: Int32s
    #: The number of each step that can be come to in several ways; there failures are remembered. -1: it is none.
    joints: Int32s
    slots: int
    lists: Int32s
    lists_begin: Int32s
    tests: Int32s
    formula: Int32s
    whole: Int64s
    real: Float64s
    stack: int
    #: (set, last instead of first, offset, shift); set -1 is the row at hand.
    references: Int32s
    folds: Int32s
    members: Bools
    #: The text of each variable's name, as the number that it has among the texts of the batch.
    names: Int64s
    #: Whether it is remembered what came of a step at a row: not where what fits depends on the rows taken before.
    memo: bool
    #: Words of the mask, and bits of which the first row of every match has one; none: who knows.
    first: Int64s


class Rows(NamedTuple):
    """The rows of all keys, by key and time, and what is known of each key."""

    times: Int64s
    masks: Int64s
    whole: Int64s
    whole_null: Bools
    real: Float64s
    real_null: Bools
    #: Where the rows of each key begin, and where they end.
    begin: Int64s
    end: Int64s
    #: The row at which the search of a key begins; those before it are only looked back at.
    start: Int64s
    #: The row that is the first that its key ever had; -1: it is no longer here.
    first: Int64s
    #: How many matches each key has had.
    matches: Int64s
    #: Starts that were decided before, though an earlier one is open: of `prompt` searches.
    decided: Bools
    #: Where the rows of a key ended when it was searched before, and which time was reached then.
    known: Int64s
    known_us: Int64s
    #: Rows of earlier times are all there.
    reached_us: int
    final: bool


class SearchResult(NamedTuple):
    """What was found, in the order of keys and rows, and how far each key has come."""

    kinds: Int32s
    keys: Int64s
    starts: Int64s
    numbers: Int64s
    #: The rows of what was found number n are those from `begin[n]` to `begin[n + 1]`.
    begin: Int64s
    rows: Int64s
    variables: Int32s
    excluded: Bools
    #: The first start of each key that is open, or the end of its rows.
    start: Int64s
    #: The starts, by row, that are decided.
    decided: Bools
    matches: Int64s
    #: When the open search of a key will have run out of time; -1: never.
    wake_us: Int64s
