"""Optimal transformers on documents about topics (Li, Li & Risteski 2023, results on the optima).

Theory against numerical optimisation. In the limit of long documents expectations are exact, so
gradient descent must reach the closed forms to many digits: the values (stage 1) with and without
weight decay, the embeddings, and the attention ratio (stage 2). Sampled documents then show how
well this carries over to finite data. Where no random number enters, there is one run.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from saccade.core.study import Study, divergences
from saccade.figures.figure import Figure, Line, Panel, curve, level
from saccade.judging.bound import Above, AtMost, Below
from saccade.judging.claim import Check, Claim
from saccade.judging.premises import require_premise
from saccade.judging.statistics import Deterministic, EverySeed
from saccade.models.one_layer_transformer import OneLayerTransformerConfig, uniform_curvature
from saccade.models.tied_attention import TiedAttentionConfig
from saccade.probes import topic_blocks
from saccade.records.record import Arm, Arms
from saccade.records.schedule import Logarithmic
from saccade.records.trajectory import only
from saccade.settings import over_sweeps, require_count, require_positive, with_sweep
from saccade.studies._documents import PAPER, DocumentSettings, corner, end_of
from saccade.studies._seeds import AbstractSeededConfig
from saccade.tasks.long_documents import LongDocumentQueries, LongDocuments
from saccade.tasks.topic_documents import Masking
from saccade.theory.attention_ratio import LOWER, UPPER, AttentionRatio, optimal_free_ratio
from saccade.theory.embedding_optimum import EmbeddingOptimum
from saccade.theory.value_optimum import ValueOptimum, least_norm_values, share_left
from saccade.train.batches import Fresh
from saccade.train.lab import Lab
from saccade.train.optimiser import Adam, GradientDescent
from saccade.train.recipe import Recipe

SETTINGS = (
    LongDocuments(10, 10, 4),
    LongDocuments(6, 4, 2, Masking(0.3, 0.2, 0.1)),
    LongDocuments(8, 3, 5, Masking(0.5, 0.1, 0.2)),
    LongDocuments(4, 6, 1, Masking(0.15, 0.1, 0.0)),
)
"""Further sizes and maskings for which the closed form of the values is checked."""
EXACT = ("values", *(f"values_{place}" for place in range(len(SETTINGS))))
DECAYS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
EMBEDDING_STARTS = (0.05, 0.3)
"""A small and a large initialisation; from the large one, the diagonal of E is heavy."""
RATIO_TOPICS = (10, 20, 50, 100)
RATIO_TOPICS_PER_DOCUMENT = (1, 2, 3, 5, 8)
GRID = ("T", "tau")


@dataclasses.dataclass(frozen=True)
class Config(AbstractSeededConfig):
    """Settings of the study."""

    documents: DocumentSettings = DocumentSettings()
    """Sizes and masking of the documents."""
    start_std: float = 0.1
    """Standard deviation of the values where they do not start at 0."""
    steps: int = 5000
    """Steps of gradient descent on the values; the step size is the inverse of the curvature."""
    embedding_rate: float = 0.3
    """Learning rate of the embeddings."""
    embedding_steps: int = 60000
    """Steps of gradient descent on the embeddings."""
    ratio_steps: int = 2000
    """Steps of Adam on the two numbers of tied attention."""
    document_size: int = 512
    """Words per sampled document."""
    batch_size: int = 16
    """Sampled documents per step."""
    sampled_steps: int = 2000
    """Steps on sampled documents."""

    def __post_init__(self):
        super().__post_init__()
        require_count(self, "steps", "embedding_steps", "ratio_steps")
        require_count(self, "document_size", "batch_size", "sampled_steps")
        require_positive(self, "start_std", "embedding_rate")


def experiment(config: Config, lab: Lab) -> Arms:
    return {**_values(config, lab), **_embeddings(config, lab), **_ratios(config, lab)}


def _values(config: Config, lab: Lab) -> Arms:
    """Stage 1, exactly: gradient descent on W_V under uniform attention."""
    documents = config.documents.long()
    uniform = OneLayerTransformerConfig(attention="uniform", start_std=0.0)
    random = dataclasses.replace(uniform, start_std=config.start_std)
    hidden = dataclasses.replace(documents, selected_hidden=True)
    decaying = with_sweep(uniform, "ridge", DECAYS, "decay")
    values = Recipe(
        documents,
        uniform,
        GradientDescent(1.0, curvature=uniform_curvature),
        config.steps,
        probes=(topic_blocks.ValueBlocks(),),
        at=Logarithmic(20),
    )
    with_table = dataclasses.replace(values, ends=(topic_blocks.ValueTable(),))
    recipes = {
        "values": with_table,
        "values_random": dataclasses.replace(with_table, model=random),
        "values_hidden": dataclasses.replace(values, task=hidden),
        "values_decay": dataclasses.replace(values, model=decaying),
    }
    for place, task in enumerate(SETTINGS):
        recipes[f"values_{place}"] = dataclasses.replace(values, task=task)
    arms = {}
    for name, recipe in recipes.items():
        arms |= lab.train({name: recipe}, config.seed_numbers if name == "values_random" else 1)
    return {
        name: arm.beside(ValueOptimum()).with_snapshot_of_one_seed() for name, arm in arms.items()
    }


def _embeddings(config: Config, lab: Lab) -> Arms:
    """Tied embeddings under uniform attention, with values fixed to the identity."""
    model = OneLayerTransformerConfig(embedding="trained", attention="uniform", values="identity")
    recipe = Recipe(
        config.documents.long(),
        with_sweep(model, "embedding_std", EMBEDDING_STARTS),
        GradientDescent(config.embedding_rate),
        config.embedding_steps,
        probes=(topic_blocks.Similarities(),),
        at=Logarithmic(30),
        ends=(topic_blocks.SimilarityTable(),),
    )
    arms = lab.train({"embeddings": recipe}, config.seed_numbers)
    return {
        name: arm.beside(EmbeddingOptimum()).with_snapshot_of_one_seed()
        for name, arm in arms.items()
    }


def _ratios(config: Config, lab: Lab) -> Arms:
    """Stage 2: tied attention over the values of stage 1, exactly for a grid of sizes, and on
    sampled documents, where a free table of scores is trained as well. On the grid one start is
    enough: it is near gamma = 1, not at it, where tau = 1 has its optimum.
    """
    grid = LongDocumentQueries(masking=config.documents.masking)
    grid = with_sweep(grid, "topics", RATIO_TOPICS, "T")
    grid = with_sweep(grid, "topics_per_document", RATIO_TOPICS_PER_DOCUMENT, "tau")
    ratio = Recipe(
        grid,
        TiedAttentionConfig(least_norm_values),
        Adam(0.02),
        config.ratio_steps,
        probes=(topic_blocks.AttentionOdds(),),
        at=Logarithmic(20),
    )
    size, exact = config.document_size, config.documents.queries()
    task = config.documents.finite(size, size, train_size=32, test_size=1)
    sampled = {
        f"sampled_{attention}": Recipe(
            task,
            OneLayerTransformerConfig(attention=attention, values=least_norm_values),
            Adam(0.02),
            config.sampled_steps,
            probes=(topic_blocks.AttentionOdds(),),
            at=Logarithmic(40),
            batches=Fresh(config.batch_size),
        )
        for attention in ("tied", "free")
    }
    arms = {"ratio": lab.train({"ratio": ratio}, 1)["ratio"].beside(AttentionRatio())}
    for name, arm in lab.train(sampled, config.seed_numbers).items():
        arms[name] = arm.beside(AttentionRatio(), task=exact)
    free = over_sweeps(lambda one: optimal_free_ratio(one)[0], exact)
    text = "gamma* if the weight of hidden keys is free as well"
    prediction = arms["sampled_free"].prediction
    prediction["free_attention_ratio"] = free.assign_attrs(long_name=text, units="1")
    return arms


# -- measures --------------------------------------------------------------------------------------


def _entry_error(arms: Arms, config: Config) -> xr.DataArray:
    """Largest distance of any entry of the values to the closed form."""
    errors: list[xr.DataArray] = []
    for arm in arms.values():
        for end in (arm.end["entry_low"], arm.end["entry_high"]):
            error = abs(end - arm.prediction["entry_mean"]).drop_vars(("step", "time"))
            errors.append(error.max([dim for dim in ("block", "decay") if dim in error.dims]))
    return xr.concat(errors, "arm", coords="minimal", compat="override").max("arm")


def _error_of(variable: str, arms: Arms, config: Config) -> xr.DataArray:
    """Distance of a variable at the end to its prediction, the largest over initialisations."""
    error = abs(only(arms).end[variable] - only(arms).prediction[variable])
    return error.max("embedding_std") if "embedding_std" in error.dims else error


_block_error = partial(_error_of, "block_difference")


def _path_error(arms: Arms, config: Config) -> xr.DataArray:
    """Largest distance, over steps, of the share of the blocks still missing to the theory's."""
    difference, final = (
        part["block_difference"] for part in (only(arms).trajectory, only(arms).prediction)
    )
    left = share_left(config.documents.long(), difference["step"])
    return abs(1 - difference / final - left).max("step")


