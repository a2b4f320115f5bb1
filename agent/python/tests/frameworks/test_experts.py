"""Names of experts in the whole model, for layers that no test here can train."""

from __future__ import annotations

from torch import nn

from trainmon.frameworks.experts import numbered_experts, stacked_dim


class TEGroupedMLP(nn.Module):
    """As Megatron's with Transformer Engine: a parameter per expert in each layer."""

    def __init__(self, num_local_experts: int) -> None:
        super().__init__()
        self.num_local_experts = num_local_experts
        self.linear_fc1 = nn.Module()
        for number in range(num_local_experts):
            self.linear_fc1.register_parameter(f"weight{number}", nn.Parameter(nn.Linear(2, 2).weight.detach()))


class GroupedMLP(nn.Module):
    """As Megatron's older one: all experts in one tensor, of which two are called like experts."""

    def __init__(self) -> None:
        super().__init__()
        self.weight1 = nn.Parameter(nn.Linear(2, 8).weight.detach())
        self.weight2 = nn.Parameter(nn.Linear(8, 2).weight.detach())


def whole_names(model: nn.Module, rank: int) -> dict[str, str]:
    """By the local name that in the whole model, of an expert-parallel rank."""
    numbered = numbered_experts([model])
    return {
        name: numbered[id(one)].whole_name(name, rank) for name, one in model.named_parameters() if id(one) in numbered
    }


def test_an_experts_number_is_that_in_its_layer() -> None:
    layer = nn.Module()
    layer.deepspeed_experts = nn.ModuleList(nn.Sequential(nn.Linear(2, 2, bias=False)) for _ in range(12))
    assert len(whole_names(layer, 1)) == 12
    assert whole_names(layer, 0) == {name: name for name in whole_names(layer, 0)}
    assert whole_names(layer, 2)["deepspeed_experts.1.0.weight"] == "deepspeed_experts.25.0.weight"
    assert whole_names(layer, 2)["deepspeed_experts.11.0.weight"] == "deepspeed_experts.35.0.weight"


def test_a_layer_inside_an_expert_keeps_its_number() -> None:
    model = nn.ModuleDict({"layers": nn.ModuleList([nn.Module()])})
    model["layers"][0].local_experts = nn.ModuleList(nn.ModuleList([nn.Linear(2, 2, bias=False)]) for _ in range(2))
    assert whole_names(model, 3) == {
        "layers.0.local_experts.0.0.weight": "layers.0.local_experts.6.0.weight",
        "layers.0.local_experts.1.0.weight": "layers.0.local_experts.7.0.weight",
    }


def test_parameters_that_are_numbered_themselves() -> None:
    model = nn.ModuleDict({"experts": TEGroupedMLP(2)})
    assert whole_names(model, 1) == {
        "experts.linear_fc1.weight0": "experts.linear_fc1.weight2",
        "experts.linear_fc1.weight1": "experts.linear_fc1.weight3",
    }


def test_experts_in_one_tensor_have_no_numbers() -> None:
    layer = GroupedMLP()
    assert numbered_experts([layer]) == {}
    assert (stacked_dim([layer], layer.weight1), stacked_dim([layer], layer.weight2)) == (1, 0)
