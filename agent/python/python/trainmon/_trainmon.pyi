"""The monitor's core: measuring, queues and exporters. Wraps `trainmon-agent`; knows no framework and no torch.

Tensors are handed over as torch objects; only `device`, `dtype`, `layout`, `shape`, `stride()`, `data_ptr()`,
`_version` and the storage's size are asked of them. After construction no method raises because of a tensor: what
cannot be measured is counted and said once."""

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
"""What is measured where nothing is configured, as the text of a config file."""

KINDS: Final[tuple[str, ...]]
"""The names of all kinds of record; a kind's number is its place here."""

DEVICE_COLUMNS: Final[tuple[str, ...]]
"""What a row of `PendingStep.record_rows` holds, each as float64: min, max, mean, norm, std, nans, infs, zeros (a
count)."""

class ConfigError(ValueError):
    """A config file that cannot be read or is wrong. The text names every fault with its place and a hint."""

def read_only_pass(tensor: Any) -> int | None:
    """Reads a host tensor's memory once and does next to nothing with it: the floor a benchmark compares with."""

def run_program(arguments: Sequence[str]) -> int:
    """Runs the command `trainmon` and returns its exit status; the first argument is the name that usage and help show.
    The interpreter is released. Ctrl-C ends the process, as it would the native program; afterwards it is handled as
    before. Knows every command but `run`, which is `trainmon.integrations.run`."""

def printable(message: str) -> str:
    """A message with the names in it made harmless: control characters are escaped, but for line feeds outside
    backticks, and what is quoted is cut after 200 letters."""

def did_you_mean(name: str, candidates: Sequence[str]) -> str | None:
    """The candidate that a name was probably meant to be."""

def check_run_name(name: str) -> None:
    """Raises `ValueError`, with a hint, for a name that no run can have."""

def squash_name(name: str) -> str:
    """The tail of a parameter's name that says where in the model it is."""

@final
class ParsedConfig:
    """A config that was read; raises `ConfigError` if it is faulty. `file` is its name in messages; with `is_path` it
    is the file that the dynamic mode watches: what it says then is laid under `over`, too."""

    def __new__(
        cls,
        text: str,
        *,
        file: str = "config",
        is_path: bool = False,
        over: str | None = None,
        like_msprobe: bool = False,
    ) -> ParsedConfig:
        """`over`: JSON, an object whose keys take the place of the text's outermost ones. `like_msprobe`: what msprobe
        takes and only makes no sense (a window without a step) is a warning."""
    @property
    def warnings(self) -> list[str]:
        """What its author should know: keys without effect, with hints."""
    @property
    def needs_agreement(self) -> bool:
        """Whether ranks have something to agree upon while they train: live control, the dynamic mode, or an alert that
        ends the training."""
    @property
    def control_directory(self) -> Path | None:
        """The directory over which the ranks are to agree, if the config names one."""

@final
class Settings:
    """What hooks have to know of the effective config."""

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
        """Whether names are msprobe's, with wrappers' `module.` in them (see `trainmon.common.names`)."""
    @property
    def every_micro_batch(self) -> bool:
        """Whether weight gradients are measured after every micro-batch."""
    @property
    def micro_batches(self) -> int | None:
        """Micro-batches per step, if the config says so."""
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
        """Whether what is measured may change while the training runs."""
    @property
    def has_captures(self) -> bool:
        """Whether captures may be asked for while the training runs."""
    @property
    def capture_signal(self) -> bool | None:
        """Whether SIGUSR1 asks for one; None where the config leaves it open."""
    @property
    def kept_steps(self) -> int:
        """How many of the latest steps are kept, to be run again."""
    @property
    def patch_optimizer_step(self) -> bool:
        """Whether the end of a step is looked for in the optimizer."""
    @property
    def features(self) -> FeatureTargets | None:
        """The level-2 features, if any is asked for."""

    @property
    def collectives(self) -> tuple[list[str], bool] | None:
        """Patterns of calling lines (`cc_codeline`), and whether only stacks are asked for; None where collective
        operations are not measured on this rank."""
    @property
    def replica_interval(self) -> int:
        """After one step in this many copies on several ranks are compared; 0: never."""
    @property
    def stall(self) -> tuple[float, float] | None:
        """Of the rule `Stall`: after which multiple of the usual step time, and after how many seconds at least, a run
        that makes no step stalls; None without the rule."""
    @property
    def straggler(self) -> float | None:
        """Of the rule `Straggler`: from which share of a step on a rank's lag is an alert; None without the rule."""
    @property
    def shutdown_timeout_s(self) -> float:
        """How long the end of the training waits for what is still queued."""

