"""The monitor's core: measurement, queues and exporters. Wraps `trainmon-agent`; depends on no framework and not on
torch.

Tensors are passed as torch objects; only `device`, `dtype`, `layout`, `shape`, `stride()`, `data_ptr()`, `_version` and
the storage's size are read from them. After construction no method raises because of a tensor: one that cannot be
measured is counted and reported once."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, final

from typing_extensions import Self, disjoint_base

__all__ = [
    "CONFIG_KEYS",
    "DEVICE_COLUMNS",
    "KINDS",
    "USUAL_CONFIG",
    "BackwardPass",
    "CallMode",
    "Capture",
    "CaptureConfig",
    "CaptureTicket",
    "Collectives",
    "ConfigError",
    "DeviceBlock",
    "DeviceKernels",
    "DeviceTable",
    "DeviceTables",
    "FeatureTargets",
    "Findings",
    "ModuleCall",
    "Monitor",
    "OpenCall",
    "OperatorCall",
    "ParsedConfig",
    "PendingStep",
    "Settings",
    "__version__",
    "check_run_name",
    "did_you_mean",
    "printable",
    "read_only_pass",
    "run_program",
    "squash_name",
]

__version__: Final[str]

CONFIG_KEYS: Final[tuple[str, ...]]
"""The outermost keys of a config file, of both dialects."""

USUAL_CONFIG: Final[str]
"""The default config, as the text of a config file."""

KINDS: Final[tuple[str, ...]]
"""The names of all kinds of record; the index is the kind's number."""

DEVICE_COLUMNS: Final[tuple[str, ...]]
"""The columns of a row of `PendingStep.record_rows`, each a float64: min, max, mean, norm, std, nans, infs, zeros (a
count)."""

class ConfigError(ValueError):
    """A config file that cannot be read or is invalid. The text lists every error with its location and a hint."""

def read_only_pass(tensor: Any) -> int | None:
    """Reads a host tensor's memory once and does almost nothing with it: the lower limit for benchmarks."""

def run_program(arguments: Sequence[str]) -> int:
    """Runs the command `trainmon` and returns its exit status; the first argument is the name that usage and help show.
    Releases the GIL. Ctrl-C ends the process as it would end the native program; the previous handler is restored
    afterwards. Supports every command but `run`, which is `trainmon.integrations.run`."""

def printable(message: str) -> str:
    """A message made safe to print: control characters are escaped, except line feeds outside backticks, and quoted
    text is cut after 200 characters."""

def did_you_mean(name: str, candidates: Sequence[str]) -> str | None:
    """The candidate most similar to a name, or None."""

def check_run_name(name: str) -> None:
    """Raises `ValueError`, with a hint, for a name that no run can have."""

def squash_name(name: str) -> str:
    """The tail of a parameter's name that identifies its place in the model."""

@final
class ParsedConfig:
    """A parsed config; raises `ConfigError` if it is faulty. `file` is its name in messages. With `is_path` it is also
    the file that the dynamic mode watches; `over` is applied to each version of it."""

    def __new__(
        cls,
        text: str,
        *,
        file: str = "config",
        is_path: bool = False,
        over: str | None = None,
        like_msprobe: bool = False,
    ) -> ParsedConfig:
        """`over`: a JSON object whose keys replace the text's outermost ones. `like_msprobe`: configs that msprobe
        accepts although they make no sense (a window without a step) cause a warning instead of an error."""
    @property
    def warnings(self) -> list[str]:
        """Warnings for the config's author: keys without effect, with hints."""
    @property
    def needs_agreement(self) -> bool:
        """Whether the ranks must agree on something during the training: live control, the dynamic mode, or an alert
        that ends the training."""
    @property
    def control_directory(self) -> Path | None:
        """The directory through which the ranks agree, if the config names one."""

