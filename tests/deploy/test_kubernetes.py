"""The manifests of Kubernetes fit its schemas, name commands and settings of ours, and refer to each other. No cluster is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from headwater.errors import ArgumentInvalid
from headwater.http.guard import OPEN_PATHS
from headwater.services.tokens import TokenText
from tests.deploy.dockerfile import environment, last, stages_of, with_bases
from tests.deploy.product import DEPLOY, is_plain_image, options_of, probed, settings_of

FOLDER = DEPLOY / "kubernetes"
KUSTOMIZATION: dict[str, Any] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text(encoding="utf-8"))
OBJECTS: list[dict[str, Any]] = [
    each for name in KUSTOMIZATION["resources"] for each in yaml.safe_load_all((FOLDER / name).read_text("utf-8"))
]
WORKLOADS = [each for each in OBJECTS if each["kind"] in ("StatefulSet", "Deployment")]
STAGES = stages_of(DEPLOY / "Dockerfile")
_CONFINED = "allowPrivilegeEscalation capabilities.drop readOnlyRootFilesystem"
_POD_CONFINED = "fsGroup fsGroupChangePolicy runAsGroup runAsNonRoot runAsUser seccompProfile.type"
_PROBE = "httpGet.path httpGet.port exec.command failureThreshold periodSeconds timeoutSeconds"
_RESOURCES = "requests.cpu requests.memory limits.cpu limits.memory"


def _under(prefix: str, names: str) -> list[str]:
    return [f"{prefix}.{name}" for name in names.split()]


_CLAIM = ["spec.accessModes", "spec.resources.requests.storage"]
_CONTAINER = [
    *["args", "image", "name", "envFrom.configMapRef.name", "ports.containerPort", "ports.name"],
    *_under("env", "name value valueFrom.secretKeyRef.name valueFrom.secretKeyRef.key"),
    *_under("volumeMounts", "name mountPath readOnly"),
    *_under("securityContext", _CONFINED),
    *_under("resources", _RESOURCES),
    *(each for probe in ("startupProbe", "readinessProbe", "livenessProbe") for each in _under(probe, _PROBE)),
]
_POD = [
    *["automountServiceAccountToken", "shareProcessNamespace", "terminationGracePeriodSeconds"],
    *_under("securityContext", _POD_CONFINED),
    *_under("volumes", "name emptyDir secret.secretName secret.defaultMode persistentVolumeClaim.claimName"),
    *_under("containers", " ".join(_CONTAINER)),
    *_under("initContainers", " ".join(_CONTAINER)),
]
_WORKLOAD = ["spec.replicas", "spec.selector.matchLabels.*", "spec.template.metadata.labels.*"]
_WORKLOAD += _under("spec.template.spec", " ".join(_POD))
#: The fields that an object of each kind may have here. A misspelt field would be ignored by a cluster, or refused.
FIELDS = {
    ("v1", "ConfigMap"): ["data.*"],
    ("v1", "Secret"): ["type", "stringData.*"],
    ("v1", "Service"): ["spec.selector.*", *_under("spec.ports", "name port targetPort")],
    ("v1", "PersistentVolumeClaim"): _CLAIM,
    ("apps/v1", "Deployment"): [*_WORKLOAD, "spec.strategy.type"],
    ("apps/v1", "StatefulSet"): [
        *_WORKLOAD,
        "spec.serviceName",
        *_under("spec.volumeClaimTemplates", " ".join(["metadata.name", *_CLAIM])),
    ],
}


def named(kind: str, name: str) -> dict[str, Any]:
    [found] = [each for each in OBJECTS if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pod(workload: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = workload["spec"]["template"]["spec"]
    return spec


def containers() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each container with its workload; those that begin with a command of ours, so all."""
    for workload in WORKLOADS:
        for container in [*pod(workload).get("initContainers", ()), *pod(workload)["containers"]]:
            yield workload, container


def target_of(container: dict[str, Any]) -> str:
    """The stage of the Dockerfile that builds the image of a container."""
    name: str = container["image"]
    return name.removeprefix("headwater-").partition(":")[0]


EACH = pytest.mark.parametrize(
    ("workload", "container"),
    list(containers()),
    ids=[f"{workload['metadata']['name']}-{container['name']}" for workload, container in containers()],
)


def test_every_file_is_applied() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted([*KUSTOMIZATION["resources"], "kustomization.yaml"])


