"""Attention of every family, against the weights that the model itself gives in float64."""

import math
from typing import Any

import numpy as np
import pytest

from saccade.watch.capture import Capture, CaptureError, ProductCall
from saccade.watch.measuring import Measurement, Probe, Settings, measure
from saccade.watch.statistics import call_statistics
from saccade.watch.watcher import Watch
from saccade.watch.weights import PARTS, weights_of
from watch.families import (
    EXAMPLES,
    FAMILIES,
    AdditiveAttention,
    Encoder,
    HandAttention,
    KernelAttention,
    TorchAttention,
    Translator,
    WrittenAttention,
    language_model,
    next_word_loss,
    sentences,
    stronger,
    torch,
)

CASES = [(name, rung) for name, one in FAMILIES.items() for rung in one.rungs]
IMPLEMENTATION = {"interface": "eager", "softmax": "eager", "products": "sdpa"}


def explicit(weights: Any, counted: np.ndarray) -> dict[str, np.ndarray]:
    """Statistics per head of weights [example, head, query, key], as they are defined."""
    shares = weights.detach().double().numpy()
    logs = np.log(np.where(shares > 0, shares, 1))
    later = np.triu(np.ones(shares.shape[-2:]), 1)
    rows = {
        "attention_entropy": -np.sum(shares * logs, -1),
        "effective_keys": 1 / np.sum(shares**2, -1),
        "first_mass": shares[..., 0],
        "future_mass": np.sum(shares * later, -1),
        "own_mass": np.sum(shares * np.eye(*shares.shape[-2:]), -1),
    }
    chosen = np.broadcast_to(counted[:, None], rows["first_mass"].shape)
    return {name: np.mean(one, axis=(0, 2), where=chosen) for name, one in rows.items()}


def layers_of(outputs: Any) -> list[tuple[Any, bool]]:
    """Weights of every layer as a model of transformers gives them, and whether they are those of
    a decoder over an encoder.
    """
    if outputs.get("encoder_attentions") is None:
        return [(one, False) for one in outputs.attentions]
    found = [(one, False) for one in outputs.encoder_attentions]
    for own, cross in zip(outputs.decoder_attentions, outputs.cross_attentions, strict=True):
        found += [(own, False), (cross, True)]
    return found


@pytest.mark.parametrize(("name", "rung"), CASES)
def test_statistics_are_those_of_the_models_own_weights(name, rung):
    family = FAMILIES[name]
    model, probe = family.build(IMPLEMENTATION[rung]), family.probe()
    found = measure(model, Probe(probe))
    assert set(found.rungs.values()) == {rung}
    assert len(found.calls) == family.layers
    assert not found.unseen
    truth = family.build("eager").eval()
    truth.load_state_dict(model.state_dict())
    with torch.no_grad():
        outputs = truth(**probe, output_attentions=True)
    assert found.loss == pytest.approx(float(outputs.loss), rel=1e-5)
    layers = layers_of(outputs)
    for (path, one), (weights, crossed) in zip(found.calls.items(), layers, strict=True):
        queries = np.ones((EXAMPLES, weights.shape[2]), bool)
        if "attention_mask" in probe and "decoder" not in path:
            queries = probe["attention_mask"].numpy() > 0
        expected = explicit(weights, queries)
        if crossed:
            for key in ("own_mass", "future_mass"):
                assert np.all(np.isnan(one.values[key]))
                del expected[key]
        if name == "gpt_oss":  # whose sink is not among the weights that it gives
            del expected["attention_entropy"], expected["effective_keys"]
        for key, value in expected.items():
            np.testing.assert_allclose(one.values[key], value, rtol=2e-5, atol=5e-6, err_msg=key)
        assert one.reconstruction < 1e-5
        sample = found.samples.get(path)
        assert set(weights_of(model, path, one.heads, sample)) == set(PARTS)


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2", "t5", "bart"])
def test_the_gradient_of_queries_is_that_of_autograd(name):
    """In float64, with grouped keys, a soft cap, biases and padding: |dL/dq| per head. Llama and
    Gemma take their softmax in float32 whatever they are given.
    """
    close = 1e-6 if name in ("llama", "gemma2") else 1e-9
    family = FAMILIES[name]
    model, probe = family.build().double().eval(), Probe(family.probe())
    capture = Capture(model)
    with capture:
        loss, _ = probe.run(model)
    calls = [one for one in capture.calls if isinstance(one, ProductCall)]
    both = [one.went_on for one in calls] + [one.queries for one in calls]
    gradients = torch.autograd.grad(loss, both)
    for call, pull, direct in zip(calls, gradients, gradients[len(calls) :], strict=False):
        words = probe.words_of(call, family.kind == "pairs")
        found = call_statistics(call, words, call.arranged(pull), 128)
        squares = direct.square().sum(-1)
        counted = torch.ones_like(squares, dtype=torch.bool)
        if words.query_words is not None:
            counted = words.query_words[:, None].expand(squares.shape)
        expected = torch.where(counted, squares, 0).sum((0, 2)) / counted.double().sum((0, 2))
        np.testing.assert_allclose(
            found.values["query_gradient"], expected.sqrt().detach().numpy(), rtol=close
        )


