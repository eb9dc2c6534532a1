"""Scores grow without limit, until softmax is one-hot and training unstable."""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from saccade.diagnosis.fault import AbstractFault, Signs
from saccade.diagnosis.setup import Setup

MOST, LARGE = 1e4, 100.0


class ScoreGrowth(AbstractFault):
    title: ClassVar = "scores have grown out of bounds"
    quantity: ClassVar = "largest score"
    bound: ClassVar = f"above {MOST:,.0f}"
    why: ClassVar = "published: all runs of Wortsman et al. 2023 beyond it diverged (section 3.3)"
    cause: ClassVar = "queries and keys grow together, as with a high rate"
    remedy: ClassVar = "normalise queries and keys (QK-norm), clip them, or lower the rate"
    needs: ClassVar = ("largest_score",)
    severities: ClassVar = (3.0, 20.0, 150.0)

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        score = run["largest_score"]
        return Signs(score, score > MOST)

    def planted(self, healthy: Setup) -> Setup | None:
        path = healthy.path("query_key_scale")
        return healthy.swept(path, self.severities) if path else None

    def remedies(self, setup: Setup) -> Mapping[str, Setup]:
        return cooler(setup)


def cooler(setup: Setup) -> Mapping[str, Setup]:
    """Scores divided by what makes them moderate, or a lower rate."""
    lower = {"a tenth of the rate": setup.changed("optimiser.rate", setup.optimiser.rate / 10)}
    path = setup.path("temperature")
    warm = {f"temperature {one:g}": setup.changed(path, one) for one in (10.0, 100.0) if path}
    return warm | lower


class LargeScores(ScoreGrowth):
    """The level at which others already act; many runs with such scores learn well."""

    title: ClassVar = "scores are large"
    bound: ClassVar = f"above {LARGE:g}"
    why: ClassVar = "published: Kimi K2 clips scores there, and trains well"
    is_information: ClassVar = True
    severities: ClassVar = ()

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        score = run["largest_score"]
        return Signs(score, (score > LARGE) & (score <= MOST))
