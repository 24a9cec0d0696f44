"""Whether a row fits a variable: a bit of its mask, or a formula over the rows taken so far."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headwater.operators.match.kernel import codes
from headwater.operators.match.kernel.codes import Bools, Code, Float64s, Int32s, Int64s, Rows
from headwater.operators.match.kernel.machine_code import allocation_free, count_steps, inlined


class Scratch(NamedTuple):
    """The rows taken so far, and what follows from them: column d of the tables holds after d rows."""

    taken: Int64s
    variables: Int32s
    excluded: Bools
    #: The furthest row that a condition has looked ahead at, since this was last set to -1.
    furthest: Int64s
    references: Int64s
    fold_count: Int64s
    fold_whole: Int64s
    fold_real: Float64s
    fold_square: Float64s
    stack_whole: Int64s
    stack_real: Float64s
    stack_null: Bools


def scratch_for(code: Code, longest: int) -> Scratch:
    references, folds, size = len(code.references), len(code.folds), longest + 2
    return Scratch(
        np.zeros(size, np.int64),
        np.zeros(size, np.int32),
        np.zeros(size, np.bool_),
        np.full(1, -1, np.int64),
        np.full((references, size), -1, np.int64),
        np.zeros((folds, size), np.int64),
        np.zeros((folds, size), np.int64),
        np.zeros((folds, size), np.float64),
        np.zeros((folds, size), np.float64),
        np.zeros(code.stack + 1, np.int64),
        np.zeros(code.stack + 1, np.float64),
        np.zeros(code.stack + 1, np.bool_),
    )


@inlined
def take(code: Code, rows: Rows, scratch: Scratch, variable: int, row: int, excluded: bool, depth: int) -> None:
    """Note that the row is taken as the variable, after `depth` others."""
    scratch.taken[depth] = row
    scratch.variables[depth] = variable
    scratch.excluded[depth] = excluded
    if len(code.references) or len(code.folds):
        note(code, rows, scratch, variable, row, depth)


@inlined
def note(code: Code, rows: Rows, scratch: Scratch, variable: int, row: int, depth: int) -> None:
    """What references and folds come to with one more row."""
    for number in range(len(code.references)):
        members = code.references[number, 0]
        before = scratch.references[number, depth]
        now = before
        if members >= 0 and code.members[members, variable] and (code.references[number, 1] == 1 or before < 0):
            now = row
        scratch.references[number, depth + 1] = now
    for number in range(len(code.folds)):
        fold_row(code, rows, scratch, number, variable, row, depth)


@inlined
def fold_row(code: Code, rows: Rows, scratch: Scratch, number: int, variable: int, row: int, depth: int) -> None:
    """What a fold comes to with one more row: written behind `depth`."""
    count = scratch.fold_count[number, depth]
    whole = scratch.fold_whole[number, depth]
    real = scratch.fold_real[number, depth]
    square = scratch.fold_square[number, depth]
    kind, column, is_real = code.folds[number, 1], code.folds[number, 2], code.folds[number, 3]
    if code.members[code.folds[number, 0], variable]:
        if kind == codes.COUNT:
            count += 1
        elif code.folds[number, 4] == 1 and repeated(code, rows, scratch, number, row, depth):
            pass
        elif is_real == 1:
            if not rows.real_null[column, row]:
                value = rows.real[column, row]
                real = combined(kind, count, real, value)
                square += value * value
                count += 1
        elif not rows.whole_null[column, row]:
            number_at = rows.whole[column, row]
            whole = combined(kind, count, whole, number_at)
            real += number_at
            square += float(number_at) * float(number_at)
            count += 1
    scratch.fold_count[number, depth + 1] = count
    scratch.fold_whole[number, depth + 1] = whole
    scratch.fold_real[number, depth + 1] = real
    scratch.fold_square[number, depth + 1] = square


@allocation_free
def repeated(code: Code, rows: Rows, scratch: Scratch, number: int, row: int, depth: int) -> bool:
    """Whether a fold has had the value of this row before."""
    count_steps(depth)
    column, is_real = code.folds[number, 2], code.folds[number, 3] == 1
    for at in range(depth):
        if code.members[code.folds[number, 0], scratch.variables[at]]:
            before = scratch.taken[at]
            if is_real:
                if not rows.real_null[column, before] and rows.real[column, before] == rows.real[column, row]:
                    return True
            elif not rows.whole_null[column, before] and rows.whole[column, before] == rows.whole[column, row]:
                return True
    return False


@inlined
def combined(kind: int, count: int, before: float, value: float) -> float:
    if kind == codes.SMALLEST:
        return value if count == 0 or value < before else before
    if kind == codes.LARGEST:
        return value if count == 0 or value > before else before
    return before + value


@allocation_free
def nth(code: Code, scratch: Scratch, members: int, last: bool, offset: int, depth: int) -> int:
    """The row that is number `offset` among those of a set, from the first or the last of `depth` rows; -1: none."""
    count_steps(depth)
    left = offset
    for step in range(depth):
        at = depth - 1 - step if last else step
        if code.members[members, scratch.variables[at]]:
            if left == 0:
                found: int = scratch.taken[at]
                return found
            left -= 1
    return -1


@allocation_free
def mapped(code: Code, scratch: Scratch, members: int, depth: int) -> int:
    """How many of `depth` rows belong to a set."""
    count_steps(depth)
    count = 0
    for at in range(depth):
        if code.members[members, scratch.variables[at]]:
            count += 1
    return count


@inlined
def referred(code: Code, scratch: Scratch, number: int, variable: int, row: int, depth: int) -> int:
    """The row that a reference means while `row` is tried as `variable`; -1: none. Without its shift."""
    members, last, offset = code.references[number, 0], code.references[number, 1] == 1, code.references[number, 2]
    if members < 0:
        return row
    own = code.members[members, variable]
    if offset == 0:
        before = scratch.references[number, depth]
        return row if own and (last or before < 0) else before
    if last:
        return nth(code, scratch, members, True, offset - 1 if own else offset, depth)
    found = nth(code, scratch, members, False, offset, depth)
    if found < 0 and own and mapped(code, scratch, members, depth) == offset:
        return row
    return found


@inlined
def fits(
    code: Code, rows: Rows, scratch: Scratch, variable: int, row: int, depth: int, begin: int, end: int, number: int
) -> int:
    """Whether a row fits a variable after the rows taken so far: yes, no, or not to be known yet."""
    test = code.tests[variable, 0]
    if test == codes.ALWAYS:
        return codes.YES
    if test == codes.BIT:
        bit: int = (rows.masks[code.tests[variable, 1], row] >> code.tests[variable, 2]) & 1
        return bit
    return formula(code, rows, scratch, variable, row, depth, begin, end, number)


@inlined
def formula(
    code: Code, rows: Rows, scratch: Scratch, variable: int, row: int, depth: int, begin: int, end: int, number: int
) -> int:
    """What the formula of a variable says."""
    whole, real, null = scratch.stack_whole, scratch.stack_real, scratch.stack_null
    top = -1
    for at in range(code.tests[variable, 1], code.tests[variable, 2]):
        operation, a, b = code.formula[at, 0], code.formula[at, 1], code.formula[at, 2]
        if operation <= codes.MATCH_NUMBER:
            top += 1
            null[top] = False
            if operation == codes.PUSH_WHOLE:
                whole[top] = code.whole[a]
            elif operation == codes.PUSH_REAL:
                real[top] = code.real[a]
            elif operation == codes.PUSH_NULL:
                null[top] = True
            elif operation == codes.FOLD:
                fold_row(code, rows, scratch, a, variable, row, depth)
                push_fold(code, scratch, a, depth + 1, top)
            elif operation == codes.CLASSIFIER:
                name = code.names[variable]
                if a >= 0 and not code.members[a, variable]:
                    name = -1
                    for back in range(depth):
                        if code.members[a, scratch.variables[depth - 1 - back]]:
                            name = code.names[scratch.variables[depth - 1 - back]]
                            break
                whole[top] = name
                null[top] = name < 0
            elif operation == codes.MATCH_NUMBER:
                whole[top] = number
            else:
                at_row = referred(code, scratch, a, variable, row, depth)
                if at_row >= 0:
                    at_row += code.references[a, 3]
                    if at_row >= end and not rows.final:
                        return codes.UNKNOWN
                    if at_row > row and at_row > scratch.furthest[0]:
                        scratch.furthest[0] = at_row
                    if at_row < begin or at_row >= end:
                        at_row = -1
                if at_row < 0:
                    null[top] = True
                elif operation == codes.REFERENCE_WHOLE:
                    whole[top] = rows.whole[b, at_row]
                    null[top] = rows.whole_null[b, at_row]
                else:
                    real[top] = rows.real[b, at_row]
                    null[top] = rows.real_null[b, at_row]
        elif operation <= codes.ABS_REAL:
            top = calculate(operation, whole, real, null, top)
        else:
            top = decide(operation, whole, real, null, top)
    return codes.YES if not null[0] and whole[0] != 0 else codes.NO


@inlined
def push_fold(code: Code, scratch: Scratch, number: int, depth: int, top: int) -> None:
    kind, is_real = code.folds[number, 1], code.folds[number, 3]
    count = scratch.fold_count[number, depth]
    if kind == codes.COUNT or kind == codes.COUNT_VALUES:
        scratch.stack_whole[top] = count
    elif count == 0 or (kind == codes.DEVIATION and count < 2):
        scratch.stack_null[top] = True
    elif kind == codes.AVERAGE:
        scratch.stack_real[top] = scratch.fold_real[number, depth] / count
    elif kind == codes.DEVIATION:
        total = scratch.fold_real[number, depth]
        spread = (scratch.fold_square[number, depth] - total * total / count) / (count - 1)
        scratch.stack_real[top] = np.sqrt(max(spread, 0.0))
    elif is_real == 1:
        scratch.stack_real[top] = scratch.fold_real[number, depth]
    else:
        scratch.stack_whole[top] = scratch.fold_whole[number, depth]


@inlined
def calculate(operation: int, whole: Int64s, real: Float64s, null: Bools, top: int) -> int:
    """Arithmetic on what lies on top of the stack; nulls make nulls, and so does a division by zero."""
    if operation == codes.TO_REAL:
        real[top] = whole[top]
    elif operation == codes.TO_WHOLE:
        whole[top] = np.int64(real[top])
    elif operation == codes.NEGATE_WHOLE:
        whole[top] = -whole[top]
    elif operation == codes.NEGATE_REAL:
        real[top] = -real[top]
    elif operation == codes.ABS_WHOLE:
        whole[top] = abs(whole[top])
    elif operation == codes.ABS_REAL:
        real[top] = abs(real[top])
    else:
        top -= 1
        null[top] = null[top] or null[top + 1]
        if null[top]:
            return top
        if operation == codes.ADD_WHOLE:
            whole[top] += whole[top + 1]
        elif operation == codes.SUBTRACT_WHOLE:
            whole[top] -= whole[top + 1]
        elif operation == codes.MULTIPLY_WHOLE:
            whole[top] *= whole[top + 1]
        elif operation == codes.ADD_REAL:
            real[top] += real[top + 1]
        elif operation == codes.SUBTRACT_REAL:
            real[top] -= real[top + 1]
        elif operation == codes.MULTIPLY_REAL:
            real[top] *= real[top + 1]
        elif operation == codes.REMAINDER_WHOLE:
            null[top] = whole[top + 1] == 0
            if not null[top]:  # with the sign of what is divided, as in SQL
                rest = abs(whole[top]) % abs(whole[top + 1])
                whole[top] = -rest if whole[top] < 0 else rest
        else:
            null[top] = real[top + 1] == 0.0
            if not null[top]:
                real[top] = (
                    real[top] / real[top + 1] if operation == codes.DIVIDE else np.fmod(real[top], real[top + 1])
                )
    return top


@inlined
def decide(operation: int, whole: Int64s, real: Float64s, null: Bools, top: int) -> int:
    """Comparisons, logic with three values, and choices."""
    if operation == codes.NOT:
        whole[top] = 1 - whole[top]
    elif operation == codes.IS_NULL:
        whole[top] = 1 if null[top] else 0
        null[top] = False
    elif operation == codes.CHOOSE:
        top -= 2
        chosen = top + 1 if not null[top] and whole[top] != 0 else top + 2
        whole[top], real[top], null[top] = whole[chosen], real[chosen], null[chosen]
    elif operation == codes.COALESCE:
        top -= 1
        if null[top]:
            whole[top], real[top], null[top] = whole[top + 1], real[top + 1], null[top + 1]
    elif operation == codes.AND or operation == codes.OR:
        top -= 1
        decisive = 0 if operation == codes.AND else 1
        left = not null[top] and whole[top] == decisive
        right = not null[top + 1] and whole[top + 1] == decisive
        null[top] = not (left or right) and (null[top] or null[top + 1])
        whole[top] = decisive if left or right else 1 - decisive
    else:
        top -= 1
        null[top] = null[top] or null[top + 1]
        if operation == codes.EQUAL_WHOLE:
            whole[top] = whole[top] == whole[top + 1]
        elif operation == codes.LESS_WHOLE:
            whole[top] = whole[top] < whole[top + 1]
        elif operation == codes.LESS_EQUAL_WHOLE:
            whole[top] = whole[top] <= whole[top + 1]
        elif operation == codes.EQUAL_REAL:
            whole[top] = real[top] == real[top + 1]
        elif operation == codes.LESS_REAL:
            whole[top] = real[top] < real[top + 1]
        else:
            whole[top] = real[top] <= real[top + 1]
    return top
