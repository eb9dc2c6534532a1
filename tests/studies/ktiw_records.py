"""Records made by hand of the studies of words and attention: words are known, then looked at,
then copied, each at its step.
"""

from typing import Any

import numpy as np
import xarray as xr
from record_parts import SEEDS, along, on, record_of

from saccade.core.interfaces import FIRST_WORD
from saccade.core.record import Arm, Record
from saccade.probes.keywords import PLACES
from saccade.probes.translation import OFFSETS
from saccade.studies import ktiw_copying, ktiw_limits, ktiw_multihead, ktiw_proxy, values_first
from saccade.theory.count_table import expected_count_table
from saccade.theory.optimal_attention import (
    COUNTER_EXAMPLE_ATTENTION,
    COUNTER_EXAMPLE_PROBABILITY,
    COUNTER_EXAMPLE_PROBES,
)

RUNS = 20
"""Seeds of claims about success rates."""
CHANCE = 0.07
"""Agreement of a lexical probe by chance."""
NEVER = np.nan
"""No step is at or beyond it."""
LATE = on("seed", range(RUNS), np.arange(RUNS) % 2)
"""Every other run on permutations succeeds late, and without looking."""


def _learned(
    steps: Any,
    knows: Any,
    looks: Any,
    succeeds: Any,
    sweep: dict[str, Any] | None = None,
    seeds: int = RUNS,
) -> xr.Dataset:
    """A training on sequences to be copied, by the steps at which it knows words, looks at them
    and copies them.
    """
    step = on("step", steps, steps)
    offset = on("offset", OFFSETS, [0.03, 0.9, 0.03])
    known, seen = xr.DataArray(step >= knows), xr.DataArray(step >= looks)
    return along(
        steps,
        sweep,
        {"offset": list(OFFSETS)},
        seeds,
        loss=xr.where(step >= succeeds, 0.01, 3.0),
        test_accuracy=xr.where(step >= succeeds, 0.99, 0.3),
        attention_accuracy=xr.where(seen, offset, 0.01),
        attention_mass=xr.where(seen, offset, 0.02),
        lexicon_right=xr.where(known, 0.9, 0.02),
        lexicon_elsewhere=xr.where(known, 0.001, 0.02),
        lexicon_agreement=xr.where(known, 1.0, CHANCE),
        lexicon_agreement_authors=xr.where(known, 1.0, CHANCE),
        random_agreement=CHANCE,
    )


def _trained(trajectory: xr.Dataset) -> Arm:
    return Arm(trajectory, xr.Dataset(), xr.Dataset())


def copying_record() -> Record:
    config = ktiw_copying.Config()
    words = [float(words) for words in config.words]
    steps = np.arange(0, config.steps + 1, 10)
    # Permutations are copied by half of the runs within the budget; the more words, the sooner.
    early = on("words", words, np.linspace(150, 50, len(words)).round(-1))
    copied = xr.where((early["words"] == config.length) & (LATE > 0), 350, early)
    looks = xr.where((early["words"] == config.length) & (LATE > 0), NEVER, early - 10)
    both = {"learned_on": [float(config.length), float(config.choice)]}
    learned_on = on("learned_on", both["learned_on"], both["learned_on"])
    lexicon = xr.where(learned_on == config.choice, 20.0, NEVER)
    given = xr.where(learned_on == config.choice, 60.0, 60 + 290 * LATE)
    arms = {
        "by_words": _learned(steps, early - 40, looks, copied, {"words": words}),
        "mixture": _learned(np.arange(0, config.mixture_steps + 1, 50), 550, 590, 600),
        "uniform": _learned(
            np.arange(0, config.uniform_steps + 1, 10), lexicon, NEVER, NEVER, both
        ),
        "lexicon": _learned(
            np.arange(0, config.lexicon_steps + 1, 10), lexicon, NEVER, NEVER, both
        ),
        "given": _learned(steps, lexicon, given, given, both),
    }
    return record_of(
        "ktiw_copying", config, {name: _trained(trajectory) for name, trajectory in arms.items()}
    )


