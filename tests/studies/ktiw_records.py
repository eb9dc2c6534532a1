"""Records made by hand of the studies of Snell, Zhong, Klein & Steinhardt (2021) in which every
claim holds, and edits that break each check.

Words are known, then attended to, then copied, each at its step.
"""

import dataclasses
from typing import Any

import numpy as np
import xarray as xr
from record_parts import (
    SEEDS,
    Change,
    Edit,
    Refutations,
    after,
    along,
    at,
    at_end,
    both,
    change,
    fails_until,
    on,
    one_seed,
    per_seed,
    plus,
    record_of,
    reversed_along,
    set_to,
    swap,
    times,
    trained,
)

from saccade.contracts.task import FIRST_WORD
from saccade.probes.keywords import PLACES
from saccade.probes.translation import OFFSETS, POSITIONS
from saccade.records.record import Arm, Record
from saccade.studies import (
    ktiw_agreement,
    ktiw_copying,
    ktiw_fate,
    ktiw_limits,
    ktiw_multihead,
    ktiw_proxy,
    ktiw_reflection,
)
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
"""Every other run on permutations succeeds late, and without attention."""


def learned(
    steps: Any,
    knows: Any,
    attends: Any,
    succeeds: Any,
    sweep: dict[str, Any] | None = None,
    seeds: int = RUNS,
) -> xr.Dataset:
    """A training on sequences to be copied, by the steps at which it knows words, attends to them
    and copies them.
    """
    step = on("step", steps, steps)
    offset = on("offset", OFFSETS, [0.03, 0.9, 0.03])
    known, seen = xr.DataArray(step >= knows), xr.DataArray(step >= attends)
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


def copying_record() -> Record:
    config = ktiw_copying.Config()
    words = [float(words) for words in config.words]
    steps, mixture, uniform, lexicon = (
        np.arange(0, total + 1, 10)
        for total in (config.steps, config.mixture_steps, config.uniform_steps, 40)
    )
    # Permutations are copied by half of the runs within the budget; the more words, the sooner.
    early = on("words", words, np.linspace(150, 50, len(words)).round(-1))
    late = (early["words"] == config.length) & (LATE > 0)
    copied, attends = xr.where(late, 350, early), xr.where(late, NEVER, early - 10)
    learned_on = {"learned_on": [float(config.length), float(config.choice)]}
    larger = on("learned_on", learned_on["learned_on"], [0, 1]) > 0
    knows = xr.where(larger, 20.0, NEVER)
    arms = {
        "by_words": learned(steps, early - 40, attends, copied, {"words": words}),
        "mixture": learned(mixture, 550, 590, 600),
        "uniform": learned(uniform, knows, NEVER, NEVER, learned_on),
        "lexicon": learned(lexicon, 20.0, NEVER, NEVER),
        "given": learned(steps, 20.0, 60.0, 60.0),
    }
    whole = {name: trained(one) for name, one in arms.items()}
    ends = attended([0, config.steps], xr.where(late, 0.0, 0.9), config.length, {"words": words})
    whole["by_words"] = dataclasses.replace(whole["by_words"], snapshot=ends)
    return record_of("ktiw_copying", config, whole)


def attended(
    steps: Any, right: Any, length: int, sweep: dict[str, Any] | None = None, seeds: int = RUNS
) -> xr.Dataset:
    """Attention by offset, after the start with some mass at the right position; the rest is even
    over all offsets.
    """
    distances, started = np.arange(-length, length + 1), on("step", steps, np.asarray(steps) > 0)
    share = started * right
    here = on("distance", distances, distances == 0)
    mass = share * here + (1 - share) / len(distances)
    positions = xr.DataArray(np.full(length + 1, 1 / (length + 1)), dims="source")
    inner = {"distance": distances}
    return along(steps, sweep, inner, seeds, mass_by_offset=mass, mass_by_position=positions)


