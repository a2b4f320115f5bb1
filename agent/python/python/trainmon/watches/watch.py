"""A watch over one training: a model (or its chunks), an optimizer, a monitor."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from trainmon._trainmon import Monitor
from trainmon.captures.on_demand import captures_on_demand
from trainmon.collectives import Collectives, CollectiveStacksPrinted
from trainmon.common.guard import Guard
from trainmon.common.kinds import Kind
from trainmon.device.measurer import Measurer
from trainmon.frameworks import Job, live_watches, recognise
from trainmon.frameworks.arguments import models_of
from trainmon.frameworks.base import Nothing
from trainmon.frameworks.plain import Plain
from trainmon.hooks import patches
from trainmon.measurement.norm import GlobalNorm
from trainmon.measurement.parameters import Parameter, choose, register
from trainmon.ranks.hangs import HangWatch
from trainmon.replay import Replay, StepIsOver, wrapped
from trainmon.replicas import ReplicaCheck
from trainmon.signals.adhoc import AdhocTensors
from trainmon.signals.features import Features
from trainmon.signals.forward_passes import ForwardPasses
from trainmon.signals.gradients import Gradients
from trainmon.signals.layout import RankLayout
from trainmon.signals.loss_scaler import LossScale
from trainmon.signals.losses import BackwardLoss
from trainmon.signals.modules import Activations
from trainmon.signals.new_parameters import NewParameters
from trainmon.signals.optimizer_step import OptimizerStep
from trainmon.signals.stacks import Stacks
from trainmon.signals.step_facts import Clipping, StepFacts
from trainmon.signals.step_parts import StepParts, Together
from trainmon.signals.structure import ModuleStructPrinted, Structure
from trainmon.watches import shutdown
from trainmon.watches.alert_state import restore, saved
from trainmon.watches.first_look import FirstLook
from trainmon.watches.notebook import show_link
from trainmon.watches.wait_budget import WaitBudget

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self


#: The names that completion offers for a watch.
_FOR_USERS = (
    *("close", "detach", "expect", "load_state_dict", "log", "measure_adhoc", "rehook_activations", "set_aside"),
    *("skip_step", "state_dict", "step", "step_fn", "stop_requested"),
)

P = ParamSpec("P")
R = TypeVar("R")


class Watch:
    """Measures a training from inside. Attached when created; `close` (or leaving its `with` block) removes every hook.

    It never changes the training's numbers, and none of its own errors reaches the loop. Use `trainmon.watch` to create
    one.
    """

    def __init__(
        self,
        model: torch.nn.Module | Sequence[torch.nn.Module],
        optimizer: Any,
        monitor: Monitor,
        *,
        grad_acc_steps: int = 1,
        tp_group: Any = None,
        dp_group: Any = None,
        pp_group: Any = None,
        params_have_main_grad: bool | None = None,
        manual_steps: bool = False,
        device_only: bool = False,
        only: Iterable[torch.Tensor] | None = None,
        like_msprobe: bool = False,
        is_usual: bool = False,
    ) -> None:
        """`manual_steps`: `step` ends the steps, if the config requests it or there is no optimizer. `device_only`:
        host tensors are measured like a device's, for comparisons. `only`: the parameters of this watch, in a training
        with several optimizers. `like_msprobe`: names are msprobe's. `is_usual`: everything has its default."""
        self.monitor = monitor
        self.settings = settings = monitor.settings(like_msprobe=like_msprobe)
        self.guard = guard = Guard(monitor)
        self._is_closed = self._is_measured = self._has_said_skipped = False
        self._parts: StepParts | None = None
        self._has_said_scaled = False
        # Live control may set other targets: they are looked up again between two steps.
        self._plan_version = monitor.plan_version
        monitor.follow_targets()
        models, self.given_optimizer = models_of(model), optimizer
        if isinstance(optimizer, list | tuple):
            optimizer = Together(optimizer)
        steps = settings.micro_batches or max(1, grad_acc_steps)
        job = Job(
            models, optimizer, monitor, guard, settings, steps, tp_group, dp_group, pp_group, params_have_main_grad
        )
        self.framework = framework = guard.run("attach", lambda: recognise(models, optimizer)(job)) or Nothing(job)
        # A framework may have the optimizer of its model.
        has_optimizer = framework.job.optimizer is not None
        if not has_optimizer and not manual_steps:
            monitor.say("info", "no optimizer was passed: call the watch's `step()` at the end of each step")
        #: Whether the end of a step is detected at the optimizer.
        self.steps_by_itself = has_optimizer and (not manual_steps or settings.patch_optimizer_step)
        self.measurer = Measurer(monitor, device_only=device_only)
        self._adhoc = AdhocTensors(monitor, self.measurer)
        self.parameters = guard.run("parameters", lambda: self._register(only)) or []
        self.loss_scale = LossScale(optimizer)
        self.gradients = Gradients(self.parameters, framework, self.measurer, guard, self.loss_scale)
        # It reads the optimizer's groups, which may be any object.
        self._new_parameters = guard.run("new parameters", lambda: self._new_parameters_of(only is not None))
        self.optimizer_step = OptimizerStep(
            self.parameters, framework, self.measurer, guard, settings, is_usual=is_usual
        )
        self.activations = Activations(self.measurer, guard, settings, ForwardPasses(guard, job))
        self.features = Features(self.measurer, guard, settings, job)
        self.collectives = Collectives(monitor, guard, settings, self.measurer, framework)
        self.structure = Structure(monitor, guard, settings)
        self.stacks = Stacks(monitor, guard, settings)
        self.norm = GlobalNorm(monitor, functools.partial(guard.run, "global norm", framework.whole_exchange))
        self.losses = BackwardLoss(self.measurer, self.gradients)
        self.facts = StepFacts(framework, self.measurer, self.norm, guard, self.losses)
        self.clipping = Clipping(self.parameters)
        self.replicas = ReplicaCheck(monitor, framework, self.parameters, settings, self.measurer.kernels)
        self.layout = RankLayout(monitor, framework, self.parameters)
        self.hangs = HangWatch(monitor, settings, weakref.WeakMethod(self.collectives.begun))
        self.captures = guard.run("capture on demand", lambda: captures_on_demand(model, models, monitor, guard))
        self._attach(models)
        self.replay = guard.run("replay", self._make_replay)
        guard.run("first look", lambda: FirstLook(framework, settings, self.parameters).look(has_all=only is None))
        monitor.announce(sum(one.is_watched for one in self.parameters), len(self.parameters))
        guard.run("link to the live page", lambda: show_link(monitor))
        live_watches.add(self)
        if self.captures is not None:
            # The first step begins here.
            self.guard.run("capture on demand", self.captures.begin_next_step)

    def _register(self, only: Iterable[torch.Tensor] | None) -> list[Parameter]:
        named = self.framework.named_parameters()
        if only is not None:
            ours = {id(one) for one in only}
            named = [one for one in named if id(one[2]) in ours]
        parameters = register(self.monitor, self.settings, self.framework.job.models, named)
        self.framework.mark_replicas(parameters)
        return parameters

    def _new_parameters_of(self, is_shared: bool) -> NewParameters:
        return NewParameters(self.settings, self.gradients, self.parameters, is_shared=is_shared)

    def _make_replay(self) -> Replay | None:
        """Keeps steps for replay, if the config requests it."""
        if self.captures is None or not self.settings.kept_steps:
            return None
        if not self.framework.can_run_again or self._parts is not None:
            self.monitor.say(
                "info",
                f"cannot replay steps of {self.framework.name}: the action `replay` captures the next step instead",
            )
            return None
        parts = (self.framework, self.captures, self.loss_scale)
        return Replay(self.monitor, self.guard, *parts, self._begin_step_anew)

    def _attach(self, models: Sequence[torch.nn.Module]) -> None:
        guard, framework = self.guard, self.framework
        if not isinstance(framework.job.optimizer, Together):
            # Otherwise they are measured when each optimizer is about to step: afterwards they may be gone.
            guard.run("weight gradients", self.gradients.attach)
        for hook, room in self._rooms():
            guard.run(hook, functools.partial(room.attach, models))
        guard.run("collectives", self.collectives.attach)
        framework.left_out = self.skip_step
        framework.launch = guard.wrap("device statistics", self.measurer.launch)
        optimizer = framework.job.optimizer
        if isinstance(optimizer, Together):
            guard.run("the optimizers' steps", lambda: self._attach_parts(optimizer))
        elif optimizer is not None:
            guard.run("the optimizer's step", lambda: framework.attach_step(self.about_to_step, self._after_step))
        guard.run("torch's functions", lambda: patches.listen(self))
        # A loop that ends without `close` still delivers its measurements.
        self._finalizer = weakref.finalize(self, self.monitor.shutdown)
        shutdown.deliver_before_exit(self)

    def _attach_parts(self, together: Together) -> None:
        if not isinstance(self.framework, Plain) or not self.framework.takes_several:
            self.monitor.say(
                "warning",
                f"cannot detect the steps of several optimizers under {self.framework.name}: call the watch's `step()` "
                "at the end of each step",
            )
            self.steps_by_itself = False
            return
        guard, monitor = self.guard, self.monitor
        if self.framework.aggregates and monitor.configured(Kind.GRAD_UNREDUCED):
            monitor.say("info", "with several optimizers gradients before their reduction are not measured")
        self._parts = StepParts(
            together,
            self.parameters,
            begin=self._begin_parts,
            before=self._before_part,
            after=lambda: guard.run("state after the step", self.optimizer_step.after),
            end=self._step_is_made,
        )
        for one in together.optimizers:
            before, after = self._parts.hooks(one)
            self.framework.attach_part(
                one, guard.wrap("the optimizers' steps", before), guard.wrap("the optimizers' steps", after)
            )

    def _rooms(self) -> list[tuple[str, Activations | Features | Structure | Stacks]]:
        """The parts that hook modules, with the names of their hooks."""
        return [
            ("activations", self.activations),
            ("features", self.features),
            ("print_struct", self.structure),
            ("stack_info", self.stacks),
        ]

    # The events of a step, in order.

    def about_to_step(self) -> None:
        """Handles an optimizer's step about to begin. Raises nothing except the end of the training that `print_struct`
        requests."""
        if self.replay is not None and self.replay.is_running:
            raise StepIsOver(None)
        self._before_step()
        if self.guard.run("print_struct", lambda: self.structure.is_printed):
            raise ModuleStructPrinted
        if self.guard.run("collectives", lambda: self.collectives.has_stacks_to_tell):
            self.guard.run("collectives", self.collectives.tell_stacks)
            raise CollectiveStacksPrinted

    def _before_step(self) -> None:
        if self._is_measured and self.steps_by_itself:
            # The last step raised: its measurements do not belong to this one.
            self.guard.run("abandoned step", self._restart_step)
        self.guard.run("print_struct", self.structure.before_step)
        self._take_up_new_parameters()
        self.guard.run("device statistics", self.measurer.collect)
        self.guard.run("collectives", self.collectives.before_step)
        self.guard.run("stragglers", self.collectives.compare_ranks)
        self.guard.run("reduced gradients", self._measure_reduced)
        self.guard.run("replica check", self.replicas.before_step)
        self.guard.run("state before the step", self.optimizer_step.before)
        self.guard.run("device statistics", self.measurer.launch)
        self.guard.run("loss scale", self.loss_scale.step_is_made)
        self.guard.run("weight gradients", self.gradients.close)
        self._is_measured = True

    def _begin_parts(self) -> None:
        """Handles the first of several optimizers about to step."""
        self.guard.run("print_struct", self.structure.before_step)
        self._take_up_new_parameters()
        self.guard.run("device statistics", self.measurer.collect)
        self.guard.run("collectives", self.collectives.before_step)
        self.guard.run("stragglers", self.collectives.compare_ranks)
        self.guard.run("replica check", self.replicas.before_step)

    def _before_part(self, parameters: Sequence[Parameter]) -> None:
        """Handles one of several optimizers about to step these."""
        self.guard.run("reduced gradients", lambda: self.gradients.measure_part(parameters))
        self.guard.run("state before the step", lambda: self.optimizer_step.before(parameters))
        self.guard.run("device statistics", self.measurer.launch)

    def _measure_reduced(self) -> None:
        if self.gradients.is_overtaken:
            # The norm of an earlier clipping is invalid too.
            self.facts.forget_norm()
        self.gradients.measure_reduced()

    def _after_step(self) -> None:
        self.guard.run("state after the step", self.optimizer_step.after)
        self._step_is_made()

    def _step_is_made(self) -> None:
        self.guard.run("replica check", self.replicas.after_step)
        self.guard.run("layout.json", self.layout.tell)
        self.guard.run("hang watch", self.hangs.step_made)
        self.guard.run("device statistics", self.measurer.launch)
        if self.steps_by_itself:
            self._finish_step()

    def step(self) -> None:
        """Ends a step that is not detected at an optimizer."""
        if not self.steps_by_itself:
            self.guard.run("step", self._step)

    def _step(self) -> None:
        if not self._is_measured:
            self._before_step()
        self._finish_step()

    def _finish_step(self) -> None:
        self._is_measured = False
        self.guard.run("stack_info", self.stacks.end_step)
        if not self.guard.run("the end of the step", lambda: self.facts.end_step(self.gradients)):
            # A step that never ends would accumulate everything that follows.
            self.guard.run("device statistics", self.measurer.close_step)
            self.guard.run("the bare end of the step", self.monitor.end_step)
        self.guard.run("weight gradients", self.gradients.step_is_made)
        self.guard.run("activations", self.activations.step_is_over)
        self.guard.run("objects left out", self.guard.tell_left_out)
        self._begin_next_step()

    def _begin_next_step(self) -> None:
        if self._plan_version != self.monitor.plan_version:
            self.guard.run("live control", self._follow_plan)
        self._take_up_new_parameters()
        self._begin_step_anew()
        if self.replay is not None:
            self.replay.step_is_over()
        if self.captures is not None:
            self.guard.run("capture on demand", self.captures.begin_next_step)

    @contextlib.contextmanager
    def set_aside(self) -> Iterator[None]:
        """Excludes a `with` block from the step in progress: nothing in it is measured."""
        self.monitor.suspend()
        try:
            with self.guard.paused(), self.collectives.unseen():
                yield
        finally:
            self.monitor.resume()

    def _begin_step_anew(self) -> None:
        self.guard.run("activations", self.activations.begin_next_step)
        self.guard.run("features", self.features.begin_next_step)
        self.guard.run("weight gradients", self.gradients.begin_next_step)

    def _take_up_new_parameters(self) -> None:
        if self._new_parameters is not None:
            self.guard.run("new parameters", self._new_parameters.take_up)

    def _follow_plan(self) -> None:
        """Applies a change of the plan by live control from the step that begins now."""
        self._plan_version = self.monitor.plan_version
        self.settings = settings = self.monitor.settings(like_msprobe=self.settings.like_msprobe)
        for one in self.parameters:
            choose(self.monitor, settings, one)
        self.gradients.follow_plan(settings)
        self.activations.follow_plan(settings, self.framework.job.models)

    # Calls by the script.

    def log(
        self,
        values: Mapping[str, Any] | None = None,
        /,
        *,
        loss: float | torch.Tensor | None = None,
        learning_rate: float | torch.Tensor | None = None,
        **others: float | torch.Tensor | None,
    ) -> None:
        """Logs the loss, the learning rate and any other numbers of the step in progress: `log(loss=x, accuracy=0.9)`
        or `log({"loss": x, "val/accuracy": 0.9})`. Does not wait for a device. The last value of a name in a step
        counts; None is ignored. A value that is no number causes a warning, once per name."""
        self.guard.run("log", lambda: self.facts.tell(values, loss=loss, learning_rate=learning_rate, **others))

    def expect(self, micro_batches: int) -> None:
        """Sets the number of micro-batches of the next step, so that only the last one's gradient is measured: the last
        step of an epoch may have fewer. A number in the config overrides it."""
        if self.settings.micro_batches is None and micro_batches >= 1:
            self.framework.job.grad_acc_steps = micro_batches
            self.guard.run("weight gradients", lambda: self.gradients.expect(micro_batches))

    def step_fn(
        self, function: Callable[P, R], *, modules: torch.nn.Module | Sequence[torch.nn.Module] = ()
    ) -> Callable[P, R]:
        """Wraps the function that the loop calls in each step or micro-batch, so that its latest steps can be replayed:
        `step = watch.step_fn(step)`. An alert's action `replay` requires it; if no rule has that action, and
        `capture.replay` is not set, the function itself is returned.

        `modules`: further modules whose parameters and buffers the function changes, such as a teacher or a
        discriminator. trainmon keeps these and the watched models' parameters and buffers, the states of the random
        generators, and the arguments, with a copy of each tensor and of items drawn from iterators. A replay ends
        before the optimizer's step and restores everything bitwise. It repeats other side effects of the function, such
        as appending to a list.

        Cost: a copy of parameters and buffers per step, into the host's memory."""
        if self.replay is None:
            return function
        self.replay.also_of(list(models_of(modules)))
        return wrapped(self.replay, function)

    @property
    def stop_requested(self) -> bool:
        """Whether an alert whose rule has the action `stop` requests the end of the training: leave the loop then. With
        several ranks it becomes true at the same step on all of them, some steps after the alert."""
        return self.monitor.stop_requested

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of this rank's alert rules, to save with a checkpoint: numbers, texts, lists and dicts
        only. Waits for the monitor's own thread, usually milliseconds and at most five seconds."""
        return {"alerts": self.guard.run("alert state", lambda: saved(self.monitor))}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continues from the state of `state_dict`, as if the run had never stopped. Parts that do not fit cause a
        warning, and those rules learn their usual range again. None and `{}` change nothing."""
        self.guard.run("alert state", lambda: restore(self.monitor, state_dict))

    def measure_adhoc(self, name: str, tensor: torch.Tensor, ranks: Sequence[int]) -> None:
        """Measures any tensor as a row of the file `adhoc`."""
        self._adhoc.measure(name, tensor, ranks)

    def rehook_activations(self) -> None:
        """Removes the hooks from the modules and installs them again, including modules added since."""
        self.activations.detach()
        self.activations.attach(self.framework.job.models)

    def skip_step(self) -> None:
        """Discards and counts the step in progress, which the optimizer skips: for loops with a loss scaler of their
        own. The next attempt has the same number."""
        self.guard.run("skipped step", self._skip_step)

    def _skip_step(self) -> None:
        # Measurements from now on belong to the next attempt.
        self._is_measured = False
        if self.captures is not None:
            self.guard.run("capture on demand", self.captures.leave_out)
        self.measurer.abandon_step()
        self.monitor.skip_step()
        self.facts.forget()
        self._begin_next_step()

    def _restart_step(self) -> None:
        """Handles a step that the loop gave up and begins again. If its gradients held NaN or infinities, the loop
        skipped it for that reason: it counts as skipped then, once, even if several devices report it."""
        self._is_measured = False
        is_skipped = self.monitor.restart_step()
        self.measurer.abandon_step(None if is_skipped else self._step_was_skipped)
        if is_skipped:
            self._say_skipped()
        self.facts.forget()
        self._begin_next_step()

    def _step_was_skipped(self) -> None:
        self.monitor.count_skipped_step()
        self._say_skipped()

    def _say_skipped(self) -> None:
        if not self._has_said_skipped:
            self._has_said_skipped = True
            self.monitor.say(
                "info",
                "gradients with NaN or infinities were cleared before an optimizer's step: such steps are counted as "
                "skipped",
            )

    # Calls by torch's functions (`patches.Listener`).

    def gradients_are_cleared(self, owner: Any) -> None:
        """Handles cleared gradients that no step used: the loop gave up the step in progress."""
        self.guard.run("abandoned step", lambda: self._gradients_are_cleared(owner))

    def _gradients_are_cleared(self, owner: Any) -> None:
        framework = self.framework
        if not framework.zero_grad_clears or self._is_measured or not self.gradients.is_begun():
            return
        if self._parts is not None and self._parts.is_begun:
            # Those of the optimizers that have stepped.
            return
        if self._is_ours(owner) or (framework.grad_is_whole and self.gradients.is_cleared()):
            self._restart_step()

    def _is_ours(self, owner: Any) -> bool:
        job = self.framework.job
        return self.loss_scale.is_ours(owner) or any(owner is model for model in job.models)

    def before_backward(self) -> None:
        """Hooks parameters that require a gradient since the last step, before they get one."""
        if not self._is_measured and self._new_parameters is not None:
            self.guard.run("new parameters", self._new_parameters.before_backward)

    def before_clipping(self, parameters: Any) -> None:
        # A closure that the optimizer calls again clips other gradients than the measured ones.
        if not self._is_measured and self.guard.run("clipping", lambda: self.clipping.concerns_us(parameters)):
            self.guard.run("reduced gradients", self._measure_reduced)

    def after_clipping(self, norm: Any) -> None:
        if self.guard.run("clipping", self.clipping.gives_the_norm):
            self.guard.run("clipping", lambda: self.facts.tell_norm(norm))

    def loss_is_scaled(self, scaler: Any) -> None:
        if self._parts is not None and not self._has_said_scaled:
            self._has_said_scaled = True
            self.monitor.say(
                "warning",
                "a loss scaler and several optimizers: steps that it skips for one of them are not detected",
                "watch each optimizer separately, with an output_dir of its own",
            )
        self.guard.run("loss scale", lambda: self.loss_scale.loss_is_scaled(scaler))

    def loss_went_back(self, loss: Any) -> None:
        if self.replay is not None:
            self.replay.loss_went_back(loss)
        # Backward passes that an optimizer's step starts, in a closure, come after the loss of the step.
        counts = not self._is_measured
        self.guard.run("loss", lambda: self.losses.went_back(loss, patches.is_only_one, counts=counts))
        if self._parts is not None:
            self.guard.run("the optimizers' steps", self._parts.backward_is_over)

    def before_unscaling(self, optimizer: Any) -> None:
        if self.guard.run("loss scale", lambda: self.loss_scale.is_ours(optimizer)):
            self.guard.run("weight gradients", self.gradients.settle)

    def before_scaler_step(self, optimizer: Any) -> None:
        self.guard.run("loss scale", lambda: self.loss_scale.before_scaler_step(optimizer))

    def after_scaler_step(self, optimizer: Any) -> None:
        if self.guard.run("loss scale", lambda: self.loss_scale.left_out(optimizer)):
            self.skip_step()

    # The end.

    def detach(self) -> None:
        """Removes every hook; the monitor continues."""
        if self.captures is not None:
            self.guard.run("capture on demand", self.captures.detach)
        if self.replay is not None:
            self.guard.run("replay", self.replay.close)
        self.guard.run("detach from torch's functions", lambda: patches.unlisten(self))
        self.guard.run("detach collectives", self.collectives.detach)
        self.guard.run("detach from the framework", self.framework.detach)
        for hook, room in self._rooms():
            self.guard.run(f"detach {hook}", room.detach)

    def close(self) -> str:
        """Removes every hook, waits for pending data within the config's deadline, delivers it, and returns the
        summary. Idempotent."""
        if not self._is_closed:
            self.detach()
            live_watches.remove(self)
        return self.deliver()

    def deliver(self) -> str:
        """`close` without removing hooks, for a process that is about to end."""
        if not self._is_closed:
            self._is_closed = True
            self._finish()
        return self.monitor.shutdown()

    def _finish(self) -> None:
        """Waits for pending data. Ctrl-C shortens the wait to a second, the next one ends it; the measurements are
        still delivered, within a second."""
        budget = WaitBudget(self.settings.shutdown_timeout_s)
        ends: list[tuple[str, Callable[[], object]]] = [
            ("scalars", self.facts.close),
            ("device statistics", lambda: self.measurer.finish(budget.left)),
            ("global norm", lambda: self.norm.close(budget.left)),
            ("replica check", lambda: self.replicas.close(budget.left)),
            ("hang watch", self.hangs.close),
            ("collectives", lambda: self.collectives.finish(min(budget.left, 1.0))),
            ("activations", self.activations.run_is_over),
            ("objects left out", self.guard.tell_left_out),
        ]
        if self.captures is not None:
            ends.insert(0, ("capture on demand", self.captures.detach))
        for hook, end in ends:
            budget.run(functools.partial(self.guard.run, hook, end))
        budget.end(self.monitor.shutdown)

    def __dir__(self) -> list[str]:
        # The names in docs/api.md: hooks and the parts of a watch are public to the package only.
        return list(_FOR_USERS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
