"""The public names of the package, found in its source files.

`python -m saccade.names` writes them to `__init__.pyi`, for type checkers and editors.
"""

import re
from functools import cache
from pathlib import Path

_FOLDERS = ("core", "tasks", "models", "probes", "theory")
_CLASS = re.compile(r"^class ([A-Z]\w*)", re.MULTILINE)


@cache
def public_names() -> dict[str, str]:
    """Name -> module, of every public class."""
    names: dict[str, str] = {}
    for folder in _FOLDERS:
        for file in sorted((Path(__file__).parent / folder).glob("[!_]*.py")):
            for name in _CLASS.findall(file.read_text(encoding="utf-8")):
                module = f"saccade.{folder}.{file.stem}"
                if names.setdefault(name, module) != module:
                    raise ImportError(f"{module} and {names[name]} both define {name}")
    return dict(sorted(names.items()))


def stub() -> str:
    """The text of `__init__.pyi`."""
    lines = [f"from {module} import {name} as {name}" for name, module in public_names().items()]
    lines.append("from saccade.version import __version__ as __version__")
    return "\n".join(["# Written by `python -m saccade.names`.", *sorted(lines), ""])


if __name__ == "__main__":
    (Path(__file__).parent / "__init__.pyi").write_text(stub(), encoding="utf-8")
