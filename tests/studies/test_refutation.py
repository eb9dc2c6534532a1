"""Every check of every claim can fail: break what it is about, and the claim is refuted."""

import dataclasses
import fnmatch
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr
from synthetic_records import RECORDS, WRONG_WORD, Edit, change, diverge, judged, one_seed, swap

from saccade.core.claim import Claim
from saccade.core.record import Record
from saccade.core.study import find_study


def sound(study: str) -> Record:
    return RECORDS[study]()


CLAIMS = [(study, claim) for study in RECORDS for claim in find_study(study).claims]


def claim_of(name: str) -> Claim:
    return next(claim for _, claim in CLAIMS if claim.id == name)


def reversed_along(dim: str) -> Callable[[xr.DataArray], xr.DataArray]:
    return lambda values: values.copy(data=values.isel({dim: slice(None, None, -1)}).values)


def after(step: int, edit: Callable[[xr.DataArray], Any]) -> Callable[[xr.DataArray], xr.DataArray]:
    return lambda values: values.where(values["step"] <= step, edit(values))


def regrown(arm: str, dim: str, growth: Callable[[xr.DataArray], Any]) -> Edit:
    """Norms that exceed corollary 1 by a function of the swept value."""

    def edited(record: Record) -> Record:
        norm = record.arms[arm].prediction["norm"] * (1 + growth(record.arms[arm].trajectory[dim]))
        return change(arm, "norm", lambda values: norm.transpose(*values.dims))(record)

    return edited


def of_wrong_word(edit: Callable[[xr.DataArray], Any]) -> Callable[[xr.DataArray], xr.DataArray]:
    return lambda values: values.where(values["word"] != WRONG_WORD, edit(values))


def never_falls(record: Record) -> Record:
    """The word that starts on the wrong side rises from the first step on, and faster than with
    frozen scores.
    """
    rises = change("TC", "score", of_wrong_word(lambda values: values["step"] / 1000))
    return change("TC", "norm_velocity", lambda values: values + 1)(rises(record))


def at_coordinate(
    dim: str, value: Any, edit: Callable[[xr.DataArray], Any]
) -> Callable[[xr.DataArray], xr.DataArray]:
    return lambda values: values.where(values[dim] != value, edit(values))


def trained_on(edit: Callable[[xr.DataArray], Any]) -> Callable[[xr.DataArray], xr.DataArray]:
    """An edit of everything but the start."""
    return one_seed(lambda values: values.where(values["step"] == 0, edit(values)))


def sets_out_at_once(values: xr.DataArray) -> xr.DataArray:
    """Keys and queries move as the values do."""
    return values.where(values["part"] == "values", values.sel(part="values", drop=True))


def sets_out_late(values: xr.DataArray) -> xr.DataArray:
    return values.where(values["part"] == "values", values**4)


def steeper(dim: str, exponent: float) -> Callable[[xr.DataArray], xr.DataArray]:
    return lambda values: values * values[dim].clip(min=1e-9) ** exponent


def no_preference(values: xr.DataArray) -> xr.DataArray:
    return values.where(values["pair"] != "same topic", 0.001)


def at_entry(
    edit: Callable[[xr.DataArray], Any], row: int, column: int
) -> Callable[[xr.DataArray], xr.DataArray]:
    """An edit of one entry of a table of ids."""
    return lambda values: values.where(
        (values["id"] != row) | (values["other_id"] != column), edit(values)
    )


def at_step(
    step: int, edit: Callable[[xr.DataArray], Any]
) -> Callable[[xr.DataArray], xr.DataArray]:
    return at_coordinate("step", step, edit)


def fails_until(step: float) -> Callable[[xr.DataArray], xr.DataArray]:
    """As at the start until a step, and then as it will ever be."""
    return lambda values: xr.where(
        values["step"] < step, values.isel(step=0, drop=True), values.max("step")
    ).transpose(*values.dims)


def alike(dim: str, value: float) -> Callable[[xr.DataArray], xr.DataArray]:
    """What was measured at one coordinate, at all."""
    return lambda values: values.where(values[dim] == value, values.sel({dim: value}, drop=True))


def disagree(which: str) -> Edit:
    """Two tables of positions agree hardly more than by chance."""
    return change("translation_agreement", which, lambda values: 0.15 * values)


def sets_out_last(values: xr.DataArray) -> xr.DataArray:
    """Most of the way at the end."""
    return (values["step"] / values["step"].max()) ** 4


def both(first: Edit, second: Edit) -> Edit:
    return lambda record: second(first(record))


def before_the_word(record: Record) -> Record:
    """Attention is at the place before the right one from step 40 on, when beta is largest there
    but has not doubled (at 50).
    """
    early = change(
        "by_words",
        "attention_accuracy",
        at_coordinate("words", 60.0, at_coordinate("offset", -1, after(35, lambda _: 0.9))),
    )
    return both(
        early, change("by_words", "lexicon_right", at_coordinate("words", 60.0, fails_until(50)))
    )(record)


def told_apart(values: xr.DataArray) -> xr.DataArray:
    return values.where(values["id"] != values["other_id"], 1.0)


