"""Models of unusual make: what is seen of them is right, or they are refused."""

import types
from typing import Any

import numpy as np
import pytest

from saccade.errors import ConfigError
from saccade.records.schedule import Every
from saccade.watch import CaptureError, Watch
from saccade.watch.measuring import Probe, Settings, measure
from saccade.watch.weights import weights_of
from watch.families import (
    FAMILIES,
    HandAttention,
    KernelAttention,
    LanguageModel,
    TorchAttention,
    WrittenAttention,
    language_model,
    next_word_loss,
    sentences,
    stronger,
    torch,
    transformers,
)

IDS, MASK = sentences()
pytestmark = pytest.mark.filterwarnings("ignore:saccade. the probe has no loss:UserWarning")
sdpa = torch.nn.functional.scaled_dot_product_attention


def measured(model: Any, **settings: Any) -> Any:
    return measure(model, Probe(IDS, next_word_loss(IDS), IDS), Settings(**settings))


# -- what a model keeps of a pass ------------------------------------------------------------------


class KeepingAttention(KernelAttention):
    """Keeps lists, dicts, tensors and a generator, as auxiliary losses and caches do."""

    def __init__(self, *sizes: Any):
        super().__init__(*sizes)
        self.losses: list[Any] = []
        self.counts = {"calls": 0}
        self.own = torch.Generator().manual_seed(3)

    def forward(self, states: Any) -> Any:
        self.losses.append(states.square().mean())
        self.counts["calls"] += 1
        torch.rand(2, generator=self.own)
        if "table" not in self._buffers:
            self.register_buffer("table", torch.ones(2))
        return super().forward(states)


def test_contents_of_attributes_are_put_back():
    model = language_model(KeepingAttention)
    state = model.attention[0].own.get_state()
    run = Watch(model, IDS, Every(1), loss=next_word_loss(IDS), output=None)
    one = model.attention[0]
    assert (one.losses, one.counts) == ([], {"calls": 0})
    assert torch.equal(one.own.get_state(), state)
    assert "attention.0.table" not in model.state_dict()
    for _ in range(2):  # the auxiliary losses are those of the training's own graph
        for one in model.attention:
            one.losses.clear()
        loss = next_word_loss(IDS)(model(IDS)) + sum(one.losses[0] for one in model.attention)
        loss.backward()
        run.step(loss)


def test_plain_tensors_that_are_written_are_put_back_and_refused():
    class AverageAttention(KernelAttention):
        def __init__(self, *sizes: Any):
            super().__init__(*sizes)
            self.average = torch.zeros(())

        def forward(self, states: Any) -> Any:
            self.average += 1
            return super().forward(states)

    model = language_model(AverageAttention)
    with pytest.raises(CaptureError, match=r"^the model writes into attention.0.average, atten"):
        measured(model)
    assert model.attention[0].average == 0


def test_weights_without_a_shape_are_refused_before_they_get_one():
    model = torch.nn.Sequential(torch.nn.Embedding(97, 8), torch.nn.LazyLinear(4))
    with pytest.raises(ConfigError, match=r"^model: 1.weight has no shape yet; run a batch"):
        measured(model)
    assert isinstance(model[1], torch.nn.LazyLinear)


def test_checkpointed_activations_and_inner_compiled_code_are_measured():
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(KernelAttention):
        def forward(self, states: Any) -> Any:
            return checkpoint(super().forward, states, use_reentrant=True)

    plain, other, inner = language_model(), language_model(Checkpointed), language_model()
    other.load_state_dict(plain.state_dict())
    inner.attention[0] = torch.compile(inner.attention[0], backend="eager")
    expected = measured(plain).calls["attention.1"].values
    for model in (other, inner):
        found = measured(model).calls["attention.1"].values
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, err_msg=name)


# -- other layouts ---------------------------------------------------------------------------------


class FlatAttention(KernelAttention):
    """Examples times heads along one axis, with a mask of three axes."""

    num_heads = 4

    def forward(self, states: Any) -> Any:
        examples, length, _ = states.shape
        shape = (examples, length, self.heads, -1)
        parts = (one.view(shape).transpose(1, 2) for one in self.qkv(states).chunk(3, -1))
        mask = torch.ones(examples * self.heads, length, length, dtype=torch.bool).tril()
        found = sdpa(*(one.flatten(0, 1) for one in parts), attn_mask=mask)
        found = found.unflatten(0, (examples, self.heads))
        return self.proj(found.transpose(1, 2).reshape(states.shape))


