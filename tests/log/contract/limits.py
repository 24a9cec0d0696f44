"""What each adapter cannot do of this suite, and why; `docs/reference/kafka.md` has the same reasons."""

from __future__ import annotations

import pytest
from hypothesis import is_hypothesis_test

CONDITIONS = "Brokers do not compare an offset or a key before they append: a conditional append is refused."
TIMES = "The time of an append is that of the brokers' clock, in milliseconds."
PUNCTUATIONS = "A punctuation is a message, and has an offset of its own."
SIZES = "Kafka's clients are not told sizes: a description has 0 bytes and 0 segments."
ARCHIVE = "There is no archive: brokers delete what retention ends."

#: The parameter for a log on Kafka behind a server: its laws hold of the server and of Kafka each.
SERVED = "served-kafka"
#: By the name of the test. What Kafka does instead is tested in `tests/log/kafka`.
KAFKA_CANNOT = {
    "test_a_conditional_append_needs_the_offset_it_was_decided_at": CONDITIONS,
    "test_a_conditional_append_by_key_looks_only_at_that_key": CONDITIONS,
    "test_times_of_append_and_of_sending_are_kept": TIMES,
    "test_reading_starts_at_a_time": TIMES,
    "test_a_punctuation_is_read_in_order_with_the_rows": PUNCTUATIONS,
    "test_adjacent_ranges_give_each_row_and_each_punctuation_once": PUNCTUATIONS,
    "test_a_punctuation_counts_up_to_the_end_of_the_range_and_moves_the_tail": PUNCTUATIONS,
    "test_a_description_counts_bytes_and_segments": SIZES,
    "test_segments_can_be_archived": ARCHIVE,
}


def is_left_out(item: pytest.Item) -> bool:
    """Whether the adapter of a test cannot do what it shows, or a law would make thousands of topics to show what others do."""
    if SERVED in item.name and is_hypothesis_test(getattr(item, "obj", None)):
        return True
    return item.get_closest_marker("kafka") is not None and getattr(item, "originalname", "") in KAFKA_CANNOT
