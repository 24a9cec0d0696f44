"""News, and what people store who wait for some: words that say what, a category, a place, a price, a time.

Words are drawn by Zipf's law from a vocabulary of 50,000. A text has 100 to 300 of them, in sentences. People who search
name words that say something: none of the two hundred commonest. Most of their searches match few texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headwater.operators.percolate import Keyword, Text
from headwater.operators.percolate.query.fields import Fields, Kind, fields_of

VOCABULARY = 50_000
COMMON = 200
CITIES = 200
CATEGORIES = 50
TITLE_WORDS = 8
SENTENCE_WORDS = 12
NOON_US = 1_790_000_000_000_000
WEEK_US = 7 * 86_400_000_000
POINT = pa.struct({"lat": pa.float64(), "lon": pa.float64()})
SCHEMA = pa.schema(
    {
        "n": pa.int64(),
        "title": pa.string(),
        "body": pa.string(),
        "category": pa.string(),
        "city": pa.string(),
        "price": pa.float64(),
        "published": pa.timestamp("us", "UTC"),
        "place": POINT,
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
    lengths = random.integers(100, 301, count)
    stops = np.cumsum(lengths)
    drawn = _WORDS[random.choice(VOCABULARY, int(stops[-1]) if count else 0, p=_SHARES)].tolist()
    texts = [drawn[stop - length : stop] for stop, length in zip(stops.tolist(), lengths.tolist(), strict=True)]
    latitudes, longitudes = random.uniform(36, 60, count), random.uniform(-9, 30, count)
    points = pa.StructArray.from_arrays([pa.array(latitudes), pa.array(longitudes)], fields=list(POINT))
    return pa.table(
        {
            "n": np.arange(count),
            "title": [" ".join(words[:TITLE_WORDS]).capitalize() for words in texts],
            "body": [_told(words) for words in texts],
            "category": [f"category{n}" for n in random.integers(0, CATEGORIES, count)],
            "city": [f"city{n}" for n in random.integers(0, CITIES, count)],
            "price": np.round(np.exp(random.normal(5, 1.5, count)), 2),
            "published": pa.array(NOON_US - random.integers(0, 4 * WEEK_US, count), pa.timestamp("us", "UTC")),
            "place": points,
        },
        schema=SCHEMA,
    )


def _told(words: list[str]) -> str:
    """Words in sentences."""
    sentences = (words[place : place + SENTENCE_WORDS] for place in range(0, len(words), SENTENCE_WORDS))
    return " ".join(f"{' '.join(some[:5])}, {' '.join(some[5:])}.".capitalize() for some in sentences)


def queries(count: int, *, seed: int = 2) -> Iterator[str]:
    """Two to four terms and a range, in shapes that take turns; one of twenty asks for a place on the map."""
    random = np.random.default_rng(seed)
    words = _WORDS[COMMON + random.choice(VOCABULARY - COMMON, (count, 3), p=_ASKED)].tolist()
    cities, categories = random.integers(0, CITIES, count).tolist(), random.integers(0, CATEGORIES, count).tolist()
    prices = np.exp(random.normal(5, 1.5, count)).tolist()
    days = random.integers(0, 28, count).tolist()
    points = np.column_stack([random.uniform(36, 60, count), random.uniform(-9, 30, count)]).round(2).tolist()
    for number in range(count):
        one, other, third = words[number]
        price = f"price:[{prices[number]:.0f} TO {prices[number] * 2:.0f}]"
        category, city = f"category:category{categories[number]}", f"city:city{cities[number]}"
        shape = number % 20
        if shape == 19:
            yield _near(one, categories[number], points[number])
        elif shape % 5 == 0:
            yield f"+{one} +{other} +{price}"
        elif shape % 5 == 1:
            yield f"body:{one} AND {category} AND {price}"
        elif shape % 5 == 2:
            yield f"+body:({one} OR {other}) +{city} +{price} -title:{third}"
        elif shape % 5 == 3:
            yield f"body:{one} AND body:{other} AND published:>={_day(days[number])}"
        else:
            yield f"{one} {other} {third} +{category} +{city} +price:<{prices[number]:.0f}"


def _day(number: int) -> str:
    return str(np.datetime64(NOON_US, "us").astype("datetime64[D]") - number)


def _near(word: str, category: int, point: list[float]) -> str:
    latitude, longitude = point
    return json.dumps(
        {
            "bool": {
                "must": [{"match": {"body": word}}, {"term": {"category": f"category{category}"}}],
                "filter": [{"geo_distance": {"distance": "100km", "place": {"lat": latitude, "lon": longitude}}}],
            }
        }
    )


def stored(count: int, *, first: int = 0, seed: int = 2) -> pa.Table:
    """Rows for a topic of stored queries."""
    names = [f"q{first + number}" for number in range(count)]
    return pa.table({"id": names, "query": list(queries(count, seed=seed))})
