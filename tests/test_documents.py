"""The documents are true: their Python and their commands are run, and what they name exists."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import pytest

from saccade import __version__, watch
from saccade.cli import main, prepared
from saccade.names import public_names
from saccade.options import COMMANDS
from saccade.registry import find_study, study_names
from saccade.train.lab import Lab

ROOT = Path(__file__).parent.parent
PAGES = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md"))
GUIDE = ["README.md", "CONTRIBUTING.md", *PAGES]
"""The first two are named, so that their absence is a failure."""
DOCUMENTS = [*GUIDE, "CHANGELOG.md"]
FENCE = re.compile(r"^``` ?(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LIST = "docs/studies_list.md"
STEPS = 20
"""Trainings are cut to this length: what is tested is that the documents run."""


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str, *languages: str) -> list[tuple[str, str]]:
    """(language, body) of the fenced blocks of some languages."""
    return [found for found in FENCE.findall(text_of(name)) if found[0] in languages]


def inline(name: str) -> list[str]:
    """All `inline code` of a document."""
    return re.findall(r"`([^`\n]+)`", FENCE.sub("", text_of(name)))


def commands(shell: str) -> list[list[str]]:
    """Program and arguments of every line of a shell block."""
    return [shlex.split(line, comments=True) for line in shell.splitlines() if line.strip()]


def names_of(pages: list[str], pattern: str) -> set[tuple[str, str]]:
    """(document, match) of a pattern in the inline code of some documents."""
    found = ((page, re.fullmatch(pattern, code)) for page in pages for code in inline(page))
    return {(page, match[1]) for page, match in found if match}


# -- running ---------------------------------------------------------------------------------------


class FirstTrainingError(Exception):
    """A study of the package has come to its first training; other tests train it."""


@pytest.fixture
def workplace(tmp_path, monkeypatch, cut_short) -> Path:
    """A folder with the skeletons and three committed records, in which trainings are short."""
    (tmp_path / "benchmarks").mkdir()
    shutil.copy(ROOT / "benchmarks" / "grid_study.py", tmp_path / "benchmarks")
    for path in ROOT.glob("docs/skeletons/*.py"):
        shutil.copy(path, tmp_path)
    for folder, study in (("results", "sen"), ("results", "sen-code"), ("runs", "sen_convolution")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"{study}.nc.gz").symlink_to(ROOT / "results" / f"{study}.nc.gz")
    # Studies that other tests loaded are forgotten, and so are those of this one afterwards.
    monkeypatch.setattr("saccade.registry._loaded", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    for path in ROOT.glob("docs/skeletons/*.py"):
        sys.modules.pop(path.stem, None)
    cut_short(STEPS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_python(source: str, module: types.ModuleType) -> None:
    """Execute a block; one that begins with a file name is that file."""
    file = re.match(r"# (\w+\.py)\n", source)
    if file:
        Path(file[1]).write_text(source, encoding="utf-8")
    else:
        exec(compile(source, module.__name__, "exec"), module.__dict__)


def run_command(program: str, *arguments: str) -> None:
    """A study of the package is run up to its first training, everything else to the end."""
    if program == "make":
        assert set(arguments) <= set(re.findall(r"^([a-z]+):", text_of("Makefile"), re.MULTILINE))
        return
    if program == "python":  # a file that a block before has written
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return
    assert program in ("saccade", ".venv/bin/saccade")

    def reached(lab, *rest, **options):
        raise FirstTrainingError

    built_in = arguments[0] in ("run", "map") and not arguments[1].endswith(".py")
    with pytest.MonkeyPatch.context() as patch:
        if built_in:
            patch.setattr(Lab, "train", reached)
        try:
            assert main(arguments) == 0
        except FirstTrainingError:
            return
        except SystemExit:
            assert "--help" in arguments
            return
    assert not built_in, f"{arguments} trains nothing"


@pytest.mark.parametrize("name", [name for name in GUIDE if blocks(name, "python", "bash")])
def test_python_and_commands_run(name, workplace, monkeypatch):
    module = types.ModuleType("document")
    monkeypatch.setitem(sys.modules, "document", module)
    for language, body in blocks(name, "python", "bash"):
        if language == "python":
            run_python(body, module)
        else:
            for command in commands(body):
                run_command(*command)


def test_the_readme_has_python_and_commands():
    assert blocks("README.md", "python")
    assert blocks("README.md", "bash")


def silent_blocks(text: str) -> list[str]:
    """Blocks that no test runs, and whose paragraph before or after does not say so."""
    found = []
    for block in FENCE.finditer(text):
        before = text[: block.start()].rstrip().rpartition("\n\n")[2]
        after = text[block.end() :].lstrip().partition("\n\n")[0]
        visible = re.sub(r"<!--.*?-->", "", f"{before} {after}", flags=re.DOTALL)
        said = re.search(r"not\s+run\s+here", visible, re.IGNORECASE)
        if block[1] not in ("python", "bash") and not said and not is_checked(block[1], block[2]):
            found.append(block[0])
    return found


def is_checked(language: str, body: str) -> bool:
    """Whether a block that is no program is checked otherwise: a setting, or a file of docs."""
    included = re.fullmatch(r'--8<-- "(.+)"\n', body)
    if included:  # tests/test_skeletons.py runs them
        return (ROOT / included[1]).parent.name == "skeletons" and (ROOT / included[1]).exists()
    return language == "toml" and bool(tomllib.loads(body))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_block_is_run_or_says_that_it_is_not(name):
    assert not silent_blocks(text_of(name))


def test_a_block_that_is_not_run_is_found():
    block = "```sh\nrm -r .\n```\n"
    assert silent_blocks(f"Do this:\n\n{block}\nDone.\n") == [block.strip()]
    assert silent_blocks(f"Do this:\n\n<!-- not run here -->\n{block}\nDone.\n")
    assert not silent_blocks(f"Do this (not run here):\n\n{block}\nDone.\n")
    assert not silent_blocks(f"Do this:\n\n{block}\n*(Not run\nhere.)* Done.\n")


def figures_without_command(text: str) -> list[str]:
    """Figures whose caption, the paragraph below, does not name the command that makes them."""
    command = re.compile(r"`(?:saccade|make|python) [^`]+`")
    captions = re.findall(r"^!\[.*?\]\((.+?)\)\n\n(.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    named = {figure for figure, caption in captions if command.search(caption)}
    return [one for one in re.findall(r"!\[.*?\]\((.+?)\)", text) if one not in named]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_figure_is_followed_by_the_command_that_makes_it(name):
    assert not figures_without_command(FENCE.sub("", text_of(name)))


def test_a_figure_without_its_command_is_found():
    assert figures_without_command("![A map](map.png)\n\nA map.\n\n") == ["map.png"]
    assert not figures_without_command("![A map](map.png)\n\n*By `saccade run sen`.*\n\n")


# -- what is named exists --------------------------------------------------------------------------


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", FENCE.sub("", text_of(name))):
        assert ((ROOT / name).parent / target).exists(), f"{name}: {target}"


def test_commands_in_the_text_are_real(workplace):
    known = {"run", "map", *COMMANDS}
    for name in GUIDE:
        for code in inline(name):
            program, *arguments = code.split() or [""]
            if program == "make":
                run_command(program, *arguments)
            elif program == "saccade" and arguments:
                assert arguments[0] in known, f"{name}: {code}"
                if len(arguments) > 1 and not re.search(r"[A-Z]{4,}|\.\.\.|path/to", code):
                    prepared(arguments)


def test_options_exist(capsys):
    given = {
        (name, flag)
        for name in GUIDE
        for code in [*inline(name), *(body for _, body in blocks(name, "bash"))]
        if not code.startswith(("dask ", "pip "))  # another program
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", code)
    }
    for arguments in [
        *([verb] for verb in COMMANDS),
        *([verb, study] for verb in ("run", "map") for study in study_names()),
    ]:
        with pytest.raises(SystemExit):
            main([*arguments, "--help"])
    known = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    assert given
    assert not {(name, flag) for name, flag in given if flag not in known}


def test_studies_and_claims_exist():
    claims = {claim.id for name in study_names() for claim in find_study(name).claims}
    for name in GUIDE:
        table = re.findall(r"^\| `(\w+)` \|.*\| [A-F]-\d", text_of(name), re.MULTILINE)
        table += re.findall(r"^\|[^|]*\|[^|]*\| `(\w+)`.*\| [A-F]-\d", text_of(name), re.MULTILINE)
        assert set(table) <= set(study_names()), name
        named = set(re.findall(r"\b[A-F]-\d+[a-z]?\b", text_of(name)))
        assert named <= claims, f"{name}: {sorted(named - claims)}"


def test_every_study_is_listed_with_its_claims():
    listed = dict(re.findall(r"^\| `(\w+)` \|.*\| (.+) \|$", text_of(LIST), re.MULTILINE))
    assert list(listed) == [*dict.fromkeys(listed)]
    assert set(listed) == set(study_names())
    for name, claims in listed.items():
        ids = {claim.id for claim in find_study(name).claims}
        assert set(re.findall(r"[A-F]-\d+[a-z]?", claims)) <= ids, name


def test_the_readme_counts_as_the_ledger_does():
    """Studies, and verdicts of the claims specified from the papers."""
    words = {2: "two", 3: "three"}
    line = r"specified from the papers, preset paper: (\d+) \((\d+) hold, (\d+) fail, (\d+) undet"
    (counts,) = re.findall(line, text_of("docs/ledger.md"))
    claims, hold, fail, rest = map(int, counts)
    readme = " ".join(text_of("README.md").split())
    assert f"with {len(study_names())} [studies]" in readme
    assert f"Of the {claims} claims that were specified from the papers, {hold} hold" in readme
    assert f"{fail} fail and {words.get(rest, rest)} are undetermined" in readme


def test_the_version_is_the_same_everywhere():
    assert f"version: {__version__}\n" in text_of("CITATION.cff")
    released = re.search(r"^date-released: (\S+)$", text_of("CITATION.cff"), re.MULTILINE)
    assert released
    assert f"## {__version__} ({released[1]})" in text_of("CHANGELOG.md")
    assert f"saccade-{__version__}-py3-none-any.whl" in text_of("README.md")


def test_classes_and_files_exist():
    classes = names_of(GUIDE, r"([A-Z][a-z]+[A-Za-z0-9]*)(?:\(.*\))?(?:\.\w+)*")
    known = {*public_names(), *watch.__all__, "Config"}
    assert not {found for found in classes if found[1] not in known}
    files = {
        path.name
        for folder in ("src", "docs", "benchmarks")
        for path in ROOT.glob(f"{folder}/**/*.py")
    }
    files |= {name for page in GUIDE for name in re.findall(r"^# (\w+\.py)$", text_of(page), re.M)}
    named = names_of(GUIDE, r"(?:\w+/)*(\w+\.py)")
    assert not {found for found in named if found[1] not in files}
