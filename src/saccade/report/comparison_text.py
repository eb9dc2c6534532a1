"""A comparison of two records on the terminal, readable at 80 columns."""

import math
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Column, Table

from saccade.report.comparison import (
    RULE,
    TRAJECTORY_RULE,
    CheckComparison,
    Comparison,
    Difference,
    Pair,
)
from saccade.report.formatting import counted, number
from saccade.report.terminal import Words, badge

SHOWN = 10
"""Most variables of trajectories that are listed."""
_MARK = "* "
"""Before what differs: never shown by colour alone."""
_LISTED = 8


def comparison_text(comparison: Comparison) -> list[RenderableType]:
    """The whole comparison: what was found, the rule, and the tables."""
    shown: list[RenderableType] = [
        Words(f"{comparison.study}: {comparison.title}", "bold"),
        *(Words(f"{name}: {file}") for name, file in zip("AB", comparison.files, strict=True)),
        Words(""),
        *map(Words, comparison.summary()),
        Words(f"{RULE} {_MARK.strip()} marks what differs.", "dim"),
        Words(""),
        _pairs("Records", comparison.facts),
        Words(""),
    ]
    for title, pairs in (("settings", comparison.settings), ("versions", comparison.versions)):
        if pairs:
            shown += [_pairs(f"Other {title}", pairs), Words("")]
        else:
            shown += [Words(f"The {title} are the same."), Words("")]
    if comparison.claims:
        shown += [_claims(comparison), Words("")]
    shown += _listed("Claims of one record", comparison.alone)
    return [*shown, *_trajectories(comparison)]


def written(value: float, low: float, high: float, between: str = " ") -> str:
    """A number and its interval."""
    interval = "" if math.isnan(low + high) else f"{between}[{number(low)}, {number(high)}]"
    return f"{number(value)}{interval}"


def explained(difference: Difference, between: str = " ") -> str:
    """The difference in words, with its sign."""
    text = written(difference.value, difference.low, difference.high, between)
    text = f"+{text}" if difference.value > 0 else text
    if difference.outcome != "cannot be compared":
        return text
    known = f"{text}; " if difference.value == difference.value else ""
    return f"{known}cannot be compared: {difference.reason}"


def _table(*columns: Column | str, title: str) -> Table:
    look: Any = {"title_justify": "left", "title_style": "bold", "box": box.SIMPLE_HEAD}
    look |= {"pad_edge": False, "show_edge": False, "padding": (0, 1, 0, 0)}
    return Table(*columns, title=title, **look)


def _marked(text: str, marked: bool) -> Words:
    return Words(f"{_MARK}{text}", "bold magenta") if marked else Words(text)


def _pairs(title: str, pairs: tuple[Pair, ...]) -> Table:
    sides = (Column(name, overflow="fold", max_width=40) for name in "AB")
    table = _table(Column("", overflow="fold"), *sides, title=title)
    for pair in pairs:
        table.add_row(_marked(pair.name, pair.differs), *map(Words, pair.texts))
    return table


def _claims(comparison: Comparison) -> Table:
    numbers = (Column(name, min_width=17, max_width=24) for name in ("A", "B", "B - A"))
    first = Column("claim, quantity", min_width=12, max_width=50)
    table = _table(first, *numbers, title="Claims and checks")
    for claim in comparison.claims:
        name = Words(claim.id, "bold")
        changed = [_marked("verdict", True)] if claim.verdict_differs else []
        table.add_row(name, badge(claim.first), badge(claim.second), *changed)
        for check, swept in claim.rows():
            table.add_row(*_check(check, swept))
        notes = [*claim.alone[:_LISTED], *claim.notes]
        more = len(claim.alone) - _LISTED
        notes += [f"{more} more of one record"] if more > 0 else []
        for one in notes:
            table.add_row(Words(f"  {one}", "dim"))
        table.add_section()
    return table


def _check(check: CheckComparison, swept: str) -> list[RenderableType]:
    about = Group(Words(check.quantity), Words(f"  {check.bound}", "dim"), *_if(swept))
    numbers = [
        Words(written(one.value, one.low, one.high, "\n")) for one in (check.first, check.second)
    ]
    exceeds = check.difference.outcome == "exceeds"
    return [about, *numbers, _marked(explained(check.difference, "\n"), exceeds)]


def _if(text: str) -> list[Words]:
    return [Words(text, "dim")] if text else []


def _trajectories(comparison: Comparison) -> list[RenderableType]:
    found = comparison.trajectories
    if not found.variables and not found.incomparable and not found.alone:
        return []
    variables = counted(len(found.variables), "variable")
    shown: list[RenderableType] = []
    if found.variables:
        title = f"Trajectories: {found.exceeding} of {variables} exceed"
        columns = ("arm, variable", "where", Column("A"), Column("B"))
        table = _table(*columns, Column("standard errors", justify="right"), title=title)
        for one in found.variables[:SHOWN]:
            means = (Words(number(value)) for value in (one.first, one.second))
            size = f"{'+' if one.standardised > 0 else ''}{number(one.standardised)}"
            name = Words(f"{one.arm}, {one.variable}")
            table.add_row(name, Words(one.where), *means, _marked(size, one.exceeds))
        shown.append(table)
        rest = f"The {SHOWN} that differ most. " if len(found.variables) > SHOWN else ""
        shown.append(Words(f"{rest}{TRAJECTORY_RULE} Here: {found.numbers}.", "dim"))
    reasons: dict[str, list[str]] = {}
    for name, why in found.incomparable:
        reasons.setdefault(why, []).append(name)
    lines = [f"{why}: {'; '.join(names)}" for why, names in reasons.items()]
    return [
        *shown,
        *_listed("Variables that cannot be compared", lines),
        *_listed("Variables of one record", found.alone),
    ]


def _listed(title: str, lines: Any) -> list[RenderableType]:
    if not lines:
        return []
    more = [Words(f"  and {len(lines) - _LISTED} more")] if len(lines) > _LISTED else []
    return [Words(f"{title}:", "bold"), *(Words(f"  {one}") for one in lines[:_LISTED]), *more]