def multihead_record() -> Record:
    config = ktiw_multihead.Config()
    steps, tried_steps = (
        np.arange(0, total + 1, config.interval) for total in (config.steps, config.budget)
    )
    heads, good = np.arange(16.0), 4
    step, head = on("step", tried_steps, tried_steps), on("head", heads, heads)
    accuracy = xr.where((head < good) & (step >= 50), 0.99, 0.3)
    sweep = {"base": np.arange(float(config.base_points)), "head": heads}
    tried = along(tried_steps, sweep, None, config.trials, test_accuracy=accuracy, loss=1.0)
    candidates = ktiw_multihead._judged(tried, config)  # pyright: ignore[reportPrivateUsage]
    prediction = ktiw_multihead._at_least_one(candidates, config.model.heads)  # pyright: ignore[reportPrivateUsage]
    number = xr.DataArray(np.arange(config.model.heads) + float(good), dims="head_place")
    base = on("seed", range(RUNS), np.arange(RUNS) % config.base_points)
    names = ["diverged_at", "loss", "test_accuracy", "attention_accuracy", "attention_mass"]
    arms = {"candidates": trained(candidates)}
    for name, succeeds in (("random", 50), ("all_bad", NEVER), ("one_good", 50)):
        trajectory = learned(steps, NEVER, succeeds, succeeds)[names]
        head_number = number.expand_dims(seed=np.arange(RUNS))
        trajectory = trajectory.assign(head_number=head_number, base_start=base)
        arms[name] = trained(trajectory)
    arms["random"] = arms["random"].with_prediction(prediction, "derived")
    return record_of("ktiw_multihead", config, arms)


# -- fate ------------------------------------------------------------------------------------------

MANY = 40
"""Runs of the study of fates."""
LUCKY = on("seed", range(MANY), np.arange(MANY) % 2)
"""Every other run has a positive lexical advantage after the first steps, and is early."""
MISJUDGED = on("seed", range(MANY), np.arange(MANY) < 8)
"""Runs whose initial advantage has the other sign."""


def fated(
    steps: Any, lucky: xr.DataArray, at_first: xr.DataArray, length: int, **more: Any
) -> xr.Dataset:
    """Runs whose fate is that of the lucky, with an advantage of a sign that may differ at the
    start.
    """
    step = on("step", steps, steps)
    sign = xr.where(step > 0, 2 * lucky - 1, 2 * at_first - 1)
    copies = (step >= 50) & (lucky > 0)
    right = xr.where(step < 20, 1, xr.where(lucky > 0, 20, 0.01)) / (length + 1)
    offset = on("offset", OFFSETS, [0.0, 1.0, 0.0])
    return along(
        steps,
        None,
        {"offset": list(OFFSETS)},
        MANY,
        loss=xr.where(copies, 0.01, 3.0),
        test_accuracy=xr.where(copies, 0.99, 0.3),
        attention_accuracy=xr.where(copies, offset, 0.0),
        attention_mass=offset * right,
        lexicon_right=0.02 * (1 + 0.01 * sign),
        lexicon_elsewhere=0.02,
        lexicon_agreement=CHANCE,
        lexicon_agreement_authors=CHANCE,
        random_agreement=CHANCE,
        **more,
    )


def fate_record() -> Record:
    config = ktiw_fate.Config()
    lengths = {"plain": config.length, "shorter": config.shorter_length}
    arms = {}
    for name, length in lengths.items():
        steps = config.fate_recipe("plain", config.model, config.steps).recorded()
        initial = abs(LUCKY - MISJUDGED)
        trajectory = fated(steps, LUCKY, initial, length)
        offsets = attended(steps, 0.5 * LUCKY, length, seeds=MANY)
        trajectory = trajectory.assign(dict(offsets.drop_vars(("diverged_at", "time"))))
        sign = xr.Dataset({"attention_sign": 2 * LUCKY - 1})
        arms[name] = trained(trajectory).with_prediction(sign, "toy dynamics")
    steps = config.fate_recipe("plain", config.model, config.budget("plain")).recorded()
    lucky = {"restarted": LUCKY, "turned": 1 - LUCKY, "sham": LUCKY, "zero": LUCKY}
    for name, chosen in lucky.items():
        arms[name] = trained(fated(steps, chosen, chosen, config.length))
    for name, norm in (("restarted", 0.0), ("turned", 1.0), ("sham", 1.0)):
        norms = norm * per_seed(MANY)
        arms[name] = trained(arms[name].trajectory.assign(edit_norm=norms))
    steps = config.fate_recipe("plain", config.model, config.steps).recorded()
    never = fated(steps, 0 * LUCKY, 0 * LUCKY, config.length)
    arms["uniform_zero"] = trained(never)
    return record_of("ktiw_fate", config, arms)


