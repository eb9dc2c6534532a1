"""The devices of this process, and where it keeps compiled programs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from saccade.errors import FileError
from saccade.workers.software import cores_here

__all__: list[str] = []

_compiled_in: Path | None = None
"""The folder in which JAX keeps compiled programs at the moment."""


def use_all_cores() -> None:
    """Make every core a JAX device, if JAX has not started yet: members then train in parallel on a
    CPU.
    """
    try:
        jax.config.update("jax_num_cpu_devices", cores_here())
    except (RuntimeError, AttributeError):
        return  # JAX is already running; it keeps the devices it has


def devices_in_words(precision: str) -> str:
    """The devices of this process."""
    devices = jax.local_devices()
    kind = devices[0].device_kind
    if devices[0].platform == "cpu":
        return f"CPU, {len(devices)} cores"
    name = kind if len(devices) == 1 else f"{len(devices)} x {kind}"
    rounds = _rounds_factors(devices[0], precision)
    return f"{name}, matrix products in TF32" if rounds else name


def _rounds_factors(device: Any, precision: str) -> bool:
    """Whether matrix products round their factors to 10 binary digits (sums are in float32), which
    is JAX's default on NVIDIA's GPUs since Ampere.
    """
    asked = jax.config.jax_default_matmul_precision  # pyright: ignore[reportAttributeAccessIssue]
    exact = precision == "float64" or asked in ("highest", "float32", "F32_F32_F32")
    since = float(getattr(device, "compute_capability", 0) or 0)
    return device.platform == "gpu" and since >= 8 and not exact


@contextmanager
def compilation_cache_in(folder: Path) -> Iterator[None]:
    """Keep compiled programs beside the trainings: arms of one shape, and second runs, compile
    once.
    """
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    if before[names[0]] is None:
        _compile_in(folder.resolve() / "compiled")
        jax.config.update(names[1], 0.05)
    try:
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def _compile_in(folder: Path) -> None:
    """Let JAX keep compiled programs in a folder; it would stay with the first one otherwise."""
    global _compiled_in
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot write {folder}: {error.strerror or error}") from error
    jax.config.update("jax_compilation_cache_dir", str(folder))
    if _compiled_in not in (None, folder):
        compilation_cache.reset_cache()
    _compiled_in = folder
