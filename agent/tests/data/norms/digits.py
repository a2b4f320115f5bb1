"""Records a small convolutional net on scikit-learn's digits, SGD with momentum: a training without a spike of its own,
and one into which mislabelled batches are slipped.

    python digits.py    writes digits_clean.csv and digits_spikes.csv beside this file

What is marked is marked by construction: in the second training a share of the labels is wrong in the batches of the steps
in `WRONG_LABELS`.
"""

from __future__ import annotations

from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from recording import Step, changed_by, copies, whole_norm, write

STEPS, BATCH = 600, 64
LEARNING_RATE, MOMENTUM = 0.02, 0.9
#: Step and share of wrong labels.
WRONG_LABELS = {150: 1.0, 290: 1.0, 291: 1.0, 430: 0.5, 500: 0.25, 560: 1.0}
SEED = 5


def train(wrong_labels: dict[int, float]) -> list[Step]:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(digits.target)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 16, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    parameters = list(net.parameters())
    optimizer = torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=1e-4)
    steps = []
    for number in range(STEPS):
        chosen = torch.randint(0, len(images), (BATCH,))
        inputs, targets = images[chosen], labels[chosen]
        wrong = int(BATCH * wrong_labels.get(number, 0.0))
        targets[:wrong] = (targets[:wrong] + 1) % 10
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(inputs), targets)
        loss.backward()
        grad_norm = whole_norm(one.grad for one in parameters if one.grad is not None)
        before = copies(parameters)
        optimizer.step()
        event = "spike" if wrong else ""
        steps.append(Step(number, float(loss.detach()), grad_norm, changed_by(before, parameters), event))
    return steps


if __name__ == "__main__":
    here = Path(__file__).parent
    write(here / "digits_clean.csv", train({}))
    write(here / "digits_spikes.csv", train(WRONG_LABELS))