@final
class Settings:
    """The effective config, as far as hooks need it."""

    @property
    def is_v2(self) -> bool:
        """Whether it is a `TrainerMonitorV2` config."""
    @property
    def ranks(self) -> list[int]:
        """The ranks that measure; empty means all."""
    @property
    def start_step(self) -> int:
        """The first step measured."""
    @property
    def step_interval(self) -> int:
        """One step in this many is measured."""
    @property
    def squash_name(self) -> bool:
        """Whether names are shortened to their tail."""
    @property
    def like_msprobe(self) -> bool:
        """Whether names are msprobe's, including wrappers' `module.` (see `trainmon.common.names`)."""
    @property
    def every_micro_batch(self) -> bool:
        """Whether weight gradients are measured after every micro-batch."""
    @property
    def micro_batches(self) -> int | None:
        """Micro-batches per step, if the config has the key."""
    @property
    def forward(self) -> bool:
        """Whether modules' inputs and outputs are measured."""
    @property
    def backward(self) -> bool:
        """Whether the gradients of modules' inputs and outputs are measured."""
    @property
    def print_struct(self) -> bool:
        """Whether the module structure is written, and nothing else."""
    @property
    def stack_info(self) -> bool:
        """Whether the modules' call stacks are written."""
    @property
    def is_live(self) -> bool:
        """Whether the plan may change while the training runs."""
    @property
    def has_captures(self) -> bool:
        """Whether captures may be requested while the training runs."""
    @property
    def capture_signal(self) -> bool | None:
        """Whether SIGUSR1 requests a capture; None if the config does not set it."""
    @property
    def kept_steps(self) -> int:
        """The number of latest steps that are kept for replay."""
    @property
    def patch_optimizer_step(self) -> bool:
        """Whether the end of a step is detected at the optimizer."""
    @property
    def features(self) -> FeatureTargets | None:
        """The level-2 features, if any is requested."""

    @property
    def collectives(self) -> tuple[list[str], bool] | None:
        """Patterns of calling lines (`cc_codeline`), and whether only stacks are requested; None if this rank does not
        measure collective operations."""
    @property
    def replica_interval(self) -> int:
        """Steps between two comparisons of replicas; 0: never."""
    @property
    def stall(self) -> tuple[float, float] | None:
        """The thresholds of the rule `Stall`: the multiple of the usual step time, and the minimum in seconds; None
        without the rule."""
    @property
    def straggler(self) -> float | None:
        """The threshold of the rule `Straggler`: a rank's lag as a share of a step; None without the rule."""
    @property
    def shutdown_timeout_s(self) -> float:
        """Seconds that the end of the training waits for queued data."""

@final
class FeatureTargets:
    """The modules of each level-2 feature; None if the feature is off; an empty list of linear modules means all."""

    @property
    def attention(self) -> list[str] | None:
        """Modules whose first two inputs are query and key."""
    @property
    def linear(self) -> list[str] | None:
        """Linear modules."""
    @property
    def router_weight(self) -> list[str] | None:
        """Routers, for the similarity of their weights."""
    @property
    def router_logit(self) -> list[str] | None:
        """Routers, for the entropy of their logits."""
    @property
    def order(self) -> str:
        """The order of the attention inputs' dimensions, `s,b,h,d` or `b,s,h,d`."""

@final
class CaptureTicket:
    """A step that must be captured; end it with `Monitor.end_capture`."""

    @property
    def step(self) -> int:
        """The step."""
    @property
    def rank(self) -> int:
        """This rank's number, part of the directory's name."""
    @property
    def config(self) -> str:
        """The capture's config, as JSON: level, task, scope, directory, volume limit."""
    @property
    def what(self) -> str:
        """A short description of the request and its origin."""
    @property
    def number(self) -> int:
        """The capture's number, the same on every rank."""