def multihead_record() -> Record:
    config = ktiw_multihead.Config()
    steps = np.arange(0, config.budget + 1, config.interval)
    heads, good = np.arange(16.0), 4
    step, head = on("step", steps, steps), on("head", heads, heads)
    accuracy = xr.where((head < good) & (step >= 100), 0.99, 0.3)
    tried = along(steps, {"head": heads}, seeds=config.trials, test_accuracy=accuracy, loss=1.0)
    candidates = ktiw_multihead._judged(tried, config)  # pyright: ignore[reportPrivateUsage]
    prediction = ktiw_multihead._at_least_one(candidates, config.heads)  # pyright: ignore[reportPrivateUsage]
    arms = {"candidates": _trained(candidates)}
    for name, succeeds in (("random", 100), ("all_bad", NEVER), ("one_good", 100)):
        number = xr.DataArray(np.arange(config.heads) + good, dims="head_place").expand_dims(
            seed=np.arange(RUNS)
        )
        learned = _learned(steps, NEVER, succeeds, succeeds)
        trajectory = learned[
            ["diverged_at", "loss", "test_accuracy", "attention_accuracy", "attention_mass"]
        ]
        theory = (prediction, "derived") if name == "random" else (xr.Dataset(), "")
        arms[name] = Arm(trajectory.assign(head_number=number.astype(float)), xr.Dataset(), *theory)
    return record_of("ktiw_multihead", config, arms)


def limits_record() -> Record:
    config = ktiw_limits.Config()
    steps = np.asarray([0, 10, 100, 200, 500, 1000, 2000, config.keyword_steps])
    step = on("step", steps, steps)
    # Keyword, next, mean and last place.
    early, late = (
        on("place", PLACES, [1.0, 0.7, 0.2, 0.1]),
        on("place", PLACES, [10.0, 16.0, 5.0, 20.0]),
    )
    logit = xr.where(step > 200, late * step / 1000, early) * on(
        "seed", range(SEEDS), 1 + 0.01 * np.arange(SEEDS)
    )
    accuracy = xr.where(step >= 100, 0.95, 0.5)
    keywords = along(
        steps,
        None,
        {"place": list(PLACES)},
        config.keyword_seeds,
        loss=0.5,
        test_accuracy=accuracy,
        train_accuracy=accuracy,
        word_logit=logit,
    )
    steps = np.arange(0, config.long_budget + 1, config.interval)
    arms = {
        "keywords": keywords,
        "copied": _learned(steps, 20, 40, 50),
        "permuted": _learned(steps, 20, NEVER, NEVER),
    }
    return record_of(
        "ktiw_limits", config, {name: _trained(trajectory) for name, trajectory in arms.items()}
    )


# -- words and co-occurrence -----------------------------------------------------------------------


def _table(values: Any) -> xr.DataArray:
    values = np.asarray(values, float)
    ids = np.arange(len(values))
    return xr.DataArray(values, {"id": ids, "other_id": ids}, ["id", "other_id"])


def _tables(steps: Any, **variables: xr.DataArray) -> xr.Dataset:
    ids = next(iter(variables.values()))["id"].values
    return along(steps, None, {"id": ids, "other_id": ids}, SEEDS, **variables)


def proxy_record() -> Record:
    config = ktiw_proxy.Config(length=4, choice=6)
    seed = on("seed", range(SEEDS), 1 + 0.01 * np.arange(SEEDS))
    arms: dict[str, Arm] = {}
    # Rates are off by a pattern of signs, like d^-1/2.
    random = np.random.default_rng(0)
    theory, signs = random.normal(size=(8, 8)), random.choice([-1.0, 1.0], (8, 8))
    theory = theory - theory.mean(axis=1, keepdims=True)
    for dimension in config.dimensions:
        off = _table(signs * abs(theory).max()) * dimension**-0.5
        measured = {
            "logit_rate": seed * (_table(theory) + off),
            "probability_rate": seed * (_table(theory) + off) / len(theory),
        }
        prediction = {
            "logit_rate": seed * _table(theory),
            "probability_rate": seed * _table(theory) / len(theory),
        }
        arms[f"rates_{dimension}"] = Arm(
            along([0], loss=1.0),
            _tables([0], **measured),
            _tables([0], **prediction).drop_vars("diverged_at"),
            "eq. 54",
        )
    for which in ktiw_proxy.COUNTED:
        task = config.copying(which, train_size=config.counted, test_size=1)
        expected = _table(
            expected_count_table(task) * config.counted * config.length / (config.length + 1)
        )
        counts = _tables([0], count_table=expected)
        arms[f"counts_{which}"] = Arm(
            along([0], loss=1.0), counts, xr.Dataset({"count_table": expected}), "derived"
        )
    steps = [0, config.proxy_steps]
    for which in ktiw_proxy.COUNTED:
        size = (
            config.choice if which == "choice" else config.length * (2 if which == "mixture" else 1)
        )
        itself = _table(np.eye(FIRST_WORD + size)) * (0.5 if which == "choice" else 0.0)
        lexicon = 0.05 + on("step", steps, [0, 1]) * itself
        arms[f"proxy_{which}"] = Arm(
            along(steps, loss=1.0), _tables(steps, lexicon=lexicon), xr.Dataset()
        )
    dims = ("seed", "position")
    measured = xr.Dataset(
        {
            "attention": (dims, [COUNTER_EXAMPLE_ATTENTION]),
            "beta": (dims, [COUNTER_EXAMPLE_PROBES]),
            "probability": ("seed", [COUNTER_EXAMPLE_PROBABILITY]),
            "gap": ("seed", [0.0]),
        },
        {"seed": [0], "position": np.arange(3)},
    )
    theory = xr.Dataset(
        {
            "attention": ("position", [*COUNTER_EXAMPLE_ATTENTION]),
            "probability": COUNTER_EXAMPLE_PROBABILITY,
        }
    )
    arms["counter_example"] = Arm(measured, xr.Dataset(), theory, "appendix A.1")
    return record_of("ktiw_proxy", config, arms | ktiw_proxy.compared(translation_arms(config)))


