"""A wheel, installed into a clean environment, has everything that the package needs."""

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PLUGIN = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "marked-words"
version = "1.0"
[project.entry-points."saccade.studies"]
my_study = "marked_words:STUDY"
[tool.setuptools]
py-modules = ["marked_words", "my_task", "my_model", "my_probe", "my_theory"]
"""
"""Another distribution, made of the skeletons, with a study as an entry point."""
CONTENTS = """
import importlib.metadata
from pathlib import Path
import saccade
folder = Path(saccade.__file__).parent
assert folder.is_relative_to({environment!r}), folder
for name in (
    "py.typed",
    "__init__.pyi",
    "data/example.tsv",
    "data/example_pairs.en.txt",
    "report/page.html.jinja",
):
    assert (folder / name).is_file(), name
assert importlib.metadata.version("saccade") == saccade.__version__
for name in saccade.__dir__():
    assert getattr(saccade, name) is not None
"""


def run(folder: Path, *command: object) -> str:
    """The output of a command, which must end well."""
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheels of saccade and of a package that adds a study."""
    folder = tmp_path_factory.mktemp("wheel")
    source, plugin = folder / "saccade", folder / "plugin"
    # Built from a copy: setuptools leaves files in the tree, and finds stale ones there.
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "docs" / "skeletons", plugin)
    (plugin / "my_study.py").rename(plugin / "marked_words.py")
    (plugin / "pyproject.toml").write_text(PLUGIN)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")
    offline = ("--no-deps", "--no-index")
    for project in (source, plugin):
        run(folder, *pip, "wheel", *offline, "--no-build-isolation", "-w", folder, project)
    environment = folder / "environment"
    venv.create(environment)
    python = environment / "bin" / "python"
    run(folder, *pip, "--python", python, "install", *offline, *folder.glob("*.whl"))
    # The dependencies of this environment, without what makes its own saccade importable: a path
    # that a .pth file adds is not searched for further .pth files.
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return environment


def test_the_wheel_is_complete(environment, tmp_path):
    contents = CONTENTS.format(environment=str(environment))
    run(tmp_path, environment / "bin" / "python", "-I", "-c", contents)


def test_the_command_line_is_installed(environment, tmp_path):
    version = run(tmp_path, environment / "bin" / "saccade", "--version")
    assert version.startswith("saccade ")


def test_the_study_of_another_package_is_found(environment, tmp_path):
    listed = run(tmp_path, environment / "bin" / "saccade", "list")
    assert "sen_synergy" in listed
    assert "my_study" in listed
    assert "M-1, M-2" in listed


TRAINS = ("jax", "jaxlib", "equinox", "optax", "diffrax", "pooch")
"""And cloudpickle, which Dask needs, too; xarray imports it where it is installed."""
DRAWS = ("matplotlib", "altair", "vl_convert", "jinja2")


def without(*packages: str) -> str:
    """Code after which packages cannot be imported, as if they were not installed."""
    return f"import sys; sys.modules.update(dict.fromkeys({packages!r}))\n"


def test_a_run_is_watched_with_torch_alone(environment, tmp_path):
    """The first example of the guide, without what trains and what draws."""
    pytest.importorskip("torch")
    guide = (ROOT / "docs" / "watch.md").read_text(encoding="utf-8")
    example = guide.partition("```python\n")[2].partition("```")[0]
    assert "Watch(" in example
    run(tmp_path, environment / "bin" / "python", "-c", without(*TRAINS, *DRAWS) + example)
    (record,) = tmp_path.rglob("*.nc")
    diagnosed = """
from pathlib import Path
from saccade.diagnosis.catalogue import diagnose
from saccade.records.record import Record
print(len(diagnose(Record.open(Path(sys.argv[1])))))
"""
    code = without(*TRAINS, *DRAWS) + diagnosed
    assert run(tmp_path, environment / "bin" / "python", "-c", code, record) == "1\n"


@pytest.mark.parametrize(
    ("lacking", "arguments", "said"),
    [
        (TRAINS, ["run", "sen"], "saccade run needs the package jax: pip install 'saccade[lab]'"),
        (DRAWS, ["report", "{record}"], "'saccade[page]'"),
    ],
)
def test_a_command_says_which_extra_it_needs(lacking, arguments, said, environment, tmp_path):
    given = [one.format(record=ROOT / "results" / "sen.nc.gz") for one in arguments]
    code = without(*lacking) + f"from saccade.cli import main; sys.exit(main({given!r}))"
    command = [environment / "bin" / "python", "-c", code]
    done = subprocess.run(list(map(str, command)), cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_needs_no_extra(environment, tmp_path):
    code = without(*TRAINS, *DRAWS) + "from saccade.cli import main; sys.exit(main(['--help']))"
    assert "saccade" in run(tmp_path, environment / "bin" / "python", "-c", code)
