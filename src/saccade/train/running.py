"""How trainings run, whatever is trained: where states are kept, and who hears of progress."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from saccade.workers.progress import Progress

__all__: list[str] = []


@dataclasses.dataclass(frozen=True)
class Running:
    """The settings of a lab that a training needs while it runs."""

    folder: Path
    """Where states and finished trainings are kept."""
    progress: Callable[[Progress], None] | None = None
    """Called several times per second while training."""
    state_interval: float = 10.0
    """Seconds between two states on disk."""
    fresh: bool = False
    """Train again even if a finished training is in the cache."""
    asked_to_stop: Callable[[], bool] | None = None
    """Asked several times per second while training."""
    dry_run: bool = False
    """Train nothing."""

    def say(self, name: str, note: str, seconds: float = 0.0) -> None:
        """Show that some work is done that has no steps of its own."""
        if self.progress is not None:
            nan = float("nan")
            self.progress(Progress(name, 0, 0, nan, 0, 1, None, True, note, seconds))