REFUTATIONS: list[tuple[str, str, str, Edit]] = [
    (
        "sen",
        "A-1",
        "score change",
        change("TL", "other_score_change", one_seed(lambda values: values + 0.1), "snapshot"),
    ),
    (
        "sen",
        "A-1",
        "displacement",
        change("FC", "other_displacement", one_seed(lambda values: values + 0.2), "snapshot"),
    ),
    (
        "sen",
        "A-2",
        "largest relative gap",
        change("TC", "norm", one_seed(lambda values: 1.1 * values)),
    ),
    ("sen", "A-2", "mean relative gap", change("FC TC TL", "norm", lambda values: 1.1 * values)),
    *(
        ("sen", "A-3", f"gap, {head}", change(head, "norm", one_seed(lambda values: 0.95 * values)))
        for head in ("FC", "TC", "TL")
    ),
    ("sen", "A-4", "training loss", change("FC", "loss", one_seed(lambda values: values + 0.05))),
    (
        "sen",
        "A-4",
        "attention on",
        change("FC", "attention", one_seed(lambda values: 0.85 * values)),
    ),
    (
        "sen",
        "A-4",
        "accuracy",
        change("FC", "test_accuracy", one_seed(lambda values: 0.99 * values)),
    ),
    (
        "sen",
        "A-4",
        "attention gained",
        change(
            "FC", "attention", after(5000, lambda values: values.sel(step=5000, drop=True) - 0.01)
        ),
    ),
    (
        "sen",
        "A-4",
        "loss after four",
        change("FC", "loss", after(5000, lambda values: 0.6 * values.sel(step=5000, drop=True))),
    ),
    (
        "sen",
        "A-4",
        "largest rise",
        change("FC", "loss", one_seed(after(10000, lambda values: values + 0.01))),
    ),
    *(
        (
            "sen",
            "A-4b",
            f"{head}: attention",
            change(head, "attention", one_seed(lambda values: 0.5 * values)),
        )
        for head in ("TC", "TL")
    ),
    ("sen", "A-4c", "predicted loss", change("FC", "loss", lambda values: 1.2 * values)),
    ("sen", "A-5", "smaller of the differences", swap("FC", "TL")),
    ("sen", "A-5", "smaller of the differences", swap("TC", "TL")),
    (
        "sen",
        "A-5",
        "smaller of the differences",
        change("TC", "score", one_seed(lambda values: 0 * values)),
    ),
    (
        "sen",
        "A-6",
        "left - right",
        change("TL", "distance", one_seed(lambda values: 1.05 * values)),
    ),
    ("sen", "A-6", "left - right", change("TC", "distance", lambda values: 1.1 * values)),
    ("sen", "A-7", "signs agree", change("TC", "projection", one_seed(lambda values: -values))),
    ("sen", "A-7b", "error of a score", change("FC", "score", lambda values: 1.1 * values)),
    ("sen", "A-8", "one rate to the next", change("by_rate", "norm", reversed_along("rate"))),
    (
        "sen",
        "A-8",
        "one start to the next",
        change("by_std", "norm", reversed_along("embedding_std")),
    ),
    ("sen", "A-8", "rate, at least", regrown("by_rate", "rate", lambda rate: 0.03 * rate**0.5)),
    ("sen", "A-8", "rate, at most", regrown("by_rate", "rate", lambda rate: 0.01 * rate**2)),
    (
        "sen",
        "A-8",
        "variance, at least",
        regrown("by_std", "embedding_std", lambda std: 0.01 + std),
    ),
    (
        "sen",
        "A-8",
        "variance, at most",
        regrown("by_std", "embedding_std", lambda std: 0.01 + 4e4 * std**4),
    ),
    *(
        (
            "sen_synergy",
            "A-9",
            f"epochs of {arm}",
            change(arm, "loss", one_seed(lambda values: 0 * values)),
        )
        for arm in ("KF", "EF")
    ),
    *(
        (
            "sen_synergy",
            "A-9b",
            f"{arm}: test accuracy",
            change(arm, "test_accuracy", one_seed(lambda values: 0.99 * values)),
        )
        for arm in ("TC", "KF", "EF")
    ),
    ("sen_synergy", "A-9c", "epochs until", change("TC", "loss", lambda values: values + 0.2)),
    (
        "sen_synergy",
        "A-10",
        "has halved",
        change("EF", "score", one_seed(lambda values: values + 5)),
    ),
    (
        "sen_synergy",
        "A-10",
        "at the end",
        change("EF", "score", one_seed(lambda values: 0.1 * values)),
    ),
    (
        "sen_synergy",
        "A-11",
        "gain in topic norm",
        change("KF", "norm", one_seed(lambda values: values + 3)),
    ),
    (
        "sen_synergy",
        "A-12",
        "smallest score",
        change("TC", "score", lambda values: values.clip(min=0)),
    ),
    (
        "sen_synergy",
        "A-12",
        "at the end",
        change("TC", "score", one_seed(after(50000, lambda values: -0.2))),
    ),
    (
        "sen_synergy",
        "A-12",
        "where the score is lowest",
        change("KF", "norm_velocity", lambda values: 0.1 * values),
    ),
    ("sen_synergy", "A-12", "epoch from which", never_falls),
    *(
        (
            "sen_query",
            claim,
            f"{head}: rank correlation of",
            change(head, "norm", reversed_along("query_variance")),
        )
        for head in ("FC", "TC", "TL")
        for claim in ("A-13", "A-13b")
    ),
    *(
        (
            "sen_query",
            claim,
            f"{head}: smallest {kind}",
            change(head, "norm", reversed_along("step")),
        )
        for head in ("FC", "TC", "TL")
        for claim, kind in (("A-13", "correlation"), ("A-13b", "rank correlation"))
    ),
    (
        "sen_convolution",
        "A-14",
        "accuracy",
        change("TC-CNN", "test_accuracy", lambda values: 0.9 * values),
    ),
    (
        "sen_convolution",
        "A-14",
        "score change",
        change("TC-CNN", "other_score_change", lambda values: 100 * values, "snapshot"),
    ),
    (
        "sen_convolution",
        "A-14",
        "rank correlation",
        change("TC-CNN", "centred_norm", reversed_along("step")),
    ),
    *(
        (
            "topics_optima",
            "B-1",
            "largest |entry",
            change(arm, end, one_seed(lambda values: values + 1e-7)),
        )
        for arm, end in (("values", "entry_low"), ("values_3", "entry_high"))
    ),
    (
        "topics_optima",
        "B-1",
        "excess loss",
        change("values", "loss", one_seed(lambda values: values + 1e-12)),
    ),
    (
        "topics_optima",
        "B-1b",
        "|difference - 1/v|",
        change("values_hidden", "block_difference", one_seed(lambda values: 1.1 * values)),
    ),
    (
        "topics_optima",
        "B-1b",
        "attended to / hidden",
        change("values", "block_difference", one_seed(lambda values: 0.5 * values)),
    ),
    (
        "topics_optima",
        "B-2",
        "|difference of",
        change("values_random", "block_difference", one_seed(lambda values: values + 1e-6)),
    ),
    (
        "topics_optima",
        "B-2",
        "standard deviation",
        change("values_random", "entry_std", one_seed(lambda values: 0 * values)),
    ),
    (
        "topics_optima",
        "B-3",
        "largest |entry",
        change("values_decay", "entry_low", one_seed(lambda values: values + 1e-8)),
    ),
    (
        "topics_optima",
        "B-3",
        "with / without decay",
        change("values", "block_difference", one_seed(lambda values: 1.001 * values)),
    ),
    (
        "topics_optima",
        "B-4",
        "|difference",
        change("embeddings", "similarity_difference", one_seed(lambda values: values + 1e-4)),
    ),
    (
        "topics_optima",
        "B-4",
        "excess loss",
        change("embeddings", "loss", one_seed(lambda values: values + 1e-6)),
    ),
    (
        "topics_optima",
        "B-4b",
        "left out",
        change("embeddings", "similarity_off_diagonal", one_seed(abs)),
    ),
    (
        "topics_optima",
        "B-4b",
        "included",
        change("embeddings", "similarity_difference", one_seed(lambda values: -values)),
    ),
    (
        "topics_optima",
        "B-5",
        "|gamma / gamma* - 1|",
        change("ratio", "attention_ratio", one_seed(lambda values: 1.01 * values)),
    ),
    (
        "topics_optima",
        "B-5",
        "one tau to the next",
        change("ratio", "attention_ratio", reversed_along("tau")),
    ),
    (
        "topics_optima",
        "B-5",
        "one T to the next",
        change("ratio", "attention_ratio", reversed_along("T")),
    ),
    (
        "topics_optima",
        "B-5",
        "(0.5 tau)",
        change("ratio", "attention_ratio", one_seed(lambda values: 0.1 * values)),
    ),
    (
        "topics_optima",
        "B-5",
        "largest gamma / T",
        change("ratio", "attention_ratio", one_seed(lambda values: 10 * values)),
    ),
    (
        "topics_optima",
        "B-5",
        "one topic a document",
        change(
            "ratio",
            "attention_ratio",
            one_seed(at_coordinate("tau", 1.0, lambda values: 1.1 * values)),
        ),
    ),
    (
        "topics_optima",
        "B-6",
        "tied: |gamma",
        change("sampled_tied", "attention_ratio", lambda values: 1.3 * values),
    ),
    (
        "topics_optima",
        "B-6",
        "free: |gamma / gamma*",
        change("sampled_free", "attention_ratio", lambda values: 1.3 * values),
    ),
    (
        "topics_optima",
        "B-6",
        "free: |gamma / (gamma*",
        change("sampled_free", "attention_ratio", lambda values: 0.7 * values),
    ),
    (
        "topics_two_stage",
        "B-9",
        "have gone 90 %",
        change("sgd_squared", "displacement", one_seed(sets_out_at_once)),
    ),
    (
        "topics_two_stage",
        "B-9",
        "step of that boundary",
        change("sgd_squared", "displacement", one_seed(sets_out_at_once)),
    ),
    (
        "topics_two_stage",
        "B-9b",
        "moved half their norm",
        change("sgd_entropy", "displacement", one_seed(sets_out_at_once)),
    ),
    (
        "topics_two_stage",
        "B-9c",
        "gradients of W_K",
        change("sgd_squared", "gradient_norm", one_seed(lambda values: values + 1e-6)),
    ),
    (
        "topics_two_stage",
        "B-9c",
        "gradient of W_V",
        change("sgd_squared", "gradient_norm", one_seed(lambda values: 0 * values)),
    ),
    (
        "topics_two_stage",
        "B-9c",
        "exponent of gradient",
        change("sgd_squared", "gradient_norm", steeper("start", 0.5)),
    ),
    (
        "topics_two_stage",
        "B-9c",
        "minus that",
        change("sgd_squared", "gradient_norm", steeper("start", -0.5)),
    ),
    (
        "topics_two_stage",
        "B-9d",
        "Adam, squared",
        change("adam_squared", "displacement", one_seed(sets_out_at_once)),
    ),
    (
        "topics_two_stage",
        "B-9d",
        "Adam, cross",
        change("adam_entropy", "displacement", one_seed(sets_out_at_once)),
    ),
    (
        "topics_two_stage",
        "B-12",
        "start 0.1 / start 0.001",
        change("sgd_squared", "displacement", one_seed(at_coordinate("start", 0.1, sets_out_late))),
    ),
    (
        "topics_two_stage",
        "B-12",
        "default start",
        change("sgd_squared_default", "displacement", one_seed(sets_out_late)),
    ),
    (
        "topics_attention",
        "B-7",
        "Adam",
        change("uniform_adam", "block_difference", lambda values: 1.3 * values),
    ),
    (
        "topics_attention",
        "B-7",
        "SGD",
        change("uniform_sgd", "block_difference", lambda values: 0.7 * values),
    ),
    (
        "topics_attention",
        "B-7b",
        "Adam",
        change("uniform_hidden", "block_difference", lambda values: 1.3 * values),
    ),
    (
        "topics_attention",
        "B-8",
        "block means",
        change("uniform_entropy", "entry_std", one_seed(lambda values: 10 * values)),
    ),
    (
        "topics_attention",
        "B-10",
        "mean dot product",
        change("everything", "similarity_difference", one_seed(lambda values: -values)),
    ),
    (
        "topics_attention",
        "B-10",
        "without the diagonal",
        change("everything", "similarity_off_diagonal", one_seed(lambda values: -values)),
    ),
    *(
        (
            "topics_attention",
            claim,
            told,
            change(f"{arm}_{mixture}", "pair_attention", one_seed(no_preference), "snapshot"),
        )
        for claim, arm in (("B-11", "adam"), ("B-11b", "sgd"), ("B-11c", "sgd"))
        for mixture, told in (("distinct", "tau topics"), ("dirichlet", "Dirichlet topics"))
    ),
    (
        "topics_attention",
        "B-11d",
        "right lookup / legacy",
        change(
            "adam_distinct",
            "pair_attention",
            one_seed(at_coordinate("lookup", "right", no_preference)),
            "snapshot",
        ),
    ),
    *(
        (
            "kernels_convergence",
            "D-1",
            "loss / bound",
            change(arm, "loss", trained_on(at_coordinate("D", 32.0, lambda one: 1e3 * one))),
        )
        for arm in ("softmax_values_2", "gaussian_values_4")
    ),
    (
        "kernels_convergence",
        "D-2",
        "last loss / floor",
        change("gaussian_values_1", "loss", one_seed(lambda values: 1.01 * values)),
    ),
    (
        "kernels_convergence",
        "D-2",
        "floor / first",
        change("softmax_values_1", "floor", one_seed(lambda values: 0 * values), "prediction"),
    ),
    (
        "kernels_convergence",
        "D-3",
        "loss / bound",
        change("softmax_all_2", "loss", trained_on(lambda values: 1e3 * values)),
    ),
    (
        "kernels_convergence",
        "D-3",
        "last loss / first",
        change("gaussian_all_4", "loss", trained_on(lambda values: values + 0.01)),
    ),
    (
        "kernels_convergence",
        "D-4",
        "floor of the start",
        change("gaussian_all_1", "loss", one_seed(lambda values: 3 * values)),
    ),
    (
        "kernels_stationary",
        "D-5",
        "norm of the first",
        change("softmax_keys", "gradient_norm", one_seed(lambda values: values + 1e-9)),
    ),
    (
        "kernels_stationary",
        "D-5",
        "softmax: |last loss",
        change("softmax_keys", "loss", trained_on(lambda values: 0.9 * values)),
    ),
    *(
        (
            "kernels_stationary",
            claim,
            "Gaussian: last loss",
            change("gaussian_keys", "loss", trained_on(lambda values: values + 0.01)),
        )
        for claim in ("D-5", "D-5b", "D-8")
    ),
    (
        "kernels_stationary",
        "D-5c",
        "(last loss - reach)",
        change("gaussian_keys", "loss", trained_on(lambda values: values + 0.1)),
    ),
    (
        "kernels_stationary",
        "D-5c",
        "(reach - last loss)",
        change("gaussian_keys", "reach_floor", one_seed(lambda values: values + 0.1)),
    ),
    (
        "kernels_stationary",
        "D-6",
        "gradient, at least",
        change("softmax_keys", "gradient_norm", steeper("key_scale", -0.5)),
    ),
    (
        "kernels_stationary",
        "D-6",
        "gradient, at most",
        change("softmax_keys", "gradient_norm", steeper("key_scale", 0.5)),
    ),
    (
        "kernels_stationary",
        "D-6",
        "Gaussian: |exponent|",
        change("gaussian_keys", "gradient_norm", steeper("key_scale", 1.0)),
    ),
    (
        "kernels_stationary",
        "D-6",
        "smallest gain",
        change("softmax_keys", "loss", reversed_along("key_scale")),
    ),
    *(
        (
            "kernels_stationary",
            "D-7",
            told,
            change(
                "gaussian_queries", "loss", lambda values: values.where(values["step"] == 0, 1e-9)
            ),
        )
        for told in (
            "queries 5 times",
            "queries 20 times as large: orders",
            "Gaussian's |last loss",
        )
    ),
    (
        "kernels_stationary",
        "D-8",
        "softmax: last loss",
        change("softmax_keys", "loss", trained_on(lambda values: values + 0.01)),
    ),
    ("kernels_stationary", "D-8b", "steps to", swap("softmax_keys", "gaussian_keys")),
    (
        "kernels_stationary",
        "D-8c",
        "only the Gaussian",
        change("gaussian_phase", "loss", trained_on(lambda values: values + 0.5)),
    ),
    (
        "kernels_stationary",
        "D-8c",
        "only softmax",
        change("softmax_phase", "loss", trained_on(lambda values: values + 0.5)),
    ),
    *(
        (
            "ktiw_copying",
            claim,
            quantity,
            change("by_words", "test_accuracy", at_coordinate("words", words, edit)),
        )
        for claim, quantity, words, edit in (
            ("C-4", "words of a larger set", 60.0, fails_until(250)),
            ("C-4", "rate, permutations", 40.0, fails_until(150)),
            ("C-4b", "Fisher", 40.0, fails_until(150)),
            ("C-5", "median steps", 60.0, fails_until(390)),
            ("C-4d", "attention accuracy", 40.0, fails_until(250)),
            ("C-4f", "rate, permutations", 40.0, fails_until(250)),
            ("C-4f", "Fisher", 40.0, fails_until(250)),
        )
    ),
    ("ktiw_copying", "C-4", "mixture", change("mixture", "test_accuracy", fails_until(100))),
    (
        "ktiw_copying",
        "C-4c",
        "lexicon from",
        change("given", "test_accuracy", lambda values: values.where(values["seed"] > 2, 0.3)),
    ),
    (
        "ktiw_copying",
        "C-4c",
        "nothing given",
        both(
            change("by_words", "test_accuracy", fails_until(50)),
            change("given", "test_accuracy", lambda values: 0.3 * values),
        ),
    ),
    (
        "ktiw_copying",
        "C-4e",
        "from permutations",
        change("given", "test_accuracy", alike("learned_on", 60.0)),
    ),
    (
        "ktiw_copying",
        "C-6",
        "rank correlation",
        change("by_words", "test_accuracy", at_coordinate("words", 80.0, fails_until(140))),
    ),
    (
        "ktiw_copying",
        "C-6b",
        "rank correlation",
        change("by_words", "test_accuracy", reversed_along("words")),
    ),
    *(
        (
            "ktiw_copying",
            claim,
            quantity,
            change("uniform", "lexicon_agreement", at_coordinate("learned_on", words, edit)),
        )
        for claim, quantity, words, edit in (
            ("C-7", "permutations: best", 40.0, after(200, lambda values: 0.5)),
            ("C-7", "larger set: best", 60.0, lambda values: values.clip(max=0.2)),
            ("C-7b", "permutations: A", 40.0, lambda values: 0.5),
        )
    ),
    (
        "ktiw_copying",
        "C-7b",
        "larger set: A",
        change("uniform", "random_agreement", lambda values: 4 * values),
    ),
    (
        "ktiw_copying",
        "C-8",
        "doubles before",
        change("by_words", "lexicon_right", fails_until(150)),
    ),
    (
        "ktiw_copying",
        "C-8d",
        "one place behind",
        change("by_words", "lexicon_right", fails_until(150)),
    ),
    (
        "ktiw_copying",
        "C-8c",
        "attention right",
        change("by_words", "lexicon_right", fails_until(150)),
    ),
    (
        "ktiw_copying",
        "C-8b",
        "half of the words",
        change("by_words", "lexicon_agreement", fails_until(150)),
    ),
    ("ktiw_multihead", "C-9", "one head good", swap("one_good", "all_bad")),
    (
        "ktiw_multihead",
        "C-9",
        "at random",
        change("random", "test_accuracy", lambda values: 0.9 * values),
    ),
    (
        "ktiw_multihead",
        "C-9c",
        "median steps",
        change("all_bad", "test_accuracy", lambda values: values.where(values["step"] < 50, 0.99)),
    ),
    (
        "ktiw_multihead",
        "C-9d",
        "less all heads bad",
        change("one_good", "attention_mass", lambda values: 0 * values),
    ),
    (
        "ktiw_multihead",
        "C-9b",
        "at random",
        change("random", "test_accuracy", lambda values: values.where(values["seed"] > 4, 0.3)),
    ),
    *(
        (
            "ktiw_limits",
            claim,
            quantity,
            change("keywords", "word_logit", at_coordinate("place", place, at_step(step, edit))),
        )
        for claim, quantity, place, step, edit in (
            ("C-10", "early: gamma at", "keyword", 100, lambda values: 0.5 * values),
            ("C-10", "early: gamma one", "mean", 100, lambda values: 5 * values),
            (
                "C-10",
                "end: gamma at the last place less one",
                "last",
                5000,
                lambda values: 0.5 * values,
            ),
            (
                "C-10",
                "end: gamma at the last place less the mean",
                "last",
                5000,
                lambda values: 0.1 * values,
            ),
            ("C-10", "end: gamma one place", "keyword", 5000, lambda values: 3 * values),
            ("C-10b", "last place less one", "last", 1000, lambda values: 0.5 * values),
            ("C-10b", "last place less the mean", "last", 1000, lambda values: 0.1 * values),
            ("C-10b", "gamma one place behind", "keyword", 1000, lambda values: 3 * values),
        )
    ),
    (
        "ktiw_limits",
        "C-11",
        "copying",
        change("copied", "test_accuracy", lambda values: 0.9 * values),
    ),
    (
        "ktiw_limits",
        "C-11",
        "permutation",
        change("permuted", "test_accuracy", lambda values: values + 0.68),
    ),
    (
        "ktiw_limits",
        "C-11b",
        "best A",
        change("permuted", "lexicon_agreement", lambda values: 0.2 * values),
    ),
    (
        "ktiw_limits",
        "C-11b",
        "attention accuracy",
        change("permuted", "attention_accuracy", lambda values: values + 0.6),
    ),
    (
        "ktiw_proxy",
        "C-1",
        "correlation",
        change(
            "rates_10000",
            "logit_rate",
            one_seed(lambda values: values + 0.1 * (values["id"] % 2)),
            "snapshot",
        ),
    ),
    (
        "ktiw_proxy",
        "C-1",
        "|logit rate",
        change("rates_10000", "logit_rate", lambda values: 1.06 * values, "snapshot"),
    ),
    (
        "ktiw_proxy",
        "C-1",
        "|probability rate",
        change(
            "rates_10000",
            "probability_rate",
            at_entry(lambda values: values + 0.1 * values.max(), 2, 3),
            "snapshot",
        ),
    ),
    (
        "ktiw_proxy",
        "C-1",
        "at most",
        change("rates_10000", "probability_rate", lambda values: 1.1 * values, "snapshot"),
    ),
    (
        "ktiw_proxy",
        "C-1",
        "at least",
        change("rates_10000", "probability_rate", lambda values: 0.9 * values, "snapshot"),
    ),
    ("ktiw_proxy", "C-1", "exponent", swap("rates_100", "rates_100000")),
    *(
        (
            "ktiw_proxy",
            "C-2",
            quantity,
            change(
                arm,
                "count_table",
                one_seed(at_entry(lambda values: values + 0.02 * values.max(), 2, column)),
                "snapshot",
            ),
        )
        for arm, quantity, column in (
            ("counts_permutations", "permutations: largest", 3),
            ("counts_choice", "larger set", 3),
            ("counts_mixture", "inside of a set", 3),
            ("counts_mixture", "across sets", 8),
        )
    ),
    (
        "ktiw_proxy",
        "C-2b",
        "permutations",
        change("proxy_permutations", "lexicon", told_apart, "snapshot"),
    ),
    ("ktiw_proxy", "C-2b", "mixture", change("proxy_mixture", "lexicon", told_apart, "snapshot")),
    (
        "ktiw_proxy",
        "C-2b",
        "larger set",
        change("proxy_choice", "lexicon", lambda values: values.clip(max=0.1), "snapshot"),
    ),
    (
        "ktiw_proxy",
        "C-3",
        "largest |attention",
        change(
            "counter_example", "attention", lambda values: values + 0.002 * (values["position"] - 1)
        ),
    ),
    (
        "ktiw_proxy",
        "C-3",
        "|probability",
        change("counter_example", "probability", lambda values: values + 0.002),
    ),
    (
        "ktiw_proxy",
        "C-3",
        "beta is largest",
        change("counter_example", "beta", reversed_along("position")),
    ),
    ("ktiw_proxy", "C-12s", "A(alpha, beta under", disagree("alpha_uniform")),
    ("ktiw_proxy", "C-12s", "beta of the proxy", disagree("uniform_proxy")),
    ("ktiw_proxy", "C-12s", "A(saliency", disagree("delta_uniform")),
    ("ktiw_proxy", "C-12s", "beta of another run", disagree("alpha_other_beta")),
    ("ktiw_proxy", "C-12t", "IBM Model 1", disagree("model_1_uniform")),
    ("values_first", "E-13", "Lu", change("lu", "norm", one_seed(lambda values: values**4))),
    (
        "values_first",
        "E-13",
        "Li",
        change("li", "displacement", one_seed(at_coordinate("part", "values", sets_out_last))),
    ),
    (
        "values_first",
        "E-13",
        "Snell",
        change("snell", "lexicon_agreement", one_seed(fails_until(60))),
    ),
    (
        "values_first",
        "E-13b",
        "half-rise of beta",
        change("snell", "lexicon_right", one_seed(fails_until(60))),
    ),
    (
        "values_first",
        "E-13c",
        "Li: ratio",
        change(
            "li",
            "displacement",
            one_seed(
                at_coordinate("start", 0.1, lambda values: sets_out_late(sets_out_late(values)))
            ),
        ),
    ),
    (
        "values_first",
        "E-13c",
        "Lu: ratio",
        change("lu", "norm", one_seed(lambda values: values**0.25)),
    ),
    (
        "values_first",
        "E-13d",
        "rise of attention",
        change("snell", "attention_accuracy", alike("words", 60.0)),
    ),
]