def _ratio(name: str, arms: Arms, config: Config) -> xr.DataArray:
    """A measure of gamma, the worst over the grid of sizes."""
    require_premise(
        config.documents.masking.kept != 0,
        "some selected words are shown unchanged (p_c > 0)",
        "no selected word is shown unchanged (p_c = 0), so attention has nothing to gain",
    )
    gamma = only(arms).end["attention_ratio"]
    return {
        "error": abs(gamma / only(arms).prediction["attention_ratio"] - 1).max(GRID),
        "growth with tau": _growth(gamma, "tau"),
        "growth with T": _growth(gamma.sel(tau=slice(1.5, None)), "T"),
        "over lower": (gamma / (LOWER * gamma["tau"])).min(GRID),
        "over upper": (gamma / (UPPER * gamma["T"])).max(GRID),
        "one topic": abs(gamma.sel(tau=1.0) - 1).max("T"),
    }[name]


def _growth(gamma: xr.DataArray, dim: str) -> xr.DataArray:
    """Smallest relative growth from one size to the next."""
    return (gamma.diff(dim) / gamma.isel({dim: slice(None, -1)}).values).min(GRID)


def _sampled_error(prediction: str, arms: Arms, config: Config) -> xr.DataArray:
    """Relative distance to gamma* of the mean ratio over the last eighth of training."""
    ratio = only(arms).trajectory["attention_ratio"]
    late = ratio.where(ratio["step"] > 0.875 * ratio["step"].max()).mean("step")
    return abs(late / only(arms).prediction[prediction] - 1)


