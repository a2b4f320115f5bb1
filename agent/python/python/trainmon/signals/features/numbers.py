"""The computation of the features. All functions accept tensors unchanged, return tensors without dimensions in
float64, and use no temporary larger than a piece."""

from __future__ import annotations

import math

import torch

from trainmon.measurement.chunks import PIECE, exact, pieces

#: Power iterations for a new matrix, and for one whose last vector is known.
FIRST_ITERATIONS, NEXT_ITERATIONS = 100, 10


def attention(q: torch.Tensor, k: torch.Tensor, order: str) -> tuple[torch.Tensor, torch.Tensor]:
    """`(entropy, softmax_max)` of causal attention from queries and keys of four dimensions in `order`.

    `order` is `s,b,h,d` or `b,s,h,d`. The mean over query rows of a row's entropy (natural logarithm) and of its
    largest weight.

    As in msprobe a sample is used: the first head of the first sequence. Raises `ValueError` if the shapes do not
    match.
    """
    if q.dim() != 4 or k.dim() != 4:
        raise ValueError(f"queries and keys need 4 dimensions ({order}), these have {q.dim()} and {k.dim()}")
    is_sequence_first = order.replace(" ", "") == "s,b,h,d"
    queries, keys = (one[:, 0, 0] if is_sequence_first else one[0, :, 0] for one in (q, k))
    if queries.shape != keys.shape:
        raise ValueError(
            f"queries {tuple(queries.shape)} and keys {tuple(keys.shape)} of one head have mismatched shapes"
        )
    return entropy_of_scores(queries.float() / math.sqrt(queries.shape[1]), keys.float())


def entropy_of_scores(
    queries: torch.Tensor, keys: torch.Tensor, largest: int = PIECE
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `attention`, for the scores `queries @ keys.T`, both `(s, d)`. Only some rows of the scores exist at a
    time."""
    length = queries.shape[0]
    entropies, maxima = [], []
    step = max(1, largest // max(1, length))
    for start in range(0, length, step):
        end = min(length, start + step)
        # A row attends to itself and earlier keys: later keys are not even multiplied.
        scores = queries[start:end] @ keys[:end].T
        places = torch.arange(end, device=scores.device)
        is_ahead = places[None, :] > places[start:end, None]
        logs = scores.masked_fill_(is_ahead, -math.inf).log_softmax(1)
        weights = logs.exp()
        maxima.append(weights.amax(1).sum(dtype=torch.float64))
        entropies.append(weights.mul_(logs.masked_fill_(is_ahead, 0.0)).sum(dtype=torch.float64).neg())
    return torch.stack(entropies).sum() / length, torch.stack(maxima).sum() / length


def token_entropy(logits: torch.Tensor, largest: int = PIECE) -> torch.Tensor:
    """The mean over tokens of the entropy of the softmax over the last dimension. Raises `ValueError` below two
    dimensions."""
    if logits.dim() < 2:
        raise ValueError(f"logits need 2 dimensions or more, these have {logits.dim()}")
    rows = logits.reshape(-1, logits.shape[-1])
    sums = []
    step = max(1, largest // max(1, rows.shape[1]))
    for start in range(0, rows.shape[0], step):
        logs = rows[start : start + step].float().log_softmax(1)
        # A weight of 0 contributes nothing: 0 times minus infinity must not be NaN.
        sums.append(torch.special.entr(logs.exp()).sum(dtype=torch.float64))
    return torch.stack(sums).sum() / rows.shape[0]


def similarity(weight: torch.Tensor) -> torch.Tensor:
    """The mean cosine of all pairs of experts; an expert is a vector along the longer dimension. 0 below two experts.

    The sum over all pairs follows from the sum of the unit vectors, without a matrix of experts by experts.
    """
    experts = weight.double() if weight.shape[0] < weight.shape[1] else weight.double().T
    count = experts.shape[0]
    if count < 2:
        return torch.zeros((), dtype=torch.float64, device=weight.device)
    units = experts / torch.linalg.vector_norm(experts, dim=1, keepdim=True).clamp_min(1e-12)
    return (units.sum(0).square().sum() - units.square().sum()) / (count * (count - 1))


def frobenius(weight: torch.Tensor, largest: int = PIECE) -> torch.Tensor:
    """The root of the sum of squares."""
    norms = [torch.linalg.vector_norm(exact(piece)[0]) for (piece,) in pieces([weight], largest)]
    return norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))


def spectral(
    weight: torch.Tensor, start: torch.Tensor, iterations: int, largest: int = PIECE
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`(sr, kernel_norm, vector)` of a matrix `(n, m)`, by power iteration on `W^T W` from `start` `(m,)`.

    `kernel_norm` is the largest singular value, `sr` the Frobenius norm over it, and `vector` the last iterate, a
    better start for the next time. The value is never above the true one. If the first singular values are close
    together, it is up to a few percent below after 100 iterations; a good start compensates for few iterations. Both
    numbers are 0 for a matrix of zeros. Cost: one pass over the weight per iteration, in float32, `largest` elements at
    a time.
    """
    size = frobenius(weight, largest)
    scale = size.float()
    vector = start
    value = torch.zeros_like(scale)
    step = max(1, largest // max(1, weight.shape[1]))
    for _ in range(iterations):
        product = torch.zeros_like(vector)
        for first in range(0, weight.shape[0], step):
            rows = weight[first : first + step].float()
            # Divided by the norm, the squares of the very small and the very large stay in float32.
            product += rows.T @ (rows @ vector / scale)
        product /= scale
        length = torch.linalg.vector_norm(product)
        value, vector = length, product / length
    norm = (value.double().sqrt() * size).nan_to_num_(0.0)
    rank = torch.where(norm > 0, size / norm, torch.zeros_like(norm))
    return rank, norm, vector
