"""Parallel training's corners, unwatched and watched: `parallel_corners.py OUTPUT CASE...`."""

import sys
from pathlib import Path

import torch
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

import trainmon
from support import parallel, runs, tiny
from support.breaking import break_hooks
from support.parallel import Way
from support.ranks import finish
from support.ways import SMALL, WAYS, ddp, fsdp1
from trainmon.watches import startup

HEARD: list[str] = []
start_monitor = startup.start_monitor


def listening(config, **options):
    return start_monitor(config, listener=lambda severity, message, hint: HEARD.append(message), **options)


startup.start_monitor = listening


def watched(model, optimizer, base, *, config=parallel.CONFIG, **options):
    HEARD.clear()
    return trainmon.watch(model, optimizer, config=config, output_dir=str(base), **options)


def pair(way, seed_model=tiny.model):
    model = way.wrap(seed_model())
    return model, parallel.optimizer_of(model)


# Every function of ours that a hook reaches raises: the training goes on with the same numbers.


def fails(base, name):
    """Runs in a process of its own: what is broken stays broken."""
    from trainmon.frameworks import ddp, fsdp1, fsdp2
    from trainmon.ranks.exchange import StoreExchange

    def broken(*_args, **_named):
        raise RuntimeError("injected")

    ways = {one: WAYS[one]() for one in ("ddp_reducing_twice", "fsdp1_accumulating", "fsdp2_accumulating")}
    expected = {one: parallel.train(*pair(way), way, 3) for one, way in ways.items()}
    break_hooks(ddp.Ddp, fsdp1.Fsdp1, fsdp2.Fsdp2)
    ddp.Accumulation.is_aggregated_now = broken
    fsdp1.show = fsdp2.show = broken
    StoreExchange.submit = broken
    for one, way in ways.items():
        model, optimizer = pair(way)
        watch = watched(model, optimizer, base / one, grad_acc_steps=2)
        found = parallel.train(model, optimizer, way, 3)
        watch.close()
        assert parallel.same(expected[one], found), one
        assert sum("injected" in message for message in HEARD) >= 2, HEARD


def is_of_another_version(base, name):
    """torch's private objects look otherwise: what is read off them is missing, the training goes on."""
    from trainmon.frameworks.shared_params import Sharing

    def broken(*_args):
        raise AttributeError("injected")

    original, Sharing.is_split = Sharing.is_split, broken
    for one in ("fsdp1", "fsdp2"):
        way = WAYS[one]()
        expected = parallel.train(*pair(way), way, 3)
        model, optimizer = pair(way)
        with watched(model, optimizer, base / one):
            assert parallel.same(expected, parallel.train(model, optimizer, way, 3))
        assert sum("injected" in message for message in HEARD) == 1, HEARD
        lines = runs.steps(runs.run_directory(base / one, distributed.get_rank()))
        assert {line["grad_norm"] for line in lines} <= {"", "nan"}, "a part is not shown as the whole"
    Sharing.is_split = original


# The watch comes after the third step, and on some ranks only.


def comes_late(base, name):
    for one in ("ddp", "fsdp1", "fsdp2"):
        way = WAYS[one]()
        model, optimizer = pair(way)
        parallel.train(model, optimizer, way, 2)
        watch = watched(model, optimizer, base / one, start_iteration=2)
        parallel.train(model, optimizer, way, 3, first=2)
        watch.close()
        parallel.check_rows(base / one, way, 5, parallel.held_by_this_rank(WAYS[one]()), first=2)


def comes_on_some_ranks(base, name):
    for one in ("fsdp1", "fsdp2"):
        for only in (0, 1):
            way = WAYS[one]()
            expected = parallel.train(*pair(way), way, 12)
            model, optimizer = pair(way)
            place = base / f"{one}{only}"
            watch = watched(model, optimizer, place) if distributed.get_rank() == only else None
            assert parallel.same(expected, parallel.train(model, optimizer, way, 12))
            if watch is None:
                continue
            watch.close()
            assert sum("norm is unknown" in message for message in HEARD) == 1, HEARD
            run = runs.run_directory(place, only)
            assert {line["grad_norm"] for line in runs.steps(run)} <= {"", "nan"}
            assert len(runs.rows(run, "grad_reduced")) > 12


# DDP: parameters without a part in the loss, tied ones, hooks of the user.