def reflection_record() -> Record:
    config = ktiw_reflection.Config()
    steps = config.fate_recipe("plain", config.model, config.steps).recorded()
    arms = {}
    for name, lucky, norm in (
        ("restarted", LUCKY, 0.0),
        ("reflected", 1 - LUCKY, 1.0),
        ("sham", LUCKY, 0.7),
    ):
        trajectory = fated(steps, lucky, lucky, config.length)
        arms[name] = trained(trajectory.assign(edit_norm=norm * per_seed(MANY)))
    return record_of("ktiw_reflection", config, arms)


def limits_record() -> Record:
    config = ktiw_limits.Config()
    steps = np.asarray([0, 10, 100, 200, 500, 1000, 2000, config.keyword_steps])
    step = on("step", steps, steps)
    # Keyword, next, mean and last position.
    early, late = (on("place", PLACES, row) for row in ([1, 0.7, 0.2, 0.1], [10, 16, 5, 20]))
    logit = xr.where(step > 200, late * step / 1000, early) * per_seed(config.keyword_seeds)
    data = dict.fromkeys(("test_accuracy", "train_accuracy"), xr.where(step >= 100, 0.95, 0.5))
    inner = {"place": list(PLACES)}
    keywords = along(steps, None, inner, config.keyword_seeds, loss=0.5, word_logit=logit, **data)
    steps = np.arange(0, config.budget + 1, config.interval)
    copied, permuted = learned(steps, 20, 40, 50), learned(steps, 20, NEVER, NEVER)
    arms = {"keywords": keywords, "copied": copied, "permuted": permuted}
    return record_of("ktiw_limits", config, {name: trained(one) for name, one in arms.items()})


# -- words and co-occurrence -----------------------------------------------------------------------


def _table(values: Any) -> xr.DataArray:
    values = np.asarray(values, float)
    ids = np.arange(len(values))
    return xr.DataArray(values, {"id": ids, "other_id": ids}, ["id", "other_id"])


def _tables(steps: Any, **variables: xr.DataArray) -> xr.Dataset:
    ids = next(iter(variables.values()))["id"].values
    return along(steps, None, {"id": ids, "other_id": ids}, SEEDS, **variables)


def proxy_record() -> Record:
    config = ktiw_proxy.Config(length=4, choice=6, seeds=SEEDS)
    arms: dict[str, Arm] = {}
    # Rates are off by a pattern of signs, like d^-1/2.
    random = np.random.default_rng(0)
    theory, signs = random.normal(size=(8, 8)), random.choice([-1.0, 1.0], (8, 8))
    theory = theory - theory.mean(axis=1, keepdims=True)

    def rates(table: xr.DataArray) -> xr.Dataset:
        logit = per_seed() * table
        return _tables([0], logit_rate=logit, probability_rate=logit / len(theory))

    for dimension in config.dimensions:
        off = _table(signs * abs(theory).max()) * dimension**-0.5
        predicted = rates(_table(theory)).drop_vars("diverged_at")
        measured = rates(_table(theory) + off)
        arms[f"rates_{dimension}"] = Arm(along([0], loss=1.0), measured, predicted, "eq. 54")
    steps = [0, config.proxy_steps]
    for which in ktiw_proxy.COUNTED:
        task = config.copying(which, train_size=config.counted, test_size=1)
        share = config.counted * config.length / (config.length + 1)
        expected = _table(expected_count_table(task) * share)
        counts, theory = _tables([0], count_table=expected), xr.Dataset({"count_table": expected})
        arms[f"counts_{which}"] = Arm(along([0], loss=1.0), counts, theory, "derived")
        sizes = {"choice": config.choice, "mixture": 2 * config.length}
        size = FIRST_WORD + sizes.get(which, config.length)
        itself = _table(np.eye(size)) * (0.5 if which == "choice" else 0.0)
        lexicon = _tables(steps, lexicon=0.05 + on("step", steps, [0, 1]) * itself)
        arms[f"proxy_{which}"] = Arm(along(steps, loss=1.0), lexicon)
    table = {"attention": ("position", np.asarray(COUNTER_EXAMPLE_ATTENTION))}
    theory = xr.Dataset(table).assign(probability=COUNTER_EXAMPLE_PROBABILITY)
    measured = theory.assign(beta=("position", np.asarray(COUNTER_EXAMPLE_PROBES)), gap=0.0)
    measured = measured.assign_coords(position=np.arange(3)).expand_dims(seed=[0])
    arms["counter_example"] = Arm(measured).with_prediction(theory, "appendix A.1")
    return record_of("ktiw_proxy", config, arms)