@pytest.mark.parametrize("each", OBJECTS, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_an_object_has_no_other_fields_than_those_of_its_kind(each: dict[str, Any]) -> None:
    """The schemas of Kubernetes are 100 MB; these manifests were compared with those of 1.29, 1.33 and 1.37 by hand."""
    known = {"apiVersion", "kind", "metadata.name", "metadata.labels.*", *FIELDS[each["apiVersion"], each["kind"]]}
    free = {name.removesuffix(".*") for name in known if name.endswith(".*")}
    assert {name for name in fields_of(each) if name not in known and name.partition("/")[0] not in free} == set()


def fields_of(value: Any, path: str = "") -> Iterator[str]:
    """The paths of all values; a name under labels, selectors and data is behind a slash."""
    if isinstance(value, dict) and value:
        is_free = path.rpartition(".")[2] in ("labels", "selector", "matchLabels", "data", "stringData")
        for name, inner in value.items():
            if is_free and not isinstance(inner, dict):
                yield f"{path}/{name}"
            else:
                yield from fields_of(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for inner in value:
            yield from fields_of(inner, path)
    else:
        yield path


@EACH
def test_a_container_has_an_image_a_command_and_settings_of_ours(
    workload: dict[str, Any], container: dict[str, Any]
) -> None:
    assert is_plain_image(container["image"])
    chain = with_bases(STAGES, target_of(container))
    options_of(container["args"])
    given = {one["name"]: one.get("value", "") for one in container.get("env", ())}
    for source in container.get("envFrom", ()):
        settings_of(named("ConfigMap", source["configMapRef"]["name"])["data"])
    settings_of({**environment(chain), **given})
    for one in container.get("env", ()):
        if "valueFrom" in one:
            key = one["valueFrom"]["secretKeyRef"]
            assert key["key"] in named("Secret", key["name"])["stringData"]
    del workload


@EACH
def test_volumes_are_those_of_the_pod_and_what_must_be_written_is_on_one(
    workload: dict[str, Any], container: dict[str, Any]
) -> None:
    declared = {volume["name"] for volume in pod(workload).get("volumes", ())}
    declared |= {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", ())}
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert set(mounts.values()) <= declared
    home = last(with_bases(STAGES, target_of(container)), "VOLUME")
    assert home in mounts
    if container in pod(workload)["containers"]:
        assert "/tmp" in mounts  # the root is read-only
    for volume in pod(workload).get("volumes", ()):
        if "secret" in volume:
            named("Secret", volume["secret"]["secretName"])
        if "persistentVolumeClaim" in volume:
            named("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])


@EACH
def test_a_container_is_confined_and_bounded(workload: dict[str, Any], container: dict[str, Any]) -> None:
    user, _, group = last(with_bases(STAGES, target_of(container)), "USER").partition(":")
    security = pod(workload)["securityContext"]
    assert (security["runAsNonRoot"], security["runAsUser"], security["fsGroup"]) == (True, int(user), int(group))
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    own = container["securityContext"]
    assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True)
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert pod(workload)["automountServiceAccountToken"] is False
    assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    assert "memory" in container["resources"]["limits"]


@EACH
def test_probes_ask_the_port_and_paths_of_the_command(workload: dict[str, Any], container: dict[str, Any]) -> None:
    if container not in pod(workload)["containers"]:
        return
    port = options_of(container["args"])["port"]
    ports = {each["name"]: each["containerPort"] for each in container.get("ports", ())}
    probes = {name: container[name] for name in container if name.endswith("Probe")}
    assert {"startupProbe", "livenessProbe"} <= probes.keys()
    for probe in probes.values():
        if "httpGet" in probe:
            assert ports[probe["httpGet"]["port"]] == port
            assert probe["httpGet"]["path"] in OPEN_PATHS
        else:
            assert probed(probe["exec"]["command"])[0] == port
    if options_of(container["args"]).get("host") is None:  # an app listens on the loopback, where no kubelet asks
        assert all("exec" in probe for probe in probes.values())


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda each: each["metadata"]["name"])
def test_a_workload_selects_its_own_pods_and_one_process_owns_a_volume(workload: dict[str, Any]) -> None:
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert workload["spec"]["selector"]["matchLabels"] == labels
    others = [other["spec"]["selector"]["matchLabels"] for other in WORKLOADS if other is not workload]
    assert labels not in others
    assert workload["spec"]["replicas"] == 1
    assert workload["kind"] == "StatefulSet" or workload["spec"]["strategy"] == {"type": "Recreate"}
    assert pod(workload)["terminationGracePeriodSeconds"] >= 30
    for container in pod(workload)["containers"]:
        app = next((one["value"] for one in container.get("env", ()) if one["name"] == "HEADWATER_APP"), None)
        assert (app is not None) == (target_of(container) == "app")


def test_the_service_leads_to_the_port_of_the_server_and_the_other_app_asks_it() -> None:
    service, log = named("Service", "headwater"), named("StatefulSet", "headwater")
    assert log["spec"]["serviceName"] == service["metadata"]["name"]
    assert service["spec"]["selector"].items() <= log["spec"]["template"]["metadata"]["labels"].items()
    [port] = service["spec"]["ports"]
    [server] = [each for each in pod(log)["containers"] if each["name"] == "server"]
    assert port["targetPort"] in [each["name"] for each in server["ports"]]
    [other] = pod(named("Deployment", "headwater-app"))["containers"]
    assert options_of(other["args"])["flag_log"] == f"http://{service['metadata']['name']}:{port['port']}"
    [beside] = [each for each in pod(log)["containers"] if each["name"] == "app"]
    [folder] = [one["value"] for one in server["env"] if one["name"] == "HEADWATER_LOG"]
    assert options_of(beside["args"])["flag_log"] == folder


def test_each_token_of_the_secret_is_made_before_the_server_starts_and_none_can_be_used_as_it_stands() -> None:
    secret = named("Secret", "headwater-tokens")["stringData"]
    log = named("StatefulSet", "headwater")
    made = {}
    for container in pod(log)["initContainers"]:
        options = options_of(container["args"])
        assert options["from_file"].parent.as_posix() in [mount["mountPath"] for mount in container["volumeMounts"]]
        made[options["from_file"].name] = options["name"]
    assert made == {key: key for key in secret}
    for text in secret.values():
        with pytest.raises(ArgumentInvalid):
            TokenText(text)