@final
class Monitor:
    """One rank's monitor. Its threads end with `shutdown`, or when the object is destroyed."""

    @staticmethod
    def start(
        config: ParsedConfig,
        *,
        rank: int | None = None,
        local_rank: int | None = None,
        world_size: int | None = None,
        start_iteration: int = 0,
        output_dir: str | None = None,
        run: str | None = None,
        program: str | None = None,
        layout: str = "run",
        listener: Callable[[str, str, str | None], None] | None = None,
        quiet: bool = False,
        rank_store: Any = None,
    ) -> Monitor:
        """Starts a monitor with a parsed config.

        `listener(severity, message, hint)` receives the monitor's notices; it may be called from any thread. Without
        one, they go to `trainmon.common.notices.route`, and to standard error if that does not take them. `quiet`: only
        warnings are printed. Without `rank`, the launcher's environment gives the rank. `rank_store`: how the ranks
        agree on a changed plan, an object like `trainmon.ranks.rank_store.TorchRankStore`; by default, files in the
        control directory.

        `run`: the run's name and its directory's, the same on every rank. By default it comes from the environment
        (`TRAINMON_RUN_NAME`, the launcher's job id), else it is `program` (by default the script's name) and the time.
        `layout`: the layout of the files if the config does not set it, `run` or `msprobe`.

        Raises `ValueError` for a name that no directory can have, `RuntimeError` if the rank is unknown or a thread
        cannot be started.
        """

    @property
    def step(self) -> int:
        """The number of the step in progress."""
    @property
    def collecting(self) -> bool:
        """Whether the step in progress is measured on this rank."""
    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def run_name(self) -> str:
        """The run's name: the label `run`, the same on every rank."""
    @property
    def run_directory(self) -> str | None:
        """The directory of this run's files. With the layout `run` it holds the directories of all ranks and has the
        run's name, with a number appended if an earlier run has the name. With msprobe's layout it is the rank's own,
        created with the first step. None if nothing is written there."""
    @property
    def rank_directory(self) -> str | None:
        """The directory of this rank's files; as `run_directory`."""
    def settings(self, *, like_msprobe: bool = False) -> Settings:
        """The effective config, including changes by live control. `like_msprobe`: whether msprobe's import is used;
        its V2 layout has its names too."""
    def locations(self) -> list[tuple[str, list[str]]]:
        """Each exporter's name and the locations of its output. The first location of `csv` is the rank's directory."""
    def configured(self, kind: int) -> bool:
        """Whether the config requests this kind."""
    def wants(self, kind: int) -> bool:
        """Whether this kind is configured and the step in progress measured."""
    @property
    def plan_version(self) -> int:
        """The number of changes that live control has made to the plan. If it has changed when a step begins, targets
        and kinds must be looked up again."""
    @property
    def sampling_stride(self) -> int:
        """One layer in this many is measured in the step in progress, to keep the overhead budget; 1 measures all."""
    def follow_targets(self) -> None:
        """Declares that the caller looks up the targets again when `plan_version` changes, so that live control may
        change them."""
    def leaves_out(self, tensor_id: int, kind: int) -> bool:
        """Whether sampling skips this tensor in the step in progress; it is then counted as not sampled. `observe` and
        the like call it themselves: it is for callers that measure elsewhere."""
    def request(self, kind: int) -> tuple[tuple[str, ...], float] | None:
        """The statistics measured of this kind now, in no particular order, including those that the metrics page, the
        global norm and update ratios require; and the magnitude below which an element counts as zero. None if the
        config does not request the kind."""
    def ops(self) -> list[str]:
        """The statistics measured now."""
    def measure(self, tensor: Any) -> dict[str, float]:
        """The configured statistics of a host tensor, measured now and not recorded; empty if it cannot be."""
    def latest(self, kind: int) -> list[tuple[str, int, int, dict[str, float]]]:
        """The latest reading of every tensor of a kind in the step in progress or the one before: `(name, vpp_stage,
        micro_step, values)`. Values are those of the statistics measured now; a reading made before they were requested
        is skipped."""
    def set_ops(self, ops: Sequence[str]) -> list[str]:
        """Changes the statistics from the next record on; returns the new ones. Unknown names cause a warning; if no
        known name remains, `norm` is measured."""
    def matches_parameter(self, raw: str, squashed: str, vpp_stage: int) -> bool:
        """Whether the config's targets match this parameter."""
    def matches_module(self, name: str, vpp_stage: int) -> bool:
        """Whether the config requests this module's activations."""
    def warn_of_targets(self, parameters: Sequence[tuple[str, int]], modules: Sequence[tuple[str, int]]) -> None:
        """Warns of targets that match none of these parameters (by any name, with its chunk) and modules, with the most
        similar names."""
    def activation_name(
        self, module: str, is_output: bool, is_gradient: bool, index: int, of: int, earlier: int
    ) -> str:
        """The row name of the `index`-th of `of` tensors at one end of a module, in the config's dialect."""
    def register(self, name: str, vpp_stage: int) -> int:
        """Gives a tensor its id. Once per name."""
    def observe(
        self, tensor_id: int, kind: int, micro_step: int, tensor: Any, factor: float = 1.0, once: bool = False
    ) -> float | None:
        """Measures a host tensor in place, the GIL released for larger ones, and records it. Returns its norm (if norms
        of this kind are measured), or None if it was not measured. `factor` scales every value (1 / loss scale; a power
        of two keeps all digits): the reading is that of the scaled tensor, `zeros` included.

        With `once`, a tensor is not read again if it was measured before under this id (a gradient in this step, a
        parameter ever) at the same address, with the same `_version` and the same contents at a few sampled places:
        only for tensors that nothing writes without torch's knowledge. Cost: one pass over the tensor, no copy."""
    def observe_all(self, shown: Sequence[tuple[tuple[int, int, int], Any]]) -> None:
        """Measures host tensors, each with its `(tensor_id, kind, micro_step)`: the same readings as `observe` gives
        one by one, in less time. For many tensors that are not in the cache. A tensor that cannot be measured is
        counted; the others are recorded."""
    def record_again(self, tensor_id: int, kind: int, micro_step: int, of_tensor_id: int) -> bool:
        """Records the reading that another tensor id of this kind got in this step, because both are one tensor. False
        if there is none. Reads no tensor."""
    def fingerprints(self, tensors: Sequence[Any]) -> list[int | None]:
        """64 bits of each host tensor's bytes in logical order (XXH3; chained over shards from 2^18 elements on): equal
        for equal bytes. None for a tensor that cannot be read. Cost: one pass over the memory, the GIL released for
        large amounts."""
    def open_collectives(self) -> list[tuple[str, str, list[int], int, int, str | None, float]]:
        """The collective operations that this rank has not completed, oldest first: operation, group, its ranks (empty
        if unknown), number in the group, bytes, calling line if requested, seconds since it began."""
    @property
    def findings(self) -> Findings:
        """The interface that reports findings about the job's ranks."""
    def observe_missing(self, tensor_id: int, kind: int, micro_step: int) -> None:
        """Records that there was no tensor where one was expected (an input without gradient)."""
    def observe_unsupported(self, tensor_id: int, kind: int, why: str) -> None:
        """Counts a tensor that cannot be measured and reports the reason, once per reason."""
    def observe_unsupported_block(self, block: DeviceBlock, why: str) -> None:
        """As `observe_unsupported`, of all records of a block."""
    def record_values(self, tensor_id: int, kind: int, micro_step: int, values: Sequence[float]) -> None:
        """Records numbers computed elsewhere: one for mg_direction, update_ratio and the router features, two for
        attention_hook (entropy, softmax_max) and linear_hook (sr, kernel_norm)."""
    def scalar(self, name: str, value: float) -> None:
        """Records a number of the step in progress under a name of the script's own; the last value of a step counts. A
        name that is refused (empty, above 256 bytes, the 1,001st) is reported once and counted."""
    def scalar_id(self, name: str) -> int | None:
        """The id of such a name, for a value that a `PendingStep` records later; None for a refused name."""
    def sign_agreement(self, gradient: Any, moment: Any) -> float | None:
        """(sum of sign(g)*sign(m) / numel + 1) / 2 of two host tensors of one shape, read once; None if their shapes
        differ."""
    def keep_copy(self, tensor_id: int, tensor: Any) -> None:
        """Keeps a copy of a host parameter from before the step, for `observe_update`. The copy's memory is reused."""
    def observe_update(self, tensor_id: int, tensor: Any) -> None:
        """Measures the parameter's change since `keep_copy` as kinds update and update_ratio."""
    def collectives(
        self,
        describe: Callable[[Any], tuple[str, str | None, Sequence[int], int]],
        failed: Callable[[BaseException], None],
        *,
        caller: Callable[[str], tuple[str | None, bool]] | None = None,
        device_clock: Any = None,
        measure_on_device: Callable[[int, int, int, list[Any]], None] | None = None,
    ) -> Collectives:
        """The interface that measures this process's collective operations. `describe` returns `(name, role, ranks,
        operations before)` of a process group, `caller` the line that calls the operation and whether it is recorded;
        `failed` is called once with the error that switched everything off. `device_clock` has `begin()`, `end(clock)`
        and `seconds(clock)`. `measure_on_device` receives a record's numbers and the tensors whose values it combines;
        none if some are on the host and some on a device."""
    def pending_step(self) -> PendingStep:
        """Keeps the step's batch open for readings that come after its end: for at most four steps; for a global
        gradient norm, three quarters of `queue_steps`, at most 32."""
    def end_step(
        self,
        *,
        loss: float | None = None,
        learning_rate: float | None = None,
        grad_norm: float | None = None,
        framework_grad_norm: float | None = None,
    ) -> None:
        """Ends the step. `grad_norm` is the global norm of the aggregated, unclipped gradient if it is known by now;
        without it the step has none unless a `PendingStep` brings it, because this rank's records may be only a part.
        `framework_grad_norm` is the norm that the framework reports. Never waits."""
    def skip_step(self) -> None:
        """Discards and counts the records of a step that the optimizer skipped; the step keeps its number."""
    def offer_captures(self) -> None:
        """Declares that the caller captures steps when `capture_is_due`; without it requests are refused."""
    def ask_for_capture(self) -> None:
        """Requests a capture of the next step on which all ranks can agree. Takes no lock."""
    @property
    def capture_is_due(self) -> bool:
        """Whether the step in progress must be captured. Cost: one load unless a capture is near."""
    @property
    def replay_is_due(self) -> bool:
        """Whether an earlier step must be replayed and captured before the one in progress. Cost: one load unless a
        replay is near."""
    def keep_step(self) -> int | None:
        """Registers that the caller keeps the step in progress for replay. Returns the step that it must discard for
        it."""
    def forget_steps(self) -> None:
        """Registers that the caller keeps no step any more."""
    def suspend(self) -> None:
        """Suspends the step in progress until `resume`: code that runs meanwhile is not measured."""
    def resume(self) -> None:
        """Resumes the step in progress."""
    def begin_capture(self) -> CaptureTicket | None:
        """Begins the capture of the step in progress or of the replayed one. None if it is not due, or cannot be
        captured and the user was informed."""
    def end_capture(
        self,
        ticket: CaptureTicket,
        size: int | None,
        why: str | None = None,
        *,
        replayed: tuple[bool | None, bool] | None = None,
    ) -> None:
        """Ends a captured step, with the bytes of its files. `why`: the reason why it is incomplete. `replayed`, of a
        replayed step: whether its losses are bitwise equal to the first time (None: there are none), and whether they
        and its gradients are finite. A ticket counts once."""
    @property
    def stop_requested(self) -> bool:
        """Whether an alert whose rule has the action `stop` requests the end of the training; with several ranks only
        after all of them have agreed on the step. Cost: one load."""
    def alert_state(self) -> str:
        """The state of this rank's alert rules after every step ended so far, as JSON. Waits for the monitor's own
        thread, usually milliseconds and at most five seconds; `null` after that."""
    def load_alert_state(self, state: str) -> bool:
        """Continues from a saved state. Parts that do not fit cause a warning, and those rules learn their usual range
        again; False if nothing of it could be read."""
    def restart_step(self) -> bool:
        """Restarts the step in progress, which the loop gave up: its records are discarded and counted as not sampled.
        If its gradients held NaN or infinities it is counted as skipped, and True is returned."""
    def count_skipped_step(self) -> None:
        """Counts a step as skipped whose gradients held NaN or infinities, as was found out later."""
    def retract(self, kind: int, tensor_ids: Sequence[int], keep_last: bool) -> None:
        """Takes back the records of these tensors and this kind in the step in progress, except the last record of each
        if `keep_last`. Counted as not sampled. Cost: one pass over the step's records."""
    def add_cost(self, phase: str, seconds: float) -> None:
        """Adds time that the training thread spent for the monitor outside of `observe`; phases: measure, launch,
        offer."""
    def say(self, severity: str, message: str, hint: str | None = None) -> None:
        """Logs a message through the monitor; severity `info` or `warning`."""
    def tell_parts(
        self, parameters: list[tuple[str, int, str, int, list[tuple[bool, int | None] | None], bool]]
    ) -> None:
        """Registers the part of each parameter that this rank holds, once: name, `vpp_stage`, the name in the whole
        model, the elements over all ranks; for values, gradient and moments whether they count here in sums over ranks
        (not if a lower rank holds the same), and their number of elements; whether the ranks that hold the values are
        those that step them. Not called if every rank holds everything."""
    def announce(self, watched: int, parameters: int) -> None:
        """Prints, on the first rank, the measured signals of so many parameters (`watched` of all) and the output
        locations; the summary is printed too when the monitor has shut down. Once."""
    def counts(self) -> Mapping[str, int]:
        """The counters observed, not_sampled, offered, accepted, dropped, `lost` over all exporters, and
        `missing_numbers`: losses and norms of steps that left without them."""
    def report(self) -> str:
        """The summary so far, as text."""
    def shutdown(self, within: float | None = None) -> str:
        """Delivers what is queued within the deadline (and `within` so many seconds), closes the exporters, and returns
        the summary. An exception from a signal handler shortens the deadline to a second, a second exception ends it;
        the first one is raised afterwards."""

