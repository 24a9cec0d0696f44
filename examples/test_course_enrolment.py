"""Course enrolment, as its user tests it: the decider alone, and in a log."""

from __future__ import annotations

from pathlib import Path

import pytest
from course_enrolment import (
    COURSE,
    Accept,
    Announce,
    Announced,
    Cancel,
    Cancelled,
    Command,
    Course,
    Enrol,
    Enrolled,
    Event,
    Lapse,
    Lapsed,
    Offered,
    Waitlisted,
)
from hypothesis import given
from hypothesis import strategies as st

import headwater as hw


@pytest.fixture(autouse=True)
def shared_session() -> None:
    """In the place of the one of all examples: this one needs no Spark."""


FULL: list[Event] = [Announced(1), Enrolled("Ada"), Waitlisted("Eve"), Waitlisted("Max")]


@pytest.mark.parametrize(
    ("command", "events"),
    [
        (Cancel("Ada"), [Cancelled("Ada"), Offered("Eve")]),
        (Cancel("Eve"), [Cancelled("Eve")]),
        (Enrol("Kim"), [Waitlisted("Kim")]),
        (Lapse("Eve"), []),
        (Enrol("Ada"), hw.Rejected("it is not announced, or has Ada on a list")),
        (Accept("Eve"), hw.Rejected("Eve has no offer")),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_full_course_decides(command: Command, events: list[Event] | hw.Rejected) -> None:
    assert COURSE.decide(COURSE.fold(FULL), command) == events


def test_an_offer_that_lapses_goes_to_the_next() -> None:
    offered = COURSE.fold([*FULL, Cancelled("Ada"), Offered("Eve")])
    assert COURSE.decide(offered, Lapse("Eve")) == [Lapsed("Eve"), Offered("Max")]


students = st.sampled_from(["Ada", "Eve", "Max", "Kim"])


@given(st.lists(st.one_of(*(st.builds(kind, students) for kind in (Enrol, Accept, Cancel, Lapse)))))
def test_no_place_is_given_twice_and_none_is_free_while_a_student_waits(commands: list[Command]) -> None:
    course = COURSE.fold([Announced(2)])
    for command in commands:
        events = COURSE.decide(course, command)
        for event in events if isinstance(events, list) else []:
            course = COURSE.evolve(course, event)
        lists = (*course.enrolled, *course.offered, *course.waiting)
        assert len(set(lists)) == len(lists)
        taken = len(course.enrolled) + len(course.offered)
        assert taken <= 2
        assert taken == 2 or not course.waiting


def test_a_cancellation_and_its_offer_are_one_decision(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log, hw.Entities(log, "course", COURSE, check=True) as courses:
        courses.send("logic", Announce(1))
        courses.send_many([("logic", Enrol(student)) for student in ("Ada", "Eve")])
        cancelled = courses.send("logic", Cancel("Ada"), by="Ada", why="moves away")
        assert cancelled.events == (Cancelled("Ada"), Offered("Eve"))
        courses.send("logic", Accept("Eve"))
        assert courses.load("logic").state == Course(places=1, enrolled=("Eve",))
        assert courses.at("logic", version=3).state == Course(places=1, enrolled=("Ada",), waiting=("Eve",))
        assert {event.why for event in courses.history("logic")[3:5]} == {"moves away"}
