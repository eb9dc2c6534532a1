"""The studies of whole transformers: curvature of both kernels, roughness against closed forms, and
small real runs.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from every_record import RECORDS, assert_alike
from jax.flatten_util import ravel_pytree
from record_parts import change, checks_of, diverge, judged, on, plus, set_to, swap

from saccade.errors import ConfigError
from saccade.models.encoder import EncoderConfig
from saccade.models.kernels import KernelName
from saccade.probes.curvature import parted
from saccade.registry import find_study
from saccade.studies import kernels_landscape, kernels_training
from saccade.studies._encoders import (
    AT_SIZE,
    EPSILON,
    POSTERS,
    SMALL,
    TITLES,
    RelativeCurvature,
    contact_sheet,
)
from saccade.studies.kernels_landscape import bend, minima, negative_share
from saccade.tasks.arrays import Arrays
from saccade.train.lab import Lab
from saccade.train.members import initial_model

SIZES = {"small": SMALL, "paper": AT_SIZE}
TINY = dataclasses.replace(kernels_training.QUICK, seeds=2, steps=4, picture_steps=4, evaluations=2)

# -- matched curvature -----------------------------------------------------------------------------


def words(count: int) -> Arrays:
    random = np.random.default_rng(0)
    ids = random.integers(0, 5, (count, 6))
    return Arrays.of((ids, ids[:, 0] % 2), test=(ids[:4], ids[:4, 0] % 2))


@pytest.mark.parametrize("adam", [pytest.param(False, marks=pytest.mark.slow), True])
def test_relative_curvature_is_that_of_hessians_written_out(adam):
    """In the units of an optimiser that divides by p: the eigenvalues of H / sqrt(p_i p_j)."""
    with jax.enable_x64(True):
        task = words(8)
        model = initial_model(task, EncoderConfig(1, 1, 4, 2, kernel="gaussian"), 0)
        train = jax.tree.map(jnp.asarray, task.splits["train"])
        relative = RelativeCurvature(batch=4, batches=2, iterations=500, adam=adam)

        def largest(kernel: KernelName) -> float:
            built = initial_model(task, EncoderConfig(1, 1, 4, 2, kernel=kernel), 0)
            learned, rest = parted(built)
            flat, shaped = ravel_pytree(learned)

            def loss(weights, chosen):
                return eqx.combine(shaped(weights), rest).loss(train.examples(chosen))

            batches = np.asarray([[0, 2, 4, 6], [1, 3, 5, 7]])
            hessian = np.asarray(jax.jit(jax.hessian(loss))(flat, batches[0]))
            if adam:
                slopes = np.asarray([jax.jit(jax.grad(loss))(flat, one) for one in batches])
                divisor = np.sqrt((slopes**2).mean(0)) + EPSILON
                hessian = hessian / np.sqrt(np.outer(divisor, divisor))
            return float(np.linalg.eigvalsh(hessian)[-1])

        wanted = largest("gaussian") / largest("softmax")
        assert float(eqx.filter_jit(relative)(model, train)) == pytest.approx(wanted, rel=1e-6)
        assert abs(wanted - 1) > 0.01


def test_plain_softmax_is_the_unit():
    task = words(8)
    model = initial_model(task, EncoderConfig(1, 1, 4, 2), 0)
    found = eqx.filter_jit(RelativeCurvature(4, 2))(
        model, jax.tree.map(jnp.asarray, task.splits["train"])
    )
    assert float(found) == pytest.approx(1, rel=1e-5)


# -- roughness -------------------------------------------------------------------------------------

GRID = np.linspace(-1, 1, 31)
ACROSS, UP = np.meshgrid(GRID, GRID)


def test_a_bowl_has_one_minimum_and_no_negative_curvature():
    bowl = ACROSS**2 + 2 * UP**2
    assert minima(bowl) == 1
    assert negative_share(bowl) == 0
    # Second differences are 2 h^2 and 4 h^2, with h = 1/15; the range is 3.
    assert bend(bowl) == pytest.approx(6 / 15**2 / 3)


def test_a_saddle_is_negative_everywhere_and_has_no_minimum():
    for saddle in (ACROSS**2 - UP**2, ACROSS * UP):
        assert minima(saddle) == 0
        assert negative_share(saddle) == 1
        assert bend(saddle) == pytest.approx(0, abs=1e-14)


def test_waves_have_a_minimum_per_trough():
    """cos(3 pi x) + cos(3 pi y) has its troughs at +-1/3 and, on the edge, at +-1: 2 x 2 within."""
    waves = np.cos(3 * np.pi * ACROSS) + np.cos(3 * np.pi * UP)
    assert minima(waves) == 4
    assert 0.5 < negative_share(waves) < 0.9


def test_measures_work_on_stacked_planes_and_do_not_depend_on_the_scale():
    planes = np.stack([ACROSS**2 + UP**2, 5 + 1e3 * ACROSS * UP])
    assert minima(planes).tolist() == [1, 0]
    assert negative_share(planes).tolist() == [0, 1]
    np.testing.assert_allclose(bend(planes), bend(7 * planes - 3), atol=1e-14)


def test_a_plateau_has_no_strict_minimum():
    assert minima(np.zeros((5, 5))) == 0


# -- claims ----------------------------------------------------------------------------------------


def test_nothing_is_won_where_no_arm_learns():
    record = RECORDS["kernels_training"]()
    for arm in record.arms:
        record = change(arm, "test_accuracy", set_to(0.51))(record)
    judgements = judged(record)
    assert judgements.pop("D-9k").verdict == "fails", "the claim that Pathfinder is learned"
    assert {one.verdict for one in judgements.values()} == {"undetermined"}
    assert "no arm is above chance (0.55)" in judgements["D-9"].reason


def test_an_arm_whose_seeds_all_diverged_is_not_called_unlearned():
    record = RECORDS["kernels_training"]()
    for seed in range(5):
        record = diverge("text_sgd_gaussian", seed)(record)
    judgement = judged(record)["D-9"]
    assert judgement.verdict == "undetermined"
    assert "5 of 5 seeds diverged" in judgement.reason
    assert "chance" not in judgement.reason


def test_gaussian_attention_that_loses_to_plain_softmax_loses_to_the_best():
    record = RECORDS["kernels_training"]()
    for task, optimiser in POSTERS.items():
        record = change(f"{task}_{optimiser}_softmax", "test_accuracy", plus(0.3))(record)
    judgements = judged(record)
    assert judgements["D-9"].verdict == judgements["D-9d"].verdict == "fails"


def test_roughness_needs_a_model_that_has_learned():
    record = change("text_first", "test_accuracy", set_to(0.51))(RECORDS["kernels_landscape"]())
    judgement = judged(record)["D-10"]
    assert judgement.verdict == "undetermined"
    assert "IMDb as bytes: softmax is not above chance" in judgement.reason


def test_flat_planes_and_runs_that_diverge_say_nothing_about_roughness():
    record = RECORDS["kernels_landscape"]()
    flat = change("text_softmax text_gaussian", "plane_loss", set_to(0.7), "snapshot")(record)
    for broken in (flat, diverge("text_first")(record), diverge("text_gaussian")(record)):
        assert judged(broken)["D-10"].verdict == "undetermined"


@pytest.mark.parametrize(
    ("kernels", "verdict"),
    [(("softmax", "gaussian"), "holds"), (("gaussian", "softmax"), "fails")],
)
def test_two_measures_of_three_are_enough_and_one_is_not(kernels, verdict):
    """A bowl has more minima and bend than a saddle, which has more negative curvature."""
    record = RECORDS["kernels_landscape"]()
    query, key = (on(name, GRID, GRID) for name in kernels_landscape.MOVES)
    for kernel, plane in zip(kernels, (query**2 + key**2, query * key), strict=True):
        arms = " ".join(f"{task}_{kernel}" for task in TITLES)
        edit = change(
            arms, "plane_loss", lambda values, plane=plane: 0 * values + plane, "snapshot"
        )
        record = edit(record)
    assert judged(record)["D-10"].verdict == verdict


@pytest.mark.parametrize(
    ("study", "field", "value"),
    [
        ("kernels_training", "steps", 100),
        ("kernels_training", "held_out", 100),
        ("kernels_training", "picture_steps", 100),
        ("kernels_landscape", "draws", 1),
        ("kernels_landscape", "reach", 0.1),
    ],
)
def test_a_small_run_decides_nothing(study, field, value):
    """But for the claims that are about another size."""
    record = RECORDS[study]()
    small = dataclasses.replace(record, config=record.config | {field: value})
    size = {"picture_steps": "pathfinder"}.get(field, "")
    verdicts = {
        claim.id: judged(small)[claim.id].verdict
        for claim in find_study(study).claims
        if size in " ".join(arm for check in checks_of(claim) for arm in check.arms)
    }
    assert set(verdicts.values()) == {"undetermined"}
    assert "D-9" in verdicts or "D-10" in verdicts


@pytest.mark.parametrize("study", [kernels_training, kernels_landscape])
def test_each_preset_is_large_enough_for_its_own_claims(study):
    """Claims on reviews as words for `small`, those of the poster's tasks for `paper`."""
    for claim in study.CLAIMS:
        ours = {arm.partition("_")[0] for check in checks_of(claim) for arm in check.arms}
        wanted = {preset for preset, tasks in SIZES.items() if ours <= set(tasks)}
        assert claim.full_size is not None
        enough, _ = claim.full_size
        assert {name for name, config in study.PRESETS.items() if enough(config)} == wanted


