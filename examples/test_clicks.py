"""Click-through, as its user tests it."""

from __future__ import annotations

from datetime import timedelta

import clicks

from headwater.testing import AppTest


def test_double_clicks_count_once() -> None:
    with AppTest(clicks.app) as test:
        at = test.now
        test.feed("impressions", [{"id": f"i{n}", "ad": "shoes", "at": at} for n in range(4)])
        click = {"impression": "i0", "ad": "shoes", "at": at + timedelta(seconds=5)}
        test.feed("clicks", [click, {**click, "at": at + timedelta(seconds=6)}])
        assert test.views["click_through"].get(ad="shoes") == {"ad": "shoes", "shown": 4, "clicks": 1, "rate": 0.25}
        (minute,) = test.views["per_minute"].rows()
        assert (minute["ad"], minute["minute"], minute["clicks"]) == ("shoes", at, 1)
        test.feed("clicks", [{"impression": "i1", "ad": "shoes", "at": at + timedelta(seconds=50)}])
        assert [row["clicks"] for row in test.views["per_minute"].rows()] == [2]
