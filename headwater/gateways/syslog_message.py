"""A message of syslog as a row: RFC 5424, and RFC 3164 as devices really send it.

A message without a valid `<priority>`, or one of version 1 whose header or structured data is broken, is malformed. RFC 3164 has no year and
no zone: the year is the one that brings the time nearest to the present, and the zone is a setting. Where its time, host or tag is missing,
the row has the time of reception, no host and no app, and the rest is the message.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from typing import Any

import pyarrow as pa

from headwater.clock import time_us
from headwater.schema import parse_schema

SYSLOG_SCHEMA: pa.Schema = parse_schema(
    "at timestamp not null, received_at timestamp not null, priority int32 not null, facility string not null, "
    "severity string not null, host string, app string, process string, message_id string, "
    "structured_data list<struct<id: string, name: string, value: string>>, message string not null, "
    "sender string not null"
)
FACILITIES = [
    "kern",
    "user",
    "mail",
    "daemon",
    "auth",
    "syslog",
    "lpr",
    "news",
    "uucp",
    "cron",
    "authpriv",
    "ftp",
    "ntp",
    "audit",
    "alert",
    "clock",
    "local0",
    "local1",
    "local2",
    "local3",
    "local4",
    "local5",
    "local6",
    "local7",
]
SEVERITIES = ("emergency", "alert", "critical", "error", "warning", "notice", "info", "debug")

_PRIORITY = re.compile(r"<(0|[1-9][0-9]{0,2})>")
_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:Z|[+-][0-9]{2}:[0-9]{2})"
_HEADER = re.compile(
    rf"1 (?P<time>-|{_TIME}) (?P<host>[!-~]{{1,255}}) (?P<app>[!-~]{{1,48}}) "
    r"(?P<process>[!-~]{1,128}) (?P<message_id>[!-~]{1,32}) (?=-(?: |$)|\[)"
)
_NAME = r"[!#-<>-\\^-~]{1,32}"  # printable, without = " ]
_VALUE = r'(?:[^"\\\]]|\\.)*'
_ELEMENT = re.compile(rf'\[({_NAME})((?: {_NAME}="{_VALUE}")*)\]', re.DOTALL)
_PARAMETER = re.compile(rf' ({_NAME})="({_VALUE})"', re.DOTALL)
_ESCAPED = re.compile(r'\\(["\\\]])')
_OLD_TIME = re.compile(
    rf"(?:(?P<iso>{_TIME})|(?P<month>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) (?P<day>[ 0-3]?[0-9]) "
    r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})) "
)
_OLD_HOST = re.compile(r"(?P<host>[!-9;-~]{1,255}) ")
_OLD_TAG = re.compile(r"(?P<app>[!-9;-Z\\^-~]{1,48})(?:\[(?P<process>[^\]\s]{1,128})\])?: ?")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

# Any: values of a row.
Row = dict[str, Any]


class MessageInvalid(ValueError):
    """Bytes that are not a message of syslog; its text says why."""


def parse_message(data: bytes, *, sender: str, now_us: int, zone: tzinfo = UTC) -> Row:
    """The row of a message; raise `MessageInvalid` if it is malformed.

    >>> row = parse_message(b'<165>1 2003-10-11T22:14:15.003Z web shop 42 ID47 [a@1 k="v"] ready', sender="10.0.0.1", now_us=0)
    >>> row["facility"], row["severity"], row["host"], row["app"], row["process"], row["message"]
    ('local4', 'notice', 'web', 'shop', '42', 'ready')
    >>> row["structured_data"]
    [{'id': 'a@1', 'name': 'k', 'value': 'v'}]
    >>> row = parse_message(b"<34>Jan  2 00:00:05 mymachine su[7]: denied", sender="10.0.0.1", now_us=0)
    >>> row["at"], row["host"], row["app"], row["process"], row["message"]
    (86405000000, 'mymachine', 'su', '7', 'denied')
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise MessageInvalid("the message is not UTF-8") from error
    found = _PRIORITY.match(text)
    if found is None or int(found[1]) >= 8 * len(FACILITIES):
        raise MessageInvalid("a message begins with a priority from <0> to <191>")
    priority = int(found[1])
    row: Row = {
        "at": now_us,
        "received_at": now_us,
        "priority": priority,
        "facility": FACILITIES[priority // 8],
        "severity": SEVERITIES[priority % 8],
        "sender": sender,
    }
    rest = text[found.end() :]
    return row | (_new(rest) if rest.startswith("1 ") else _old(rest, now_us=now_us, zone=zone))


def _new(text: str) -> Row:
    header = _HEADER.match(text)
    if header is None:
        raise MessageInvalid("the header is not TIME HOST APP PROCESS ID DATA of RFC 5424")
    row: Row = {name: header[name] for name in ("host", "app", "process", "message_id") if header[name] != "-"}
    if header["time"] != "-":
        row["at"] = _iso_us(header["time"])
    row["structured_data"], end = _structured_data(text, header.end())
    row["message"] = text[end + 1 :].removeprefix("\ufeff")
    return row


def _structured_data(text: str, start: int) -> tuple[list[Row] | None, int]:
    if text[start] == "-":
        return None, start + 1
    elements: list[Row] = []
    ids = set[str]()
    while (element := _ELEMENT.match(text, start)) is not None:
        if element[1] in ids:
            raise MessageInvalid(f"the structured data has {element[1]!r} twice")
        ids.add(element[1])
        parameters = _PARAMETER.findall(element[2])
        for name, value in parameters:
            elements.append({"id": element[1], "name": name, "value": _ESCAPED.sub(r"\1", value)})
        if not parameters:
            elements.append({"id": element[1], "name": None, "value": None})
        start = element.end()
    if not ids or text[start : start + 1] not in ("", " "):
        raise MessageInvalid('the structured data is not [ID NAME="VALUE" …]')
    return elements, start


def _old(text: str, *, now_us: int, zone: tzinfo) -> Row:
    row: Row = {}
    time = _OLD_TIME.match(text)
    if time is not None:
        row["at"] = _iso_us(time["iso"]) if time["iso"] else _near_us(time, now_us=now_us, zone=zone)
        text = text[time.end() :]
        if (host := _OLD_HOST.match(text)) is not None:
            row["host"] = host["host"]
            text = text[host.end() :]
    tag = _OLD_TAG.match(text)
    if tag is not None:
        row |= {"app": tag["app"], "process": tag["process"]}
        text = text[tag.end() :]
    return row | {"message": text}


def _iso_us(text: str) -> int:
    try:
        return time_us(datetime.fromisoformat(text))
    except (ValueError, OverflowError) as error:
        raise MessageInvalid(f"there is no time {text!r}") from error


def _near_us(time: re.Match[str], *, now_us: int, zone: tzinfo) -> int:
    """A time without a year, in the year that brings it nearest to the present."""
    year = datetime.fromtimestamp(now_us / 1e6, tz=zone).year
    times = []
    for candidate in (year - 1, year, year + 1):
        try:
            moment = datetime(
                candidate,
                _MONTHS.index(time["month"]) + 1,
                int(time["day"]),
                int(time["hour"]),
                int(time["minute"]),
                int(time["second"]),
                tzinfo=zone,
            )
        except ValueError:  # the 29th of February of most years
            continue
        times.append(time_us(moment))
    if not times:
        raise MessageInvalid(f"there is no time {time[0].strip()!r}")
    return min(times, key=lambda one: abs(one - now_us))
