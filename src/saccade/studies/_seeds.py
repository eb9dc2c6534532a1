"""Which seeds are run: a setting of the studies of Lu 2021, Snell 2021, Li 2023 and Song 2024."""

import dataclasses

from saccade.settings import require_count


@dataclasses.dataclass(frozen=True)
class AbstractSeededConfig:
    """How many seeds, from which number on."""

    seeds: int = 5
    """Repetitions, each with its own data and initialisation."""
    first_seed: int = 0
    """Number of the first seed; records with other numbers share no run."""

    def __post_init__(self):
        require_count(self, "seeds")
        require_count(self, "first_seed", least=0)

    @property
    def seed_numbers(self) -> range:
        return range(self.first_seed, self.first_seed + self.seeds)
