"""The command `saccade map`: where a claim of a study holds, over two of its settings."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saccade.commands import lab_of, page_command, require_data, save_figures
from saccade.core.adaptive import Lattice, MapAxis
from saccade.core.adaptive_map import AdaptiveMap
from saccade.core.study import Study
from saccade.errors import ConfigError
from saccade.options import MapOptions
from saccade.records.config import describe
from saccade.records.record import Record
from saccade.report import terminal
from saccade.report.formatting import counted


def map_command(
    options: MapOptions, study: Study[Any], config: Any, axes: Mapping[str, MapAxis]
) -> int:
    wanted = _wanted(options, study, config, axes)
    require_data(options, study, config)
    with terminal.ProgressDisplay() as display, lab_of(options, study, display) as lab:
        record = wanted.run(study, config, lab, options.preset, options.full)
        folder = _folder(options, study, config, wanted)
        record.save(folder / "record.nc")
        figures = save_figures(study.drawn(record), folder / "figures")
    about = _summary(study, record)
    if options.json:
        print(json.dumps(about | {"record": str(folder / "record.nc")}, indent=2))
        return 0
    for line in _lines(about):
        print(line)
    print(f"{display.summary()}; record and figures: {folder}")
    for figure in figures:
        print(f"figure: {figure}")
    print(f"next: {page_command(study, folder)}")
    return 0


def _wanted(
    options: MapOptions, study: Study[Any], config: Any, axes: Mapping[str, MapAxis]
) -> AdaptiveMap:
    """What to map. Mistakes in options are found before the first training; whether the claim has a
    verdict per cell is known after the first round.
    """
    for name in ("finest", "coarse"):
        value = getattr(options, name)
        if value < 1 or value & (value - 1):
            raise ConfigError(f"--{name}: got {value}, allowed: a power of two")
    if options.coarse > options.finest:
        raise ConfigError(f"--coarse: got {options.coarse}, allowed: at most {options.finest}")
    lattice = Lattice(options.finest, options.coarse)
    if options.cells < len(lattice.first):
        first = f"at least the {len(lattice.first)} of the coarse lattice"
        raise ConfigError(f"--cells: got {options.cells}, allowed: {first}")
    if options.claim not in (known := [claim.id for claim in study.claims]):
        got = repr(options.claim) if options.claim else "nothing"
        raise ConfigError(f"--claim: got {got}, allowed: {', '.join(known)}")
    wanted = AdaptiveMap(options.claim, axes["x"], axes["y"], lattice, options.cells)
    wanted.config_at(config, lattice.every)  # every value is one that the settings allow
    return wanted


def _folder(options: MapOptions, study: Study[Any], config: Any, wanted: AdaptiveMap) -> Path:
    """One folder per map: its name has a digest of the settings and of what is mapped."""
    settings = [describe(config), dataclasses.asdict(wanted), options.full]
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
    return options.output / f"{study.name}-{options.preset}-map-{wanted.claim}-{digest}"


def _summary(study: Study[Any], record: Record) -> dict[str, Any]:
    done = AdaptiveMap.of(record)
    assert done is not None, "the record of a map"
    judgement = {one.claim: one for one in study.judge(record)}[done.claim]
    found = done.found(record, judgement)
    about = {"study": study.name, "preset": record.preset, "claim": done.claim}
    about |= {"x": done.x.name, "y": done.y.name, "verdicts": judgement.reason}
    about |= {"rounds": list(done.levels), "cells": sum(done.levels)}
    about |= {"lattice": done.lattice.points, "lacking": done.lacking}
    return about | {"agreement": done.agreement(found)}


def _lines(about: Mapping[str, Any]) -> list[str]:
    cells, lattice, rounds = about["cells"], about["lattice"], about["rounds"]
    each = ", ".join(map(str, rounds))
    lines = [
        f"{about['claim']} over {about['x']} and {about['y']}: {about['verdicts']}",
        f"adaptive: {cells} cells in {counted(len(rounds), 'round')} ({each});"
        f" the full lattice has {lattice}, {lattice / cells:.1f} times as many",
    ]
    if about["lacking"]:
        lines.append(
            f"stopped after round {len(rounds)}: the next needs {about['lacking']} more cells,"
            " which --cells does not allow"
        )
    if about["agreement"] is not None:
        lines.append(
            f"the adaptive map has the verdict of the full lattice at {about['agreement']:.2%} of"
            " its points"
        )
    return lines
