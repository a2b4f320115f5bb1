"""The scenario of the tests with real servers: runs with faults, runs without, and what Prometheus said of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import command, dashboards, forks, rendering, rules
from support.alert_servers import Servers, wait_for
from support.ranks import SCRIPTS, free_port, variables_of_a_rank

#: Steps that the detectors learn from before something goes wrong.
LEARNT = 80
#: The alerts that each run must get, and no others.
EXPECTED = {
    "clean": set(),
    "spike": {"GradNormSpike"},
    "nan": {"TrainingNonFinite"},
    "dead": {"DeadLayer"},
    "stopped-rank": {"RankMetricsMissing", "TrainingStalled"},
    "stalled": {"TrainingStalled", "TrainingStallFound"},
    "killed": {"TrainingUnreachable"},
    # Each rank has half of every parameter.
    "sharded": set(),
}
#: Is there for its collective operations. What it gets is not judged: on shared cores either rank may be the late one.
MPI_RUN = "data-parallel"
#: All of them: what a dashboard is asked for that is not of one.
ALL_RUNS = "all runs"
#: What the dashboards show, in seconds: longer than it takes from the faults to their alerts.
SHOWN_S = 300
#: The script's word for what is wrong with a run, where the script does it.
FAULTS = {"spike": "spike", "nan": "nan", "dead": "dead", "stalled": "stall"}
RULES: list[dict[str, Any]] = [
    {"rule_name": "Spike"},
    {"rule_name": "NonFinite"},
    {"rule_name": "Dead"},
    {"rule_name": "NormMismatch"},
    {"rule_name": "Vanishing"},
    {"rule_name": "Drift"},
]
#: In the run that stalls, in the time of the rules.
STALL = {"rule_name": "Stall", "args": {"seconds": 3}}
#: Steps of the clean run, on which nothing fires.
CLEAN_STEPS = 2000


def check_config(text: str, directory: Path) -> None:
    """Asserts that `trainmon check-config` has nothing to say of a training's config."""
    config = directory / "monitor.json"
    config.write_text(text)
    done = command.trainmon("check-config", config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stdout + done.stderr, done.stdout + done.stderr


@dataclass
class Scenario:
    """What the servers said."""

    servers: Servers
    #: The series of every expression, asked while alerts fired.
    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    #: Every panel as Grafana would have shown it, by the run that is chosen; none where Grafana's library is missing.
    screens: dict[str, rendering.Screen] = field(default_factory=dict)
    #: Whether the training over MPI could run here.
    has_collectives: bool = False
    clean_steps: int = 0


class Jobs:
    """The trainings."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.processes: dict[tuple[str, int], int] = {}
        self._mpi: subprocess.Popen[bytes] | None = None

    def start(self, run: str, ranks: int) -> None:
        """Starts a run of the script in fast motion."""
        place = self._directory / run
        place.mkdir()
        watched = RULES + ([STALL] if run == "stalled" else [])
        (place / "config.json").write_text(json.dumps(self._config(place, watched)))
        told = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        order = FAULTS.get(run, "sharded" if run == "sharded" else None)
        words = [str(SCRIPTS / "on_call_train.py"), "config.json", *([order] if order else [])]
        for rank in range(ranks):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "TRAINMON_RUN_NAME": run}
            with (place / f"log{rank}").open("w") as log, Path(os.devnull).open() as nothing:
                files = (nothing.fileno(), log.fileno(), log.fileno())
                child = forks.server().start(words, variables_of_a_rank({**told, **own}), place, files)
            self.processes[run, rank] = child

    def start_data_parallel(self) -> bool:
        """Starts the example that averages gradients over MPI: its collective operations are measured."""
        program = command.program().parent / "examples/data_parallel"
        if not program.is_file() or shutil.which("mpirun") is None:
            return False
        place = self._directory / MPI_RUN
        place.mkdir()
        config = self._config(place, RULES) | {"cc_distribution": {"enable": True}}
        (place / "config.json").write_text(json.dumps(config))
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "TMPDIR": str(place)}
        allowed |= {
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
            # A rank that waits must not take the others' cores.
            "OMPI_MCA_mpi_yield_when_idle": "1",
        }
        words = ["mpirun", "-n", "2", str(program), "--config", "config.json", "--out", "out", "--steps", "1000000"]
        with (place / "log").open("w") as log:
            self._mpi = subprocess.Popen(
                [*words, "--pause", "40"],
                env={**variables_of_a_rank(), **allowed},
                cwd=place,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return True

    def signal(self, run: str, rank: int, number: int) -> None:
        """Sends a signal to a rank."""
        os.kill(self.processes[run, rank], number)

    def expect_running(self, but: set[str]) -> None:
        """Asserts that no rank has ended by itself, but of these runs."""
        for (run, rank), child in self.processes.items():
            # One that has ended stays a zombie of the process that forked it.
            state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
            log = self._directory / run / f"log{rank}"
            assert state != "Z" or run in but, f"rank {rank} of {run} has ended:\n{log.read_text()[-4000:]}"

    def account_of(self, run: str) -> str:
        """What a run that does not go on is at: the state of its threads, its stacks (it ends of it) and its log."""
        told = []
        for rank in (rank for name, rank in self.processes if name == run):
            child = self.processes[run, rank]
            for task in sorted(Path(f"/proc/{child}/task").iterdir()):
                state, waits_in = [(task / file).read_text().strip() for file in ("stat", "wchan")]
                told.append(f"{state.partition(')')[0].partition('(')[2]}: {state.rpartition(')')[2][:2]} {waits_in}")
            os.kill(child, signal.SIGABRT)
            time.sleep(2)
            told.append((self._directory / run / f"log{rank}").read_text()[-8000:])
        return "\n".join(told)

    def close(self) -> None:
        """Ends all of them."""
        for child in self.processes.values():
            forks.kill(child)
        if self._mpi is not None:
            # It ends its ranks; killed it could not.
            self._mpi.terminate()
            self._mpi.wait()

    def _config(self, place: Path, watched: list[dict[str, Any]]) -> dict[str, Any]:
        targets = self._directory / "targets" / f"{place.name}.json"
        return {
            "ops": ["min", "max", "mean", "norm", "nans", "zeros"],
            "wg_distribution": True,
            "mv_distribution": True,
            "param_distribution": True,
            "update": True,
            "format": ["csv", "prometheus"],
            "output_dir": "out",
            "prometheus": {"port": 0, "target_file": str(targets), "per_parameter": True},
            "journal": {"enabled": True},
            "alert": {"rules": watched},
            # A limit that is never reached: these steps are so short that any measuring is a large share of them.
            "overhead_budget": 100,
            # Steps of a hundredth of a second on shared cores: room for those that wait until a thread has its turn.
            **({"queue_steps": CLEAN_STEPS} if place.name == "clean" else {}),
        }


def screens_of_now(servers: Servers) -> dict[str, rendering.Screen]:
    """Every panel with the time since the faults: of each run, or once where it shows all of them."""
    if rendering.missing():
        return {}
    now = int(time.time())

    def screen(run: str, of_all: bool) -> rendering.Screen:
        files = [file for file in dashboards.FILES if dashboards.has_all_runs(file) == of_all]
        filled = {**dashboards.FILLED, "$__range": f"{SHOWN_S}s", "$run": run}
        window = rendering.Window(now - SHOWN_S, now, filled)
        return rendering.render(servers.address, rendering.all_panels(files), window)

    return {ALL_RUNS: screen(".*", True)} | {run: screen(run, False) for run in (*EXPECTED, MPI_RUN)}


def play(scenario: Scenario, jobs: Jobs, directory: Path) -> Scenario:
    """Everything once: start, faults, all expected alerts, every expression asked, release, all alerts over."""
    servers = scenario.servers
    scenario.has_collectives = jobs.start_data_parallel()
    for run in EXPECTED:
        jobs.start(run, 2 if run in {"clean", "stopped-rank", "sharded"} else 1)

    expected = {(run, alert) for run, alerts in EXPECTED.items() for alert in alerts}
    killed: set[str] = set()

    def wait(what: str, found: Callable[[], bool]) -> None:
        def checked() -> bool:
            jobs.expect_running(killed)
            return found()

        wait_for(what, checked)

    def wait_until_sent(status: str) -> None:
        for one in sorted(expected):
            alert = f"{status} {one[1]} of {one[0]} at the webhook"
            wait(alert, lambda one=one: one in servers.webhook.alerts(status))

    def step_of(run: str) -> int:
        series = servers.query(f'min(trainmon_step{{run="{run}"}})')
        return int(float(series[0]["value"][1])) if series else -1

    def wait_until_learnt(run: str) -> None:
        try:
            wait(f"step {LEARNT} of {run}", lambda: step_of(run) >= LEARNT)
        except AssertionError as error:
            last = f"Prometheus has step {step_of(run)} of it"
            raise AssertionError(f"{error}; {last}; it is at:\n{jobs.account_of(run)}") from error

    # As Prometheus sees it: an increase is from one scrape to another, so that each run must be known before its fault.
    for run in (*FAULTS, "stopped-rank", "killed"):
        wait_until_learnt(run)
    for run in FAULTS:
        (directory / run / "fault").touch()
    jobs.signal("stopped-rank", 1, signal.SIGSTOP)
    killed.add("killed")
    jobs.signal("killed", 0, signal.SIGKILL)
    wait_until_sent("firing")
    curves = [dashboards.filled(one.expression) for one in dashboards.expressions()]
    asked = [selector for rule in rules.all_rules() for selector in rules.selectors(rule["expr"])]
    asked += [rule["record"] for rule in rules.all_rules() if "record" in rule]
    scenario.answers = {expression: servers.query(expression) for expression in asked}
    # A curve may be over by now: a layer is dead for some steps.
    lately = "last_over_time(({})[" + f"{SHOWN_S}s:1s])"
    scenario.answers |= {curve: servers.query(curve) or servers.query(lately.format(curve)) for curve in curves}
    scenario.screens = screens_of_now(servers)
    # Over with it.
    jobs.signal("stopped-rank", 1, signal.SIGCONT)
    (directory / "stalled" / "go").touch()
    (directory / "targets" / "killed.rank0.json").unlink()
    wait_until_sent("resolved")
    # Up to here its steps were as long as the others', so that rules which look at times saw the usual ones.
    (directory / "clean" / "hurry").touch()
    wait(f"step {CLEAN_STEPS} of the clean run", lambda: step_of("clean") >= CLEAN_STEPS)
    scenario.clean_steps = step_of("clean")
    return scenario
