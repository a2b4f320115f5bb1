"""Records a small character-level GPT that spikes by itself: without normalisation in its blocks, at a learning rate near
the edge of what it bears.

    python char_gpt.py TEXT...    tells what is marked and what is not; writes char_gpt.csv beside this file

A step is marked as a spike with hindsight, when both hold:

1. its gradient is `OUTLIER` times the median of the 64 steps around it, 32 of them after it;
2. it did harm: within `HARM_WITHIN` steps the loss of a fixed batch, which is never trained on and is not recorded, rose
   by more than `HARM` nats over what it was before the step.

Of marked steps closer together than `APART` only the first is.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

import torch
from torch import nn
from torch.nn import functional

from recording import Step, changed_by, copies, whole_norm, write

STEPS, BATCH, LENGTH, WIDTH, HEADS, LAYERS = 1000, 16, 64, 64, 4, 3
LEARNING_RATE, WARM_UP = 8e-3, 40
OUTLIER, AROUND = 4.0, 32
HARM, HARM_WITHIN, APART = 0.05, 5, 5
SEED = 11


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (part.view(batch, length, HEADS, width // HEADS).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.fc2(functional.gelu(self.fc1(x)))


class CharGpt(nn.Module):
    def __init__(self, alphabet: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(alphabet, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.ln, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, alphabet, bias=False)

    def loss(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens[:, :-1]) + self.positions.weight
        return functional.cross_entropy(self.head(self.ln(self.blocks(x))).flatten(0, 1), tokens[:, 1:].flatten())


def main(texts: list[str]) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    text = "\n".join(Path(name).read_text(encoding="utf-8") for name in texts)
    alphabet = sorted(set(text))
    data = torch.tensor([alphabet.index(character) for character in text])
    training, held_back = data[: len(data) * 9 // 10], data[len(data) * 9 // 10 :]

    def draw(source: torch.Tensor, count: int) -> torch.Tensor:
        starts = torch.randint(0, len(source) - LENGTH - 1, (count,))
        return torch.stack([source[start : start + LENGTH + 1] for start in starts])

    net = CharGpt(len(alphabet))
    fixed = draw(held_back, 32)
    parameters = list(net.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.1)
    print(f"{len(text)} characters, alphabet of {len(alphabet)}, {sum(p.numel() for p in parameters)} parameters")
    steps: list[Step] = []
    with torch.no_grad():
        fixed_losses = [float(net.loss(fixed))]
    for number in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, (number + 1) / WARM_UP)
        optimizer.zero_grad()
        loss = net.loss(draw(training, BATCH))
        loss.backward()
        grad_norm = whole_norm(one.grad for one in parameters if one.grad is not None)
        before = copies(parameters)
        optimizer.step()
        with torch.no_grad():
            fixed_losses.append(float(net.loss(fixed)))
        steps.append(Step(number, float(loss.detach()), grad_norm, changed_by(before, parameters)))
    write(Path(__file__).with_suffix(".csv"), marked(steps, fixed_losses))


def marked(steps: list[Step], fixed_losses: list[float]) -> list[Step]:
    """The steps with the spikes marked; `fixed_losses` has one more, before each step and after the last."""
    found, last = [], -APART
    for number, step in enumerate(steps):
        around = steps[max(0, number - AROUND) : number] + steps[number + 1 : number + 1 + AROUND]
        times = step.grad_norm / median(one.grad_norm for one in around)
        if times >= OUTLIER:
            harm = max(fixed_losses[number + 1 : number + 1 + HARM_WITHIN]) - fixed_losses[number]
            is_first = number - last >= APART
            if harm > HARM:
                last = number
                step = step._replace(event="spike" if is_first else "")
            print(f"step {number}: gradient {times:.1f} x the median, fixed loss {harm:+.3f} {step.event}")
        found.append(step)
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
