"""Each fault by its number: beyond its bound it is there, within it is not; and the runs into which
it is planted have what they should.
"""

import ast
import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr

from saccade.across.planted import PLANTINGS
from saccade.across.setups import SEVERITY, copying, healthy
from saccade.contracts.probe import Moment
from saccade.diagnosis.bypassed import Bypassed
from saccade.diagnosis.catalogue import FAULTS, NUMBERED, causes, diagnose
from saccade.diagnosis.diverged import Diverged
from saccade.diagnosis.epsilon_swallows import EpsilonSwallows
from saccade.diagnosis.fault import by_layer, of_kind
from saccade.diagnosis.inactive_head import InactiveHead
from saccade.diagnosis.no_lexical_signal import NoLexicalSignal
from saccade.diagnosis.part_not_trained import PartNotTrained
from saccade.diagnosis.rank_collapse import RankCollapse
from saccade.diagnosis.saturated import Saturated
from saccade.diagnosis.scores_rounded import ScoresRounded
from saccade.diagnosis.softmax_blind import SoftmaxBlind
from saccade.diagnosis.values_first import ValuesFirst
from saccade.models.encoder import EncoderConfig
from saccade.records.record import Arm, Record
from saccade.settings import map_swept, swept_in
from saccade.train import optimiser

STEPS = np.asarray([0, 10, 20, 30, 40])
PER_HEAD = ("seed", "step", "layer", "head")
KNOBS: list[tuple[Any, Any]] = [
    (fault, PLANTINGS[type(fault)].severities) for fault in FAULTS if type(fault) in PLANTINGS
]


def run_of(seeds: int = 2, **variables: Any) -> xr.Dataset:
    """A run of two layers with two heads that learns; `variables` replace its numbers, by values
    that are broadcast to their dims.
    """
    sizes = {"seed": seeds, "step": len(STEPS), "layer": 2, "head": 2, "part": 3}
    dims: dict[str, tuple[str, ...]] = dict.fromkeys(
        ("score_spread", "visible_keys", "key_spread", "key_norm", "score_reach", "head_norm"),
        PER_HEAD,
    )
    dims |= dict.fromkeys(("rounding_shift", "removed_loss", "attention_entropy"), PER_HEAD)
    dims |= dict.fromkeys(("token_cosine", "uniform_loss"), PER_HEAD[:3])
    dims |= dict.fromkeys(("displacement", "part_norm"), ("seed", "step", "part"))
    dims |= dict.fromkeys(("loss", "lexicon_right", "lexicon_elsewhere"), ("seed", "step"))
    numbers: dict[str, Any] = {
        "score_spread": 0.5,
        "visible_keys": 16.0,
        "key_spread": 1.0,
        "key_norm": 1.0,
        "score_reach": 1.0,
        "head_norm": 1.0,
        "rounding_shift": 0.001,
        "removed_loss": 2.0,
        "attention_entropy": 1.0,
        "token_cosine": 0.3,
        "uniform_loss": 3.0,
        "displacement": 1.0,
        "part_norm": 4.0,
        "loss": np.asarray([3.0, 2.8, 1.0, 0.5, 0.2]),
        "lexicon_right": np.linspace(0.5, 0.6, seeds)[:, None],
        "lexicon_elsewhere": 0.4,
    }
    data = {
        name: (dims[name], np.broadcast_to(one, [sizes[dim] for dim in dims[name]]).copy())
        for name, one in (numbers | variables).items()
    }
    coordinates = {"seed": range(seeds), "step": STEPS, "part": ["values", "keys", "queries"]}
    return xr.Dataset(data, coordinates)  # pyright: ignore[reportArgumentType]


LATE = np.asarray([3.0, 2.9, 2.8, 2.7, 2.6])
"""A loss that has hardly fallen."""
MOVED = np.asarray([1.0, 0.02, 0.02])
SIGNS: dict[Any, tuple[dict[str, Any], dict[str, Any]]] = {
    ScoresRounded: ({"rounding_shift": 0.2}, {"rounding_shift": 0.09}),
    RankCollapse: ({"token_cosine": 0.96}, {"token_cosine": 0.94}),
    # sqrt(2 ln 16) is 2.35; a head that has learned to choose may be beyond.
    Saturated: ({"score_spread": 2.5, "loss": LATE}, {"score_spread": 2.5}),
    SoftmaxBlind: (
        {"key_spread": 0.005, "score_spread": 0.1},
        {"key_spread": 0.005, "score_spread": 0.2},
    ),
    ValuesFirst: ({"displacement": MOVED}, {"displacement": [0.1, 0.004, 0.003]}),
    Bypassed: ({"uniform_loss": 0.21, "whole": None}, {"uniform_loss": 0.21, "loss": LATE}),
    InactiveHead: (
        {"head_norm": [1.0, 0.02], "removed_loss": 0.2001},
        {"head_norm": [1.0, 0.02], "removed_loss": 0.3},
    ),
}


