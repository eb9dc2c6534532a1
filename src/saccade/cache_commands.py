"""The command `saccade cache`: what is kept, how large it is, and how to remove some of it."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from saccade.errors import ConfigError, FileError
from saccade.options import CacheOptions
from saccade.report import terminal
from saccade.report.formatting import counted, size_text
from saccade.train.cache_files import Kept, Kind, is_in_use, kept_in, remove

UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
"""Seconds of the units of an age."""
NOUNS: dict[Kind, str] = {
    "training": "finished training",
    "unfinished": "unfinished training",
    "result": "result",
    "compiled": "compiled program",
    "leftover": "leftover file",
    "damaged": "damaged file",
}
_CRITERIA = ("older_than", "unfinished", "compiled", "all", "dry_run")


def cache_command(options: CacheOptions, given: list[str]) -> int:
    if given not in ([], ["prune"]):
        got = f"saccade cache {' '.join(given)}"
        raise ConfigError(f"got '{got}', allowed: saccade cache, saccade cache prune")
    folder = options.output / "cache"
    if options.output != CacheOptions().output and not options.output.is_dir():
        raise FileError(f"cannot read {options.output}: no such folder")
    if given:
        return _prune(options, folder)
    for name in _CRITERIA:
        if getattr(options, name):
            flag = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{flag}: got it without prune, allowed: saccade cache prune {flag}")
    found = kept_in(folder)
    if options.json:
        print(json.dumps(_plain(folder, found), indent=2))
    elif not found:
        print(f"{folder}: nothing is kept here")
    else:
        terminal.print_to_terminal(terminal.kept_table([it for it in found if _is_listed(it)]))
        print(f"{folder}: {_summary(found)}; {size_text(_size(found))} in all")
    return 0


def _is_listed(one: Kept) -> bool:
    return one.kind != "compiled"  # their names say nothing


def _plain(folder: Path, found: Sequence[Kept]) -> dict[str, object]:
    compiled = [one for one in found if not _is_listed(one)]
    about: dict[str, object] = {"folder": str(folder)}
    about |= {"files": [one.plain() for one in found if _is_listed(one)]}
    about |= {"compiled": {"programs": _count(compiled)["compiled"], "bytes": _size(compiled)}}
    return about | {"bytes": _size(found)}


def _size(found: Sequence[Kept]) -> int:
    return sum(one.size for one in found)


def _count(found: Sequence[Kept]) -> Counter[Kind]:
    """Files by kind. JAX notes beside a compiled program when it was last used."""
    return Counter(one.kind for one in found if not one.path.name.endswith("-atime"))


def _summary(found: Sequence[Kept]) -> str:
    """Numbers and sizes by kind."""
    texts = []
    for kind, count in _count(found).items():
        size = size_text(_size([one for one in found if one.kind == kind]))
        texts.append(f"{counted(count, NOUNS[kind])} ({size})")
    return ", ".join(texts)


def _prune(options: CacheOptions, folder: Path) -> int:
    kinds: set[Kind] = set()
    kinds |= {"unfinished", "leftover"} if options.unfinished else set()
    kinds |= {"compiled"} if options.compiled else set()
    oldest = _seconds(options.older_than) if options.older_than else 0.0
    if options.all or (options.older_than and not kinds):
        kinds = set(NOUNS)
    if not kinds:
        allowed = "--older-than AGE, --unfinished, --compiled, --all"
        raise ConfigError(f"prune: got nothing to remove, allowed: one or more of {allowed}")
    chosen = [one for one in kept_in(folder, locks=True) if one.kind in kinds and one.age >= oldest]
    if options.dry_run:
        done = [one for one in chosen if not is_in_use(one)]
    else:
        done = [one for one in chosen if remove(one)]
    kept = [one for one in chosen if one not in done]
    if options.json:
        about = {"removed": [one.plain() for one in done], "in_use": [one.plain() for one in kept]}
        print(json.dumps(about | {"bytes": _size(done), "dry_run": options.dry_run}, indent=2))
        return 0
    if options.dry_run and (listed := [one for one in done if _is_listed(one)]):
        terminal.print_to_terminal(terminal.kept_table(listed))
    verbs = ("would remove", "would be freed") if options.dry_run else ("removed", "freed")
    freed = f"{verbs[0]} {_summary(done)}; {size_text(_size(done))} {verbs[1]}"
    print(f"{folder}: {freed if done else 'nothing to remove'}")
    if kept:
        print(f"{counted(len(kept), 'file')} in use, so kept: {', '.join(map(_named, kept))}")
    return 0


def _named(one: Kept) -> str:
    return f"{one.name or 'unknown'} ({one.path.name})"


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([mhdw])", text.strip())
    if not found:
        raise ConfigError(f"--older-than: got {text!r}, allowed: 90m, 12h, 30d or 4w, for example")
    return float(found[1]) * UNITS[found[2]]
