"""Values that a script saves by itself: `save_tensor` and `SingleSave`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from trainmon import SingleSave, save_tensor


@pytest.fixture(autouse=True)
def modes_of_files() -> Iterator[None]:
    """They are compared."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def number_of(path: str, stem: str) -> int:
    name = Path(path).name
    assert name.startswith(f"{stem}_")
    assert name.endswith(".pt")
    return int(name[len(stem) + 1 : -3])


def test_saved_tensors_are_numbered_through_and_load_as_weights(tmp_path: Path) -> None:
    weight = nn.Parameter(torch.arange(6.0, dtype=torch.bfloat16).reshape(2, 3))
    first = save_tensor(weight, str(tmp_path / "weight.pt"))
    second = save_tensor(torch.ones(2), str(tmp_path / "other"))
    third = save_tensor(weight * 2, str(tmp_path / "weight"))
    numbers = [number_of(first, "weight"), number_of(second, "other"), number_of(third, "weight")]
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2], "one counter for the process"
    loaded = torch.load(first, weights_only=True)
    assert type(loaded) is torch.Tensor
    assert not loaded.requires_grad
    assert loaded.dtype == torch.bfloat16
    assert torch.equal(loaded, weight.detach())
    assert torch.equal(torch.load(third, weights_only=True), weight.detach() * 2)
    assert sorted(tmp_path.iterdir()) == sorted(Path(one) for one in (first, second, third)), "and nothing beside them"
    assert {mode_of(Path(one)) for one in (first, second, third)} == {0o640}


def test_of_a_saved_view_only_its_own_elements_are_written(tmp_path: Path) -> None:
    whole = torch.arange(1 << 20, dtype=torch.float32).reshape(1024, 1024)
    path = Path(save_tensor(whole[3], str(tmp_path / "row")))
    assert torch.equal(torch.load(path, weights_only=True), whole[3])
    assert path.stat().st_size < 16 << 10
    column = Path(save_tensor(whole[:, 5], str(tmp_path / "column")))
    assert torch.equal(torch.load(column, weights_only=True), whole[:, 5])


@pytest.mark.parametrize("kind", ["sparse", "quantized", "scalar", "empty"])
def test_tensors_of_other_kinds_are_saved_as_they_are(tmp_path: Path, kind: str) -> None:
    tensor = {
        "sparse": torch.eye(3).to_sparse(),
        "quantized": torch.quantize_per_tensor(torch.arange(4.0), 0.5, 0, torch.quint8),
        "scalar": torch.tensor(3),
        "empty": torch.zeros(0, 4),
    }[kind]
    loaded = torch.load(save_tensor(tensor, str(tmp_path / kind)), weights_only=True)
    assert (loaded.dtype, loaded.shape, loaded.layout) == (tensor.dtype, tensor.shape, tensor.layout)
    dense, expected = (one.to_dense() if one.is_sparse else one for one in (loaded, tensor))
    assert torch.equal(dense, expected)


def test_a_path_that_leads_elsewhere_or_nowhere_is_refused_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    with pytest.raises(ValueError, match=r"contains `\.\.`"):
        save_tensor(torch.ones(1), str(tmp_path / "inside" / ".." / "outside"))
    with pytest.raises(ValueError, match="missing` is not a directory"):
        save_tensor(torch.ones(1), str(tmp_path / "missing" / "x"))
    with pytest.raises(TypeError, match="expected a tensor, found `list`"):
        save_tensor([1.0], str(tmp_path / "x"))  # type: ignore[arg-type]
    assert [one.name for one in tmp_path.rglob("*")] == ["inside"]


def test_a_file_that_cannot_be_written_leaves_none_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_args: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(torch, "save", fails)
    with pytest.raises(OSError, match="No space left"):
        save_tensor(torch.ones(1), str(tmp_path / "x"))
    assert list(tmp_path.iterdir()) == []