class Partial(nn.Module):
    """`even` takes part on even ranks only, `idle` nowhere, and the weights of `out` are those of `into`."""

    def __init__(self):
        super().__init__()
        self.into, self.even, self.idle = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.out = nn.Linear(8, 8)
        self.out.weight = self.into.weight

    def forward(self, x, is_even):
        x = self.into(x).tanh()
        return self.out(self.even(x) if is_even else x)


def partial():
    torch.manual_seed(3)
    return Partial()


def loss_of_partial(net, step, rank, micro=0, micro_batches=1):
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * step + 10 * rank + micro))
    return net(x, rank % 2 == 0).square().mean() / micro_batches


def has_unused(base, name):
    own = distributed.get_rank()
    way = Way(ddp(find_unused_parameters=True))

    def run(watching):
        model, optimizer = pair(way, partial)
        watch = watched(model, optimizer, base / name) if watching else None
        seen = parallel.train(model, optimizer, way, 3, loss_of=loss_of_partial)
        if watch is not None:
            watch.close()
        return seen

    assert parallel.same(run(False), run(True))
    directory = runs.run_directory(base / name, own)
    locals_ = []
    for one in range(2):
        net = partial()
        loss_of_partial(net, 0, one).backward()
        locals_.append({n: p.grad for n, p in net.named_parameters() if p.grad is not None})
    before, after = (runs.by_name(runs.rows(directory, kind), 0) for kind in ("grad_unreduced", "grad_reduced"))
    assert set(before) == set(locals_[own])
    assert set(after) == set(locals_[0])
    assert "out.weight" not in before, "tied: shown by its first name"
    assert ("even.weight" in before) == (own == 0)
    assert not any("idle" in one for one in (*before, *after))
    for one, gradient in locals_[own].items():
        runs.assert_shows(before[one], gradient)
    for one, gradient in locals_[0].items():
        runs.assert_shows(after[one], (gradient + locals_[1].get(one, torch.zeros_like(gradient))) / 2)


def has_hook_of_user(base, name):
    own = distributed.get_rank()

    def wrap(net):
        model = DistributedDataParallel(net, **SMALL)
        model.register_comm_hook(None, fp16_compress_hook)
        return model

    way = Way(wrap)
    expected = parallel.train(*pair(way), way, 3)
    model, optimizer = pair(way)
    with watched(model, optimizer, base / name):
        assert parallel.same(expected, parallel.train(model, optimizer, way, 3))
    before = runs.by_name(runs.rows(runs.run_directory(base / name, own), "grad_unreduced"), 0)
    local = next(iter(tiny.reference(2, 1))).local[own]
    for one, gradient in local.items():
        runs.assert_shows(before[one], gradient)


# Micro-batches that nobody announced, a shorter last step, parameters without a part in some of them.


def finds_micro_batches(base, name):
    """By looking: each step shows this rank's own gradient, summed where reduction waits for the last pass, else of
    the last micro-batch."""
    for one in ("ddp_accumulating", "ddp_reducing_twice", "fsdp1_accumulating", "fsdp2_accumulating"):
        for announced in (1, 3):
            _check_found(base / f"{one}{announced}", WAYS[one](), [3, 3, 3, 2, 3], announced)
    _check_found(base / "twice", WAYS["ddp_reducing_twice"](), [2, 2], 1)


def _steps_of(model, optimizer, way, passes):
    seen = []
    for step, count in enumerate(passes):
        optimizer.zero_grad()
        for micro in range(count):
            with parallel.deferred(model, Way(way.wrap, count, way.defers), micro):
                tiny.loss_of(model, step, distributed.get_rank(), micro, count).backward()
        seen += [parallel.local(one.grad).clone() for one in model.parameters() if one.grad is not None]
        optimizer.step()
    return [*seen, *(parallel.local(one.detach()).clone() for one in model.parameters())]