@final
class DeviceTable:
    """A table of tensors in the kernels' format."""

    @property
    def number(self) -> int:
        """Its index among the remembered tables; reused once the table is discarded."""
    @property
    def is_new(self) -> bool:
        """Whether its words differ from those of this number before."""
    @property
    def rows(self) -> int: ...
    @property
    def single_chunks(self) -> int:
        """Chunks of rows with one tensor."""
    @property
    def pair_chunks(self) -> int:
        """Chunks of rows with two."""

@final
class DeviceBlock:
    """The records of the rows of a table, in their order."""

    def __len__(self) -> int: ...
    def rows_of(self, kinds: set[int]) -> list[int]:
        """The rows of these kinds."""
    def retract(self, kind: int, tensor_ids: set[int]) -> None:
        """Takes back the rows of these tensors and this kind."""

@final
class DeviceTables:
    """The tables of one device and stream, rebuilt only if a tensor moved. May be used from any thread."""

    def __new__(cls) -> DeviceTables: ...
    def of(self, shown: Sequence[tuple[Any, Any | None, int, float | None, bool]]) -> tuple[DeviceTable, list[int]]:
        """The table of these tensors: `(tensor, other, shows, eps, std)`. `shows`: 0 the values, 1 tensor minus other,
        2 the sign agreement of both, 3 none of these: tensor is copied into other. 1 to 3 require another tensor of the
        same layout, 3 also of the same dtype, of up to 8 bytes. `eps`: an element below this magnitude counts as zero;
        None if zeros are not counted. Also returns the positions of the skipped tensors, which overlap, have gaps of
        several sizes, or cannot be read. Cost: some microseconds per tensor."""
    def of_all(
        self, monitor: Monitor, device: Any, shown: list[tuple[tuple[int, int, int], Any]], uncounted: set[int]
    ) -> tuple[DeviceTable, DeviceBlock, list[int]]:
        """As `of`, for the values of tensors on a device with the labels of their records: `((tensor_id, kind,
        micro_step), tensor)`. The monitor decides what each kind requires; a tensor that is not measured in this step
        is counted there and has no row. Tensors on other devices are skipped, too. `uncounted`: the positions of those
        that do not count in the global norm. Cost: some 130 ns per tensor that has not moved (torch 2.10 and newer)."""
    def words(self, table: DeviceTable) -> bytes:
        """The table in the kernels' format: copy it to the device before you use a new table."""

