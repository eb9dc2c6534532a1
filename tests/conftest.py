"""Shape checks on saccade's annotated functions, one backend for figures, and a lab that all tests share."""

import os

import core.shape_checks
import jax
import pytest
from jaxtyping import install_import_hook

os.environ.setdefault("MPLBACKEND", "Agg")

CHECKED = ("",)
"""Where arrays are JAX's own. The engine and the lab hand NumPy arrays to JAX on purpose."""

# Only what is imported after this line is checked, so it stands above every other import of saccade.
install_import_hook("saccade", "core.shape_checks.checked")

from saccade.core.lab import Lab  # noqa: E402

# Two devices wherever the tests run, so that members are always split over devices.
jax.config.update("jax_num_cpu_devices", 2)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A lab in a folder of its own; trainings and compiled programs are shared by the whole session."""
    return Lab(tmp_path_factory.mktemp("lab"))
