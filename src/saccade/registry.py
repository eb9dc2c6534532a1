"""The studies: files in `saccade/studies`, entry points of the group `saccade.studies` in installed
packages, and .py files of the user's own that define `STUDY`.
"""

import ast
import dataclasses
import difflib
import importlib
import importlib.metadata
import json
import os
import pkgutil
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from saccade.errors import ConfigError, FileError, described
from saccade.workers.code import executed

if TYPE_CHECKING:
    from saccade.core.study import Study

GROUP = "saccade.studies"
"""The package of the built-in studies, and the entry-point group of all others."""
_RECORDED = {"watched": "saccade.across.watched"}
"""Studies that have records and are not run: name -> module."""
_FOLDER = Path(__file__).parent / "studies"
_loaded: "dict[str, tuple[Path, int, Study[Any]]]" = {}
"""Studies that this process loaded from files: by name, with the file and its time of change."""


def study_names() -> list[str]:
    """Names of the built-in studies and of those in installed packages; nothing is imported."""
    return sorted({*_built_in(), *(point.name for point in _entry_points())})


@dataclasses.dataclass(frozen=True)
class Outline:
    """What is known of a study without importing it."""

    presets: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()


def outlines() -> dict[str, Outline]:
    """Presets and claims by study, read from files; empty for studies of other packages. To import
    the studies would take seconds, and completion has none.
    """
    known = json.loads((_FOLDER / "known.json").read_text(encoding="utf-8"))
    found = {name: Outline() for name in study_names()}
    for name in _built_in():
        claims = dict.fromkeys(
            claim for verdicts in known.get(name, {}).values() for claim in verdicts
        )
        found[name] = Outline(_presets_in(_FOLDER / f"{name}.py"), tuple(claims))
    return found


def _presets_in(file: Path) -> tuple[str, ...]:
    """The keys of the dict `PRESETS`."""
    text = file.read_text(encoding="utf-8")
    match = re.search(r"^PRESETS\b[^=\n]*= (\{.*\}$|\{\n(?:.*\n)*?\}$)", text, re.MULTILINE)
    tree = ast.parse(match[1], mode="eval").body if match else None
    keys = tree.keys if isinstance(tree, ast.Dict) else ()
    return tuple(str(key.value) for key in keys if isinstance(key, ast.Constant))


def loaded_from(study: "Study[Any]") -> Path | None:
    """The .py file that the user named for a study; None for one that is installed."""
    return _loaded[study.name][0] if study.name in _loaded else None


def find_study(reference: str | Path) -> "Study[Any]":
    """The study of a name or of the path of a .py file, which is known by its name from then on."""
    text = str(reference)
    if text.endswith(".py") or os.sep in text or "/" in text:
        return _of_file(Path(text))
    study = known_study(text)
    if study is None:
        known = [*study_names(), *_loaded]
        close = difflib.get_close_matches(text, known, 1)
        hint = f"did you mean {close[0]}? " if close else ""
        allowed = f"{', '.join(known)}, or the path of a .py file"
        raise ConfigError(f"study: got {text!r}, {hint}allowed: {allowed}")
    return study


def known_study(name: str) -> "Study[Any] | None":
    """The study of a name, which is never taken for a path; None if there is none."""
    if name in _built_in():
        return importlib.import_module(f"{GROUP}.{name}").STUDY
    if name in _RECORDED:
        return importlib.import_module(_RECORDED[name]).STUDY
    if name in _loaded:
        return _loaded[name][2]
    points = [point for point in _entry_points() if point.name == name]
    if len(points) > 1:
        found = ", ".join(point.value for point in points)
        raise ConfigError(f"study {name}: got several entry points ({found}), allowed: one")
    return _of_entry_point(points[0]) if points else None


@cache
def _built_in() -> list[str]:
    names = (module.name for module in pkgutil.iter_modules([str(_FOLDER)]))
    return sorted(name for name in names if not name.startswith("_"))


def _entry_points() -> list[importlib.metadata.EntryPoint]:
    """Entry points of installed packages, each once; a built-in study cannot be replaced."""
    found = {(one.name, one.value): one for one in importlib.metadata.entry_points(group=GROUP)}
    built_in = _built_in()
    return [point for point in found.values() if point.name not in built_in]


def _of_entry_point(point: importlib.metadata.EntryPoint) -> "Study[Any]":
    package = f" of {point.dist.name}" if point.dist is not None else ""
    where = f"entry point {point.name!r}{package} ({point.value})"
    try:
        found = point.load()
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{where}: cannot be loaded: {described(error)}") from error
    study = _required_study(found, where)
    if study.name != point.name:
        raise ConfigError(f"{where}: its study is named {study.name!r}, allowed: {point.name!r}")
    return study


def _of_file(path: Path) -> "Study[Any]":
    """`STUDY` of a file, executed again if the file has changed."""
    file = path.resolve()
    if file.parent == _FOLDER.resolve() and file.stem in _built_in():
        return find_study(file.stem)
    try:
        changed, source = file.stat().st_mtime_ns, file.read_bytes()
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error
    if file.suffix != ".py":
        raise ConfigError(f"study: got {str(path)!r}, allowed: a name, or the path of a .py file")
    for known, time, study in _loaded.values():
        if (known, time) == (file, changed):
            return study
    study = _required_study(executed(file, source, path), str(path))
    named = f"{path}: its study is named {study.name!r}"
    if not re.fullmatch(r"\w[\w-]*", str(study.name)):
        raise ConfigError(f"{named}, allowed: letters, digits, '_' and '-'")
    if study.name in (*_built_in(), *_RECORDED):
        raise ConfigError(f"{named}, which is built in; give it another name")
    other = _loaded.get(study.name, (file,))[0]
    if other != file:
        raise ConfigError(f"{named}, as that of {other}; give it another name")
    _loaded[study.name] = file, changed, study
    return study


def _required_study(found: Any, where: str) -> "Study[Any]":
    from saccade.core.study import Study

    if isinstance(found, ModuleType):
        if not hasattr(found, "STUDY"):
            raise ConfigError(f"{where}: has no STUDY, allowed: STUDY = Study(...)")
        found = found.STUDY
    if not isinstance(found, Study):
        got = type(found).__name__
        raise ConfigError(f"{where}: STUDY is of type {got}, allowed: a saccade Study")
    return found
