"""The user's own code: files that are executed, and how they reach other processes.

A study file is executed under a private module name, with its folder importable. Workers get the
same files by their content: pickled objects name their modules, and Equinox's classes cannot be
pickled otherwise.
"""

import contextlib
import hashlib
import importlib
import os
import stat
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from saccade.errors import ConfigError, described, is_the_users, place_of

__all__: list[str] = []

Bundle = tuple[tuple[str, str, bytes, str], ...]
"""Files of code: name of the folder, path within it, content, and the name of the private module if
it was executed."""

_executed: dict[Path, str] = {}
"""Files that this process executed, whose folders are importable: by path, the module's name."""
_read: dict[Path, tuple[Any, bytes]] = {}
"""What files held when they were loaded: by path, the spec of the module and the content."""
_unpacked: list[Path] = []
"""Folders of the bundles that this process has made importable; the last one is in force."""


def executed(file: Path, source: bytes, shown: Path, name: str = "") -> ModuleType:
    """The module of a file, under a private name, with the file's folder importable; `shown` is
    the path for messages.
    """
    _make_importable(file)
    if not name:
        name = f"_study_{file.stem}"
        if name in sys.modules and sys.modules[name].__file__ != str(file):
            name = f"{name}_in_{'_'.join(file.parent.parts[1:])}"
    for other in [one for one, taken in _executed.items() if taken == name and one != file]:
        _executed[other] = ""  # its module is gone: a file that failed when it was loaded again
    module = sys.modules[name] = ModuleType(name)  # dataclasses look up their module there
    module.__file__ = str(file)
    try:
        # Not by the import system, whose bytecode files can be stale within one second.
        exec(compile(source, file, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        where, line = place_of(error) or (file, 0)
        text = str(shown) if where == file else f"{shown}: {where}"
        raise ConfigError(f"{text}, line {line}: {described(error)}") from error
    for other in [one for one in _read if one.parent == file.parent]:
        del _read[other]  # the modules beside it were loaded again, too
    _executed[file], _read[file] = name, (None, source)
    return module


def _make_importable(file: Path) -> None:
    """Put the folder of a file first on the module path."""
    # Modules of the same name beside other studies, or beside a file executed again, are dropped.
    folder, again = file.parent, file in _executed
    beside = {entry.stem for entry in folder.iterdir() if entry.suffix in (".py", "")}
    folders = {one.parent for one in _executed if again or one.parent != folder}
    _executed.setdefault(file, "")
    stale = {name for name in beside & set(sys.modules) if _folder_of(name) in folders}
    for name in [name for name in sys.modules if name.partition(".")[0] in stale]:
        del sys.modules[name]
    _first_on_path(folder)


def _first_on_path(folder: Path) -> None:
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()


def _folder_of(name: str) -> Path | None:
    """The folder from which an imported module or package came."""
    file = getattr(sys.modules[name], "__file__", None)
    return Path(file).parents[1 if Path(file).stem == "__init__" else 0] if file else None


def bundled(pickled: bytes) -> Bundle:
    """The user's code that pickled objects may need, as it was loaded: executed files that they
    name, with the files and packages beside them, and imported modules that are neither installed
    nor Python's own, with all files of a package.
    """
    named = {file: name for file, name in _executed.items() if name and name.encode() in pickled}
    roots: dict[Path, Path] = {}
    for folder in {file.parent for file in named}:
        packages = [one.parent for one in folder.glob("[!.]*/__init__.py")]
        files = [*folder.glob("[!.]*.py"), *(it for one in packages for it in one.rglob("*.py"))]
        roots |= dict.fromkeys(files, folder)
    for name in {name.partition(".")[0] for name in [*sys.modules]} - {"__main__", "__mp_main__"}:
        given = getattr(sys.modules.get(name), "__file__", None)
        file, root = Path(given or ""), _folder_of(name)
        if root is None or file.suffix != ".py" or not is_the_users(file):
            continue
        inner = file.parent.rglob("[!.]*.py") if file.stem == "__init__" else [file]
        roots |= {one: root for one in inner if one not in _executed}
    modules = [one for one in [*sys.modules.values()] if isinstance(one, ModuleType)]
    specs = {getattr(one, "__file__", None): one.__spec__ for one in modules}
    rows = []
    for file, root in sorted(roots.items()):
        folder = hashlib.sha256(str(root).encode()).hexdigest()[:12]
        content = _content(file, specs.get(str(file)))
        if content is not None:
            rows.append((folder, str(file.relative_to(root)), content, named.get(file, "")))
    return tuple(rows)


def _content(file: Path, spec: Any) -> bytes | None:
    """What a file held when its module was first seen, or was loaded again, which makes a new spec:
    an edit in the middle of a run must not change the trainings that follow. None if it cannot be
    read.
    """
    if file not in _read or _read[file][0] is not spec:
        try:
            _read[file] = spec, file.read_bytes()
        except OSError:
            return None
    return _read[file][1]


def unpack(bundle: Bundle) -> None:
    """Make the code of another process importable here, and execute what it had executed."""
    from saccade.records.sealed import write_atomically  # with NumPy, which help texts do not need

    key = hashlib.sha256(repr(bundle).encode()).hexdigest()
    base = _own_folder() / key[:24]
    if not bundle or _unpacked[-1:] == [base]:
        return
    for name, module in [*sys.modules.items()]:
        file = Path(getattr(module, "__file__", None) or "/")
        if any(file.is_relative_to(one) for one in _unpacked):
            del sys.modules[name]  # modules of another bundle may have the same names
    for path in [one for one in sys.path if any(Path(one).is_relative_to(it) for it in _unpacked)]:
        sys.path.remove(path)  # what this bundle lacks must not come from another
    _unpacked.append(base)
    for folder, path, content, _ in bundle:
        file = base / folder / path
        if not file.exists() or file.read_bytes() != content:
            write_atomically(file, content)
        _first_on_path(base / folder)
    for folder, path, content, name in bundle:
        if name:
            executed(base / folder / path, content, Path(path), name)


@cache
def _own_folder() -> Path:
    """A folder for code that nobody else can write into."""
    if not hasattr(os, "getuid"):  # without owners of files
        return Path(tempfile.mkdtemp(prefix="saccade-code-"))
    folder = Path(tempfile.gettempdir()) / f"saccade-code-{os.getuid()}"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700)
    about = folder.lstat()
    own = about.st_uid == os.getuid() and stat.S_ISDIR(about.st_mode) and not about.st_mode & 0o077
    return folder if own else Path(tempfile.mkdtemp(prefix="saccade-code-"))
