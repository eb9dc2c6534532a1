"""Schedulers by their names: processes of this machine, or Dask."""

import re

from saccade.errors import ConfigError
from saccade.workers.schedulers import AbstractScheduler, LocalProcesses


def scheduler_of(text: str) -> AbstractScheduler:
    """The scheduler that a text names."""
    allowed = (
        "local:N (N processes), dask:N (a Dask cluster of N processes), the address of a Dask "
        "scheduler (tcp://HOST:8786, tls://...) or its scheduler file (*.json)"
    )
    if found := re.fullmatch(r"(local|dask):([1-9]\d*)", text):
        count = int(found[2])
        if found[1] == "local":
            return LocalProcesses(count)
    elif not re.match(r"\w+://.", text) and not text.endswith(".json"):
        raise ConfigError(f"scheduler: got {text!r}, allowed: {allowed}")
    try:
        from saccade.workers.dask_cluster import DaskScheduler
    except ImportError as error:
        raise ConfigError(
            f"scheduler: got {text!r}, which needs Dask ({error.name} is not installed); install "
            "the extra: pip install 'saccade[cluster]'"
        ) from error
    return DaskScheduler(text)