class WindowAttention(KernelAttention):
    """Of five axes: example, window, head, position, part."""

    def forward(self, states: Any) -> Any:
        shape = (len(states), 1, states.shape[1], self.heads, -1)
        parts = (one.view(shape).transpose(2, 3) for one in self.qkv(states).chunk(3, -1))
        length = states.shape[1]
        mask = torch.ones(1, 1, 1, length, length, dtype=torch.bool).tril()
        return self.proj(sdpa(*parts, attn_mask=mask).transpose(2, 3).reshape(states.shape))


@pytest.mark.parametrize("kind", [FlatAttention, WindowAttention])
def test_other_layouts_are_the_same_attention(kind):
    plain, other = language_model(), language_model(kind)
    other.load_state_dict(plain.state_dict())
    one, two = (measured(model, ablations=True) for model in (plain, other))
    for path, call in one.calls.items():
        for name, value in call.values.items():
            found = two.calls[path].values[name]
            np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-7, err_msg=name)
        np.testing.assert_allclose(two.removed_loss[path], one.removed_loss[path], rtol=1e-5)
        assert two.uniform_loss[path] == pytest.approx(one.uniform_loss[path], rel=1e-5)


def test_one_matrix_of_scores_per_example_is_one_head():
    class SingleAttention(WrittenAttention):
        def forward(self, states: Any) -> Any:
            self.weights = torch.softmax(states @ states.mT, -1)
            return self.weights @ states

    found = measure(language_model(SingleAttention), Probe(IDS[:2].repeat(2, 1)))
    assert [one.heads for one in found.calls.values()] == [1, 1]
    assert [one.examples for one in found.calls.values()] == [4, 4]


def test_positions_may_stand_first():
    """PyTorch's default: [position, example, feature]."""
    torch.manual_seed(0)
    first = stronger(torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2.0)
    last = torch.nn.TransformerEncoderLayer(16, 2, 32)
    last.load_state_dict(first.state_dict())
    states = torch.randn(3, 7, 16)
    loss = lambda found: found.square().mean()  # noqa: E731
    one = measure(first, Probe(states, loss))
    two = measure(last, Probe(states.transpose(0, 1).contiguous(), loss))
    assert one.cosines["self_attn"] == pytest.approx(two.cosines["self_attn"], rel=1e-5)
    for name, value in one.calls["self_attn"].values.items():
        np.testing.assert_allclose(two.calls["self_attn"].values[name], value, rtol=1e-4)
    assert two.calls["self_attn"].examples == 3


def test_a_layer_that_is_used_again_has_its_own_tokens():
    model = language_model()
    model.attention[1], model.norms[1] = model.attention[0], model.norms[0]
    found = measured(model, ablations=True)
    assert list(found.calls) == ["attention.0", "attention.0#2"]
    states = (model.words(IDS) + model.places(torch.arange(IDS.shape[1]))).detach()
    model.eval()
    expected = []
    for _ in range(2):
        inputs = model.norms[0](states)
        unit = torch.nn.functional.normalize(inputs.detach(), dim=-1).double()
        table = unit @ unit.mT
        length = IDS.shape[1]
        expected.append(float((table.sum((1, 2)) - length).mean() / (length * (length - 1))))
        states = (states + model.attention[0](inputs)).detach()
    assert list(found.cosines.values()) == pytest.approx(expected, rel=1e-5)
    assert len({*found.uniform_loss.values(), found.loss}) == 3


@pytest.mark.parametrize("written", [False, True])
def test_changes_of_a_layer_that_is_used_again_concern_one_use(written):
    kind = WrittenAttention if written else KernelAttention
    model = language_model(kind)
    model.load_state_dict(language_model().state_dict())
    model.attention[1] = model.attention[0]
    found = measured(model, ablations=True)
    other = language_model()
    other.attention[1] = other.attention[0]
    expected = measured(other, ablations=True)
    for path, loss in expected.uniform_loss.items():
        assert found.uniform_loss[path] == pytest.approx(loss, rel=1e-5)
        np.testing.assert_allclose(found.removed_loss[path], expected.removed_loss[path], rtol=1e-5)


def test_calls_of_one_and_of_many_queries_stay_apart():
    class MixedAttention(WrittenAttention):
        def forward(self, states: Any) -> Any:
            found = super().forward(states)
            for place in (0, 1):
                torch.softmax(states[:, None, None, place] @ states[:, None].mT, -1)
            return found

    found = measured(language_model(MixedAttention))
    assert len(found.calls) == 6
    assert found.calls["attention.0"].values["visible_keys"][0] == 12.5


