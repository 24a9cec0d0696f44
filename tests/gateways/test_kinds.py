"""Every kind of gateway can be named, described and declared, and the page says what it may lose."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headwater.errors import ArgumentInvalid, NotFound
from headwater.gateways.kinds import KINDS, gateway_class, gateway_from_text, gateways_from_file, settings_of

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "gateways.md"


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_complete(kind: str) -> None:
    made = gateway_class(kind)
    assert made.kind == kind
    assert made.direction in ("in", "out")
    assert "topic" in settings_of(kind)
    rows = re.findall(rf"^\| `{kind}`[^|]*\|(.*)\|$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert rows, "the page says what it may lose"
    assert all(cell.strip() for row in rows for cell in row.split("|"))


def test_settings_of_a_file_are_those_of_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "gateways.toml"
    path.write_text(
        '[[gateway]]\nkind = "tail"\npaths = ["/var/log/*.log", "/srv/a.log"]\nfiles-max = 7\ninterval = "1 second"\n'
        '[[gateway]]\nkind = "zeromq-out"\naddresses = ["tcp://127.0.0.1:*"]\nbind = true\n'
    )
    assert gateways_from_file(path) == [
        gateway_from_text("tail", ["paths=/var/log/*.log,/srv/a.log", "files_max=7", "interval=1 second"]),
        gateway_from_text("zeromq-out", ["addresses=tcp://127.0.0.1:*", "bind=true"]),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[gateway]", "TOML"),
        ("", r"tables \[\[gateway\]\]"),
        ('[gateway]\nkind = "statsd"\n', r"tables \[\[gateway\]\]"),
        ('title = "a"\n[[gateway]]\nkind = "statsd"\n', "nothing else"),
        ("[[gateway]]\nport = 1\n", "in each"),
        ('[[gateway]]\nkind = "statsd"\nprt = 1\n', "Did you mean 'port'"),
        ('[[gateway]]\nkind = "statsd"\nport = 2026-01-31\n', "a text, a number"),
        ('[[gateway]]\nkind = "statsd"\nport = "many"\n', "a number"),
    ],
)
def test_a_file_that_is_not_understood_is_refused(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "gateways.toml"
    path.write_text(text)
    with pytest.raises(ArgumentInvalid, match=why):
        gateways_from_file(path)


def test_an_unknown_kind_is_named(tmp_path: Path) -> None:
    path = tmp_path / "gateways.toml"
    path.write_text('[[gateway]]\nkind = "statds"\n')
    with pytest.raises(NotFound, match="Did you mean 'statsd'"):
        gateways_from_file(path)
