"""A real Prometheus and a real Alertmanager with this repository's rules in fast motion, and a webhook's receiver."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import yaml

from support import rules
from support.ranks import free_port
from support.waiting import eventually

#: How much faster time runs in rules and routes: ten minutes are 20 s. Scrapes are once a second instead of in 15.
FACTOR = 30
PROGRAMS = ("prometheus", "prometheus-alertmanager")
#: Bounds a broken test, not a working one.
PATIENCE_S = 300

Found = TypeVar("Found")


def missing() -> list[str]:
    """What this machine lacks."""
    return [program for program in PROGRAMS if shutil.which(program) is None]


def wait_for(what: str, found: Callable[[], Found | None]) -> Found | None:
    """Asks the servers, which are slow, until there is something."""
    return eventually(found, within=PATIENCE_S, pause=0.1, what=what)


class Webhook:
    """Receives what Alertmanager sends."""

    def __init__(self) -> None:
        received: list[dict[str, Any]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                received.append({"path": self.path, **body})
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.received = received
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def alerts(self, status: str) -> set[tuple[str, str]]:
        """Run and name of the alerts that came with this status: `firing` or `resolved`."""
        sent = [alert for message in list(self.received) for alert in message["alerts"] if alert["status"] == status]
        return {(alert["labels"]["run"], alert["labels"]["alertname"]) for alert in sent}

    def close(self) -> None:
        """Receives no more."""
        self._server.shutdown()


class Servers:
    """Both servers on ports of their own, with `directory/targets/*.json` as targets. Ended by `close`."""

    def __init__(self, directory: Path) -> None:
        (directory / "targets").mkdir()
        self.webhook = Webhook()
        manager = f"127.0.0.1:{free_port()}"
        self.address = f"127.0.0.1:{free_port()}"
        prometheus = _prometheus_config(directory, manager)
        alertmanager = _alertmanager_config(directory, self.webhook.port)
        commands = [
            [
                "prometheus",
                f"--config.file={prometheus}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={self.address}",
            ],
            [
                "prometheus-alertmanager",
                f"--config.file={alertmanager}",
                f"--storage.path={directory / 'alertmanager'}",
                f"--web.listen-address={manager}",
                "--cluster.listen-address=",
            ],
        ]
        self._log = (directory / "servers.log").open("w")
        self._processes = [subprocess.Popen(words, stdout=self._log, stderr=subprocess.STDOUT) for words in commands]
        for address in (self.address, manager):
            wait_for(f"server at {address}", lambda address=address: is_ready(address))

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query."""
        told = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"http://{self.address}/api/v1/query?{told}", timeout=30) as answer:
                result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode()}") from error
        return result

    def fired(self, window: str = "1h") -> set[tuple[str, str]]:
        """Run and name of every alert that fired within the window."""
        series = self.query(f'max by (run, alertname) (max_over_time(ALERTS{{alertstate="firing"}}[{window}]))')
        return {(one["metric"]["run"], one["metric"]["alertname"]) for one in series}

    def close(self) -> None:
        """Ends the servers."""
        for process in self._processes:
            process.kill()
            process.wait()
        self.webhook.close()
        self._log.close()


def is_ready(address: str) -> bool:
    """Whether a server of Prometheus takes requests there."""
    try:
        with urllib.request.urlopen(f"http://{address}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _prometheus_config(directory: Path, alertmanager: str) -> Path:
    """`configs/prometheus.yml` with scrapes once a second, the rules in fast motion and this test's Alertmanager."""
    config = yaml.safe_load((rules.ROOT / "configs/prometheus.yml").read_text(encoding="utf-8"))
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    (manager,) = config["alerting"]["alertmanagers"]
    manager["static_configs"] = [{"targets": [alertmanager]}]
    for file in config["rule_files"]:
        rules.write_scaled(Path(file).name, FACTOR, directory)
    config["rule_files"] = [Path(file).name for file in config["rule_files"]]
    for job in config["scrape_configs"]:
        for discovery in job["file_sd_configs"]:
            discovery["refresh_interval"] = "1s"
    path = directory / "prometheus.yml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def _alertmanager_config(directory: Path, port: int) -> Path:
    """`configs/alertmanager.yml` with its times in fast motion and this test's receiver."""
    text = (rules.ROOT / "configs/alertmanager.yml").read_text(encoding="utf-8")
    config = yaml.safe_load(text.replace("127.0.0.1:8080", f"127.0.0.1:{port}"))
    for route in (config["route"], *config["route"]["routes"]):
        for key in ("group_wait", "group_interval", "repeat_interval"):
            if key in route:
                route[key] = rules.scaled(route[key], FACTOR)
    path = directory / "alertmanager.yml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path
