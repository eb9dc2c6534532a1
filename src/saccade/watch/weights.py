"""The weight matrices of attention: which parameters make queries, keys, values and the output."""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from saccade.watch.capture import ROOT, Call, ProductCall, clean

PARTS = ("query", "key", "value", "output")
_NAMES = {
    "query": "q|query|q_proj|query_proj|q_lin|wq|w_q|to_q|q_attn|linear_q",
    "key": "k|key|k_proj|key_proj|k_lin|wk|w_k|to_k|linear_k",
    "value": "v|value|v_proj|value_proj|v_lin|wv|w_v|to_v|linear_v",
    "output": "o|out|o_proj|out_proj|out_lin|wo|w_o|to_out|c_proj|dense|proj|linear_out",
}
_PATTERNS = {part: re.compile(names, re.IGNORECASE) for part, names in _NAMES.items()}
_ALL_THREE = re.compile("qkv|qkv_proj|wqkv|w_qkv|c_attn|in_proj|query_key_value", re.IGNORECASE)
"""Queries, keys and values by one matrix."""
_CLOSE = 1e-3
"""How far values may be from those that a matrix makes, relative to the largest."""


@dataclasses.dataclass(frozen=True)
class Part:
    """A matrix: a parameter, or some of its rows."""

    owner: nn.Module
    name: str
    chosen: Callable[[Tensor], Tensor] = lambda whole: whole

    @property
    def parameter(self) -> Tensor:
        return getattr(self.owner, self.name)

    @property
    def matrix(self) -> Tensor:
        return self.chosen(self.parameter.detach())


Weights = Mapping[str, Part]


@dataclasses.dataclass(frozen=True)
class Sample:
    """Two positions that entered a layer, and their values, to see which weights made them."""

    tokens: Tensor
    """[position, feature]."""
    values: Tensor
    """[position, head x part]."""

    @staticmethod
    def of(call: Call) -> "Sample | None":
        if not isinstance(call, ProductCall) or call.tokens is None:
            return None
        if call.tokens.shape[1] != call.values.shape[2]:
            return None
        values = call.values.detach()[0, :, :2].transpose(0, 1).flatten(1)
        return Sample(call.tokens[0, :2].cpu().float(), values.cpu().float())

    def fits(self, part: Part) -> bool:
        """Whether the values are what a matrix, and the bias of its module, makes of the tokens."""
        matrix = part.matrix.cpu().float()
        if matrix.shape[1] != self.tokens.shape[1] or len(matrix) != self.values.shape[1]:
            return False
        found = self.tokens @ matrix.T
        # The bias may have any layout: it is the same for both positions.
        apart = (found - self.values).diff(dim=0).abs().max()
        return bool(apart <= _CLOSE * self.values.abs().max().clamp_min(1e-12))


def weights_of(model: nn.Module, path: str, heads: int, sample: Sample | None = None) -> Weights:
    """The matrices of the attention at a module's path; parts that are not recognised are left out.
    The output may stand beside the module, as in BERT. Rows of one matrix for all three are taken
    for what they seem if a sample confirms it (without one, only those of GPT-NeoX and BLOOM).
    """
    module = _at(model, path)
    if module is None:
        return {}
    found: dict[str, Part] = {}
    for name, inner in module.named_children():
        _note(found, name, inner, heads, sample)
    _of_multi_head(found, module)
    for parent in _around(model, path) if "output" not in found else ():
        outputs = [one for name, one in parent.named_modules() if _is_part("output", name, one)]
        found |= {"output": Part(outputs[0], "weight")} if outputs else {}
    return found


def _at(model: nn.Module, path: str) -> nn.Module | None:
    """The module of a path without the names that wrappers add; None if it is no module's."""
    if path == ROOT:
        return model
    return next((one for name, one in model.named_modules() if clean(name) == path), None)