@final
class FeatureTargets:
    """Which modules give which level-2 feature: None for none; an empty list of linear modules means all."""

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
    """A step that is to be captured, until it is told how that went."""

    @property
    def step(self) -> int:
        """The step."""
    @property
    def rank(self) -> int:
        """This rank, whose number the directory has."""
    @property
    def config(self) -> str:
        """The config of the capture, as JSON: level, task, scope, directory, how much it may write."""
    @property
    def what(self) -> str:
        """Who asked for what, in few words."""
    @property
    def number(self) -> int:
        """That of the capture, the same on every rank."""

@final
class Monitor:
    """One rank's monitor. Its threads end with `shutdown`, or when the object goes."""

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
        """Starts a monitor with a config that was read.

        `listener(severity, message, hint)` hears the monitor's notices; it may be called from any thread. Without one
        they go to `trainmon.common.notices.route`, and to standard error where that does not take them. `quiet`: only
        warnings are said. Without `rank` the launcher's environment is asked. `rank_store`: how the ranks agree on a
        change of what is measured, an object like `trainmon.ranks.rank_store.TorchRankStore`; files in the control
        directory otherwise.

        `run`: the run's name, the same on every rank; its directory is called so. Without it the environment is asked
        (`TRAINMON_RUN_NAME`, the launcher's job id), else it is `program` (without that, the script's name) and the
        time. `layout`: how files are laid out where the config does not say, `run` or `msprobe`.

        Raises `ValueError` for a name that no directory can have, `RuntimeError` if the rank cannot be told or a thread
        not started.
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
        """The directory of this run's files; with the layout `run` it holds those of all ranks and is called like the
        run, with a number behind it if an earlier run has the name. With msprobe's it is the rank's, made with the
        first step. None if nothing is written there."""
    @property
    def rank_directory(self) -> str | None:
        """The directory of this rank's files; as `run_directory`."""
    def settings(self, *, like_msprobe: bool = False) -> Settings:
        """What hooks have to know of the effective config, with what live control made of it. `like_msprobe`: whether
        msprobe's import is used; its V2 layout has its names too."""
    def whereabouts(self) -> list[tuple[str, list[str]]]:
        """Each exporter's name and where its output is. The first place of `csv` is the rank's directory."""
    def configured(self, kind: int) -> bool:
        """Whether the config asks for this kind."""
    def wants(self, kind: int) -> bool:
        """Whether this kind is configured and the step in progress measured."""
    @property
    def plan_version(self) -> int:
        """How often live control changed what is measured. Where it is another than before when a step begins, targets
        and kinds are to be looked up anew."""
    @property
    def sampling_stride(self) -> int:
        """One layer in this many is measured in the step in progress, to keep the overhead budget; 1 measures all."""
    def follow_targets(self) -> None:
        """Tells that the caller looks up the targets anew when `plan_version` changes: live control may change them."""
    def leaves_out(self, tensor_id: int, kind: int) -> bool:
        """Whether the overhead budget leaves this tensor no turn in the step in progress; it is counted then as not
        sampled. `observe` and the others ask themselves: this is for whoever measures elsewhere."""
    def request(self, kind: int) -> tuple[tuple[str, ...], float] | None:
        """What is measured of this kind now, in no particular order: the statistics by name, those included that the
        scrape page, the global norm and the ratio of a change are made of; and below which magnitude an element counts
        as zero. None if the config does not ask for the kind."""
    def ops(self) -> list[str]:
        """The statistics measured now."""
    def measure(self, tensor: Any) -> dict[str, float]:
        """The configured statistics of a host tensor, measured now and not recorded; empty if it cannot be."""
    def latest(self, kind: int) -> list[tuple[str, int, int, dict[str, float]]]:
        """The latest reading of every tensor of a kind in the step in progress or the one before:
        `(name, vpp_stage, micro_step, values)`. Values are those of the statistics measured now of this kind; a reading
        from before they were asked for is left out."""
    def set_ops(self, ops: Sequence[str]) -> list[str]:
        """Changes the statistics from the next record on; returns what is measured now. Unknown names are warned of and
        left out; if none is left, `norm` is measured."""
    def matches_parameter(self, raw: str, squashed: str, vpp_stage: int) -> bool:
        """Whether the config's targets ask for this parameter."""
    def matches_module(self, name: str, vpp_stage: int) -> bool:
        """Whether the config asks for this module's activations."""
    def warn_of_targets(self, parameters: Sequence[tuple[str, int]], modules: Sequence[tuple[str, int]]) -> None:
        """Warns of targets that ask for none of these parameters (by any name, with its chunk) and modules, with the
        names most like them."""
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
        of this kind are measured); None if it was not measured. Every value is meant times `factor` (1 / loss scale; a
        power of two keeps all digits): the reading is that of the scaled tensor, `zeros` included. With `once` a tensor
        measured before under this id (a gradient in this step, a parameter ever) at the same address, with the same
        `_version` and the same contents at a few sampled places is not read again: only for tensors that nobody writes
        behind torch's back. Cost: one pass over the tensor, no copy."""
    def observe_all(self, shown: Sequence[tuple[tuple[int, int, int], Any]]) -> None:
        """Measures host tensors, each with its `(tensor_id, kind, micro_step)`, as `observe` would one by one: the same
        readings, in less time. For many tensors that are not in the cache. One that cannot be measured is counted, the
        others are recorded."""
    def record_again(self, tensor_id: int, kind: int, micro_step: int, of_tensor_id: int) -> bool:
        """Records the reading that another tensor id of this kind got in this step: the two are one tensor. False if
        there is none. Costs no pass."""
    def fingerprints(self, tensors: Sequence[Any]) -> list[int | None]:
        """64 bits of each host tensor's bytes in logical order (XXH3; chained over shards from 2^18 elements on): equal
        for equal bytes. None for one that cannot be read. Cost: one pass over their memory; the interpreter is given
        away meanwhile if there is much of it."""
    def open_collectives(self) -> list[tuple[str, str, list[int], int, int, str | None, float]]:
        """The collective operations that this rank is inside of, the oldest first: operation, group, its ranks (none
        where they are not known), number in the group, bytes, calling line where asked for, seconds since it began."""
    @property
    def findings(self) -> Findings:
        """Where what is found out about the job's ranks is told."""
    def observe_missing(self, tensor_id: int, kind: int, micro_step: int) -> None:
        """Records that there was no tensor where one was expected (an input without gradient)."""
    def observe_unsupported(self, tensor_id: int, kind: int, why: str) -> None:
        """Counts a tensor that cannot be measured and says why, once per reason."""
    def observe_unsupported_block(self, block: DeviceBlock, why: str) -> None:
        """As `observe_unsupported`, of all records of a block."""
    def record_values(self, tensor_id: int, kind: int, micro_step: int, values: Sequence[float]) -> None:
        """Records numbers computed elsewhere: one for mg_direction, update_ratio and the router features, two for
        attention_hook (entropy, softmax_max) and linear_hook (sr, kernel_norm)."""
    def scalar(self, name: str, value: float) -> None:
        """Tells a number of the step in progress under a name of the script's own; told twice, the last one counts. A
        name that is not taken (empty, above 256 bytes, the 1,001st) is warned of once and counted."""
    def scalar_id(self, name: str) -> int | None:
        """The id of such a name, for a value that a `PendingStep` records later; None for one that is not taken."""
    def sign_agreement(self, gradient: Any, moment: Any) -> float | None:
        """(sum of sign(g)*sign(m) / numel + 1) / 2 of two host tensors of one shape, read once; None if they do not
        fit."""
    def keep_copy(self, tensor_id: int, tensor: Any) -> None:
        """Keeps a copy of a host parameter from before the step, for `observe_update`. Its memory is kept and
        reused."""
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
        """What guards this process's collective operations. `describe` gives `(name, role, ranks, operations before)`
        of a process group, `caller` the line that makes a call of the operation named and whether it is recorded,
        `failed` is told once what switched everything off. `device_clock` has `begin()`, `end(clock)` and
        `seconds(clock)`. `measure_on_device` is told a record's numbers and the tensors whose values it has together;
        none where some are on the host and some on a device."""
    def pending_step(self) -> PendingStep:
        """Keeps the step's batch open for readings that come after its end: for at most four steps, for a global
        gradient norm that is expected three quarters of `queue_steps`, at most 32."""
    def end_step(
        self,
        *,
        loss: float | None = None,
        learning_rate: float | None = None,
        grad_norm: float | None = None,
        framework_grad_norm: float | None = None,
    ) -> None:
        """Ends the step. `grad_norm` is the global norm of the aggregated, unclipped gradient if it is known by now:
        without it the step has none unless a `PendingStep` brings it, for this rank's records may be a part only.
        `framework_grad_norm` is what the framework itself reports. Never waits."""
    def skip_step(self) -> None:
        """The optimizer left the step out: its records are discarded and counted, the step keeps its number."""
    def offer_captures(self) -> None:
        """Tells that the caller captures steps when `capture_is_due`; without it requests are refused."""
    def ask_for_capture(self) -> None:
        """Asks for a capture of the next step that all ranks can agree upon. Takes no lock."""
    @property
    def capture_is_due(self) -> bool:
        """Whether the step in progress is to be captured. One load where none is near."""
    @property
    def replay_is_due(self) -> bool:
        """Whether an earlier step is to be run again, and captured, before the one in progress. One load where none is
        near."""
    def keep_step(self) -> int | None:
        """The step in progress is kept, so that it can be run again. Gives the step that the caller forgets for it."""
    def forget_steps(self) -> None:
        """No step is kept any more."""
    def suspend(self) -> None:
        """What runs until `resume` is none of the step in progress: nothing of it is measured."""
    def resume(self) -> None:
        """The step in progress goes on."""
    def begin_capture(self) -> CaptureTicket | None:
        """The step in progress is captured, or the one that is run again. None: it is not due, or cannot be and the
        user was told."""
    def end_capture(
        self,
        ticket: CaptureTicket,
        size: int | None,
        why: str | None = None,
        *,
        replayed: tuple[bool | None, bool] | None = None,
    ) -> None:
        """The captured step is over, with so many bytes of files. `why`: it is not whole. `replayed`, of a step that
        was run again: whether its losses are the same bits as the first time (None: there are none), and whether they
        and its gradients are finite. A ticket counts once."""
    @property
    def stop_requested(self) -> bool:
        """Whether an alert whose rule has the action `stop` asks the training to end; with several ranks only once all
        of them have agreed on the step. One load."""
    def alert_state(self) -> str:
        """What this rank's alert rules remember after every step ended so far, as JSON. Waits for the monitor's own
        thread, milliseconds as a rule and five seconds at most; `null` where that does not do."""
    def load_alert_state(self, state: str) -> bool:
        """Goes on from a saved state. What of it does not fit is warned of, and the rules learn anew; False if nothing
        of it could be read."""
    def restart_step(self) -> bool:
        """The loop gave up the step in progress and begins it anew: its records are discarded and counted as not
        sampled. If its gradients held NaN or infinities it is counted as skipped, and True is returned."""
    def count_skipped_step(self) -> None:
        """Counts a step as skipped whose gradients were found out later to hold NaN or infinities."""
    def retract(self, kind: int, tensor_ids: Sequence[int], keep_last: bool) -> None:
        """Takes back what was recorded of these tensors and this kind in the step in progress, but for the last record
        of each if `keep_last`. Counted as not sampled. One pass over the step's records."""
    def add_cost(self, phase: str, seconds: float) -> None:
        """Adds time the training thread spent for the monitor outside of `observe`; phases: measure, launch, offer."""
    def say(self, severity: str, message: str, hint: str | None = None) -> None:
        """Says something through the monitor's voice; severity `info` or `warning`."""
    def tell_parts(
        self, parameters: list[tuple[str, int, str, int, list[tuple[bool, int | None] | None], bool]]
    ) -> None:
        """Tells which part of each parameter this rank holds, once: name, `vpp_stage`, the name in the whole model, the
        elements over all ranks; of values, gradient and moments whether they count here in sums over ranks (not where a
        lower rank holds the same), and how many elements they have; whether the ranks that hold the values are those
        that step them. Not called where every rank holds everything."""
    def announce(self, watched: int, parameters: int) -> None:
        """Says, on the first rank, what is measured of so many parameters (`watched` of all), and where it goes; when
        the monitor has shut down the closing account is said too. Once."""
    def books(self) -> Mapping[str, int]:
        """observed, not_sampled, offered, accepted, dropped, `lost` over all exporters, and `missing_numbers`: losses
        and norms of steps that left without them."""
    def report(self) -> str:
        """The account so far, for people."""
    def shutdown(self, within: float | None = None) -> str:
        """Delivers what is queued within the deadline (and `within` so many seconds), closes the exporters, and gives
        the closing account. What a signal's handler raises meanwhile shortens that to a second, the next ends it; the
        first is raised when it is over."""