def test_pictures_that_are_easier_do_not_decide_the_claims_of_the_poster():
    easier = kernels_training.Config(drawing=dataclasses.replace(TINY.drawing, size=32))
    assert not kernels_training.WHOLE[0](easier)


def test_steps_that_cannot_be_matched_decide_nothing():
    unit = "words_sgd_gaussian_matched"
    record = change(unit, "step_unit", set_to(-0.1))(RECORDS["kernels_training"]())
    judgements = judged(record)
    assert judgements["D-9g"].verdict == "undetermined"
    assert judgements["D-9f"].verdict == judgements["D-9j"].verdict == "holds"


def test_measures_that_are_equal_count_for_neither_kernel_on_reviews():
    record = RECORDS["kernels_landscape"]()
    alike = swap("words_softmax", "words_gaussian")(record)
    assert judged(alike)["D-10b"].verdict == "fails"
    record = dataclasses.replace(
        record, arms=record.arms | {"words_softmax": record.arms["words_gaussian"]}
    )
    assert judged(record)["D-10b"].verdict == "fails"


@pytest.mark.data
def test_reviews_are_bytes_or_the_first_words(real_data):
    config = dataclasses.replace(kernels_training.PRESETS["small"], chosen=("text", "words"))
    found: dict[str, Any] = {**config.tasks}
    for name, ids, longest in (("text", 258, config.length), ("words", config.vocabulary, 128)):
        assert found[name].vocabulary_size <= ids
        assert found[name].splits["train"].words.shape == (25_000, longest)
        assert found[name].splits["test"].size == config.held_out
    assert found["words"].vocabulary_size == config.vocabulary
    assert config.batch("words") == config.batch("text") == config.text_batch


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"chosen": ("images",)}, "chosen: got .*allowed: some of text, pathfinder"),
        ({"optimisers": ()}, "optimisers: got .*allowed: some of sgd, adam"),
        ({"optimisers": ("sgd",)}, "optimisers: got .*allowed: adam with pathfinder"),
        ({"remedies": ("none",)}, "remedies: got .*allowed: some of softmax_norm"),
        ({"sgd_rate": 0.0}, "sgd_rate"),
        ({"model": EncoderConfig(kernel="gaussian")}, "model: got .*allowed: softmax without"),
        ({"model": EncoderConfig(temperature=2.0)}, "model: got .*allowed: softmax without"),
    ],
)
def test_impossible_settings_are_refused(changes, said):
    with pytest.raises(ConfigError, match=said):
        dataclasses.replace(kernels_training.QUICK, **changes)


