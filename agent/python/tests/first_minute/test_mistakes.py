"""Wrong use that shows with the training; scripts that were written for msprobe go on; whose fault it is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainmon
from support import runs
from support.first_minute import GRADIENTS, Said, Wrapped, a_model, half_set, scheduler, train


def test_a_model_without_trained_parameters_is_told(model: nn.Module, optimizer: Any, said: Said) -> None:
    model.requires_grad_(False)
    trainmon.watch(model, optimizer, config=GRADIENTS).close()
    assert "warning: none of the model's 4 parameters requires a gradient" in said()
    trainmon.watch(nn.Tanh(), None, config=GRADIENTS).close()
    assert "warning: the model has no parameters" in said()
    trainmon.watch(model, optimizer, config={"xy_distribution": True}).close()
    assert "requires a gradient" not in said(), "activations need none"


@pytest.mark.parametrize(
    ("targets", "signal", "words"),
    [
        ({"0.wieght": {}}, "wg_distribution", ["`0.wieght` matches nothing", "similar names: `0.weight`"]),
        ({"weight": {}, "bias": {}}, "wg_distribution", ["`weight`, `bias` match nothing", "`0.weight`"]),
        ({"0.weight": {}}, "xy_distribution", ["`0.weight` matches nothing", "`0`"]),
        ({"2": {}}, "xy_distribution", []),
        ({"2.we": {}}, "wg_distribution", []),
        ({}, "wg_distribution", []),
    ],
)
def test_targets_that_name_nothing_are_told_with_the_nearest_names(
    model: nn.Module, optimizer: Any, said: Said, targets: Any, signal: str, words: list[str]
) -> None:
    trainmon.watch(model, optimizer, config={signal: True, "targets": targets}).close()
    heard = said()
    assert ("warning: `targets`" in heard) == bool(words)
    assert all(word in heard for word in words), heard


def test_an_optimizer_without_moments_is_told_once_at_the_first_step(model: nn.Module, said: Said) -> None:
    config = {"mv_distribution": True, "ops": ["norm"]}
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainmon.watch(model, plain, config=config):
        said()
        train(model, plain, 1)
        assert "warning: `mv_distribution` is set, but SGD keeps no moments" in said()
        train(model, plain, 2)
        assert said() == ""
    for kept in (
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        torch.optim.AdamW(model.parameters()),
        torch.optim.Adafactor(model.parameters()),
        torch.optim.RMSprop(model.parameters()),
    ):
        with trainmon.watch(model, kept, config=config):
            train(model, kept, 2)
        assert "no moments" not in said(), kept
    with trainmon.watch(model, plain):
        train(model, plain, 1)
    heard = said()
    assert "SGD keeps no moments" in heard
    assert "warning" not in heard and "hint" not in heard, "a default is no request"


def test_a_second_watch_of_the_same_training_takes_over(
    model: nn.Module, optimizer: Any, here: Path, said: Said
) -> None:
    first = trainmon.watch(model, optimizer, config=GRADIENTS, output_dir=here / "first")
    train(model, optimizer, 1)
    said()
    wrapped = Wrapped(optimizer)
    second = trainmon.watch(nn.ModuleList([model]), wrapped, config=GRADIENTS, output_dir=here / "second")
    heard = said()
    assert "warning: this model and optimizer are watched already: closed the earlier watch (its files: " in heard
    assert str(here / "first") in heard
    train(model, wrapped, 2)
    second.close()
    assert len(runs.steps(runs.run_directory(here / "first", 0))) == 1
    assert len(runs.steps(runs.run_directory(here / "second", 0))) == 2
    first.close()
    third = trainmon.watch(model, optimizer, config=GRADIENTS, output_dir=here / "third")
    third.close()
    assert "watched already" not in said(), "the others are closed"


def test_a_faulty_config_leaves_the_watch_that_there_is(model: nn.Module, optimizer: Any, here: Path) -> None:
    with trainmon.watch(model, optimizer, config=GRADIENTS):
        with pytest.raises(trainmon.ConfigError):
            trainmon.watch(model, optimizer, config={"ops": 1})
        train(model, optimizer, 2)
    assert len(runs.steps(runs.run_directory(here / "monitor_output", 0))) == 2


@pytest.mark.parametrize(
    "name",
    ["", "a/b", "a\nb", ".", "..", "latest", "x" * 129, "ä" * 65, "\udc80", 5],
    ids=["empty", "slash", "line", "dot", "dots", "latest", "long", "long in bytes", "surrogate", "number"],
)
def test_a_faulty_name_leaves_the_watch_that_there_is(
    model: nn.Module, optimizer: Any, here: Path, said: Said, name: Any
) -> None:
    with trainmon.watch(model, optimizer, config=GRADIENTS):
        with pytest.raises((ValueError, TypeError)):
            trainmon.watch(model, optimizer, config=GRADIENTS, name=name)
        train(model, optimizer, 2)
    assert len(runs.steps(runs.run_directory(here / "monitor_output", 0))) == 2
    assert "watched already" not in said()


def test_a_config_file_is_read_once(
    model: nn.Module, optimizer: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainmon.common import settings

    file = here / "monitor.json"
    file.write_text('{"wg_distribution": true}')
    read: list[Any] = []
    original = settings.read_config
    monkeypatch.setattr(settings, "read_config", lambda one: (read.append(one), original(one))[1])
    trainmon.watch(model, optimizer, config=file, output_dir=here / "out").close()
    assert read == [file]


@pytest.mark.parametrize("name", [None, "baseline", "ä" * 64], ids=["none", "short", "longest"])
def test_what_the_earlier_watch_holds_is_free_for_the_next(
    model: nn.Module, optimizer: Any, said: Said, name: str | None
) -> None:
    first = trainmon.watch(model, optimizer, config=GRADIENTS)
    monitor = first.monitor
    was_over: list[bool] = []
    from trainmon.watches import startup

    start = startup.start_monitor

    def starts(*args: Any, **kwargs: Any) -> Any:
        # Set where it delivers: what nobody lists any more may still hold its files and its port.
        was_over.append(first._is_closed)
        return start(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(startup, "start_monitor", starts)
        trainmon.watch(model, optimizer, config=GRADIENTS, name=name).close()
    assert was_over == [True] and monitor.shutdown()
    assert "watched already" in said()


def test_models_that_share_a_parameter_and_an_optimizer_have_a_watch_each(here: Path, said: Said) -> None:
    encoder, decoder = a_model(), a_model()
    decoder[0].weight = encoder[0].weight  # type: ignore[index]
    both = nn.ModuleList([encoder, decoder])
    optimizer = torch.optim.SGD(both.parameters(), lr=0.1)
    watches = [
        trainmon.watch(one, optimizer, config=GRADIENTS, output_dir=here / name)
        for one, name in ((encoder, "encoder"), (decoder, "decoder"))
    ]
    assert "watched already" not in said()
    for model in (encoder, decoder):
        model(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()
    for watch in watches:
        watch.close()
    assert [len(runs.steps(runs.run_directory(here / name, 0))) for name in ("encoder", "decoder")] == [1, 1]


def test_two_optimizers_of_a_model_have_a_watch_each(model: nn.Module, here: Path, said: Said) -> None:
    halves = [torch.optim.SGD(model[number].parameters(), lr=0.1) for number in (0, 2)]  # type: ignore[index]
    watches = [
        trainmon.watch(model, one, config=GRADIENTS, output_dir=here / str(number)) for number, one in enumerate(halves)
    ]
    for one in halves:
        train(model, one, 2)
    for watch in watches:
        watch.close()
    assert "warning" not in said()
    assert [len(runs.steps(runs.run_directory(here / str(number), 0))) for number in range(2)] == [2, 2]


# Scripts that were written for msprobe go on.


def test_with_msprobes_import_a_rank_that_cannot_be_told_is_a_warning(
    model: nn.Module, optimizer: Any, here: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "monitor.json").write_text(json.dumps(GRADIENTS))
    half_set(monkeypatch)
    monitor = trainmon.TrainerMon("monitor.json", params_have_main_grad=False)
    monitor.set_monitor(model, optimizer=optimizer)
    second = trainmon.TrainerMonitorV2("monitor.json")
    second.start(model, optimizer)
    heard = said()
    assert heard.count("trainmon: warning: cannot determine the rank of this process") == 2, heard
    assert heard.count("nothing is measured; training continues") == 2
    train(model, optimizer, 1)
    monitor.close()
    second.stop()
    assert not (here / "monitor_output").exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda model, optimizer: (model, scheduler(optimizer)), "found LambdaLR"),
        (lambda model, _: (model, torch.optim.AdamW(a_model().parameters())), "none of the parameters"),
        (lambda model, optimizer: (optimizer, model), "are swapped"),
        (lambda _, optimizer: (None, optimizer), "model: expected a torch.nn.Module"),
    ],
)
def test_with_msprobes_import_wrong_use_is_a_warning(given: Any, words: str, here: Path, said: Said) -> None:
    (here / "monitor.json").write_text(json.dumps({**GRADIENTS, "start_step": 4, "stop_step": 2}))
    model = a_model()
    optimizer = torch.optim.AdamW(model.parameters())
    its_model, its_optimizer = given(model, optimizer)
    monitor = trainmon.TrainerMon("monitor.json", params_have_main_grad=False)
    monitor.set_monitor(its_model, optimizer=its_optimizer)
    train(model, optimizer, 1)
    monitor.close()
    heard = said()
    assert f"trainmon: warning: {'model' if 'model' in words else ''}" in heard and words in heard, heard
    second = trainmon.TrainerMonitorV2("monitor.json")
    second.start(its_model, its_optimizer)
    second.stop()
    heard += said()
    assert "no step would be measured" in heard
    assert "please report" not in heard, heard


# Whose fault it is.


def test_what_the_trainings_own_code_raises_is_not_to_be_reported(model: nn.Module, optimizer: Any, said: Said) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = a_model()

        def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
            if sys._getframe(1).f_globals["__name__"] == "trainmon.measurement.parameters":
                raise RuntimeError("not now")
            return super().named_parameters(*args, **kwargs)

    own = Own()
    trainmon.watch(own, None, config=GRADIENTS).close()
    heard = said()
    assert "failed and is off" in heard and "RuntimeError: not now" in heard
    assert f"hint: the training's own code raised it: see `{__file__}`" in heard
    assert "please report" not in heard


def test_what_we_raise_is_to_be_reported(
    model: nn.Module, optimizer: Any, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainmon.signals.gradients import Gradients

    # Our own code, with what it does not expect.
    monkeypatch.setattr(Gradients, "close", lambda _: trainmon.watch(1, 2))  # type: ignore[arg-type]
    with trainmon.watch(model, optimizer, config=GRADIENTS):
        train(model, optimizer)
    assert said().count("hint: please report this line") == 1


def test_an_adhoc_check_of_what_is_no_tensor_is_counted_and_told(
    model: nn.Module, optimizer: Any, here: Path, said: Said
) -> None:
    (here / "monitor.json").write_text(json.dumps(GRADIENTS))
    monitor = trainmon.TrainerMon("monitor.json", params_have_main_grad=False)
    monitor.set_monitor(model, optimizer=optimizer)
    for _ in range(2):
        monitor.adhoc_check(3.0, "mlp", "out", 0, [])  # type: ignore[arg-type]
    monitor.adhoc_check(torch.ones(3), "mlp", "out", 0, [])  # type: ignore[arg-type]
    train(model, optimizer)
    monitor.close()
    heard = said()
    assert heard.count("adhoc of `mlp.out` is not measured: expected a tensor, found a float") == 1, heard
    assert "please report" not in heard
    assert len(runs.rows(runs.run_directory(here / "monitor_output", 0), "adhoc")) == 1