_gamma_error = partial(_sampled_error, "attention_ratio")
_same_std = end_of("entry_std", block="same")
_LARGE = max(EMBEDDING_STARTS)
_largest_loss = end_of("loss", ["embedding_std"])
FROM_LARGE = "large initialisation: same topic less different topics, diagonal"
computed = partial(Claim, statistic=Deterministic(), prediction="0")
from_each_start = partial(Claim, statistic=EverySeed(5))
sampled = partial(Claim, prediction="0")

CLAIMS = (
    computed(
        "B-1",
        "Gradient descent on the values from 0, under uniform attention, converges to the"
        " block-constant closed form",
        "Li 2023, stage 1 theorem (the closed form is derived)",
        Check("largest |entry - closed form|, 5 settings", _entry_error, AtMost(1e-8), EXACT),
        "1e-8, as specified; in double precision the remainder is the distance to convergence",
        paper="block-wise",
    ),
    computed(
        "B-1b",
        "If selected positions are hidden, blocks differ by 1/v instead of 1/(v(1-(1-p_c)p_m))",
        "derived; the authors' code hides these positions, the theory does not",
        Check("|difference - 1/v|", _block_error, AtMost(1e-8), "values_hidden"),
        "1e-8, as for B-1",
    ),
    computed(
        "B-1c",
        "On the way, the blocks lack the share (1 - 2 rate lambda)^n of their difference after n"
        " steps, lambda = a^2 (T - tau) / (v tau T (T - 1)), a = 1 - (1 - p_c) p_m",
        "derived; Li 2023 gives no time for stage 1",
        Check("largest |share missing - theory| over steps", _path_error, AtMost(1e-8), "values"),
        "1e-8, as for B-1",
    ),
    from_each_start(
        "B-2",
        "From a random initialisation the block means differ by the same amount, but the blocks"
        " are not constant",
        "Li 2023, stage 1 theorem ('without weight decay: not strongly convex')",
        (
            Check("|difference of block means - 1/(v(1-(1-p_c)p_m))|", _block_error, AtMost(1e-8)),
            Check("standard deviation within the same-topic block", _same_std, Above(0.01)),
        ),
        "1e-8 and 0.01, as specified",
        paper="1/(v(1-(1-p_c)p_m))",
        prediction="0",
        arms="values_random",
    ),
    computed(
        "B-3",
        "With weight decay the minimiser is unique and solves a 3 x 3 system",
        "Li 2023, stage 1 ('weight decay makes the optima unique'; the system is derived)",
        Check("largest |entry - solution|, decays 1e-6 to 1e-2", _entry_error, AtMost(1e-10)),
        "1e-10, as specified",
        paper="unique",
        arms="values_decay",
    ),
    from_each_start(
        "B-4",
        "Under uniform attention, the mean dot product of optimal embeddings within a topic exceeds"
        " that across topics by 1/(v(1-(1-p_c)p_m))",
        "Li 2023, main result 1",
        (
            Check(
                "largest |difference (diagonal included) - theory|, two initialisations",
                partial(_error_of, "similarity_difference"),
                AtMost(1e-6),
            ),
            Check("largest excess loss at the end", _largest_loss, AtMost(1e-6)),
        ),
        "1e-6 for both, as specified",
        paper="1/(v(1-(1-p_c)p_m))",
        prediction="0",
        arms="embeddings",
    ),
    from_each_start(
        "B-4b",
        "Without the diagonal the order can reverse, so the average must include it",
        "derived; Li 2023, main result 1 only says 'average'",
        tuple(
            Check(f"{FROM_LARGE} {which}", end_of(name, embedding_std=_LARGE), bound)
            for which, name, bound in (
                ("left out", "similarity_off_diagonal", Below(0.0)),
                ("included", "similarity_difference", Above(0.0)),
            )
        ),
        "a sign",
        prediction="block sums are fixed, entries are not",
        arms="embeddings",
    ),
    computed(
        "B-5",
        "The optimal ratio of same-topic to other attention grows with tau and with T, and lies"
        " between 0.5 tau and T",
        "Li 2023, stage 2 theorem",
        tuple(
            Check(quantity, partial(_ratio, name), bound)
            for quantity, name, bound in (
                ("smallest relative growth of gamma with tau", "growth with tau", Above(0)),
                ("smallest relative growth of gamma with T, tau >= 2", "growth with T", Above(0)),
                ("smallest gamma / (0.5 tau)", "over lower", Above(1)),
                ("largest gamma / T", "over upper", Below(1)),
                ("|gamma - 1| for one topic per document", "one topic", AtMost(1e-3)),
            )
        ),
        "strict, and 1e-3 for one topic, as specified; lambda_1 = 0.5 and lambda_2 = 1 are read off"
        " a grid, because the slides do not give them",
        paper="between lambda_1 tau and lambda_2 T",
        prediction="gamma* of the exact loss",
        arms="ratio",
    ),
    computed(
        "B-5b",
        "The ratio that is found by descent is the minimum of the closed form",
        "derived; a check of B-5's numbers",
        Check("largest |gamma / gamma* - 1| over the grid", partial(_ratio, "error"), AtMost(1e-3)),
        "1e-3, as for B-5",
        arms="ratio",
    ),
    sampled(
        "B-6",
        "Gradient descent on sampled documents finds the same ratio, with tied attention and with a"
        " free table of scores",
        "Li 2023, stage 2 theorem",
        (
            Check("tied: |gamma / gamma* - 1|", _gamma_error, AtMost(0.1), "sampled_tied"),
            Check("free: |gamma / gamma* - 1|", _gamma_error, AtMost(0.1), "sampled_free"),
        ),
        "10 %, as specified; alpha and beta alone are not fixed if values are constant on blocks",
    ),
    sampled(
        "B-6b",
        "With a free table of scores, gamma is that of a free weight of hidden keys as well",
        "derived; B-6 with the optimum that a free table has",
        Check(
            "free: |gamma / (gamma* with free weight of hidden keys) - 1|",
            partial(_sampled_error, "free_attention_ratio"),
            AtMost(0.1),
            "sampled_free",
        ),
        "10 %, as for B-6",
    ),
)


