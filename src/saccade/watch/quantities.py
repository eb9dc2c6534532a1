"""What is measured of a watched run, in words. Nothing here needs PyTorch."""

import dataclasses

from saccade.records.attention_rows import REACH
from saccade.records.variable import Variable

NAME = "watched"
"""The study of such records (`saccade.across.watched`)."""
TITLE = "A run that was trained elsewhere"
PAPER = "none: measured with saccade.watch"
ARM = "run"
PER_HEAD = {
    "attention_entropy": ("entropy of attention, mean over queries", "nat"),
    "uniform_entropy": ("entropy of uniform attention, mean over queries", "nat"),
    "effective_keys": ("effective number of keys, 1 / sum p^2, mean over queries", "1"),
    "visible_keys": ("keys that a query may attend to, mean over queries", "1"),
    "largest_score": ("largest score of all queries and keys", "1"),
    "score_spread": ("standard deviation of a query's scores, mean over queries", "1"),
    "padding_mass": ("attention to padding, mean over queries", "1"),
    "future_mass": ("attention to later positions, mean over queries", "1"),
    "first_mass": ("attention to the first word, mean over queries", "1"),
    "own_mass": ("attention to the query's own position, mean over queries", "1"),
    "same_mass": ("attention to positions with the query's word, mean over queries", "1"),
    "mean_distance": ("mean distance of query and key, weighted by attention", "position"),
    "rounding_shift": ("share of attention that rounding of scores moves", "1"),
    "head_norm": ("norm of what the head adds, root mean square", "1"),
    "key_norm": ("root mean square norm of the visible keys, mean over queries", "1"),
    "key_spread": ("spread of the keys under attention, sd_p(k), root mean square", "1"),
    "score_reach": (f"{REACH}, root mean square", "1"),
    "value_signal": ("spread of what keys would change, sd_p(g), root mean square", "1"),
    "query_gradient": ("derivative of the loss by a query, root mean square", "1"),
    "query_alignment": ("alignment of g and keys, times the root of effective keys", "1"),
    "removed_loss": ("loss without the head", "nat"),
}
PER_LAYER = {
    "token_cosine": ("mean cosine of two tokens that enter the layer", "1"),
    "uniform_loss": ("loss with the layer's attention made uniform", "nat"),
}
PER_PART = {
    "part_norm": ("Frobenius norm of a weight matrix", "1"),
    "displacement": ("Frobenius norm of a weight matrix minus its start", "1"),
    "second_moment": ("root of Adam's mean squared gradient, over epsilon", "1"),
}
ALONE = {
    "loss": ("loss on the probe batch", "nat"),
    "training_loss": ("training loss: of the step, or the last that was logged before", "nat"),
}
ERROR = "_error"
"""Ending of the standard error over the probe's sequences."""
VARIABLES = (
    {name: Variable((), *texts) for name, texts in ALONE.items()}
    | {name: Variable(("layer",), *texts) for name, texts in PER_LAYER.items()}
    | {name: Variable(("layer", "part"), *texts) for name, texts in PER_PART.items()}
    | {name: Variable(("layer", "head"), *texts) for name, texts in PER_HEAD.items()}
)


@dataclasses.dataclass(frozen=True)
class WatchedRun:
    """What a record says of a run that was trained elsewhere."""

    model: str = ""
    """The class of the model."""
    parameters: int = 0
    causal: bool = False
    """Whether no query should see a later position."""
    rungs: dict[str, str] = dataclasses.field(default_factory=dict)
    """Layer -> how its attention was seen."""
    unseen: dict[str, str] = dataclasses.field(default_factory=dict)
    """Modules that look like attention and were not seen, with the reason."""
    notes: tuple[str, ...] = ()
    sequences: int = 0
    """Sequences of the probe batch, over which errors are taken."""
    source: str = ""
    """Where the weights came from."""