@pytest.mark.parametrize(("study", "claim"), CLAIMS, ids=[claim.id for _, claim in CLAIMS])
def test_a_record_with_the_phenomenon_keeps_every_claim(study, claim):
    judgement = claim.judge(sound(study))
    assert judgement.verdict == "holds", judgement.reason
    assert len(judgement.findings) == len(claim.checks)


@pytest.mark.parametrize(
    ("study", "claim", "quantity", "edit"),
    REFUTATIONS,
    ids=[f"{claim}: {quantity}" for _, claim, quantity, _ in REFUTATIONS],
)
def test_a_record_without_it_refutes_the_claim(study, claim, quantity, edit):
    judgement = claim_of(claim).judge(edit(sound(study)))
    assert judgement.verdict == "fails", judgement.reason
    assert [finding.verdict for finding in judgement.findings if quantity in finding.quantity] == [
        "fails"
    ]


def test_no_check_is_left_out():
    for study, claim in CLAIMS:
        broken = {
            quantity
            for where, name, quantity, _ in REFUTATIONS
            if (where, name) == (study, claim.id)
        }
        for check in claim.checks:
            assert any(quantity in check.quantity for quantity in broken), (
                f"{claim.id}: {check.quantity}"
            )


SAMPLED = [
    (study, claim) for study, claim in CLAIMS if any(check.seeds > 1 for check in claim.checks)
]
"""Claims about trainings; the others are about numbers that are computed without chance, and
cannot diverge.
"""
DIVERGED = [
    *(
        (study, one, arm)
        for study, one in SAMPLED
        for arm in dict.fromkeys(arm for check in one.checks for arm in check.arms)
    ),
    *(
        ("sen", claim, arm)
        for study, claim in CLAIMS
        if claim.id == "A-8"
        for arm in ("by_rate", "by_std")
    ),
]


