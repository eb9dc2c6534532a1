"""Adaptive maps: refinement on known verdicts, and the command on a study that takes no time."""

import base64
import dataclasses
import gzip
import json
import re
import sys

import numpy as np
import pytest
import xarray as xr

from saccade import registry
from saccade.cli import main
from saccade.core.adaptive import UNKNOWN, Lattice, MapAxis, boundaries, refined
from saccade.core.adaptive_map import AdaptiveMap, _datasets_joined
from saccade.errors import ConfigError
from saccade.records.record import Arm, Record
from saccade.registry import find_study
from saccade.report.drawing import save_figure
from saccade.report.judged import counts, judged_claims
from saccade.report.page import render_page
from saccade.settings import Swept, swept_in

LATTICE = Lattice(64, 8)


def whole(verdict, lattice=LATTICE) -> np.ndarray:
    return lattice.table({point: verdict(*point) for point in lattice.every})


def mapped(verdict, lattice=LATTICE, most=None):
    return refined(lattice, lambda points: [verdict(*point) for point in points], most)


def line(column, row):
    return int(row > 20 + 0.5 * column)


def disc(column, row):
    return int((column - 30) ** 2 + (row - 33) ** 2 < 150)


def three(column, row):
    return 0 if column < 13 else 1 + int(row + column > 70)


def tongue(column, row):
    """Enters coarse squares through one edge only, between their corners."""
    return int(column < 29 and 18 <= row <= 22) or int(column < 4)


def map_of(record: Record) -> AdaptiveMap:
    found = AdaptiveMap.of(record)
    assert found is not None
    return found


# -- refinement, without training ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "most"), [(line, 430), (disc, 430), (three, 650), (tongue, 600)]
)
def test_the_boundary_is_exact_with_a_tenth_of_the_points(verdict, most):
    result = mapped(verdict)
    assert np.array_equal(LATTICE.filled(result.found), whole(verdict))
    assert sum(result.levels) == len(result.found) <= most < LATTICE.points / 6
    assert not result.lacking


def test_a_coarser_neighbour_is_split_where_a_point_on_their_edge_disagrees():
    lattice = Lattice(8, 2)

    def corner(column, row):
        """Differs at one corner of the first square, and at the middle of its right edge."""
        return int((column, row) in ((0, 0), (4, 2)))

    result = mapped(corner, lattice)
    leaves = lattice.leaves(result.found)
    assert (4, 0, 4) not in leaves, "its own corners agree, but a point on its edge does not"
    assert (4, 4, 4) in leaves
    assert (5, 2) in result.found
    assert np.array_equal(lattice.filled(result.found), whole(corner, lattice))


def test_an_island_within_a_coarse_square_is_not_seen_unless_a_known_point_meets_it():
    hidden = mapped(lambda column, row: int((column, row) == (3, 3)))
    assert len(hidden.found) == 81, "no point of the coarse lattice lies on it"
    seen = mapped(lambda column, row: int(abs(column - 8) + abs(row - 8) <= 1))
    assert seen.found[9, 8] == 1
    assert seen.found[10, 8] == 0
    finer = mapped(lambda column, row: int((column, row) == (3, 3)), Lattice(64, 64))
    assert finer.found[3, 3] == 1


def test_one_verdict_everywhere_needs_the_coarse_lattice_only():
    result = mapped(lambda column, row: 2)
    assert result.levels == (81,)
    assert (LATTICE.filled(result.found) == 2).all()
    assert boundaries(LATTICE.filled(result.found)) == []


def test_a_round_that_would_exceed_the_most_is_not_begun():
    free = mapped(line)
    result = mapped(line, most=200)
    assert result.levels == free.levels[:2]
    assert result.lacking == free.levels[2]
    assert len(result.found) <= 200
    filled = LATTICE.filled(result.found)
    assert not (filled == UNKNOWN).any(), "the nearest known corner says the rest"
    assert np.mean(filled == whole(line)) > 0.95
    with pytest.raises(ConfigError, match="at least 81"):
        mapped(line, most=80)