def _check_found(place, way, passes, announced):
    rank = distributed.get_rank()
    model, _ = pair(way)
    # No step changes the parameters: what a micro-batch gives does not depend on the ones before.
    expected = _steps_of(model, torch.optim.SGD(model.parameters(), lr=0.0), way, passes)
    model, _ = pair(way)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    config = {**parallel.CONFIG, "monitor_mbs_grad": False}
    with watched(model, optimizer, place, config=config, grad_acc_steps=announced):
        assert parallel.same(expected, _steps_of(model, optimizer, way, passes))
    rows = runs.rows(runs.run_directory(place, rank), "grad_unreduced")
    for step, count in enumerate(passes):
        shown = runs.by_name(rows, step)
        # Where every pass aggregates, the first that nobody expected cannot be told from others' parts (the first step
        # of two); and one that was expected and did not come leaves nothing to be measured (two instead of three).
        is_known = way.defers or count == 3 or step == 1
        if not is_known:
            assert not shown and "not measured" in " ".join(HEARD), (place, step)
            continue
        net = tiny.model()
        for micro in range(count):
            if not way.defers:
                net.zero_grad()
            tiny.loss_of(net, step, rank, micro, count).backward()
        assert set(shown) == {one for one, _ in net.named_parameters()}, (place, step)
        for one, parameter in net.named_parameters():
            runs.assert_shows(shown[one], parameter.grad, relative=2e-4, what=f"{place.name} {step}")


class Experts(nn.Module):
    """`even` and `odd` take part in every other micro-batch."""

    def __init__(self):
        super().__init__()
        self.into, self.even, self.odd = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x, micro):
        return (self.odd if micro % 2 else self.even)(self.into(x).tanh())


def has_experts(base, name):
    """One that the last micro-batch leaves out is aggregated all the same. Once that was seen, its own gradient is
    taken in time; until then there is no row, and that is said."""
    rank, micros, steps = distributed.get_rank(), 3, 4

    def experts():
        torch.manual_seed(3)
        return Experts()

    def loss_of(net, step, micro):
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * step + 10 * rank + micro))
        return net(x, micro).square().mean()

    def train(watch):
        model = DistributedDataParallel(experts(), find_unused_parameters=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        config = {**parallel.CONFIG, "monitor_mbs_grad": False}
        watch = watched(model, optimizer, base / name, config=config, grad_acc_steps=micros) if watch else None
        seen = []
        for step in range(steps):
            optimizer.zero_grad()
            for micro in range(micros):
                with parallel.deferred(model, Way(None, micros, defers=True), micro):
                    loss_of(model, step, micro).backward()
            seen += [one.grad.clone() for one in model.parameters()]
            optimizer.step()
        if watch is not None:
            watch.close()
        return seen

    assert parallel.same(train(False), train(True))
    assert sum("the step's last backward pass came without it" in message for message in HEARD) == 1, HEARD
    rows = runs.rows(runs.run_directory(base / name, rank), "grad_unreduced")
    for step in range(steps):
        net = experts()
        for micro in range(micros):
            loss_of(net, step, micro).backward()
        truth = {one: parameter.grad for one, parameter in net.named_parameters()}
        if step == 0:
            truth = {one: gradient for one, gradient in truth.items() if "odd" not in one}
        shown = runs.by_name(rows, step)
        assert set(shown) == set(truth), step
        for one, gradient in truth.items():
            runs.assert_shows(shown[one], gradient)


# Sharding: two models, empty shards, modules that have their whole parameters for the moment.


def are_two(base, name):
    for one in ("fsdp1", "fsdp2"):
        way = WAYS[one]()
        (first, of_first), (second, of_second) = pair(way), pair(way)
        watches = [watched(first, of_first, base / one / "1"), watched(second, of_second, base / one / "2")]
        for step in range(4):
            parallel.train(first, of_first, way, 1, first=step)
            if step == 1:
                watches[0].close()
            parallel.train(second, of_second, way, 1, first=step)
        watches[1].close()
        held = parallel.held_by_this_rank(WAYS[one]())
        parallel.check_rows(base / one / "1", way, 2, held)
        parallel.check_rows(base / one / "2", way, 4, held)


class Narrow(nn.Module):
    """Shards of one row, of two and one, and of 1 and none."""

    def __init__(self):
        super().__init__()
        self.three, self.one = nn.Linear(8, 3), nn.Linear(3, 1)

    def forward(self, x):
        return self.one(self.three(x).tanh())


def narrow():
    torch.manual_seed(5)
    return Narrow()


def loss_of_narrow(net, step, rank, micro=0, micro_batches=1):
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * step + 10 * rank + micro))
    return net(x).square().mean() / micro_batches