@final
class DeviceKernels:
    """The kernels of one CUDA device: see `trainmon-device`. No method waits for the device."""

    def __new__(cls, device: int) -> DeviceKernels:
        """Raises `RuntimeError` if the driver is missing or refuses, or the device is older than compute capability
        8.0. At the first load on a machine the driver compiles for a second or two."""
    def measure(
        self,
        table: DeviceTable,
        memory: tuple[int, int, int],
        stream: int,
        factor: float = 1.0,
        factor_at: tuple[int, bool] | None = None,
    ) -> int:
        """Launches the measurement of a table's tensors; returns the number of launches. `memory` has addresses on the
        device: of the table's words, of 9 float64 per chunk for findings, of `DEVICE_COLUMNS` float64 per row for
        results. `factor` scales the results; `factor_at` has the address of a factor on the device, and whether it is a
        float64 or a float32. That memory and the tensors must stay until the stream has done the work; no other stream
        may use the findings meanwhile. Raises `RuntimeError` if the driver refuses."""
    def measure_one(
        self,
        shown: tuple[Any, Any | None, int, float | None, bool],
        memory: tuple[int, int, int, int],
        room: int,
        stream: int,
        factor: float = 1.0,
        factor_at: tuple[int, bool] | None = None,
    ) -> bool:
        """Launches the measurement of one tensor, as `measure`, without a table; `shown` as in `DeviceTables.of`.
        `memory` has addresses on the device: of 9 words for the row, of the numbers 0, 1, 2 and so on in 64 bits, of 9
        float64 per chunk for findings, of `DEVICE_COLUMNS` float64 for the result. `room` is the number of chunks of
        32768 elements for which the second and third have room. False, without a launch, if that is too little or only
        torch's operators can read the tensor."""
    def copy(self, table: DeviceTable, words: int, stream: int) -> int:
        """Launches copies of each tensor of a table into the other of its row, with one launch. `words`: the address of
        the table's words on the device."""
    def fingerprint(self, rows: tuple[int, int], chunks: tuple[int, int], sums: int, out: int, stream: int) -> int:
        """Launches the computation of fingerprints, as `measure`. `rows`: address of 4 words per tensor (address,
        words, bytes of a word, index of its first chunk), and their number; `chunks`: address of 2 words per chunk (the
        row in the upper half and the chunk's index in it in the lower, the weight of its sum), and their number; `sums`
        and `out`: a word per chunk and per tensor."""

