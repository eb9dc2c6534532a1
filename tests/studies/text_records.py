"""Records made by hand of the studies on real text in which every claim holds, and edits that break
each check.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from record_parts import (
    SEEDS,
    Edit,
    Refutations,
    along,
    at_end,
    change,
    on,
    per_seed,
    plus,
    record_of,
    set_to,
    trained,
)

from saccade.records.record import Arm, Record
from saccade.studies import ktiw_classification, ktiw_translation, sen_sst
from saccade.studies._agreement import MEASURES
from saccade.studies.sen_sst import HEADS, NAMES, TEXT_ACCURACY
from saccade.theory.score_and_norm import norm_of_score

STEPS = np.arange(0, 31_000, 1000)
PARTS = STEPS / STEPS[-1]


def _falling() -> xr.DataArray:
    return on("step", STEPS, np.exp(-PARTS))


def _stopped(accuracy: float) -> Arm:
    """A training that stopped early, with its accuracy at the start and at the best epoch."""
    falling = _falling()
    trajectory = along(STEPS, loss=falling, validation_loss=falling, validation_accuracy=falling)
    trajectory = trajectory.assign(stopped_at=("seed", np.full(SEEDS, STEPS[-1])))
    ends = along((0, 1), test_accuracy=on("step", (0, 1), (0.5, accuracy)) * per_seed() ** 0.01)
    return Arm(trajectory, ends)


def _still(arm: Arm) -> Arm:
    """A training in which one seed learns nothing."""
    loss = arm.trajectory["validation_loss"]
    flat = loss.where(loss["seed"] > 3, 1.0)
    return arm.with_variables(validation_loss=flat)


def _gaps(close: float) -> xr.DataArray:
    """Gaps of 50 words, so many of which are close to corollary 1."""
    return on("rank", range(50), np.where(np.arange(50) < 50 * close, 0.05, 0.4))


def _per_head(values: np.ndarray, steps: np.ndarray = STEPS) -> xr.DataArray:
    return on("step", steps, values).expand_dims(layer=1, head=1)


def _words() -> Arm:
    peak = 1 - (2 * PARTS - 1) ** 2  # of "best", halfway, where it leads
    scores = xr.DataArray(
        np.stack([peak, PARTS**2], -1),
        {"step": STEPS, "chosen": list(sen_sst.PAIR)},
        ("step", "chosen"),
    )
    trajectory = along(
        STEPS,
        purity_attended=on("step", STEPS, 0.3 + 0.4 * PARTS),
        purity_near_top=on("step", STEPS, 0.3 + 0.65 * PARTS),
        occurrence_attended=on("step", STEPS, 500 - 400 * PARTS),
        occurrence_near_top=on("step", STEPS, 500 - 450 * PARTS),
        pair_score=scores * per_seed(),
        pair_norm=norm_of_score(scores, 18.0) * per_seed(),
        attention_entropy=_per_head(2 - PARTS),
        effective_keys=_per_head(16 - PARTS),
    )
    trajectory = trajectory.assign(gap_words=_gaps(0.9) * per_seed())
    predicted = norm_of_score(trajectory["pair_score"], 18.0)
    return Arm(trajectory).with_prediction(xr.Dataset({"pair_norm": predicted}), "corollary 1")


def _padding_words() -> Arm:
    gaps = {"gap_words": _gaps(0.7) * per_seed(), "gap_items": _gaps(0.8) * per_seed()}
    loss = along(STEPS, loss=on("step", STEPS, np.exp(-PARTS)))
    return Arm(loss.assign(gaps))


def _dictionary() -> Arm:
    words = ["best", "powerful", "the"]
    scores = np.stack([np.outer([1.0, 0.8, -0.2], PARTS)] * 2)
    dims = ("classifier", "word", "part")
    tables: dict[str, Any] = {
        "word_score": (dims, scores),
        "word_norm": (dims, norm_of_score(scores, 18.0)),
        "epoch": (("classifier", "part"), np.stack([STEPS, STEPS])),
    }
    tables |= {name: ("word", [18.0, 17.0, 19.0]) for name in sen_sst.FACTS}
    axes = {"classifier": list(HEADS), "word": words, "part": PARTS}
    return Arm(xr.Dataset(tables, axes))


def sst_record() -> Record:
    arms: dict[str, Arm] = {}
    for name in NAMES:
        for more in ("", "_short"):
            arms[name + more] = _stopped(TEXT_ACCURACY[name] / 100)
        arms[f"{name}_words"] = _words()
    for name in ("sst2_TC", "sst5_TC"):
        arms[f"{name}_padding"] = _stopped(TEXT_ACCURACY[name] / 100)
        arms[f"{name}_padding_words"] = _padding_words()
    arms["sst2_TC_padding"] = _still(arms["sst2_TC_padding"])
    arms |= {f"{corpus}_dictionary": _dictionary() for corpus in sen_sst.CORPORA}
    return record_of("sen_sst", sen_sst.Config(seeds=SEEDS, padded=("TC",)), arms)


EVALUATED = np.asarray(ktiw_classification.Config().evaluated.at)


FROZEN, MODEL_1 = {"alpha_frozen": 0.15}, {"model_1_uniform": 0.5}


def _agreement(
    steps: np.ndarray, more: Mapping[str, float], once: Sequence[str] = ("uniform_proxy",)
) -> Arm:
    """Agreements far above chance, with a peak halfway; `once`: those without steps."""
    peak = 1 - 0.5 * abs(np.linspace(-1, 1, steps.size))
    levels = {"alpha_uniform": 0.5, "delta_uniform": 0.6, "alpha_beta": 0.6, "alpha_alpha": 0.8}
    levels |= more
    curves: dict[str, Any] = {
        f"{name}_{measure}_{split}": on("step", steps, top * peak) * per_seed()
        for name, top in levels.items()
        for measure in MEASURES
        for split in ktiw_classification.SPLITS
    }
    rising = on("step", steps, np.linspace(0.5, 0.9, steps.size))
    found = along(steps, accuracy_of_others=rising, **curves)
    single = {f"chance_{split}": 0.06 * per_seed() for split in ktiw_classification.SPLITS}
    single |= {
        f"{name}_{measure}_{split}": 0.7 * per_seed()
        for name in once
        for measure in MEASURES
        for split in ktiw_classification.SPLITS
    }
    return trained(found.assign(single))


def classification_record() -> Record:
    rising = on("step", EVALUATED, np.linspace(0.5, 0.9, EVALUATED.size))
    entropy = _per_head(rising.values, EVALUATED)
    run = along(EVALUATED, loss=1 - rising, test_accuracy=rising, attention_entropy=entropy)
    arms: dict[str, Arm] = {}
    for corpus in (*ktiw_classification.CORPORA, "sst2_vectors"):
        once = () if corpus == "sst2_vectors" else ("uniform_proxy",)
        arms[f"{corpus}_agreement"] = _agreement(EVALUATED, FROZEN, once)
        arms |= {f"{corpus}_{name}": trained(run) for name in ktiw_classification.RUNS}
    for corpus in ktiw_classification.CORPORA:
        arms[f"{corpus}_proxy"] = trained(run.drop_vars("attention_entropy"))
    return record_of("ktiw_classification", ktiw_classification.Config(seeds=SEEDS), arms)


TRANSLATED = np.asarray(ktiw_translation.Config().evaluated().at)


def translation_record() -> Record:
    steps = TRANSLATED
    rising = on("step", steps, np.linspace(0.1, 0.6, steps.size))
    entropy = _per_head(rising.values, steps)
    run = along(steps, loss=1 - rising, test_word_accuracy=rising, attention_entropy=entropy)
    words = {"source": ["1 a", "2 b"], "target": ["1 c", "2 d", "3 e"]}
    table = xr.DataArray(
        np.full((4, 3, 2), 0.5), {"step": steps[-4:], **words}, ("step", "target", "source")
    )
    pair = xr.Dataset({"alpha_attention": table, "beta_uniform": np.log(table)})
    arms: dict[str, Arm] = {}
    for corpus in ktiw_translation.ALL:
        arms[f"{corpus}_agreement"] = _agreement(steps, MODEL_1, ("uniform_proxy", "alpha_model_1"))
        arms |= {f"{corpus}_{name}": trained(run) for name in ktiw_translation.RUNS}
        arms[f"{corpus}_proxy"] = trained(run.drop_vars("attention_entropy"))
        arms[f"{corpus}_pair"] = trained(pair)
        if corpus in ktiw_translation.CORPORA:
            scores = along(steps, bleu=40 * rising).drop_vars("diverged_at")
            arms[f"{corpus}_bleu"] = trained(scores.assign(bleu_beam=25 * per_seed()))
    falls = {"attention": 0.8, "probe": 0.9, "uniform": 1.4}
    errors = {
        f"error_{name}": on("step", steps, 1 - 0.8 * np.linspace(0, 1, steps.size) ** (1 / speed))
        for name, speed in falls.items()
    }
    errors["error_attention"] = errors["error_attention"].where(steps < steps[-1], 0.05)
    found = along(steps, **errors)
    proxy = on("proxy_step", (0, 100), (0.9, 0.4)) * per_seed()
    found = found.assign(error_proxy=proxy, error_model_1=0.3 * per_seed())
    arms["lexicon_alignment"] = trained(found)
    return record_of("ktiw_translation", ktiw_translation.Config(seeds=SEEDS), arms)


RECORDS = {
    "sen_sst": sst_record,
    "ktiw_classification": classification_record,
    "ktiw_translation": translation_record,
}


def _lags(score: xr.DataArray) -> xr.DataArray:
    """The score of "best" is below that of "powerful" at first, and peaks all the same."""
    late = on("step", STEPS, np.where(PARTS < 0.5, -1.0, 1 - (2 * PARTS - 1) ** 2))
    return xr.where(score["chosen"] == "best", late, score).transpose(*score.dims)


def _late_peak(score: xr.DataArray) -> xr.DataArray:
    """The score of "best" rises to the end."""
    rising = on("step", STEPS, PARTS)
    return xr.where(score["chosen"] == "best", rising, score).transpose(*score.dims)


def _late_fall(score: xr.DataArray) -> xr.DataArray:
    """The score of "powerful" falls in the last third."""
    tent = on("step", STEPS, 1 - abs(PARTS - 0.6))
    return xr.where(score["chosen"] == "powerful", tent, score).transpose(*score.dims)


def _reversed(head: str, name: str) -> Edit:
    """A variable that runs backwards."""

    def turned(values: xr.DataArray) -> xr.DataArray:
        return values.isel(step=slice(None, None, -1)).assign_coords(step=values["step"])

    return change(f"sst2_{head}_words", name, turned)


def _by_head(edit: Any) -> list[Edit]:
    return [edit(head) for head in HEADS]


def _each(name: str, edit: Any, corpora: Any = tuple(ktiw_classification.CORPORA)) -> list[Edit]:
    """The same edit of every corpus."""
    return [change(f"{corpus}_agreement", name, edit) for corpus in corpora]


def _only_rising(values: xr.DataArray) -> xr.DataArray:
    steps = values["step"].values
    return values * 0 + on("step", steps, np.linspace(0.3, 0.6, steps.size))


def _only_falling(values: xr.DataArray) -> xr.DataArray:
    return _only_rising(values).isel(step=slice(None, None, -1)).assign_coords(step=values["step"])


_in_pairs = partial(_each, corpora=tuple(ktiw_translation.CORPORA))


REFUTATIONS: Refutations = {
    "C-12": [
        *_each("alpha_uniform_top_test", lambda values: 0.2 * values),
        *_each("uniform_proxy_top_test", lambda values: 0.1 * values),
        *_each("alpha_beta_top_test", lambda values: 0.1 * values),
    ],
    "C-13": _each("alpha_frozen_top_test", plus(0.5)),
    "C-14": [
        *_each("alpha_uniform_top_test", _only_falling),
        *_each("alpha_uniform_top_test", _only_rising),
    ],
    "C-12m": [
        *_in_pairs("alpha_uniform_top_test", lambda values: 0.2 * values),
        *_in_pairs("uniform_proxy_top_test", lambda values: 0.1 * values),
        *_in_pairs("alpha_beta_top_test", lambda values: 0.1 * values),
    ],
    "C-12n": _in_pairs("model_1_uniform_top_test", lambda values: 0.1 * values),
    "C-14m": [
        *_in_pairs("alpha_uniform_top_test", _only_falling),
        *_in_pairs("alpha_uniform_top_test", _only_rising),
    ],
    "C-15m": _in_pairs("delta_uniform_top_test", lambda values: 0.1 * values),
    "C-8m": [change("lexicon_alignment", "error_attention", lambda error: 0.1 * error)],
    "C-8n": [change("lexicon_alignment", "error_model_1", lambda error: 0.1 * error)],
    "C-15": _each("delta_uniform_top_test", lambda values: 0.1 * values),
    "A-15": [at_end(f"{arm} {arm}_short", "test_accuracy", plus(0.05)) for arm in NAMES],
    "A-15b": [at_end(f"{arm}_short", "test_accuracy", plus(-0.02)) for arm in NAMES],
    "A-16": [
        change(f"{arm}_words", "gap_words", lambda gaps: _gaps(0.5) + 0 * gaps) for arm in NAMES
    ],
    "A-15c": [change("sst2_TC_padding", "validation_loss", lambda loss: 0 * loss + _falling())],
    "A-16b": [
        change(f"{arm}_padding_words", "gap_items", set_to(0.5)) for arm in ("sst2_TC", "sst5_TC")
    ],
    "A-17": [
        *_by_head(lambda head: change(f"sst2_{head}_words", "pair_score", _lags)),
        *_by_head(lambda head: change(f"sst2_{head}_words", "pair_score", _late_peak)),
        *_by_head(lambda head: change(f"sst2_{head}_words", "pair_score", _late_fall)),
    ],
    "A-18": [
        *_by_head(lambda head: _reversed(head, "purity_attended")),
        *_by_head(lambda head: _reversed(head, "purity_near_top")),
        *_by_head(lambda head: _reversed(head, "occurrence_attended")),
        *_by_head(lambda head: _reversed(head, "occurrence_near_top")),
        *_by_head(lambda head: change(f"sst2_{head}_words", "purity_attended", plus(0.4))),
    ],
    "A-19": _by_head(
        lambda head: change(f"sst2_{head}_words", "purity_near_top", lambda one: 0.9 * one)
    ),
}
