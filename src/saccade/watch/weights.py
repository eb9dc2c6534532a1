"""The weight matrices of attention: which parameters make queries, keys, values and the output."""

import re
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn

from saccade.watch.capture import ROOT, clean

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

Weights = Mapping[str, Callable[[], Tensor]]
"""Part -> its matrix now."""


def weights_of(model: nn.Module, path: str, heads: int) -> Weights:
    """The matrices of the attention at a module's path; parts that are not recognised are left out.
    The output may stand beside the module, as in BERT.
    """
    module = _at(model, path)
    found: dict[str, Callable[[], Tensor]] = {}
    for owner in (module, *_around(model, path)):
        inside = owner is module
        for name, inner in owner.named_modules():
            if inside and name and "." not in name:
                _note(found, name, inner, heads)
            elif not inside and "output" not in found and _is_part("output", name, inner):
                found["output"] = _whole(inner)
        if owner is module:
            _of_multi_head(found, module)
        if "output" in found:
            break
    return found


def _at(model: nn.Module, path: str) -> nn.Module:
    """The module of a path without the names that wrappers add."""
    if path == ROOT:
        return model
    return next(one for name, one in model.named_modules() if clean(name) == path)


def _around(model: nn.Module, path: str) -> Iterator[nn.Module]:
    """The parent, if it is attention as well."""
    if "." in path:
        parent = _at(model, path.rpartition(".")[0])
        if re.search("atten|attn", type(parent).__name__, re.IGNORECASE):
            yield parent


def _matrix(inner: nn.Module) -> Tensor | None:
    weight = getattr(inner, "weight", None)
    return weight if isinstance(weight, Tensor) and weight.ndim == 2 else None


def _whole(inner: nn.Module) -> Callable[[], Tensor]:
    return lambda: inner.weight  # pyright: ignore[reportReturnType]


def _is_part(part: str, path: str, inner: nn.Module) -> bool:
    name = path.rpartition(".")[2]
    return _matrix(inner) is not None and _PATTERNS[part].fullmatch(name) is not None


def _note(found: dict[str, Callable[[], Tensor]], name: str, inner: nn.Module, heads: int) -> None:
    """Note the parts that a module within attention has, by its name."""
    for part in PARTS:
        if part not in found and _is_part(part, name, inner):
            found[part] = _whole(inner)
            return
    weight = _matrix(inner)
    if weight is None or not _ALL_THREE.fullmatch(name):
        return
    transposed = type(inner).__name__ == "Conv1D"  # GPT-2 keeps [inputs, outputs]
    rows, columns = weight.shape[::-1] if transposed else weight.shape
    if rows != 3 * columns:  # heads of keys are shared: which rows are whose is not known
        return
    by_head = name.lower() == "query_key_value"  # GPT-NeoX, BLOOM: [head, 3, part]
    for at, part in enumerate(PARTS[:3]):
        found[part] = _third(inner, at, transposed, heads if by_head else 1)


def _third(inner: nn.Module, at: int, transposed: bool, heads: int) -> Callable[[], Tensor]:
    def matrix() -> Tensor:
        weight: Tensor = inner.weight  # pyright: ignore[reportAssignmentType]
        weight = weight.T if transposed else weight
        return weight.unflatten(0, (heads, 3, -1))[:, at].flatten(0, 1)

    return matrix


def _of_multi_head(found: dict[str, Callable[[], Tensor]], module: nn.Module) -> None:
    """Of `nn.MultiheadAttention`, whose weights are parameters of its own."""
    if not isinstance(module, nn.MultiheadAttention):
        return
    if module.in_proj_weight is not None:
        for at, part in enumerate(PARTS[:3]):
            found[part] = lambda at=at: module.in_proj_weight.chunk(3)[at]
    else:
        for part in PARTS[:3]:
            found[part] = lambda part=part: getattr(module, f"{part[0]}_proj_weight")


def norms(weights: Weights, start: Mapping[str, Tensor]) -> tuple[list[float], list[float]]:
    """Frobenius norm of each part, and of its displacement from the start; NaN if not known."""
    sizes, moved = [], []
    for part in PARTS:
        if part not in weights:
            sizes.append(float("nan"))
            moved.append(float("nan"))
            continue
        now = weights[part]().detach().to("cpu", torch.float32)
        sizes.append(float(now.norm()))
        moved.append(float((now - start[part]).norm()))
    return sizes, moved


def copied(weights: Weights) -> dict[str, Tensor]:
    """The matrices as they are now, in memory of the host."""
    return {part: one().detach().to("cpu", torch.float32).clone() for part, one in weights.items()}