def of(kind: Any, **variables: Any) -> xr.Dataset:
    variables.pop("whole", None)
    run = run_of(**variables)
    if kind in (InactiveHead, Bypassed):
        return run.isel(step=slice(-1, None)) if kind is InactiveHead else run
    return run


@pytest.mark.parametrize("kind", SIGNS)
def test_a_fault_begins_at_its_bound(kind):
    beyond, within = SIGNS[kind]
    fault = kind()
    for given, expected in ((beyond, True), (within, False)):
        run = of(kind, **given)
        assert not fault.reason_not_to_check(run, {})
        present = fault.signs(run, {}).present
        last = present.isel(step=-1) if "step" in present.dims else present
        assert bool(last.any()) == expected, given


def test_a_sound_run_has_none():
    run = run_of()
    assert np.all(causes(run, {}) == 0)


def test_a_loss_that_ran_away_is_divergence():
    """Also while it is finite; the first step is named."""
    run = run_of(loss=np.asarray([3.0, 2.0, 400.0, 1e9, np.nan]))
    run["diverged_at"] = ("seed", [-1, 40])
    signs = Diverged().signs(run, {})
    assert signs.value.values.tolist() == [20, 40]
    expected = [[False, False, True, True, False], [False, False, True, True, True]]
    assert signs.present.transpose("seed", "step").values.tolist() == expected


def test_small_keys_are_blind_only_if_they_stay():
    """Keys that learn leave the neighbourhood of 0; those that do not are as good as none."""
    small: dict[str, Any] = {
        "key_spread": 1e-3,
        "key_norm": 1e-3,
        "score_reach": 1e-3,
        "score_spread": 0.01,
    }
    moving = run_of(**small)
    assert not SoftmaxBlind().signs(moving, {}).present.any()
    still = run_of(**small, displacement=[1.0, 0.0, 1.0])
    present = SoftmaxBlind().signs(still, {}).present
    assert present.isel(step=slice(1, None)).all()
    assert not present.isel(step=0).any()  # nothing has moved yet
    nothing: Any = small | {"key_norm": 0.0, "key_spread": 0.0, "score_reach": 0.0}
    none = run_of(**nothing)
    bare = none.drop_vars("displacement")
    assert SoftmaxBlind().signs(bare, {}).present.isel(step=slice(1, None)).all()
    growing = run_of(**small).drop_vars("displacement")
    growth = np.linspace(1, 2, 5)[None, :, None, None]
    growing = growing.assign({one: growing[one] * growth for one in ("key_spread", "key_norm")})
    assert not SoftmaxBlind().signs(growing, {}).present.any()
    unknown: Any = small | {"score_reach": np.nan}
    gaussian = run_of(**unknown, displacement=[1.0, 0.0, 1.0])
    assert not SoftmaxBlind().signs(gaussian, {}).present.any()


def test_faults_that_rest_on_the_loss_know_where_it_began():
    """A first loss that is small, or negative; one that is gone; a run that is measured late."""
    for first, last in ((1e-6, 2e-4), (-1.0, -5.0)):
        run = run_of(loss=np.linspace(first, last, 5))
        run["diverged_at"] = ("seed", [-1, -1])
        assert not Diverged().signs(run, {}).present.any()
    low = run_of(loss=np.asarray([3.0, 1.0, 0.5, 0.1, 1e-3]))
    low["second_moment"] = low["displacement"] * 0 + 0.5
    present = EpsilonSwallows().signs(low, {}).present
    assert present.isel(seed=0, part=0).values.tolist() == [True, True, True, True, False]
    late = run_of(score_spread=5.0, loss=LATE).isel(step=slice(1, None))
    why = Saturated().reason_not_to_check(late, {})
    assert why == "the first measurement is at step 10: what was learned before is not known"
    unknown = run_of(score_spread=5.0, loss=np.nan)
    assert Saturated().reason_not_to_check(unknown, {}) == "no loss in the record"


