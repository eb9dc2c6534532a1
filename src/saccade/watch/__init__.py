"""Measuring models that are trained elsewhere, with PyTorch (extra `torch`).

    run = Watch(model, probe=batch)
    for batch in batches:
        ...
        run.step(loss)

Names are imported on use: the page of such a run needs no PyTorch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from saccade.errors import ConfigError

if TYPE_CHECKING:
    from saccade.watch.callback import Callback as Callback
    from saccade.watch.capture import CaptureError as CaptureError
    from saccade.watch.capture import attention as attention
    from saccade.watch.measuring import Probe as Probe
    from saccade.watch.watcher import Watch as Watch

_MODULES = {
    "Watch": "watcher",
    "Callback": "callback",
    "Probe": "measuring",
    "CaptureError": "capture",
    "attention": "capture",
}
__all__ = [*_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("torch", "transformers"):
            raise
        raise ConfigError(
            f"saccade.watch.{name} needs {error.name}: pip install 'saccade[torch]'"
        ) from error
