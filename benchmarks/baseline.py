"""What a tree of saccade computes, costs and tests, as JSON: made before a rebuild and after it.

Each part is measured on its own and added to the file; parts that are there already stay.

    numbers   every quantity and verdict of every quick preset, and the seconds of each study
    ledger    every quantity and verdict of the committed records
    bench     what the benchmarks of `make bench` print
    graph     modules, lines per package, knots of modules that import each other, depth
    suite     results and processor time of the default suite
    mutants   of some seeded faults, the share that the tests find

A mutant changes one place of one file. Places are drawn by responsibility (engine, judging, cache)
and, within it, by operator. Of the test files that import the changed module the nearest run first;
the run ends at the first failure, and after three minutes, when the mutant counts as missed. Files
of a responsibility differ between trees, so compare the shares of trees, not single mutants.

    python benchmarks/baseline.py baseline.json --tree . --parts graph mutants
"""

import argparse
import ast
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

MUTANTS, SECONDS = 20, 180.0
"""Mutants per responsibility, and the longest time of their tests."""
RESPONSIBILITIES = {
    "engine": (
        "core/engine.py core/ensemble.py core/members.py core/batches.py core/stopping.py"
        " core/optimiser.py core/run.py core/job.py core/dataset.py core/start.py core/sweep.py",
        "train/*.py workers/*.py contracts/*.py core/recipe_functions.py core/examples.py"
        " core/placement.py core/prepared.py",
        "train/cache*.py train/identity.py train/storage.py train/program.py train/parts.py"
        " train/whole.py",
    ),
    "judging": (
        "core/bound.py core/claim.py core/statistics.py core/registration.py core/study.py",
        "judging/*.py studies/study.py studies/judged.py",
        "",
    ),
    "cache": (
        "core/identity.py core/storage.py core/program.py core/kept.py core/parts.py core/whole.py",
        "train/cache*.py train/identity.py train/storage.py train/program.py train/parts.py"
        " train/whole.py",
        "",
    ),
}
"""Files of version 0.2, files of a rebuilt tree, and those of the latter that belong elsewhere."""
OPERATORS: dict[type[ast.AST], Callable[[Any], str]] = {}
"""How a place is changed, by the kind of its node: the new text."""
COMPARED = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
COUNTED = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*"}


def _operator(kind: type[ast.AST]) -> Callable[[Callable[[Any], str]], Callable[[Any], str]]:
    def kept(function: Callable[[Any], str]) -> Callable[[Any], str]:
        OPERATORS[kind] = function
        return function

    return kept


@_operator(ast.Compare)
def _compare(node: ast.Compare) -> str:
    if len(node.ops) != 1 or type(node.ops[0]) not in COMPARED:
        return ""
    sides = ast.unparse(node.left), ast.unparse(node.comparators[0])
    return f"(({sides[0]}) {COMPARED[type(node.ops[0])]} ({sides[1]}))"


@_operator(ast.BinOp)
def _count(node: ast.BinOp) -> str:
    if type(node.op) not in COUNTED:
        return ""
    return f"(({ast.unparse(node.left)}) {COUNTED[type(node.op)]} ({ast.unparse(node.right)}))"


@_operator(ast.BoolOp)
def _combine(node: ast.BoolOp) -> str:
    word = " or " if isinstance(node.op, ast.And) else " and "
    return f"({word.join(f'({ast.unparse(value)})' for value in node.values)})"


@_operator(ast.If)
def _branch(node: ast.If) -> str:
    return f"(not ({ast.unparse(node.test)}))"


@_operator(ast.Constant)
def _number(node: ast.Constant) -> str:
    if isinstance(node.value, bool):
        return str(not node.value)
    return f"({node.value} + 1)" if isinstance(node.value, int | float) else ""


@_operator(ast.Return)
def _return(node: ast.Return) -> str:
    if node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None):
        return ""
    return "None"


@_operator(ast.Expr)
def _call(node: ast.Expr) -> str:
    return "None" if isinstance(node.value, ast.Call) else ""


def places(source: str) -> Iterator[tuple[str, ast.AST, str]]:
    """Operator, place and new text of every change that can be made to a file."""
    for node in _bodies(ast.parse(source)):
        if text := OPERATORS.get(type(node), lambda _: "")(node):
            place = {ast.If: "test", ast.Return: "value", ast.Expr: "value"}.get(type(node))
            changed = node if place is None else getattr(node, place)
            yield type(node).__name__, changed, text