def test_the_same_verdicts_give_the_same_points_in_the_same_order():
    first, second = mapped(three), mapped(three)
    assert list(first.found) == list(second.found)


def test_boundaries_lie_between_verdicts_and_rings_close():
    ((x, y),) = boundaries(whole(disc))
    assert (x[0], y[0]) == (x[-1], y[-1])
    radius = np.hypot(x - 30, y - 33)
    assert np.all(np.abs(radius - 150**0.5) < 1)
    ((x, y),) = boundaries(whole(line))
    assert np.all(np.abs(y - 20.5 - 0.5 * x) <= 0.75)
    checkered = np.array([[0, 1], [1, 0]])
    assert sum(len(x) - 1 for x, _ in boundaries(checkered)) == 4, "a corner where four meet"


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_an_axis_finds_its_places_again(scale):
    axis = MapAxis("model.rate", 1e-3, 10.0, scale)
    values = axis.values(np.arange(65), 64)
    assert values[0] == 1e-3
    assert values[-1] == 10.0
    assert np.all(np.diff(values) > 0)
    assert np.array_equal(axis.places(values, 64), np.arange(65))
    assert axis.name == "rate"


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: MapAxis("rate", 2, 1, "linear"), "rate: got 2..1, allowed: two finite numbers"),
        (lambda: MapAxis("rate", 0, 1, "log"), "rate: got 0..1, allowed on a log axis"),
        (lambda: Lattice(48, 8), "side: got 48, allowed: a power of two"),
        (lambda: Lattice(4, 8), "coarse: got 8, allowed: at most the side, 4"),
    ],
)
def test_a_wrong_lattice_is_refused(make, told):
    with pytest.raises(ConfigError, match=re.escape(told)):
        make()


# -- the command -----------------------------------------------------------------------------------

