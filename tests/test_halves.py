"""What reads records works where nothing is trained: without JAX, and quickly imported."""

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import saccade

READING = ("records", "judging", "figures", "diagnosis", "watch")
MAKING = ("jax", "jaxlib", "equinox", "optax", "diffrax")


def modules_of(package: str) -> list[str]:
    folder = Path(saccade.__file__).parent / package
    names = [module.name for module in pkgutil.iter_modules([str(folder)])]
    return [f"saccade.{package}", *(f"saccade.{package}.{name}" for name in names)]


def printed(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("package", READING)
def test_no_module_imports_jax(package):
    """In a process in which it cannot be imported at all."""
    blocked = "".join(f"sys.modules[{name!r}] = None; " for name in MAKING)
    names = [name for name in modules_of(package) if not name.endswith("_callback")]
    imports = "; ".join(f"import {name}" for name in names)
    assert printed(f"import sys; {blocked}{imports}; print(len({names!r}))") == f"{len(names)}\n"


def test_a_record_is_opened_and_judged_without_jax(tmp_path):
    """A claim over a record, from the packages of the reading half alone."""
    code = """
import sys
for name in ("jax", "equinox", "optax", "diffrax"):
    sys.modules[name] = None
import glob
from pathlib import Path
from saccade.diagnosis.catalogue import diagnose
from saccade.judging.bound import AtMost
from saccade.judging.claim import Check, Claim
from saccade.records.record import Record

record = Record.open(Path(sys.argv[1]))
loss = lambda arms, config: arms["FC"].end["loss"]
check = Check("loss", loss, AtMost(1.0), "FC")
claim = Claim("X-1", "The loss is small", "none", check, "none")
print(claim.judge(record, None).verdict, len(diagnose(record)))
"""
    file = Path(__file__).parents[1] / "results" / "sen.nc.gz"
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True
    )
    verdict, arms = done.stdout.split()
    assert (verdict, int(arms) > 0) == ("holds", True)


def test_importing_watch_takes_at_most_twice_what_it_stands_on():
    """Besides torch: numpy, xarray and h5netcdf. Medians of several processes, in turns."""
    pytest.importorskip("torch")
    timed = (
        "import time; import torch; begun = time.perf_counter(); {}; "
        "print(time.perf_counter() - begun)"
    )
    basis, ours = [], []
    for _ in range(5):
        basis.append(float(printed(timed.format("import numpy, xarray, h5netcdf"))))
        ours.append(float(printed(timed.format("import saccade.watch"))))
    assert sorted(ours)[2] < 2 * sorted(basis)[2]