# -- precision and the gates -----------------------------------------------------------------------


def test_double_precision_is_measured_in_double_precision():
    model = language_model().double()
    found = measured(model)
    assert all(one.reconstruction < 1e-12 for one in found.calls.values())


@pytest.mark.parametrize("need_weights", [False, True])
def test_multi_head_attention_is_measured_in_lower_precision(need_weights):
    def kind(size: int, heads: int, dropout: float) -> Any:
        return TorchAttention(size, heads, dropout, need_weights)

    model = language_model(kind).bfloat16()
    found = measured(model)
    exact = measured(language_model(kind))
    for path, one in found.calls.items():
        expected = exact.calls[path].values["value_signal"]
        np.testing.assert_allclose(one.values["value_signal"], expected, rtol=0.1)


def test_large_scores_in_lower_precision_are_not_refused():
    model = FAMILIES["gpt2"].build("eager").bfloat16()
    with torch.no_grad():
        for layer in model.transformer.h:
            layer.attn.c_attn.weight *= 8
    found = measure(model, Probe(FAMILIES["gpt2"].probe()))
    assert max(one.values["largest_score"].max() for one in found.calls.values()) > 60


def test_words_without_a_chance_are_no_divergence():
    class Chances(LanguageModel):
        def forward(self, ids: Any) -> Any:
            return super().forward(ids).index_fill(-1, torch.tensor([0]), -np.inf)

    torch.manual_seed(0)
    assert np.isfinite(measured(Chances()).loss)


def test_large_scores_are_not_taken_for_hidden_ones():
    model = language_model(WrittenAttention)
    with torch.no_grad():
        for one in model.attention:
            one.qkv.weight[:64] *= 60
    found = measured(model)
    assert found.calls["attention.0"].values["largest_score"].max() > 1e4
    assert np.all(found.calls["attention.0"].values["visible_keys"] == 12.5)


# -- words -----------------------------------------------------------------------------------------


def test_padding_is_unknown_unless_something_says_it():
    assert "padding_mass" not in measured(language_model()).calls["attention.0"].values
    with pytest.raises(ConfigError, match=r"^words: got the shape \(3, 5\), allowed: that of the"):
        measure(language_model(), Probe(IDS, words=MASK[:, :5]))


