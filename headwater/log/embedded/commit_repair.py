"""Verify and repair of the commit log, with the visible frames of the partitions as proof of commits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.errors import HeadwaterError
from headwater.log.embedded import recovery
from headwater.log.embedded.frame import FLAG_TRANSACTION, Header, read_header
from headwater.log.embedded.partition import Partition
from headwater.log.embedded.segment import SEGMENT_HEADER_BYTES, SegmentMap, list_segments
from headwater.log.errors import FormatUnknown, FrameCorrupt

if TYPE_CHECKING:
    from headwater.log.embedded.commit_log import Rebuilt
    from headwater.log.embedded.log import EmbeddedLog

PATH = "transactions/commits.log"
COPY = "transactions/commits.copy"


class CommitFinding(NamedTuple):
    """One defect of the commit log, and what was done about it."""

    path: str
    position: int
    kind: str
    why: str
    action: str


def inspect(log: EmbeddedLog, *, repair: bool, dry_run: bool) -> Iterator[CommitFinding]:
    """Verify the commit log; with `repair`, rebuild it if needed."""
    commits = log.commits()
    damage = commits.damage()
    if not repair:
        if damage is not None:
            yield CommitFinding(PATH, damage.position, "damaged commit log", damage.why, "")
        elif commits.copy_differs():
            yield CommitFinding(COPY, -1, "damaged copy of the commit log", "it differs from the commit log", "")
        return
    shown = shown_transactions(log)
    if damage is None and not shown:
        if commits.copy_differs():
            action = "would be replaced" if dry_run else "replaced"
            if not dry_run:
                commits.renew_copy()
            yield CommitFinding(COPY, -1, "damaged copy of the commit log", "it differs from the commit log", action)
        return
    why = damage.why if damage is not None else f"it has no record of {len(shown)} transactions that readers see"
    position = damage.position if damage is not None else -1
    rebuilt = commits.rebuild(shown, dry_run=dry_run)
    yield CommitFinding(PATH, position, "damaged commit log", why, _action(rebuilt, dry_run=dry_run))
    for first, last in rebuilt.lost:
        yield CommitFinding(
            PATH,
            position,
            "lost commits",
            f"no record is left of the commits {first} to {last}: rows that readers saw stay, but a producer that"
            " repeats one of these transactions by its sequence appends its rows a second time",
            "would be recorded as lost" if dry_run else "recorded as lost",
        )


def _action(rebuilt: Rebuilt, *, dry_run: bool) -> str:
    return (
        f"{'would be ' if dry_run else ''}set aside and rebuilt: {rebuilt.kept} commits from whole records,"
        f" {rebuilt.from_copy} from the copy, {rebuilt.from_partitions} from the partitions"
    )


def shown_transactions(log: EmbeddedLog) -> dict[int, list[list[Any]]]:
    """Visible transactions that the commit log does not cover, by number, each with its parts.

    Marked frames before the visible end, or in a sealed segment, prove that their transaction was committed.
    """
    commits = log.commits()
    shown: dict[int, list[list[Any]]] = {}
    for name in log.topics(internal=True):
        with contextlib.suppress(HeadwaterError, ValueError, KeyError):  # an unreadable topic proves nothing
            for partition in log.handle(name).partitions():
                if not partition.folder.is_dir():
                    continue
                # No segment may be deleted or rewritten meanwhile; a read-only process cannot prevent it.
                with contextlib.nullcontext() if log.read_only else partition.maintenance_lock:
                    for header in _shown_frames(partition):
                        if header.flags & FLAG_TRANSACTION and not commits.recorded(header.transaction):
                            parts = shown.setdefault(header.transaction, [])
                            if parts and parts[-1][:2] == [name, partition.number]:
                                parts[-1][3] = header.offset_next
                            else:
                                parts.append([name, partition.number, header.offset_base, header.offset_next])
    return shown


def _shown_frames(partition: Partition) -> Iterator[Header]:
    chain, _ = list_segments(partition.folder)
    state = partition.state
    visible = state.visible(partition.number) if partition.synced else state.written(partition.number)
    for index, segment in enumerate(chain):
        last = index == len(chain) - 1
        if last and not segment.rewritten and (visible is None or visible.segment != segment.base):
            continue
        try:
            mapped = SegmentMap(segment.path)
        except (FrameCorrupt, FormatUnknown, FileNotFoundError):
            continue
        stop = visible.position if last and visible is not None and not segment.rewritten else mapped.length
        position = SEGMENT_HEADER_BYTES
        while position < stop:
            header = read_header(mapped.view, position)
            if header is None:
                following = recovery.next_frame(mapped.view, position + 8)
                if following is None:
                    break
                position, header = following
                if position >= stop:
                    break
            yield header
            position += header.size
            mapped.forget_before(position)
