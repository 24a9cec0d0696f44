"""Favourite pages, as their user tests them."""

from __future__ import annotations

import favourites

from headwater.testing import AppTest


def test_a_birthday_moves_visits_to_another_group() -> None:
    with AppTest(favourites.app) as test:
        test.feed("users", [{"user": "ann", "age": 29}, {"user": "bob", "age": 24}, {"user": "cem", "age": 35}])
        visited = [("ann", "/news"), ("ann", "/news"), ("ann", "/cats"), ("bob", "/cats"), ("cem", "/tea")]
        test.feed("visits", [{"id": number, "user": user, "page": page} for number, (user, page) in enumerate(visited)])

        def pages() -> dict[int, tuple[str, int]]:
            return {row["age_group"]: (row["page"], row["visits"]) for row in test.views["favourites"].rows()}

        # Two pages of two visits each: the first by name.
        assert pages() == {20: ("/cats", 2), 30: ("/tea", 1)}
        test.feed("users", [{"user": "ann", "age": 30}])
        assert pages() == {20: ("/cats", 1), 30: ("/news", 2)}
        test.feed("users", [{"user": "bob", "_tombstone": True}])
        assert pages() == {30: ("/news", 2)}
