"""The optimizer of matrices: singular values made alike, as torch's own but in full precision."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from foretell.predictors.scaledl.muon import Muon, with_equal_scales

SHAPES = ((160, 98), (32, 160), (48, 48))


@pytest.mark.parametrize("shape", SHAPES)
def test_singular_values_come_close_to_one_and_vectors_stay(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape) * 1e3
    made = with_equal_scales(matrix)
    values = torch.linalg.svdvals(made)
    assert values.max() < 1.3
    assert values.median() > 0.65
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    turned = left.T @ made @ right.T
    assert (turned - torch.diag(torch.diag(turned))).abs().max() < 1e-2


def test_a_gradient_of_nothing_moves_nothing() -> None:
    matrix = torch.nn.Parameter(torch.ones(4, 3))
    matrix.grad = torch.zeros_like(matrix)
    Muon([matrix], 0.1).step()
    assert torch.equal(matrix.detach(), torch.ones(4, 3))


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon of its own")
def test_moves_are_those_of_torch_but_for_its_rounding() -> None:
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(shape)) for shape in SHAPES]
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in ours]
    start = [p.detach().clone() for p in ours]
    both = Muon(ours, 0.03), torch.optim.Muon(theirs, lr=0.03, weight_decay=0.0)
    for _ in range(5):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn_like(mine)
            other.grad = mine.grad.clone()
        for optimizer in both:
            optimizer.step()
    for mine, other, at in zip(ours, theirs, start, strict=True):
        assert _norm(mine - other) < 0.02 * _norm(other - at)


def _norm(tensor: Tensor) -> float:
    return float(tensor.detach().norm())
