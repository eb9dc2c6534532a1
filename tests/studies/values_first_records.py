"""A record made by hand of the study that compares the models of four papers, in which every claim
holds, and edits that break each check.
"""

import numpy as np
import xarray as xr
from ktiw_records import NEVER, learned
from record_parts import (
    SEEDS,
    Refutations,
    after,
    alike,
    along,
    at,
    change,
    fails_until,
    on,
    one_seed,
    per_seed,
    plus,
    power,
    record_of,
    trained,
)
from topics_records import moves_late

from saccade.records.record import Arm, Record
from saccade.studies import values_first
from saccade.theory.half_rise_order import reversal_score
from saccade.theory.score_and_norm import norm_of_score


def record() -> Record:
    config = values_first.Config()
    share, word = on("step", range(0, 101, 5), np.linspace(0, 1, 21)), on("word", range(8), [1] * 8)
    # From the largest start the score is first.
    starts = {"start": list(values_first.EMBEDDING_STARTS)}
    start = on("start", starts["start"], starts["start"])
    norm = xr.where(start == max(starts["start"]), share**2, share**0.5)
    data = {"norm": per_seed() * word * norm, "score": per_seed() * word * share}
    words_of = {"word": np.arange(8)}
    lu = along(share["step"], starts, words_of, loss=1.0, **data)
    data = {"norm": per_seed() * word * share**0.5, "score": per_seed() * word * share}
    arms = {"lu": trained(lu), "lu_TL": trained(along(share["step"], {}, words_of, **data))}
    arms |= {f"lu_FC_{size}": _reversing(size, config) for size in values_first.FILLERS}
    # From the largest start attention moves at once.
    starts, parts = {"start": list(values_first.MATRIX_STARTS)}, ["values", "keys", "queries"]
    start = on("start", starts["start"], starts["start"])
    attention = xr.where(start == max(starts["start"]), share**0.5, share**2)
    values = 1 - xr.ufuncs.exp(-20 * share) + 0 * start
    ways = xr.concat([values, attention, attention], "part")
    displacement = per_seed() * ways.assign_coords(part=parts)
    li = along(share["step"], starts, {"part": parts}, displacement=displacement, loss=1.0)
    words = {"words": [float(config.length), float(config.choice)]}
    informative = on("words", words["words"], words["words"]) == config.choice
    knows, attends = (xr.where(informative, step, NEVER) for step in (20, 40))
    steps = np.arange(0, config.copying_steps + 1, 5)
    snell = learned(steps, knows, attends, attends, words, SEEDS)
    arms |= {"li": trained(li), "snell": trained(snell)}
    for name, moved in (("song", share**2), ("song_blind", 0 * share)):
        ways = xr.concat([1 - xr.ufuncs.exp(-20 * share), moved, moved], "part")
        displacement = per_seed() * ways.assign_coords(part=parts)
        arms[name] = trained(along(share["step"], {}, {"part": parts}, displacement=displacement))
    return record_of("values_first", config, arms)


def _reversing(filler_size: int, config: values_first.Config) -> Arm:
    """Scores that grow evenly to beyond the reversal, and norms by corollary 1."""
    steps = np.arange(0, config.long_steps + 1, 250)
    last = 1.3 * reversal_score(filler_size)
    score = last * on("step", steps, steps / config.long_steps)
    word = on("word", range(8), [1] * 8)
    data = {"score": word * score, "norm": per_seed() * word * norm_of_score(score, filler_size)}
    return trained(along(steps, {}, {"word": np.arange(8)}, **data))


RECORDS = {"values_first": record}


def _moves_last(values: xr.DataArray) -> xr.DataArray:
    """Most of the displacement at the end."""
    return (values["step"] / values["step"].max()) ** 4


def _moves_later(values: xr.DataArray) -> xr.DataArray:
    return moves_late(moves_late(values))


REFUTATIONS: Refutations = {
    "E-13": [
        change("lu_FC_20", "norm", one_seed(power(4))),
        change("lu", "norm", one_seed(power(4))),
        change("lu_TL", "norm", one_seed(power(4))),
        change("li", "displacement", one_seed(at(_moves_last, part="values"))),
        change("snell", "lexicon_agreement", one_seed(fails_until(60))),
    ],
    "E-13b": [change("snell", "lexicon_right", one_seed(fails_until(60)))],
    "E-13c": [
        change("li", "displacement", one_seed(at(_moves_later, start=0.1))),
        change("lu", "norm", one_seed(power(0.25))),
    ],
    "E-13d": [change("snell", "attention_accuracy", alike(words=60))],
    "E-13e": [change("lu_FC_40", "norm", power(1.5))],
    "E-13f": [
        change("song", "displacement", one_seed(at(_moves_last, part="values"))),
        change("song_blind", "displacement", after(0, one_seed(at(plus(1e-3), part="queries")))),
    ],
}
