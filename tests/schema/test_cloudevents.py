"""CloudEvents survive every way in and out, and what is not one is refused."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import EncodingInvalid
from headwater.schema import CLOUDEVENT_SCHEMA, parse_schema, to_batches, to_rows
from headwater.schema.cloudevents import (
    Binding,
    from_binary,
    from_row,
    from_structured,
    from_structured_batch,
    is_cloudevent,
    to_binary,
    to_event,
    to_headers,
    to_row,
    to_structured,
    to_structured_batch,
)

MINIMAL: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.paid"}

texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        texts,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=5,
)
attributes = st.fixed_dictionaries(
    {"specversion": st.just("1.0"), "id": texts, "source": texts, "type": texts},
    optional={
        "subject": texts,
        "time": st.datetimes(timezones=st.just(datetime.UTC)).map(lambda time: time.isoformat().replace("+00:00", "Z")),
        "dataschema": texts,
        "partitionkey": texts,
        "traceparent": texts,
    },
)


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    event: dict[str, Any] = draw(attributes)
    match draw(st.sampled_from(["none", "json", "text", "bytes"])):
        case "json":
            event |= {
                "datacontenttype": "application/json",
                "data": draw(json_values.filter(lambda value: value is not None)),
            }
        case "text":
            event |= {"datacontenttype": "text/plain; charset=utf-8", "data": draw(texts)}
        case "bytes":
            event |= {"datacontenttype": "application/octet-stream", "data": draw(st.binary(min_size=1, max_size=8))}
    return event


@given(events())
def test_a_structured_event_is_read_back_exactly(event: dict[str, Any]) -> None:
    assert from_structured(to_structured(event)) == event


@given(st.lists(events(), max_size=3))
def test_a_structured_batch_is_read_back_exactly(batch: list[dict[str, Any]]) -> None:
    assert from_structured_batch(to_structured_batch(batch)) == batch


@given(events(), st.sampled_from(["kafka", "http"]))
def test_a_binary_event_is_read_back_exactly(event: dict[str, Any], binding: Binding) -> None:
    headers, body = to_binary(event, binding=binding)
    assert is_cloudevent(headers)
    assert from_binary(headers, body) == event


@given(events())
def test_a_row_holds_an_event_whole(event: dict[str, Any]) -> None:
    [batch] = to_batches([to_row(event)], CLOUDEVENT_SCHEMA, topic="events")
    [row] = to_rows(batch.data)
    again = from_row(row)
    if "time" in event:
        assert _moment(again.pop("time")) == _moment(event["time"])
        event = {name: value for name, value in event.items() if name != "time"}
    assert again == event


def _moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


@given(events())
def test_http_headers_are_printable_ascii(event: dict[str, Any]) -> None:
    headers, _ = to_binary(event, binding="http")
    for name, value in headers.items():
        assert name == "content-type" or all("!" <= character <= "~" for character in value)


@given(events())
def test_a_row_s_headers_carry_the_attributes(event: dict[str, Any]) -> None:
    event = {name: value for name, value in event.items() if name not in ("data", "datacontenttype")}
    again = to_event({"row": 1}, source=event["source"], type=event["type"], headers=to_headers(event))
    assert {name: again[name] for name in event} == event
    assert again["data"] == {"row": 1}


def test_the_schema_is_one_that_a_topic_may_have() -> None:
    assert parse_schema(CLOUDEVENT_SCHEMA).equals(CLOUDEVENT_SCHEMA)
    assert [column.name for column in CLOUDEVENT_SCHEMA if not column.nullable] == [
        "id",
        "source",
        "specversion",
        "type",
    ]


def test_an_event_is_made_from_a_row_and_its_facts() -> None:
    time = datetime.datetime(2024, 1, 31, 12, 0, 0, 5, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
    event = to_event(
        {"total": 5},
        source="/shop",
        type="paid",
        id="7",
        time=time,
        subject="ada",
        headers={"ce_tenant": b"x", "other": b"\xff"},
    )
    assert event == {
        "specversion": "1.0",
        "id": "7",
        "source": "/shop",
        "type": "paid",
        "subject": "ada",
        "time": "2024-01-31T11:00:00.000005Z",
        "tenant": "x",
        "datacontenttype": "application/json",
        "data": {"total": 5},
    }
    assert next(iter(event)) == "specversion"
    assert next(reversed(event)) == "data"


def test_arguments_win_over_headers() -> None:
    event = to_event(
        None, source="/new", type="t", headers={"ce_source": b"/old", "ce_subject": b"kept", "ce_specversion": b"0.3"}
    )
    assert (event["source"], event["subject"], event["specversion"]) == ("/new", "kept", "1.0")
    assert "data" not in event


def test_each_event_without_an_id_gets_its_own() -> None:
    one, other = (to_event({}, source="/s", type="t") for _ in range(2))
    assert one["id"] != other["id"]


def test_headers_are_recognised_in_any_case() -> None:
    headers = {
        "Ce-SpecVersion": "1.0",
        "CE-ID": "1",
        "ce-Source": "/s",
        "Ce-Type": "t",
        "Content-Type": "application/json; charset=utf-8",
        "Host": "x",
    }
    assert from_binary(headers, b"[1]") == {
        "specversion": "1.0",
        "id": "1",
        "source": "/s",
        "type": "t",
        "datacontenttype": "application/json; charset=utf-8",
        "data": [1],
    }


def test_percent_encoding_is_undone_only_for_http() -> None:
    kafka = {f"ce_{name}": value for name, value in MINIMAL.items()} | {"ce_subject": "100%25"}
    http = {f"ce-{name}": value for name, value in MINIMAL.items()} | {"ce-subject": "Euro%20%E2%82%AC"}
    assert from_binary(kafka, None)["subject"] == "100%25"
    assert from_binary(http, None)["subject"] == "Euro €"


def test_extensions_may_be_numbers_and_booleans() -> None:
    event = from_structured(json.dumps(MINIMAL | {"sequence": 5, "sampled": True}))
    assert (event["sequence"], event["sampled"]) == (5, True)
    headers, _ = to_binary(event)
    assert (headers["ce_sequence"], headers["ce_sampled"]) == ("5", "true")


def test_an_attribute_that_is_null_is_absent() -> None:
    assert from_structured(json.dumps(MINIMAL | {"subject": None})) == MINIMAL


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"id": None}, "'id' is missing"),
        ({"id": ""}, "'id' is missing"),
        ({"id": 5}, "'id' is missing"),
        ({"source": None}, "'source' is missing"),
        ({"type": None}, "'type' is missing"),
        ({"specversion": None}, "'specversion' is missing"),
        ({"specversion": "0.3"}, "only '1.0'"),
        ({"time": "yesterday"}, "RFC 3339"),
        ({"time": "2024-01-31"}, "RFC 3339"),
        ({"time": "2024-01-31T12:00:00"}, "RFC 3339"),
        ({"subject": 5}, "'subject' is not a text"),
        ({"datacontenttype": ""}, "'datacontenttype' is not a text"),
        ({"Bad_Name": "x"}, "a-z and 0-9"),
        ({"ext": 1.5}, "'ext' is neither"),
        ({"ext": {"a": 1}}, "'ext' is neither"),
        ({"data": 1, "data_base64": "/w=="}, "both"),
        ({"data_base64": "?"}, "data_base64 cannot be read"),
        ({"data_base64": 5}, "data_base64 cannot be read"),
    ],
)
def test_what_is_not_an_event_is_refused_with_its_reason(change: dict[str, Any], why: str) -> None:
    with pytest.raises(EncodingInvalid) as caught:
        from_structured(json.dumps(MINIMAL | change))
    assert why in caught.value.why


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[]", b"5", b"null", b"\xff"])
def test_a_body_that_is_no_event_is_refused(body: bytes) -> None:
    with pytest.raises(EncodingInvalid):
        from_structured(body)


def test_a_bad_event_in_a_batch_is_named_by_its_place() -> None:
    with pytest.raises(EncodingInvalid, match="event 1 of the batch"):
        from_structured_batch(json.dumps([MINIMAL, {}]))
    with pytest.raises(EncodingInvalid, match="JSON array"):
        from_structured_batch(b"{}")


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, b""),
        ({"ce_id": "1"}, b""),
        ({f"ce_{name}": value for name, value in MINIMAL.items()} | {"content-type": "application/json"}, b"nonsense"),
        ({f"ce_{name}": value for name, value in MINIMAL.items()} | {"content-type": "text/plain"}, b"\xff"),
        ({f"ce_{name}": value for name, value in MINIMAL.items()} | {"ce_subject": b"\xff"}, b""),
        ({f"ce-{name}": value for name, value in MINIMAL.items()} | {"ce-subject": "%ff"}, b""),
    ],
)
def test_bad_binary_events_are_refused(headers: dict[str, Any], body: bytes) -> None:
    with pytest.raises(EncodingInvalid):
        from_binary(headers, body)


def test_data_without_a_json_form_is_refused() -> None:
    with pytest.raises(EncodingInvalid, match="no JSON form"):
        to_structured(MINIMAL | {"data": object()})