def test_a_mask_that_is_inferred_need_not_fit():
    """A model that attends to more positions than it has words, as with learned prompts."""

    class Prompted(LanguageModel):
        config = types.SimpleNamespace(pad_token_id=1, eos_token_id=0, bos_token_id=0)

        def forward(self, input_ids: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            return super().forward(torch.nn.functional.pad(input_ids, (2, 0), value=5))

    torch.manual_seed(0)
    found = measure(Prompted(), Probe({"input_ids": IDS}))
    assert "padding_mass" not in found.calls["attention.0"].values


def test_a_forgotten_mask_is_seen_by_the_models_own_padding():
    family = FAMILIES["bert"]
    model, probe = family.build(), family.probe(padded=False)
    for one in measure(model, Probe(probe)).calls.values():
        assert np.all(one.values["padding_mass"] > 0.01)
    for one in measure(model, Probe(family.probe())).calls.values():
        assert np.all(one.values["padding_mass"] == 0)


def test_cross_attention_of_pytorchs_transformer_has_no_own_positions():
    torch.manual_seed(0)
    model = torch.nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
    states = torch.randn(2, 6, 16)
    found = measure(model, Probe((states, states.flip(1)), lambda out: out.square().mean()))
    assert np.all(np.isnan(found.calls["decoder.layers.0.multihead_attn"].values["own_mass"]))
    assert np.all(found.calls["decoder.layers.0.self_attn"].values["own_mass"] > 0)


def test_words_of_a_decoder_are_unknown_unless_given():
    family = FAMILIES["t5"]
    probe = family.probe()
    probe["labels"] = probe["input_ids"]
    del probe["decoder_input_ids"]
    found = measure(family.build(), Probe(probe))
    for path, one in found.calls.items():
        assert ("same_mass" in one.values) == path.startswith("encoder")


# -- weights ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt_neox", "gpt2"])
def test_thirds_of_one_matrix_are_those_that_make_values(name):
    family = FAMILIES[name]
    model, probe = family.build(), Probe(family.probe())
    found = measure(model, probe)
    path = next(iter(found.calls))
    weights = weights_of(model, path, 4, found.samples[path])
    sample = found.samples[path]
    assert [part for part in ("query", "key", "value") if sample.fits(weights[part])] == ["value"]
    assert "value" not in weights_of(model, path, 2 if name == "gpt_neox" else 4, swapped(sample))


def swapped(sample: Any) -> Any:
    """Values of another order, as of models that keep their thirds otherwise."""
    return type(sample)(sample.tokens, sample.values.flip(1))


def test_thirds_that_nothing_confirms_are_not_recognised():
    """CodeGen keeps queries, values and keys in another order, and only its softmax is seen."""
    config = transformers.CodeGenConfig(
        vocab_size=97, n_embd=32, n_layer=1, n_head=4, rotary_dim=4, n_positions=64, n_ctx=64
    )
    torch.manual_seed(0)
    model = transformers.CodeGenForCausalLM(config)
    run = Watch(model, {"input_ids": IDS, "labels": IDS}, output=None)
    assert run.record.config["notes"] == [
        "transformer.h.0.attn: weights of query, key, value are not recognised"
    ]


def test_moments_of_a_part_are_those_of_its_rows():
    model = language_model()
    optimiser = torch.optim.Adam(model.parameters(), 1e-3, eps=1e-8)
    run = Watch(model, IDS, Every(1), loss=next_word_loss(IDS), output=None, optimiser=optimiser)
    next_word_loss(IDS)(model(IDS)).backward()
    gradients = model.attention[0].qkv.weight.grad
    optimiser.step()
    run.step()
    found = run.record.arms["run"].trajectory["second_moment"].isel(seed=0, layer=0, step=1)
    expected = [float(one.square().mean().sqrt()) / 1e-8 for one in gradients.chunk(3)]
    assert found.values[:3].tolist() == pytest.approx(expected, rel=1e-4)
    assert len({round(one) for one in expected}) == 3


# -- by hand ---------------------------------------------------------------------------------------


def test_attention_named_by_hand_is_watched_and_not_changed():
    torch.manual_seed(0)
    run = Watch(
        HandAttention(), IDS, loss=lambda out: out.square().mean(), output=None, ablations=True
    )
    record = run.record
    assert record.config["rungs"] == {"mixing": "by hand"}
    assert "uniform_loss" not in record.arms["run"].trajectory
    assert record.config["notes"][-1].startswith("mixing: weights of query, key, value, output are")


# -- what a model gives ----------------------------------------------------------------------------


def test_outputs_may_be_dicts_and_nested():
    class Wrapped(LanguageModel):
        def forward(self, ids: Any) -> Any:
            logits = super().forward(ids)
            return {"loss": next_word_loss(ids)(logits), "more": {"logits": [logits]}}

    torch.manual_seed(0)
    found = measure(Wrapped(), Probe(IDS))
    assert np.isfinite(found.loss)
    assert "value_signal" in found.calls["attention.0"].values

    class Empty(LanguageModel):
        def forward(self, ids: Any) -> Any:
            super().forward(ids)
            return "nothing"

    with pytest.raises(ConfigError, match=r"^probe: the model gave str without a tensor, allowed"):
        measure(Empty(), Probe(IDS))


def test_the_callers_autocast_is_not_that_of_the_measurement():
    model = language_model()
    run = Watch(model, IDS, Every(1), output=None)
    with torch.autocast("cpu", torch.bfloat16):
        run.step()
    found = run.record.arms["run"].trajectory["attention_entropy"].isel(seed=0)
    np.testing.assert_array_equal(found.sel(step=0), found.sel(step=1))


def test_masks_by_keyword_are_seen():
    settings: Any = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 64}
    settings |= {"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2}
    settings |= {"head_dim": 8, "num_experts": 2, "num_experts_per_tok": 1, "pad_token_id": 1}
    settings |= {"moe_intermediate_size": 16, "num_dense_layers": 1, "max_position_embeddings": 64}
    torch.manual_seed(0)
    config = transformers.AfmoeConfig(**settings)
    model = transformers.AfmoeForCausalLM._from_config(config, attn_implementation="eager")
    found = measure(model, Probe({"input_ids": IDS, "attention_mask": MASK, "labels": IDS}))
    assert set(found.rungs.values()) == {"interface"}
    assert all(np.all(one.values["future_mass"] == 0) for one in found.calls.values())