def _around(model: nn.Module, path: str) -> Iterator[nn.Module]:
    """The parent, if it is attention as well."""
    parent = _at(model, path.rpartition(".")[0]) if "." in path else None
    if parent is not None and re.search("atten|attn", type(parent).__name__, re.IGNORECASE):
        yield parent


def _matrix(inner: nn.Module) -> Tensor | None:
    weight = getattr(inner, "weight", None)
    return weight if isinstance(weight, Tensor) and weight.ndim == 2 else None


def _is_part(part: str, path: str, inner: nn.Module) -> bool:
    name = path.rpartition(".")[2]
    return _matrix(inner) is not None and _PATTERNS[part].fullmatch(name) is not None


def _note(
    found: dict[str, Part], name: str, inner: nn.Module, heads: int, sample: Sample | None
) -> None:
    """Note the parts that a module within attention has, by its name."""
    for part in PARTS:
        if part not in found and _is_part(part, name, inner):
            found[part] = Part(inner, "weight")
            return
    weight = _matrix(inner)
    if weight is None or not _ALL_THREE.fullmatch(name):
        return
    transposed = type(inner).__name__ == "Conv1D"  # GPT-2 keeps [inputs, outputs]
    rows, columns = weight.shape[::-1] if transposed else weight.shape
    if rows != 3 * columns:  # heads of keys are shared: which rows are whose is not known
        return
    by_head = name.lower() == "query_key_value"  # GPT-NeoX, BLOOM: [head, 3, part]
    groups = heads if by_head else 1
    thirds = [Part(inner, "weight", _third(at, transposed, groups)) for at in range(3)]
    if by_head if sample is None else sample.fits(thirds[2]):
        found |= dict(zip(PARTS[:3], thirds, strict=True))


def _third(at: int, transposed: bool, groups: int) -> Callable[[Tensor], Tensor]:
    def chosen(whole: Tensor) -> Tensor:
        whole = whole.T if transposed else whole
        return whole.unflatten(0, (groups, 3, -1))[:, at].flatten(0, 1)

    return chosen


def _of_multi_head(found: dict[str, Part], module: nn.Module) -> None:
    """Of `nn.MultiheadAttention`, whose weights are parameters of its own."""
    if not isinstance(module, nn.MultiheadAttention):
        return
    for at, part in enumerate(PARTS[:3]):
        if module.in_proj_weight is not None:
            found[part] = Part(module, "in_proj_weight", _third(at, False, 1))
        else:
            found[part] = Part(module, f"{part[0]}_proj_weight")


def norms(weights: Weights, start: Mapping[str, Tensor]) -> tuple[list[float], list[float]]:
    """Frobenius norm of each part, and of its displacement from the start; NaN if not known."""
    sizes, moved = [], []
    for part in PARTS:
        now = weights[part].matrix.to("cpu", torch.float32) if part in weights else None
        sizes.append(float("nan") if now is None else float(now.norm()))
        moved.append(float("nan") if now is None else float((now - start[part]).norm()))
    return sizes, moved


def added_norms(output: Part, squares: np.ndarray) -> np.ndarray:
    """Root mean square norm of what each head adds: sqrt(tr(W_h M_h W_h^T)) for the mean outer
    product M_h of what it gives; NaN if the matrix does not fit the heads.
    """
    matrix = output.matrix.to("cpu", torch.float64).numpy()
    if type(output.owner).__name__ == "Conv1D":  # GPT-2 keeps [inputs, outputs]
        matrix = matrix.T
    heads, size = squares.shape[:2]
    if matrix.shape[1] != heads * size:
        return np.full(heads, np.nan)
    of_heads = matrix.reshape(len(matrix), heads, size)
    found = np.einsum("ohp,hpq,ohq->h", of_heads, squares, of_heads)
    return np.sqrt(np.maximum(found, 0.0))


def copied(weights: Weights) -> dict[str, Tensor]:
    """The matrices as they are now, in memory of the host."""
    return {part: one.matrix.to("cpu", torch.float32).clone() for part, one in weights.items()}