# -- plain PyTorch ---------------------------------------------------------------------------------

KINDS = {
    "products": KernelAttention,
    "softmax": WrittenAttention,
    "multi-head": TorchAttention,
}


def measured(model: Any, ids: Any, **settings: Any) -> Measurement:
    return measure(model, Probe(ids, next_word_loss(ids), ids), Settings(**settings))


@pytest.mark.parametrize("kind", KINDS)
def test_attention_of_plain_pytorch_is_seen(kind):
    ids = sentences()[0]
    model = language_model(KINDS[kind])
    found = measured(model, ids)
    assert set(found.rungs.values()) == {kind}
    assert not found.unseen
    assert not any(hasattr(one, "weights") for one in model.attention)
    model.eval()(ids)
    for number, one in enumerate(found.calls.values()):
        attention = model.attention[number]
        if hasattr(attention, "weights"):
            expected = explicit(attention.weights, np.ones(ids.shape, bool))
            for name, value in expected.items():
                np.testing.assert_allclose(one.values[name], value, rtol=1e-5, atol=1e-6)
        assert np.all(one.values["future_mass"] == 0)
        assert "value_signal" in one.values
        assert ("key_spread" in one.values) == (kind != "softmax")


def test_ways_of_seeing_agree():
    """The kernel and the softmax of the same weights, gradients and ablations included."""
    ids = sentences()[0]
    kernel, written = language_model(KernelAttention), language_model(WrittenAttention)
    written.load_state_dict(kernel.state_dict())
    one, two = (measured(model, ids, ablations=True) for model in (kernel, written))
    for (path, ours), theirs in zip(one.calls.items(), two.calls.values(), strict=True):
        for name in theirs.values:
            np.testing.assert_allclose(
                ours.values[name], theirs.values[name], rtol=1e-4, atol=1e-6, err_msg=name
            )
        assert one.uniform_loss[path] == pytest.approx(two.uniform_loss[path], rel=1e-5)
        np.testing.assert_allclose(one.removed_loss[path], two.removed_loss[path], rtol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "bert"])
@pytest.mark.parametrize("rung", ["interface", "products"])
def test_a_removed_head_is_one_whose_output_weights_are_zero(name, rung):
    family = FAMILIES[name]
    model, probe = family.build(IMPLEMENTATION[rung]), Probe(family.probe())
    found = measure(model, probe, Settings(ablations=True))
    path = list(found.calls)[1]
    weights = weights_of(model, path, 4)["output"].parameter
    for head in range(4):
        part = slice(8 * head, 8 * head + 8)
        kept = weights.detach().clone()
        with torch.no_grad():
            weights[part if name == "gpt2" else (slice(None), part)] = 0  # GPT-2: [input, output]
        assert found.removed_loss[path][head] == pytest.approx(measure(model, probe).loss, rel=1e-5)
        with torch.no_grad():
            weights.copy_(kept)
    assert len({round(one, 6) for one in found.removed_loss[path]}) == 4