def translation_arms(config: ktiw_proxy.Config) -> dict[str, Arm]:
    """Two pairs of three words on ten places. Attention finds all words; what uniform attention
    and the proxy know, one pair's.
    """
    steps = [0, config.steps // 2, config.steps]
    right = np.broadcast_to(np.eye(3, 10), (2, 3, 10))
    half = np.stack([right[0], np.roll(right[1], 3, axis=-1)])
    found, known = (
        xr.DataArray(table.copy(), dims=ktiw_proxy.POSITIONS) for table in (right, half)
    )
    rises, accuracy = on("step", steps, [0, 0.5, 1]), on("step", steps, [0.1, 0.6, 0.9])
    arms = {}
    for name in ("attention", "other", "uniform", "proxy"):
        beta = found if name in ("attention", "other") else known
        trajectory = along(
            steps,
            loss=1.0,
            test_accuracy=accuracy,
            alpha=rises * found,
            beta=rises * beta,
            delta=rises * found,
        )
        arms[f"translation_{name}"] = _trained(trajectory)
    seed = on("seed", range(SEEDS), np.ones(SEEDS))
    iterations = list(ktiw_proxy.ITERATIONS)
    translated = seed * on("iterations", iterations, [0.5, 0.9])
    arms["translation_model_1"] = _trained(
        xr.Dataset({"beta": seed * known, "translated": translated})
    )
    return arms


# -- three papers ----------------------------------------------------------------------------------


def values_first_record() -> Record:
    config = values_first.Config()
    arms: dict[str, Arm] = {}
    share = on("step", range(0, 101, 5), np.linspace(0, 1, 21))
    seed = on("seed", range(SEEDS), 1 + 0.01 * np.arange(SEEDS))
    word = on("word", range(8), np.ones(8))
    starts = {"start": list(values_first.EMBEDDING_STARTS)}
    # From the largest start the score is first.
    norm = xr.where(
        on("start", starts["start"], starts["start"]) == max(starts["start"]), share**2, share**0.5
    )
    lu = along(
        share["step"],
        starts,
        {"word": np.arange(8)},
        norm=seed * word * norm,
        score=seed * word * share,
        loss=1.0,
    )
    starts = {"start": list(values_first.MATRIX_STARTS)}
    start = on("start", starts["start"], starts["start"])
    # From the largest start attention sets out at once.
    attention = xr.where(start == max(starts["start"]), share**0.5, share**2)
    ways = [1 - np.exp(-20 * share) + 0 * start, attention, attention]
    displacement = seed * xr.concat(ways, "part").assign_coords(part=["values", "keys", "queries"])
    li = along(
        share["step"],
        starts,
        {"part": ["values", "keys", "queries"]},
        displacement=displacement,
        loss=1.0,
    )
    words = {"words": [float(config.length), float(config.choice)]}
    informative = on("words", words["words"], words["words"]) == config.choice
    knows, looks = (xr.where(informative, step, NEVER) for step in (20, 40))
    snell = _learned(np.arange(0, config.copying_steps + 1, 5), knows, looks, looks, words, SEEDS)
    arms = {
        name: _trained(trajectory)
        for name, trajectory in (("lu", lu), ("li", li), ("snell", snell))
    }
    return record_of("values_first", config, arms)
