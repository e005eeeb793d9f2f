"""What is in `deploy/` fits the server it deploys: metrics, flags, paths, the health check."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conformance.api import Api, open_client

from topics.cli.keys import KEYS_FILE
from topics.config import settings
from topics.testing.server_process import ServerProcess

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
METRIC = re.compile(r"\btopics_[a-z_]+")
PROMETHEUS_ACCEPT = (
    "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)


def load_yaml(name: str) -> Any:  # noqa: ANN401 - a document of any shape
    return pytest.importorskip("yaml").safe_load((DEPLOY / name).read_text())


def expressions() -> list[str]:
    board = json.loads((DEPLOY / "grafana/dashboards/topics.json").read_text())
    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    alerts = re.findall(r"^ +expr: (.+)$", (DEPLOY / "alerts.yml").read_text(), re.MULTILINE)
    assert len(shown) > 20
    assert len(alerts) >= 5
    return shown + alerts


def test_every_metric_that_is_shown_or_watched_exists(server: ServerProcess) -> None:
    with open_client(server.url) as client:
        api = Api(client)
        api.append("t", 1)
        api.create("q", type="queue")
        assert api.put("routers/t->d", {"source": "t", "dest": "d"}).status_code == 201
        client.headers["Accept"] = PROMETHEUS_ACCEPT
        reply = client.get("/v0/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    series = set(re.findall(r"^(topics_\w+)", reply.text, re.MULTILINE))
    used = {name for expression in expressions() for name in METRIC.findall(expression)}
    assert sorted(used - series) == []


def test_labels_that_are_summed_by_exist(server: ServerProcess) -> None:
    text = httpx.get(f"{server.url}/v0/metrics").text
    for expression in expressions():
        metrics = METRIC.findall(expression)
        for labels in re.findall(r"by \(([a-z, ]+)\)", expression):
            for label in labels.split(", "):
                assert re.search(rf"^{metrics[0]}\{{.*{label}=", text, re.MULTILINE), expression


def test_the_documents_of_compose_and_prometheus_fit_together() -> None:
    compose, prometheus = load_yaml("compose.yaml"), load_yaml("prometheus.yml")
    services = compose["services"]
    (scrape,) = prometheus["scrape_configs"]
    assert scrape["static_configs"][0]["targets"] == ["topics:4000"]
    assert set(services) == {"topics", "prometheus", "grafana"}
    key_file = scrape["authorization"]["credentials_file"]
    assert key_file == f"/run/secrets/{services['prometheus']['secrets'][0]}"
    mounted = [volume for service in services.values() for volume in service.get("volumes", ())]
    for volume in mounted:
        source = volume.partition(":")[0]
        named = source in compose["volumes"]
        assert named or (DEPLOY / source).exists(), volume
    datasource = load_yaml("grafana/provisioning/datasources/topics.yaml")["datasources"][0]
    board = (DEPLOY / "grafana/dashboards/topics.json").read_text()
    assert set(re.findall(r'"uid": "(topics-[a-z]+)"', board)) == {datasource["uid"]}


def test_no_key_and_no_password_is_written_down() -> None:
    compose = load_yaml("compose.yaml")
    for secret in compose["secrets"].values():
        assert secret["file"].startswith("secrets/")
        assert not (DEPLOY / secret["file"]).exists()
    texts = [path.read_text() for path in DEPLOY.rglob("*") if path.is_file()]
    assert not any(re.search(r"^[^#\n]*TOPICS_API_KEYS=", text, re.MULTILINE) for text in texts)


def test_the_server_gets_its_keys_as_a_file_everywhere() -> None:
    service = (DEPLOY / "systemd/topics.service").read_text()
    found = re.search(r"^LoadCredential=(\w+):/", service, re.MULTILINE)
    assert found is not None
    assert f"\nEnvironment={KEYS_FILE}=%d/{found[1]}\n" in service
    compose = load_yaml("compose.yaml")
    topics = compose["services"]["topics"]
    name = topics["environment"][KEYS_FILE].removeprefix("/run/secrets/")
    assert name in topics["secrets"]
    assert name in compose["secrets"]
    assert "EnvironmentFile" not in service
    assert "env_file" not in topics


def dockerfile() -> str:
    return (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")


def test_what_the_image_copies_is_there_and_is_not_ignored() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile(), re.MULTILINE)
    names = [name for line in copied for name in line.split()]
    assert "src" in names
    for name in names:
        assert (ROOT / name).exists()
        assert f"!{name}" in ignored


def test_the_settings_of_the_image_are_settings() -> None:
    named = re.findall(r"\b(TOPICS_[A-Z_]+)=", dockerfile())
    assert len(named) == 3
    assert {name.removeprefix("TOPICS_").lower() for name in named} <= set(settings())


def test_the_health_check_of_the_image_tells_alive_from_dead(server: ServerProcess) -> None:
    found = re.search(r"^HEALTHCHECK .*? CMD (\[.+\])$", dockerfile(), re.MULTILINE)
    assert found is not None
    _, *arguments = json.loads(found[1])
    for port, alive in ((server.port, True), (1, False)):
        done = subprocess.run(
            [sys.executable, *arguments],
            env={"TOPICS_PORT": str(port)},
            capture_output=True,
            check=False,
        )
        assert (done.returncode == 0) is alive


def test_the_image_runs_as_nobody_in_particular_and_stops_cleanly() -> None:
    last = dockerfile().rpartition("\nFROM ")[2]
    assert re.search(r"^USER [1-9]\d+:[1-9]\d+$", last, re.MULTILINE)
    assert "STOPSIGNAL SIGTERM" in last
    assert re.search(r"^VOLUME /data$", last, re.MULTILINE)


def test_the_commands_of_the_page_are_those_of_the_files() -> None:
    page = (ROOT / "docs/operating/containers.md").read_text()
    for name in ("Dockerfile", "compose.yaml"):
        command = re.search(r"^# (docker \S.*?)(?:  |$)", (DEPLOY / name).read_text(), re.MULTILINE)
        assert command is not None
        assert command[1] in page