def figures(arms: Arms, config: Config) -> Sequence[Figure]:
    return (
        _value_maps(arms, config),
        _embedding_maps(arms, config),
        _decay(arms),
        _ratio_curves(arms["ratio"], "tau", "T", "topics per document"),
        _ratio_curves(arms["ratio"], "T", "tau", "topics"),
        _sampled_curves(arms),
    )


def _value_maps(arms: Arms, config: Config) -> Figure:
    titles = {"values": "from 0: the closed form", "values_random": "from a random initialisation"}
    panels = []
    for name, title in titles.items():
        cells = corner(config.documents, arms[name].snapshot["value_table"], "entry")
        panels.append(Panel(title, "attended word", "output word", (cells,)))
    caption = (
        "The values W_V at the end of gradient descent; id 0 is the hidden word, followed by the"
        " words of the first topics. Both have the same difference of block means. One seed."
    )
    return Figure("topics_optima_values", "Optimal values encode topics", caption, tuple(panels))


def _embedding_maps(arms: Arms, config: Config) -> Figure:
    tables, panels = arms["embeddings"].snapshot["similarity_table"], []
    for start in EMBEDDING_STARTS:
        cells = corner(config.documents, tables.sel(embedding_std=start), "dot product")
        panels.append(Panel(f"initial scale {start:g}", "word", "word", (cells,)))
    caption = (
        "Dot products of embeddings at the end of gradient descent, from a small and from a large"
        " initialisation. From the large one the diagonal is heavy and the rest of a topic's block"
        " is below the other blocks; averages over whole blocks are the same."
    )
    title = "Optimal embeddings encode topics"
    return Figure("topics_optima_embeddings", title, caption, tuple(panels))


