"""Kinds of fields beside words and numbers: IP addresses by the standard library's own arithmetic, and text with case."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import ArgumentInvalid
from headwater.operators import percolate
from headwater.operators.errors import QueryInvalid
from headwater.operators.percolate.index.query_index import Index
from headwater.operators.percolate.query import QueryBuilder, parse
from headwater.operators.percolate.query.fields import Kind, fields_of

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
#: Few different bits, so that addresses and networks meet often.
BITS = st.sampled_from([0, 1, 2, 127, 128, 255])
V4 = st.lists(BITS, min_size=4, max_size=4).map(lambda some: ipaddress.IPv4Address(bytes(some)))
V6 = st.lists(BITS, min_size=2, max_size=2).map(lambda some: ipaddress.IPv6Address(bytes([32, *[0] * 13, *some])))
ADDRESSES: st.SearchStrategy[Address] = V4 | V6


def found(kind: Kind, queries: Sequence[str], values: Sequence[str | None]) -> set[tuple[int, int]]:
    """Which query is true of which value."""
    schema = pa.schema({"it": pa.string()})
    fields = fields_of(schema, {"it": kind}, None)
    index = Index(fields)
    index.change([(str(number), parse(query, QueryBuilder(fields))) for number, query in enumerate(queries)])
    batch = pa.RecordBatch.from_pylist([{"it": value} for value in values], schema=schema)
    matches, _ = index.match(batch, np.zeros(len(values)))
    slots = [int(index.ids[slot]) for slot in matches.slots.tolist()]
    return set(zip(slots, matches.documents.tolist(), strict=True))


def as_v6(address: Address) -> int:
    return int(address) if address.version == 6 else int(ipaddress.IPv6Address(f"::ffff:{address}"))


@given(
    networks=st.lists(st.tuples(ADDRESSES, st.integers(0, 128)), max_size=4),
    ranges=st.lists(st.tuples(ADDRESSES, ADDRESSES), max_size=3),
    addresses=st.lists(ADDRESSES, min_size=1, max_size=8),
)
def test_an_address_lies_in_networks_and_ranges(
    networks: list[tuple[Address, int]], ranges: list[tuple[Address, Address]], addresses: list[Address]
) -> None:
    nets = [ipaddress.ip_network((one, min(size, one.max_prefixlen)), strict=False) for one, size in networks]
    queries = [*(f'it:"{one}"' for one in nets), *(f'it:["{low}" TO "{high}"]' for low, high in ranges)]
    queries += [f'{{"term": {{"it": "{one}"}}}}' for one in addresses]
    expected = set()
    for place, address in enumerate(addresses):
        held = [as_v6(net[0]) <= as_v6(address) <= as_v6(net[-1]) for net in nets]
        held += [as_v6(low) <= as_v6(address) <= as_v6(high) for low, high in ranges]
        held += [address == one for one in addresses]
        expected |= {(number, place) for number, is_true in enumerate(held) if is_true}
    assert found(percolate.Ip(), queries, [str(one) for one in addresses]) == expected


def test_addresses_are_found_however_they_are_written() -> None:
    values = ["10.1.2.3", "2001:DB8:0:0::1", "::ffff:10.1.2.3", "not an address", None]
    queries = ["it:10.0.0.0/8", "it:10.1.2.3", 'it:"2001:db8::1"', "it:>=10.1.2.3", "it:*"]
    assert found(percolate.Ip(), queries, values) == {
        *((number, place) for number in (0, 1) for place in (0, 2)),
        (2, 1),
        *((3, place) for place in (0, 1, 2)),
        *((4, place) for place in (0, 1, 2, 3)),
    }


def test_a_network_of_version_6_holds_the_mapped_addresses_of_version_4() -> None:
    values = ["10.1.2.3", "2001:db8::1", "::ffff:10.1.2.3"]
    every, mapped = {(0, place) for place in (0, 1, 2)}, {(0, 0), (0, 2)}
    for query, wanted in (('it:"::/0"', every), ('it:"::ffff:0:0/96"', mapped), ("it:0.0.0.0/0", mapped)):
        assert found(percolate.Ip(), [query], values) == wanted, query


@pytest.mark.parametrize("query", ["it:10.0.0.256", "it:10.1.2.3/8", "it:10.*", "it:home", "it:/10.*/"])
def test_what_is_no_address_and_no_network_is_refused(query: str) -> None:
    with pytest.raises(QueryInvalid):
        found(percolate.Ip(), [query], [])


def test_text_may_keep_its_case() -> None:
    values = ["the IT department", "it is the department", "IT"]
    queries = ["it:IT", "it:it", 'it:"IT department"', "it:I*", "it:department"]
    kept = found(percolate.Text(keep_case=True, stop_words=("the",)), queries, values)
    assert kept == {(0, 0), (0, 2), (1, 1), (2, 0), (3, 0), (3, 2), (4, 0), (4, 1)}
    assert (0, 1) in found(percolate.Text(), queries, values)
    with pytest.raises(ArgumentInvalid, match="stems are those of words in lower case"):
        percolate.Text("english", keep_case=True)
