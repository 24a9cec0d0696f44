"""Which transactions a snapshot sees, and which rows of a chunk are stale.

A chunk of a table is read while its changes arrive. Its rows are appended when the stream has reached a mark that was
written behind the read, so that all changes that the chunk contains are in front of them. What the chunk must not do is
replace a newer change by an older row. Positions in the WAL cannot tell this: a commit enters the WAL before its
transaction becomes visible, so that its changes may lie in front of the chunk and be missing in it. The rule: a row of the chunk is left out
if a change of its key has arrived from a transaction that the snapshot of the chunk does not see.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Xids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class XidSnapshot:
    """What `pg_current_snapshot()` says: transactions before `xmin` are seen, from `xmax` on none, between them all but `running`."""

    xmin: int
    xmax: int
    running: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> XidSnapshot:
        """Parse PostgreSQL's form.

        >>> XidSnapshot.parse("10:20:10,14")
        XidSnapshot(xmin=10, xmax=20, running=(10, 14))
        """
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), tuple(int(one) for one in running.split(",") if one))

    def sees(self, xids: Xids) -> npt.NDArray[np.bool_]:
        """Whether each transaction is visible. The stream tells the lower 32 bits of an id only.

        >>> XidSnapshot(xmin=2**32 + 10, xmax=2**32 + 20, running=(2**32 + 14,)).sees(np.array([4_294_967_290, 9, 14, 15, 20]))
        array([ True,  True, False,  True, False])
        """
        whole = self.whole(xids)
        return (whole < self.xmax) & ~np.isin(whole, np.array(self.running, np.int64))

    def whole(self, xids: Xids) -> Xids:
        """The ids with 64 bits: those nearest to the snapshot."""
        near = (self.xmax & ~0xFFFFFFFF) | xids
        near = np.where(near - self.xmax > 2**31, near - 2**32, near)
        return np.where(self.xmax - near > 2**31, near + 2**32, near)


class RecentKeys:
    """Keys of a table that have changed lately, with the transactions that changed them."""

    def __init__(self) -> None:
        self._parts: list[tuple[pa.Array, Xids]] = []
        self._truncations: list[int] = []

    def add(self, keys: pa.Array, xids: Xids) -> None:
        self._parts.append((keys, xids))

    def truncate(self, xid: int) -> None:
        """Note that all keys have gone."""
        self._truncations.append(xid)

    def stale(self, keys: pa.Array, snapshot: XidSnapshot) -> pa.BooleanArray:
        """Which of these keys have changed in transactions that a snapshot does not see."""
        if not snapshot.sees(np.array(self._truncations, np.int64)).all():
            return pa.repeat(pa.scalar(True), len(keys))
        unseen = [changed.filter(pa.array(~snapshot.sees(xids))) for changed, xids in self._parts]
        values = pa.concat_arrays(unseen) if unseen else keys[:0]
        return pc.is_in(keys, value_set=values)

    def prune(self, snapshot: XidSnapshot) -> None:
        """Forget changes that every later snapshot sees, too."""
        self._parts = [(keys, xids) for keys, xids in self._parts if (snapshot.whole(xids) >= snapshot.xmin).any()]
