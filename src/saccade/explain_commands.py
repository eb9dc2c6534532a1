"""The command `saccade explain`: a claim with its source, checks, findings and code."""

import contextlib
import difflib
import itertools
import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from saccade.commands import opened_files, record_files, shown_path
from saccade.core.adaptive_map import AdaptiveMap
from saccade.core.study import Study
from saccade.errors import ConfigError, SaccadeError
from saccade.judging.claim import Claim
from saccade.options import ExplainOptions
from saccade.registry import find_study, loaded_from, outlines, study_names
from saccade.report import terminal
from saccade.report.explained import Explanation, explanation_text
from saccade.report.judged import JudgedClaim, judged_claims

FOLDERS = ("runs", "results")
"""Where records are looked for, unless the user says where."""
Chosen = tuple[Study[Any], Claim]


def explain_command(options: ExplainOptions, references: list[str]) -> int:
    own = [find_study(path) for path in options.study]
    found = (_claims(reference, own) for reference in references)
    chosen = {(study.name, claim.id): (study, claim) for some in found for study, claim in some}
    paths = list(map(str, options.records)) or [one for one in FOLDERS if Path(one).is_dir()]
    judged = _judged(list(chosen.values()), paths, required=bool(options.records))
    explained = [Explanation(*one, judged.get(key, ())) for key, one in chosen.items()]
    if options.json:
        print(json.dumps([one.plain() for one in explained], indent=2))
    else:
        texts = (explanation_text(one, _how_to_get(one, paths)) for one in explained)
        terminal.print_to_terminal(*texts)
    return 0


def _claims(reference: str, own: Sequence[Study[Any]]) -> list[Chosen]:
    """The claims that a number, a study's name or the path of a .py file stands for."""
    known = {study.name: study for study in own}
    if reference.endswith(".py") or reference in (*known, *study_names()):
        study = known.get(reference) or find_study(reference)
        return [(study, claim) for claim in study.claims]
    # The known verdicts say which study has a claim: the others need not be imported.
    likely = [name for name, outline in outlines().items() if reference in outline.claims]
    rest = [name for name in study_names() if name not in likely]
    every: list[str] = []
    for study in itertools.chain(own, _loadable([*likely, *rest])):
        for claim in study.claims:
            every.append(claim.id)
            if claim.id.lower() == reference.lower():
                return [(study, claim)]
    raise ConfigError(_unknown(reference, [*every, *known, *study_names()]))


def _loadable(names: Sequence[str]) -> Iterator[Study[Any]]:
    """One broken package must not hide the claims of other studies."""
    for name in names:
        with contextlib.suppress(SaccadeError):
            yield find_study(name)


def _unknown(reference: str, known: Sequence[str]) -> str:
    if Path(reference).exists():
        hint = f"records are named with --records {reference}; "
    else:
        lower = {one.lower(): one for one in known}
        close = difflib.get_close_matches(reference.lower(), lower, 4, 0.6)
        hint = f"did you mean {', '.join(lower[one] for one in close)}? " if close else ""
    allowed = "the number of a claim, or the name or .py file of a study ('saccade list')"
    return f"claim: got {reference!r}, {hint}allowed: {allowed}"


def _judged(
    chosen: Sequence[Chosen], paths: Sequence[str], required: bool
) -> dict[tuple[str, str], list[tuple[Path, JudgedClaim]]]:
    """What records say about claims, by study and claim."""
    found: dict[tuple[str, str], list[tuple[Path, JudgedClaim]]] = {}
    files = record_files(paths, required) if paths else []
    for file, entry in opened_files(files, only={study.name for study, _ in chosen}):
        mapped = AdaptiveMap.of(entry[1])
        for row in judged_claims([entry]):
            if mapped is None or row.claim.id == mapped.claim:
                found.setdefault((row.study.name, row.claim.id), []).append((file, row))
    return found


def _how_to_get(one: Explanation, paths: Sequence[str]) -> str:
    """How a user gets a record of a claim that none of the given ones has."""
    file = loaded_from(one.study)
    study = one.study.name if file is None else shown_path(file)
    run = shlex.join(["saccade", "run", study])
    where = f"none of {', '.join(paths)} has one; " if paths else ""
    return f"{where}'{run}' makes one, or name some with --records"