@pytest.mark.parametrize(
    ("study", "claim", "arm"), DIVERGED, ids=[f"{claim.id}: {arm}" for _, claim, arm in DIVERGED]
)
def test_a_seed_that_diverged_keeps_no_bound(study, claim, arm):
    """An every-seed check fails by it; a mean cannot be taken."""
    record = sound(study)
    name = next(
        name
        for name in fnmatch.filter(record.arms, arm)
        if "diverged_at" in record.arms[name].trajectory
    )
    judgement = claim.judge(diverge(name)(record))
    resting = [check for check in claim.checks if arm in check.arms]
    expected = "fails" if any(check.every_seed for check in resting) else "undetermined"
    assert judgement.verdict == expected
    seeds = record.arms[name].trajectory.sizes["seed"]
    pooled = all("resample" in check.measure(record).dims for check in resting)
    assert ("seeds diverged" if pooled else f"1 of {seeds} seeds diverged") in judgement.reason


@pytest.mark.parametrize(("study", "claim"), SAMPLED, ids=[claim.id for _, claim in SAMPLED])
def test_two_seeds_are_too_few_for_any_claim(study, claim):
    record = sound(study)
    arms = {}
    for name, arm in record.arms.items():
        parts = {part: getattr(arm, part) for part in ("trajectory", "snapshot", "prediction")}
        cut = {
            part: data.isel(seed=slice(0, 2)) if "seed" in data.dims else data
            for part, data in parts.items()
        }
        arms[name] = dataclasses.replace(arm, **cut)
    judgement = claim.judge(dataclasses.replace(record, arms=arms))
    assert judgement.verdict == "undetermined"
    assert "2 seeds" in judgement.reason


