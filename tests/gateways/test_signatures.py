"""Webhooks are taken only with a signature of their exact bytes, made within the replay window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis.strategies import binary, integers, sampled_from, text

from headwater.errors import ArgumentInvalid
from headwater.gateways import SignatureInvalid
from headwater.gateways.signatures import (
    SCHEMES,
    Scheme,
    check_secrets,
    github_signature,
    signature,
    stripe_signature,
    verified_id,
)

NOW = 1_700_000_000
BODY = b'{"id": "m1", "type": "order.paid"}'


def signed(
    scheme: Scheme, body: bytes = BODY, *, secret: str = "s3cret", at: int = NOW, id: str = "m1"
) -> dict[str, str]:
    if scheme == "standard":
        made = signature(secret, id=id, timestamp=str(at), body=body)
        return {"webhook-id": id, "webhook-timestamp": str(at), "webhook-signature": made}
    if scheme == "github":
        return {"x-github-delivery": id, "x-hub-signature-256": github_signature(secret, body=body)}
    return {"stripe-signature": stripe_signature(secret, timestamp=str(at), body=body)}


def verify(scheme: Scheme, headers: dict[str, str], body: bytes = BODY, *, now: float = NOW) -> str:
    return verified_id(scheme, headers, body, secrets=["old", "s3cret"], now=now, replay_window_seconds=300)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_signed_message_is_taken_by_any_of_the_secrets(scheme: Scheme) -> None:
    assert verify(scheme, signed(scheme)) == "m1"
    assert verify(scheme, signed(scheme, secret="old")) == "m1"


@given(scheme=sampled_from(SCHEMES), position=integers(0, len(BODY) - 1), flip=integers(1, 255))
def test_a_body_with_one_changed_byte_is_forged(scheme: Scheme, position: int, flip: int) -> None:
    changed = bytearray(BODY)
    changed[position] ^= flip
    with pytest.raises(SignatureInvalid, match="no signature fits"):
        verify(scheme, signed(scheme), bytes(changed))


@given(scheme=sampled_from(SCHEMES), body=binary(max_size=50), junk=text(max_size=80))
def test_a_request_without_the_secret_is_refused_whatever_it_says(scheme: Scheme, body: bytes, junk: str) -> None:
    for headers in ({}, signed(scheme, body, secret="guess"), dict.fromkeys(signed(scheme, body), junk)):
        with pytest.raises(SignatureInvalid):
            verify(scheme, headers, body)


@given(seconds=integers(-2_000, 2_000), scheme=sampled_from(["standard", "stripe"]))
def test_a_message_outside_the_replay_window_is_refused(seconds: int, scheme: Scheme) -> None:
    headers = signed(scheme, at=NOW + seconds)
    if abs(seconds) <= 300:
        assert verify(scheme, headers) == "m1"
    else:
        with pytest.raises(SignatureInvalid, match="replay window"):
            verify(scheme, headers)


def test_a_time_or_an_id_that_was_not_signed_does_not_help() -> None:
    headers = signed("standard", at=NOW - 1_000)
    with pytest.raises(SignatureInvalid, match="no signature fits"):
        verify("standard", {**headers, "webhook-timestamp": str(NOW)})
    with pytest.raises(SignatureInvalid, match="no signature fits"):
        verify("standard", {**signed("standard"), "webhook-id": "m2"})


def test_a_gateway_without_a_usable_secret_does_not_start() -> None:
    with pytest.raises(ArgumentInvalid, match="at least one secret"):
        check_secrets("github", [])
    with pytest.raises(ArgumentInvalid, match="base64"):
        check_secrets("standard", ["whsec_a"])