@final
class DeviceTable:
    """Tensors as the kernels know them."""

    @property
    def number(self) -> int:
        """Of its place among the tables that are remembered; another table gets it once this one is forgotten."""
    @property
    def is_new(self) -> bool:
        """Whether its words are others than those of this number before."""
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
    """The records that the rows of a table become, in their order."""

    def __len__(self) -> int: ...
    def rows_of(self, kinds: set[int]) -> list[int]:
        """The rows of these kinds."""
    def retract(self, kind: int, tensor_ids: set[int]) -> None:
        """Takes the rows of these tensors and this kind back."""

@final
class DeviceTables:
    """The tables of one device and stream: made anew only when a tensor moved. May be used from any thread."""

    def __new__(cls) -> DeviceTables: ...
    def of(self, shown: Sequence[tuple[Any, Any | None, int, float | None, bool]]) -> tuple[DeviceTable, list[int]]:
        """The table of these tensors: `(tensor, other, shows, eps, std)`. `shows`: 0 the values, 1 tensor minus other,
        2 how far both agree in sign, 3 none of these: tensor is copied into other. 1 to 3 want another tensor of the
        same layout, 3 one of the same dtype too, of up to 8 bytes. `eps`: below this magnitude an
        element counts as zero; None if they are not counted. Also gives the places of those that are left out, because
        they overlap, have gaps of several sizes, or cannot be read. Cost: some microseconds per tensor."""
    def of_all(
        self, monitor: Monitor, device: Any, shown: list[tuple[tuple[int, int, int], Any]], uncounted: set[int]
    ) -> tuple[DeviceTable, DeviceBlock, list[int]]:
        """As `of`, of the values of tensors on a device by the records they become: `((tensor_id, kind, micro_step),
        tensor)`. What each kind asks for is the monitor's; what is not measured in this step is counted there and has
        no row. Left out are those on other devices, too. `uncounted`: the places of those that do not count in the norm
        of all. Cost: some 130 ns per tensor that is where it was (torch 2.10 and newer)."""
    def words(self, table: DeviceTable) -> bytes:
        """What the kernels read: to be brought to the device before a new table is used."""