# -- runs ------------------------------------------------------------------------------------------


def test_both_studies_share_their_first_stage():
    shared = [field.name for field in dataclasses.fields(kernels_landscape.AbstractEncoderConfig)]
    for preset in kernels_training.PRESETS:
        one, other = (study.PRESETS[preset] for study in (kernels_training, kernels_landscape))
        assert all(getattr(one, name) == getattr(other, name) for name in shared)


def test_the_contact_sheet_shows_both_labels():
    sheet = contact_sheet("any", TINY)
    assert [panel.title for panel in sheet.panels] == ["one curve"] * 3 + ["two curves"] * 3


@pytest.mark.slow
def test_a_matched_arm_records_its_unit(lab: Lab):
    recipe = TINY.recipe("pathfinder", "adam", "gaussian_matched")
    matched = lab.train(recipe, TINY.seed_numbers).trajectory
    assert matched["step_unit"].dims == ("seed",)
    assert np.all(matched["step_unit"] > 0)
    assert abs(matched["step_unit"].values - 1).max() > 0.01
    assert matched["hessian_eigenvalue"].dims == ("seed", "step", "place")


@pytest.mark.slow
@pytest.mark.parametrize("study", [kernels_training, kernels_landscape])
def test_small_runs_look_like_records_made_by_hand(study, lab: Lab):
    names = ("seeds", "steps", "picture_steps", "evaluations")
    shared = {name: getattr(TINY, name) for name in names}
    name = study.STUDY.name
    record = find_study(name).run(dataclasses.replace(study.QUICK, **shared), lab)
    assert_alike(RECORDS[name](), record, record.arms)
    assert {one["verdict"] for one in record.verdicts.values()} == {"undetermined"}
    assert len(study.STUDY.drawn(record)) == len(study.figures(record.arms, study.QUICK))
