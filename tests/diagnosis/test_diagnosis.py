"""Faults come out by name, and only those that a run has: each is made on purpose."""

import json
from typing import Any

import numpy as np
import pytest
import xarray as xr

from saccade.cli import main
from saccade.diagnosis.bypassed import Bypassed
from saccade.diagnosis.catalogue import FAULTS, NUMBERED, diagnose, strip
from saccade.diagnosis.diverged import Diverged
from saccade.diagnosis.epsilon_swallows import EpsilonSwallows
from saccade.diagnosis.future_visible import FutureVisible
from saccade.diagnosis.inactive_head import InactiveHead
from saccade.diagnosis.no_lexical_signal import NoLexicalSignal
from saccade.diagnosis.padding_attended import PaddingAttended
from saccade.diagnosis.part_not_trained import PartNotTrained
from saccade.diagnosis.rank_collapse import RankCollapse
from saccade.diagnosis.saturated import Saturated
from saccade.diagnosis.score_growth import LargeScores, ScoreGrowth
from saccade.diagnosis.scores_rounded import ScoresRounded
from saccade.diagnosis.sink import Sink
from saccade.diagnosis.softmax_blind import SoftmaxBlind
from saccade.diagnosis.values_first import ValuesFirst
from saccade.errors import ConfigError
from saccade.records.record import Arm, Record
from saccade.records.schedule import Every
from saccade.registry import known_study
from saccade.report.page import render_page
from saccade.watch import Watch
from watch.families import (
    Encoder,
    KernelAttention,
    language_model,
    next_word_loss,
    sentences,
    stronger,
    torch,
)

IDS, MASK = sentences()
pytestmark = pytest.mark.filterwarnings("ignore:saccade. the probe has no loss:UserWarning")
STEPS = 10


class OpenAttention(KernelAttention):
    """Without the causal mask."""

    def forward(self, states: Any) -> Any:
        shape = (*states.shape[:2], self.heads, -1)
        parts = (one.view(shape).transpose(1, 2) for one in self.qkv(states).chunk(3, -1))
        found = torch.nn.functional.scaled_dot_product_attention(*parts)
        return self.proj(found.transpose(1, 2).reshape(states.shape))


def trained(
    model: Any,
    parameters: Any = None,
    factor: float = 1.0,
    rate: float = 1e-3,
    decay: float = 0.0,
    **options: Any,
) -> Record:
    """A few steps of Adam on random words."""
    chosen = model.parameters() if parameters is None else parameters
    optimiser = torch.optim.AdamW(chosen, rate, weight_decay=decay)
    loss_of = next_word_loss(IDS)
    given: Any = {"causal": True} | options
    run = Watch(
        model, IDS, Every(5), loss=loss_of, ids=IDS, optimiser=optimiser, output=None, **given
    )
    for _ in range(STEPS):
        optimiser.zero_grad()
        (factor * loss_of(model(IDS))).backward()
        optimiser.step()
        run.step()
    record = run.finish()
    assert record is not None
    return record


def healthy() -> Record:
    return trained(language_model())


def without_causal_mask() -> Record:
    return trained(language_model(OpenAttention))


def frozen() -> Record:
    model = language_model()
    return trained(model, [one for name, one in model.named_parameters() if "proj" not in name])


def tiny_loss() -> Record:
    return trained(language_model(), factor=1e-9)


def large_scores() -> Record:
    model = language_model()
    with torch.no_grad():
        model.attention[1].qkv.weight[:64] *= 60
    return trained(model)


def keys_alike() -> Record:
    """Keys are a constant and a little noise. (Adam at the usual rate leaves this within ten steps:
    it moves weights by its rate, however small their gradients.)
    """
    model = language_model()
    with torch.no_grad():
        model.attention[0].qkv.weight[32:64] *= 1e-3
        model.attention[0].qkv.bias[32:64] = 3.0
    return trained(model, rate=1e-6)


def diverging() -> Record:
    model = language_model()
    run = Watch(model, IDS, Every(5), loss=next_word_loss(IDS), ids=IDS, output=None, causal=True)
    with torch.no_grad():
        model.out.weight.fill_(np.nan)
    with pytest.warns(UserWarning, match="is not measured: the model's outputs are not finite"):
        run.at(STEPS)
    return run.record


def without_gradient() -> Record:
    """Weight decay moves the weights of the output, and nothing else does."""
    model = language_model()
    for one in model.attention:
        one.proj.weight.register_hook(torch.zeros_like)
    return trained(model, decay=0.1)


def padding() -> Record:
    torch.manual_seed(0)
    model = stronger(Encoder(), 2.0)
    given = (IDS, torch.zeros_like(MASK) > 0)  # no mask
    run = Watch(model, given, loss=next_word_loss(IDS), ids=IDS, words=MASK > 0, output=None)
    return run.record


