"""Streaming k-means over many keys at once: centres that follow the rows.

Rows are taken in blocks of a fixed number, counted from the first row of a key. All rows of a block go to the centres
as they were when it began; when it is full, each centre moves to the mean of what it had and what came. So the batches
in which rows arrive make no difference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headwater.operators.sketches.format import Int64s
from headwater.operators.sketches.murmur3 import mixed

Floats = npt.NDArray[np.float64]
#: So many numbers are held at a time while distances are computed.
CELLS_MAX = 4_000_000
_LLOYD_ROUNDS = 8
#: A centre with less than this share of the heaviest one's weight has died.
_DEAD = 1e-6


@dataclass
class Centres:
    """The centres of some keys, and what the current block of each has brought so far."""

    centres: Floats  # key, cluster, coordinate
    weights: Floats  # key, cluster
    sums: Floats
    counts: Floats
    pending: Int64s  # rows of the current block
    at_us: Int64s  # up to when the weights are faded

    def assign(self, keys: Int64s, points: Floats) -> tuple[Int64s, Floats]:
        """The nearest centre of each point, and how far it is; of equally near ones the first."""
        clusters, away = np.empty(len(keys), np.int64), np.empty(len(keys))
        step = max(1, CELLS_MAX // max(1, self.centres[:1].size))
        for start in range(0, len(keys), step):
            part = slice(start, start + step)
            squares = ((points[part, None, :] - self.centres[keys[part]]) ** 2).sum(axis=2)
            clusters[part] = squares.argmin(axis=1)
            away[part] = np.sqrt(squares.min(axis=1))
        return clusters, away

    def add(self, keys: Int64s, clusters: Int64s, points: Floats) -> None:
        """Note points for the end of the block."""
        np.add.at(self.sums, (keys, clusters), points)
        np.add.at(self.counts, (keys, clusters), 1.0)
        np.add.at(self.pending, keys, 1)

    def move(self, keys: Int64s, at_us: Int64s, half_life_us: float | None) -> None:
        """The blocks of these keys are full: their centres move, after what they weighed has faded."""
        if half_life_us is not None:
            age = np.maximum(at_us - self.at_us[keys], 0)
            self.weights[keys] *= np.exp2(-age / half_life_us)[:, None]
        old, new = self.weights[keys], self.counts[keys]
        total = old + new
        share = np.divide(new, total, out=np.zeros_like(total), where=total > 0)
        means = np.divide(self.sums[keys], new[:, :, None], out=self.centres[keys], where=new[:, :, None] > 0)
        self.centres[keys] += (means - self.centres[keys]) * share[:, :, None]
        self.weights[keys] = total
        self.sums[keys], self.counts[keys], self.pending[keys] = 0.0, 0.0, 0
        self.at_us[keys] = np.maximum(self.at_us[keys], at_us)
        self._revive(keys)

    def _revive(self, keys: Int64s) -> None:
        """A centre that nothing comes to any more takes half of the heaviest one."""
        lightest, heaviest = self.weights[keys].argmin(axis=1), self.weights[keys].argmax(axis=1)
        dead = self.weights[keys, lightest] < _DEAD * self.weights[keys, heaviest]
        keys, lightest, heaviest = keys[dead], lightest[dead], heaviest[dead]
        nudge = 1e-9 * np.maximum(np.abs(self.centres[keys, heaviest]), 1.0)
        self.centres[keys, lightest] = self.centres[keys, heaviest] + nudge
        self.centres[keys, heaviest] -= nudge
        self.weights[keys, heaviest] /= 2
        self.weights[keys, lightest] = self.weights[keys, heaviest]


def begin(points: Floats, k: int) -> tuple[Floats, Floats]:
    """First centres and their weights for several keys, from equally many points of each: k-means++, then Lloyd.

    What is random follows from the points, so the same points always begin alike.
    """
    centres, weights = np.empty((len(points), k, points.shape[2])), np.empty((len(points), k))
    step = max(1, CELLS_MAX // max(1, points[:1].size * k))
    for start in range(0, len(points), step):
        part = points[start : start + step]
        chosen = _spread(part, k)
        for _ in range(_LLOYD_ROUNDS):
            nearest = ((part[:, :, None, :] - chosen[:, None, :, :]) ** 2).sum(axis=3).argmin(axis=2)
            own = (nearest[:, :, None] == np.arange(k)).astype(np.float64)
            counts = own.sum(axis=1)
            sums = np.einsum("pwk,pwd->pkd", own, part)
            chosen = np.divide(sums, counts[:, :, None], out=chosen.copy(), where=counts[:, :, None] > 0)
        order = np.lexsort([chosen[:, :, column] for column in reversed(range(chosen.shape[2]))], axis=1)
        centres[start : start + step] = np.take_along_axis(chosen, order[:, :, None], axis=1)
        weights[start : start + step] = np.take_along_axis(counts, order, axis=1)
    return centres, weights


def _spread(points: Floats, k: int) -> Floats:
    """k points of each key, far from one another: each next one is likelier the further it is from those before."""
    everyone = np.arange(len(points))
    seeds = np.bitwise_xor.reduce(mixed(np.ascontiguousarray(points).view(np.uint64)).reshape(len(points), -1), axis=1)
    first = (mixed(seeds) % np.uint64(points.shape[1])).astype(np.int64)
    chosen = [points[everyone, first]]
    away = ((points - chosen[0][:, None, :]) ** 2).sum(axis=2)
    for turn in range(1, k):
        drawn = mixed(seeds + np.uint64(turn)).astype(np.float64) / 2.0**64
        ends = np.cumsum(away, axis=1)
        picked = (ends <= (drawn * ends[:, -1])[:, None]).sum(axis=1)
        picked = np.minimum(picked, points.shape[1] - 1)
        chosen.append(points[everyone, picked])
        away = np.minimum(away, ((points - chosen[-1][:, None, :]) ** 2).sum(axis=2))
    return np.stack(chosen, axis=1)
