"""The samples for Prometheus, Alertmanager, Grafana, collectors and schedulers: accepted by their own tools where there
are any here, else by their published schemas.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import rules
from support.on_call import check_config

CONFIGS = rules.ROOT / "configs"
SERVERS = sorted(CONFIGS.glob("prometheus*.yml"))

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool on PATH (Debian: prometheus)")


def accepted(*words: object, **options: Any) -> str:
    """What a command says that must succeed."""
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, timeout=120, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def documents(file: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(file.read_text(encoding="utf-8")) if document]


@needs_promtool
@pytest.mark.parametrize("file", SERVERS, ids=lambda file: file.stem)
def test_promtool_accepts_a_configuration_of_prometheus(file: Path, tmp_path: Path) -> None:
    (config,) = documents(file)
    assert config["rule_files"] == ["alerting/recording.rules.yml", "alerting/alerts.rules.yml"]
    for job in config["scrape_configs"]:
        # Debian's build has none of the clouds' discoveries.
        if job.pop("kubernetes_sd_configs", None):
            job["static_configs"] = [{"targets": ["127.0.0.1:9464"]}]
    shutil.copytree(CONFIGS / "alerting", tmp_path / "alerting")
    copy = tmp_path / file.name
    copy.write_text(yaml.safe_dump(config))
    assert "SUCCESS: 2 rule files found" in accepted("promtool", "check", "config", copy)


def test_prometheus_is_configured_for_target_files_lists_and_pods() -> None:
    kinds = {
        key for file in SERVERS for job in documents(file)[0]["scrape_configs"] for key in job if "_configs" in key
    }
    assert {"file_sd_configs", "static_configs", "kubernetes_sd_configs"} <= kinds


def test_rules_and_dashboards_find_a_run_and_a_rank_on_every_target() -> None:
    """Target files carry them; the others must say them."""
    (static,) = documents(CONFIGS / "prometheus-static.yml")[0]["scrape_configs"]
    assert all({"run", "rank"} <= set(one["labels"]) for one in static["static_configs"])
    (pods,) = documents(CONFIGS / "prometheus-kubernetes.yml")[0]["scrape_configs"]
    assert {"run", "rank"} <= {rule.get("target_label") for rule in pods["relabel_configs"]}


@needs_promtool
def test_promtool_accepts_the_agent_of_a_node_and_it_sends_the_layers_of_one_rank() -> None:
    file = CONFIGS / "scale/node.yml"
    assert "SUCCESS" in accepted("promtool", "check", "config", "--agent", file)
    (config,) = documents(file)
    drop, _ = config["remote_write"][0]["write_relabel_configs"]
    (job,) = config["scrape_configs"]

    def is_sent(metric: str, port: int) -> bool:
        # A later rule goes before an earlier one, as in Prometheus.
        matching = [rule for rule in job["relabel_configs"] if re.fullmatch(rule["regex"], f"node:{port}")]
        return not re.fullmatch(drop["regex"], f"{metric};{matching[-1]['replacement']}")

    layers = ["trainmon_layer_norm", "trainmon_layer_abs_max", "trainmon_layer_mean", "trainmon_zero_elements_ratio"]
    assert all(is_sent(metric, 9464) for metric in layers)
    assert not any(is_sent(metric, port) for metric in layers for port in range(9465, 9480))
    assert is_sent("trainmon_grad_norm", 9471)


@pytest.mark.skipif(shutil.which("amtool") is None, reason="no amtool on PATH (Debian: prometheus-alertmanager)")
def test_amtool_accepts_the_routes_and_sends_pages_to_the_pager() -> None:
    file = CONFIGS / "alertmanager.yml"
    assert "SUCCESS" in accepted("amtool", "check-config", file)
    for severity, receiver in (("page", "pages"), ("ticket", "tickets")):
        route = ["amtool", "config", "routes", "test", f"--config.file={file}", f"severity={severity}", "run=a"]
        assert accepted(*route).split()[0] == receiver


def test_mimir_gets_the_rules_where_it_looks() -> None:
    (mimir,) = documents(CONFIGS / "scale/mimir.yml")
    place = mimir["ruler_storage"]["local"]["directory"]
    mounts = documents(CONFIGS / "scale/backends.yml")[0]["services"]["mimir"]["volumes"]
    assert sum(mount.split(":")[1].startswith(f"{place}/anonymous/") for mount in mounts) == 2


def test_what_alertmanager_inhibits_exists() -> None:
    (config,) = documents(CONFIGS / "alertmanager.yml")
    named = re.findall(r'alertname=~?"([^"]+)"', str(config["inhibit_rules"]))
    assert {name for group in named for name in group.split("|")} <= set(rules.alerts())


@pytest.mark.parametrize("name", ["compose/docker-compose.yml", "scale/backends.yml"])
def test_docker_compose_is_what_its_specification_says_and_mounts_what_is_there(name: str) -> None:
    pytest.importorskip("check_jsonschema")
    file = CONFIGS / name
    accepted(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", file)
    (compose,) = documents(file)
    for service in compose["services"].values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            assert source in compose["volumes"] or (file.parent / source).exists(), source


def test_grafana_in_the_container_finds_the_dashboards() -> None:
    file = CONFIGS / "compose/docker-compose.yml"
    grafana = documents(file)[0]["services"]["grafana"]["volumes"]
    places = {mount.split(":")[1]: mount.split(":")[0] for mount in grafana}
    (provider,) = documents(rules.ROOT / "dashboards/grafana/provisioning/dashboards/trainmon.yaml")[0]["providers"]
    assert sorted((file.parent / places[provider["options"]["path"]]).glob("*.json"))


def test_kubernetes_manifests_are_what_its_schema_says(tmp_path: Path) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    manifests = documents(CONFIGS / "kubernetes/training-job.yaml")
    assert [manifest["kind"] for manifest in manifests] == ["ConfigMap", "Service", "Job"]
    for manifest in manifests:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    check_config(manifests[0]["data"]["monitor.json"], tmp_path)
    pod = manifests[2]["spec"]["template"]
    (pods,) = documents(CONFIGS / "prometheus-kubernetes.yml")[0]["scrape_configs"]
    kept = next(rule["regex"] for rule in pods["relabel_configs"] if rule.get("action") == "keep")
    (port,) = pod["spec"]["containers"][0]["ports"]
    assert re.fullmatch(kept, port["name"])
    assert "trainmon/run" in pod["metadata"]["labels"]


def test_the_slurm_job_is_a_script_and_writes_a_config_that_is_accepted(tmp_path: Path) -> None:
    file = CONFIGS / "slurm/train.sbatch"
    accepted("bash", "-n", file)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, body in {"scontrol": "echo node1", "srun": 'printf "%s\\n" "$@"'}.items():
        program = programs / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    told = {"SLURM_JOB_NAME": "run", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-2]", "HOME": str(tmp_path)}
    said = accepted("bash", file, env={**told, "PATH": f"{programs}:{os.environ['PATH']}"})
    config = tmp_path / "trainmon/run-7.config.json"
    assert f"--config '{config}' train.py" in said
    check_config(config.read_text(), tmp_path)


@needs_promtool
def test_the_collector_sends_on_all_that_it_receives(tmp_path: Path) -> None:
    (config,) = documents(CONFIGS / "collector/opentelemetry-collector.yaml")
    used: dict[str, set[str]] = {"receivers": set(), "processors": set(), "exporters": set()}
    for pipeline in config["service"]["pipelines"].values():
        for kind, names in used.items():
            names.update(pipeline[kind])
    assert used == {kind: set(config[kind]) for kind in used}
    scrape = tmp_path / "prometheus.yml"
    scrape.write_text(yaml.safe_dump(config["receivers"]["prometheus"]["config"]))
    assert "SUCCESS" in accepted("promtool", "check", "config", scrape)


def test_alloy_refers_to_blocks_that_exist() -> None:
    text = (CONFIGS / "collector/alloy.alloy").read_text(encoding="utf-8")
    code = re.sub(r"//.*", "", re.sub(r'"[^"\n]*"', lambda found: found[0].replace("/", "_"), text))
    assert code.count("{") == code.count("}")
    assert code.count("[") == code.count("]")
    blocks = {f"{kind}.{name}" for kind, name in re.findall(r'^([a-z_.]+) "([a-z]+)" \{', code, re.MULTILINE)}
    referred = set(re.findall(r"\b((?:discovery|prometheus|otelcol)\.[a-z_.]+)\.(?:targets|receiver|input)\b", code))
    assert referred
    assert referred <= blocks
    sinks = {block for block in blocks if re.search(r"remote_write|exporter", block)}
    assert sinks <= referred, "a block that nothing leads to"
