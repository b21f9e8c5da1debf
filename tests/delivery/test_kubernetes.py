"""The Kubernetes manifests: their schema, and that they agree with the package and the image."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from hermes_trio.server.shutdown import ShutdownTimeouts
from hermes_trio.settings import Settings, load
from hermes_trio.web.metrics import DESCRIPTIONS
from tests.support.fakes import make_harness
from tests.support.server_process import ROOT

PATH = ROOT / "deploy/kubernetes.yaml"
MANIFESTS: dict[str, dict[str, Any]] = {
    each["kind"]: each for each in yaml.safe_load_all(PATH.read_text("utf-8"))
}
POD: dict[str, Any] = MANIFESTS["Deployment"]["spec"]["template"]["spec"]
[SERVER] = POD["containers"]


def test_the_schema() -> None:
    if shutil.which("kubernetes-validate") is None:
        pytest.skip("kubernetes-validate is not installed; nox -s delivery has it")
    subprocess.run(["kubernetes-validate", "--strict", PATH], check=True)


def test_all_select_the_pods_of_the_deployment() -> None:
    labels = MANIFESTS["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert MANIFESTS["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert MANIFESTS["Service"]["spec"]["selector"] == labels
    assert MANIFESTS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    target = MANIFESTS["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert target["name"] == MANIFESTS["Deployment"]["metadata"]["name"]


def test_the_probes_ask_routes_of_the_server() -> None:
    routes = {rule.rule for rule in make_harness().app.url_map.iter_rules()}
    [port] = SERVER["ports"]
    assert port["containerPort"] == Settings().port
    for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
        assert SERVER[probe]["httpGet"]["path"] in routes
        assert SERVER[probe]["httpGet"]["port"] == port["name"]
    # A pod whose store is away must not be restarted: that would end its streams.
    assert SERVER["livenessProbe"]["httpGet"]["path"] != SERVER["readinessProbe"]["httpGet"]["path"]


def test_a_pod_has_time_to_drain() -> None:
    environ = {each["name"]: each.get("value", "") for each in SERVER["env"]}
    timeouts = ShutdownTimeouts.from_settings(
        load({}, {**environ, "HOME": "/nowhere"}, None).settings
    )
    command, seconds = SERVER["lifecycle"]["preStop"]["exec"]["command"]
    assert command == "sleep"
    readiness = SERVER["readinessProbe"]
    assert int(seconds) > readiness["periodSeconds"] * readiness["failureThreshold"]
    assert POD["terminationGracePeriodSeconds"] > int(seconds) + timeouts.total


def test_it_scales_with_a_metric_of_the_server() -> None:
    [metric] = MANIFESTS["HorizontalPodAutoscaler"]["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] in {each.name for each in DESCRIPTIONS}


def test_pods_run_as_the_user_of_the_image() -> None:
    [user] = re.findall(r"^USER (\d+):\d+$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    assert POD["securityContext"]["runAsUser"] == int(user)
    for container in (*POD["initContainers"], SERVER):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {each["mountPath"] for each in SERVER["volumeMounts"]} == {"/data", "/tmp"}


def test_every_secret_is_explained() -> None:
    containers = [*POD["initContainers"], SERVER]
    names = [
        each["valueFrom"]["secretKeyRef"]
        for container in containers
        for each in container["env"]
        if "valueFrom" in each
    ]
    head = PATH.read_text("utf-8").partition("apiVersion")[0]
    assert names
    assert all(f"--from-literal={each['key']}=" in head for each in names)