def first_word() -> Record:
    """Every head attends to the first position, by its embedding."""

    class SinkAttention(KernelAttention):
        def forward(self, states: Any) -> Any:
            q = torch.ones_like(states)[:, None]
            k = torch.zeros_like(states)
            k[:, 0] = 2.0
            mixed = torch.nn.functional.scaled_dot_product_attention(
                q, k[:, None], states[:, None], is_causal=True
            )
            return self.proj(mixed[:, 0])

    return Watch(language_model(SinkAttention), IDS, loss=next_word_loss(IDS), output=None).record


def one_hot() -> Record:
    model = language_model()
    with torch.no_grad():
        model.attention[1].qkv.weight[:64] *= 5
    return trained(model)


def alike() -> Record:
    """All words have nearly one vector."""
    model = language_model()
    with torch.no_grad():
        model.words.weight.mul_(0.01).add_(torch.linspace(-1, 1, 32))
        model.places.weight.mul_(0.01)
    return trained(model, rate=1e-5)


def silent_head() -> Record:
    """The first head gives 0, and nothing would be made of what it gives: no gradient comes."""
    model = language_model()
    with torch.no_grad():
        model.attention[0].qkv.weight[64:72] = 0
        model.attention[0].qkv.bias[64:72] = 0
        model.attention[0].proj.weight[:, :8] = 0
    return trained(model)


RUNS = {
    Diverged: diverging,
    PaddingAttended: padding,
    FutureVisible: without_causal_mask,
    PartNotTrained: frozen,
    EpsilonSwallows: tiny_loss,
    ScoreGrowth: large_scores,
    SoftmaxBlind: keys_alike,
    Saturated: one_hot,
    RankCollapse: alike,
    InactiveHead: silent_head,
}
CONSEQUENCES = {
    ScoreGrowth: {Saturated},
    PaddingAttended: {Saturated},  # the model's scores are spread by `stronger`
    RankCollapse: {SoftmaxBlind},
}
"""What a run has besides."""


def test_every_fault_has_a_run():
    """Of PyTorch here, or of models of this package (`test_faults`)."""
    elsewhere = {Bypassed, NoLexicalSignal, ScoresRounded, ValuesFirst}
    assert {*RUNS, Sink, LargeScores, *elsewhere} == {type(fault) for fault in FAULTS}
    assert not elsewhere & {*RUNS}


def test_a_healthy_run_has_none():
    (found,) = diagnose(healthy())
    assert not found.found
    assert not found.information
    unknown = {PaddingAttended, NoLexicalSignal, ScoresRounded, Bypassed}
    assert {type(fault) for fault, _ in found.unchecked} <= unknown


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_with_one_fault_has_that_one(kind):
    (found,) = diagnose(RUNS[kind]())
    named = [type(one.fault) for one in found.found]
    assert named[0] is kind
    assert {*named[1:]} <= CONSEQUENCES.get(kind, set())


def test_weights_that_only_decay_are_not_trained():
    (found,) = diagnose(without_gradient())
    assert [type(one.fault) for one in found.found] == [PartNotTrained]
    assert found.found[0].places == "2 of 8"
    assert found.found[0].value > 0


def test_a_run_that_diverged_is_judged_where_it_has_numbers():
    (found,) = diagnose(diverging())
    assert found.step == 0
    assert found.found[0].value == STEPS
    (before,) = diagnose(diverging(), 5)
    assert not before.found


def test_places_and_numbers_are_named():
    (found,) = diagnose(keys_alike())
    (one,) = found.found
    assert one.where.startswith("layer attention.0, head ")
    assert one.places == "4 of 8"
    assert 0 < one.value < 1e-2
    (found,) = diagnose(frozen())
    (one,) = found.found
    assert one.value == 0
    assert one.where == "layer attention.0, part output"
    assert one.places == "2 of 8"


def test_a_part_needs_some_steps_to_be_called_still():
    record = frozen()
    assert not diagnose(record, 5)[0].found
    assert diagnose(record, 5)[0].step == 5
    assert diagnose(record, 9)[0].step == 5
    with pytest.raises(ConfigError, match=r"^--step: got -3, allowed: at least 0, the fir"):
        diagnose(record, -3)


def test_a_sink_is_information():
    (found,) = diagnose(first_word())
    assert not any(one.fault.is_information for one in found.found)
    assert [type(one.fault) for one in found.information] == [Sink]