def all_lost(record: Record, arm: str) -> Record:
    for seed in record.arms[arm].trajectory["seed"].values:
        record = diverge(arm, int(seed))(record)
    return record


def emptied(record: Record, arm: str) -> Record:
    """An arm that has no number at all, from the start on."""
    trajectory = record.arms[arm].trajectory
    blank = {name: values * np.nan for name, values in trajectory.items() if "step" in values.dims}
    left = dataclasses.replace(
        record.arms[arm],
        trajectory=trajectory.assign({**blank, "diverged_at": 0 * trajectory["diverged_at"]}),
    )
    return dataclasses.replace(record, arms={**record.arms, arm: left})


@pytest.mark.parametrize("study", RECORDS)
def test_figures_are_made_whatever_diverged(study):
    """Sound, with one seed lost, with all lost halfway, and with nothing left at all."""
    record = sound(study)
    first = next(iter(record.arms))
    names = [figure.name for figure in find_study(study).figures(record)]
    assert names
    assert len(set(names)) == len(names)
    for one in (
        diverge(first)(record),
        all_lost(record, first),
        emptied(all_lost(record, first), first),
    ):
        assert [figure.name for figure in find_study(study).figures(one)] == names
        assert all(
            judgement.verdict != "holds"
            for judgement in judged(one).values()
            if _rests_on(study, judgement.claim, first)
        )