_LateNumber: TypeAlias = Literal["loss", "grad_norm", "framework_grad_norm"]

@final
class PendingStep:
    """Holds back one step's batch until `release`, or until the object is destroyed."""

    @property
    def step(self) -> int: ...
    def record_rows(
        self,
        labels: Sequence[tuple[int, int, int, str, Sequence[int]]],
        places: Sequence[tuple[Any, int]],
    ) -> list[float]:
        """Records one row per label `(tensor_id, kind, micro_step, dtype, shape)`. A place is a table and the index of
        a row of it. A table is a contiguous CPU tensor of float64 whose columns are `DEVICE_COLUMNS`. `dtype` as torch
        prints it (`torch.bfloat16`). Returns the norms. Raises `ValueError` for any other table, or one without such a
        row."""
    def record_block(self, block: DeviceBlock, table: Any, first: int) -> float:
        """Records the rows of a block, which begin in row `first`, as `record_rows`. Returns the norm of all tensors
        that count together."""
    def record_together(
        self, label: tuple[int, int, int], parts: Sequence[tuple[str, Sequence[int], Sequence[float]]]
    ) -> None:
        """Records values that several tensors hold together: dtype, shape and row (`DEVICE_COLUMNS`) of each."""
    def record_values(self, tensor_id: int, kind: int, micro_step: int, values: Sequence[float]) -> None: ...
    def expect(self, number: _LateNumber) -> None:
        """Announces a number that this object will set: a step that leaves without it is counted and reported."""
    def forgo(self, number: _LateNumber) -> None:
        """Takes an announcement back: the number is omitted on purpose."""
    def set_loss(self, loss: float) -> bool:
        """Sets the step's loss. False, without effect, once the step has left."""
    def set_grad_norm(self, norm: float) -> bool:
        """Sets the step's global norm, once every rank's part is in. False, without effect, once the step has left."""
    def set_framework_grad_norm(self, norm: float) -> bool:
        """Sets the norm that the framework reports. False, without effect, once the step has left."""
    def release(self) -> None: ...

@final
class Findings:
    """Reports findings about a job's ranks as alerts. Every method may be called from any thread."""

    def raise_replica_mismatch(
        self,
        begins: bool,
        findings: int,
        step: int,
        kind: int,
        name: str,
        vpp_stage: int,
        differing: float,
        message: str,
    ) -> None:
        """Raises the alert `ReplicaMismatch`, or ends it: `kind` and `name` are those of the first differing copy,
        `differing` is the number of differing copies."""
    def count_replica_mismatch(self) -> None:
        """Counts one more finding of an alert that is active."""
    def raise_straggler(
        self, begins: bool, findings: int, step: int, group: str, lag: float, allowed: float, message: str
    ) -> None:
        """Raises the alert `Straggler` of a group, or ends it: `lag` and `allowed` in seconds per step."""
    def count_straggler(self) -> None:
        """Counts one more window of an active alert `Straggler`."""
    def raise_hang(self, step: int, waited: float, allowed: float, message: str) -> None:
        """Raises the alert `Stall` with its cause."""
    def set_hang(self, sentence: str | None) -> None:
        """Sets the cause of a hang, for `trainmon ctl status`; None once the run continues."""

