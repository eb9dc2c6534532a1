"""Small models with random weights of every family that is measured, with a probe batch."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="models of PyTorch need torch (extra `torch`)")
transformers = pytest.importorskip("transformers", reason="needs transformers (extra `torch`)")
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from saccade.watch import attention  # noqa: E402

torch.set_num_threads(1)  # models are tiny, and tests run side by side

WORDS, EXAMPLES, LENGTH, PADDED = 97, 3, 24, 5


def sentences(length: int = LENGTH, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Word ids and the mask; the second sentence ends with padding."""
    ids = torch.randint(3, WORDS, (EXAMPLES, length), generator=torch.Generator().manual_seed(seed))
    mask = torch.ones_like(ids)
    mask[1, -PADDED:] = 0
    ids[1, -PADDED:] = 1
    return ids, mask


def stronger(model: nn.Module, factor: float) -> nn.Module:
    """Larger weights, so that attention is far from uniform."""
    with torch.no_grad():
        for weights in model.parameters():
            if weights.ndim >= 2:
                weights.mul_(factor)
    return model


SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 4, "max_position_embeddings": 64}
SHARED: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 1}
SHORT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
NONE = {"bos_token_id": 0, "eos_token_id": 0}
LAYERS = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4}
LAYERS |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
ENDS = {"bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2, "pad_token_id": 1}


@dataclasses.dataclass(frozen=True)
class Family:
    """A model of transformers, and how its attention is seen."""

    model: str
    config: str
    settings: dict[str, Any]
    rungs: tuple[str, ...] = ("interface", "products")
    """With eager attention, and with the kernel."""
    factor: float = 6.0
    layers: int = 2
    kind: str = "text"
    """text, pairs (encoder and decoder) or speech."""
    causal: bool = True

    def build(self, attention: str = "eager") -> Any:
        torch.manual_seed(1)
        config = getattr(transformers, self.config)(vocab_size=WORDS, **self.settings)
        model = getattr(transformers, self.model)
        return stronger(model._from_config(config, attn_implementation=attention), self.factor)

    def probe(self, padded: bool = True) -> dict[str, Tensor]:
        ids, mask = sentences()
        if self.kind == "text":
            labels = torch.where(mask > 0, ids, -100)
            return {"input_ids": ids, "labels": labels} | (
                {"attention_mask": mask} if padded else {}
            )
        target = sentences(13, seed=5)[0]
        found = {"labels": target, "decoder_input_ids": target}
        if self.kind == "speech":
            sound = torch.randn(EXAMPLES, 16, 40, generator=torch.Generator().manual_seed(3))
            return found | {"input_features": sound}
        return found | {"input_ids": ids} | ({"attention_mask": mask} if padded else {})


FAMILIES = {
    "gpt2": Family("GPT2LMHeadModel", "GPT2Config", SHORT | NONE | {"pad_token_id": 1}),
    "gpt_neox": Family("GPTNeoXForCausalLM", "GPTNeoXConfig", SIZES | {"rotary_pct": 0.25}),
    "llama": Family("LlamaForCausalLM", "LlamaConfig", SIZES | SHARED),
    "mistral": Family(
        "MistralForCausalLM", "MistralConfig", SIZES | SHARED | {"sliding_window": 7}
    ),
    "gemma2": Family(
        "Gemma2ForCausalLM",
        "Gemma2Config",
        SIZES
        | SHARED
        | {"sliding_window": 7, "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 8},
        rungs=("interface",),
    ),
    "bert": Family("BertForMaskedLM", "BertConfig", SIZES | {"pad_token_id": 1}, causal=False),
    "roberta": Family(
        "RobertaForMaskedLM", "RobertaConfig", SIZES | {"pad_token_id": 1}, causal=False
    ),
    "distilbert": Family(
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4}
        | {"max_position_embeddings": 64, "pad_token_id": 1},
        causal=False,
    ),
    "t5": Family(
        "T5ForConditionalGeneration",
        "T5Config",
        {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
        | {"decoder_start_token_id": 0, "pad_token_id": 1},
        factor=1.0,
        layers=6,
        kind="pairs",
    ),
    "bart": Family(
        "BartForConditionalGeneration",
        "BartConfig",
        LAYERS | ENDS | {"d_model": 32, "max_position_embeddings": 64},
        layers=6,
        kind="pairs",
    ),
    "whisper": Family(
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        LAYERS
        | ENDS
        | {"num_mel_bins": 16, "d_model": 32, "max_source_positions": 20}
        | {"max_target_positions": 32, "suppress_tokens": None, "begin_suppress_tokens": None},
        layers=6,
        kind="speech",
    ),
    "gptj": Family(
        "GPTJForCausalLM", "GPTJConfig", SHORT | NONE | {"rotary_dim": 4}, rungs=("softmax",)
    ),
    "bloom": Family(
        "BloomForCausalLM",
        "BloomConfig",
        {"hidden_size": 32, "n_layer": 2, "n_head": 4}
        | {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
        rungs=("softmax",),
    ),
    "gpt_oss": Family(
        "GptOssForCausalLM",
        "GptOssConfig",
        SIZES
        | SHARED
        | {"intermediate_size": 32, "num_local_experts": 2, "num_experts_per_tok": 1}
        | {"sliding_window": 7, "eos_token_id": 2}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
        rungs=("softmax",),
    ),
}


# -- plain PyTorch ---------------------------------------------------------------------------------


class KernelAttention(nn.Module):
    """By the function of PyTorch, causal."""

    def __init__(self, size: int, heads: int, dropout: float = 0.1):
        super().__init__()
        self.qkv, self.proj = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.heads, self.dropout = heads, dropout

    def forward(self, states: Tensor) -> Tensor:
        shape = (*states.shape[:2], self.heads, -1)
        parts = (one.view(shape).transpose(1, 2) for one in self.qkv(states).chunk(3, -1))
        dropout = self.dropout if self.training else 0.0
        found = functional.scaled_dot_product_attention(*parts, dropout_p=dropout, is_causal=True)
        return self.proj(found.transpose(1, 2).reshape(states.shape))


class WrittenAttention(nn.Module):
    """Written out, with a mask and dropout of the weights, which it keeps."""

    def __init__(self, size: int, heads: int, dropout: float = 0.1):
        super().__init__()
        self.qkv, self.proj = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.num_heads, self.dropout = heads, nn.Dropout(dropout)

    def forward(self, states: Tensor) -> Tensor:
        length, size = states.shape[1:]
        shape = (*states.shape[:2], self.num_heads, -1)
        q, k, v = (one.view(shape).transpose(1, 2) for one in self.qkv(states).chunk(3, -1))
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = (q @ k.mT / math.sqrt(size // self.num_heads)).masked_fill(later, -math.inf)
        self.weights = torch.softmax(scores, -1)
        return self.proj((self.dropout(self.weights) @ v).transpose(1, 2).reshape(states.shape))


class TorchAttention(nn.Module):
    """By PyTorch's module, with or without its weights."""

    def __init__(self, size: int, heads: int, dropout: float = 0.1, need_weights: bool = True):
        super().__init__()
        self.inner = nn.MultiheadAttention(size, heads, dropout=dropout, batch_first=True)
        self.need_weights = need_weights

    def forward(self, states: Tensor) -> Tensor:
        later = torch.ones(states.shape[1], states.shape[1], dtype=torch.bool).triu(1)
        found, self.weights = self.inner(
            *(states, states, states),
            attn_mask=later,
            need_weights=self.need_weights,
            average_attn_weights=False,
        )
        return found


class LanguageModel(nn.Module):
    """Predicts each word from the words before it, with some kind of attention."""

    def __init__(self, kind: Callable[..., nn.Module] = KernelAttention, layers: int = 2):
        super().__init__()
        size, dropout = 32, 0.1
        self.words, self.places = nn.Embedding(WORDS, size), nn.Embedding(64, size)
        self.attention = nn.ModuleList(kind(size, 4, dropout) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(layers))
        self.dropout, self.out = nn.Dropout(dropout), nn.Linear(size, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        states = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for layer, norm in zip(self.attention, self.norms, strict=True):
            states = states + self.dropout(layer(norm(states)))
        return self.out(states)


def next_word_loss(ids: Tensor) -> Callable[[Tensor], Tensor]:
    def loss(logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

    return loss


def language_model(kind: Callable[..., nn.Module] = KernelAttention, factor: float = 2.0) -> Any:
    torch.manual_seed(1)
    return stronger(LanguageModel(kind), factor)


class Encoder(nn.Module):
    """PyTorch's own encoder, with padding."""

    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(WORDS, 32), nn.Linear(32, WORDS)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, ids: Tensor, padding: Tensor) -> Tensor:
        return self.out(self.encoder(self.words(ids), src_key_padding_mask=padding))


class AdditiveAttention(nn.Module):
    """Of one state of a decoder over those of an encoder: [example, source, 1], over axis 1."""

    def __init__(self, size: int):
        super().__init__()
        self.query, self.key = nn.Linear(size, size), nn.Linear(size, size)
        self.score = nn.Linear(size, 1, bias=False)

    def forward(self, state: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(self.query(state)[:, None] + self.key(source))
        weights = functional.softmax(self.score(hidden), dim=1)
        return (weights * source).sum(1), weights


class Translator(nn.Module):
    """A recurrent translator, which attends once per target word."""

    def __init__(self):
        super().__init__()
        self.words, self.encoder = nn.Embedding(WORDS, 32), nn.LSTM(32, 32, batch_first=True)
        self.cell, self.out = nn.LSTMCell(64, 32), nn.Linear(64, WORDS)
        self.attention = AdditiveAttention(32)
        self.weights: list[Tensor] = []

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        states = self.encoder(self.words(source))[0]
        hidden, cell = states[:, -1], torch.zeros_like(states[:, -1])
        self.weights, outputs = [], []
        for word in target.unbind(1):
            context, weights = self.attention(hidden, states)
            self.weights.append(weights)
            inputs = torch.cat([self.words(word), context], -1)
            hidden, cell = self.cell(inputs, (hidden, cell))
            outputs.append(self.out(torch.cat([hidden, context], -1)))
        return torch.stack(outputs, 1)


class HandAttention(nn.Module):
    """Names its scores by hand: its class is recognised, and it calls no softmax."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 16)

    def forward(self, ids: Tensor) -> Tensor:
        states = self.words(ids)
        scores = states @ states.mT
        attention("mixing", scores)
        powers = torch.exp(scores - scores.amax(-1, keepdim=True))
        return powers / powers.sum(-1, keepdim=True) @ states
