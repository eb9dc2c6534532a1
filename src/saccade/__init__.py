"""saccade: a laboratory for how attention learns.

What a user constructs, subclasses or calls of contracts, trainings, workers, studies, records,
judging, figures, tasks, models, probes and theories is a name of this package. Names are found in
the source files (`saccade.names`) and imported on use, so that `import saccade` is quick.
"""

from typing import Any

from saccade.version import __version__ as __version__


def __getattr__(name: str) -> Any:
    import difflib
    import importlib

    from saccade.names import public_names

    known = public_names()
    if name == "__all__":  # for `from saccade import *`
        return list(known)
    if name in known:
        return getattr(importlib.import_module(known[name]), name)
    close = "" if name.startswith("_") else "".join(difflib.get_close_matches(name, known, n=1))
    hint = f"; did you mean {close}?" if close else ""
    raise AttributeError(f"module 'saccade' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    from saccade.names import public_names

    return [*public_names(), "__version__"]