def test_large_scores_are_information_until_they_are_out_of_bounds():
    model = language_model()
    with torch.no_grad():
        model.attention[1].qkv.weight[:64] *= 10
    (found,) = diagnose(trained(model))
    assert [type(one.fault) for one in found.found] == [Saturated]
    (one,) = found.information
    assert isinstance(one.fault, LargeScores)
    assert 100 < one.value < 10_000


def test_the_first_in_causal_order_is_the_cause():
    """Without a causal mask and with large scores: the mask comes first."""
    model = language_model(OpenAttention)
    with torch.no_grad():
        model.attention[1].qkv.weight[:64] *= 60
    (found,) = diagnose(trained(model))
    assert [type(one.fault) for one in found.found] == [FutureVisible, ScoreGrowth, Saturated]


def test_strips_show_the_first_fault_of_every_head():
    record = large_scores()
    found = strip(record.arms["run"].trajectory, record.config)
    number = next(one for one, fault in NUMBERED.items() if isinstance(fault, ScoreGrowth))
    assert np.all(found.sel(layer="attention.0") == 0)
    assert np.all(found.sel(layer="attention.1") == number)


def test_the_page_shows_faults_by_number_and_name():
    for made, shown in ((large_scores, True), (healthy, False)):
        record = made()
        study = known_study(record.study)
        assert study is not None
        page = render_page([(study, record)])
        assert ("8 scores have grown out of bounds" in page) == shown
        assert ("No fault of `saccade diagnose` shows at any step" in page) == (not shown)


def test_what_cannot_be_looked_for_is_said():
    run = Watch(language_model(), IDS, output=None, causal=False)
    (found,) = diagnose(run.record)
    reasons = {type(fault): why for fault, why in found.unchecked}
    assert reasons[FutureVisible] == "the run is not said to be causal (Watch(..., causal=True))"
    assert reasons[EpsilonSwallows] == (
        "no second_moment in the record: give Watch the optimiser, one of Adam's kind"
    )


def record_of(**variables: Any) -> Record:
    """A record of a study of saccade's own, with two seeds."""
    dims = ("seed", "step", "layer", "head")
    data = {name: (dims, np.asarray(values, float)) for name, values in variables.items()}
    run = xr.Dataset(data, {"seed": [0, 1], "step": [0, 10]})
    arm = Arm(run)
    return Record("mine", "quick", {}, {"one": arm}, {}, "CPU", "float32", 0.0, title="Mine")


def test_records_of_studies_count_seeds():
    mass = np.zeros((2, 2, 1, 3))
    mass[1, 1, 0, 2] = 0.25
    (found,) = diagnose(record_of(padding_mass=mass))
    (one,) = found.found
    assert (one.value, one.seeds, one.places) == (0.25, "1 of 2 seeds", "1 of 3")
    with pytest.raises(ConfigError, match=r"^record of mine: got none of the numbers in which fau"):
        diagnose(record_of(accuracy=mass))


def test_the_command_says_cause_number_bound_and_remedy(tmp_path, capsys):
    healthy().save(tmp_path / "healthy.nc")
    large_scores().save(tmp_path / "large.nc")
    assert main(["diagnose", str(tmp_path / "healthy.nc")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "healthy.nc:Arunthatwastrainedelsewhere:LanguageModel" in said.replace(" ", "")
    assert "none of the 10 faults that were looked for, at step 10" in said
    assert "padding is attended to: no padding_mass in the record: give Watch" in said
    assert main(["diagnose", str(tmp_path / "large.nc")]) == 1
    said = " ".join(capsys.readouterr().out.split())
    for text in (
        "cause: scores have grown out of bounds",
        "largest score: ",
        "a sign if above 10,000; published: all runs of Wortsman et al. 2023 beyond it",
        "to try: normalise queries and keys (QK-norm)",
    ):
        assert text in said
    assert main(["diagnose", str(tmp_path / "large.nc"), "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)
    assert found["faults"][0]["title"] == "scores have grown out of bounds"
    assert found["file"] == str(tmp_path / "large.nc")
    assert main(["diagnose"]) == 2
    assert main(["diagnose", str(tmp_path / "none.nc")]) == 1


def test_records_without_numbers_are_left_out_and_named(tmp_path, capsys):
    healthy().save(tmp_path / "healthy.nc")
    record_of(accuracy=np.zeros((2, 2, 1, 1))).save(tmp_path / "other.nc")
    assert main(["diagnose", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert "healthy.nc" in shown.out.replace("\n", "")
    assert "record of mine: got none of the numbers" in shown.err
    assert main(["diagnose", str(tmp_path / "other.nc")]) == 2
    (tmp_path / "broken.nc").write_text("no record")
    assert main(["diagnose", str(tmp_path)]) == 1
    assert "broken.nc" in capsys.readouterr().err
