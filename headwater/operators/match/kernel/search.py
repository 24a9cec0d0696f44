"""The search: over the rows of all keys, from each start, the preferred way first, with steps to come back to.

A search ends in one of five ways. It has matched; it has failed; it is *open*, because it wants a row that is not there
yet; or it is given up, because it took too many steps or wants too many rows. Where a match decides at which row the
search goes on, or matches have numbers, an open start holds those behind it back. Elsewhere the search is *prompt*: it
goes on with the next start, and a match leaves as soon as it is certain. With every match, a way that waits holds no
other way back either; at an open start that is searched once more, ways that rest on nothing new were told before.
Either way, what a key's rows give does not depend on when they came.

Of steps that can be come to in several ways it is remembered what came of them at a row. While no time has run out,
that holds for later starts of the key too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from headwater.operators.match.kernel import codes
from headwater.operators.match.kernel.codes import Bools, Code, Int32s, Int64s, Limits, Rows, SearchResult
from headwater.operators.match.kernel.conditions import Scratch, fits, scratch_for, take
from headwater.operators.match.kernel.machine_code import allocation_free, count_steps, inlined, run

FAILED = 0
MATCHED = 1
OPEN = 2
EXHAUSTED = 3
#: There is no room left: the array that is full is made larger, and the start is searched once more.
CROWDED = 4
#: A row is wanted that lies too far behind the start.
TOO_FAR = 5
# Registers of a search, which outlive a call.
TOP = 0
DEPTH = 1
STEPS = 2
#: Whether anything failed for want of time: such failures hold for this start alone.
TIME_FAILED = 3
PARTIAL = 4
#: How long the path is: the remembered steps that led to where the search stands.
PATH = 5
#: With every match: whether a way waits, and whether one was given up because it wants too many rows.
WAITS = 6
GAVE_UP = 7
#: Whether the match that was found rests on something new, and whether the start has had any match.
NEW = 8
ACCEPTED = 9
# Registers of all searches: the key at which they stand, when it is to be woken, what is written, and the stamp of what
# is remembered.
KEY = 10
WAKE = 11
COUNT = 12
SIZE = 13
STAMP = 14
#: The arrays that are full, of those that matches are written to; without any, it is the stack.
FULL = 15
REGISTERS = 16
IN_FOUND = 1
IN_TAKEN = 2
# What is remembered of a step at a row, beside the stamp: without any of these bits, it has failed.
IS_OPEN = 1
ACCEPTS = 2
ACCEPTS_NEW = 4
BITS = 3
# What there is where a row is wanted.
THERE = 0
OVER = 1
WAITING = 2
BEYOND = 3


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
        if one == codes.YES:
            return codes.YES
        if one == codes.UNKNOWN:
            found = codes.UNKNOWN
    return found


@inlined
def wanted(
    limits: Limits, rows: Rows, scratch: Scratch, registers: Int64s, row: int, end: int, start: int, depth: int
) -> int:
    """Whether the row that a search wants is there, in time, and near enough to the start; or may still come."""
    if row < end:
        if not in_time(limits, rows, scratch, row, start, depth):
            return OVER
        return THERE if row - start < limits.rows_max else BEYOND
    if not rows.final:
        until = deadline(limits, rows, scratch, start, depth)
        if until < 0 or rows.reached_us <= until:
            if until >= 0:
                wake_at(registers, until + 1)
            return WAITING
    return OVER


@inlined
def wake_at(registers: Int64s, time_us: int) -> None:
    if registers[WAKE] < 0 or time_us < registers[WAKE]:
        registers[WAKE] = time_us


@allocation_free
def note_path(seen: Int32s, path: Int64s, length: int, bits: int) -> None:
    """Remember what came of all steps that led here."""
    for back in range(length):
        at = length - 1 - back
        if path[at, 1] & bits == bits:  # and so it was with all steps before it
            break
        path[at, 1] |= bits
        seen[path[at, 0]] |= bits


@inlined
def attempt(
    code: Code,
    limits: Limits,
    rows: Rows,
    scratch: Scratch,
    partial: Int64s,
    stack: Int64s,
    path: Int64s,
    marks: Int64s,
    seen: Int32s,
    registers: Int64s,
    stamp: int,
    key: int,
    start: int,
    number: int,
    again: bool,
) -> int:
    """Search from one start; with `again`, for the next match after the one that was found."""
    begin, end, known, known_us = rows.begin[key], rows.end[key], rows.known[key], rows.known_us[key]
    top, depth, at, row = registers[TOP], registers[DEPTH], 0, start
    back = again
    length, new = 0, start >= known
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
            length, new = stack[top, 3] >> 1, stack[top, 3] & 1 == 1
            back = False
        count_steps(1)
        registers[STEPS] += 1
        if registers[STEPS] > limits.steps_max:
            return EXHAUSTED
        joint = code.joints[at]
        if joint >= 0 and code.memo and depth > 0:
            place = joint * (end - begin + 1) + row - begin
            if seen[place] >> BITS != stamp:
                seen[place] = stamp << BITS
            elif not limits.prompt:
                back = True
                continue
            else:
                bits = seen[place] & (1 << BITS) - 1
                if bits & IS_OPEN:
                    note_path(seen, path, length, IS_OPEN)
                    if not limits.every:
                        return OPEN
                    registers[WAITS] = 1
                if bits & ACCEPTS:
                    registers[ACCEPTED] = 1
                if not (bits & ACCEPTS_NEW if limits.every and not new else bits & ACCEPTS):
                    note_path(seen, path, length, bits & ACCEPTS)
                    back = True
                    continue
            if limits.prompt:
                path[length, 0], path[length, 1] = place, 0
                length += 1
        step, a, b = code.steps[at, 0], code.steps[at, 1], code.steps[at, 2]
        state = THERE
        if step == codes.ROW:
            state = wanted(limits, rows, scratch, registers, row, end, start, depth)
            if state == THERE:
                scratch.furthest[0] = -1
                fit = fits(code, rows, scratch, a, row, depth, begin, end, number)
                if fit == codes.YES:
                    take(code, rows, scratch, a, row, b == 1, depth)
                    new = new or row >= known or scratch.furthest[0] >= known
                    depth += 1
                    row += 1
                    at += 1
                elif fit == codes.NO:
                    back = True
                else:
                    state = WAITING
            elif state == OVER:
                registers[TIME_FAILED] = limits.timed
                if depth > 0 and registers[PARTIAL] == 0:
                    registers[PARTIAL] = depth
                    for taken in range(depth):
                        partial[taken, 0] = scratch.taken[taken]
                        partial[taken, 1] = scratch.variables[taken]
                back = True
        elif step == codes.SPLIT:
            if top + 2 >= len(stack):
                return CROWDED
            stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3] = b, row, depth, length << 1 | new
            top += 1
            at = a
        elif step == codes.JUMP:
            at = a
        elif step == codes.ACCEPT:
            if limits.ahead > 0 and depth > 0:
                last = scratch.taken[depth - 1] + limits.ahead
                if last >= end and not rows.final:
                    state = WAITING
                new = new or last >= known
            if state == THERE:
                registers[TOP], registers[DEPTH], registers[NEW], registers[ACCEPTED] = top, depth, new, 1
                note_path(seen, path, length, ACCEPTS | ACCEPTS_NEW if new else ACCEPTS)
                return MATCHED
        elif step == codes.SKIP:
            if depth == 0:
                back = True
                continue
            state = wanted(limits, rows, scratch, registers, row, end, start, depth)
            if state == THERE:
                scratch.furthest[0] = -1
                fit = any_fits(code, rows, scratch, a, row, depth, begin, end, number)
                if fit == codes.NO:
                    new = new or row >= known or scratch.furthest[0] >= known
                    row += 1
                    at += 1
                elif fit == codes.YES:
                    back = True
                else:
                    state = WAITING
            elif state == OVER:
                registers[TIME_FAILED] = limits.timed
                back = True
        elif step == codes.NOT_NEXT:
            state = wanted(limits, rows, scratch, registers, row, end, start, depth)
            fit = codes.NO
            if state == THERE:
                scratch.furthest[0] = -1
                fit = any_fits(code, rows, scratch, a, row, depth, begin, end, number)
                new = new or scratch.furthest[0] >= known
            if fit == codes.YES:
                back = True
            elif fit == codes.UNKNOWN:
                state = WAITING
            elif state <= OVER:
                if row >= known:
                    until = deadline(limits, rows, scratch, start, depth)
                    new = new or until < 0 or known_us <= until
                at += 1
        elif step == codes.NOTHING:
            until = rows.times[start] + limits.within_us
            ahead, fit = row, codes.NO
            scratch.furthest[0] = -1
            while ahead < end and rows.times[ahead] <= until and fit == codes.NO and state == THERE:
                if ahead - start >= limits.rows_max:
                    state = BEYOND
                else:
                    fit = any_fits(code, rows, scratch, a, ahead, depth, begin, end, number)
                    ahead += 1
            if fit == codes.YES:
                back = True
            elif fit == codes.UNKNOWN:
                state = WAITING
            elif state == THERE:
                if ahead >= end and not rows.final and rows.reached_us <= until:
                    wake_at(registers, until + 1)
                    state = WAITING
                else:
                    new = new or known_us <= until or scratch.furthest[0] >= known
                    at += 1
        elif step == codes.AT_START:
            if row != rows.first[key]:
                back = True
                continue
            at += 1
        elif step == codes.AT_END:
            if row < end:
                back = True
                continue
            if rows.final:
                new = True
                at += 1
            else:
                state = WAITING
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
        if state == WAITING:
            if not limits.prompt:
                return OPEN
            note_path(seen, path, length, IS_OPEN)
            if not limits.every:
                return OPEN
            registers[WAITS] = 1
            back = True
        elif state == BEYOND:
            if not limits.every:
                return TOO_FAR
            registers[GAVE_UP] = 1
            back = True


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


@allocation_free
def same_mapping(scratch: Scratch, found: Int64s, taken: Int64s, first: int, count: int, size: int, depth: int) -> int:
    """Which of the matches from number `first` on has the mapping that was found; -1: none."""
    count_steps(count - first)
    for one in range(first, count):
        end = found[one + 1, 4] if one + 1 < count else size
        if found_before(scratch, taken, found[one, 4], end, depth):
            return one
    return -1


@allocation_free
def without_known(found: Int64s, taken: Int64s, first: int, registers: Int64s) -> None:
    """Leave out the matches, from number `first` on, that came out before."""
    count, size = registers[COUNT], registers[SIZE]
    kept, kept_size = first, found[first, 4] if first < count else size
    for one in range(first, count):
        begin, end = found[one, 4], found[one + 1, 4] if one + 1 < count else size
        if found[one, 0] != codes.KNOWN:
            for column in range(4):
                found[kept, column] = found[one, column]
            found[kept, 4] = kept_size
            for at in range(begin, end):
                for column in range(3):
                    taken[kept_size, column] = taken[at, column]
                kept_size += 1
            kept += 1
    registers[COUNT], registers[SIZE] = kept, kept_size


class Out(NamedTuple):
    """Where what is found is written, and how far each key has come."""

    #: kind, key, start, number, and where its rows begin.
    found: Int64s
    #: row, variable, whether it is excluded.
    taken: Int64s
    start: Int64s
    decided: Bools
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
    path: Int64s,
    marks: Int64s,
    seen: Int32s,
    registers: Int64s,
    out: Out,
) -> bool:
    """Search key after key, from where the registers stand; False: there is no room left."""
    found, taken = out.found, out.taken
    registers[FULL] = 0
    count, size, stamp = registers[COUNT], registers[SIZE], registers[STAMP]
    for key in range(registers[KEY], len(rows.begin)):
        end = rows.end[key]
        start, number = out.start[key], out.matches[key]
        shared = False
        registers[WAKE] = out.wake[key]
        while start < end:
            count_steps(1)
            if out.decided[start]:
                start += 1
                continue
            after = start + 1
            first_found, first_size, first_number = count, size, number
            again, came_before = False, False
            result = FAILED
            registers[PARTIAL], registers[TIME_FAILED] = 0, 0
            registers[WAITS], registers[GAVE_UP], registers[ACCEPTED] = 0, 0, 0
            if not shared:
                stamp += 1
            while again or can_begin(code, rows, start):
                result = attempt(
                    code, limits, rows, scratch, partial, stack, path, marks, seen, registers, stamp,
                    key, start, number + 1, again,
                )  # fmt: skip
                if result != MATCHED:
                    break
                depth = registers[DEPTH]
                is_new = registers[NEW] == 1 or not (limits.prompt and limits.every)
                same = same_mapping(scratch, found, taken, first_found, count, size, depth)
                if same >= 0:
                    if not is_new:
                        found[same, 0] = codes.KNOWN
                        came_before = True
                else:
                    if count + 2 >= len(found) or size + depth >= len(taken):
                        result = CROWDED
                        break
                    number += 1
                    came_before = came_before or not is_new
                    found[count, 0] = codes.MATCH if is_new else codes.KNOWN
                    found[count, 1], found[count, 2] = key, start
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
            # While the matches of a start are written, `depth` rows are wanted; at its end, those of what timed out.
            wanted = registers[DEPTH] if result == CROWDED else registers[PARTIAL]
            registers[FULL] |= IN_FOUND if count + 2 >= len(found) else 0
            registers[FULL] |= IN_TAKEN if size + wanted >= len(taken) else 0
            if result == CROWDED or registers[FULL] != 0:
                out.start[key], out.matches[key], out.wake[key] = start, first_number, registers[WAKE]
                registers[KEY], registers[COUNT], registers[SIZE] = key, first_found, first_size
                registers[STAMP] = stamp
                return False
            if came_before:
                registers[COUNT], registers[SIZE] = count, size
                without_known(found, taken, first_found, registers)
                count, size = registers[COUNT], registers[SIZE]
            if result == FAILED and registers[WAITS] == 1:
                result = OPEN
            over = result == FAILED and registers[ACCEPTED] == 0 and limits.timed and registers[PARTIAL] > 0
            if over and not rows.final and partial[registers[PARTIAL] - 1, 0] + limits.ahead >= end:
                result = OPEN
            finished = result == FAILED or (limits.prompt and result <= OPEN)
            lasting = registers[TIME_FAILED] == 0 and registers[GAVE_UP] == 0 and code.slots == 0
            shared = finished and lasting and (limits.prompt or registers[ACCEPTED] == 0)
            if result == OPEN:
                if limits.prompt:
                    start += 1
                    continue
                # Matches of this start may be there already; still all of a start come together.
                number, count, size = first_number, first_found, first_size
                break
            kind = -1
            if result == TOO_FAR or registers[GAVE_UP] == 1:
                kind = codes.TOO_MANY_ROWS
            elif result == EXHAUSTED:
                kind = codes.TOO_MANY_STEPS
            elif over:
                kind = codes.TIMED_OUT
            if kind >= 0:
                found[count, 0], found[count, 1], found[count, 2] = kind, key, start
                found[count, 3], found[count, 4] = 0, size
                count += 1
                if kind == codes.TIMED_OUT:
                    for at in range(registers[PARTIAL]):
                        taken[size, 0], taken[size, 1], taken[size, 2] = partial[at, 0], partial[at, 1], 0
                        size += 1
            for row in range(start, min(after, end)):
                out.decided[row] = True
            start = after
        out.start[key], out.matches[key], out.wake[key] = start, number, registers[WAKE]
    registers[COUNT], registers[SIZE] = count, size
    return True


def search(code: Code, limits: Limits, rows: Rows) -> SearchResult:
    """All that the rows of all keys give, and where each key's search stands."""
    return run(search_keys, lambda search_keys: _searched(search_keys, code, limits, rows))


