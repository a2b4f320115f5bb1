"""What a case is: how its two runs are set up, what is planted in one of them, and what is then true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .trainer import Trainer

Plant = Callable[["Trainer"], None]
"""Changes a trainer before its first step."""

Kernel = Callable[[int], None]
"""Changes what torch computes, before msprobe wraps it, so that the dump has it under torch's name. Takes the rank."""


@dataclass(frozen=True)
class Setting:
    """How both runs of a pair are set up. Pairs with equal settings share the golden dump."""

    net: str
    level: str = "mix"
    task: str = "statistics"
    """statistics, md5 (msprobe's summary mode) or tensor."""
    ranks: int = 1
    steps: int = 1
    micro: int = 1
    optimizer: str = "none"
    clip: float = 0.0
    """The greatest norm of the gradient; 0: no clipping."""
    loss_scale: float = 1.0
    dropout: float = 0.0
    gain: float = 1.0
    """What the inputs are multiplied by."""
    risk: str = "FOCUS"
    """msprobe's risk_level: which operators it records."""

    @property
    def name(self) -> str:
        """Tells the settings that are not the default, and nothing else."""
        parts = [self.net]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if value != field.default:
                parts.append(f"{value}" if isinstance(value, str) else f"{field.name}{value:g}")
        return "-".join(parts)


@dataclass(frozen=True)
class Truth:
    """Where the runs first part, known from how the fault was planted."""

    phase: str
    """forward, backward, parameter_gradient, optimizer, input or none."""
    verdict: str
    """operator, input, parameter, none or cannot_tell."""
    operators: tuple[str, ...]
    """API nodes that a right answer may name: inputs agree and outputs differ, or the first to get what differs."""
    modules: tuple[str, ...]
    """The same among module nodes."""
    what: str
    also: tuple[str, ...] = ()
    """Verdicts that are right as well, given what the dump has."""
    rank: int | None = 0
    """None: every rank in the same way."""
    step: int | None = 0
    bits_differ: bool | None = True
    """Whether any tensor that both sides have is another. False only without a fault; None: it does not matter."""
    unseen: tuple[str, ...] = ()
    """Where ranks that are not the origin differ first, because what the ranks exchange was not recorded."""
    noise: float = 0.0
    """What else differs, by rounding: |difference| / |values| of a node's tensors up to this is not the fault."""


@dataclass(frozen=True)
class Case:
    """One pair of runs."""

    name: str
    setting: Setting
    truth: Truth
    plant: Plant | None = None
    kernel: Kernel | None = None
    trainer: type[Trainer] | None = None
    reruns: tuple[Kernel, ...] = ()
    """Further golden runs, for the spread of the golden side."""
    kept: bool = True
    """Whether the corpus has it."""
    is_confirmed_apart: bool = False
    """Whether no exact recording is made: the fault is confirmed by the case without the rounding that this one is laid
    over, or there is none and the same code runs on another machine, whose statistics must then differ."""

    environment: str = ""
    """The Python environment beside this one (`target/python`) whose torch makes the target side."""

    def record(self) -> dict[str, Any]:
        """The content of `truth.json`."""
        setting = asdict(self.setting)
        wanted = ("net", "level", "task", "ranks", "steps")
        truth = asdict(self.truth)
        ordered = ("phase", "verdict", "also", "rank", "step", "operators", "modules", "bits_differ", "noise", "what")
        return {
            "case": self.name,
            **{key: setting[key] for key in wanted},
            **{key: truth[key] for key in ordered},
            "golden_reruns": [f"golden_rerun{number}" for number in range(1, len(self.reruns) + 1)],
        }
