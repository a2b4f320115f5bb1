"""Trains a small net with another library's trainer, unwatched and watched, with an infinity in one batch; the step is
run again: `replay_trainers.py OUTPUT transformers|lightning`. Two micro-batches make a step."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from support import bits

STEPS, FAULT = 30, 12
kind, output = sys.argv[2], Path(sys.argv[1])
MICRO_BATCHES = 2
CONFIG = {
    "wg_distribution": True,
    "ops": ["norm"],
    "output_dir": str(output),
    "alert": {"rules": [{"rule_name": "NonFinite", "actions": ["log", "replay"]}]},
}


def net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))


def batches() -> list[torch.Tensor]:
    found = list(torch.randn(STEPS * MICRO_BATCHES, 8, 4, generator=torch.Generator().manual_seed(2)))
    found[MICRO_BATCHES * FAULT][0, 0] = float("inf")
    return found


class Slowly:
    """Waits behind each step: an alert needs some time to be heard of."""

    def __init__(self, pauses: bool) -> None:
        self.pauses = pauses

    def __call__(self) -> None:
        if self.pauses:
            time.sleep(0.03)


def with_transformers(watches: bool) -> Any:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from trainmon.integrations.transformers import TrainmonCallback

    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, x: torch.Tensor) -> Any:
            return {"loss": self.net(x).mean()}

    class Pause(TrainerCallback):
        def on_step_end(self, *_args: Any, **_kwargs: Any) -> None:
            Slowly(watches)()

    class InOrder(Trainer):
        def _get_train_sampler(self, *_args: Any, **_kwargs: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    model, callback = WithLoss(), TrainmonCallback(CONFIG)
    rows = [{"x": row} for batch in batches() for row in batch]
    arguments = TrainingArguments(
        output_dir=str(output), per_device_train_batch_size=8, gradient_accumulation_steps=MICRO_BATCHES,
        max_steps=STEPS, use_cpu=True, report_to=[], logging_steps=1, disable_tqdm=True, save_strategy="no",
        remove_unused_columns=False, log_level="error",
    )  # fmt: skip
    trainer = InOrder(
        model=model, args=arguments, train_dataset=rows, callbacks=[Pause(), *([callback] if watches else [])]
    )
    trainer.train()
    assert "training_step" not in vars(trainer)
    return model, trainer.optimizer


def with_lightning(watches: bool) -> Any:
    from lightning.pytorch import Callback, LightningModule, Trainer

    from trainmon.integrations.lightning import TrainmonCallback

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def training_step(self, batch: torch.Tensor) -> torch.Tensor:
            loss: torch.Tensor = self.net(batch[0]).mean()
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    class Pause(Callback):
        def on_train_batch_end(self, *_args: Any) -> None:
            Slowly(watches)()

    module, callback = Module(), TrainmonCallback(CONFIG)
    trainer = Trainer(
        accelerator="cpu", devices=1, max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=str(output),
        accumulate_grad_batches=MICRO_BATCHES, callbacks=[Pause(), *([callback] if watches else [])],
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(batches(), batch_size=1))
    return module, trainer.optimizers[0]


def train(watches: bool) -> Any:
    model, optimizer = (with_transformers if kind == "transformers" else with_lightning)(watches)
    return {
        "state": list(model.state_dict().values()),
        "moments": bits.optimizer_state(optimizer),
        "random": [torch.get_rng_state()],
    }


bits.assert_same(train(watches=False), train(watches=True), kind)
(run,) = [one for one in output.iterdir() if (one / "captures").is_dir() and not one.is_symlink()]
(output / "answer.json").write_text(json.dumps({"captures": str(run / "captures"), "fault": FAULT}))