def _searched(search_keys: Callable[..., bool], code: Code, limits: Limits, rows: Rows) -> SearchResult:
    keys = len(rows.begin)
    longest = int((rows.end - rows.begin).max(initial=0))
    joints = int(code.joints.max(initial=-1)) + 1
    scratch = scratch_for(code, longest)
    partial = np.zeros((longest + 2, 2), np.int64)
    stack = np.zeros((256, 4), np.int64)
    places = joints * (longest + 1) + 1 if code.memo else 1
    path = np.zeros((places if limits.prompt else 1, 2), np.int64)
    marks = np.full(code.slots + 1, -1, np.int64)
    seen = np.zeros(places, np.int32)
    registers = np.zeros(REGISTERS, np.int64)
    room = max(64, keys)
    out = Out(
        np.empty((room, 5), np.int64),
        np.empty((room, 3), np.int64),
        rows.start.copy(),
        rows.decided.copy(),
        rows.matches.copy(),
        np.full(keys, -1, np.int64),
    )
    while not search_keys(code, limits, rows, scratch, partial, stack, path, marks, seen, registers, out):
        full = registers[FULL]
        if full & IN_FOUND:
            out = out._replace(found=_larger(out.found, registers[COUNT]))
        if full & IN_TAKEN:
            out = out._replace(taken=_larger(out.taken, registers[SIZE]))
        if not full:
            stack = np.zeros((2 * len(stack), 4), np.int64)
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
        start=first_open(rows, out.decided) if limits.prompt else out.start,
        decided=out.decided,
        matches=out.matches,
        wake_us=out.wake,
    )


def first_open(rows: Rows, decided: Bools) -> Int64s:
    """The first start of each key that is not decided, or the end of its rows."""
    open_rows = np.append(np.flatnonzero(~decided), len(decided))
    found: Int64s = np.minimum(open_rows[np.searchsorted(open_rows, rows.start)], rows.end)
    return found


def _larger(values: Int64s, used: int) -> Int64s:
    """Four times the room, of which only the part in use is written: memory that is not touched costs nothing."""
    made = np.empty((4 * len(values), values.shape[1]), values.dtype)
    made[:used] = values[:used]
    return made