def test_uniform_attention_is_what_queries_of_zero_give():
    family = FAMILIES["llama"]
    model, probe = family.build(), Probe(family.probe())
    found = measure(model, probe, Settings(ablations=True))
    path = next(iter(found.calls))
    with torch.no_grad():
        weights_of(model, path, 4)["query"].parameter.zero_()
    after = measure(model, probe)
    assert found.uniform_loss[path] == pytest.approx(after.loss, rel=1e-5)
    one = after.calls[path].values
    np.testing.assert_allclose(one["attention_entropy"], one["uniform_entropy"], rtol=1e-6)
    np.testing.assert_allclose(one["score_spread"], 0, atol=1e-7)
    assert np.all(one["query_gradient"] > 0)


@pytest.mark.parametrize("gradients", [False, True])
def test_pytorchs_encoder_is_seen_with_padding(gradients):
    """Its fast path, which a mode turns off, would give other outputs at padding."""
    torch.manual_seed(0)
    model = stronger(Encoder(), 2.0)
    ids, mask = sentences()
    labels = next_word_loss(ids)
    settings = Settings(gradients=gradients)
    found = measure(model, Probe((ids, mask == 0), labels, ids, mask > 0), settings)
    assert set(found.rungs.values()) == {"multi-head"}
    for one in found.calls.values():
        assert np.all(one.values["padding_mass"] == 0)
        assert np.all(one.values["future_mass"] > 0.1)
    blind = measure(model, Probe((ids, torch.zeros_like(mask) > 0), labels, ids, mask > 0))
    for one in blind.calls.values():
        assert np.all(one.values["padding_mass"] > 1e-3)


def test_a_recurrent_decoder_attends_once_per_word():
    torch.manual_seed(0)
    model = stronger(Translator(), 3.0)
    source, target = sentences()[0], sentences(7, seed=4)[0]

    def loss(logits: Any) -> Any:
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())

    found = measure(model, Probe((source, target), loss), Settings(ablations=True))
    (path,) = found.calls
    assert path == "attention"
    assert found.rungs[path] == "softmax"
    assert model.weights == []  # what its code keeps of a pass is as before
    model(source, target)
    table = torch.cat(model.weights, 2).mT[:, None].double()
    expected = explicit(table, np.ones((EXAMPLES, 7), bool))
    for name in ("attention_entropy", "effective_keys", "first_mass"):
        np.testing.assert_allclose(found.calls[path].values[name], expected[name], rtol=1e-5)
    assert np.isnan(found.calls[path].values["own_mass"]).all()
    assert found.calls[path].values["value_signal"] > 0
    assert found.uniform_loss[path] != pytest.approx(found.loss, rel=1e-4)


def test_attention_can_be_named_by_hand():
    torch.manual_seed(0)
    model, ids = HandAttention(), sentences()[0]
    model(ids)  # outside of a measurement it does nothing
    found = measure(model, Probe(ids, lambda states: states.square().mean(), ids))
    states = model.words(ids).detach()
    weights = torch.softmax(states @ states.mT, -1)[:, None]
    expected = explicit(weights, np.ones(ids.shape, bool))
    for name, value in expected.items():
        np.testing.assert_allclose(found.calls["mixing"].values[name], value, rtol=1e-5)
    assert found.rungs == {"mixing": "by hand"}
    assert found.calls["mixing"].values["value_signal"] > 0


def test_classes_of_other_names_are_seen_if_they_are_named():
    class Mixer(WrittenAttention):
        pass

    ids = sentences()[0]
    model = language_model(Mixer)
    with pytest.raises(CaptureError, match=r"^no attention was seen: name its scores"):
        measured(model, ids)
    found = measured(model, ids, is_attention=lambda path, module: isinstance(module, Mixer))
    assert len(found.calls) == 2