def test_layers_are_told_apart_in_paths():
    """One layer that waits is not hidden by another that does not."""
    names = [f"layers.{at}.attention.{part}" for at in (0, 1) for part in ("query", "key", "value")]
    moved = xr.DataArray([[0.001, 0.001, 1.0, 1.0, 1.0, 1.0]], dims=("step", "part"))
    moved = moved.assign_coords(part=names, step=[20])
    assert by_layer(moved).sizes == {"layer": 2, "step": 1, "part": 3}
    assert by_layer(moved, 3) is moved
    run = xr.Dataset({"displacement": moved, "part_norm": 0 * moved + 1})
    present = ValuesFirst().signs(run, {}).present
    assert present.isel(step=0).values.tolist() == [True, False]


def test_parts_are_known_by_their_names():
    names = [
        "layers.0.attention.query",
        "layers.0.attention.key",
        "layers.1.attention.value.weights",
    ]
    moved = xr.DataArray(np.arange(3.0), {"part": names}, ["part"])
    assert of_kind(moved, "query").values.tolist() == [0.0]
    assert of_kind(moved, "query", "key").values.tolist() == [0.0, 1.0]
    assert of_kind(moved, "value").values.tolist() == [2.0]
    bare = moved.assign_coords(part=["values", "keys", "queries"])
    assert of_kind(bare, "key").values.tolist() == [1.0]
    run = run_of().drop_sel(part="values")
    assert ValuesFirst().reason_not_to_check(run, {}) == "no displacement of the value weights"


def test_a_start_that_is_computed_again_may_differ_by_rounding():
    run = run_of(displacement=[1.0, 3e-7, 1.0])
    present = PartNotTrained().signs(run, {}).present
    assert present.sel(part="keys").values.tolist() == [[False, True, True, True, True]] * 2
    assert not present.sel(part="values").any()


def test_no_lexical_signal_is_one_of_all_seeds():
    fault, seeds = NoLexicalSignal(), 6
    around = np.exp(0.1 * np.asarray([-1, 1, -1, 1, -1, 1.0]))[:, None] * 0.4
    run = run_of(seeds, lexicon_right=around)
    present = fault.signs(run, {}).present
    assert present.dims == ("step",)
    assert present.values.tolist() == [False, True, True, True, True]  # nothing is learned at first
    assert not fault.signs(run_of(seeds, lexicon_right=1.2 * around), {}).present.any()
    worse = fault.signs(run_of(seeds, lexicon_right=0.1 * around), {}).present
    assert worse.isel(step=slice(1, None)).all()
    one_off = np.asarray([40.0] * 19 + [1e-20])[:, None]
    assert not fault.signs(run_of(20, lexicon_right=one_off), {}).present.any()
    assert fault.reason_not_to_check(run_of(2), {}) == "2 seeds, 5 needed"
    assert np.all(causes(run, {}) == 0)


def record_of(run: xr.Dataset) -> Record:
    arm = Arm(run)
    return Record("mine", "quick", {}, {"one": arm}, {}, "CPU", "float32", 0.0)


def test_every_cell_of_a_sweep_is_diagnosed():
    cells = [run_of(), run_of(token_cosine=0.99)]
    found = diagnose(record_of(xr.concat(cells, xr.Variable("depth", [1.0, 8.0]))))
    assert [one.title for one in found] == ["one (depth 1)", "one (depth 8)"]
    assert [len(one.found) for one in found] == [0, 1]
    assert found[1].plain()["cell"] == {"depth": 8.0}


def test_divergence_is_named_at_any_later_step():
    run = run_of()
    run = run.where(run["step"] <= 25)
    run["diverged_at"] = ("seed", [25, 25])
    for step in (None, 40, 30):
        (found,) = diagnose(record_of(run), step)
        assert [type(one.fault) for one in found.found] == [Diverged], step
    (found,) = diagnose(record_of(run), 20)
    assert not found.found


