"""A claim explained: what it says, how it is checked, what records show, and where its code is."""

import ast
import dataclasses
import functools
import inspect
import itertools
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Column, Table

from saccade.core.study import Study
from saccade.judging.claim import Check, Claim
from saccade.judging.evidence import differences
from saccade.judging.registration import CHANGES, STATED, file_of, functions_in
from saccade.report.formatting import SYMBOLS, counted, measured_anywhere
from saccade.report.judged import TEXTS, JudgedClaim, note_of
from saccade.report.terminal import COLOURS, Words


@dataclasses.dataclass(frozen=True)
class Place:
    """Where something is defined."""

    name: str
    file: Path
    line: int

    def __str__(self) -> str:
        here = Path.cwd()
        file = self.file.relative_to(here) if self.file.is_relative_to(here) else self.file
        return f"{file}:{self.line}"

    def plain(self) -> dict[str, Any]:
        return {"name": self.name, "file": str(self.file), "line": self.line}


def place_of_claim(study: Study[Any], claim: str) -> Place | None:
    """The call that makes a claim or, where its number is computed, the list of claims; None for a
    study without a file.
    """
    file = file_of(study.experiment)
    if file is None:
        return None
    tree = ast.parse(file.read_text(encoding="utf-8"))
    calls, lists = [], []
    for node in ast.walk(tree):
        match node:
            case ast.Call(args=args, keywords=named):
                given = [*args, *(one.value for one in named)]
                if any(isinstance(one, ast.Constant) and one.value == claim for one in given):
                    calls.append(node.lineno)
            case (
                ast.Assign(targets=[ast.Name("CLAIMS")]) | ast.AnnAssign(target=ast.Name("CLAIMS"))
            ):
                lists.append(node.lineno)
            case _:
                pass
    return Place(claim, file, next(iter([*calls, *lists]), 1))


def places_of_measure(check: Check) -> list[Place]:
    """The function that measures a quantity, beneath partials, and those of the same folder that
    are given to it.
    """
    measure: Any = check.measure
    functions = list(functions_in(measure)) or [type(measure).__call__]
    codes = [(one, getattr(one, "__code__", None)) for one in functions]
    places = [
        Place(one.__qualname__, Path(code.co_filename), code.co_firstlineno)
        for one, code in codes
        if code is not None
    ]
    home = places[0].file.parent if places else None
    return list(dict.fromkeys(place for place in places if place.file.parent == home))


@dataclasses.dataclass(frozen=True)
class Explanation:
    """A claim with all that is known of it here."""

    study: Study[Any]
    claim: Claim
    found: Sequence[tuple[Path, JudgedClaim]] = ()
    """Records of the study by file, as they judge this claim."""

    @property
    def checks(self) -> tuple[Check, ...]:
        return self.claim.checks  # pyright: ignore[reportReturnType] (a tuple once made)

    @property
    def known(self) -> dict[str, str]:
        """Verdicts that are known, by preset, whether or not their records are here."""
        every = {preset: self.study.known(preset) for preset in self.study.presets}
        claim = self.claim.id
        return {preset: verdicts[claim] for preset, verdicts in every.items() if claim in verdicts}

    @functools.cached_property
    def place(self) -> Place | None:
        return place_of_claim(self.study, self.claim.id)

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        claim = self.claim
        about = {"claim": claim.id, "study": self.study.name, "title": self.study.title}
        about |= {name: getattr(claim, name) for name in TEXTS} | {"explanation": claim.reason}
        about |= {"needs": claim.full_size[1] if claim.full_size else "", "known": self.known}
        about |= {"checks": [_plain_check(check) for check in self.checks]}
        about |= {"code": None if self.place is None else self.place.plain()}
        return about | {"found": [_plain_finding(*one) for one in self.found]}


def _plain_check(check: Check) -> dict[str, Any]:
    statistic = check.statistic
    about: dict[str, Any] = {"quantity": check.quantity, "bound": str(check.bound)}
    about |= {"statistic": type(statistic).__name__, "seeds": statistic.seeds if statistic else 0}
    about |= {"arms": list(check.arms), "left_out": check.left_out}
    return about | {"measure": [place.plain() for place in places_of_measure(check)]}


def _plain_finding(file: Path, row: JudgedClaim) -> dict[str, Any]:
    record, judgement = row.record, row.judgement
    about = {"record": str(file), "preset": record.preset, "seeds": row.seeds}
    about |= {"commit": record.commit, "status": _status(row)[0], "note": note_of(row.study)}
    about |= {"explanation": row.claim.explanation(judgement)}
    return about | {key: it for key, it in judgement.plain().items() if key != "claim"}


