"""Recipes: lengths, accumulation, validation."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.errors import InputError
from foretell.workload import Recipe


def test_epochs_become_steps_of_the_global_batch() -> None:
    recipe = Recipe(batch=32, epochs=2, samples=6400)
    assert recipe.total_steps(replicas=4, seq=None) == 100


def test_tokens_become_steps_of_sequences() -> None:
    assert Recipe(batch=4, tokens=1e6).total_steps(replicas=1, seq=250) == 1000


def test_accumulation_follows_from_the_global_batch() -> None:
    assert Recipe(batch=8, global_batch=64).accumulation(replicas=2) == 4


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"batch": -1}, "batch=-1"),
        ({"precision": "fp12"}, "fp12"),
        ({"mode": "trian"}, "train"),
        ({"epochs": 1.0}, "samples"),
        ({"steps": 5, "tokens": 1e6}, "give one"),
        ({"torch_version": "two"}, "2.4"),
        ({"batch": "x"}, "batch='x' must be a whole number"),
        ({"batch": None}, "batch=None must be a whole number"),
        ({"compile": "yes"}, "compile='yes' must be true or false"),
        ({"optimizer": 3}, "optimizer=3 must be a text"),
        ({"prefetch": 3}, "give zero=3 as well"),
        ({"mode": "infer", "zero": 1}, "zero=1 goes with training"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(fields: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        Recipe(**fields)  # type: ignore[arg-type]


def test_a_global_batch_that_does_not_divide_is_refused() -> None:
    with pytest.raises(InputError, match="not a multiple"):
        Recipe(batch=8, global_batch=20).accumulation(replicas=2)


def test_attention_is_fused_since_torch_two() -> None:
    assert not Recipe(torch_version="1.13").fused_attention
    assert Recipe(torch_version="2.0.1+cu118").fused_attention


def test_numbers_of_other_libraries_are_numbers() -> None:
    recipe = Recipe(batch=np.int64(8), tokens=np.float32(64.0))  # type: ignore[arg-type]
    assert (type(recipe.batch), type(recipe.tokens)) == (int, float)