@final
class DeviceKernels:
    """The kernels of one CUDA device: see `trainmon-device`. Nothing here waits for the device."""

    def __new__(cls, device: int) -> DeviceKernels:
        """Raises `RuntimeError` where the driver is missing or refuses, or the device is older than compute capability
        8.0. At the first load on a machine the driver compiles for a second or two."""
    def measure(
        self,
        table: DeviceTable,
        memory: tuple[int, int, int],
        stream: int,
        factor: float = 1.0,
        factor_at: tuple[int, bool] | None = None,
    ) -> int:
        """Launches what measures a table's tensors; gives the number of launches. `memory` has addresses on the device:
        of its words, of 9 float64 per chunk for findings, of `DEVICE_COLUMNS` float64 per row for results. `factor`:
        what scales with the tensor is multiplied with it; `factor_at` has the address of one on the device, and whether
        it is a float64 or a float32. All that memory, and that of the tensors, must stay until the stream has done the
        work; no other stream may use the findings meanwhile. Raises `RuntimeError` if the driver refuses."""
    def measure_one(
        self,
        shown: tuple[Any, Any | None, int, float | None, bool],
        memory: tuple[int, int, int, int],
        room: int,
        stream: int,
        factor: float = 1.0,
        factor_at: tuple[int, bool] | None = None,
    ) -> bool:
        """Launches what measures one tensor, as `measure`, without a table; `shown` as in `DeviceTables.of`. `memory`
        has addresses on the device: of 9 words for the row, of the numbers 0, 1, 2 and so on in 64 bits, of 9 float64
        per chunk for findings, of `DEVICE_COLUMNS` float64 for the result; `room` says for how many chunks of 32768
        elements the second and third have room. False, and nothing is launched, if that is too little or only torch's
        operators can read the tensor."""
    def copy(self, table: DeviceTable, words: int, stream: int) -> int:
        """Launches what copies each tensor of a table into the other of its row, as `measure`: once. `words`: the
        address of the table's words on the device."""
    def fingerprint(self, rows: tuple[int, int], chunks: tuple[int, int], sums: int, out: int, stream: int) -> int:
        """Launches what computes fingerprints, as `measure`. `rows`: address of 4 words per tensor (address, words,
        bytes of a word, place of its first chunk), and how many; `chunks`: address of 2 words per chunk (the row in the
        upper half and which of its chunks in the lower, the weight of its sum), and how many; `sums` and `out`: a word
        per chunk and per tensor."""

