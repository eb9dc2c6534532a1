"""Studies by name, by file and by entry point; one sentence for every mistake."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from saccade import registry, studies
from saccade.core.study import Study
from saccade.errors import ConfigError, FileError
from saccade.registry import find_study, known_study, study_names

STUDY = """
import dataclasses

from saccade.judging.bound import AtMost
from saccade.judging.claim import Check, Claim
from saccade.core.study import Study


@dataclasses.dataclass(frozen=True)
class Config:
    seeds: int = 3


CHECK = Check("error", lambda arms, config: arms["one"].end["error"], AtMost(1), "one")
STUDY = Study(
    {name!r},
    {title},
    "Nobody 2026",
    {{"quick": Config()}},
    lambda config, lab: {{}},
    (Claim("X-1", "The error is small.", "section 1", CHECK, "none"),),
)
"""


def write(path: Path, name: str = "mine", title: str = "'A title'", before: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(before + STUDY.format(name=name, title=title))
    return path


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test starts without loaded files, and leaves no path or module behind."""
    monkeypatch.setattr(registry, "_loaded", {})
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if not name.startswith("saccade."):
            del sys.modules[name]


# -- built in --------------------------------------------------------------------------------------


def test_every_file_of_the_folder_is_a_study_of_that_name():
    files = sorted(path.stem for path in Path(studies.__path__[0]).glob("[!_]*.py"))
    assert study_names() == files
    assert files
    for name in files:
        study = find_study(name)
        assert isinstance(study, Study)
        assert study.name == name
        assert {"quick", "paper"} <= set(study.presets)
        assert study.claims


def test_claims_of_all_studies_have_numbers_of_their_own():
    ids = [claim.id for name in study_names() for claim in find_study(name).claims]
    assert len(set(ids)) == len(ids)