def agreement_record() -> Record:
    config = ktiw_agreement.Config(seeds=SEEDS)
    arms = ktiw_agreement.compared(translation_arms(config))
    return record_of("ktiw_agreement", config, arms)


def translation_arms(config: ktiw_agreement.Config) -> dict[str, Arm]:
    """Two pairs of three words on ten positions. Attention finds all words; the probes of uniform
    attention, the proxy and IBM Model 1 find those of one pair.
    """
    steps = [0, config.steps // 2, config.steps]
    right = np.broadcast_to(np.eye(3, 10), (2, 3, 10))
    half = np.stack([right[0], np.roll(right[1], 3, axis=-1)])
    found, known = (xr.DataArray(table.copy(), dims=POSITIONS) for table in (right, half))
    rises, accuracy = on("step", steps, [0, 0.5, 1]), on("step", steps, [0.1, 0.6, 0.9])
    arms = {}
    shifted = found.roll(source=5)
    for name in ("attention", "other", "uniform", "frozen_lexicon", "frozen_attention", "proxy"):
        beta = rises * (found if name in ("attention", "other") else known)
        alpha = rises * (shifted if name == "frozen_lexicon" else found)
        data = {"alpha": alpha, "beta": beta, "delta": rises * found}
        arms[f"translation_{name}"] = trained(
            along(steps, loss=1.0, test_accuracy=accuracy, **data)
        )
    seed = on("seed", range(SEEDS), np.ones(SEEDS))
    translated = seed * on("iterations", ktiw_agreement.ITERATIONS, [0.5, 0.9])
    model_1 = xr.Dataset({"beta": seed * known, "translated": translated})
    return arms | {"translation_model_1": trained(model_1)}


RECORDS = {
    "ktiw_copying": copying_record,
    "ktiw_multihead": multihead_record,
    "ktiw_fate": fate_record,
    "ktiw_reflection": reflection_record,
    "ktiw_limits": limits_record,
    "ktiw_proxy": proxy_record,
    "ktiw_agreement": agreement_record,
}

# -- refutations -----------------------------------------------------------------------------------


def _by_words(words: float, edit: Change) -> Edit:
    return change("by_words", "test_accuracy", at(edit, words=words))


def _uniform(words: float, edit: Change) -> Edit:
    return change("uniform", "lexicon_agreement", at(edit, learned_on=words))


def _keywords(place: str, step: int, factor: float) -> Edit:
    return change("keywords", "word_logit", at(at(times(factor), step=step), place=place))


def _at_entry(edit: Change, row: int, column: int) -> Change:
    """A change of one entry of a table of ids."""
    return lambda values: values.where(
        (values["id"] != row) | (values["other_id"] != column), edit(values)
    )


def _larger_entry(which: str, column: int) -> Edit:
    edit = one_seed(_at_entry(lambda values: values + 0.02 * values.max(), 2, column))
    return at_end(f"counts_{which}", "count_table", edit)


def _few_after_300(values: xr.DataArray) -> xr.DataArray:
    """Three of twenty runs succeed after 300 steps, and seven after 200."""
    return values.where((values["step"] < 250) | (values["seed"] >= 14), values.max("step"))


def _signed(positive: xr.DataArray) -> xr.DataArray:
    return 0.02 * (1 + 0.01 * (2 * positive - 1))


def _unrelated(name: str) -> Edit:
    """At step 5 the sign of the advantage has nothing to do with the fate."""
    sign = lambda values: xr.zeros_like(values) + _signed(values["seed"] // 2 % 2)  # noqa: E731
    return change(name, "lexicon_right", at(sign, step=5))


def _turned_in_each_run(values: xr.DataArray) -> xr.DataArray:
    """The sign opposite to the fate."""
    return xr.zeros_like(values) + _signed(1 - values["seed"] % 2)


def _other_sign(name: str, step: int) -> Edit:
    """At a step, every run has the sign of the advantage that its neighbour has."""
    return change(name, "lexicon_right", at(reversed_along("seed"), step=step))


def _early_attention(offset: int) -> Edit:
    """Attention is at a neighbouring position from step 40 on, when beta is largest at the right
    one but has not doubled (at 50).
    """
    early = at(at(after(35, set_to(0.9)), offset=offset), words=60)
    late = change("by_words", "lexicon_right", at(fails_until(50), words=60))
    return both(change("by_words", "attention_accuracy", early), late)


def _distinguished(values: xr.DataArray) -> xr.DataArray:
    return values.where(values["id"] != values["other_id"], 1.0)


def _disagree(which: str) -> Edit:
    """Two tables of positions agree hardly more than by chance."""
    return change("translation_agreement", which, times(0.15))


def _bad_from(step: int) -> Edit:
    """Models of bad heads succeed at a step."""
    succeed = lambda values: values.where(values["step"] < step, 0.99)  # noqa: E731
    return change("all_bad", "test_accuracy", succeed)


_late_lexicon = change("by_words", "lexicon_right", fails_until(150))

_five_orders = [
    _keywords("keyword", 100, 0.5),
    _keywords("mean", 100, 5),
    (_keywords("last", 5000, 0.5), _keywords("last", 5000, 0)),
    _keywords("last", 5000, 0.1),
    _keywords("keyword", 5000, 3),
]

REFUTATIONS: Refutations = {
    "C-1": [
        at_end(
            "rates_10000",
            "logit_rate",
            one_seed(lambda values: values + 0.1 * (values["id"] % 2)),
        ),
        at_end("rates_10000", "logit_rate", times(1.06)),
        at_end(
            "rates_10000",
            "probability_rate",
            _at_entry(lambda values: values + 0.1 * values.max(), 2, 3),
        ),
        tuple(at_end("rates_10000", "probability_rate", times(by)) for by in (1.1, 0.9)),
        swap("rates_100", "rates_100000"),
    ],
    "C-2": [
        _larger_entry("permutations", 3),
        _larger_entry("choice", 3),
        _larger_entry("mixture", 3),
        _larger_entry("mixture", 8),
    ],
    "C-2b": [
        at_end("proxy_permutations", "lexicon", _distinguished),
        at_end("proxy_mixture", "lexicon", _distinguished),
        at_end("proxy_choice", "lexicon", lambda values: values.clip(max=0.1)),
    ],
    "C-3": [
        change(
            "counter_example",
            "attention",
            lambda values: values + 0.002 * (values["position"] - 1),
        ),
        change("counter_example", "probability", plus(0.002)),
        change("counter_example", "beta", reversed_along("position")),
    ],
    "C-4": [
        _by_words(60.0, fails_until(350)),
        _by_words(40.0, fails_until(150)),
        change("mixture", "test_accuracy", fails_until(250)),
    ],
    "C-4b": [(_by_words(40.0, _few_after_300), _by_words(40.0, fails_until(150)))] * 2,
    "C-4c": [
        change("given", "test_accuracy", lambda values: values.where(values["seed"] > 9, 0.3)),
        both(
            change("by_words", "test_accuracy", fails_until(50)),
            change("given", "test_accuracy", times(0.3)),
        ),
    ],
    "C-4d": [at_end("by_words", "mass_by_offset", at(set_to(0.5), words=40))],
    "C-4f": [
        _by_words(60.0, fails_until(250)),
        _by_words(40.0, fails_until(150)),
        change("mixture", "test_accuracy", fails_until(100)),
        _by_words(40.0, fails_until(150)),
    ],
    "C-5": [_by_words(60.0, fails_until(390))],
    "C-6": [_by_words(80.0, fails_until(140))],
    "C-6b": [_by_words(50.0, fails_until(140))],
    "C-7": [
        _uniform(40.0, after(200, set_to(0.5))),
        _uniform(60.0, lambda values: values.clip(max=0.2)),
    ],
    "C-7b": [
        _uniform(40.0, set_to(0.5)),
        change("uniform", "random_agreement", at(times(4), step=20)),
    ],
    "C-8": [(_early_attention(-1), _late_lexicon)],
    "C-8b": [change("by_words", "lexicon_agreement", fails_until(150))],
    "C-8c": [_late_lexicon],
    "C-8d": [(_early_attention(1), _late_lexicon)],
    "C-9": [
        (_bad_from(150), swap("one_good", "all_bad")),
        change("random", "test_accuracy", times(0.9)),
    ],
    "C-9b": [change("random", "test_accuracy", times(0))],
    "C-9c": [_bad_from(40)],
    "C-9d": [change("one_good", "attention_mass", times(0))],
    "C-10": _five_orders,
    "C-10c": _five_orders,
    "C-9e": [change("one_good", "test_accuracy", fails_until(150))],
    "C-10b": [
        (_keywords("last", 1000, 0.5), _keywords("last", 1000, 0)),
        _keywords("last", 1000, 0.1),
        _keywords("keyword", 1000, 3),
    ],
    "C-11": [
        change("copied", "test_accuracy", times(0.9)),
        change("permuted", "test_accuracy", plus(0.68)),
    ],
    "C-11b": [
        change("permuted", "lexicon_agreement", times(0.2)),
        change("permuted", "attention_accuracy", plus(0.6)),
    ],
    "C-12s": [
        _disagree(which)
        for which in ("alpha_uniform", "uniform_proxy", "delta_uniform", "alpha_other_beta")
    ],
    "C-12t": [_disagree("model_1_uniform")],
    "C-13s": [change("translation_agreement", "alpha_frozen_lexicon", plus(0.5))],
    "C-13t": [_disagree("alpha_frozen_attention")],
    "C-16": [_unrelated(name) for name in ("plain", "plain", "shorter", "shorter")],
    "C-16b": [
        change("plain", "lexicon_right", at(_turned_in_each_run, step=0)),
        _unrelated("plain"),
    ],
    "C-16c": [change("turned", "test_accuracy", reversed_along("seed"))] * 2,
    "C-16d": [change("sham", "test_accuracy", reversed_along("seed"))],
    "C-16e": [change("uniform_zero", "lexicon_agreement", times(5))],
    "C-16f": [
        change(name, "attention_mass", at(times(1000), step=100)) for name in ("plain", "shorter")
    ],
    "C-16g": [
        change("turned", "lexicon_right", reversed_along("seed")),
        change("sham", "lexicon_right", reversed_along("seed")),
        (change("sham", "edit_norm", times(2)), change("turned", "edit_norm", times(2))),
    ],
    "C-16h": [_unrelated("zero")] * 2,
    "C-16i": [
        change(name, "attention_mass", at(times(0), step=25)) for name in ("plain", "shorter")
    ],
    "C-17": [change("reflected", "test_accuracy", reversed_along("seed"))] * 2,
    "C-17b": [
        both(change("sham", "test_accuracy", reversed_along("seed")), _other_sign("sham", 25))
    ],
    "C-17c": [
        _other_sign("reflected", 0),
        _other_sign("reflected", 25),
        _other_sign("sham", 0),
        (
            change("reflected", "loss", at(times(1.1), step=0)),
            change("reflected", "loss", at(times(0.9), step=0)),
        ),
    ],
    "C-17d": [_other_sign("reflected", 25), _other_sign("sham", 25)],
}