def _rests_on(study: str, name: str, arm: str) -> bool:
    return any(
        fnmatch.filter([arm], pattern)
        for claim in find_study(study).claims
        if claim.id == name
        for check in claim.checks
        for pattern in check.arms
    )


def test_premises_that_a_record_cannot_answer_are_named():
    record = sound("sen")
    short = dataclasses.replace(
        record, config={**record.config, "long_steps": record.config["steps"]}
    )
    assert judged(short)["A-4"].verdict == "undetermined"
    assert "long_steps" in judged(short)["A-4"].reason
    without = dataclasses.replace(
        record, arms={name: arm for name, arm in record.arms.items() if not name.startswith("by_")}
    )
    assert judged(without)["A-8"].verdict == "undetermined"
    assert "by_rate was not run" in judged(without)["A-8"].reason


@pytest.mark.parametrize("arm", ["FC_lemma2", "FC_theorem2", "by_rate", "TL"])
def test_a_record_without_an_arm_is_judged_as_undetermined(arm):
    """A sweep leaves out the arms of theory: what rests on them has no verdict, and everything
    else has.
    """
    record = sound("sen")
    verdicts = judged(
        dataclasses.replace(
            record, arms={name: one for name, one in record.arms.items() if name != arm}
        )
    )
    resting = {
        "FC_lemma2": {"A-7b"},
        "FC_theorem2": {"A-4c"},
        "by_rate": {"A-8"},
        "TL": {"A-1", "A-2", "A-3", "A-4b", "A-5", "A-6", "A-7"},
    }
    assert {
        claim for claim, judgement in verdicts.items() if judgement.verdict == "undetermined"
    } == resting[arm]


