"""A watched run: never changed, honest about what it cannot see, and a record like any other."""

import subprocess
import sys
import textwrap
import types
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

from saccade.contracts.task import Batch
from saccade.errors import ConfigError
from saccade.models.encoder import EncoderConfig
from saccade.probes.attention import layer_statistics, token_cosine
from saccade.records.record import Record
from saccade.records.schedule import AtSteps, Every, Logarithmic
from saccade.registry import known_study
from saccade.report.page import render_page
from saccade.tasks.keyword_sentences import KeywordSentences
from saccade.watch import Callback, CaptureError, Watch
from saccade.watch.measuring import Probe, measure
from saccade.watch.quantities import ERROR, VARIABLES
from saccade.watch.weights import added_norms, weights_of
from watch.families import (
    FAMILIES,
    Encoder,
    KernelAttention,
    TorchAttention,
    Translator,
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


def trained(model: Any, probe: Any, watched: bool, steps: int = 4, **options: Any) -> Any:
    """All weights, gradients and random numbers after a few steps with dropout."""
    optimiser = torch.optim.AdamW(model.parameters(), 1e-2)
    torch.manual_seed(5)
    run = None
    if watched:
        run = Watch(model, probe, Every(2), output=None, optimiser=optimiser, **options)
    model.train()
    for _ in range(steps):
        loss, _ = Probe(probe, options.get("loss")).run(model)
        assert loss is not None
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if run is not None:
            run.step(loss)
    state = [*model.state_dict().values(), *(one.grad for one in model.parameters())]
    return [one for one in state if one is not None] + [torch.rand(3)], run


def gpt2(attention: str, **changes: Any) -> Any:
    model = FAMILIES["gpt2"].build(attention)
    for name, value in changes.items():
        getattr(model, name)(**value)
    return model, FAMILIES["gpt2"].probe(), {}


def plain(kind: Any) -> Any:
    return language_model(kind), IDS, {"loss": next_word_loss(IDS)}


def with_padding() -> Any:
    torch.manual_seed(0)
    return stronger(Encoder(), 2.0), (IDS, MASK == 0), {"loss": next_word_loss(IDS)}


def translator() -> Any:
    torch.manual_seed(0)
    return Translator(), (IDS, IDS[:, :5]), {"loss": lambda logits: logits.square().mean()}


REENTRANT = {"gradient_checkpointing_kwargs": {"use_reentrant": True}}
RUNS = {
    "gpt2, eager": lambda: gpt2("eager"),
    "gpt2, kernel": lambda: gpt2("sdpa"),
    "gpt2, checkpointed": lambda: gpt2("sdpa", gradient_checkpointing_enable=REENTRANT),
    "kernel": lambda: plain(KernelAttention),
    "written out": lambda: plain(WrittenAttention),
    "multi-head": lambda: plain(TorchAttention),
    "PyTorch's encoder": with_padding,
    "recurrent": translator,
    "ablations": lambda: (*gpt2("eager")[:2], {"ablations": True}),
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.filterwarnings("ignore:.*requires_grad=True.*:UserWarning")
def test_training_is_the_same_to_the_last_bit(name):
    """Weights, gradients and random numbers, with dropout, whatever is measured on the way."""
    found = []
    for watched in (False, True):
        model, probe, options = RUNS[name]()
        found.append(trained(model, probe, watched, **options))
    (alone, _), (with_watch, run) = found
    assert run is not None
    assert len(alone) == len(with_watch)
    assert all(torch.equal(*both) for both in zip(alone, with_watch, strict=True))
    assert run.record.arms["run"].trajectory["step"].values.tolist() == [0, 2, 4]


def test_a_compiled_model_is_measured_without_its_compiled_code():
    model = language_model()
    compiled: Any = torch.compile(model, backend="eager")
    compiled(IDS)
    run = Watch(compiled, IDS, loss=next_word_loss(IDS), output=None)
    assert list(run.record.config["rungs"]) == ["attention.0", "attention.1"]


def test_lower_precision_is_that_of_training():
    model, probe, _ = gpt2("sdpa")
    rough = Watch(model, probe, output=None, autocast=torch.bfloat16).record.arms["run"].trajectory
    exact = Watch(model, probe, output=None).record.arms["run"].trajectory
    apart = np.abs(rough["attention_entropy"] - exact["attention_entropy"]).max()
    assert 1e-6 < float(apart) < 2e-2


# -- nothing is left behind ------------------------------------------------------------------------


def traces() -> Any:
    hooks = torch.nn.modules.module
    return (
        len(hooks._global_forward_hooks),
        len(hooks._global_forward_pre_hooks),
        torch.backends.mha.get_fastpath_enabled(),
        torch.nn.functional.scaled_dot_product_attention,
        transformers.modeling_utils.AttentionInterface.get_interface,
        torch.is_grad_enabled(),
        torch.get_rng_state().tolist(),
    )


def test_everything_is_put_back_after_an_exception():
    class Broken(KernelAttention):
        def forward(self, states: Any) -> Any:
            super().forward(states)
            if broken:
                raise ZeroDivisionError("in the model")
            return states

    broken = False
    model = language_model()
    model.attention[1] = Broken(32, 4)
    run = Watch(model, IDS, Every(1), loss=next_word_loss(IDS), output=None)
    model.train()
    model.out.eval()
    before = traces()
    broken = True
    with pytest.raises(ZeroDivisionError, match="in the model"):
        run.step()
    assert traces() == before
    assert [one.training for one in (model, model.attention[1], model.out)] == [True, True, False]


def test_a_model_that_writes_into_itself_is_refused_and_put_back():
    class Counting(KernelAttention):
        def __init__(self, *sizes: Any):
            super().__init__(*sizes)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, states: Any) -> Any:
            self.calls += 1
            return super().forward(states)

    model = language_model(Counting)
    with pytest.raises(CaptureError, match=r"^the model writes into attention.0.calls, att"):
        Watch(model, IDS, loss=next_word_loss(IDS), output=None)
    assert model.attention[0].calls == 0


def test_dropout_that_is_left_on_is_refused():
    class NoisyAttention(WrittenAttention):
        def forward(self, states: Any) -> Any:
            return super().forward(states) * torch.rand(())

    class Dropping(KernelAttention):
        training = True

        def forward(self, states: Any) -> Any:
            q = k = v = states[:, None]
            found = torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
            return found[:, 0]

    # Both passes draw the same numbers, so the second gate is the one that sees it.
    Watch(language_model(NoisyAttention), IDS, loss=next_word_loss(IDS), output=None)
    with pytest.raises(CaptureError, match=r"differs from the model's by .* \(dropout of 0.5"):
        Watch(language_model(Dropping), IDS, loss=next_word_loss(IDS), output=None)


def test_outputs_that_differ_when_seen_are_refused():
    class Watching(KernelAttention):
        """Notices that functions are observed."""

        def forward(self, states: Any) -> Any:
            seen = bool(torch.overrides._get_current_function_mode_stack())
            return super().forward(states) + 0.1 * seen

    with pytest.raises(CaptureError, match=r"^outputs differ by .* with and without being measur"):
        Watch(language_model(Watching), IDS, loss=next_word_loss(IDS), output=None)


def test_a_run_that_diverges_is_marked_and_goes_on():
    model = language_model()
    run = Watch(model, IDS, Every(1), loss=next_word_loss(IDS), output=None)
    run.step(1.0)
    with torch.no_grad():
        model.out.weight.fill_(np.nan)
    with pytest.warns(UserWarning, match=r"^saccade: step 2 is not measured: the model's outputs"):
        run.step(float("nan"))
    record = run.finish()
    assert record is not None
    found = record.arms["run"]
    assert found.diverged.item()
    assert found.trajectory["diverged_at"].item() == 2
    assert np.isnan(found.trajectory["attention_entropy"].sel(step=2)).all()
    assert found.trajectory["training_loss"].sel(step=1).item() == 1.0
    assert record.config["notes"][-1].startswith("step 2: not measured, the model's outputs are no")


# -- what is given ---------------------------------------------------------------------------------


def test_wrong_arguments_are_named():
    model = language_model()
    with pytest.raises(ConfigError, match=r"^model: got str, allowed: a torch.nn.Module"):
        Watch("gpt2", IDS)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match=r"^probe: got int, allowed: a dict of the model's argum"):
        Watch(model, 3)
    with pytest.raises(ConfigError, match=r"^every: got 10, allowed: a schedule such as Logarithm"):
        Watch(model, IDS, 10)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match=r"^rows: got 0, allowed: a whole number, at least 1"):
        Watch(model, IDS, rows=0)
    with pytest.raises(ConfigError, match=r"^loss: got float, allowed: a tensor with one number"):
        Watch(model, IDS, loss=lambda logits: 1.0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match=r"unexpected keyword argument 'words'; the mod"):
        Watch(model, {"words": IDS}, output=None)
    with pytest.raises(ConfigError, match=r"^probe: got a list of examples, allowed: one batch"):
        Watch(model, [{"ids": IDS}])
    with pytest.raises(ConfigError, match=r"^probe: the model cannot be run on it: IndexError"):
        Watch(model, IDS + 1000, output=None)
    run = Watch(model, IDS, output=None, first=5)
    with pytest.raises(ConfigError, match=r"^step: got 3, allowed: a whole number, at least 5"):
        run.at(3)