_LateNumber: TypeAlias = Literal["loss", "grad_norm", "framework_grad_norm"]

@final
class PendingStep:
    """Keeps one step's batch from leaving until `release`, or until the object goes."""

    @property
    def step(self) -> int: ...
    def record_rows(
        self,
        labels: Sequence[tuple[int, int, int, str, Sequence[int]]],
        places: Sequence[tuple[Any, int]],
    ) -> list[float]:
        """Records one row per label `(tensor_id, kind, micro_step, dtype, shape)`. A place is a table and the number of
        a row of it. A table is a contiguous CPU tensor of float64 whose columns are `DEVICE_COLUMNS`. `dtype` as torch
        prints it (`torch.bfloat16`). Returns the norms. Raises `ValueError` where a table is something else, or has no
        such row."""
    def record_block(self, block: DeviceBlock, table: Any, first: int) -> float:
        """Records the rows of a block, which begin in row `first`, as `record_rows`. Returns the norm of all tensors
        that count together."""
    def record_together(
        self, label: tuple[int, int, int], parts: Sequence[tuple[str, Sequence[int], Sequence[float]]]
    ) -> None:
        """Records what several tensors hold together: dtype, shape and row (`DEVICE_COLUMNS`) of each."""
    def record_values(self, tensor_id: int, kind: int, micro_step: int, values: Sequence[float]) -> None: ...
    def expect(self, number: _LateNumber) -> None:
        """Announces a number that this object will set: a step that leaves without it is counted, and that is said."""
    def forgo(self, number: _LateNumber) -> None:
        """Takes an announcement back: the number is left out on purpose."""
    def set_loss(self, loss: float) -> bool:
        """The step's loss. False, and without effect, once the step has left."""
    def set_grad_norm(self, norm: float) -> bool:
        """The global norm of the step, once every rank's part is in. False, and without effect, once the step has
        left."""
    def set_framework_grad_norm(self, norm: float) -> bool:
        """The framework's own. False, and without effect, once the step has left."""
    def release(self) -> None: ...