TOY = """
import dataclasses

from saccade.judging.bound import AtMost
from saccade.judging.claim import Check, Claim
from saccade.train.optimiser import GradientDescent
from saccade.train.recipe import Recipe
from saccade.judging.statistics import EverySeed
from saccade.core.study import PredictedBoundary, Study
from saccade.settings import over_sweeps, require_positive
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.tasks.topic_sentences import TopicSentences


@dataclasses.dataclass(frozen=True)
class Config:
    seeds: int = 3
    rate: float = 0.1
    "Learning rate."
    steps: int = 4
    task: TopicSentences = TopicSentences.example()
    model: AttentionClassifierConfig = AttentionClassifierConfig(dimension=2)

    def __post_init__(self):
        require_positive(self, "rate")


def experiment(config, lab):
    recipe = Recipe(config.task, config.model, GradientDescent(config.rate), config.steps)
    return lab.train({"toy": recipe}, config.seeds)


def fall(arms, config):
    loss = arms["toy"].trajectory["loss"]
    return loss.isel(step=-1) / loss.isel(step=0)


def expected(config):
    return ["holds" if rate > 1 else "fails" for rate in over_sweeps(float, config.rate).values]


CLAIMS = (
    Claim("T-1", "The loss falls", "none", Check("fall of the loss", fall, AtMost(0.9)), "none",
          arms="toy", statistic=EverySeed(3)),
    Claim("T-2", "Not run", "none", Check("fall", fall, AtMost(0.9)), "none", arms="absent"),
    Claim("T-3", "Large", "none", Check("fall", fall, AtMost(0.9)), "none", arms="toy",
          full_size=(lambda config: config.steps > 100, "101 steps")),
)
BOUNDARIES = {"T-1": PredictedBoundary("rates above 1", expected)}
STUDY = Study("toy_map", "A toy", "none", {"quick": Config()}, experiment, CLAIMS,
              boundaries=BOUNDARIES)
"""
AXES = ["--x", "rate=1e-2..10", "--y", "embedding_std=1e-2..1"]
SMALL = [*AXES, "--claim", "T-1", "--finest", "8", "--coarse", "4"]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("map")
    (folder / "toy_map.py").write_text(TOY, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_loaded", {})
        patch.setattr(sys, "path", [*sys.path])
        patch.chdir(folder)
        sys.modules.pop("toy_map", None)
        yield folder
    sys.modules.pop("toy_map", None)


@pytest.fixture
def answer(capsys, workplace):
    def answered(*arguments):
        code = main(["map", "toy_map.py", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return answered


@pytest.fixture(scope="module")
def full(workplace):
    """The record of a map with its full lattice."""
    assert main(["map", "toy_map.py", *SMALL, "--full", "-o", "full"]) == 0
    (file,) = workplace.glob("full/*/record.nc")
    return find_study("toy_map.py"), Record.open(file), file


@pytest.mark.usefixtures("full")
def test_a_second_run_finds_everything_in_the_cache(answer, workplace):
    before = next(workplace.glob("full/*/figures/*.png")).read_bytes()
    code, out, _ = answer(*SMALL, "--full", "-o", "full")
    assert code == 0
    ((trained, cached),) = re.findall(r"(\d+) trainings, (\d+) from the cache", out)
    assert int(trained) == int(cached) > 1
    assert "the full lattice has 81" in out
    assert next(workplace.glob("full/*/figures/*.png")).read_bytes() == before


def test_the_record_is_judged_and_says_what_was_mapped(full):
    study, record, _ = full
    found = map_of(record)
    assert (found.x.path, found.y.path) == ("rate", "model.embedding_std")
    assert (found.x.scale, found.y.scale) == ("log", "log")
    assert len(set(found.points(record))) == 81 > sum(found.levels)
    first, *others = study.judge(record)
    assert len(first.cells) == 81
    assert {verdict for _, verdict, _ in first.cells} == {"holds", "fails"}
    assert all(one.verdict == "undetermined" and "map of T-1" in one.reason for one in others)
    assert record.verdicts["T-1"]["cells"] == json.loads(json.dumps(first.plain()["cells"]))
    assert list(swept_in(study.config_of(record))) == ["map-cell"]


def test_the_record_keeps_only_what_its_claim_rests_on(full):
    _, record, _ = full
    assert set(record.arms["toy"].trajectory) == {"loss", "diverged_at"}
    assert not record.arms["toy"].snapshot.data_vars


def test_a_cell_has_the_number_of_a_run_with_its_values(full, lab):
    study, record, _ = full
    config = study.config_of(record)
    cell = 40
    alone = study.swept(study.config("quick"), {"rate": [config.rate.values[cell]]})
    alone = study.swept(alone, {"embedding_std": [config.model.embedding_std.values[cell]]})
    ratio = study.claims[0].checks[0].measure(study.run(alone, lab).arms, alone)
    mapped_ratio = study.claims[0].checks[0].measure(record.arms, config).isel({"map-cell": cell})
    np.testing.assert_allclose(np.ravel(ratio), mapped_ratio.values, rtol=1e-5)


def test_the_record_is_written_and_read_as_it_is(full, tmp_path):
    study, record, _ = full
    record.save(tmp_path / "again.nc.gz")
    again = Record.open(tmp_path / "again.nc.gz")
    assert again.config == record.config
    assert [one.plain() for one in study.judge(again)] == [
        one.plain() for one in study.judge(record)
    ]


def test_the_figure_compares_both_with_the_prediction(full, tmp_path):
    study, record, _ = full
    (figure,) = study.drawn(record)
    adaptive, whole_lattice = figure.panels
    labels = [mark.label for mark in whole_lattice.marks[1:]]
    assert "boundary, full lattice" in labels
    assert "predicted: rates above 1" in labels
    (theory,) = [mark for mark in adaptive.marks[1:] if mark.role == "theory"]
    assert np.allclose(theory.x, 10**0.1875, rtol=0.3), "halfway between the points around 1"
    regions = adaptive.marks[0]
    assert len(regions.x) == sum(map_of(record).levels)
    assert regions.kind.shape == (9, 9)
    assert "of the full lattice at 100.0% of its 81 points" in figure.caption
    assert [path.stat().st_size > 5000 for path in save_figure(figure, tmp_path)] == [True, True]


def test_the_page_shows_the_figure_and_no_table_of_cells(full):
    page = render_page([full[:2]])
    assert "Where T-1 holds, over rate and embedding_std" in page
    assert "fails in" in page
    assert "of 81 cells" in page
    assert "0.01 to 10, 81 values by map-cell" in page
    assert '<table class="map">' not in page
    (chart,) = {gzip.decompress(base64.b64decode(one)) for one in _charts(page)[1:]}
    assert b"boundary, adaptive" in chart


def _charts(page: str) -> list[str]:
    """The compressed charts, that of the card first."""
    return re.findall(r'class="specification">([^<]*)<', page)


def test_too_few_cells_stop_the_refinement_and_say_so(answer):
    code, out, _ = answer(*SMALL, "--cells", "30", "--json")
    about = json.loads(out)
    assert code == 0
    assert about["rounds"] == [25]
    assert about["lacking"] > 5
    assert about["agreement"] is None
    code, out, _ = answer(*SMALL, "--cells", "30")
    assert "stopped after round 1: the next needs" in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "--x: got nothing, allowed: NAME=LOW..HIGH"),
        (["--x", "rate=1"], "--x: got 'rate=1', allowed: NAME=LOW..HIGH"),
        (["--x", "rate=a..b"], "--x: got 'rate=a..b', allowed: NAME=LOW..HIGH"),
        ([*AXES[:2], "--y", "wrong=0..1"], "sweep wrong: no such number, allowed:"),
        ([*AXES[:2], "--y", "rate=1..2", "--claim", "T-1"], "y: got rate, which is x as well"),
        (["--x", "rate=10..1", *AXES[2:]], "rate: got 10..1, allowed: two finite numbers"),
        (["--x", "rate=0..1:log", *AXES[2:]], "rate: got 0..1, allowed on a log axis"),
        (["--x", "rate=-1..1", *AXES[2:], "--claim", "T-1"], "rate: got -1.0, allowed"),
        (["--x", "steps=1..50", *AXES[2:], "--claim", "T-1"], "steps: a whole number, allowed: a"),
        (AXES, "--claim: got nothing, allowed: T-1, T-2, T-3"),
        ([*AXES, "--claim", "T-9"], "--claim: got 'T-9', allowed: T-1, T-2, T-3"),
        ([*AXES, "--claim", "T-3"], "claim: got T-3, which needs 101 steps"),
        ([*SMALL, "--cells", "24"], "--cells: got 24, allowed: at least the 25"),
        ([*SMALL, "--finest", "9"], "--finest: got 9, allowed: a power of two"),
        ([*SMALL, "--coarse", "16"], "--coarse: got 16, allowed: at most 8"),
        ([*SMALL, "--rate", "1"], "--rate: got a value and --x, allowed: one of them"),
        ([*SMALL, "--sweep", "rate=1"], "--sweep: no such option of saccade map"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.usefixtures("workplace")
def test_a_wrong_option_is_one_line_and_exit_code_two(arguments, told, answer):
    code, _, err = answer(*arguments)
    assert code == 2
    assert err.startswith(f"saccade: {told}")
    assert err.count("\n") == 1


@pytest.mark.usefixtures("workplace")
def test_a_claim_without_verdicts_per_cell_is_refused_after_the_first_round(answer):
    code, _, err = answer(*AXES, "--claim", "T-2", "--finest", "8", "--coarse", "4")
    assert code == 2
    assert "claim: T-2 has no verdict per cell: premise not met: arm absent was not run" in err


@pytest.mark.usefixtures("workplace")
def test_linear_axes_are_chosen_by_range_or_by_word(answer):
    narrow = ["--x", "rate=1..5", "--y", "embedding_std=1e-2..1:linear", "--claim", "T-1"]
    code, out, _ = answer(*narrow, "--finest", "2", "--coarse", "2", "--json")
    assert code == 0
    record = Record.open(json.loads(out)["record"])
    assert {map_of(record).x.scale, map_of(record).y.scale} == {"linear"}
    assert record.config["rate"]["values"][:3] == [1.0, 3.0, 5.0]


# -- the predicted boundary of sen -----------------------------------------------------------------


def test_the_boundary_of_sen_has_the_settings_of_the_paper_on_the_side_that_holds():
    study = find_study("sen")
    axes = MapAxis("rate", 1e-3, 10.0, "log"), MapAxis("model.embedding_std", 1e-3, 1.0, "log")
    wanted = AdaptiveMap("A-2", *axes, Lattice(4, 2))
    config = wanted.config_at(study.config("quick"), wanted.lattice.every)
    table = np.reshape(study.boundaries["A-2"].verdicts(config), (5, 5))
    assert table[0, 2] == "holds", "the paper's rate and variance: 0.1 and 1e-6"
    assert table[0, 0] == "undetermined", "no score rises in 2,000 epochs"
    assert (table[3:, 2:] == "fails").all(), "from a standard deviation of 0.18 on"


def test_scores_at_rest_are_found_by_the_rate_of_every_cell():
    """A-7 leaves out steps of the score below 1e-8: rate x velocity, by cell."""
    from saccade.studies import sen

    dims = ("cell", "seed", "step", "word")
    velocity = xr.DataArray(np.full((2, 1, 1, 1), 1e-7), dims=dims, coords={"cell": [0.0, 1.0]})
    trajectory = xr.Dataset({"score_velocity": velocity, "projection": velocity})
    arm = Arm(trajectory)
    agreement = sen._agreement(arm, Swept("cell", (0.0, 1.0), (0.01, 1.0)))
    assert np.isnan(agreement.values.ravel()).tolist() == [True, False]


# -- records of several rounds ---------------------------------------------------------------------


def round_of(cells: int, steps: int, missing: bool = False) -> xr.Dataset:
    """What a round leaves: a count per member, and the time of a step, which no cell changes."""
    dims = ("map-cell", "seed")
    data = {"count": ((*dims, "step"), np.ones((cells, 2, steps), int))}
    data |= {"not_trained": (dims, np.ones((cells, 2), bool))} if missing else {}
    axes = {"map-cell": np.arange(cells), "step": np.arange(steps)}
    return xr.Dataset(data, axes | {"time": ("step", 0.1 * np.arange(steps))})


def test_rounds_of_other_lengths_keep_their_times():
    joined = _datasets_joined([round_of(2, 3), round_of(1, 5)])
    np.testing.assert_allclose(joined["time"], 0.1 * np.arange(5))
    assert joined["count"].isel({"map-cell": 2}).notnull().all()
    assert np.isnan(joined["count"].isel({"map-cell": 0}).values[:, 3:]).all()
    same = _datasets_joined([round_of(2, 3), round_of(1, 3)])
    assert same["count"].dtype == int


def test_a_round_with_a_hole_joins_rounds_without_one():
    joined = _datasets_joined([round_of(2, 3), round_of(1, 3, missing=True)])
    assert joined["not_trained"].values.tolist() == [[False, False], [False, False], [True, True]]


def test_a_map_counts_once_and_only_for_its_claim(full):
    study, record, _ = full
    rows = judged_claims([(study, record), (study, record)])
    assert {row.claim.id for row in rows} == {"T-1"}
    assert {row.preset for row in rows} == {"quick, map of rate and embedding_std"}
    assert counts(rows) == []


def test_settings_may_be_named_map_and_cell(full):
    _, record, _ = full
    other = dataclasses.replace(record, config={"map": 3, "cell": 1.0})
    assert AdaptiveMap.of(other) is None
