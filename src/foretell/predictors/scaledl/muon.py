"""Muon in full precision: torch's own rounds to bf16, which most processors compute very slowly."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

_MOMENTUM = 0.95
_QUINTIC = (3.4445, -4.775, 2.0315)
"""Odd polynomial whose iteration takes singular values between 0 and 1 close to 1 in few rounds
(K. Jordan et al., Muon, 2024)."""
_ROUNDS = 5
_TINY = 1e-7


class Muon(torch.optim.Optimizer):
    """Moves matrices by their gradient with all singular values made alike."""

    def __init__(self, matrices: Iterable[Tensor], rate: float) -> None:
        super().__init__(matrices, {"lr": rate})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One move against the gradient, with Nesterov's momentum."""
        assert closure is None
        for group in self.param_groups:
            for matrix in group["params"]:
                gradient, state = matrix.grad, self.state[matrix]
                if "mean" not in state:
                    state["mean"] = torch.zeros_like(gradient)
                mean = state["mean"].lerp_(gradient, 1 - _MOMENTUM)
                rows, columns = matrix.shape
                rate = group["lr"] * max(1.0, rows / columns) ** 0.5
                matrix.add_(with_equal_scales(gradient.lerp(mean, _MOMENTUM)), alpha=-rate)


def with_equal_scales(matrix: Tensor) -> Tensor:
    """A matrix with the same singular vectors, and values near one, by Newton and Schulz."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp_min(_TINY)
    first, second, third = _QUINTIC
    for _ in range(_ROUNDS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=second, alpha=third), x, beta=first)
    return x.T if tall else x
