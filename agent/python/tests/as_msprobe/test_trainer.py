"""`TrainerMon` and `TrainerMonitorV2`: msprobe's calls, in every spelling that scripts use."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import trainmon
from support import runs, tiny
from support.configs import PARAMETERS
from trainmon import ConfigError, TrainerMon, TrainerMonitorV2

CONFIG: dict[str, Any] = {
    "targets": {},
    "format": "csv",
    "ops": ["min", "max", "mean", "norm", "nans", "zeros"],
    "ndigits": 12,
    **PARAMETERS,
    "xy_distribution": True,
    "all_xy": True,
    "mg_direction": True,
}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "out"))
    file = tmp_path / "monitor.json"
    file.write_text(json.dumps(CONFIG))
    return file


@pytest.mark.parametrize(
    "call",
    [
        lambda m, net, opt: m.set_monitor(
            net, grad_acc_steps=2, optimizer=opt, tp_group=None, dp_group=None, start_iteration=5
        ),
        lambda m, net, opt: m.set_monitor(net, opt, 2, None, None, 5),
        lambda m, net, opt: m.set_monitor(net, 2, opt, None, None, 5),
        lambda m, net, opt: m.set_monitor([net], optimizer=opt, grad_acc_steps=2, start_iteration=5),
        lambda m, net, opt: m.monitor_gnorm_with_ad(net, 2, opt, None, None, 5),
        lambda m, net, opt: (m.set_wrapped_optimizer(opt), m.set_monitor(net, 2, start_iteration=5)),
        lambda m, net, opt: (
            m.set_wrapped_optimizer(opt),
            m.monitor_gnorm_with_ad(net, grad_acc_steps=2, start_iteration=5),
        ),
    ],
    ids=["keywords", "order of the code", "order of the docs", "list", "old name", "wrapped", "wrapped, old name"],
)
def test_every_spelling_attaches(config: Path, call: Any) -> None:
    net, optimizer = tiny.training()
    monitor = TrainerMon(config, params_have_main_grad=False)
    call(monitor, net, optimizer)
    tiny.train(net, optimizer, 1, micro_batches=2)
    monitor.close()
    run = runs.run_directory(config.parent / "out", 0)
    rows = runs.by_name(runs.rows(run, "grad_unreduced"), 5)
    first = next(tiny.reference(1, 1, micro_batches=2))
    for name, gradient in first.local[0].items():
        runs.assert_shows(rows[name], gradient)


def test_main_grad_is_the_default_and_its_absence_no_fault(config: Path) -> None:
    net, optimizer = tiny.training()
    monitor = TrainerMon(str(config))
    monitor.set_monitor(net, optimizer=optimizer)
    for parameter in net.parameters():
        parameter.main_grad = torch.full_like(parameter, 3.0)  # type: ignore[attr-defined]
    del net.head.weight.main_grad  # type: ignore[union-attr]
    tiny.train(net, optimizer, 1)
    monitor.close()
    rows = runs.by_name(runs.rows(runs.run_directory(config.parent / "out", 0), "grad_reduced"), 0)
    assert rows["ln.weight"]["max"] == "3.0"
    runs.assert_shows(rows["head.weight"], next(tiny.reference(1, 1)).mean["head.weight"])


def test_a_faulty_config_ends_the_job_at_once(tmp_path: Path) -> None:
    file = tmp_path / "monitor.json"
    file.write_text('{"wg_distributon": true, "eps": -1}')
    with pytest.raises(ConfigError) as caught:
        TrainerMon(file)
    text = str(caught.value)
    assert "monitor.json:1:2" in text and "wg_distribution" in text and "eps" in text
    with pytest.raises(ConfigError, match="cannot read the config file"):
        TrainerMon(tmp_path / "absent.json")
    with pytest.raises(ValueError, match="MindSpore"):
        TrainerMonitorV2(file, fr="mindspore")


def test_bad_counts_are_replaced_and_said(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    net, optimizer = tiny.training()
    monitor = TrainerMon(config)
    monitor.set_monitor(net, optimizer=optimizer, grad_acc_steps=0, start_iteration="3")  # type: ignore[arg-type]
    tiny.train(net, optimizer, 1)
    monitor.close()
    said = capfd.readouterr().err
    assert "`grad_acc_steps`: expected an integer of at least 1, found 0" in said
    assert "`start_iteration`: expected an integer of at least 0, found '3'" in said
    TrainerMon(config).set_monitor(net)
    assert "no optimizer was passed" in capfd.readouterr().err


def test_metrics_can_be_pulled(config: Path) -> None:
    net, optimizer = tiny.training()
    monitor = TrainerMon(config, params_have_main_grad=False)
    monitor.set_monitor(net, optimizer=optimizer)
    first = next(tiny.reference(1, 1))
    tiny.loss_of(net, 0, 0).backward()
    post, pre = monitor.generate_wgrad_metrics({"0:head.weight/rank0/post_grad": net.head.weight.grad})
    assert set(post["0:head.weight/rank0/post_grad"]) == set(CONFIG["ops"])
    for metrics, tag in ((post, "post_grad"), (pre, "pre_grad")):
        norm = metrics[f"0:head.weight/rank0/{tag}"]["norm"]
        assert float(norm) == pytest.approx(float(first.mean["head.weight"].double().norm()))
    assert len(pre) == len(first.mean)
    activations, gradients = monitor.generate_xy_metrics()
    assert "0:layers.0.fc1.input:0/rank0/actv" in activations
    assert "0:layers.0.fc1.output:0/rank0/actv_grad" in gradients
    optimizer.step()
    post, _ = monitor.generate_wgrad_metrics()
    assert len(post) == len(first.mean)
    monitor.close()
    assert TrainerMon(config).generate_wgrad_metrics() == ({}, {})


def test_statistics_change_in_mid_run(config: Path) -> None:
    net, optimizer = tiny.training()
    monitor = TrainerMon(config, params_have_main_grad=False)
    monitor.set_monitor(net, optimizer=optimizer)
    assert monitor.ops == CONFIG["ops"]
    tiny.train(net, optimizer, 1)
    monitor.ops = ["max", "sum"]
    assert monitor.ops == ["max"]
    tiny.train(net, optimizer, 1)
    monitor.ops = ["nothing"]
    assert monitor.ops == ["norm"]
    monitor.close()
    run = runs.run_directory(config.parent / "out", 0)
    headers = [(run / f"grad_reduced_{step}-{step}.csv").read_text().splitlines()[0] for step in range(2)]
    assert headers == [
        "vpp_stage,name,step,min,max,mean,norm,nans,zeros,shape,dtype",
        "vpp_stage,name,step,max,shape,dtype",
    ]


def test_any_tensor_can_be_shown(config: Path) -> None:
    net, optimizer = tiny.training()
    monitor = TrainerMon(config, params_have_main_grad=False)
    monitor.set_monitor(net, optimizer=optimizer)
    shown = torch.arange(12.0).view(3, 4)
    monitor.adhoc_check(shown, "router", "logits", [], ["norm", "max"])
    monitor.adhoc_check(shown, "router", "elsewhere", [3], ["norm"])
    tiny.train(net, optimizer, 1)
    monitor.close()
    rows = runs.by_name(runs.rows(runs.run_directory(config.parent / "out", 0), "adhoc"), 0)
    assert set(rows) == {"router.logits"}
    runs.assert_shows(rows["router.logits"], shown)


def test_modules_can_be_hooked_anew(config: Path) -> None:
    net, optimizer = tiny.training()
    monitor = TrainerMon(config, params_have_main_grad=False)
    monitor.set_monitor(net, optimizer=optimizer)
    net.layers[0].fc2 = torch.nn.Sequential(net.layers[0].fc2)  # type: ignore[union-attr]
    monitor.reload_xy(xy_distribution=True)
    tiny.train(net, optimizer, 1)
    monitor.close()
    names = {row["name"] for row in runs.rows(runs.run_directory(config.parent / "out", 0), "actv")}
    assert "layers.0.fc2.0.input" in names


def test_v2_by_hand_and_by_itself(tmp_path: Path) -> None:
    monitors = {"weight_grad": {"enabled": True}, "param": {"enabled": True}, "module": {"enabled": False}}
    found = {}
    for by_hand in (True, False):
        place = tmp_path / str(by_hand)
        file = tmp_path / f"{by_hand}.json"
        file.write_text(
            json.dumps({"output_dir": str(place), "monitors": monitors, "patch_optimizer_step": not by_hand})
        )
        net, optimizer = tiny.training()
        monitor = TrainerMonitorV2(file, fr="torch")
        monitor.start(model=net, optimizer=optimizer, grad_acc_steps=1)
        for _ in range(2):
            tiny.train(net, optimizer, 1)
            monitor.step()
        monitor.stop()
        monitor.stop()
        tiny.train(net, optimizer, 1)
        found[by_hand] = {path.name: path.read_text() for path in (place / "rank_0").glob("[wp]*.csv")}
    assert found[True] == found[False]
    assert len(found[True]) == 4


def test_v2_without_an_optimizer_measures_what_it_sees(tmp_path: Path) -> None:
    file = tmp_path / "v2.json"
    file.write_text(json.dumps({"output_dir": str(tmp_path), "monitors": {"weight_grad": {"enabled": True}}}))
    net = tiny.model()
    monitor = TrainerMonitorV2(file)
    monitor.start(model=net)
    tiny.loss_of(net, 0, 0).backward()
    monitor.step()
    monitor.stop()
    rows = (tmp_path / "rank_0" / "weight_grad_step0-0.csv").read_text()
    assert "head.weight,unreduced" in rows and "head.weight,reduced" in rows


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that writes every kind of file, at the directory that holds its runs."""
    base = tmp_path_factory.mktemp("everything")
    features = {"linear_hook": [], "attention_hook": ["mixer"], "moe_router_weight_hook": ["router"]}
    features["moe_router_logit_hook"] = ["router"]
    config = {
        **CONFIG,
        "layout": "msprobe",
        "update": True,
        "stack_info": True,
        "recording_l2_features": True,
        "l2_targets": features,
    }

    class Mixer(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            return q + k

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lift, self.mixer, self.router = torch.nn.Linear(8, 8), Mixer(), torch.nn.Linear(8, 4)
            self.slow = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            lifted: torch.Tensor = self.mixer(self.lift(x), x)
            # Called twice: that is no second micro-batch.
            return self.slow(self.slow(self.router(lifted)))  # type: ignore[no-any-return]

    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), amsgrad=True)
    with trainmon.watch(net, optimizer, config=config, output_dir=str(base)):
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.randn(6, 2, 2, 8)).square().sum().backward()
            optimizer.step()
    return base


