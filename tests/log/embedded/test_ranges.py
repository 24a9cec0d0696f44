"""What a range of offsets says of event time, by the headers of its frames."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headwater.config import Config
from headwater.log import open as open_log
from tests.laws import costly
from tests.operators.batches import state_folder

FRAMES = st.lists(st.lists(st.none() | st.integers(0, 50), min_size=1, max_size=4), max_size=6)


@costly(2)
@given(frames=FRAMES, edges=st.tuples(st.integers(0, 24), st.integers(0, 24)), until=st.none() | st.integers(0, 50))
def test_the_latest_time_of_a_range_is_that_of_its_rows(
    frames: Sequence[Sequence[int | None]], edges: tuple[int, int], until: int | None
) -> None:
    times = [one for frame in frames for one in frame]
    start, stop = sorted(min(edge, len(times)) for edge in edges)
    with state_folder() as folder, open_log(Path(folder) / "log", config=Config(maintenance="manual")) as log:
        log.create("t", {"at": "timestamp"}, time="at", durability="os")
        for frame in frames:
            log.append("t", [{"at": one} for one in frame])
        found = log.event_times("t", 0, start=start, stop=stop, until_us=until)
        expected = [one for one in times[start:stop] if one is not None and (until is None or one <= until)]
        assert found.latest_us == max(expected, default=None)