def has_empty_shards(base, name):
    own = distributed.get_rank()
    for one, wrap in (("fsdp2", fsdp2_of_narrow), ("fsdp1", fsdp1(auto_wrap_policy=None))):
        way = Way(wrap, reports_norm=False)
        expected = parallel.train(*pair(way, narrow), way, 3, loss_of=loss_of_narrow)
        model, optimizer = pair(way, narrow)
        with watched(model, optimizer, base / one):
            assert parallel.same(expected, parallel.train(model, optimizer, way, 3, loss_of=loss_of_narrow))
        gradients = []
        for other in range(2):
            net = narrow()
            loss_of_narrow(net, 0, other).backward()
            gradients.append({n: p.grad for n, p in net.named_parameters()})
        mean = {n: (g + gradients[1][n]) / 2 for n, g in gradients[0].items()}
        run = runs.run_directory(base / one, own)
        before, after = (runs.by_name(runs.rows(run, kind), 0) for kind in ("grad_unreduced", "grad_reduced"))
        for n, gradient in gradients[own].items():
            runs.assert_shows(before[n], gradient)
        if one == "fsdp2":
            rows = {n: g.chunk(2)[own] if own < len(g.chunk(2)) else g[:0] for n, g in mean.items()}
            assert set(after) == {n for n, part in rows.items() if part.numel()}
            for n, row in after.items():
                runs.assert_shows(row, rows[n])
        norm = torch.cat([g.flatten() for g in mean.values()]).double().norm()
        assert abs(float(runs.steps(run)[0]["grad_norm"]) / float(norm) - 1) < 1e-5


def fsdp2_of_narrow(net):
    from torch.distributed.fsdp import fully_shard

    return fully_shard(net)


def attaches_between(base, name):
    """Between the forward and the backward pass, when the root's modules have whole parameters."""
    way = WAYS["fsdp2"]()
    model, optimizer = pair(way)
    loss = tiny.loss_of(model, 0, distributed.get_rank())
    assert any(not hasattr(one, "placements") for one in model.parameters())
    watch = watched(model, optimizer, base / name)
    loss.backward()
    way.clip(model)
    optimizer.step()
    parallel.train(model, optimizer, way, 2, first=1)
    watch.close()
    parallel.check_rows(base / name, way, 3, parallel.held_by_this_rank(WAYS["fsdp2"]()))


# Tensor parallel and sharded at once, on four ranks: linear layers are split over one dimension of the mesh and all
# parameters over the other. What is not split over the first is there twice and counts once.


def has_two_dimensions(base, name):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    replica = mesh["data"].get_local_rank()

    def wrap(net):
        for layer in net.layers:
            parallelize_module(layer, mesh["tensor"], {"fc1": ColwiseParallel(), "fc2": RowwiseParallel()})
            fully_shard(layer, mesh=mesh["data"])
        return fully_shard(net, mesh=mesh["data"])

    def clip(model):
        # torch's own does not take parameters of several meshes.
        return torch.zeros(())

    def loss_of(net, step, rank, micro, micro_batches):
        return tiny.loss_of(net, step, replica, micro, micro_batches)

    way = Way(wrap, clip=clip, reports_norm=False)
    expected = parallel.train(*pair(way), way, 3, loss_of=loss_of)
    model, optimizer = pair(way)
    with watched(model, optimizer, base / name, tp_group=mesh["tensor"].get_group()):
        assert parallel.same(expected, parallel.train(model, optimizer, way, 3, loss_of=loss_of))
    run = runs.run_directory(base / name, distributed.get_rank())
    for line, step in zip(runs.steps(run), tiny.reference(2, 3), strict=True):
        parallel.check_norm(line, step.norm, reported=False)
    after = runs.by_name(runs.rows(run, "grad_reduced"), 0)
    assert "layers.0.fc1.weight" in after
    assert ("layers.0.ln1.weight" in after) == (mesh["tensor"].get_local_rank() == 0)
    before = runs.by_name(runs.rows(run, "grad_unreduced"), 0)
    half = next(iter(tiny.reference(2, 1))).local[replica]["layers.0.fc1.weight"]
    runs.assert_shows(before["layers.0.fc1.weight"], half.chunk(2)[mesh["tensor"].get_local_rank()], relative=1e-4)


CASES = {
    one.__name__: one
    for one in (
        fails,
        is_of_another_version,
        comes_late,
        comes_on_some_ranks,
        has_unused,
        has_hook_of_user,
        finds_micro_batches,
        has_experts,
        are_two,
        has_empty_shards,
        attaches_between,
        has_two_dimensions,
    )
}

distributed.init_process_group("gloo")
_, output, *cases = sys.argv
for case in cases:
    CASES[case](Path(output) / case, case)
    if distributed.get_rank() == 0:
        print(f"checked {case}", flush=True)
finish()
