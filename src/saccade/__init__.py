"""saccade: a laboratory for how attention learns.

What a user constructs, subclasses or calls of core, tasks, models, probes and theories is a name of
this package. Names are found in the source files (`saccade.names`) and imported on use, so that
`import saccade` is quick.
"""

from typing import Any

from saccade.version import __version__ as __version__


def __getattr__(name: str) -> Any:
    import importlib

    from saccade.names import public_names

    if not name.startswith("_") and name in (known := public_names()):
        return getattr(importlib.import_module(known[name]), name)
    raise AttributeError(f"module 'saccade' has no attribute {name!r}")


def __dir__() -> list[str]:
    from saccade.names import public_names

    return [*public_names(), "__version__"]
