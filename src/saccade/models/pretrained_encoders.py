"""Attention and embeddings of pretrained encoders on pairs of words with topics (Li, Li & Risteski
2023, their experiments on Wikipedia).

Attention is that of the model's eager implementation, as it gives it. Only safetensors and ONNX are
read: no pickle, and no code of an encoder's own.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
import xarray as xr
from torch import Tensor, nn

from saccade.data.encoders import FOLDER, WEIGHTS, EncoderPlace
from saccade.data.topic_model import (
    KINDS,
    OVERLAPS,
    UNKNOWN_WORD,
    Lists,
    membership,
    pair_kinds,
)
from saccade.errors import ConfigError, FileError, described
from saccade.stored_models import Checkpoint

Settings = Mapping[tuple[str, float], Lists]
"""Words of every topic, by overlap and threshold."""
MARKS = {"@-@": "-", "@,@": ",", "@.@": "."}
"""How WikiText writes marks within a word."""
HEADING = "="
"""What stands around a heading, and is left out."""
_DIMS = ("overlap", "threshold", "pair")


@dataclasses.dataclass(frozen=True)
class TextEncoder:
    """A model of text, and how words become its pieces."""

    model: nn.Module
    pieces: Callable[[Sequence[str]], list[list[int]]]
    """The ids of the pieces of every word."""
    unknown: int | None
    """The id of an unknown word."""
    ends: tuple[int, int]
    """Ids before and behind a text."""
    padding: int

    def encoded(self, words: Sequence[str], most: int) -> tuple[list[int], list[str]]:
        """The first pieces of a text, between its ends; and of each piece the word, in lower case,
        if the word is this piece alone (else empty).
        """
        shown = [MARKS.get(word, word) for word in words if word != HEADING][: most - 2]
        ids, owners = [self.ends[0]], [""]
        for word, pieces in zip(shown, self.pieces(shown), strict=True):
            ids += pieces
            owners += [word.lower() if self._is_whole(pieces) else ""] * len(pieces)
        ids, owners = ids[: most - 1], owners[: most - 1]
        return [*ids, self.ends[1]], [*owners, ""]

    def _is_whole(self, pieces: Sequence[int]) -> bool:
        return len(pieces) == 1 and pieces[0] != self.unknown

    def alone(self, words: Sequence[str]) -> dict[str, int]:
        """The ids of the words that are one piece."""
        pieces = zip(words, self.pieces(words), strict=True)
        return {word: some[0] for word, some in pieces if self._is_whole(some)}

    @property
    def embedding(self) -> Tensor:
        """The rows of the word embedding."""
        table: Any = self.model.get_input_embeddings()  # pyright: ignore[reportCallIssue]
        return table.weight.detach().float()


# -- models ----------------------------------------------------------------------------------------


def load_encoder(place: EncoderPlace) -> TextEncoder:
    """A pretrained encoder with its tokeniser."""
    try:
        return _loaded(place)
    except FileError as error:
        if place.is_folder:
            raise
        hint = f"or put its files into {FOLDER}/{place.name} below the folder of corpora"
        raise FileError(f"{error}; {hint}, or give {place.name}=FOLDER") from error


def _loaded(place: EncoderPlace) -> TextEncoder:
    checkpoint = Checkpoint(0, place.path, None if place.is_folder else "main")
    folder = Path(place.path)
    if place.is_folder and not (folder / WEIGHTS[0]).is_file():
        model = _of_onnx(checkpoint, folder / WEIGHTS[1])
    else:
        model = checkpoint.load()
    tokeniser = checkpoint.read(transformers.AutoTokenizer)
    first = tokeniser.cls_token_id if tokeniser.cls_token_id is not None else tokeniser.bos_token_id
    last = tokeniser.sep_token_id if tokeniser.sep_token_id is not None else tokeniser.eos_token_id
    if first is None or last is None:
        allowed = "a tokeniser with marks for the beginning and the end of a text"
        raise FileError(f"{place.path}: got a tokeniser without them, allowed: {allowed}")
    left_out = tokeniser.unk_token or tokeniser.mask_token

    def pieces(words: Sequence[str]) -> list[list[int]]:
        # A blank before a word makes it the beginning of one, for every kind of tokeniser.
        texts = [" " + (left_out if word == UNKNOWN_WORD else word) for word in words]
        return tokeniser(texts, add_special_tokens=False)["input_ids"] if texts else []

    padding = tokeniser.pad_token_id or 0
    return TextEncoder(_ready(model), pieces, tokeniser.unk_token_id, (first, last), padding)


def random_encoder(words: Sequence[str], seed: int, **sizes: Any) -> TextEncoder:
    """BERT with random weights, whose pieces are whole words; `sizes` are fields of its config."""
    special = 4
    numbers = {word: number for number, word in enumerate(dict.fromkeys(words), special)}
    config = transformers.BertConfig(vocab_size=special + len(numbers), **sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.BertModel(config)

    def pieces(words: Sequence[str]) -> list[list[int]]:
        return [[numbers.get(word.lower(), 1)] for word in words]

    return TextEncoder(_ready(model), pieces, 1, (2, 3), 0)


def _ready(model: nn.Module) -> nn.Module:
    model.set_attn_implementation("eager")  # pyright: ignore[reportCallIssue]
    return model.eval()


def _of_onnx(checkpoint: Checkpoint, file: Path) -> nn.Module:
    """A BERT model whose weights are those of an ONNX file, which has matrices transposed, and by
    the names of the operations that use them.
    """
    try:
        import onnx
        from onnx import numpy_helper
    except ImportError as error:
        need = "needs the package onnx: pip install 'saccade[onnx]'"
        raise ConfigError(f"{file}: to read it {need}, or put {WEIGHTS[0]} there") from error
    config = checkpoint.read(transformers.AutoConfig)
    if config.model_type != "bert":
        allowed = f"bert; of others {WEIGHTS[0]} is read"
        raise FileError(f"{file}: got a model of the type {config.model_type}, allowed: {allowed}")
    try:
        graph = onnx.load(str(file)).graph
    except Exception as error:  # protobuf raises errors of many kinds
        raise FileError(f"{file}: cannot be read: {described(error)}") from error
    stored = {one.name: one for one in graph.initializer}
    model = transformers.BertModel(config, add_pooling_layer=False)
    weights = {name: stored[name] for name in model.state_dict() if name in stored}
    found = {
        name: torch.from_numpy(numpy_helper.to_array(one).copy()) for name, one in weights.items()
    }
    for node in graph.node:
        matrices = [one for one in node.input if one in stored]
        if node.op_type == "MatMul" and matrices:
            path = node.name.strip("/").removesuffix("/MatMul").replace("/", ".")
            matrix = numpy_helper.to_array(stored[matrices[0]]).T.copy()
            found[f"{path}.weight"] = torch.from_numpy(matrix)
    absent = sorted(set(model.state_dict()) - set(found))
    if absent:
        raise FileError(f"{file}: has no weights for {absent[0]}, allowed: those of a BERT model")
    model.load_state_dict({name: found[name] for name in model.state_dict()})
    return model


# -- pairs -----------------------------------------------------------------------------------------


def topic_pairs(
    encoder: TextEncoder,
    articles: Sequence[Sequence[str]],
    settings: Settings,
    pieces: int = 128,
    batch_size: int = 8,
) -> xr.Dataset:
    """Mean cosine and dot product of embedding rows, over all pairs of words with a topic; mean
    cosine of what enters the first layer, and mean attention per layer and head, over all pairs of
    places of the articles.
    """
    found = _embedding_pairs(encoder, settings)
    sums: dict[str, Any] = {"attention": 0.0, "input": 0.0, "count": 0.0}
    for words, attention, inputs in _passes(encoder, articles, pieces, batch_size):
        kinds = _kinds(words, settings)  # setting and kind, pair of places
        unit = inputs / inputs.norm(dim=-1, keepdim=True)
        sums["attention"] += (attention.flatten(2) @ kinds.T).numpy().astype(float)
        sums["input"] += (kinds @ (unit @ unit.T).flatten()).numpy().astype(float)
        sums["count"] += kinds.sum(dim=1).numpy().astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        attention, inputs = (sums[name] / sums["count"] for name in ("attention", "input"))
    thresholds = sorted({threshold for _, threshold in settings})
    shape = (len(OVERLAPS), len(thresholds), len(KINDS))
    tables = {
        "topic_cosine": (_DIMS, found[0].reshape(shape)),
        "topic_dot": (_DIMS, found[1].reshape(shape)),
        "input_cosine": (_DIMS, inputs.reshape(shape)),
        "topic_attention": (
            ("layer", "head", *_DIMS),
            attention.reshape(*attention.shape[:2], *shape),
        ),
        "topic_places": (_DIMS, sums["count"].reshape(shape)),
    }
    axes = {"overlap": list(OVERLAPS), "threshold": thresholds, "pair": list(KINDS)}
    return xr.Dataset(
        {name: (dims, np.asarray(of, np.float32)) for name, (dims, of) in tables.items()}, axes
    )


def _embedding_pairs(encoder: TextEncoder, settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Mean cosines and dot products, by setting and kind."""
    table, cosines, dots = encoder.embedding.numpy().astype(float), [], []
    for _, lists in _ordered(settings):
        words = sorted({word for one in lists for word in one})
        ids = encoder.alone(words)
        kept = list(ids)
        vectors = table[list(ids.values())]
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        kinds = pair_kinds(np.arange(len(kept)), membership(lists, kept))
        for vectors_of, means in ((unit, cosines), (vectors, dots)):
            products = vectors_of @ vectors_of.T
            means += [products[kind].mean() if kind.any() else np.nan for kind in kinds]
    return np.asarray(cosines), np.asarray(dots)


