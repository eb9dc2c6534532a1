"""The command `saccade doctor`: what is installed, what is here, and what is missing.

It must work where things are broken: everything but the standard library is imported under a guard.
"""

import dataclasses
import importlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from saccade.errors import FileError, described
from saccade.options import DoctorOptions
from saccade.version import __version__

Status = Literal["ok", "missing", "broken"]
"""Broken is what every study needs; missing is what some need."""
MARKS: dict[Status, str] = {"ok": "+", "missing": "-", "broken": "!"}
MODULES = {"vl-convert-python": "vl_convert"}
"""Modules that are not named as their packages."""
NEEDED = ("", "lab")
"""What every study needs: the core, and the extra that trains."""
OLDEST = (3, 11)
"""The oldest Python that saccade supports."""
_NAME, _EXTRA = re.compile(r"[\w.-]+"), re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the examination."""

    section: str
    name: str
    status: Status
    text: str
    remedy: str = ""


def doctor_command(options: DoctorOptions, given: list[str]) -> int:
    del given  # the parser allows none
    found = list(examined(options))
    broken = [one for one in found if one.status == "broken"]
    if options.json:
        about = {"healthy": not broken, "findings": [dataclasses.asdict(one) for one in found]}
        print(json.dumps(about, indent=2))
        return int(bool(broken))
    section = ""
    for one in _joined(found):
        if one.section != section:
            print(f"{one.section}:")
            section = one.section
        print(f"  {MARKS[one.status]} {one.name}: {one.text}")
        if one.remedy:
            print(f"      to do: {one.remedy}")
    if broken:
        names = ", ".join(one.name for one in broken)
        print(f"broken: {names}; no study runs before this is repaired")
    else:
        print("what every study needs is here")
    return int(bool(broken))


def _joined(found: Sequence[Finding]) -> Iterator[Finding]:
    """With missing corpora in two lines: they are many, and few users need them all."""
    absent = [one for one in found if one.section == "corpora" and one.name in _ABSENT.values()]
    for one in found:
        if one not in absent:
            yield one
        elif one == next(it for it in absent if it.name == one.name):
            names = [it.text for it in absent if it.name == one.name]
            remedy = one.remedy.replace(one.text, "NAME")
            yield dataclasses.replace(one, text=", ".join(names), remedy=remedy)


_ABSENT = {True: "not here, can be fetched", False: "not here, by hand"}
_FETCH = {True: "saccade data fetch {}", False: "'saccade data fetch {}' says how"}
"""By whether a corpus can be downloaded."""


def examined(options: DoctorOptions) -> Iterator[Finding]:
    """Every finding, section by section."""
    yield from _versions()
    yield from _extras()
    yield from _guarded("devices", "JAX", "broken", _devices)
    yield from _guarded("studies", "studies", "broken", _studies)
    yield from _guarded("cache", "cache", "missing", lambda: _cache(options.output / "cache"))
    yield from _guarded("corpora", "corpora", "missing", lambda: _corpora(options))
    yield from _tools()


def _guarded(
    section: str, name: str, status: Status, look: Callable[[], Iterator[Finding]]
) -> Iterator[Finding]:
    try:
        yield from look()
    except Exception as error:  # any library may be broken in any way
        yield Finding(section, name, status, described(error))


# -- packages --------------------------------------------------------------------------------------


def _versions() -> Iterator[Finding]:
    yield Finding("versions", "saccade", "ok", f"{__version__}, {Path(__file__).parent}")
    fits = sys.version_info >= OLDEST
    oldest = ".".join(map(str, OLDEST))
    text = f"{platform.python_version()}, {sys.executable}"
    remedy = "" if fits else f"install Python {oldest} or newer"
    yield Finding("versions", "Python", "ok" if fits else "broken", text, remedy)
    try:
        needed = _requirements()
    except importlib.metadata.PackageNotFoundError:
        why = "not installed as a package, so its needs are not known"
        yield Finding("versions", "packages", "missing", why, "pip install saccade")
        return
    for extra in NEEDED:
        for name, wanted in needed.get(extra, {}).items():
            yield _package(name, wanted)


def _package(name: str, wanted: str) -> Finding:
    """A package that every study needs: it must be there, fit, and be importable."""
    version = _installed(name)
    remedy = f"pip install '{name}{wanted}'"
    if version is None:
        return Finding("versions", name, "broken", f"not installed, needed: {wanted}", remedy)
    if not _fits(version, wanted):
        return Finding("versions", name, "broken", f"{version}, needed: {wanted}", remedy)
    module = MODULES.get(name, name.replace("-", "_"))
    try:
        importlib.import_module(module)
    except Exception as error:
        text = f"{version}, cannot be imported: {described(error)}"
        lacking = error.name if isinstance(error, ModuleNotFoundError) else None
        lacking = (lacking or module).partition(".")[0]  # what a package needs may be missing
        remedy = f"pip install {'--force-reinstall ' + name if lacking == module else lacking}"
        return Finding("versions", name, "broken", text, remedy)
    return Finding("versions", name, "ok", version)


def _requirements() -> dict[str, dict[str, str]]:
    """Packages and versions that are needed, by extra; without an extra, for everything."""
    found: dict[str, dict[str, str]] = {}
    for text in importlib.metadata.requires("saccade") or ():
        needed, _, marker = (part.strip() for part in text.partition(";"))
        extra, name = _EXTRA.search(marker), _NAME.match(needed)
        if name:
            wanted = re.sub(r"^\[[^\]]*\]", "", needed[name.end() :]).strip(" ()")
            found.setdefault(extra[1] if extra else "", {})[name[0]] = wanted
    return found


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _fits(version: str, wanted: str) -> bool:
    try:
        from packaging.specifiers import SpecifierSet
    except ImportError:  # it comes with xarray and matplotlib
        return True
    # A local version, such as that of PyTorch for CPUs (2.13.0+cpu), is the same version.
    return SpecifierSet(wanted).contains(version, prereleases=True)


def _extras() -> Iterator[Finding]:
    try:
        needed = _requirements()
    except importlib.metadata.PackageNotFoundError:
        return
    for extra, packages in needed.items():
        if extra in NEEDED:
            continue
        versions = {name: _installed(name) for name in packages}
        lacking = [name for name, version in versions.items() if version is None]
        others = [
            f"{name} {version} (needed: {packages[name]})"
            for name, version in versions.items()
            if version is not None and not _fits(version, packages[name])
        ]
        if lacking or others:
            absent = [f"without {', '.join(lacking)}"] if lacking else []
            text, remedy = "; ".join([*absent, *others]), f"pip install 'saccade[{extra}]'"
            yield Finding("extras", extra, "missing", text, remedy)
        else:
            text = ", ".join(f"{name} {version}" for name, version in versions.items())
            yield Finding("extras", extra, "ok", text)


# -- what is here ----------------------------------------------------------------------------------


def _devices() -> Iterator[Finding]:
    import jax

    from saccade.workers.software import cores_here

    devices = jax.local_devices()
    kinds = [one.device_kind for one in devices if one.platform != "cpu"]
    here = ", ".join(kinds) or f"the CPU, {cores_here()} cores"
    yield Finding("devices", "JAX trains on", "ok", here)
    if shutil.which("nvidia-smi") and all(one.platform == "cpu" for one in devices):
        text = "nvidia-smi is here, but JAX sees no GPU"
        yield Finding("devices", "GPU", "missing", text, "pip install 'jax[cuda12]'")


def _studies() -> Iterator[Finding]:
    from saccade.registry import find_study, study_names

    names, broken = study_names(), {}
    for name in names:
        try:
            find_study(name)
        except Exception as error:
            broken[name] = described(error)
    text = f"{len(names) - len(broken)} of {len(names)} can be loaded"
    if len(broken) == len(names):
        yield Finding("studies", "studies", "broken", "; ".join([text, *{*broken.values()}][:2]))
        return
    yield Finding("studies", "studies", "ok", text)
    for name, why in broken.items():
        yield Finding("studies", name, "missing", f"cannot be loaded: {why}")


def _cache(folder: Path) -> Iterator[Finding]:
    from saccade.report.formatting import counted, size_text
    from saccade.train.cache_files import kept_in

    found = kept_in(folder)
    kinds = [one.kind for one in found]
    counts = [counted(kinds.count("training"), "finished training")]
    counts += [counted(kinds.count("unfinished"), "unfinished one")]
    size = size_text(sum(one.size for one in found))
    text = f"{', '.join(counts)}, {size}" if found else "nothing is kept here"
    yield Finding("cache", str(folder), "ok", text)


def _corpora(options: DoctorOptions) -> Iterator[Finding]:
    from saccade.data import store

    named = options.data or os.environ.get(store.VARIABLE)
    name = "--data" if options.data else store.VARIABLE
    try:
        store.require_folder(options.data)
        yield Finding("corpora", name, "ok", str(named or "not set"))
    except FileError:
        remedy = "name a folder with a folder per corpus"
        yield Finding("corpora", name, "missing", f"{named}, which is no folder", remedy)
    yield Finding("corpora", "fetched ones go to", "ok", str(store.cache_folder()))
    for one in store.described(options.data):
        corpus, fetched = one["name"], bool(one["download"])
        if one["folder"]:
            yield Finding("corpora", corpus, "ok", one["folder"])
        else:
            remedy = _FETCH[fetched].format(corpus)
            yield Finding("corpora", _ABSENT[fetched], "missing", corpus, remedy)


def _tools() -> Iterator[Finding]:
    place = shutil.which("git")
    text = place or "not found: claims of new records count as exploratory"
    remedy = "" if place else "install git, which says from which commit a record was made"
    yield Finding("tools", "git", "ok" if place else "missing", text, remedy)
