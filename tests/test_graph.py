"""The modules of the package form no cycle, whatever the place of an import in its file."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "src"


def modules_in(sources: Path) -> dict[str, Path]:
    """Name -> file."""
    names = {}
    for file in sorted(sources.rglob("*.py")):
        parts = file.relative_to(sources).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return names


def imported(file: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules of the package that a file imports: at its top, within functions, and for type
    checkers alone.
    """
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}: a relative import"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                name = whole if whole in known else str(node.module)
                if name in known:
                    yield name


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import each other, if there are any, in the order of their imports."""
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for other in sorted(graph[name]):
            if cycle := visit(other, (*path, name)):
                return cycle
        done.add(name)
        return []

    return next((cycle for name in graph if (cycle := visit(name, ()))), [])


@cache
def graph_of(sources: Path) -> dict[str, set[str]]:
    known = modules_in(sources)
    return {name: {*imported(file, known)} - {name} for name, file in known.items()}


def test_no_modules_import_each_other():
    graph = graph_of(SOURCES)
    assert len(graph) > 150
    assert cycle_in(graph) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("import saccade.second\n", "from saccade.first import x\n"),
        ("def late():\n    from saccade import second\n", "import saccade.first\n"),
        (
            "if TYPE_CHECKING:\n    from saccade.second import y\n",
            "from saccade import first\n",
        ),
    ],
    ids=["at the top", "late", "for type checkers"],
)
def test_a_cycle_is_seen(tmp_path, first, second):
    package = tmp_path / "saccade"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "first.py").write_text(first)
    (package / "second.py").write_text(second)
    assert cycle_in(graph_of(tmp_path)) == ["saccade.first", "saccade.second", "saccade.first"]