def test_sharded_models_are_refused():
    class FullyShardedDataParallel(torch.nn.Module):
        pass

    with pytest.raises(ConfigError, match=r"^model: got FullyShardedDataParallel, allowed: models"):
        Watch(FullyShardedDataParallel(), IDS)


def test_a_probe_without_a_loss_is_measured_without_gradients():
    with pytest.warns(UserWarning, match=r"^saccade: the probe has no loss: give labels or `loss`"):
        record = Watch(language_model(), IDS, output=None).record
    meant = Watch(language_model(), IDS, output=None, gradients=False).record
    assert not meant.config["notes"]
    assert "query_gradient" not in record.arms["run"].trajectory
    assert np.isnan(record.arms["run"].trajectory["loss"]).all()
    assert "the probe has no loss" in record.config["notes"][0]


@pytest.mark.parametrize(
    ("every", "steps", "expected"),
    [
        (Every(3), None, [0, 3, 6, 9, 10]),
        (Every(4), 10, [0, 4, 8, 10]),
        (AtSteps((2, 5)), None, [0, 2, 5, 10]),
        (Logarithmic(4), 10, [0, 1, 3, 10]),
        (Logarithmic(11), None, [0, 1, 4, 10]),
    ],
)
def test_steps_are_those_of_the_schedule(every, steps, expected):
    """Without the length of the run, Logarithmic is spread over 100,000 steps."""
    run = Watch(language_model(), IDS, every, steps=steps, output=None)
    for _ in range(10):
        run.step()
    record = run.finish()
    assert record is not None
    assert record.arms["run"].trajectory["step"].values.tolist() == expected


