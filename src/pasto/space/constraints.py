"""Linear constraint on parameters, read from text such as "search + 2*social <= 100"."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import SpaceError

_TOLERANCE = 1e-12
"""Of the terms' total size: forgives 0.1 + 0.2 <= 0.3, and stays exact for integers up to 10**12."""
_DEPTH = 50
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+(?:_\d+)*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[^\W\d]\w*)|`(?P<quoted>[^`]+)`|(?P<sign><=|>=|==|!=|[-+*/()<>=]))"
)
_CURES = {"<": "<=", ">": ">=", "=": "=="}
_COMPARISONS = {"<=", ">=", "==", "!=", *_CURES}

Linear = dict[str, float]
"""Weights by name; the constant term has the empty name."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """Linear constraint low <= Σ weight·parameter <= high, of which one side may be infinite.

    >>> Constraint.parse("a + 2*b <= 10 - a", {"a": (0, 5), "b": (0, 5)})
    Constraint(text='a + 2*b <= 10 - a', weights={'a': 2.0, 'b': 2.0}, low=-inf, high=10.0)
    """

    text: str
    """As the user wrote it."""
    weights: Mapping[str, float]
    low: float
    high: float

    @classmethod
    def parse(cls, text: str, bounds: Mapping[str, tuple[float, float] | None]) -> Constraint:
        """Read a constraint over parameters with these bounds; None marks one whose values are not numbers."""
        constraint = _Reader(text).constraint()
        for name in constraint.weights:
            if name not in bounds:
                raise SpaceError(f"constraint {text!r} names {name!r}; the parameters are {', '.join(bounds)}")
            if bounds[name] is None:
                raise SpaceError(f"constraint {text!r} adds up {name!r}, whose values are not all numbers")
        least, most, slack = constraint.reach({name: bound for name, bound in bounds.items() if bound is not None})
        if least > constraint.high + slack or most < constraint.low - slack:
            raise SpaceError(
                f"constraint {text!r} can never hold: with everything that varies on the left, the left side reaches "
                f"from {least:g} to {most:g}, and {_sense(constraint)} is asked; widen a parameter or the constraint"
            )
        return constraint

    @property
    def bound(self) -> float:
        """Finite side, or both if they are equal."""
        return self.high if math.isfinite(self.high) else self.low

    def reach(self, bounds: Mapping[str, tuple[float, float]]) -> tuple[float, float, float]:
        """Return the least and the largest weighted sum over a box, and the rounding error of either."""
        ends = [(weight * bounds[name][0], weight * bounds[name][1]) for name, weight in self.weights.items()]
        size = sum(max(abs(first), abs(last)) for first, last in ends)
        return sum(map(min, ends)), sum(map(max, ends)), _TOLERANCE * (size + abs(self.bound))

    def within(
        self, totals: FloatArray, sizes: FloatArray, ahead: tuple[float, float] = (0.0, 0.0)
    ) -> NDArray[np.bool_]:
        """Return whether sums of terms with this total size meet the constraint, once a value in `ahead` is added."""
        slack = _TOLERANCE * (sizes + abs(self.bound))
        return (totals + ahead[0] <= self.high + slack) & (totals + ahead[1] >= self.low - slack)

    def holds(self, columns: Mapping[str, FloatArray]) -> NDArray[np.bool_]:
        """Return whether each of many points meets the constraint; one column of numbers a parameter."""
        terms = [weight * columns[name] for name, weight in self.weights.items()]
        return self.within(sum(terms, np.zeros(1)), sum(map(np.abs, terms), np.zeros(1)))


class _Reader:
    """Recursive-descent reader of one constraint: sums of products of numbers and names."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise SpaceError(f"a constraint is a string such as 'a + b <= 10', got {text!r}")
        self.text = text
        self.tokens = self._tokens()
        self.place = 0

    def constraint(self) -> Constraint:
        left = self._sum(0)
        sign = self._comparison()
        right = self._sum(0)
        if self.place < len(self.tokens):
            if self._peek() in _COMPARISONS:
                raise self._bad("one comparison at a time; write it as two constraints")
            raise self._stray()
        total = _add(left, right, -1.0)
        bound = 0.0 - total.pop("", 0.0)
        weights = {name: weight for name, weight in total.items() if weight}
        if not weights:
            raise self._bad("no parameter is left in it")
        if not all(map(math.isfinite, [bound, *weights.values()])):
            raise self._bad("its numbers are too large")
        low = -math.inf if sign == "<=" else bound
        return Constraint(self.text, weights, low, math.inf if sign == ">=" else bound)

    def _comparison(self) -> str:
        sign = self._peek()
        if sign in _CURES:
            raise self._bad(f"{sign!r} is not available; write {_CURES[sign]!r}")
        if sign == "!=" or self.place == len(self.tokens):
            raise self._bad("it needs one of <=, >= and ==")
        if sign not in _COMPARISONS:
            raise self._stray()
        self.place += 1
        return sign

    def _sum(self, depth: int) -> Linear:
        total = self._product(depth)
        while (sign := self._peek()) in {"+", "-"}:
            self.place += 1
            total = _add(total, self._product(depth), 1.0 if sign == "+" else -1.0)
        return total

    def _product(self, depth: int) -> Linear:
        total = self._factor(depth)
        while (sign := self._peek()) in {"*", "/"}:
            self.place += 1
            factor = self._factor(depth)
            if sign == "/":
                if set(factor) != {""} or not factor[""]:
                    raise self._bad("only division by a number other than 0 is linear")
                total = {name: weight / factor[""] for name, weight in total.items()}
            elif set(factor) == {""}:
                total = {name: weight * factor[""] for name, weight in total.items()}
            elif set(total) == {""}:
                total = {name: weight * total[""] for name, weight in factor.items()}
            else:
                raise self._bad("a product of two parameters is not linear")
        return total

    def _factor(self, depth: int) -> Linear:
        sign = 1.0
        while self._peek() in {"+", "-"}:
            sign = -sign if self._peek() == "-" else sign
            self.place += 1
        kind, token = self.tokens[self.place] if self.place < len(self.tokens) else ("end", "the end")
        self.place += 1
        if kind == "number":
            return {"": sign * float(token)}
        if kind == "name":
            return {token: sign}
        if token != "(":  # noqa: S105 -- a bracket, no password
            raise self._bad(f"expected a number or a parameter's name, got {token!r}")
        if depth == _DEPTH:
            raise self._bad(f"brackets are nested deeper than {_DEPTH}")
        inner = self._sum(depth + 1)
        if self._peek() != ")":
            raise self._bad("a bracket is not closed")
        self.place += 1
        return {name: sign * weight for name, weight in inner.items()}

    def _peek(self) -> str:
        """Return the next sign; empty at the end and before numbers and names."""
        kind, token = self.tokens[self.place] if self.place < len(self.tokens) else ("end", "")
        return token if kind == "sign" else ""

    def _tokens(self) -> list[tuple[str, str]]:
        tokens, place, text = [], 0, self.text.rstrip()
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                raise self._bad(
                    f"cannot read {text[place:].lstrip()[:1]!r}; use numbers, parameter names (in `backticks` where "
                    "they are not plain words), + - * / ( ) and <=, >= or =="
                )
            kind = str(match.lastgroup)
            tokens.append(("name" if kind == "quoted" else kind, match[kind]))
            place = match.end()
        return tokens

    def _stray(self) -> SpaceError:
        return self._bad(f"did not expect {self.tokens[self.place][1]!r} there; write products with *, as in 2*a")

    def _bad(self, reason: str) -> SpaceError:
        return SpaceError(f"constraint {self.text!r}: {reason}")


def _add(left: Linear, right: Linear, factor: float) -> Linear:
    return {name: left.get(name, 0.0) + factor * right.get(name, 0.0) for name in {**left, **right}}


def _sense(constraint: Constraint) -> str:
    if constraint.low == constraint.high:
        return f"exactly {constraint.high:g}"
    return f"at most {constraint.high:g}" if math.isfinite(constraint.high) else f"at least {constraint.low:g}"
