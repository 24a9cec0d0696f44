"""The search: over the rows of all keys, from each start, the preferred way first, with steps to come back to.

A search ends in one of five ways. It has matched; it has failed; it is *open*, because it wants a row that is not there
yet; or it is given up, because it took too many steps or, being open, holds too many rows. Keys are searched from start
to start, and an open start holds those behind it back: so what a key's rows give does not depend on when they came.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headwater.operators.match.kernel import codes
from headwater.operators.match.kernel.codes import Code, Int32s, Int64s, Limits, Rows, SearchResult
from headwater.operators.match.kernel.conditions import Scratch, fits, scratch_for, take
from headwater.operators.match.kernel.machine_code import allocation_free, inlined

FAILED = 0
MATCHED = 1
OPEN = 2
EXHAUSTED = 3
#: There is no room left: all arrays are made larger, and the start is searched once more.
CROWDED = 4
# Registers of a search, which outlive a call.
TOP = 0
DEPTH = 1
STEPS = 2
WAKE = 3
#: Whether anything failed for want of time: such failures hold for this start alone.
TIME_FAILED = 4
PARTIAL = 5
# Registers of all searches: the key at which they stand, what is written, and the stamp of what is remembered.
KEY = 6
COUNT = 7
SIZE = 8
STAMP = 9
REGISTERS = 10


@inlined
def in_time(limits: Limits, rows: Rows, scratch: Scratch, row: int, start: int, depth: int) -> bool:
    time = rows.times[row]
    if limits.within_us >= 0 and time > rows.times[start] + limits.within_us:
        return False
    return limits.between_us < 0 or depth == 0 or time <= rows.times[scratch.taken[depth - 1]] + limits.between_us


@inlined
def deadline(limits: Limits, rows: Rows, scratch: Scratch, start: int, depth: int) -> int:
    """Until when a next row may come; -1: for ever."""
    found = -1
    if limits.within_us >= 0:
        found = rows.times[start] + limits.within_us
    if limits.between_us >= 0 and depth > 0:
        last = rows.times[scratch.taken[depth - 1]] + limits.between_us
        if found < 0 or last < found:
            found = last
    return found


@allocation_free
def any_fits(
    code: Code, rows: Rows, scratch: Scratch, which: int, row: int, depth: int, begin: int, end: int, number: int
) -> int:
    """Whether a row fits any variable of a list."""
    found = codes.NO
    for at in range(code.lists_begin[which], code.lists_begin[which + 1]):
        one = fits(code, rows, scratch, code.lists[at], row, depth, begin, end, number)
        if one == codes.UNKNOWN:
            return codes.UNKNOWN
        if one == codes.YES:
            found = codes.YES
    return found


@inlined
def attempt(
    code: Code,
    limits: Limits,
    rows: Rows,
    scratch: Scratch,
    partial: Int64s,
    stack: Int64s,
    marks: Int64s,
    seen: Int32s,
    registers: Int64s,
    stamp: int,
    begin: int,
    end: int,
    first: int,
    start: int,
    number: int,
    again: bool,
) -> int:
    """Search from one start; with `again`, for the next match after the one that was found."""
    top, depth, at, row = registers[TOP], registers[DEPTH], 0, start
    back = again
    if not again:
        top, depth = 0, 0
        registers[STEPS], registers[TIME_FAILED], registers[PARTIAL] = 0, 0, 0
    while True:
        if back:
            while top > 0 and stack[top - 1, 0] < 0:  # a mark as it was before
                top -= 1
                marks[-1 - stack[top, 0]] = stack[top, 1]
            if top == 0:
                registers[TOP], registers[DEPTH] = 0, 0
                return FAILED
            top -= 1
            at, row, depth = stack[top, 0], stack[top, 1], stack[top, 2]
            back = False
        registers[STEPS] += 1
        if registers[STEPS] > limits.steps_max:
            return EXHAUSTED
        joint = code.joints[at]
        if joint >= 0 and code.memo:
            place = joint * (end - begin + 1) + row - begin
            if seen[place] == stamp:
                back = True
                continue
            seen[place] = stamp
        step, a, b = code.steps[at, 0], code.steps[at, 1], code.steps[at, 2]
        if step == codes.ROW:
            if row >= end or not in_time(limits, rows, scratch, row, start, depth):
                if row >= end and not rows.final:
                    until = deadline(limits, rows, scratch, start, depth)
                    if until < 0 or rows.reached_us <= until:
                        registers[WAKE] = -1 if until < 0 else until + 1
                        return OPEN
                registers[TIME_FAILED] = limits.timed
                if depth > 0 and registers[PARTIAL] == 0:
                    registers[PARTIAL] = depth
                    for taken in range(depth):
                        partial[taken, 0] = scratch.taken[taken]
                        partial[taken, 1] = scratch.variables[taken]
                back = True
                continue
            fit = fits(code, rows, scratch, a, row, depth, begin, end, number)
            if fit == codes.UNKNOWN:
                registers[WAKE] = -1
                return OPEN
            if fit == codes.NO:
                back = True
                continue
            take(code, rows, scratch, a, row, b == 1, depth)
            depth += 1
            row += 1
            at += 1
        elif step == codes.SPLIT:
            if top + 2 >= len(stack):
                return CROWDED
            stack[top, 0], stack[top, 1], stack[top, 2] = b, row, depth
            top += 1
            at = a
        elif step == codes.JUMP:
            at = a
        elif step == codes.ACCEPT:
            registers[TOP], registers[DEPTH] = top, depth
            return MATCHED
        elif step == codes.SKIP:
            if depth == 0:
                back = True
                continue
            if row >= end or not in_time(limits, rows, scratch, row, start, depth):
                if row >= end and not rows.final:
                    until = deadline(limits, rows, scratch, start, depth)
                    if until < 0 or rows.reached_us <= until:
                        registers[WAKE] = -1 if until < 0 else until + 1
                        return OPEN
                registers[TIME_FAILED] = limits.timed
                back = True
                continue
            fit = any_fits(code, rows, scratch, a, row, depth, begin, end, number)
            if fit == codes.UNKNOWN:
                registers[WAKE] = -1
                return OPEN
            if fit == codes.YES:
                back = True
                continue
            row += 1
            at += 1
        elif step == codes.NOT_NEXT:
            if row >= end:
                if not rows.final:
                    until = deadline(limits, rows, scratch, start, depth)
                    if until < 0 or rows.reached_us <= until:
                        registers[WAKE] = -1 if until < 0 else until + 1
                        return OPEN
            elif in_time(limits, rows, scratch, row, start, depth):
                fit = any_fits(code, rows, scratch, a, row, depth, begin, end, number)
                if fit == codes.UNKNOWN:
                    registers[WAKE] = -1
                    return OPEN
                if fit == codes.YES:
                    back = True
                    continue
            at += 1
        elif step == codes.NOTHING:
            until = rows.times[start] + limits.within_us
            ahead = row
            while ahead < end and rows.times[ahead] <= until:
                fit = any_fits(code, rows, scratch, a, ahead, depth, begin, end, number)
                if fit == codes.UNKNOWN:
                    registers[WAKE] = -1
                    return OPEN
                if fit == codes.YES:
                    back = True
                    break
                ahead += 1
            if back:
                continue
            if ahead >= end and not rows.final and rows.reached_us <= until:
                registers[WAKE] = until + 1
                return OPEN
            at += 1
        elif step == codes.AT_START:
            if row != first:
                back = True
                continue
            at += 1
        elif step == codes.AT_END:
            if row < end:
                back = True
                continue
            if not rows.final:
                registers[WAKE] = -1
                return OPEN
            at += 1
        elif step == codes.MARK:
            if top + 2 >= len(stack):
                return CROWDED
            stack[top, 0], stack[top, 1] = -1 - a, marks[a]
            top += 1
            marks[a] = row
            at += 1
        else:  # MOVED
            if marks[a] == row:
                back = True
                continue
            at += 1


@allocation_free
def next_start(code: Code, limits: Limits, scratch: Scratch, start: int, depth: int) -> int:
    """Where the search goes on after a match; -1: it cannot go on there."""
    if depth == 0 or limits.after == codes.TO_NEXT:
        return start + 1
    if limits.after == codes.PAST_LAST:
        last: int = scratch.taken[depth - 1]
        return last + 1
    for step in range(depth):
        at = step if limits.after == codes.TO_FIRST else depth - 1 - step
        if code.members[limits.after_set, scratch.variables[at]]:
            found: int = scratch.taken[at]
            return found if found > start else -1
    return -1


@allocation_free
def found_before(scratch: Scratch, taken: Int64s, begin: int, end: int, depth: int) -> bool:
    """Whether what was found from `begin` to `end` of the rows taken is the same mapping."""
    if end - begin != depth:
        return False
    for at in range(depth):
        if taken[begin + at, 0] != scratch.taken[at] or taken[begin + at, 1] != scratch.variables[at]:
            return False
    return True


@inlined
def can_begin(code: Code, rows: Rows, row: int) -> bool:
    """Whether a match can begin at a row, as far as its mask tells."""
    for at in range(len(code.first)):
        if rows.masks[code.first[at, 0], row] & code.first[at, 1]:
            return True
    return len(code.first) == 0


class Out(NamedTuple):
    """Where what is found is written, and how far each key has come."""

    #: kind, key, start, number, and where its rows begin.
    found: Int64s
    #: row, variable, whether it is excluded.
    taken: Int64s
    start: Int64s
    matches: Int64s
    wake: Int64s


@allocation_free
def search_keys(
    code: Code,
    limits: Limits,
    rows: Rows,
    scratch: Scratch,
    partial: Int64s,
    stack: Int64s,
    marks: Int64s,
    seen: Int32s,
    registers: Int64s,
    out: Out,
) -> bool:
    """Search key after key, from where the registers stand; False: there is no room left."""
    found, taken = out.found, out.taken
    count, size, stamp = registers[COUNT], registers[SIZE], registers[STAMP]
    for key in range(registers[KEY], len(rows.begin)):
        begin, end = rows.begin[key], rows.end[key]
        start, number = out.start[key], out.matches[key]
        shared = False
        while start < end:
            after = start + 1
            first_found, first_size, first_number = count, size, number
            again = False
            result = FAILED
            registers[PARTIAL], registers[TIME_FAILED] = 0, 0
            if not shared:
                stamp += 1
            while again or can_begin(code, rows, start):
                result = attempt(
                    code, limits, rows, scratch, partial, stack, marks, seen, registers, stamp,
                    begin, end, rows.first[key], start, number + 1, again,
                )  # fmt: skip
                if limits.ahead > 0 and not rows.final:
                    last = -1
                    if result == MATCHED and registers[DEPTH] > 0:
                        last = scratch.taken[registers[DEPTH] - 1]
                    elif result == FAILED and count == first_found and limits.timed and registers[PARTIAL] > 0:
                        last = partial[registers[PARTIAL] - 1, 0]
                    if last >= 0 and last + limits.ahead >= end:
                        result = OPEN
                        registers[WAKE] = -1
                if result != MATCHED:
                    break
                depth = registers[DEPTH]
                same = False
                for one in range(first_found, count):
                    stop = found[one + 1, 4] if one + 1 < count else size
                    if found_before(scratch, taken, found[one, 4], stop, depth):
                        same = True
                        break
                if not same:
                    if count + 2 >= len(found) or size + depth >= len(taken):
                        result = CROWDED
                        break
                    number += 1
                    found[count, 0], found[count, 1], found[count, 2] = codes.MATCH, key, start
                    found[count, 3], found[count, 4] = number, size
                    if count == first_found:
                        after = next_start(code, limits, scratch, start, depth)
                        if after < 0:
                            found[count, 0] = codes.CANNOT_SKIP
                            after = start + 1
                    count += 1
                    for at in range(depth):
                        taken[size, 0], taken[size, 1] = scratch.taken[at], scratch.variables[at]
                        taken[size, 2] = scratch.excluded[at]
                        size += 1
                if not limits.every:
                    break
                again = True
            if result == CROWDED or count + 2 >= len(found) or size + registers[PARTIAL] >= len(taken):
                out.start[key], out.matches[key] = start, first_number
                registers[KEY], registers[COUNT], registers[SIZE] = key, first_found, first_size
                registers[STAMP] = stamp
                return False
            shared = result == FAILED and count == first_found and registers[TIME_FAILED] == 0
            if result == OPEN and end - start <= limits.rows_max:
                # Matches of this start may be there already; still all of a start come together.
                number, count, size = first_number, first_found, first_size
                out.wake[key] = registers[WAKE]
                break
            kind = -1
            if result == OPEN:
                kind = codes.TOO_MANY_ROWS
            elif result == EXHAUSTED:
                kind = codes.TOO_MANY_STEPS
            elif count == first_found and limits.timed and registers[PARTIAL] > 0:
                kind = codes.TIMED_OUT
            if kind >= 0:
                found[count, 0], found[count, 1], found[count, 2] = kind, key, start
                found[count, 3], found[count, 4] = 0, size
                count += 1
                if kind == codes.TIMED_OUT:
                    for at in range(registers[PARTIAL]):
                        taken[size, 0], taken[size, 1], taken[size, 2] = partial[at, 0], partial[at, 1], 0
                        size += 1
            start = after
        out.start[key], out.matches[key] = start, number
    registers[COUNT], registers[SIZE] = count, size
    return True


def search(code: Code, limits: Limits, rows: Rows) -> SearchResult:
    """All that the rows of all keys give, and where each key's search stands."""
    keys = len(rows.begin)
    longest = int((rows.end - rows.begin).max(initial=0))
    joints = int(code.joints.max(initial=-1)) + 1
    scratch = scratch_for(code, longest)
    partial = np.zeros((longest + 2, 2), np.int64)
    stack = np.zeros((256, 3), np.int64)
    marks = np.full(code.slots + 1, -1, np.int64)
    seen = np.zeros(joints * (longest + 1) + 1 if code.memo else 1, np.int32)
    registers = np.zeros(REGISTERS, np.int64)
    room = max(64, keys)
    out = Out(
        np.empty((room, 5), np.int64),
        np.empty((room, 3), np.int64),
        rows.start.copy(),
        rows.matches.copy(),
        np.full(keys, -1, np.int64),
    )
    while not search_keys(code, limits, rows, scratch, partial, stack, marks, seen, registers, out):
        stack = np.zeros((2 * len(stack), 3), np.int64)
        out = out._replace(found=_twice(out.found), taken=_twice(out.taken))
    count, size = registers[COUNT], registers[SIZE]
    found, taken = out.found[:count], out.taken[:size]
    return SearchResult(
        kinds=found[:, 0].astype(np.int32),
        keys=found[:, 1].copy(),
        starts=found[:, 2].copy(),
        numbers=found[:, 3].copy(),
        begin=np.append(found[:, 4], size),
        rows=taken[:, 0].copy(),
        variables=taken[:, 1].astype(np.int32),
        excluded=taken[:, 2] != 0,
        start=out.start,
        matches=out.matches,
        wake_us=out.wake,
    )


def _twice(values: Int64s) -> Int64s:
    return np.concatenate([values, np.empty_like(values)])