def test_scores_that_never_rise_leave_the_gap_undetermined():
    """Corollary 1's gap is taken above a score of 0.05: a run too short to get there says
    nothing.
    """
    flat = change("FC TC TL by_rate by_std", "score", lambda values: 0.001 * values)
    verdicts = judged(flat(sound("sen")))
    assert {
        claim: verdicts[claim].verdict for claim in ("A-2", "A-3", "A-6", "A-8")
    } == dict.fromkeys(("A-2", "A-3", "A-6", "A-8"), "undetermined")


def test_arms_that_never_converge_are_infinitely_late():
    """KF and EF that never get there: TC converges before them. All never: no verdict."""
    never = change("KF EF", "loss", lambda values: values + 1)(sound("sen_synergy"))
    assert judged(never)["A-9"].verdict == "holds"
    assert judged(never)["A-9"].plain()["findings"][0]["value"] is None, "JSON has no infinity"
    assert (
        judged(change("TC", "loss", lambda values: values + 1)(never))["A-9"].verdict
        == "undetermined"
    )


ALONE: list[tuple[str, str, Edit]] = [
    (
        "topics_optima",
        "B-1",
        change("values_3", "entry_high", one_seed(lambda values: values + 1e-7)),
    ),
    ("topics_optima", "B-4", change("embeddings", "loss", one_seed(lambda values: values + 1e-6))),
    (
        "topics_optima",
        "B-5",
        change("ratio", "attention_ratio", one_seed(lambda values: 1.01 * values)),
    ),
    (
        "topics_two_stage",
        "B-9",
        change(
            "sgd_squared sgd_squared_default",
            "displacement",
            lambda values: values.where(values["part"] == "values", values**0.25),
        ),
    ),
    (
        "topics_attention",
        "B-11",
        change("adam_dirichlet", "pair_attention", one_seed(no_preference), "snapshot"),
    ),
    (
        "kernels_convergence",
        "D-1",
        change(
            "gaussian_values_4", "loss", trained_on(at_coordinate("D", 32.0, lambda x: 1e3 * x))
        ),
    ),
    (
        "kernels_convergence",
        "D-2",
        change("gaussian_values_1", "loss", at_coordinate("D", 4.0, lambda values: 1.01 * values)),
    ),
    (
        "kernels_stationary",
        "D-5",
        change("softmax_keys", "gradient_norm", one_seed(lambda values: values + 1e-9)),
    ),
    (
        "kernels_stationary",
        "D-6",
        change("gaussian_keys", "gradient_norm", steeper("key_scale", 1.0)),
    ),
    (
        "kernels_stationary",
        "D-8c",
        change("gaussian_phase", "loss", trained_on(lambda values: values + 0.5)),
    ),
    ("ktiw_copying", "C-4e", change("given", "test_accuracy", alike("learned_on", 60.0))),
    (
        "ktiw_copying",
        "C-6",
        change("by_words", "test_accuracy", at_coordinate("words", 80.0, fails_until(140))),
    ),
    (
        "ktiw_copying",
        "C-7",
        change(
            "uniform",
            "lexicon_agreement",
            at_coordinate("learned_on", 40.0, after(200, lambda _: 0.5)),
        ),
    ),
    ("ktiw_copying", "C-8", before_the_word),
    (
        "ktiw_limits",
        "C-10",
        change(
            "keywords", "word_logit", at_coordinate("place", "last", at_step(5000, lambda _: 0.0))
        ),
    ),
    (
        "ktiw_limits",
        "C-10b",
        change(
            "keywords", "word_logit", at_coordinate("place", "last", at_step(1000, lambda _: 0.0))
        ),
    ),
    ("ktiw_proxy", "C-12t", disagree("model_1_uniform")),
    ("values_first", "E-13b", change("snell", "lexicon_right", one_seed(fails_until(60)))),
]