@final
class Collectives:
    """The collective operations of one monitor. The replacement of a method is called with the method's owner first,
    and returns the method's result. trainmon's own errors are never raised."""

    def method(
        self,
        op: str,
        original: Callable[..., Any],
        *,
        inputs: int | None,
        outputs: int | None,
        keywords: Sequence[str],
        slots: Sequence[int],
    ) -> Callable[..., Any]:
        """The replacement of a method of a process group. Tensors are at the positions `inputs` and `outputs` after the
        group (the same for an in-place operation) or under these keywords; `slots` has, by position, the index of the
        argument in `torch.distributed`'s function. Raises `ValueError` for an unknown operation."""

    def start_of_group(self, original: Callable[..., Any]) -> Callable[..., Any]: ...
    def end_of_group(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The replacement of the method whose work is that of all operations since `start_of_group`."""

    def wait(self, original: Callable[..., Any]) -> Callable[..., Any]: ...
    def get_future(self, original: Callable[..., Any]) -> Callable[..., Any]: ...
    def begin(self, op: str, group: Any, inputs: Any, larger: Any, *, in_place: bool) -> OpenCall | None:
        """Begins an operation that no method announces; None inside of one that a method does. `larger`: tensors as
        large as the results, if these are larger than the inputs; `in_place`: whether the inputs hold the results."""

    def bypass_kernel(self, guards: Callable[[], Any] | None) -> None:
        """Runs announced calls of `all_reduce` with dense CPU tensors under the context manager that `guards` returns,
        under which the dispatcher skips the kernel for DDP's own calls. None: no longer."""

    @staticmethod
    def is_inside() -> bool:
        """Whether this thread's operations are part of an announced one."""

    @staticmethod
    def enter() -> None:
        """Treats this thread's operations as part of an announced one from now on."""

    @staticmethod
    def leave() -> None: ...
    @staticmethod
    def enter_objects() -> None:
        """Treats this thread's tensors as pickled objects from now on: counted and timed, not measured."""

    @staticmethod
    def leave_objects() -> None: ...
    def settle(self) -> None:
        """Counts operations that ended without a wait, and measures what they received."""

    @property
    def pending(self) -> int:
        """The number of operations that may not have ended."""

    def open(self) -> list[tuple[str, str, int, float, str | None]]:
        """`(op, group, sequence, seconds since it began, line)` of operations in progress, oldest first."""

    def times(self) -> list[tuple[str, list[int], int, float]]:
        """`(group, ranks, operations ended, seconds inside)` since the start; without sends and receives."""

    def begun(self) -> list[tuple[str, list[int], int]]:
        """`(group, ranks, operations begun)`, without sends and receives."""

    def set_straggler(self, group: str, rank: int, lag: float, median: float, step: int) -> None:
        """Sets the rank of a group that came last up to this step, with the seconds per step by which its time inside
        is below the others' median."""

    def stragglers(self) -> list[tuple[str, int, float, float, int]]: ...
    def close(self) -> None:
        """Discards every operation in progress and records no further ones."""

@final
class OpenCall:
    """An operation that no method announced. Ending it twice changes nothing."""

    def ended(self, *_arguments: Any) -> None:
        """Ends the operation. May be called from any thread; the next `settle` measures what it received."""

    def ended_after(self, waited: float, received: Any) -> None:
        """Ends the operation after a wait of so many seconds. `received`: its results, if they are no arguments."""

    def release(self) -> None:
        """Gives up the operation: its end will not be reported."""

@final
class CaptureConfig:
    """A capture's config, read and checked."""

    @staticmethod
    def read(text: str, file: str, over: str, like_msprobe: bool) -> CaptureConfig:
        """Reads a config; the keys of the JSON object `over` replace its outermost ones. `like_msprobe`: missing keys
        have msprobe's defaults. Raises `ConfigError`, with every fault."""

    @property
    def warnings(self) -> list[str]: ...
    @property
    def level(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def dump_path(self) -> Path: ...
    @property
    def dump_enable(self) -> bool | None:
        """The switch that may change while the training runs; None if the config has none."""

    @property
    def neutral(self) -> bool:
        """Whether gradients stay bitwise unchanged."""

    @property
    def wants_modules(self) -> bool: ...
    @property
    def wants_operators(self) -> bool:
        """Whether the dispatcher's operators are captured: level `L2`."""

    @property
    def is_whole(self) -> bool:
        """Whether everything is captured that the level supports: no scope, list or slice, both directions, inputs and
        outputs."""

    @property
    def request_id(self) -> str | None: ...
    @property
    def custom_op_namespaces(self) -> list[str]:
        """Namespaces of `torch.ops` whose operators are captured."""

    @property
    def wants_functions(self) -> bool: ...
    @property
    def wants_backward(self) -> bool: ...
    def wants_step(self, step: int) -> bool: ...
    def is_past(self, step: int) -> bool:
        """Whether no step from this one on is captured."""

    def wants_rank(self, rank: int | None) -> bool: ...

@disjoint_base
class CallMode:
    """The mode that torch calls with every function: records the call and makes it. Errors of the function are raised;
    errors while recording are written to the step's log."""

    def __new__(cls, capture: Capture) -> Self: ...
    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None
    ) -> Any: ...

@final
class ModuleCall:
    """A module's call, and its gradients. No method raises."""

    def end(self, output: Any, parameters: dict[str, Any], failed: bool) -> None: ...
    def note(self, text: str) -> None:
        """Adds a note to the call's entry."""

    def begin_backward(self) -> None: ...
    def end_backward(self, into: Any, of: Any) -> None:
        """Records the gradients of the inputs and of the outputs."""

@final
class BackwardPass:
    """The backward of one call of a module, recorded by an autograd node through which its tensors are passed."""

    def __new__(cls, call: ModuleCall) -> Self: ...
    def take_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments to call the module with."""

    def take_outputs(self, output: Any) -> Any:
        """The outputs for the module to return."""

@final
class OperatorCall:
    """A call whose end the caller reports. Until `returned`, no other call of this thread is captured."""

    def returned(self) -> None: ...
    def note(self, text: str) -> None:
        """Adds a note to the call's entry."""

    def end(self, outputs: tuple[Any, ...], hidden: Sequence[int]) -> None: ...

@final
class Capture:
    """The recorder of a capture: the functions that it recognises, and the step in progress."""

    def __new__(cls) -> Self: ...
    @property
    def is_open(self) -> bool:
        """Whether a step was begun and has not ended."""

    @property
    def is_on(self) -> bool:
        """Whether calls are captured."""

    def add_operator(
        self,
        function: Any,
        prefix: str,
        api: str,
        is_seen: bool,
        filled: Sequence[int],
        filled_keys: Sequence[str],
    ) -> int:
        """Adds a function and returns its number. `is_seen`: the mode is called with this very object. `filled`:
        arguments, by position and by keyword, that hold nothing before the call."""

    def add_allocation(self, function: Any) -> None:
        """Adds a function that allocates uninitialised memory: it is no operator, but tensors in that memory have
        `"from_empty": true` in a dump."""

    def add_overload(self, operator: Any, prefix: str, name: str) -> int:
        """Adds an operator of the dispatcher, whose name has a dot, and returns its number."""

    def entrance(self, operator: int | None, target: Any, original: Any) -> Callable[..., Any]:
        """The replacement of a function: announces the call to the mode, which receives one of `target`, and makes it.
        Without an operator it is not captured."""

    def call_operator(
        self, operator: int, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Calls a function that no mode receives, and records the call."""

    def begin_operator(
        self, operator: int, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> OperatorCall | None:
        """Begins a call; None if it is not captured."""

    def set_mode(self, mode: CallMode | None) -> None: ...
    def set_parent_check(self, check: Callable[[], None] | None) -> None:
        """Sets the function that is called before a call is put under a parent: it removes a parent that has ended.
        Parents that were set before, in any thread, no longer count."""

    def set_micro_step(self, micro_step: int) -> None:
        """Sets the number of the micro-batch in progress."""

    def begin(
        self,
        config: CaptureConfig,
        step: int,
        rank: int | None,
        listener: Callable[[str, str, str | None], None],
        rows: tuple[int, int, int] | None = None,
    ) -> None:
        """Begins a step's files. Raises `ConfigError` if they cannot be created. `listener` receives a severity, a
        message and a hint. `rows`: only a range of rows is captured of tensors with that many rows: `(rows, first,
        end)`."""

    def expect_bytes(self, size: int) -> None:
        """Sets the expected size of the step's tensors, for progress messages."""

    def set_device_numbers(self, device_numbers: Any) -> None:
        """Sets the object that measures on devices, with a method `take_up(tensor)`, from the next step on."""

    def fill_numbers(self, tickets: Sequence[int], rows: Sequence[Sequence[float]]) -> None:
        """Sets the numbers that a device computed, by the tickets of their tensors."""

    def switch(self, is_on: bool) -> None: ...
    def set_rank(self, rank: int) -> bool: ...
    def write(self) -> None:
        """Writes the step's files as they are now. Cost: time linear in the step's records."""

    def finish(self) -> None:
        """Ends the step, and writes its files."""

    def set_parent(self, parent: str | None) -> str | None:
        """Sets the parent of this thread's calls in `construct.json`; returns the previous one."""

    def begin_module(
        self, module: str, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> ModuleCall | None: ...
    def parameter_gradient(self, module: str, parameter: str, gradient: Any) -> None: ...
    def save(self, value: Any, name: str, with_gradients: bool) -> None: ...
    def progress(self) -> tuple[int, int, int, str | None] | None:
        """Entries, bytes, files, and the reason why the capture has stopped, if it has."""

    def volume(self) -> tuple[int, int, int, int] | None:
        """Bytes of all tensors among the values, less those that share another's file; files and bytes that wait to be
        written; calls that returned a NaN or an infinity."""

    def note(self, what: str, message: str) -> None:
        """Writes to the step's `dump_error_info.log`, each kind once."""
