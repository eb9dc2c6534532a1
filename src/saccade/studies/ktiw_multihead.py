"""Do many heads help by one good start among them? (Snell, Zhong, Klein & Steinhardt 2021, section
5.2 and figure 6)

On permutations a head either finds its way or not, and much of that is decided by its start. Heads
are drawn and tried alone, all else starting from one point; good and bad ones are then combined
into models of eight heads: all bad, one good, or any.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from saccade.core.claim import Check, Claim
from saccade.core.errors import ConfigError
from saccade.core.figure import Figure, HeatMap, Line, Panel
from saccade.core.lab import Lab
from saccade.core.optimiser import Adam
from saccade.core.record import Arm, Record
from saccade.core.schedule import Every
from saccade.core.statistics import difference_of_rates, over_all_seeds
from saccade.core.study import Divergence, Study
from saccade.core.sweep import Swept, require, require_count, require_single
from saccade.core.trajectory import at_place
from saccade.models.recurrence import CellName
from saccade.models.sequence_to_sequence import SequenceToSequenceConfig, Together, token_entropy
from saccade.probes.translation import READABLE, AttentionPlaces, TokenAccuracy
from saccade.studies.ktiw_copying import FULL_LENGTH, SUCCESS, ratio_of_medians, success_step
from saccade.tasks.copying import CopyingSettings

SCENARIOS = {"all_bad": "all heads bad", "one_good": "one head good", "random": "heads at random"}


@dataclasses.dataclass(frozen=True)
class Config(CopyingSettings):
    """Settings of the study."""

    seeds: int = 20
    """Repetitions of each scenario: models of several heads."""
    heads: int = 8
    """Heads of a model."""
    cell: CellName = "lstm"
    """lstm as in the text's model, or gru as in the released code."""
    together: Together = "sum"
    """How the heads' contexts go together: sum (the text) or mean (the released code)."""
    shared_embeddings: bool = True
    """Whether source and target words share their embeddings."""
    trials: int = 3
    """Streams of sequences on which a head is tried alone: it is good, or bad, if it is on all
    of them.
    """
    failure: float = 0.95
    """A head is bad on a stream if its accuracy at the end is below this: it has not succeeded
    (the text); 0.6 in the code.
    """
    pool: int = 20
    """Good heads and bad heads to be found, at least."""
    round_size: int = 40
    """Heads that are tried at once."""
    rounds: int = 4
    """Rounds after which the search ends, whatever it has found."""
    interval: int = 10
    """Steps between two evaluations."""

    def __post_init__(self):
        super().__post_init__()
        require_count(self, "heads", "trials", "pool", "round_size", "rounds", "interval")
        require_single(self, "the study's arms are themselves a sweep", "rate", "failure")
        require(self, "failure", "between 0 and 1", lambda value: 0 < value < 1)
        if self.budget < self.interval:
            raise ConfigError(
                f"budget: got {self.budget}, allowed: at least the interval, {self.interval}"
            )

    def model(self, starts: Sequence[float]) -> SequenceToSequenceConfig:
        """Heads of these numbers; everything else starts from one point."""
        return SequenceToSequenceConfig(
            self.hidden,
            self.cell,
            len(starts),
            self.together,
            shared_embeddings=self.shared_embeddings,
            base_start=0.0,
            head_starts=tuple(starts),
        )


def experiment(config: Config, lab: Lab) -> Mapping[str, Arm]:
    candidates = _tried(config, lab)
    good, bad = (candidates["head"].values[candidates[kind].values] for kind in ("good", "bad"))
    combinations = _combinations(config, good, bad)
    runs = np.arange(sum(len(rows) for rows in combinations.values()))
    starts = np.concatenate(list(combinations.values()))
    # One training for all scenarios: a run is a value of a sweep that chooses the heads and the
    # stream of sequences.
    stream = Swept("run", tuple(map(float, runs)), tuple(map(float, runs)))
    heads = [
        Swept("run", tuple(map(float, runs)), tuple(map(float, column))) for column in starts.T
    ]
    training = lab.train(
        config.copying(float(config.length), stream=stream),
        config.model(heads),
        Adam(config.rate),  # pyright: ignore[reportArgumentType]
        config.budget,
        (TokenAccuracy(), AttentionPlaces()),
        record=Every(config.interval),
        seeds=1,
        batch_size=config.batch_size,
        stream=True,
        loss=token_entropy,
        name=f"ktiw_multihead {config.heads} heads",
    )
    prediction = _at_least_one(candidates, config.heads)
    arms, begun = {"candidates": Arm(candidates, xr.Dataset(), xr.Dataset())}, 0
    for name, rows in combinations.items():
        chosen = training.trajectory.isel(seed=0, drop=True).isel(
            run=slice(begun, begun + len(rows))
        )
        chosen = chosen.rename(run="seed").assign_coords(seed=np.arange(len(rows)))
        chosen = chosen.assign(head_number=(("seed", "head_place"), rows.astype(float)))
        attributes = {"seconds": training.seconds / len(combinations), "digest": training.digest}
        theory = (prediction, "derived: 1 - (1 - p)^K") if name == "random" else (xr.Dataset(), "")
        arms[name] = Arm(chosen.assign_attrs(attributes), xr.Dataset(), *theory)
        begun += len(rows)
    return arms


