"""The software of a process: what must be the same wherever a training runs."""

import importlib.metadata
import os
import platform

from saccade.version import __version__

__all__: list[str] = []


def versions() -> dict[str, str]:
    """Versions that can change a number."""
    names = ("jax", "jaxlib", "equinox", "optax", "diffrax", "numpy")
    return {"saccade": __version__} | {name: importlib.metadata.version(name) for name in names}


def software() -> dict[str, str]:
    """Versions that must be the same everywhere: numbers depend on them, and pickled functions."""
    return {"Python": ".".join(platform.python_version_tuple()[:2])} | versions()


def unfit(wanted: dict[str, str], found: dict[str, str], device: str, device_found: str) -> str:
    """Why a worker cannot take part; empty if it can."""
    for name, version in wanted.items():
        if found.get(name) != version:
            return f"it has {name} {found.get(name, 'not at all')}, the others {version}"
    if device != device_found:
        return f"its device is {device_found}, that of the others {device}"
    return ""


def cores_here() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
