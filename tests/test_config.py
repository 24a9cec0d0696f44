"""Settings: where they come from, and what is refused."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.config import FILE_NAME, Config, SettingInvalid, user_file
from headwater.errors import EncodingInvalid, HeadwaterError
from headwater.units import MIB

Environ = dict[str, str]


@pytest.fixture
def environ(tmp_path: Path) -> Environ:
    """An environment in which the user's own file is one of this test."""
    return {"HOME": str(tmp_path / "home"), "APPDATA": str(tmp_path / "home"), "XDG_CONFIG_HOME": ""}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def write_user_file(environ: Environ, text: str) -> Path:
    path = user_file(environ)
    assert path is not None
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_the_defaults_work_without_any_file(environ: Environ, project: Path) -> None:
    config = Config.load(environ=environ, directory=project)
    assert config == Config()
    assert {setting.origin for setting in config.describe()} == {"default"}


def test_each_layer_covers_the_ones_below(environ: Environ, project: Path) -> None:
    user = write_user_file(environ, "partitions = 2")
    assert Config.load(environ=environ, directory=project).partitions == 2
    assert Config.load(environ=environ, directory=project).origin("partitions") == str(user)

    here = project / FILE_NAME
    here.write_text("partitions = 3", encoding="utf-8")
    assert Config.load(environ=environ, directory=project).partitions == 3
    assert Config.load(environ=environ, directory=project).origin("partitions") == str(here)

    environ["HEADWATER_PARTITIONS"] = "4"
    config = Config.load({"partitions": None}, environ=environ, directory=project)
    assert (config.partitions, config.origin("partitions")) == (4, "environment HEADWATER_PARTITIONS")

    config = Config.load({"partitions": 5}, environ=environ, directory=project)
    assert (config.partitions, config.origin("partitions")) == (5, "flag --partitions")


def test_layers_are_merged_setting_by_setting(environ: Environ, project: Path) -> None:
    write_user_file(environ, 'codec = "zstd"')
    (project / FILE_NAME).write_text('durability = "os"\nsegment_bytes_max = "1 MiB"', encoding="utf-8")
    config = Config.load({"log": "elsewhere"}, environ=environ, directory=project)
    assert (config.log, config.codec, config.durability, config.segment_bytes_max) == ("elsewhere", "zstd", "os", MIB)


def test_the_file_of_the_current_folder_is_named_as_people_name_it(
    environ: Environ, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / FILE_NAME).write_text("partitions = 3", encoding="utf-8")
    monkeypatch.chdir(project)
    assert Config.load(environ=environ).origin("partitions") == "./headwater.toml"


def test_another_file_can_be_chosen_and_must_then_exist(environ: Environ, project: Path) -> None:
    (project / FILE_NAME).write_text("partitions = 3", encoding="utf-8")
    environ["HEADWATER_CONFIG"] = f"{project}/./other.toml"
    with pytest.raises(EncodingInvalid, match=r"other\.toml"):
        Config.load(environ=environ, directory=project)
    (project / "other.toml").write_text("partitions = 9", encoding="utf-8")
    assert Config.load(environ=environ, directory=project).partitions == 9


def test_sizes_and_durations_may_be_written_as_people_do(environ: Environ, project: Path) -> None:
    environ |= {"HEADWATER_RETENTION_SECONDS_MAX": "7 days", "HEADWATER_RETENTION_BYTES_MAX": "10 GB"}
    config = Config.load({"linger_seconds": "500 ms"}, environ=environ, directory=project)
    assert (config.retention_seconds_max, config.retention_bytes_max) == (604_800.0, 10_000_000_000)
    assert config.linger_seconds == 0.5


def test_none_takes_a_limit_away_again(environ: Environ, project: Path) -> None:
    (project / FILE_NAME).write_text('retention_seconds_max = "7 days"', encoding="utf-8")
    environ["HEADWATER_RETENTION_SECONDS_MAX"] = "none"
    assert Config.load(environ=environ, directory=project).retention_seconds_max is None


def test_no_color_is_heard_but_our_own_variable_is_stronger(environ: Environ, project: Path) -> None:
    environ["NO_COLOR"] = "1"
    config = Config.load(environ=environ, directory=project)
    assert (config.color, config.origin("color")) == ("never", "environment NO_COLOR")
    environ["HEADWATER_COLOR"] = "always"
    assert Config.load(environ=environ, directory=project).color == "always"


def test_an_empty_variable_is_an_unset_one(environ: Environ, project: Path) -> None:
    environ |= {"HEADWATER_PARTITIONS": "", "NO_COLOR": ""}
    assert Config.load(environ=environ, directory=project) == Config()


