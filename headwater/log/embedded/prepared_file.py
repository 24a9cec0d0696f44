"""The file of a prepared transaction: a record that describes it, and its frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headwater.log.embedded.commit_log import framed, unframed
from headwater.log.embedded.files import replace_file
from headwater.log.embedded.segment import walk
from headwater.log.embedded.transaction_parts import Part
from headwater.log.errors import FrameCorrupt
from headwater.log.frame import HEADER_BYTES, draft_of, payload_is_whole


# Any: JSON.
def write_prepared(path: Path, parts: Sequence[Part], about: Mapping[str, Any]) -> None:
    """Write the file durably, all of it or nothing."""
    places = [[part.topic, part.partition, len(part.drafts)] for part in parts]
    frames = b"".join(
        bytes(piece)
        for part in parts
        for draft in part.drafts
        for piece in (draft.header(offset=0, appended_at_us=0), draft.payload, bytes(-draft.payload_size % 8))
    )
    replace_file(path, framed({**about, "parts": places}) + frames, durable=True, point="prepare.written")


def load_prepared(path: Path) -> tuple[dict[str, Any], list[Part]]:
    """Read the file, and check it."""
    data = path.read_bytes()
    record = unframed(data, 0)
    if record is None:
        raise FrameCorrupt(
            path=str(path), position=0, offset=-1, why="the prepared transaction does not match its checksum"
        )
    about, start = record
    drafts = []
    for position, header in walk(data, position=start):
        payload = data[position + HEADER_BYTES : position + HEADER_BYTES + header.payload_size]
        if not payload_is_whole(header, payload):
            raise FrameCorrupt(
                path=str(path), position=position, offset=-1, why="a prepared frame does not match its checksum"
            )
        drafts.append(draft_of(header, payload))
    if sum(count for *_, count in about["parts"]) != len(drafts):
        raise FrameCorrupt(path=str(path), position=len(data), offset=-1, why="prepared frames are missing")
    parts = []
    for topic, partition, count in about["parts"]:
        parts.append(Part(topic, partition, drafts[:count]))
        drafts = drafts[count:]
    return about, parts