KINDS = {
    "actv", "actv_grad", "grad_unreduced", "grad_reduced", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "param_origin",
    "param_updated", "update", "update_ratio", "other", "linear_hook", "attention_hook", "moe_router_weight_hook",
    "moe_router_logit_hook",
}  # fmt: skip


def test_pandas_reads_every_file(everything: Path) -> None:
    run = runs.run_directory(everything, 0)
    assert {path.stem.rsplit("_", 1)[0] for path in run.glob("*_[0-9]*.csv")} >= KINDS
    for file in sorted(run.glob("*.csv")):
        frame = pd.read_csv(file)
        assert len(frame) > 0, file.name
        text = file.read_text()
        assert not frame.columns.str.contains("Unnamed").any(), file.name
        numbers = [column for column in ("norm", "mean", "sr", "entropy", "grad_norm") if column in frame]
        assert all(frame[column].dtype.kind in "fi" for column in numbers), f"{file.name}: {text[:200]}"


def test_msprobe_imports_our_run(everything: Path, tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "msprobe"
    if not program.exists():
        pytest.skip("msprobe (mindstudio-probe) is not installed")
    command = [str(program), "data2db", "--db", str(tmp_path), "--data", str(everything), "--format", "monitor"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    database = sqlite3.connect(tmp_path / "monitor_data.trend.db")
    metrics = {name for (name,) in database.execute("select metric_name from monitoring_metrics")}
    assert {"actv", "actv_grad", "grad_unreduced", "grad_reduced", "exp_avg", "exp_avg_sq", "param_origin"} <= metrics
    assert database.execute("select min_step, max_step from global_stats").fetchall() == [(0, 2)], "three steps"
    asked = (
        "select d.norm from trend_data d join monitoring_targets t using (target_id) "
        "join monitoring_metrics m using (metric_id) where m.metric_name = ? and t.target_name = ? and d.step = ?"
    )
    rows = runs.by_name(runs.rows(runs.run_directory(everything, 0), "grad_reduced"), 2)
    for name, row in rows.items():
        ((norm,),) = database.execute(asked, ("grad_reduced", name, 2)).fetchall()
        assert norm == pytest.approx(float(row["norm"]))


#: Every key of msprobe's monitor with values that it takes, whether anything stands behind them here or not.
MSPROBE_TAKES: dict[str, list[Any]] = {
    "targets": [{}, {"0": {"input": "tuple[2]:0"}}, {"": {}}],
    "dynamic_on": [True],
    "start_step": [3],
    "collect_times": [0, 5],
    "step_interval": [2],
    "print_struct": [True],
    "module_ranks": [[0, 1]],
    "ur_distribution": [True],
    "xy_distribution": [True],
    "all_xy": [True],
    "forward_only": [True],
    "backward_only": [True],
    "mv_distribution": [True],
    "wg_distribution": [True],
    "param_distribution": [True],
    "mg_direction": [True],
    "mg_distribution": [True],
    "monitor_mbs_grad": [True],
    "cc_distribution": [
        {"enable": True, "cc_codeline": ["train.py"], "cc_pre_hook": True},
        {"enable": True, "cc_log_only": True},
        {"cc_codeline": []},
    ],
    "alert": [
        {"rules": [{"rule_name": "AnomalyTurbulence", "args": {"threshold": 0.5}}], "dump": True},
        {"rules": [{"rule_name": "AnomalyNan"}, {"rule_name": "AnomalyNan", "args": {"threshold": 3}}]},
        {"rules": []},
    ],
    "format": ["csv", "tensorboard", "api"],
    "ops": [["norm", "id", "zeros", "nans", "mean", "min", "max", "shape", "dtype"], []],
    "eps": [1e-5],
    "ndigits": [12],
    "step_count_per_record": [4],
    "append_output": [[], ["Dec03_21-34-40", "Dec03_21-34-41"]],
    "squash_name": [True],
    "stack_info": [True],
    "recording_l2_features": [True],
    "l2_targets": [{"linear_hook": [], "attention_hook": ["0"]}],
    "sa_order": ["b,s,h,d", "s,b,h,d"],
    "opt_ty": ["Megatron_DistributedOptimizer"],
}


def test_no_key_of_msprobes_ends_a_training(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    given = [{key: value} for key, values in MSPROBE_TAKES.items() for value in values]
    utils = pytest.importorskip("msprobe.core.monitor.utils")
    for one in given:
        utils.validate_config(json.loads(json.dumps(one)))
        config.write_text(json.dumps(one))
        TrainerMon(config)
    net = tiny.model()
    for one, named in (
        ({"cc_distribution": {"enable": True, "cc_codeline": ["train.py"]}}, None),
        ({"format": "api"}, "format"),
    ):
        config.write_text(json.dumps({"wg_distribution": True, **one}))
        capfd.readouterr()
        monitor = TrainerMon(config, params_have_main_grad=False)
        monitor.set_monitor(net, optimizer=tiny.optimizer_of(net))
        monitor.close()
        said = capfd.readouterr().err
        assert ("not implemented yet; it has no effect" in said) == (named is not None), said
        assert named is None or f"`{named}`" in said, said


def test_attaching_again_takes_the_first_ones_place(config: Path) -> None:
    net, optimizer = tiny.training()
    monitor = TrainerMon(config, params_have_main_grad=False)
    for first in (0, 7):
        monitor.set_monitor(net, optimizer=optimizer, start_iteration=first)
        tiny.train(net, optimizer, 1)
    monitor.close()
    steps = sorted(line["step"] for run in (config.parent / "out").iterdir() for line in runs.steps(run))
    assert steps == ["0", "7"]


def test_an_optimizer_that_stands_twice_in_a_list_is_refused(tmp_path: Path) -> None:
    net = tiny.model()
    with pytest.raises(TypeError, match="the list has the same one twice"):
        trainmon.watch(net, [tiny.optimizer_of(net)] * 2, config=CONFIG, output_dir=str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_the_import_brings_no_torch() -> None:
    code = "import sys, trainmon; print(sorted({'torch', 'numpy', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.strip() == "[]"