def test_a_schedule_goes_on_after_its_horizon(monkeypatch):
    monkeypatch.setattr("saccade.watch.watcher.HORIZON", 10)
    run = Watch(language_model(), IDS, Every(7), output=None)
    for _ in range(30):
        run.step()
    assert run.record.arms["run"].trajectory["step"].values.tolist() == [0, 7, 10, 14, 21, 28]


# -- the record ------------------------------------------------------------------------------------


def test_the_record_is_read_shown_and_whole(tmp_path):
    model, probe, _ = gpt2("sdpa")
    file = tmp_path / "run" / "record.nc"
    with Watch(model, probe, Every(1), output=file, name="My run", ablations=True) as run:
        with torch.no_grad():
            model.transformer.h[0].attn.c_attn.weight[:, :32] += 1.0
        run.step(2.5)
        assert Record.open(file).arms["run"].trajectory.sizes["step"] == 2  # after each measurement
    record = Record.open(file)
    study = known_study(record.study)
    assert study is not None
    found = record.arms["run"].trajectory
    missing = {"second_moment", "rounding_shift"}
    assert {one for one in found.data_vars if not str(one).endswith(ERROR)} == {
        *VARIABLES.keys() - missing,
        "diverged_at",
    }
    assert found["displacement"].isel(seed=0, step=1).sel(part="query").values == pytest.approx(
        [32.0, 0.0]
    )
    assert record.config["causal"]
    assert not study.judge(record)
    page = render_page([(study, record)])
    for text in ("<h3>My run</h3>", "Heads along training"):
        assert text in page
    panels = [panel.title for figure in study.drawn(record) for panel in figure.panels]
    assert "Displacement of weights, mean over layers" in panels
    assert 'id="claims"' not in page
    assert page.count(" open>") == 1, "the only study is unfolded"
    for name in ("attention_entropy", "query_alignment"):
        assert found[name].attrs["long_name"]
    assert (found["attention_entropy"] <= found["uniform_entropy"]).all()


