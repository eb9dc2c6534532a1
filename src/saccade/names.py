"""The public names of the package, found in its source files.

Public are the errors and all classes of contracts, train, workers, core, records, judging, figures,
tasks, models, probes and theories, but for modules that say `__all__: list[str] = []` (the parts of
the engine). Of functions, those of the first seven that a study or such a part imports.
`python -m saccade.names` writes the names to `__init__.pyi`, for type checkers and editors.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_PARTS = ("tasks", "models", "probes", "theory")
_DEFINED = re.compile(r"^(?:class|def) ([A-Za-z]\w*)", re.MULTILINE)
_SHARED = ("contracts", "train", "workers", "core", "records", "judging", "figures")
_AT_THE_TOP = ("errors", "settings")
_FROM_SHARED = re.compile(
    rf"^from saccade\.(?:(?:{'|'.join(_SHARED)})\.\w+|{'|'.join(_AT_THE_TOP)}) import "
    r"(\([^)]*\)|.*)",
    re.MULTILINE,
)


@cache
def public_names() -> dict[str, str]:
    """Name -> module, of every public class and function."""
    functions = {name for name in set().union(*map(_used, ("studies", *_PARTS))) if name.islower()}
    names: dict[str, str] = {}
    for folder in ("", *_SHARED, *_PARTS):
        for module, text in _sources(folder, "[!_]*.py"):
            if not folder and module.rpartition(".")[2] not in _AT_THE_TOP:
                continue
            defined = set(_DEFINED.findall(text))
            public = {name for name in defined if name[0].isupper() and "__all__" not in text}
            if folder in ("", *_SHARED):
                public |= functions & defined
            for name in public:
                if names.setdefault(name, module) != module:
                    raise ImportError(f"{module} and {names[name]} both define {name}")
    return dict(sorted(names.items()))


def stub() -> str:
    """The text of `__init__.pyi`, in lines of at most 100 characters."""
    known = {**public_names(), "__version__": "saccade.version"}
    lines = []
    for module, name in sorted((module, name) for name, module in known.items()):
        start, line = f"from {module} import ", f"{name} as {name}"
        lines.append(start + (line if len(start + line) <= 100 else f"(\n    {line},\n)"))
    return "\n".join(["# Written by `python -m saccade.names`.", *lines, ""])


def _sources(folder: str, files: str = "*.py") -> Iterator[tuple[str, str]]:
    """Names and texts of modules of a folder."""
    for file in sorted((Path(__file__).parent / folder).glob(files)):
        module = ".".join(filter(None, ["saccade", folder, file.stem]))
        yield module, file.read_text(encoding="utf-8")


def _used(folder: str) -> set[str]:
    """The names that a folder imports from those that all share."""
    texts = "\n".join(text for _, text in _sources(folder))
    return set(re.findall(r"\w+", " ".join(_FROM_SHARED.findall(texts))))


if __name__ == "__main__":
    (Path(__file__).parent / "__init__.pyi").write_text(stub(), encoding="utf-8")