def _tried(config: Config, lab: Lab) -> xr.Dataset:
    """Every head that was tried alone, with its accuracies, and whether it is good or bad."""
    rounds: list[xr.Dataset] = []
    found = xr.Dataset()
    for number in range(config.rounds):
        first = number * config.round_size
        starts = [float(head) for head in range(first, first + config.round_size)]
        head: float = Swept.over("head", starts)  # pyright: ignore[reportAssignmentType] (stands where a float stands)
        training = lab.train(
            config.copying(float(config.length)),
            config.model([head]),
            Adam(config.rate),
            config.budget,
            (TokenAccuracy(),),
            record=Every(config.interval),
            seeds=config.trials,
            batch_size=config.batch_size,
            stream=True,
            loss=token_entropy,
            name=f"ktiw_multihead heads {first} to {first + config.round_size - 1} alone",
        )
        rounds.append(
            training.trajectory.assign_attrs(seconds=training.seconds, digest=training.digest)
        )
        found = _judged(xr.concat(rounds, "head"), config)
        if min(int(found["good"].sum()), int(found["bad"].sum())) >= config.pool:
            break
    return found.assign_attrs(
        seconds=sum(one.attrs["seconds"] for one in rounds), digest=rounds[-1].attrs["digest"]
    )


def _judged(tried: xr.Dataset, config: Config) -> xr.Dataset:
    accuracy = tried["test_accuracy"]
    succeeded = (accuracy > SUCCESS).any("step")
    failed = (at_place(accuracy, -1) < config.failure) & ~succeeded
    return tried.assign(
        succeeded=succeeded.astype(float),
        good=succeeded.all("seed").assign_attrs(
            description="reached the accuracy of success on all streams"
        ),
        bad=failed.all("seed").assign_attrs(
            description="ended below the accuracy of failure on all streams"
        ),
    )


def _combinations(config: Config, good: np.ndarray, bad: np.ndarray) -> dict[str, np.ndarray]:
    """Numbers of the heads of every model; a scenario for which too few heads were found is left
    out.
    """
    random = np.random.default_rng(0)
    fresh = config.rounds * config.round_size  # heads that nobody has looked at
    rows = {
        "random": fresh + np.arange(config.seeds * config.heads).reshape(config.seeds, config.heads)
    }
    if len(bad) >= config.heads:
        rows["all_bad"] = np.stack(
            [random.choice(bad, config.heads, replace=False) for _ in range(config.seeds)]
        )
    if len(bad) >= config.heads - 1 and len(good):
        others = [random.choice(bad, config.heads - 1, replace=False) for _ in range(config.seeds)]
        rows["one_good"] = np.stack([np.append(other, random.choice(good)) for other in others])
    return rows


def _at_least_one(candidates: xr.Dataset, heads: int) -> xr.Dataset:
    """1 - (1 - p)^K: the chance that one of K heads would succeed alone."""
    alone = float(candidates["succeeded"].mean())
    rate = xr.DataArray(
        1 - (1 - alone) ** heads,
        attrs={"description": "chance that at least one head succeeds alone"},
    )
    return xr.Dataset(
        {
            "success_rate": rate,
            "alone": xr.DataArray(alone, attrs={"description": "success rate of one head"}),
        }
    )


# -- measures --------------------------------------------------------------------------------------


def _succeeds(name: str):
    return lambda record: (
        (record.arm(name).trajectory["test_accuracy"] > SUCCESS).any("step").astype(float)
    )


def _rescued(record: Record) -> xr.DataArray:
    return difference_of_rates(_succeeds("one_good")(record), _succeeds("all_bad")(record))


def _sooner(record: Record) -> xr.DataArray:
    return ratio_of_medians(
        success_step(record.arm("all_bad")), success_step(record.arm("one_good"))
    )


