"""Tokens as a service: for the user of the folder, and not over HTTP."""

from __future__ import annotations

import pytest

from headwater.errors import ArgumentInvalid, NotFound
from headwater.log import Log
from headwater.services import Audit, Settings, Tokens, local
from headwater.services.callers import Caller, Scope, ScopeMissing
from headwater.services.host import Host
from headwater.services.json_form import to_json
from headwater.services.tokens import TokenInvalid, TokenService, TokenText
from tests.services.conftest import Audited, ServicesOf


@pytest.fixture
def tokens(log: Log) -> TokenService:
    return local(Host(log=log, settings=Settings(), audit=Audit(log))).tokens


def test_a_token_is_made_listed_without_its_secret_and_revoked(
    log: Log, tokens: TokenService, audited: Audited
) -> None:
    made = tokens.create("ci", ("read:orders",), seconds=60.0)
    assert Tokens(log.home).check(made.token).may("read", "orders")
    [listed] = tokens.list()
    assert (listed.name, listed.scopes, listed.id) == ("ci", ("read:orders",), made.id)
    assert made.token.rpartition("_")[2] not in str(to_json(listed))
    assert "hash" not in to_json(listed)
    assert tokens.revoke(made.id) == listed
    with pytest.raises(NotFound):
        tokens.revoke("ci")
    assert [(row["action"], row["target"], row["status"]) for row in audited()] == [
        ("tokens.create", "ci seconds=60.0", 200),
        ("tokens.revoke", made.id, 200),
    ]


def test_only_an_admin_makes_tokens(log: Log) -> None:
    host = Host(log=log, settings=Settings())
    reader = local(host, Caller(name="ada", scopes=(Scope.parse("read:*"),))).tokens
    for call in (lambda: reader.create("ci"), reader.list, lambda: reader.revoke("ci")):
        with pytest.raises(ScopeMissing):
            call()


@pytest.mark.parametrize("services_of", ["remote"], indirect=True)
def test_no_server_makes_tokens(services_of: ServicesOf) -> None:
    tokens = services_of("admin:*").tokens
    for call in (lambda: tokens.create("ci"), tokens.list, lambda: tokens.revoke("ci")):
        with pytest.raises(ArgumentInvalid, match="the folder of the log"):
            call()


def test_a_given_token_takes_the_place_of_the_one_of_its_name_and_is_not_audited(
    log: Log, tokens: TokenService, audited: Audited
) -> None:
    first, second = (TokenText(f"hw_{digit * 16}_{digit * 43}") for digit in "12")
    for given in (first, first, second):
        assert tokens.create("ci", ("read:*",), given=given).token == given.text
    assert Tokens(log.home).check(second.text).name == "ci"
    with pytest.raises(TokenInvalid):
        Tokens(log.home).check(first.text)
    with pytest.raises(ArgumentInvalid, match="that no other name has"):
        tokens.create("other", given=second)
    assert [row["target"] for row in audited()] == ["ci"] * 3
    assert second.text not in repr(second)


@pytest.mark.parametrize("text", ["", "replace-me", "hw_1_short", f"hw_xyz_{'1' * 43}", f"hw_1_{'1' * 42}"])
def test_a_given_token_that_could_be_guessed_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ArgumentInvalid) as refused:
        TokenText(text)
    assert not text or text not in str(refused.value)
