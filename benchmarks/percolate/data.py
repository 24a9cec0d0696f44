"""Advertisements, and what people who look for something store: words that say what, a place, a price.

Words are drawn by Zipf's law from a vocabulary of 50,000. A text has 100 of them. People who search name words that say
something: none of the two hundred commonest.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headwater.operators.percolate import Keyword, Text
from headwater.operators.percolate.fields import Fields, Kind, fields_of

VOCABULARY = 50_000
COMMON = 200
CITIES = 200
CATEGORIES = 50
WORDS_PER_TEXT = 100
SCHEMA = pa.schema(
    {
        "n": pa.int64(),
        "title": pa.string(),
        "body": pa.string(),
        "category": pa.string(),
        "city": pa.string(),
        "price": pa.float64(),
    }
)
KINDS: dict[str, Kind] = {"title": Text("english"), "body": Text("english"), "category": Keyword(), "city": Keyword()}


def fields() -> Fields:
    return fields_of(SCHEMA, KINDS, ("title", "body"))


def _vocabulary() -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    """Words that look like words: no two alike, none that a stemmer makes alike by much."""
    syllables = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u")]
    count = len(syllables)
    return np.array(
        [
            syllables[n % count] + syllables[n // count % count] + syllables[n // count**2 % count] + "k"
            for n in range(VOCABULARY)
        ]
    )


_WORDS = _vocabulary()
_SHARES = 1 / np.arange(1, VOCABULARY + 1)
_SHARES = _SHARES / _SHARES.sum()
_ASKED = _SHARES[COMMON:] / _SHARES[COMMON:].sum()


def documents(count: int, *, seed: int = 1) -> pa.Table:
    random = np.random.default_rng(seed)
    drawn = _WORDS[random.choice(VOCABULARY, (count, WORDS_PER_TEXT), p=_SHARES)]
    return pa.table(
        {
            "n": np.arange(count),
            "title": [" ".join(words[:8]) for words in drawn],
            "body": [" ".join(words) for words in drawn],
            "category": [f"category{n}" for n in random.integers(0, CATEGORIES, count)],
            "city": [f"city{n}" for n in random.integers(0, CITIES, count)],
            "price": np.round(np.exp(random.normal(5, 1.5, count)), 2),
        },
        schema=SCHEMA,
    )


def queries(count: int, *, seed: int = 2) -> Iterator[str]:
    """Terms and ranges, in four shapes that take turns."""
    random = np.random.default_rng(seed)
    words = _WORDS[COMMON + random.choice(VOCABULARY - COMMON, (count, 2), p=_ASKED)]
    cities, categories = random.integers(0, CITIES, count), random.integers(0, CATEGORIES, count)
    lows = np.exp(random.normal(5, 1.5, count))
    for number in range(count):
        one, other = words[number]
        prices = f"price:[{lows[number]:.0f} TO {lows[number] * 2:.0f}]"
        yield (
            f"{one} AND {prices}",
            f"body:{one} AND body:{other} AND {prices}",
            f"city:city{cities[number]} AND category:category{categories[number]} AND {prices}",
            f"+body:({one} OR {other}) +city:city{cities[number]} +{prices} -title:{other}",
        )[number % 4]


def stored(count: int, *, first: int = 0, seed: int = 2) -> pa.Table:
    """Rows for a topic of stored queries."""
    names = [f"q{first + number}" for number in range(count)]
    return pa.table({"id": names, "query": list(queries(count, seed=seed))})
