"""Bounds that a claim sets on a number, and what an interval says about them."""

import dataclasses
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal

Verdict = Literal["holds", "fails", "undetermined"]


class AbstractBound(ABC):
    """What a claim allows a number to be. NaN keeps no bound."""

    @abstractmethod
    def keeps(self, value: Any) -> Any:
        """Whether a number, or each number of an array, keeps the bound."""

    def verdict(self, low: float, high: float) -> Verdict:
        """`holds` if the whole interval keeps the bound, `fails` if none of it does."""
        kept = {bool(self.keeps(edge)) for edge in (low, high)}
        return "undetermined" if len(kept) > 1 else "holds" if kept.pop() else "fails"


@dataclasses.dataclass(frozen=True)
class _OneSided(AbstractBound):
    limit: float
    symbol: ClassVar[str]
    compare: ClassVar[Callable[[Any, Any], Any]]

    def keeps(self, value: Any) -> Any:
        return type(self).compare(value, self.limit)

    def __str__(self) -> str:
        return f"{self.symbol} {self.limit:g}"


class AtMost(_OneSided):
    """value <= limit"""

    symbol, compare = "<=", operator.le


class Below(_OneSided):
    """value < limit"""

    symbol, compare = "<", operator.lt


class AtLeast(_OneSided):
    """value >= limit"""

    symbol, compare = ">=", operator.ge


class Above(_OneSided):
    """value > limit"""

    symbol, compare = ">", operator.gt


@dataclasses.dataclass(frozen=True)
class Within(AbstractBound):
    """low <= value <= high; with `open`, low < value < high."""

    low: float
    high: float
    open: bool = False

    def keeps(self, value: Any) -> Any:
        if self.open:
            return (value > self.low) & (value < self.high)
        return (value >= self.low) & (value <= self.high)

    def verdict(self, low: float, high: float) -> Verdict:
        inside = bool(self.keeps(low)) and bool(self.keeps(high))
        lower, upper = (Above, Below) if self.open else (AtLeast, AtMost)
        outside = not lower(self.low).keeps(high) or not upper(self.high).keeps(low)
        return "holds" if inside else "fails" if outside else "undetermined"

    def __str__(self) -> str:
        edges = f"{self.low:g}, {self.high:g}"
        return f"within ({edges})" if self.open else f"within [{edges}]"