def test_single_values_lie_by_tag_step_rank_and_micro_step(tmp_path: Path) -> None:
    saver = SingleSave(str(tmp_path))
    assert SingleSave(str(tmp_path / "elsewhere")) is saver, "one in a process"
    x = torch.tensor([[1.0, -2.0], [3.0, 4.0]])
    saver.save({"loss": x, "grads": [x, x * 2], "state": {"m": x, "v": x + 1}})
    saver.save({"loss": x * 10})
    saver.step()
    saver.save({"loss": x * 100})
    SingleSave.save_config({"lr": 0.1, "path": Path("there")})
    place = "data/{}/step{}/rank0/micro_step{}/{}"
    first = {"loss": ["loss"], "grads": ["grads.0", "grads.1"], "state": ["state.m", "state.v"]}
    expected = {place.format(tag, 0, 0, f"{name}.npy") for tag, names in first.items() for name in names}
    expected |= {place.format(tag, 0, 0, f"{tag}.json") for tag in first}
    expected |= {
        place.format("loss", step, micro, f"loss.{e}") for step, micro in ((0, 1), (1, 0)) for e in ("npy", "json")
    }
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {str(path.relative_to(tmp_path)) for path in files} == {*expected, "configurations.json"}
    assert {mode_of(path) for path in files} == {0o640}
    assert {mode_of(path) for path in tmp_path.rglob("*") if path.is_dir()} <= {0o750, 0o755}
    for step, micro, factor in ((0, 0, 1), (0, 1, 10), (1, 0, 100)):
        found = np.load(tmp_path / place.format("loss", step, micro, "loss.npy"))
        assert np.array_equal(found, x.numpy() * factor)
    assert json.loads((tmp_path / "configurations.json").read_text()) == {"lr": 0.1, "path": "there"}


def test_single_values_are_described_bf16_as_float32(tmp_path: Path) -> None:
    saver = SingleSave(str(tmp_path))
    x = torch.tensor([[3.0, -4.0]], dtype=torch.bfloat16)
    saver.save(
        {
            "bf16": x,
            "list": [x, torch.tensor([1, 2, 6])],
            "dict": {"empty": torch.zeros(0, 2), "none": None, "mask": torch.tensor([True, False])},
            "complex": torch.tensor([3 + 4j]),
            "fp8": x.to(torch.float8_e4m3fn),
        }
    )

    def told(tag: str) -> Any:
        return json.loads((tmp_path / f"data/{tag}/step0/rank0/micro_step0/{tag}.json").read_text())["data"]

    def array(tag: str, name: str) -> Any:
        return np.load(tmp_path / f"data/{tag}/step0/rank0/micro_step0/{name}.npy")

    numbers = {"max": 3.0, "min": -4.0, "mean": -0.5, "norm": 5.0, "shape": [1, 2]}
    assert told("bf16") == numbers
    assert (array("bf16", "bf16").dtype, array("bf16", "bf16").tolist()) == (np.float32, [[3.0, -4.0]])
    assert told("list") == [
        numbers,
        {"max": 6.0, "min": 1.0, "mean": 3.0, "norm": pytest.approx(41**0.5), "shape": [3]},
    ]
    assert (array("list", "list.1").dtype, array("list", "list.1").tolist()) == (np.int64, [1, 2, 6])
    assert told("dict") == {
        "empty": {"max": None, "min": None, "mean": None, "norm": None, "shape": [0, 2]},
        "none": None,
        "mask": {"max": 1.0, "min": 0.0, "mean": 0.5, "norm": 1.0, "shape": [2]},
    }
    assert told("complex") == {"max": 5.0, "min": 5.0, "mean": 5.0, "norm": 5.0, "shape": [1]}
    assert told("fp8") == numbers
    assert array("fp8", "fp8").tolist() == [[3.0, -4.0]]


@pytest.mark.parametrize("data", [{"../out": 1}, {"a/b": 1}, {"a": {"layers/0": 1}}, {"..": 1}, {"a": [{"x/y": 1}]}])
def test_a_tag_that_is_no_file_name_is_refused_before_anything_is_written(tmp_path: Path, data: Any) -> None:
    saver = SingleSave(str(tmp_path / "root"))
    with pytest.raises(ValueError, match="cannot be a file name"):
        saver.save({"good": torch.ones(1), **data})
    assert list(tmp_path.iterdir()) == []


def test_a_tree_of_values_without_a_place_is_refused_and_may_be_given_one_later(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`dump_path` is required"):
        SingleSave.save({"loss": torch.ones(1)})
    SingleSave(str(tmp_path)).save({"loss": torch.ones(1)})
    assert (tmp_path / "data/loss/step0/rank0/micro_step0/loss.npy").exists()
