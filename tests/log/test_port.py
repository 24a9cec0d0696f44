"""The configurations of topics, producers and consumers: one list of settings each, checked when built."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from headwater.config import Config
from headwater.errors import ArgumentInvalid
from headwater.log.client_config import ConsumerConfig, ConsumerSettings, ProducerConfig, ProducerSettings
from headwater.log.topic import (
    Retention,
    TopicChanges,
    TopicConfig,
    TopicSettings,
    settings_from_json,
    settings_to_json,
)


@pytest.mark.parametrize(
    ("settings", "config"),
    [(TopicSettings, TopicConfig), (ProducerSettings, ProducerConfig), (ConsumerSettings, ConsumerConfig)],
)
def test_what_users_may_write_is_what_a_configuration_has(settings: Any, config: Any) -> None:
    assert set(settings.__annotations__) == {each.name for each in fields(config)}


def test_what_can_change_is_part_of_what_can_be_declared() -> None:
    assert set(TopicChanges.__annotations__) < set(TopicSettings.__annotations__)


def test_a_configuration_survives_its_json_form() -> None:
    config = TopicConfig.of({"partitions": 3, "key": "id", "retention": "1 day, 1 MiB", "compact": True}, Config())
    assert TopicConfig(**settings_from_json(config.settings_to_json())) == config
    assert settings_to_json({"retention": "1 day", "time": None}) == {
        "retention": {"seconds_max": 86_400.0, "bytes_max": None}
    }


def test_a_setting_that_a_file_does_not_have_keeps_its_default() -> None:
    body = TopicConfig(archive=True).settings_to_json()
    del body["archive"]
    assert settings_from_json(body).get("archive") is None


def test_a_configuration_is_checked_also_when_it_is_changed() -> None:
    with pytest.raises(ArgumentInvalid, match="partitions"):
        replace(TopicConfig(), partitions=0)
    with pytest.raises(ArgumentInvalid, match="seconds_max"):
        Retention(seconds_max=-1)
    with pytest.raises(ArgumentInvalid, match="overload"):
        ProducerConfig.of({"overload": "never"}, Config())  # type: ignore[typeddict-item]
    with pytest.raises(ArgumentInvalid, match="rows_max"):
        ConsumerConfig.of({"rows_max": 0}, Config())


def test_a_setting_that_does_not_exist_is_named() -> None:
    with pytest.raises(TypeError, match="no setting partition;"):
        TopicConfig.of({"partition": 3}, Config())  # type: ignore[typeddict-unknown-key]
