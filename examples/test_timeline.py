"""Home timelines, as their user tests them."""

from __future__ import annotations

import timeline

from headwater.testing import AppTest


def test_a_timeline_follows_tweets_and_follows() -> None:
    with AppTest(timeline.app) as test:

        def tweet(number: int, author: str, text: str) -> None:
            test.feed("tweets", [{"id": number, "author": author, "text": text, "at": test.now}])

        def reads(reader: str) -> list[tuple[str, str]]:
            rows = [row for row in test.views["timeline"].rows() if row["reader"] == reader]
            return [(row["author"], row["text"]) for row in sorted(rows, key=lambda row: row["id"])]

        tweet(1, "bob", "hello")  # before anybody follows him
        test.feed("follows", [{"reader": "ann", "author": "bob"}, {"reader": "ann", "author": "cem"}])
        test.feed("follows", [{"reader": "dan", "author": "bob"}])
        tweet(2, "cem", "tea?")
        assert reads("ann") == [("bob", "hello"), ("cem", "tea?")]
        assert reads("dan") == [("bob", "hello")]
        tweet(1, "bob", "hello, world")  # edited
        test.feed("follows", [{"reader": "ann", "author": "cem", "_tombstone": True}])
        assert reads("ann") == [("bob", "hello, world")]
        test.feed("tweets", [{"id": 1, "_tombstone": True}])
        assert reads("ann") == reads("dan") == []