@pytest.mark.parametrize(("study", "claim", "edit"), ALONE, ids=[claim for _, claim, _ in ALONE])
def test_one_changed_number_refutes_one_claim_and_leaves_the_others(study, claim, edit):
    assert {
        name
        for name, judgement in judged(edit(sound(study))).items()
        if judgement.verdict != "holds"
    } == {claim}


@pytest.mark.parametrize(
    ("changed", "unanswered", "reason"),
    [
        (
            {"step_share": 2.5},
            {"D-1", "D-2", "D-3", "D-4"},
            "a step of 2.5 times the largest that the theory allows",
        ),
        ({"sequences": 100}, {"D-1", "D-3"}, "no size with HD >= Nn was run"),
        ({"sequences": 1, "positions": 2}, {"D-2", "D-4"}, "no size with HD < Nn was run"),
        ({"heads": (3,)}, {"D-1", "D-2", "D-3", "D-4"}, "no arm 'softmax_"),
    ],
    ids=["step", "few features", "many features", "heads"],
)
def test_kernels_beyond_the_premise_are_not_judged(changed, unanswered, reason):
    record = sound("kernels_convergence")
    verdicts = judged(dataclasses.replace(record, config={**record.config, **changed}))
    assert {
        claim for claim, judgement in verdicts.items() if judgement.verdict == "undetermined"
    } >= unanswered
    for claim in unanswered:
        assert reason in verdicts[claim].reason
        assert verdicts[claim].findings == ()


@pytest.mark.parametrize(("claim", "arm"), [("D-1", "softmax_values_4"), ("D-3", "gaussian_all_1")])
def test_a_seed_that_diverged_with_other_heads_keeps_no_bound_either(claim, arm):
    """Theorem 1 is about all sizes that were run: a seed that diverged in one of them refutes
    the bound for it.
    """
    assert judged(diverge(arm)(sound("kernels_convergence")))[claim].verdict == "fails"


def test_values_that_reach_no_target_say_nothing_about_the_theorem():
    """D-5 is about targets that can be reached; with too few of those it has no verdict, and
    D-5b is refuted.
    """
    far = change("gaussian_keys", "reach_floor", lambda values: values + 0.2)(
        sound("kernels_stationary")
    )
    far = change("gaussian_keys", "loss", lambda values: values.clip(min=0.21))(far)
    verdicts = judged(far)
    assert verdicts["D-5"].verdict == "undetermined"
    assert "5 of 5 seeds do not meet the premise" in verdicts["D-5"].reason
    assert verdicts["D-5b"].verdict == "fails"
    assert verdicts["D-5c"].verdict == "holds"


def test_attention_that_never_moves_has_no_stages():
    """Exactly at 0 keys and queries stay where they are: there is no share of a way of length 0."""
    still = change(
        "sgd_squared", "displacement", lambda values: values.where(values["part"] == "values", 0.0)
    )
    verdicts = judged(still(sound("topics_two_stage")))
    assert {claim: verdicts[claim].verdict for claim in ("B-9", "B-12")} == {
        "B-9": "undetermined",
        "B-12": "undetermined",
    }
    assert "do not meet the premise" in verdicts["B-9"].reason


@pytest.mark.parametrize("missing", ["one_good", "all_bad"])
def test_heads_that_were_not_found_leave_nothing_to_be_judged(missing):
    """A search may end without enough good or bad heads: their models are then not run."""
    record = sound("ktiw_multihead")
    record = dataclasses.replace(
        record, arms={name: arm for name, arm in record.arms.items() if name != missing}
    )
    verdicts = judged(record)
    assert {claim: judgement.verdict for claim, judgement in verdicts.items()} == {
        "C-9": "undetermined",
        "C-9b": "holds",
        "C-9c": "undetermined",
        "C-9d": "undetermined",
    }
    assert (
        f"arm {missing} was not run: 4 good and 12 bad heads among 16 tried"
        in verdicts["C-9"].reason
    )
    curves, _ = find_study("ktiw_multihead").figures(record)
    assert len(curves.panels) == 2
    assert "Too few heads were found for: " in curves.caption


def test_runs_that_all_succeed_early_say_nothing_about_late_ones():
    judgement = claim_of("C-4d").judge(
        change("by_words", "test_accuracy", fails_until(50))(sound("ktiw_copying"))
    )
    assert judgement.verdict == "undetermined"
    assert "20 of 20 seeds do not meet the premise" in judgement.reason


def test_runs_that_never_succeed_are_infinitely_late():
    """Permutations that are never copied take longer; if the larger set never is, either, there
    is no ratio.
    """
    never = change("by_words", "test_accuracy", at_coordinate("words", 40.0, lambda _: 0.3))(
        sound("ktiw_copying")
    )
    judgement = claim_of("C-5").judge(never)
    assert judgement.verdict == "holds"
    assert judgement.plain()["findings"][0]["value"] is None, "JSON has no infinity"
    lost = change("by_words", "test_accuracy", lambda values: 0 * values)(never)
    assert claim_of("C-5").judge(lost).verdict == "undetermined"
