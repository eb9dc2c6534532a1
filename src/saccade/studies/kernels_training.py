"""Does a transformer train better with Gaussian attention? (Song, Han, Zhang, Ding & Hong 2024)

Two layers classify reviews, byte by byte, and pictures, pixel by pixel, with softmax or Gaussian
attention. The poster's curves have the Gaussian kernel above in accuracy and below in loss. Its
kernel is not normalised, so that equal rates are not equal steps: the comparison is made again at
matched curvature (rate x largest eigenvalue of the Hessian at the start; for Adam of the Hessian in
Adam's own units), and against the usual remedies for softmax: normalised queries and keys, and
other temperatures.

The poster's sizes need a GPU. The preset `small` asks the same of reviews as words, at a size that
two cores train in an hour, by claims of its own.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product

import xarray as xr

from saccade.core.study import Study, divergences
from saccade.data.pathfinder_images import Drawing
from saccade.figures.figure import Figure, Panel, curve, level
from saccade.judging.bound import Above, Below
from saccade.judging.claim import Check, Claim
from saccade.judging.premises import require_premise
from saccade.judging.statistics import Mean
from saccade.models.encoder import EncoderConfig
from saccade.records.record import Arm, Arms
from saccade.records.trajectory import at_place
from saccade.settings import require
from saccade.studies._encoders import (
    ARMS,
    AT_SIZE,
    LEARNED,
    OPTIMISERS,
    POSTERS,
    SMALL,
    TITLES,
    TRAINED_BY,
    AbstractEncoderConfig,
    contact_sheet,
)
from saccade.studies._kernels import PAPER
from saccade.studies._tables import table
from saccade.train.lab import Lab

NAMES = {
    "softmax": "softmax",
    "gaussian": "Gaussian",
    "gaussian_matched": "Gaussian, matched curvature",
    "softmax_norm": "softmax, normalised queries and keys",
    "softmax_sharp": "softmax, temperature 1/4",
    "softmax_soft": "softmax, temperature 4",
}
REMEDIES = ("softmax_norm", "softmax_sharp", "softmax_soft")
FEW = ("softmax", "gaussian", "gaussian_matched")
"""Arms of the optimiser that the poster does not have for a task."""
QUANTITIES = {"test_accuracy": "accuracy", "test_loss": "loss"}


@dataclasses.dataclass(frozen=True)
class Config(AbstractEncoderConfig):
    """Settings of the study."""

    optimisers: tuple[str, ...] = tuple(OPTIMISERS)
    """Optimisers: sgd and adam, or one of them. Pathfinder is trained with Adam alone."""
    remedies: tuple[str, ...] = REMEDIES
    """Remedies for softmax, with the poster's optimiser of a task; none: '()'."""

    def __post_init__(self):
        super().__post_init__()
        for field, known, least in (("optimisers", OPTIMISERS, 1), ("remedies", REMEDIES, 0)):
            fits = lambda given, known=known, least=least: (  # noqa: E731
                len(given) >= least and set(given) <= set(known)
            )
            require(self, field, f"some of {', '.join(known)}", fits)
        for task in self.chosen:
            some = TRAINED_BY[task]
            with_task = f"{' or '.join(some)} with {task}"
            require(
                self, "optimisers", with_task, lambda given, some=some: bool({*given} & {*some})
            )

    @property
    def places(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """The arms that are trained, by task and optimiser."""
        return {
            (task, optimiser): (*FEW, *(self.remedies if POSTERS[task] == optimiser else ()))
            for task, optimiser in product(self.chosen, self.optimisers)
            if optimiser in TRAINED_BY[task]
        }


def experiment(config: Config, lab: Lab) -> Arms:
    recipes = {
        f"{task}_{optimiser}_{arm}": config.recipe(task, optimiser, arm)
        for (task, optimiser), arms in config.places.items()
        for arm in arms
    }
    return lab.train(recipes, config.seed_numbers)


# -- measures --------------------------------------------------------------------------------------


def _area(arm: Arm, name: str) -> xr.DataArray:
    """The mean of a quantity along training: the area under its curve, per step."""
    values = arm.trajectory[name]
    steps = values["step"]
    return values.integrate("step") / float(steps[-1] - steps[0])


def _gap(
    name: str, ours: str, others: Sequence[str], place: str, arms: Arms, config: Config
) -> xr.DataArray:
    """The area of one arm less that of another, or of the best of several in each seed."""
    del config
    chosen = [arms[f"{place}_{arm}"] for arm in (ours, *others)]
    last = [at_place(arm.trajectory["test_accuracy"], -1).mean("seed") for arm in chosen]
    learned = xr.concat(last, "arm").max("arm") > LEARNED
    require_premise(
        bool(learned.any()),
        f"{_at(place)}: some arm is above chance ({LEARNED:g}) at the end",
        f"{_at(place)}: no arm is above chance ({LEARNED:g}) at the end",
    )
    areas = xr.concat([_area(arm, name) for arm in chosen[1:]], "other")
    best = areas.max("other") if name == "test_accuracy" else areas.min("other")
    found = (_area(chosen[0], name) - best).where(learned)
    unit = chosen[0].trajectory.get("step_unit")
    # Steps of a model whose Hessian had no positive eigenvalue cannot be matched.
    return found if unit is None else found.where(unit > 0)


def _last_accuracy(arm: str, arms: Arms, config: Config) -> xr.DataArray:
    del config
    return at_place(arms[f"pathfinder_adam_{arm}"].trajectory["test_accuracy"], -1)


def _at(place: str) -> str:
    task, optimiser = place.split("_")
    return f"{TITLES[task]}, {OPTIMISERS[optimiser]}"


def _checks(
    ours: str, others: Sequence[str], tasks: Sequence[str], optimisers: Mapping[str, str]
) -> tuple[Check, ...]:
    against = NAMES[others[0]] if len(others) == 1 else "the best softmax"
    return tuple(
        Check(
            f"area of test {what}, {NAMES[ours]} less {against}, {_at(place)}",
            partial(_gap, name, ours, tuple(others), place),
            Above(0.0) if name == "test_accuracy" else Below(0.0),
            tuple(f"{place}_{arm}" for arm in (ours, *others)),
        )
        for place in (f"{task}_{optimisers[task]}" for task in tasks)
        for name, what in QUANTITIES.items()
    )


OTHERS = {"text": "adam", "words": "adam"}
"""The optimiser that the poster does not have for a task."""
TEXT = ("text",)
WHOLE = (
    lambda config: (
        config.steps >= 20_000
        and config.picture_steps >= 15_000
        and config.length >= 1024
        and config.pictures >= 50_000
        and config.picture_batch >= 128
        and config.held_out >= 2000
        and config.model.dimension >= 64
        and config.drawing == Drawing()
        and set(AT_SIZE) <= set(config.chosen)
    ),
    "both tasks at their size, 20,000 steps on texts and 15,000 on pictures (preset paper)",
)
WORDS = (
    lambda config: (
        config.steps >= 2500
        and config.words >= 128
        and config.vocabulary >= 8000
        and config.held_out >= 2000
        and config.text_batch >= 32
        and config.model.layers >= 2
        and config.model.dimension >= 32
        and set(SMALL) <= set(config.chosen)
    ),
    "reviews of 128 words, and 2,500 steps (preset small)",
)
ORDER = "an order; the interval over seeds says whether it is beyond the differences between them"
KNOWN = (
    "the arms on text were trained before the setting of Pathfinder was chosen, so that their"
    " outcomes were known; a first run of Pathfinder at this setting was lost after 6,900 steps,"
    " of which training losses were seen"
)
MEMORISED = (
    "the pictures of Pathfinder are memorised: in 15,000 steps each of the 50,000 is seen 38 times,"
    " the training loss falls below ln 2 and the test loss rises above it. Whether more pictures"
    " would be learned is open"
)
_claim = partial(Claim, statistic=Mean(3), full_size=WHOLE)
_small = partial(Claim, statistic=Mean(3), full_size=WORDS)
SIZE = "ours; reviews as words, at a size for two cores"
CLAIMS = (
    _claim(
        "D-9",
        "With Gaussian attention a transformer has a higher test accuracy and a lower test loss"
        " along training than with softmax, at equal rates",
        "Song 2024, IMDb and Pathfinder",
        _checks("gaussian", ("softmax",), AT_SIZE, POSTERS),
        f"{ORDER}; as specified, undetermined if neither arm is above chance; {KNOWN}",
        paper="the Gaussian curves are above in accuracy and below in loss",
    ),
    _claim(
        "D-9b",
        "The same holds at matched curvature: if rate x largest eigenvalue of the Hessian at the"
        " start is that of softmax",
        "ours; the kernel that is not normalised has another scale at the start",
        _checks("gaussian_matched", ("softmax",), AT_SIZE, POSTERS),
        f"{ORDER}; {KNOWN}",
        reason="on texts the Gaussian kernel has the higher loss at matched curvature, and why is"
        f" open; {MEMORISED}",
    ),
    _claim(
        "D-9c",
        "On texts the same holds, at equal rates, with Adam, which the poster does not have for"
        " them",
        "ours; on Pathfinder nothing is learned with SGD",
        _checks("gaussian", ("softmax",), TEXT, OTHERS),
        f"{ORDER}; {KNOWN}",
        reason="with Adam softmax has the higher accuracy; why is open",
    ),
    _claim(
        "D-9d",
        "The same holds, at equal rates, against the best of softmax and its usual remedies:"
        " normalised queries and keys, or another temperature",
        "ours",
        _checks("gaussian", ("softmax", *REMEDIES), AT_SIZE, POSTERS),
        f"{ORDER}; the best of four in each seed, which favours softmax; {KNOWN}",
    ),
    _claim(
        "D-9e",
        "On texts the same holds at matched curvature with Adam",
        "ours; on Pathfinder nothing is learned with SGD",
        _checks("gaussian_matched", ("softmax",), TEXT, OTHERS),
        f"{ORDER}; {KNOWN}",
        reason="with Adam softmax has the higher accuracy; why is open",
    ),
    _claim(
        "D-9k",
        "At these settings Pathfinder is learned with softmax and with Gaussian attention",
        "ours; the comparison on Pathfinder presupposes it",
        tuple(
            Check(
                f"test accuracy at the end, {NAMES[arm]}, {_at('pathfinder_adam')}",
                partial(_last_accuracy, arm),
                Above(0.6),
                (f"pathfinder_adam_{arm}",),
            )
            for arm in ("softmax", "gaussian")
        ),
        "0.6: nine standard errors of 2,000 pictures above chance; the interval is over seeds",
        reason=MEMORISED,
    ),
    _small(
        "D-9f",
        "On reviews as words a transformer has a higher test accuracy and a lower test loss"
        " along training with Gaussian attention than with softmax, at equal rates of SGD",
        SIZE,
        _checks("gaussian", ("softmax",), SMALL, POSTERS),
        ORDER,
    ),
    _small(
        "D-9g",
        "On reviews as words the same holds at matched curvature",
        SIZE,
        _checks("gaussian_matched", ("softmax",), SMALL, POSTERS),
        ORDER,
    ),
    _small(
        "D-9h",
        "On reviews as words the same holds, at equal rates, with Adam",
        SIZE,
        _checks("gaussian", ("softmax",), SMALL, OTHERS),
        ORDER,
        reason="with Adam softmax is ahead, at the rate that was best for it on other seeds; why is"
        " open",
    ),
    _small(
        "D-9i",
        "On reviews as words the same holds, at equal rates of SGD, against the best of softmax and"
        " its usual remedies: normalised queries and keys, or another temperature",
        SIZE,
        _checks("gaussian", ("softmax", *REMEDIES), SMALL, POSTERS),
        f"{ORDER}; the best of four in each seed, which favours softmax",
        reason="softmax at a temperature of 1/4 has the best means of all arms in this record"
        " (exploratory); that the Gaussian kernel helps as a sharper softmax does is a guess",
    ),
    _small(
        "D-9j",
        "On reviews as words the same holds at matched curvature, with Adam",
        SIZE,
        _checks("gaussian_matched", ("softmax",), SMALL, OTHERS),
        ORDER,
    ),
)


# -- figures ---------------------------------------------------------------------------------------


def figures(arms: Arms, config: Config) -> Sequence[Figure]:
    places = ["_".join(place) for place in config.places]
    shown = {place: [arm for arm in ARMS if f"{place}_{arm}" in arms] for place in places}
    found = [
        _curves(arms, shown, "test_accuracy", "test accuracy", "accuracy", level_at=0.5),
        _curves(arms, shown, "test_loss", "test loss", "loss"),
        _curves(arms, shown, "hessian_eigenvalue", "largest eigenvalue of the Hessian", "hessian"),
        *(_areas(arms, shown, name, what) for name, what in QUANTITIES.items()),
    ]
    if "pathfinder" in config.chosen:
        found.append(contact_sheet("kernels_training", config))
    return found


def _curves(
    arms: Arms,
    shown: Mapping[str, Sequence[str]],
    name: str,
    label: str,
    file: str,
    level_at: float | None = None,
) -> Figure:
    panels = []
    for place, names in shown.items():
        lines = []
        for arm in names:
            values = arms[f"{place}_{arm}"].trajectory[name]
            values = values.isel(place=0, drop=True) if "place" in values.dims else values
            lines.append(curve(NAMES[arm], values))
        if level_at is not None:
            steps = arms[f"{place}_{names[0]}"].trajectory["step"]
            lines.append(level("chance", (0, float(steps[-1])), level_at))
        log = "log" if name == "hessian_eigenvalue" else "linear"
        panels.append(Panel(_at(place), "step", label, tuple(lines), y_scale=log))
    title = f"{label[0].upper()}{label[1:]} along training"
    caption = f"{title}: mean over seeds with the range."
    if name == "hessian_eigenvalue":
        caption += " Of the loss on a few training examples, without dropout."
    return Figure(f"kernels_training_{file}", title, caption, tuple(panels))


def _areas(arms: Arms, shown: Mapping[str, Sequence[str]], name: str, what: str) -> Figure:
    scale, unit, digits = (100, "%", 1) if name == "test_accuracy" else (1, "nat", 3)
    panels = []
    for place, names in shown.items():
        rows = {
            NAMES[arm]: [
                scale * _area(arms[f"{place}_{arm}"], name),
                scale * at_place(arms[f"{place}_{arm}"].trajectory[name], -1),
            ]
            for arm in reversed(names)
        }
        cells = table(unit, ["along training", "at the end"], rows, digits)
        panels.append(Panel(_at(place), "", "", (cells,)))
    caption = (
        f"Test {what}: its mean along training, which is the area under its curve per step, and at"
        " the end. Means over seeds with intervals."
    )
    title = f"Test {what}, areas under the curves"
    return Figure(f"kernels_training_{what}_areas", title, caption, tuple(panels))


DIVERGENCES = divergences(
    """
    model | 2 layers, dimension 64, hidden 128, 2 heads | none released; nearest: Skyformer | the
        same; a linear head behind the mean over positions | none known
    dropout of attention weights | not stated | 0.1 | none: fused attention has none | none known
    arithmetic | not stated | mixed precision | attention in bfloat16 where it is fused, else
        float32 | the record says which
    texts | length not stated | 4,000 bytes | the first 1,024 bytes | lower accuracy for all arms
    pictures | not stated | the Arena's hard ones, of which pixels of value 0 are padding | drawn
        anew (contours of 14 dashes), all pixels are attended to | none known
    batches | not stated | 32 texts, 128 pictures | the same | none
    optimiser | SGD for text, Adam for Pathfinder | Adam at 1e-4 and 2e-4, rise and fall of the rate
        | both for texts, Adam for Pathfinder; SGD at one rate, Adam at 1e-4 and 1e-3, constant
        after a rise | D-9c; with SGD, and with Adam at 2e-4, the training loss of Pathfinder stays
        at ln 2 for 20,000 steps of 64 pictures; at 1e-3 the pictures are memorised (D-9k)
    steps | not readable | 50,000 | 20,000 on texts, 15,000 on pictures | earlier curves
    preset small | none | none | four seeds; 128 words of each review, of a vocabulary of 8,000;
        dimension 32, hidden 64; SGD at 0.3, Adam at 3e-3, 2,500 steps | D-9f to D-9j are about
        it, D-9 to D-9e are not
    matched curvature | none | none | of the Hessian at the start; entries of gradients are cut at 1
        before the steps are rescaled | first steps of large gradients are not matched
    where curves of Pathfinder begin | not stated | tails 7 pixels apart, first dashes along the
        drawn direction | joints 7 apart, a margin before the tails; first dashes round the drawn
        direction | tails 5 to 9 apart
    rise of the rate | not stated | 80 steps (text), 312 | 312 | none known
    gradients, Adam's epsilon | not stated | entries at most 1, 1e-6 | the same | none
    bytes | not stated | 512 ids, most of them unused | those of the training texts | none
    initialisation | not stated | N(0, 0.02^2) for embeddings | N(0, 1 / inputs), embeddings N(0, 1)
        | the start of attention: queries and keys of norm sqrt(32) per head (preset small: 4)
    """
)

QUICK = Config(
    chosen=("pathfinder",),
    pictures=64,
    held_out=32,
    drawing=Drawing(size=16, contour=4, distractors=1, seed_distance=3.0),
    model=EncoderConfig(1, 2, 8, 16),
    picture_batch=4,
    warmup=5,
    steps=40,
    picture_steps=40,
    evaluations=4,
    curved=2,
    optimisers=("adam",),
    adam_share=10.0,
    remedies=(),
)
TWO_CORES = Config(
    seeds=4,
    chosen=SMALL,
    model=EncoderConfig(2, 2, 32, 64),
    steps=2500,
    evaluations=20,
    first_seed=3000,
    pictures=100_000,
    picture_batch=64,
)
"""An hour on two cores. (It has no pictures; their settings are those that its record names.)"""
PRESETS = {"quick": QUICK, "small": TWO_CORES, "paper": Config(first_seed=1000)}
ABOUT = ("kernels_training", "Does a transformer train better with Gaussian attention?", PAPER)
STUDY = Study(*ABOUT, PRESETS, experiment, CLAIMS, figures, divergences=DIVERGENCES)