def test_what_looks_like_attention_and_is_not_seen_is_named():
    class LinearAttention(torch.nn.Linear):
        def __init__(self, size: int, heads: int, dropout: float):
            super().__init__(size, size)

    ids = sentences()[0]
    model = language_model()
    model.attention[1] = LinearAttention(32, 4, 0.0)
    model.spare = AdditiveAttention(4)
    found = measured(model, ids)
    assert list(found.calls) == ["attention.0"]
    assert found.unseen == {"attention.1": "no attention seen", "spare": "did not run"}


def test_rows_are_chosen_and_blocks_change_nothing(monkeypatch):
    ids = sentences()[0]
    model = language_model()
    whole, some = measured(model, ids), measured(model, ids, rows=5)
    monkeypatch.setattr("saccade.watch.statistics.BLOCK", 100)
    blocks = measured(model, ids)
    for path, one in whole.calls.items():
        for name, value in one.values.items():
            np.testing.assert_allclose(blocks.calls[path].values[name], value, rtol=1e-6, atol=1e-9)
    keys = some.calls["attention.0"].values["visible_keys"]
    assert keys[0] == np.mean([1, 7, 13, 18, 24])


def test_errors_are_those_of_sequences():
    """The standard error of a mean over sequences of equal length is that of their means."""
    ids = sentences()[0]
    model = language_model()
    found = measured(model, ids)
    alone = [measured(model, one[None], gradients=False) for one in ids]
    for path, one in found.calls.items():
        each = np.stack([single.calls[path].values["attention_entropy"] for single in alone])
        expected = each.std(0, ddof=1) / math.sqrt(EXAMPLES)
        np.testing.assert_allclose(one.errors["attention_entropy"], expected, rtol=1e-4)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_rounding_is_measured_where_scores_are_rounded(implementation):
    """Eager attention keeps scores in bfloat16; the kernel does not. A number that all keys share
    moves no attention, but its rounding does.
    """
    shifts = []
    for offset in (0.0, 300.0):
        model = FAMILIES["llama"].build(implementation)
        with torch.no_grad():  # without rotation, one direction of queries and keys is constant
            for layer in model.model.layers:
                layer.self_attn.k_proj.bias = torch.nn.Parameter(
                    torch.full((layer.self_attn.k_proj.out_features,), offset)
                )
        found = measure(model.bfloat16(), Probe(FAMILIES["llama"].probe()))
        kept: list[Any] = [one.values.get("rounding_shift") for one in found.calls.values()]
        if implementation == "sdpa":
            assert kept == [None] * len(kept)
            return
        shifts.append(np.max([np.max(one) for one in kept]))
    assert 0 < shifts[0] < 0.05
    assert shifts[1] > 4 * shifts[0]


@pytest.mark.parametrize("name", ["gpt2", "bert", "llama"])
def test_what_a_head_adds_is_measured_behind_the_output_matrix(name):
    """Against the output with the other heads' part of the matrix set to 0."""
    family = FAMILIES[name]
    model, probe = family.build("sdpa"), family.probe()
    run = Watch(model, probe, output=None, causal=False)
    found = run.record.arms["run"].trajectory["head_norm"].isel(seed=0, step=0)
    layer = str(found["layer"].values[0])
    part = weights_of(model, layer, 1)["output"]
    matrix = part.parameter.detach().clone()
    inputs = []
    handle = part.owner.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    with torch.no_grad():
        model.eval()(**probe)
    handle.remove()
    heads = found.sizes["head"]
    given = inputs[0].detach().double().numpy()
    size = given.shape[-1] // heads
    matrix = matrix.double().numpy()
    matrix = matrix.T if name == "gpt2" else matrix
    words = probe["attention_mask"].numpy() > 0
    for head in range(heads):
        chosen = slice(head * size, (head + 1) * size)
        added = given[..., chosen] @ matrix[:, chosen].T
        expected = np.sqrt(np.mean(np.sum(added**2, -1)[words]))
        assert float(found.isel(layer=0, head=head)) == pytest.approx(expected, rel=1e-4)