def _ordered(settings: Settings) -> list[tuple[tuple[str, float], Lists]]:
    return sorted(settings.items(), key=lambda one: (OVERLAPS.index(one[0][0]), one[0][1]))


def _kinds(words: Sequence[str], settings: Settings) -> Tensor:
    numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
    ids = np.asarray([numbers[word] for word in words])
    rows = []
    for _, lists in _ordered(settings):
        rows += [kind.ravel() for kind in pair_kinds(ids, membership(lists, words))]
    return torch.from_numpy(np.asarray(rows, np.float32))


def _passes(
    encoder: TextEncoder, articles: Sequence[Sequence[str]], pieces: int, batch_size: int
) -> Iterator[tuple[list[str], Tensor, Tensor]]:
    """Of every article: the words of its pieces, attention [layer, head, query, key], and what
    enters the first layer [piece, feature].
    """
    encoded = [encoder.encoded(article, pieces) for article in articles]
    for start in range(0, len(encoded), batch_size):
        some = encoded[start : start + batch_size]
        longest = max(len(ids) for ids, _ in some)
        ids = torch.full((len(some), longest), encoder.padding)
        mask = torch.zeros_like(ids)
        for row, (one, _) in enumerate(some):
            ids[row, : len(one)] = torch.tensor(one)
            mask[row, : len(one)] = 1
        given: Any = {"input_ids": ids, "attention_mask": mask}
        body: Any = encoder.model
        if getattr(body.config, "is_encoder_decoder", False):
            body = body.get_encoder()
        with torch.no_grad():
            output = body(**given, output_attentions=True, output_hidden_states=True)
        layers = torch.stack([one.float() for one in output.attentions])
        inputs = output.hidden_states[0].float()
        for row, (one, words) in enumerate(some):
            length = len(one)
            yield words, layers[:, row, :, :length, :length].contiguous(), inputs[row, :length]