def _decay(arms: Arms) -> Figure:
    arm = arms["values_decay"]
    labels = {"same": "same topic", "other": "different topics", "hidden": "hidden word"}
    lines = []
    for block, label in labels.items():
        lines.append(curve(label, arm.end["entry_mean"].sel(block=block)))
        theory = arm.prediction["entry_mean"].sel(block=block)
        lines.append(curve("3 x 3 system", theory, "theory"))
    panel = Panel("entries of the values", "decay", "entry", tuple(lines), "log")
    caption = "Entries of the optimal values against weight decay: gradient descent, closed form."
    return Figure("topics_optima_decay", "Weight decay shrinks the blocks", caption, (panel,))


def _ratio_curves(arm: Arm, along: str, other: str, text: str) -> Figure:
    measured, theory = arm.end["attention_ratio"], arm.prediction["attention_ratio"]
    x, scale = measured[along].values, {"tau": LOWER, "T": UPPER}
    lines, bounds = [], [scale[along] * x]
    for value in measured[other].values:
        lines.append(curve(f"{other} = {value:g}", measured.sel({other: value})))
        lines.append(curve("gamma* of the exact loss", theory.sel({other: value}), "theory"))
        bounds.append(scale[other] * value * np.ones_like(x))
    lines += [Line("bounds 0.5 tau and T", x, bound, role="reference") for bound in bounds]
    x_scale, label = "log" if along == "T" else "linear", f"{text} ({along})"
    panel = Panel(f"against {text}", label, "gamma", tuple(lines), x_scale, "log")
    caption = (
        "The optimal ratio gamma of same-topic to other attention against the number of"
        f" {text}: gradient descent on the exact loss, and the minimum of its closed form."
    )
    title = "How much attention should prefer its own topic"
    return Figure(f"topics_optima_ratio_{along}", title, caption, (panel,))


def _sampled_curves(arms: Arms) -> Figure:
    tied, free = arms["sampled_tied"].trajectory, arms["sampled_free"].trajectory
    prediction, ends = arms["sampled_free"].prediction, (1.0, float(free["step"].max()))
    optima = [float(prediction[name]) for name in ("attention_ratio", "free_attention_ratio")]
    lines = (
        curve("tied attention", tied["attention_ratio"]),
        curve("free table of scores", free["attention_ratio"]),
        level("gamma*", ends, optima[0], "theory"),
        level("gamma*, weight of hidden keys free", ends, optima[1], "theory"),
    )
    panel = Panel("sampled documents", "step", "gamma", lines, "log")
    caption = "gamma during training on sampled documents; values are frozen at stage 1's optimum."
    title = "Sampled documents give the same ratio"
    return Figure("topics_optima_sampled", title, caption, (panel,))


DIVERGENCES = divergences(
    """
    weight decay | makes the optimum unique | adds a norm computed without a gradient: no effect on
        training | lambda ||W_V||_F^2 with its gradient | B-3: lambda = 1e-3 halves the blocks; in
        the code it has no effect
    selected positions | attended to | hidden as keys (attention mask = 1 - selected) | attended to;
        hidden in B-1b | the difference of blocks is 1/v instead of 1/(v(1-(1-p_c)p_m)): 0.1 instead
        of 0.1156
    loss of the theory | not stated in the slides | cross-entropy, or squared error on one-hot
        labels by a flag | squared error | the slides' difference follows from it
    embedding and decoder | tied | not tied | tied | B-4 is about tied ones
    tau = T | not excluded | not used (Dirichlet documents) | refused | every document then shows
        the same frequencies: excess 0 is reached without any blocks
    constants of stage 2 | lambda_1, lambda_2 | not used | 0.5 and 1, read off a grid | gamma*/tau
        falls below 1 with heavy masking, but stayed above 0.66 in 80 settings
    """
)

SIZES: Any = {"document_size": 256, "batch_size": 32, "sampled_steps": 500, "ratio_steps": 1500}
DESCENT: Any = {"embedding_rate": 0.5, "embedding_steps": 8000}
PRESETS = {
    "quick": Config(documents=DocumentSettings(5, 4, 2), **DESCENT, **SIZES),
    "paper": Config(32, 1000),
}
ABOUT = ("topics_optima", "Optimal values, embeddings and attention encode topics", PAPER)
MORE: Any = {"divergences": DIVERGENCES, "precision": "float64"}
STUDY = Study(*ABOUT, PRESETS, experiment, CLAIMS, figures, **MORE)