def looks(record: Record, name: str) -> xr.DataArray:
    """Whether the heads together give the right word, or one place behind it, more than half of one
    head's attention at the end.

    Recorded is the mean over heads, so one head that attends there gives 1/K; uniform attention
    over 40 words gives 2/41. In the committed record the values stand near 0.02, 1/8 and 2/8.
    """
    mass = (
        at_place(record.arm(name).trajectory["attention_mass"], -1)
        .sel(offset=READABLE)
        .sum("offset")
    )
    return (mass > 0.5 / record.config["heads"]).astype(float)


def _looks_more(record: Record) -> xr.DataArray:
    return difference_of_rates(looks(record, "one_good"), looks(record, "all_bad"))


def _beyond_luck(record: Record) -> xr.DataArray:
    """Success rate less 1 - (1 - p)^K; models and the heads from which p comes are resampled, a
    head with all its streams.
    """
    heads = record.config["heads"]
    alone = record.arm("candidates").trajectory["succeeded"].mean("seed").rename(head="seed")

    def beyond(succeeds: np.ndarray, alone: np.ndarray) -> float:
        return float(succeeds.mean() - (1 - (1 - alone.mean()) ** heads))

    models = _succeeds("random")(record)
    return over_all_seeds(beyond, models, alone).assign_attrs(seeds=models.sizes["seed"])


def _found(record: Record) -> str:
    """What the search for heads found, for models that could not be made."""
    candidates, heads = record.arm("candidates").trajectory, record.config["heads"]
    good, bad = (int(candidates[kind].sum()) for kind in ("good", "bad"))
    return (
        f"{good} good and {bad} bad heads among {candidates.sizes['head']} tried; models of {heads}"
        f" need {heads} bad ones, or {heads - 1} and a good one (--round-size, --rounds)"
    )


CLAIMS = (
    Claim(
        "C-9",
        "Models whose heads all start badly fail; one good head rescues them; at random they nearly"
        " always learn",
        "Snell 2021, section 5.2 and figure 6",
        (
            Check(
                "success rate, one head good less all heads bad",
                _rescued,
                ">=",
                0.5,
                ("one_good", "all_bad"),
                seeds=20,
                by_value=True,
                missing=_found,
            ),
            Check(
                "success rate, heads at random",
                _succeeds("random"),
                ">=",
                0.9,
                ("random",),
                seeds=20,
                by_value=True,
                rate=True,
            ),
        ),
        tolerance="0.5 and 0.9, as specified",
        paper="fail; learn; learn with very high probability",
        prediction="1 - (1 - p)^8, p = success rate of one head",
        full_size=FULL_LENGTH,
        expected="fails",
        reason=(
            "Eight heads that all fail alone succeed together, in all runs, though later than with"
            " a good one among them (C-9c). In the committed record most do so without attending to"
            " the words they copy, as single heads do later (C-4d); in the same experiment from"
            " another point (see C-9d) 13 of 20 do attend. A head that is bad alone need not be in"
            " company."
        ),
    ),
    Claim(
        "C-9b",
        "Models of random heads learn at least as often as one of their heads would alone",
        "Snell 2021, section 5.2 ('the probability that all initializations are bad is"
        " exponentially small')",
        (
            Check(
                "success rate, heads at random, less 1 - (1 - p)^K",
                _beyond_luck,
                ">=",
                -0.1,
                ("random", "candidates"),
                seeds=20,
                by_value=True,
            ),
        ),
        tolerance="0.1: two of twenty runs",
        paper="not stated",
        prediction="0",
        full_size=FULL_LENGTH,
    ),
    Claim(
        "C-9c",
        "With one good head models learn sooner than with none",
        "Snell 2021, section 5.2 and figure 6, of times",
        (
            Check(
                "median steps to success, all heads bad / one good",
                _sooner,
                ">",
                1.0,
                ("one_good", "all_bad"),
                seeds=20,
                missing=_found,
            ),
        ),
        tolerance="an order; runs that never succeed count as infinitely late",
        paper="one fails, the other learns",
        prediction="above 1",
        full_size=FULL_LENGTH,
    ),
    Claim(
        "C-9d",
        "One good head makes models attend to the words they copy; of models of bad heads few do,"
        " though they succeed",
        "beyond the paper: section 5.2 of Snell 2021, of attention instead of accuracy",
        (
            Check(
                "share of models with a head that attends to the right word, one head good less all"
                " heads bad",
                _looks_more,
                ">=",
                0.5,
                ("one_good", "all_bad"),
                seeds=20,
                by_value=True,
                missing=_found,
            ),
        ),
        tolerance=(
            "0.5, as for C-9; more than half of one head's attention at the end, one place behind"
            " counted. The measure was chosen after the committed record was seen: the argmax of"
            " the heads' mean attention, tried first, left 0.5 undetermined (0.65 [0.47, 0.83]) and"
            " does not tell whether a single head attends. It did not replicate: with everything"
            " else started from another point, and other heads, the same experiment gives 0.35"
            " [0.12, 0.57], below the bound"
        ),
        full_size=FULL_LENGTH,
    ),
)