def test_faults_that_are_over_are_named_with_their_steps():
    """Three measurements in a row, in half of the seeds."""
    cosine = np.full((2, 5, 2), 0.3)
    cosine[:, 1:4, 1] = 0.99
    (found,) = diagnose(record_of(run_of(token_cosine=cosine)))
    assert not found.found
    (one,) = found.earlier
    assert isinstance(one.fault, RankCollapse)
    assert one.steps == (10, 30)
    assert one.where == "layer 1"
    cosine[:, 3, 1] = 0.3
    (found,) = diagnose(record_of(run_of(token_cosine=cosine)))
    assert not found.earlier


def test_every_fault_can_be_planted_or_is_information():
    assert {type(one) for one in FAULTS if type(one) not in PLANTINGS} == {
        type(one) for one in FAULTS if one.is_information
    }
    assert list(NUMBERED) == list(range(1, 1 + len(KNOBS)))


@pytest.mark.parametrize("fault", [one for one, _ in KNOBS], ids=lambda one: type(one).__name__)
def test_planted_runs_differ_by_their_severity(fault):
    """Every value makes a model, a task and an optimiser; at least one family can have it."""
    families: Any = ("encoder", "decoder", "documents")
    setups = [
        PLANTINGS[type(fault)].into(healthy(family, optimiser, "small"))
        for family in families
        for optimiser in ("adam", "sgd")
    ]
    setups = [one for one in setups if one is not None]
    assert setups
    for setup in setups:
        swept = swept_in(setup.task, setup.model, setup.optimiser)
        assert list(swept) == [SEVERITY]
        assert swept[SEVERITY].grid == PLANTINGS[type(fault)].severities
        full = map_swept(setup, lambda one: one.values[-1])
        model = jax.eval_shape(lambda full=full: full.model.build(full.task, jax.random.key(0)))
        assert jax.tree.leaves(model)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: type(one).__name__)
def test_lines_that_try_a_remedy_are_code(fault):
    """Ours make a config or an optimiser; those of PyTorch are at least a line of Python."""
    assert bool(fault.in_pytorch) == bool(fault.in_saccade)
    if fault.in_saccade:
        made = eval(
            fault.in_saccade, {**vars(optimiser), "EncoderConfig": EncoderConfig, "rate": 0.1}
        )
        assert dataclasses.is_dataclass(made)
        assert len(ast.parse(fault.in_pytorch).body) == 1


def test_planted_weights_are_those_that_were_asked_for():
    setup = healthy("encoder", "adam", "small")
    changes = {"query_key_scale": 3.0, "key_scale": 0.5, "key_offset": 2.0, "head_scale": 0.0}
    for field, value in changes.items():
        setup = setup.changed(setup.path(field), value)
    plain, model = (
        one.build(setup.task, jax.random.key(0)) for one in (setup.model.encoder, setup.model)
    )
    for before, after in zip(plain.layers, model.layers, strict=True):
        old, new = before.attention, after.attention
        np.testing.assert_allclose(new.query.weights, 3 * old.query.weights, rtol=1e-6)
        np.testing.assert_allclose(new.key.weights, 1.5 * old.key.weights, rtol=1e-6)
        np.testing.assert_allclose(new.key.bias, old.key.bias + 2)
    first, second = (layer.attention for layer in model.layers)
    assert np.all(np.asarray(first.value.weights)[:, :8] == 0)
    assert np.all(np.asarray(first.output.weights)[:8] == 0)
    np.testing.assert_allclose(second.value.weights, plain.layers[1].attention.value.weights)


@pytest.mark.parametrize("family", ["encoder", "decoder", "documents"])
def test_recorded_numbers_are_enough_for_every_fault_of_a_family(family):
    """By their shapes alone; what cannot be checked is another model's."""
    setup = healthy(family, "adam", "small")
    probes = setup.probes
    names = {name for probe in probes for name in probe.variables} | {"loss", "diverged_at"}
    lacking = {type(one) for one in NUMBERED.values() if not set(one.needs) <= names}
    others = {NoLexicalSignal} if family != "documents" else {NoLexicalSignal, Bypassed}
    assert lacking == others
    batch = setup.task.sample(jax.random.key(0), 4)

    def measured() -> Any:
        model = setup.model.build(setup.task, jax.random.key(1))
        moment = Moment(
            setup.task, model, batch, batch, lambda one, some: one.loss(some), lambda: model
        )
        return [probe(moment) for probe in probes]

    jax.eval_shape(measured)


def test_the_recurrent_model_records_its_lexical_probe():
    (probe,) = copying().probes
    assert set(NoLexicalSignal.needs) <= set(probe.variables)
