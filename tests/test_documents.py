"""Every command and every piece of Python in the documents is real."""

import dataclasses
import re
import shlex
from pathlib import Path

import pytest

from saccade.cli import (
    CompactOptions,
    LedgerOptions,
    ListOptions,
    ReportOptions,
    ReproduceOptions,
    RunOptions,
    _check_options,  # pyright: ignore[reportPrivateUsage]
    _parsed_together,  # pyright: ignore[reportPrivateUsage]
    _sweeps,  # pyright: ignore[reportPrivateUsage]
)
from saccade.core.study import find_study

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
WANTED = ("README.md", "docs/tutorial.md")
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
OPTIONS = {
    "list": ListOptions(),
    "reproduce": ReproduceOptions(),
    "report": ReportOptions(),
    "ledger": LedgerOptions(),
    "compact": CompactOptions(),
}


def blocks(path: Path, *languages: str) -> list[str]:
    """The fenced blocks of some languages, without their indentation."""
    found = []
    for indent, language, body in FENCE.findall(path.read_text()):
        if language in languages:
            found.append("\n".join(line.removeprefix(indent) for line in body.splitlines()))
    return found


def command_lines() -> list[tuple[str, str]]:
    """(document, command) of every shell line that calls saccade or make, in blocks and in
    `inline code`.
    """
    lines = []
    for path in DOCUMENTS:
        shell = "\n".join(blocks(path, "", "sh", "bash", "console", "shell", "text")).replace(
            "\\\n", " "
        )
        inline = re.findall(
            r"`((?:saccade|make) [^`\n]+ [^`\n]+|make [a-z]+)`", FENCE.sub("", path.read_text())
        )
        for line in [*shell.splitlines(), *inline]:
            command = re.sub(r"\s+#.*$", "", line.strip().removeprefix("$ ").strip())
            command = re.sub(r"^\.venv/bin/", "", command)
            for one in re.split(r"\s*(?:&&|;|\|)\s*", command):
                if re.match(r"(saccade|make)( |$)", one) and not re.search(
                    r"\.\.\.|…|[A-Z]{4,}|<\w", one
                ):
                    lines.append((str(path.relative_to(ROOT)), one))
    return list(dict.fromkeys(lines))


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", WANTED)
def test_the_document_is_there(name):
    if not (ROOT / name).exists():
        pytest.skip(f"{name} is not written yet")
    assert command_lines()


@pytest.mark.parametrize(("document", "command"), command_lines())
def test_a_command_in_a_document_is_real(document, command):
    program, *arguments = shlex.split(command)
    if program == "make":
        named = [one for one in arguments if "=" not in one and not one.startswith("-")]
        assert set(named) <= targets(), f"{document}: {command}"
        return
    if not arguments or arguments[0] in ("--help", "--version"):
        return
    verb, *rest = (("--output" if one == "-o" else one) for one in arguments)
    if verb == "run":
        if rest in ([], ["--help"]):
            return
        study = find_study(rest[0])
        options = rest[1:]
        if "--help" in options:
            return
        preset = options[options.index("--preset") + 1] if "--preset" in options else "quick"
        parsed, config = _parsed_together(
            RunOptions(preset=preset), study.config(preset), options, study.name
        )
        study.swept(config, _sweeps(parsed.sweep))
        return
    assert verb in OPTIONS, f"{document}: {command}"
    flags = list(rest)
    if verb in ("report", "ledger", "compact"):
        switches = {
            f"--{field.name}" for field in dataclasses.fields(OPTIONS[verb]) if field.type is bool
        }
        paths = [
            one
            for place, one in enumerate(rest)
            if not one.startswith("-") and not (place and rest[place - 1] in {"--output"})
        ]
        assert paths, f"{document}: {command} names no record"
        flags = [one for one in rest if one not in paths or one in switches]
    _check_options([OPTIONS[verb]], flags, f"saccade {verb}")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_python_in_a_document_compiles(path):
    for number, source in enumerate(blocks(path, "python", "py")):
        plain = "\n".join(re.sub(r"^(>>>|\.\.\.) ?", "", line) for line in source.splitlines())
        compile(plain, f"{path.name}, block {number}", "exec")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(path):
    for target in re.findall(
        r"\]\((?!https?:|mailto:|#)([^)#\s]+)", FENCE.sub("", path.read_text())
    ):
        assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_the_readmes_first_python_runs(tmp_path, monkeypatch):
    readme = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("README.md is not written yet")
    sources = blocks(readme, "python", "py")
    if not sources:
        pytest.skip("README.md has no Python yet")
    # As it stands, but for the number of steps and the size of the data: what is tested is that it
    # runs.
    source = re.sub(r"\b(steps\s*=\s*)\d[\d_]*", r"\g<1>20", sources[0])
    source = re.sub(r"\b(train_size\s*=\s*|dictionary_size\s*=\s*)\d[\d_]*", r"\g<1>50", source)
    source = re.sub(
        r"(optimiser|GradientDescent\([^)]*\)|Adam\([^)]*\)),\s*\d[\d_]{2,}", r"\1, 20", source
    )
    monkeypatch.chdir(tmp_path)
    exec(compile(source, "README.md", "exec"), {"__name__": "readme"})
