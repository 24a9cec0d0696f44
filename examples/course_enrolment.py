"""Course enrolment: a full course has a waiting list, and a cancellation offers the place to the next who waits.

An offer must be accepted. It lapses when a program says so, for example a worker that gets a message after two days.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import headwater as hw


@dataclass(frozen=True)
class Announce:
    places: int


@dataclass(frozen=True)
class Enrol:
    student: str


@dataclass(frozen=True)
class Accept:
    student: str


@dataclass(frozen=True)
class Cancel:
    student: str


@dataclass(frozen=True)
class Lapse:
    student: str


@dataclass(frozen=True)
class Announced:
    places: int


@dataclass(frozen=True)
class Enrolled:
    student: str


@dataclass(frozen=True)
class Waitlisted:
    student: str


@dataclass(frozen=True)
class Offered:
    student: str


@dataclass(frozen=True)
class Cancelled:
    student: str


@dataclass(frozen=True)
class Lapsed:
    student: str


Command = Announce | Enrol | Accept | Cancel | Lapse
Event = Announced | Enrolled | Waitlisted | Offered | Cancelled | Lapsed


@dataclass(frozen=True)
class Course:
    places: int = 0
    enrolled: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()

    def knows(self, student: str) -> bool:
        return student in (*self.enrolled, *self.offered, *self.waiting)

    def without(self, student: str) -> Course:
        def rest(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(name for name in names if name != student)

        return Course(self.places, rest(self.enrolled), rest(self.offered), rest(self.waiting))


def decide(course: Course, command: Command) -> list[Event] | hw.Rejected:
    match command:
        case Announce(places):
            if course.places or places < 1:
                return hw.Rejected("it is announced, or would have no place")
            return [Announced(places)]
        case Enrol(student):
            if not course.places or course.knows(student):
                return hw.Rejected(f"it is not announced, or has {student} on a list")
            is_full = len(course.enrolled) + len(course.offered) >= course.places
            return [Waitlisted(student) if is_full else Enrolled(student)]
        case Accept(student):
            return [Enrolled(student)] if student in course.offered else hw.Rejected(f"{student} has no offer")
        case Cancel(student):
            return freed(course, Cancelled(student)) if course.knows(student) else hw.Rejected(f"{student} is unknown")
        case Lapse(student):
            return freed(course, Lapsed(student)) if student in course.offered else []


def freed(course: Course, event: Cancelled | Lapsed) -> list[Event]:
    """A student leaves; if that frees a place, it is offered to the first who waits, in the same decision."""
    is_free = event.student not in course.waiting
    return [event, *(Offered(student) for student in course.waiting[:1] if is_free)]


def evolve(course: Course, event: Event) -> Course:
    if isinstance(event, Announced):
        return replace(course, places=event.places)
    rest = course.without(event.student)
    match event:
        case Enrolled(student):
            return replace(rest, enrolled=(*rest.enrolled, student))
        case Offered(student):
            return replace(rest, offered=(*rest.offered, student))
        case Waitlisted(student):
            return replace(rest, waiting=(*rest.waiting, student))
        case Cancelled() | Lapsed():
            return rest


COURSE = hw.Decider(initial=Course(), decide=decide, evolve=evolve)
