"""What $((...)) in a script comes to: whole numbers, + - * / % and parentheses."""

from __future__ import annotations

import re
from collections.abc import Callable

_TOKEN = re.compile(r"\s*(?:(\d+)|\$?\{?([A-Za-z_]\w*)\}?|([-+*/%()]))")
_LARGEST = 2**63 - 1
_DEEPEST = 32


class NotArithmeticError(ValueError):
    """The text is more than this calculator knows, or has no value."""


def evaluate(text: str, lookup: Callable[[str], int | None] = lambda name: None) -> int:
    """The value as a shell would give it: division drops the fraction towards zero.

    `lookup` knows the variables; a name it answers with None is refused.
    """
    return _Calculator(_tokens(text), lookup).result()


def _tokens(text: str) -> list[str]:
    text = text.strip()
    found, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise NotArithmeticError(f"{text[position : position + 10]!r} is not understood")
        found.append(next(group for group in match.groups() if group is not None))
        position = match.end()
    return found


class _Calculator:
    """Recursive descent over the tokens, one method per rank of operator."""

    def __init__(self, tokens: list[str], lookup: Callable[[str], int | None]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0
        self._lookup = lookup

    def result(self) -> int:
        value = self._sum()
        if self._next < len(self._tokens):
            raise NotArithmeticError(f"{self._tokens[self._next]!r} is one too many")
        return value

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._next += 1
        return token

    def _sum(self) -> int:
        value = self._product()
        while self._peek() in ("+", "-"):
            value += self._product() if self._take() == "+" else -self._product()
        return _bounded(value)

    def _product(self) -> int:
        value = self._factor()
        while self._peek() in ("*", "/", "%"):
            sign, right = self._take(), self._factor()
            if sign == "*":
                value *= right
            elif right == 0:
                raise NotArithmeticError("division by zero")
            else:
                quotient = abs(value) // abs(right) * (1 if (value < 0) == (right < 0) else -1)
                value = quotient if sign == "/" else value - quotient * right
            value = _bounded(value)
        return value

    def _factor(self) -> int:
        sign = 1
        while self._peek() in ("+", "-"):
            sign *= -1 if self._take() == "-" else 1
        token = self._take()
        if token == "(":
            self._depth += 1
            if self._depth > _DEEPEST:
                raise NotArithmeticError("too many parentheses")
            value = self._sum()
            self._depth -= 1
            if self._take() != ")":
                raise NotArithmeticError("a parenthesis is not closed")
        elif token.isdigit():
            if len(token) > len(str(_LARGEST)):
                raise NotArithmeticError("the number is too large")
            value = int(token)
        elif token.isidentifier():
            known = self._lookup(token)
            if known is None:
                raise NotArithmeticError(f"{token} is not known")
            value = known
        else:
            raise NotArithmeticError(f"a number is missing before {token!r}")
        return _bounded(sign * value)


def _bounded(value: int) -> int:
    if abs(value) > _LARGEST:
        raise NotArithmeticError("the number is too large")
    return value