# -- figures ---------------------------------------------------------------------------------------


def figures(record: Record) -> Sequence[Figure]:
    if record.sweeps:
        return ()
    return (_curves(record), _alone(record))


def _curves(record: Record) -> Figure:
    panels = []
    for name, title in SCENARIOS.items():
        if name not in record.arms:
            continue
        accuracy = record.arm(name).trajectory["test_accuracy"]
        lines = tuple(
            Line(title, accuracy["step"].values, accuracy.sel(seed=seed).values)
            for seed in accuracy["seed"].values
        )
        panels.append(
            Panel(
                f"{title}: {float(_succeeds(name)(record).mean()):.0%} succeed",
                "step",
                "token accuracy",
                lines,
            )
        )
    prediction = record.arm("random").prediction
    missing = [title for name, title in SCENARIOS.items() if name not in record.arms]
    caption = (
        f"Token accuracy of models of {record.config['heads']} heads on permutations, one line a"
        f" model. One head alone succeeds in {float(prediction['alone']):.0%} of its runs; at least"
        f" one of {record.config['heads']} would in {float(prediction['success_rate']):.1%}."
        + (f" Too few heads were found for: {', '.join(missing)}." if missing else "")
    )
    return Figure(
        "ktiw_multihead_curves",
        "Models of heads that are good or bad alone",
        caption,
        tuple(panels),
    )


def _alone(record: Record) -> Figure:
    candidates = record.arm("candidates").trajectory
    last = at_place(candidates["test_accuracy"], -1).transpose("seed", "head")
    cells = HeatMap(
        "accuracy at the end", candidates["head"].values, candidates["seed"].values, last.values
    )
    counts = [int(candidates[kind].sum()) for kind in ("good", "bad")]
    panel = Panel(
        f"{counts[0]} good, {counts[1]} bad of {candidates.sizes['head']}",
        "head",
        "stream of sequences",
        (cells,),
    )
    caption = (
        "Heads tried alone, each on several streams of sequences, with everything else starting"
        " from one point."
    )
    return Figure("ktiw_multihead_alone", "Heads on their own", caption, (panel,))


DIVERGENCES = (
    Divergence("recurrent cell", "LSTM", "GRU", "LSTM; GRU in the preset `code`", "see the preset"),
    Divergence(
        "heads' contexts",
        "summed",
        "averaged",
        "summed; averaged in the preset `code`",
        "see the preset",
    ),
    Divergence(
        "embeddings of source and target",
        "not stated",
        "apart",
        "shared; apart in the preset `code`",
        "see the preset",
    ),
    Divergence(
        "a head's start", "W", "score projection and context projection", "both", "as in the code"
    ),
    Divergence(
        "a bad head",
        "one that does not converge",
        "accuracy below 0.6 at the end, on 3 of 3 streams",
        "one that has not succeeded at the end, on 3 of 3 streams; 0.6 in the preset `code`",
        "with LSTM no head ends below 0.6 on all streams: those that fail are near 0.7 after 200"
        " steps",
    ),
    Divergence("runs a scenario", "20", "50", "20; 50 in the preset `code`", "narrower intervals"),
    Divergence(
        "random heads",
        "sampled independently",
        "from a pool of 30",
        "every model has its own",
        "runs are independent",
    ),
)

STUDY = Study(
    name="ktiw_multihead",
    title="Good and bad heads, alone and together",
    paper="Snell, Zhong, Klein & Steinhardt 2021",
    presets={
        "quick": Config(
            length=8,
            choice=12,
            seeds=8,
            heads=4,
            hidden=32,
            batch_size=32,
            rate=0.005,
            budget=110,
            long_budget=110,
            pool=1,
            round_size=8,
            rounds=2,
        ),
        "paper": Config(),
        "code": Config(
            cell="gru",
            together="mean",
            shared_embeddings=False,
            seeds=50,
            test_size=400,
            failure=0.6,
        ),
    },
    experiment=experiment,
    claims=CLAIMS,
    figures=figures,
    divergences=DIVERGENCES,
)