def test_adams_epsilon_is_compared_with_its_gradients():
    """Gradients 1e-8 of their size are below epsilon; the ratio is that of Adam's own state."""
    ratios = []
    for factor in (1.0, 1e-8):
        model = language_model()
        optimiser = torch.optim.Adam(model.parameters(), 1e-3, eps=1e-8)
        run = Watch(
            model, IDS, Every(1), loss=next_word_loss(IDS), output=None, optimiser=optimiser
        )
        (factor * next_word_loss(IDS)(model(IDS))).backward()
        gradients = model.attention[0].proj.weight.grad
        optimiser.step()
        run.step()
        found = run.record.arms["run"].trajectory["second_moment"].sel(part="output", step=1)
        expected = float(gradients.square().mean().sqrt()) / 1e-8
        assert float(found.isel(seed=0, layer=0)) == pytest.approx(expected, rel=1e-4)
        query = run.record.arms["run"].trajectory["second_moment"].sel(part="query", step=1)
        assert np.isfinite(query).all()
        ratios.append(float(found.isel(seed=0, layer=0)))
    assert ratios[0] > 100 > 1 > ratios[1]


def test_a_run_that_goes_on_has_a_record_of_its_own(tmp_path):
    """As the Trainer calls it: at step 4, from a checkpoint."""
    callback = Callback(IDS, Every(2), output=tmp_path / "record.nc", causal=True)
    arguments = types.SimpleNamespace(bf16=False, fp16=False, output_dir=str(tmp_path))
    for first in (0, 4):
        state = types.SimpleNamespace(global_step=first, max_steps=first + 4, log_history=[])
        callback.on_train_begin(arguments, state, None, model=language_model())
        for _ in range(4):
            callback.on_step_end(arguments, state, None)
        callback.on_train_end(arguments, state, None)
    steps = {
        name: Record.open(tmp_path / name).arms["run"].trajectory["step"].values.tolist()
        for name in ("record.nc", "record-from-4.nc")
    }
    assert steps == {"record.nc": [0, 2, 4], "record-from-4.nc": [4, 6, 8]}


def test_other_processes_of_a_distributed_run_measure_nothing(monkeypatch):
    monkeypatch.setattr("saccade.watch.watcher._is_other_process", lambda: True)
    run = Watch(language_model(), IDS, Every(1), output=None)
    run.step()
    assert run.finish() is None
    with pytest.raises(ConfigError, match=r"^record: got a process that does not measure, allowed"):
        _ = run.record


def test_no_hook_of_a_parameter_runs():
    model, seen = language_model(), []
    for one in model.parameters():
        one.register_hook(seen.append)
        one.register_post_accumulate_grad_hook(seen.append)
    Watch(model, IDS, loss=next_word_loss(IDS), output=None)
    assert not seen
    assert all(one.grad is None for one in model.parameters())


