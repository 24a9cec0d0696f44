"""Dead letters of gateways: what came in and cannot be a row, with its bytes and the reason."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.log.dead_letters import DeadLetter


def malformed_inputs(
    gateway: str, topic: str, inputs: Iterable[tuple[bytes, str]], *, at_us: int, error: str = "EncodingInvalid"
) -> list[DeadLetter]:
    """Dead letters of inputs, each with the reason why it is malformed. They were never rows, so that their offset is -1.

    >>> [letter] = malformed_inputs("tail-lines", "lines", [(b"{", "not JSON")], at_us=0)
    >>> letter.value, letter.message, letter.offset
    (b'{', 'not JSON', -1)
    """
    return [
        DeadLetter(
            topic=topic,
            partition=0,
            offset=-1,
            value=value,
            query=gateway,
            error=error,
            message=why,
            at_us=at_us,
        )
        for value, why in inputs
    ]
