"""The tiny calculator agrees with arithmetic, and refuses everything else."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.launch.arithmetic import NotArithmeticError, evaluate

Tree = int | tuple[str, "Tree", "Tree"]

trees = st.recursive(
    st.integers(0, 1000),
    lambda inner: st.tuples(st.sampled_from("+-*/%"), inner, inner),
    max_leaves=8,
)


def text_of(tree: Tree) -> str:
    return (
        str(tree) if isinstance(tree, int) else f"({text_of(tree[1])}{tree[0]}{text_of(tree[2])})"
    )


def value_of(tree: Tree) -> int:
    """Exact, with division towards zero as shells have it."""
    if isinstance(tree, int):
        return tree
    sign, a, b = tree[0], value_of(tree[1]), value_of(tree[2])
    if sign in "/%" and b == 0:
        raise ZeroDivisionError
    quotient = 0 if sign in "+-*" else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return {"+": a + b, "-": a - b, "*": a * b, "/": quotient, "%": a - quotient * b}[sign]


class TooLarge(Exception):  # noqa: N818
    """A step of the calculation leaves 64 bits."""


def checked(text: str) -> int:
    try:
        return evaluate(text)
    except NotArithmeticError as error:
        if "too large" in str(error):
            raise TooLarge from None
        raise


@given(trees)
def test_trees_of_operations(tree: Tree) -> None:
    try:
        expected = value_of(tree)
    except ZeroDivisionError:
        with pytest.raises(NotArithmeticError):
            evaluate(text_of(tree))
    else:
        with contextlib.suppress(TooLarge):
            assert checked(text_of(tree)) == expected


@given(st.lists(st.tuples(st.sampled_from("+-*"), st.integers(0, 99)), max_size=6))
def test_ranks_of_operators(terms: list[tuple[str, int]]) -> None:
    text = "7" + "".join(f" {sign} {number}" for sign, number in terms)
    groups: list[int] = [7]
    for sign, number in terms:
        if sign == "*":
            groups[-1] *= number
        else:
            groups.append(number if sign == "+" else -number)
    assert evaluate(text) == sum(groups)


def test_names_are_looked_up() -> None:
    values = {"GPUS": 8, "NODES": 2}
    assert evaluate("GPUS * $NODES + ${GPUS}", values.get) == 24


@pytest.mark.parametrize(
    "text",
    ["", "1 +", "(1", "1)", "1 2", "x", "1 / 0", "1 % 0", "2 ** 3", "1 << 2", "a = 1", "__import__",
     "9" * 30, "9999999999 * 9999999999", "(" * 100 + "1" + ")" * 100, "$(date)", "1.5"],
)  # fmt: skip
def test_refused(text: str) -> None:
    with pytest.raises(NotArithmeticError):
        evaluate(text)


@given(st.text(max_size=30))
def test_any_text_is_a_number_or_refused(text: str) -> None:
    with contextlib.suppress(NotArithmeticError):
        assert isinstance(evaluate(text), int)