def test_the_trainer_trains_as_without_and_leaves_a_record(tmp_path):
    ids = [{"input_ids": row, "labels": row} for row in IDS.repeat(4, 1)]

    def run(name: str, *callbacks: Any) -> Any:
        torch.manual_seed(0)
        model = FAMILIES["gpt2"].build("sdpa")
        arguments = transformers.TrainingArguments(
            str(tmp_path / name),
            max_steps=5,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            logging_steps=2,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(model, arguments, train_dataset=ids, callbacks=[*callbacks])  # pyright: ignore[reportArgumentType]
        trainer.train()
        return model.state_dict()

    callback = Callback({"input_ids": IDS, "labels": IDS}, Every(2))
    alone, watched = run("alone"), run("watched", callback)
    assert all(torch.equal(alone[name], watched[name]) for name in alone)
    record = Record.open(tmp_path / "watched" / "saccade" / "record.nc")
    found = record.arms["run"].trajectory.isel(seed=0)
    assert found["step"].values.tolist() == [0, 2, 4, 5]
    assert np.isfinite(found["training_loss"].sel(step=[2, 4, 5])).all()
    assert np.isfinite(found["second_moment"].sel(step=5)).all()
    assert callback.run is not None


# -- one definition --------------------------------------------------------------------------------


def test_pytorchs_statistics_are_those_of_the_jax_probes():
    """The encoder of `saccade.models` and PyTorch's own, with the same weights and padding."""
    config = EncoderConfig(layers=2, heads=2, dimension=8, hidden=12, weight_scale=3.0, longest=24)
    model = config.build(KeywordSentences(), jax.random.key(0))
    rng = np.random.default_rng(0)
    words = rng.integers(0, KeywordSentences().vocabulary_size, IDS.shape).astype(np.int32)
    arrays: Any = (words, np.zeros(len(words), np.int32), np.asarray(MASK) > 0)
    batch = Batch(*map(jax.numpy.asarray, arrays))

    def ours(model: Any, batch: Any) -> Any:
        layers = model.attention_layers(batch)
        both = [
            layer_statistics(one, 128) | layer_statistics(one, 128, spread=True) for one in layers
        ]
        return both, [token_cosine(one) for one in layers]

    expected, cosines = eqx.filter_jit(ours)(model, batch)
    theirs = torch_encoder(model)
    inputs = torch.tensor(np.asarray(model.embedding)[words] + np.asarray(model.positions)[:24])
    padding = MASK == 0
    found = measure(theirs, Probe((inputs, None, padding), words=MASK > 0))
    assert len(found.calls) == 2
    weights = [weights_of(theirs, path, 2) for path in found.calls]
    for one, layer, parts in zip(found.calls.values(), expected, weights, strict=True):
        assert one.squares is not None
        added = {"head_norm": added_norms(parts["output"], one.squares)}
        for name in set(layer) - {"attention_total", "rounding_shift"}:
            value = (one.values | added)[name]
            np.testing.assert_allclose(value, layer[name], rtol=1e-4, atol=1e-6, err_msg=name)
        assert np.all(np.isnan(layer["rounding_shift"]))
        assert "rounding_shift" not in one.values
    np.testing.assert_allclose(list(found.cosines.values()), cosines, rtol=1e-4, atol=1e-6)


def torch_encoder(model: Any) -> Any:
    """PyTorch's encoder with the weights of one of `saccade.models`."""
    size, hidden = model.embedding.shape[1], model.layers[0].feed_forward.inner.bias.shape[0]
    heads = model.layers[0].attention.heads
    options: Any = {"activation": "gelu", "batch_first": True, "norm_first": True}
    layer = torch.nn.TransformerEncoderLayer(size, heads, hidden, **options)
    found = torch.nn.TransformerEncoder(layer, len(model.layers), enable_nested_tensor=False)
    for ours, theirs in zip(model.layers, found.layers, strict=True):
        block, feed = ours.attention, ours.feed_forward
        inputs = (block.query, block.key, block.value)
        copies = [
            (theirs.self_attn.in_proj_weight, [one.weights for one in inputs]),
            (theirs.self_attn.in_proj_bias, [one.bias for one in inputs]),
            (theirs.self_attn.out_proj.weight, [block.output.weights]),
            (theirs.self_attn.out_proj.bias, [block.output.bias]),
            (theirs.linear1.weight, [feed.inner.weights]),
            (theirs.linear1.bias, [feed.inner.bias]),
            (theirs.linear2.weight, [feed.outer.weights]),
            (theirs.linear2.bias, [feed.outer.bias]),
            (theirs.norm1.weight, [ours.attention_norm.scale]),
            (theirs.norm1.bias, [ours.attention_norm.shift]),
            (theirs.norm2.weight, [ours.feed_forward_norm.scale]),
            (theirs.norm2.bias, [ours.feed_forward_norm.shift]),
        ]
        with torch.no_grad():
            for parameter, arrays in copies:
                parameter.copy_(
                    torch.cat([torch.tensor(np.asarray(one).T.copy()) for one in arrays])
                )
    return found


def test_jax_takes_no_device_in_a_process_that_trains_with_pytorch(tmp_path):
    """Nor is transformers imported for a model that is not one of its own."""
    program = """
        import sys
        import torch
        from saccade.watch import Watch

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.words = torch.nn.Embedding(9, 4)

            def forward(self, ids):
                states = self.words(ids)[:, None]
                return torch.nn.functional.scaled_dot_product_attention(states, states, states)

        ids = torch.arange(8)[None]
        with Watch(Model(), ids, loss=torch.mean, output=sys.argv[1]) as run:
            run.step()
        from jax._src import xla_bridge
        print(list(xla_bridge._backends), "transformers" in sys.modules)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "record.nc")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[] False\n"
    assert Record.open(tmp_path / "record.nc").config["rungs"] == {"model": "products"}
