"""Parts of the training examples that are drawn for validation and test, if a corpus has none."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np

from saccade.errors import ConfigError, FileError
from saccade.settings import require, require_count

T = TypeVar("T")


class HasShares(Protocol):
    """A corpus with these fields."""

    @property
    def validation_share(self) -> float: ...

    @property
    def test_share(self) -> float: ...

    @property
    def split_seed(self) -> int: ...


def check_shares(task: HasShares, examples: str) -> None:
    """Refuse shares that no corpus can have; `examples` names them in messages."""
    require_count(task, "split_seed", least=0)
    for name in ("validation_share", "test_share"):
        require(task, name, "from 0 to below 1", lambda value: 0 <= value < 1)
    if task.validation_share + task.test_share >= 1:
        raise ConfigError(
            f"validation_share, test_share: got {task.validation_share} and {task.test_share}, "
            f"allowed: together below 1, so that training {examples} are left"
        )


def drawn_shares(task: HasShares, rows: Sequence[T], source: str) -> dict[str, list[T]]:
    """The training rows by split, in their own order; `source` says where they come from."""
    order = np.random.default_rng(task.split_seed).permutation(len(rows))
    drawn, start, got = {}, 0, f"{source}: got {len(rows)} rows"
    for split in ("test", "validation"):
        share = getattr(task, f"{split}_share")
        size = round(share * len(rows))
        if share and not size:
            raise FileError(
                f"{got}, of which {split}_share={share} is none, allowed: at least one; raise the "
                "share"
            )
        if size:
            drawn[split] = order[start : start + size]
        start += size
    if start >= len(rows):
        raise FileError(
            f"{got}, of which none is left for training; lower validation_share or test_share"
        )
    drawn["train"] = order[start:]
    return {split: [rows[at] for at in np.sort(ids)] for split, ids in drawn.items()}