def test_names_are_found_without_an_import():
    program = (
        "import sys; from saccade.registry import study_names; study_names(); "
        "print([name for name in sys.modules if name.startswith(('jax', 'saccade.studies'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_an_unknown_name_is_refused_with_what_is_allowed():
    with pytest.raises(ConfigError) as refusal:
        find_study("sem")
    assert str(refusal.value) == (
        f"study: got 'sem', did you mean sen? allowed: {', '.join(study_names())}, "
        "or the path of a .py file"
    )
    assert known_study("sem") is None


# -- files -----------------------------------------------------------------------------------------


def test_a_study_is_loaded_from_a_file_and_known_by_its_name(tmp_path):
    file = write(tmp_path / "a_file.py")
    study = find_study(file)
    assert isinstance(study, Study)
    assert (study.name, study.config("quick").seeds) == ("mine", 3)
    assert find_study(str(file)) is find_study("mine") is known_study("mine") is study
    assert type(study.config("quick")).__module__ in sys.modules
    assert "mine" not in study_names(), "it is not installed"


def test_a_relative_path_needs_a_separator_or_the_ending(tmp_path, monkeypatch):
    write(tmp_path / "a_file.py")
    monkeypatch.chdir(tmp_path)
    assert find_study("a_file.py") is find_study("./a_file.py")


def test_modules_beside_the_file_can_be_imported(tmp_path):
    """Also by two studies in different folders whose modules have the same names."""
    for folder in ("one", "two"):
        write(
            tmp_path / folder / "study.py",
            folder,
            "f'{VALUE}, {INNER}'",
            "from beside import VALUE\nfrom package.inner import INNER\n",
        )
        (tmp_path / folder / "beside.py").write_text(f"VALUE = 'module of {folder}'\n")
        (tmp_path / folder / "package").mkdir()
        (tmp_path / folder / "package" / "__init__.py").write_text("")
        (tmp_path / folder / "package" / "inner.py").write_text(f"INNER = 'package of {folder}'\n")
    for folder in ("one", "two"):
        study = find_study(tmp_path / folder / "study.py")
        assert study.title == f"module of {folder}, package of {folder}"
        assert study.name == folder
    kinds = {type(find_study(name).config("quick")).__module__ for name in ("one", "two")}
    assert len(kinds) == 2


def test_a_changed_file_is_loaded_again(tmp_path):
    file = write(tmp_path / "a_file.py")
    first = find_study(file)
    write(file, title="'Another title'")
    second = find_study(file)
    assert (first.title, second.title) == ("A title", "Another title")
    assert find_study("mine") is second


def test_modules_beside_a_changed_file_are_loaded_again(tmp_path):
    """Also if the file could not be executed before."""
    file, before = tmp_path / "a_file.py", "from helper_of_mine import TITLE\n"
    for value, wanted in (("'Old'", "Old"), ("1 / 0  # a mistake", ""), ("'Newest'", "Newest")):
        (tmp_path / "helper_of_mine.py").write_text(f"TITLE = {value}\n")
        write(file, title="TITLE", before=before)
        if wanted:
            assert find_study(file).title == wanted
        else:
            with pytest.raises(ConfigError, match=r"helper_of_mine\.py, line 1: ZeroDivision"):
                find_study(file)


def test_a_second_study_keeps_the_modules_of_its_folder(tmp_path):
    (tmp_path / "shared_of_mine.py").write_text("TITLE = 'Title'\n")
    for name in ("one", "two"):
        find_study(write(tmp_path / f"{name}.py", name, "TITLE", "from shared_of_mine import *\n"))
        vars(sys.modules["shared_of_mine"])["TITLE"] = "as loaded first"
    assert find_study("two").title == "as loaded first"


def test_the_file_of_a_built_in_study_is_that_study():
    assert find_study(Path(studies.__path__[0]) / "sen.py") is find_study("sen")


def test_a_name_from_a_record_is_never_taken_for_a_path(tmp_path):
    file = write(tmp_path / "a_file.py", before="raise SystemExit('executed')\n")
    assert known_study(str(file)) is None


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("x = 1\n", "has no STUDY, allowed: STUDY = Study(...)"),
        ("STUDY = 5\n", "STUDY is of type int, allowed: a saccade Study"),
        ("x = 1\ndef broken(:\n", ", line 2: SyntaxError: invalid syntax"),
        ("x = 1\n\nimport no_such_module\n", ", line 3: ModuleNotFoundError: No module named"),
        ("def f():\n    return 1 / 0\n\nf()\n", ", line 2: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(3)\n", ", line 2: SystemExit: 3"),
        (
            "from saccade.train.optimiser import Adam\nAdam(-1.0)\n",
            ", line 2: rate: got -1.0, allowed:",
        ),
        ("import beside\n", "beside.py, line 2: NameError: name 'undefined' is not defined"),
        ("import wrong\n", "wrong.py, line 1: SyntaxError"),
        ("x = '\ud800'\n", "SyntaxError"),
        (STUDY.format(name="sen", title="''"), "its study is named 'sen', which is built in;"),
        (STUDY.format(name="a/b", title="''"), "named 'a/b', allowed: letters, digits, '_' and"),
        (STUDY.format(name="", title="''"), "named '', allowed: letters, digits"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_mistake_in_a_file_is_one_sentence_that_names_it(content, wanted, tmp_path):
    file = tmp_path / "a_file.py"
    file.write_bytes(content.encode(errors="surrogatepass"))
    (tmp_path / "beside.py").write_text("\nundefined\n")
    (tmp_path / "wrong.py").write_text("= 1\n")
    with pytest.raises(ConfigError) as refusal:
        find_study(file)
    text = str(refusal.value)
    assert text.startswith(str(file))
    assert wanted in text
    assert "\n" not in text
    assert known_study("sen") is find_study("sen")
    assert find_study(write(file)).name == "mine", "a corrected file is loaded"


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path):
    with pytest.raises(FileError, match=r"cannot read .*missing\.py: No such file"):
        find_study(tmp_path / "missing.py")
    with pytest.raises(FileError, match=r"cannot read .*: Is a directory"):
        find_study(tmp_path)
    (tmp_path / "text.md").write_text("no study")
    with pytest.raises(ConfigError, match=r"got '.*text\.md', allowed: a name, or the path of a"):
        find_study(tmp_path / "text.md")


def test_two_files_with_studies_of_one_name_are_refused(tmp_path):
    find_study(write(tmp_path / "one.py"))
    with pytest.raises(ConfigError, match=r"two\.py: its study is named 'mine', as that of .*one"):
        find_study(write(tmp_path / "two.py"))


# -- entry points ----------------------------------------------------------------------------------


def install(
    folder: Path, entries: str, modules: dict[str, str], name: str = "their-package"
) -> None:
    """A distribution as pip leaves it, in a folder on the module path."""
    metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[saccade.studies]\n{entries}\n")
    for module, content in modules.items():
        (folder / f"{module}.py").write_text(content)
    sys.path.insert(0, str(folder))


def test_a_study_of_an_installed_package_is_found(tmp_path):
    theirs = STUDY.format(name="theirs", title="'Theirs'")
    other = STUDY.format(name="other", title="'Other'")
    install(
        tmp_path,
        "theirs = their_module:STUDY\nother = their_other_module",
        {"their_module": theirs, "their_other_module": other},
    )
    assert {"theirs", "other", "sen"} <= set(study_names())
    assert "their_module" not in sys.modules, "names alone import nothing"
    assert find_study("theirs").title == "Theirs"
    assert known_study("other") is find_study("other")


def test_an_entry_point_cannot_replace_a_built_in_study(tmp_path):
    install(tmp_path, "sen = their_module:STUDY", {"their_module": "raise SystemExit(1)"})
    assert study_names().count("sen") == 1
    assert find_study("sen").paper != "Nobody 2026"


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("no_such_module:STUDY", "cannot be loaded: ModuleNotFoundError: No module named"),
        ("their_module:NOTHING", "cannot be loaded: AttributeError: module 'their_module' has no"),
        ("their_broken_module", "cannot be loaded: ZeroDivisionError: division by zero"),
        ("their_module:Config", "STUDY is of type type, allowed: a saccade Study"),
        ("their_module:STUDY", "its study is named 'mine', allowed: 'theirs'"),
    ],
)
def test_a_broken_entry_point_is_one_sentence_that_names_it(value, wanted, tmp_path):
    modules = {"their_module": STUDY.format(name="mine", title="''")}
    install(tmp_path, f"theirs = {value}", modules | {"their_broken_module": "1 / 0\n"})
    with pytest.raises(ConfigError) as refusal:
        find_study("theirs")
    text = str(refusal.value)
    assert text.startswith(f"entry point 'theirs' of their-package ({value}): ")
    assert wanted in text
    assert "\n" not in text


def test_two_packages_with_one_name_are_refused(tmp_path):
    install(tmp_path / "one", "theirs = one:STUDY", {}, "one")
    install(tmp_path / "two", "theirs = two:STUDY", {}, "two")
    with pytest.raises(
        ConfigError, match=r"study theirs: got several entry points \(.*\), allowed"
    ):
        find_study("theirs")