def _status(row: JudgedClaim) -> tuple[str, str]:
    """The label of a registration, and why."""
    commit, judgement = row.record.commit, row.judgement
    if judgement.registered is None:
        return judgement.status, "a claim without a number has no label"
    if judgement.registered:
        stated = ", a commit that was stated and not verified" if STATED in commit else ""
        why = f"it computes what it computed at the record's commit {commit[:10]}{stated}"
        return judgement.status, why
    stored = row.record.verdicts.get(row.claim.id, {}).get("evidence")
    if not commit:
        why = "the record names no commit"
    elif CHANGES in commit:
        why = "the record's code was not committed"
    elif not stored:
        why = "the record does not say what this claim computed when it was made"
    else:
        other = next(differences(stored, judgement.evidence), "")
        why = f"changed since the record's commit {commit[:10]}: {textwrap.shorten(other, 200)}"
    return judgement.status, why


def explanation_text(one: Explanation, how_to_get: str) -> RenderableType:
    """For a terminal; `how_to_get` is said where there is no record."""
    claim = one.claim
    table = Table.grid(Column(style="bold", no_wrap=True, width=9), Column(ratio=1), padding=(0, 1))

    def row(label: str, *texts: str | RenderableType) -> None:
        words = [Words(text) if isinstance(text, str) else text for text in texts]
        table.add_row(label, Group(*words))

    row("claim", claim.statement, Words(f"{one.study.name}: {one.study.title}", "dim"))
    row("paper", claim.source, f"paper's value: {claim.paper}", f"prediction: {claim.prediction}")
    row("checked", *itertools.chain.from_iterable(map(_check_lines, one.checks)))
    row("judged by", *dict.fromkeys(map(_statistic_text, one.checks)))
    row("tolerance", claim.tolerance)
    if claim.full_size is not None:
        row("needs", claim.full_size[1])
    for file, judged in one.found:
        row("found", *_found_lines(file, judged))
    if not one.found:
        known = ", ".join(f"{verdict} (preset {preset})" for preset, verdict in one.known.items())
        row("found", "no record is here", *([f"known: {known}"] if known else []), how_to_get)
        if claim.reason and set(one.known.values()) != {"holds"}:
            row("why", claim.reason)
    if one.place is not None:
        row("code", str(one.place))
    return Group(Words(claim.id, "bold"), table, "")


def _indented(text: str, style: str = "") -> Padding:
    return Padding(Words(text, style), (0, 0, 0, 2))


def _check_lines(check: Check) -> list[RenderableType]:
    note = check.statistic.note if check.statistic else ""
    lines: list[RenderableType] = [Words(f"{check.quantity}: {check.bound}{note}")]
    arms = f"arms: {', '.join(check.arms) or 'none'}"
    places = [f"{place.name} ({place})" for place in places_of_measure(check)]
    lines.append(_indented("; ".join([arms, *places]), "dim"))
    if check.left_out:
        lines.append(_indented(f"seeds without a number are left out: {check.left_out}", "dim"))
    return lines


def _statistic_text(check: Check) -> str:
    statistic = check.statistic
    assert statistic is not None, "a claim fills in the statistic"
    kind = type(statistic)
    about = " ".join((inspect.getdoc(kind) or "").split()).partition(". ")[0].rstrip(".")
    seeds = "" if statistic.seedless else f", at least {counted(statistic.seeds, 'seed')}"
    return f"{kind.__name__}{seeds}: {about}"


def _found_lines(file: Path, row: JudgedClaim) -> list[RenderableType]:
    judgement = row.judgement
    symbol, seeds = (
        SYMBOLS[judgement.verdict],
        "" if row.seeds == "none" else f", {row.seeds} seeds",
    )
    text = f"{symbol} {judgement.verdict} (preset {row.record.preset}{seeds}; {file})"
    lines: list[RenderableType] = [Words(text, COLOURS[judgement.verdict])]
    if judgement.changed:
        lines.append(_indented(f"known: {judgement.known}", "bold"))
    if row.other_verdict:
        lines.append(_indented(f"when the record was made: {row.other_verdict}", "bold"))
    for finding, shown in measured_anywhere(judgement):
        lines.append(_indented(f"{finding.quantity}: {shown} ({finding.bound})"))
    if judgement.reason and (judgement.verdict != "holds" or judgement.cells):
        lines.append(_indented(judgement.reason))
    if why := row.claim.explanation(judgement):
        lines.append(_indented(f"why: {why}"))
    if note := note_of(row.study):
        return [*lines, _indented(f"{note}; this is the stored verdict", "dim")]
    return [*lines, _indented(": ".join(_status(row)), "dim")]