@final
class Findings:
    """What is found out about a job's ranks, told as alerts. Every method may be called from any thread."""

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
        """Raises the alert `ReplicaMismatch`, or ends it: `kind` and `name` are the first copy's that differs,
        `differing` says how many do."""
    def count_replica_mismatch(self) -> None:
        """Counts a finding more of an alert that was raised and goes on."""
    def raise_straggler(
        self, begins: bool, findings: int, step: int, group: str, lag: float, allowed: float, message: str
    ) -> None:
        """Raises the alert `Straggler` of a group, or ends it: `lag` and `allowed` in seconds per step."""
    def count_straggler(self) -> None:
        """Counts a window more of an alert `Straggler` that goes on."""
    def raise_hang(self, step: int, waited: float, allowed: float, message: str) -> None:
        """Raises the alert `Stall` with its cause."""
    def set_hang(self, sentence: str | None) -> None:
        """Tells what the run hangs in, for `trainmon ctl status`; None once it goes on."""

@final
class Collectives:
    """The collective operations of one monitor. What stands in for a method is called with the method's owner
    first, and
    gives what the method gives. Nothing of ours raises."""

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
        """What stands in for a method of a process group. Tensors stand at the places `inputs` and `outputs` behind
        the group (the same for one that works in place) or under these keywords; `slots` says by place which
        argument of
        `torch.distributed`'s function each is. Raises `ValueError` for an operation that is not known."""

    def start_of_group(self, original: Callable[..., Any]) -> Callable[..., Any]: ...
    def end_of_group(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What stands in for the method whose work is that of all operations since `start_of_group`."""

    def wait(self, original: Callable[..., Any]) -> Callable[..., Any]: ...
    def get_future(self, original: Callable[..., Any]) -> Callable[..., Any]: ...
    def begin(self, op: str, group: Any, inputs: Any, larger: Any, *, in_place: bool) -> OpenCall | None:
        """Begins an operation that no method announces; None inside of one that a method does. `larger`: tensors as
        large as what it gives, where that is larger than what it is given; `in_place`: whether it gives that in its
        inputs."""

    def bypass_kernel(self, guards: Callable[[], Any] | None) -> None:
        """From now on announced calls of `all_reduce` with dense tensors on the CPU run under what `guards` makes: a
        context manager under which the dispatcher leaves out the kernel for DDP's own. None: no longer."""

    @staticmethod
    def is_inside() -> bool:
        """Whether this thread's operations are a part of one that was announced."""

    @staticmethod
    def enter() -> None:
        """From now on this thread's operations are a part of one that was announced."""

    @staticmethod
    def leave() -> None: ...
    @staticmethod
    def enter_objects() -> None:
        """From now on this thread's tensors hold pickled objects: counted and timed, not measured."""

    @staticmethod
    def leave_objects() -> None: ...
    def settle(self) -> None:
        """Books what has ended since and was not waited for, and measures what it has received."""

    @property
    def pending(self) -> int:
        """Operations whose end is not known yet."""

    def open(self) -> list[tuple[str, str, int, float, str | None]]:
        """`(op, group, sequence, seconds since it began, line)` of those in progress, the oldest first."""

    def times(self) -> list[tuple[str, list[int], int, float]]:
        """`(group, ranks, operations ended, seconds inside)` since the start; without sends and receives."""

    def begun(self) -> list[tuple[str, list[int], int]]:
        """`(group, ranks, operations begun)`, sends and receives left out."""

    def set_straggler(self, group: str, rank: int, lag: float, median: float, step: int) -> None:
        """Tells which rank of a group came last up to this step, by how many seconds per step its time inside lies
        below the others' median."""

    def stragglers(self) -> list[tuple[str, int, float, float, int]]: ...
    def close(self) -> None:
        """Forgets every operation in progress, and sees no more."""

@final
class OpenCall:
    """An operation that no method announced. Ending it twice changes nothing."""

    def ended(self, *_arguments: Any) -> None:
        """It has ended. May be called from any thread; what it has received is measured by the next `settle`."""

    def ended_after(self, waited: float, received: Any) -> None:
        """It has ended, and was waited for so many seconds. `received`: what it gives, where that is no argument."""

    def release(self) -> None:
        """Nobody will tell when it ends."""

@final
class CaptureConfig:
    """A capture's config, read and checked."""

    @staticmethod
    def read(text: str, file: str, over: str, like_msprobe: bool) -> CaptureConfig:
        """Reads a config; the keys of the JSON object `over` take the place of its outermost ones. `like_msprobe`: what
        it does not say is as msprobe has it. Raises `ConfigError`, with every fault."""

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
        """The switch that may be turned while the training runs; None: the config has none."""

    @property
    def neutral(self) -> bool:
        """Whether gradients keep their last bits."""

    @property
    def wants_modules(self) -> bool: ...
    @property
    def wants_operators(self) -> bool:
        """Whether the dispatcher's operators are captured: level `L2`."""

    @property
    def is_whole(self) -> bool:
        """Whether everything is captured that its level sees: no scope, list or slice, both directions, inputs and
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
    """The mode that torch calls with every function: records the call and makes it. What the function raises is raised;
    what goes wrong in recording is written to the step's log."""

    def __new__(cls, capture: Capture) -> Self: ...
    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None
    ) -> Any: ...