def _bodies(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes within functions, but for annotations, texts and what is raised."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            for statement in node.body:
                yield from _inner(statement)
        elif isinstance(node, ast.ClassDef):
            yield from _bodies(node)


def _inner(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.arguments | ast.Import | ast.ImportFrom):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _inner(child)


def changed(source: str, node: Any, text: str) -> str:
    """The source with another text in a node's place."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    encoded = source.encode()
    first = starts[node.lineno - 1] + node.col_offset
    last = starts[node.end_lineno - 1] + node.end_col_offset
    return (encoded[:first] + text.encode() + encoded[last:]).decode()


def files_of(responsibility: str, package: Path) -> list[Path]:
    before, after, elsewhere = (part.split() for part in RESPONSIBILITIES[responsibility])
    other = {file for pattern in elsewhere for file in package.glob(pattern)}
    files = {file for pattern in (*before, *after) for file in package.glob(pattern)} - other
    return sorted(file for file in files if file.name != "__init__.py")


def drawn(responsibility: str, package: Path) -> list[tuple[Path, str, Any, str]]:
    """Some changes, the operators in turn."""
    by_operator: dict[str, list[tuple[Path, str, Any, str]]] = {}
    for file in files_of(responsibility, package):
        for operator, node, text in places(file.read_text(encoding="utf-8")):
            by_operator.setdefault(operator, []).append((file, operator, node, text))
    generator, chosen = random.Random(0), []
    for operator in sorted(by_operator):
        generator.shuffle(by_operator[operator])
    while len(chosen) < MUTANTS and any(by_operator.values()):
        for operator in sorted(by_operator):
            if by_operator[operator] and len(chosen) < MUTANTS:
                chosen.append(by_operator[operator].pop())
    return chosen


def tests_of(file: Path, tree: Path) -> list[str]:
    """The test files that name a module, those that are named for it first; then those that lie
    beside, of which those that name a module that imports it come first.
    """
    modules = _modules(tree / "src")
    module = next(name for name, path in modules.items() if path == file)
    package, _, name = module.rpartition(".")
    users = [
        other for other, path in modules.items() if module in _imports(other, path, modules, True)
    ]
    # Those right in the folder of the tests are named for documents and commands.
    named = {*(tree / "tests").glob(f"*/**/test_{name}.py")}
    naming = [
        path
        for path in sorted((tree / "tests").glob("**/test_*.py"))
        if path in named or _names(path, module)
    ]
    beside = sorted((tree / "tests" / package.split(".")[-1]).glob("test_*.py"))
    of_users = [path for path in beside if any(_names(path, user) for user in users)]
    order = [*sorted(naming, key=lambda path: path not in named), *of_users, *beside]
    return [str(path.relative_to(tree)) for path in dict.fromkeys(order)]


def _names(test: Path, module: str) -> bool:
    """Whether a test file names a module."""
    package, _, name = module.rpartition(".")
    pattern = rf"\b{re.escape(module)}\b|from {re.escape(package)} import [^\n]*\b{name}\b"
    return re.search(pattern, test.read_text(encoding="utf-8")) is not None


def mutants(tree: Path, known: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What is known after each mutant; those that are known before are not run again."""
    results = dict(known.get("each", {}))
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(
            tree, copy, ignore=shutil.ignore_patterns(".venv", ".git", "runs", "site", "carried")
        )
        for responsibility in RESPONSIBILITIES:
            for file, operator, node, text in drawn(responsibility, copy / "src" / "saccade"):
                name = f"{responsibility} {file.relative_to(copy)}:{node.lineno} {operator}"
                if name in results:
                    continue
                source = file.read_text(encoding="utf-8")
                file.write_text(changed(source, node, text), encoding="utf-8")
                results[name] = _said_of(copy, tree, tests_of(file, copy))
                file.write_text(source, encoding="utf-8")
                print(f"{name}: {results[name]}", flush=True)
                yield {"each": results, "found of": _shares(results)}


def _said_of(copy: Path, tree: Path, tests: Sequence[str]) -> str:
    environment = os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [str(tree / ".venv/bin/python"), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    begun = time.monotonic()
    run = subprocess.Popen(
        [*command, *tests],
        cwd=copy,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # so that processes that a test has started end with it
    )
    try:
        code = run.wait(SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        return "missed (three minutes)"
    return f"{'missed' if code == 0 else 'found'} in {time.monotonic() - begun:.0f} s"


def _shares(results: dict[str, str]) -> dict[str, list[int]]:
    shares: dict[str, list[int]] = {}
    for responsibility in RESPONSIBILITIES:
        own = [said for name, said in results.items() if name.startswith(responsibility)]
        shares[responsibility] = [sum(said.startswith("found") for said in own), len(own)]
    return shares


# -- the module graph ------------------------------------------------------------------------------


def graph(tree: Path) -> dict[str, Any]:
    """Knots and depth, with late and TYPE_CHECKING imports counted, depth within the deepest
    package without them, and lines per package.
    """
    source = tree / "src"
    modules = _modules(source)
    imports, at_top = (
        {name: _imports(name, path, modules, late) for name, path in modules.items()}
        for late in (True, False)
    )
    knots = _knots(imports)
    lines: dict[str, int] = {}
    for path in modules.values():
        package = path.relative_to(source / "saccade").parts[0]
        package = "." if package.endswith(".py") else package
        lines[package] = lines.get(package, 0) + len(path.read_text("utf-8").splitlines())
    return {
        "modules": len(modules),
        "knots": sorted((sorted(knot) for knot in knots if len(knot) > 1), key=len, reverse=True),
        "depth": _depth(imports, knots),
        "depth within a package, imports at the top": max(
            _depth(own, _knots(own)) for own in _by_package(at_top)
        ),
        "lines": dict(sorted(lines.items())),
    }


def _modules(source: Path) -> dict[str, Path]:
    return {
        ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__"): path
        for path in source.glob("saccade/**/*.py")
    }


def _by_package(imports: dict[str, set[str]]) -> Iterator[dict[str, set[str]]]:
    for package in {name.rpartition(".")[0] for name in imports}:
        own = {name for name in imports if name.rpartition(".")[0] == package}
        yield {name: imports[name] & own for name in own}


def _imports(name: str, path: Path, modules: dict[str, Path], late: bool) -> set[str]:
    if path.name == "__init__.py":
        return set()  # what a package re-exports is no dependency of its own
    found = set()
    parsed = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(parsed) if late else parsed.body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = name.split(".")[: -node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                found.add(full if full in modules else base)
    return (found & set(modules)) - {name}


def _knots(imports: dict[str, set[str]]) -> list[set[str]]:
    """The strongly connected components."""
    reached: dict[str, set[str]] = {}
    for name in imports:
        seen, todo = set(), [name]
        while todo:
            new = imports[todo.pop()] - seen
            seen |= new
            todo += new
        reached[name] = seen
    left, knots = set(imports), []
    while left:
        name = min(left)
        knot = {name} | {other for other in reached[name] if name in reached[other]}
        knots.append(knot)
        left -= knot
    return knots


def _depth(imports: dict[str, set[str]], knots: list[set[str]]) -> int:
    """Knots on the longest chain of imports."""
    knot_of = {name: at for at, knot in enumerate(knots) for name in knot}
    depths: dict[int, int] = {}

    def depth(at: int) -> int:
        if at not in depths:
            below = {knot_of[other] for name in knots[at] for other in imports[name]} - {at}
            depths[at] = 1 + max(map(depth, below), default=0)
        return depths[at]

    return max(map(depth, range(len(knots))))


# -- what is run -----------------------------------------------------------------------------------


def _ran(tree: Path, *command: str) -> str:
    """What a command prints on standard output, run in a tree with its own environment."""
    program = [str(tree / ".venv/bin" / command[0]), *command[1:]]
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    done = subprocess.run(program, cwd=tree, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return done.stdout


def _rows(tree: Path, *folders: str) -> dict[str, Any]:
    rows = json.loads(_ran(tree, "saccade", "ledger", *folders, "--json"))
    return {f"{row['study']} {row['preset']} {row['claim']}": _short(row) for row in rows}


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """Verdict, registration and numbers of a row of the ledger."""
    names = ("quantity", "bound", "value", "low", "high", "verdict", "seeds", "kept")
    findings = [[finding[name] for name in names] for finding in row["findings"]]
    cells = [verdict for _, verdict, _ in row["cells"]]
    return {
        "verdict": row["verdict"],
        "registered": row["registered"],
        "findings": findings,
        "cells": {verdict: cells.count(verdict) for verdict in sorted(set(cells))},
    }


def numbers(tree: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        options = ("--output", f"{folder}/runs", "--page", f"{folder}/report.html")
        begun = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        _ran(tree, "saccade", "reproduce", *options)
        seconds = time.monotonic() - begun[0]
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - begun[1].ru_utime - begun[1].ru_stime
        return {
            "seconds": round(seconds),
            "processor_seconds": round(spent),
            "claims": _rows(tree, f"{folder}/runs"),
        }


def suite(tree: Path) -> dict[str, Any]:
    command = ["python", "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal"]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    last = _ran(tree, *command).strip().splitlines()[-1]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    seconds = round(time.monotonic() - begun)
    return {"result": last, "seconds": seconds, "processor_seconds": round(spent)}


def bench(tree: Path) -> dict[str, list[str]]:
    text = (tree / "Makefile").read_text(encoding="utf-8")
    scripts = re.findall(r"\$\(BIN\)/python (benchmarks/\S+\.py)\n", text)
    return {script: _ran(tree, "python", script).splitlines() for script in scripts}


PARTS: dict[str, Callable[[Path], Any]] = {
    "graph": graph,
    "numbers": numbers,
    "ledger": lambda tree: _rows(tree, "results"),
    "bench": bench,
    "suite": suite,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="JSON file that the parts are added to")
    parts = [*PARTS, "mutants"]
    parser.add_argument("--parts", nargs="+", help=f"some of {', '.join(parts)} (default: all)")
    parser.add_argument("--tree", type=Path, default=Path(), help="the tree to measure")
    options = parser.parse_args()
    tree = options.tree.resolve()
    kept = json.loads(options.file.read_text("utf-8")) if options.file.exists() else {}
    if unknown := {*options.parts} - {*parts}:
        parser.error(f"--parts: got {', '.join(unknown)}, allowed: some of {', '.join(parts)}")
    for part in options.parts or parts:
        if part == "mutants":
            steps = mutants(tree, kept.get(part, {}))
        else:
            steps = iter(()) if part in kept else (PARTS[name](tree) for name in [part])
        for kept[part] in steps:
            options.file.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()
