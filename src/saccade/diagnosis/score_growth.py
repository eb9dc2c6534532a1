"""Scores grow without limit, until softmax is one-hot and training unstable."""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from saccade.diagnosis.fault import AbstractFault, Signs

MOST, LARGE = 1e4, 100.0


class ScoreGrowth(AbstractFault):
    title: ClassVar = "scores have grown out of bounds"
    quantity: ClassVar = "largest score"
    bound: ClassVar = f"above {MOST:,.0f}"
    why: ClassVar = "published: all runs of Wortsman et al. 2023 beyond it diverged (section 3.3)"
    cause: ClassVar = "queries and keys grow together, as with a high rate"
    remedy: ClassVar = "normalise queries and keys (QK-norm), clip them, or lower the rate"
    in_pytorch: ClassVar = "queries, keys = query_norm(queries), key_norm(keys)"
    in_saccade: ClassVar = "EncoderConfig(query_key_norm=True)"
    needs: ClassVar = ("largest_score",)

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        score = run["largest_score"]
        return Signs(score, score > MOST)


class LargeScores(ScoreGrowth):
    """The level at which others already act; many runs with such scores learn well."""

    title: ClassVar = "scores are large"
    bound: ClassVar = f"above {LARGE:g}"
    why: ClassVar = "published: Kimi K2 clips scores there, and trains well"
    is_information: ClassVar = True

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        score = run["largest_score"]
        return Signs(score, (score > LARGE) & (score <= MOST))