def in_file(environ: Environ, project: Path) -> Config:
    (project / FILE_NAME).write_text("partitons = 4", encoding="utf-8")
    return Config.load(environ=environ, directory=project)


def in_environment(environ: Environ, project: Path) -> Config:
    return Config.load(environ=environ | {"HEADWATER_PARTITONS": "4"}, directory=project)


def in_flag(environ: Environ, project: Path) -> Config:
    return Config.load({"partitons": 4}, environ=environ, directory=project)


@pytest.mark.parametrize("load", [in_file, in_environment, in_flag])
def test_a_misspelt_setting_is_refused_with_the_name_meant(
    load: Callable[[Environ, Path], Config], environ: Environ, project: Path
) -> None:
    with pytest.raises(SettingInvalid, match="did you mean `partitions`"):
        load(environ, project)


def test_variables_of_the_tests_and_of_others_are_let_through(environ: Environ, project: Path) -> None:
    environ |= {"HEADWATER_TEST_SEED": "1", "HEADWATERS": "x", "PATH": "/bin"}
    assert Config.load(environ=environ, directory=project) == Config()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log", ""),
        ("durability", "always"),
        ("codec", "gzip"),
        ("partitions", 0),
        ("partitions", "many"),
        ("partitions", True),
        ("partitions", 1.0),
        ("segment_bytes_max", "1 KiB"),
        ("segment_bytes_max", "64 parsecs"),
        ("frame_rows_max", -1),
        ("linger_seconds", -0.1),
        ("retention_seconds_max", 0),
        ("session_seconds_max", "0 s"),
        ("heartbeat_seconds", 10.0),
        ("open_partitions_max", None),
        ("archive_dir", 7),
        ("color", "yes"),
        ("output", "xml"),
    ],
)
def test_a_value_that_cannot_work_is_refused_when_the_config_is_built(name: str, value: Any) -> None:
    with pytest.raises(SettingInvalid) as caught:
        Config(**{name: value})
    assert (caught.value.name, caught.value.value) == (name, value)


def test_a_refusal_says_where_the_value_came_from(environ: Environ, project: Path) -> None:
    environ["HEADWATER_CODEC"] = "gzip"
    with pytest.raises(SettingInvalid) as caught:
        Config.load(environ=environ, directory=project)
    assert str(caught.value) == (
        "The setting `codec` is 'gzip' (from environment HEADWATER_CODEC). It takes none, lz4 or zstd."
    )


@pytest.mark.parametrize("content", [b"partitions = = 4", b'log = "\xff"'])
def test_a_broken_file_is_named(content: bytes, environ: Environ, project: Path) -> None:
    (project / FILE_NAME).write_bytes(content)
    with pytest.raises(EncodingInvalid, match=r"headwater\.toml"):
        Config.load(environ=environ, directory=project)


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().partitions = 2  # type: ignore[misc]  # that is the point


def test_values_given_by_a_program_are_told_from_defaults() -> None:
    config = Config(partitions=4)
    assert (config.origin("partitions"), config.origin("codec")) == ("the program", "default")


def test_every_setting_is_described_with_its_text_and_purpose() -> None:
    described = {setting.name: setting for setting in Config().describe()}
    assert list(described) == [field.name for field in dataclasses.fields(Config) if field.name != "origins"]
    assert all(setting.help.endswith(".") for setting in described.values())
    assert described["segment_bytes_max"].text == "64 MiB"
    assert described["retention_seconds_max"].text == "none"


def test_the_text_of_each_setting_reads_back_as_its_value() -> None:
    texts = {setting.name: setting.text for setting in Config().describe()}
    assert Config.load(texts, environ={}) == Config()


def test_asking_for_the_origin_of_no_setting_is_an_error() -> None:
    with pytest.raises(HeadwaterError, match="did you mean `codec`"):
        Config().origin("codecs")


@pytest.mark.skipif(sys.platform != "linux", reason="the folder differs by platform")
def test_the_users_file_follows_xdg(tmp_path: Path) -> None:
    assert user_file({}) is None
    assert user_file({"HOME": "/home/ada"}) == Path("/home/ada/.config/headwater/config.toml")
    assert user_file({"XDG_CONFIG_HOME": str(tmp_path)}) == tmp_path / "headwater" / "config.toml"


def test_the_process_environment_is_read_only_when_none_is_given(
    environ: Environ, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (environ | {"HEADWATER_PARTITIONS": "6"}).items():
        monkeypatch.setenv(name, value)
    assert Config.load(directory=project).partitions == 6
    assert Config.load(environ=environ, directory=project).partitions == 1