@final
class ModuleCall:
    """A module's call, and its gradients. Nothing of it raises."""

    def end(self, output: Any, parameters: dict[str, Any], failed: bool) -> None: ...
    def note(self, text: str) -> None:
        """Says something of the call, in its entry."""

    def begin_backward(self) -> None: ...
    def end_backward(self, into: Any, of: Any) -> None:
        """The gradients of its inputs, and of its outputs."""

@final
class BackwardPass:
    """The backward of one call of a module, caught on a node through which its tensors are passed."""

    def __new__(cls, call: ModuleCall) -> Self: ...
    def take_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments to call the module with."""

    def take_outputs(self, output: Any) -> Any:
        """What the module is to give back."""

@final
class OperatorCall:
    """A call whose end the caller tells. Until `returned`, nothing this thread calls is captured."""

    def returned(self) -> None: ...
    def note(self, text: str) -> None:
        """Says something of the call, in its entry."""

    def end(self, outputs: tuple[Any, ...], hidden: Sequence[int]) -> None: ...

@final
class Capture:
    """What captures: the functions it knows, and the step it is in."""

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
        """Adds a function and gives its number. `is_seen`: the mode is called with this very object. `filled`:
        arguments, by place and by keyword, that hold nothing before the call."""

    def add_allocation(self, function: Any) -> None:
        """Adds a function that gives memory nobody has written yet: no operator, but what lies in that memory has
        `"from_empty": true` in a dump."""

    def add_overload(self, operator: Any, prefix: str, name: str) -> int:
        """Adds an operator of the dispatcher, whose name has a dot, and gives its number."""

    def entrance(self, operator: int | None, target: Any, original: Any) -> Callable[..., Any]:
        """What stands in for a function: announces the call to the mode, which sees one of `target`, and makes it.
        Without an operator it is not captured."""

    def call_operator(
        self, operator: int, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Calls a function that no mode sees, and records the call."""

    def begin_operator(
        self, operator: int, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> OperatorCall | None:
        """A call begins; None: it is not captured."""

    def set_mode(self, mode: CallMode | None) -> None: ...
    def set_parent_check(self, check: Callable[[], None] | None) -> None:
        """What is called before a call is put under a parent: it takes away one that is over. Parents that were set
        before, in any thread, count no more."""

    def set_micro_step(self, micro_step: int) -> None:
        """Which micro-batch runs from now on."""

    def begin(
        self,
        config: CaptureConfig,
        step: int,
        rank: int | None,
        listener: Callable[[str, str, str | None], None],
        rows: tuple[int, int, int] | None = None,
    ) -> None:
        """Begins a step's files. Raises `ConfigError` if they cannot be made. `listener` is told a severity, a message
        and a hint. `rows`: of tensors with so many rows only those from the second number up to the third are
        captured."""

    def expect_bytes(self, size: int) -> None:
        """The step's tensors take about so many bytes: what is said of progress names them."""

    def set_device_numbers(self, device_numbers: Any) -> None:
        """What measures on devices, an object with a method `take_up(tensor)`, from the next step on."""

    def fill_numbers(self, tickets: Sequence[int], rows: Sequence[Sequence[float]]) -> None:
        """Numbers that a device found, by the tickets under which tensors were taken up."""

    def switch(self, is_on: bool) -> None: ...
    def set_rank(self, rank: int) -> bool: ...
    def write(self) -> None:
        """Writes the step's files as they are now. Cost: time linear in the step's records."""

    def finish(self) -> None:
        """Ends the step, and writes its files."""

    def set_parent(self, parent: str | None) -> str | None:
        """This thread's calls stand under this parent in `construct.json` from now on; gives the one before."""

    def begin_module(
        self, module: str, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> ModuleCall | None: ...
    def parameter_gradient(self, module: str, parameter: str, gradient: Any) -> None: ...
    def save(self, value: Any, name: str, with_gradients: bool) -> None: ...
    def progress(self) -> tuple[int, int, int, str | None] | None:
        """Entries, bytes, files, and why nothing is captured any more."""

    def volume(self) -> tuple[int, int, int, int] | None:
        """Bytes of all tensors among the values, less those that share another's file; files and bytes that wait to be
        written; calls that gave a NaN or an infinity."""

    def note(self, what: str, message: str) -> None:
        """Writes to the step's `dump_error_info.log`, each kind once."""
