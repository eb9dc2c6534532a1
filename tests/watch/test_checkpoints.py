"""`saccade measure`: checkpoints of a run, what is wrong with them, and the record they make."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade.cli import main
from saccade.records.record import Record
from watch.families import FAMILIES, torch, transformers

TEXT = "the cat sat on the mat and the dog sat on the cat . " * 20
WORDS = {
    one: place for place, one in enumerate(["<unk>", "<pad>", "<mask>", *sorted(set(TEXT.split()))])
}


def tokeniser() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel(WORDS, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # pyright: ignore[reportAttributeAccessIssue]
    special = {"unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, **special)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three checkpoints of GPT-2, as the Trainer leaves them."""
    folder = tmp_path_factory.mktemp("saved") / "run"
    model = FAMILIES["gpt2"].build("sdpa")
    for step in (5, 10, 100):
        with torch.no_grad():
            model.transformer.h[1].attn.c_attn.weight[:, :32] += 0.25
        path = folder / f"checkpoint-{step}"
        model.save_pretrained(path)
        tokeniser().save_pretrained(path)
        losses = [{"step": one, "loss": 5 - one / 100} for one in (5, 10, 100) if one <= step]
        state = {"global_step": step, "log_history": losses}
        (path / "trainer_state.json").write_text(json.dumps(state))
    (folder.parent / "text.txt").write_text(TEXT)
    return folder


@pytest.fixture
def run(saved: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoints, for tests that change them."""
    return Path(shutil.copytree(saved, tmp_path / "run"))


def measured(folder: Path, saved: Path, *more: str) -> tuple[int, Path]:
    output = folder.parent / "record.nc"
    text = str(saved.parent / "text.txt")
    sizes = ("--tokens", "16", "--sequences", "3")
    return main(["measure", str(folder), "--text", text, "-o", str(output), *sizes, *more]), output


def test_a_folder_of_checkpoints_becomes_a_record(run, saved, tmp_path, capsys):
    code, output = measured(run, saved)
    assert code == 0
    shown = capsys.readouterr()
    assert "steps 5 -> 100" in shown.out
    assert (
        f"; record: {output}\nnext: saccade diagnose {output}, saccade report {output}" in shown.out
    )
    assert "step 100: " in shown.err
    found = Record.open(output).arms["run"].trajectory.isel(seed=0)
    assert found["step"].values.tolist() == [5, 10, 100]
    np.testing.assert_allclose(found["training_loss"], [4.95, 4.9, 4.0], rtol=1e-6)
    moved = found["displacement"].sel(part="query")
    np.testing.assert_allclose(moved, [[0, 0], [0, 8], [0, 16]], rtol=1e-5)  # 0.25 in 32 x 32
    assert np.isfinite(found["loss"]).all()
    assert float(found["visible_keys"].max()) == 8.5  # 16 tokens, causal
    page = tmp_path / "page.html"
    assert main(["report", str(output), "-o", str(page)]) == 0
    assert "Heads along training" in page.read_text()


def test_one_checkpoint_is_a_run_of_one_step(run, saved, capsys):
    code, _ = measured(run / "checkpoint-10", saved, "--ablations")
    assert code == 0
    shown = capsys.readouterr()
    assert "trainer_state" not in shown.err
    assert ": step 10" in shown.out
    assert "uniform" in shown.out


def test_fewer_tokens_than_asked_for_are_said(run, saved, capsys):
    code, _ = measured(run, saved, "--tokens", "1000")
    assert code == 0
    said = "sequences have 64 tokens, the most that model and text have, not 1000"
    assert said in capsys.readouterr().err


def test_checkpoints_of_one_step(run, saved):
    code, output = measured(run / "checkpoint-10", saved)
    assert code == 0
    assert Record.open(output).arms["run"].trajectory["step"].values.tolist() == [10]


def test_duplicates_are_named_and_left_out(run, saved, capsys):
    shutil.copytree(run / "checkpoint-10", run / "checkpoint-20")
    code, output = measured(run, saved)
    assert code == 0
    assert (
        "checkpoint-20: has the weights of checkpoint-10; it is left out" in capsys.readouterr().err
    )
    assert Record.open(output).arms["run"].trajectory.sizes["step"] == 3


def test_wrong_numbers_are_named_and_the_trainers_taken(run, saved, capsys):
    (run / "checkpoint-100").rename(run / "checkpoint-1")
    code, output = measured(run, saved)
    assert code == 0
    assert "checkpoint-1: its trainer_state.json says step 100, which is taken" in (
        capsys.readouterr().err
    )
    assert Record.open(output).arms["run"].trajectory["step"].values.tolist() == [5, 10, 100]


def wrong(run: Path, saved: Path, capsys: Any, *more: str) -> str:
    code, output = measured(run, saved, *more)
    assert code in (1, 2)
    assert not output.exists()
    return capsys.readouterr().err


def test_one_step_with_two_weights_is_refused(run, saved, capsys):
    state = run / "checkpoint-10" / "trainer_state.json"
    state.write_text(json.dumps({"global_step": 100}))
    said = wrong(run, saved, capsys)
    assert "checkpoint-10, checkpoint-100 are of one step with different weights" in said


def test_pickles_are_never_read(run, saved, capsys):
    (run / "checkpoint-5" / "model.safetensors").rename(run / "checkpoint-5" / "pytorch_model.bin")
    said = wrong(run, saved, capsys)
    assert "checkpoint-5: only pytorch_model.bin, which is never read: no *.safetensors" in said


def test_code_of_a_checkpoint_is_never_run(run, saved, capsys):
    config = run / "checkpoint-5" / "config.json"
    plain = json.loads(config.read_text())
    plain |= {"architectures": ["OwnModel"], "auto_map": {"AutoModel": "own.OwnModel"}}
    config.write_text(json.dumps(plain))
    (run / "checkpoint-5" / "own.py").write_text("raise SystemExit('was run')")
    said = wrong(run, saved, capsys)
    assert "its config names the class OwnModel, which transformers does not have" in said


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("trainer_state.json", "{", "trainer_state.json: not a state of the Trainer (JSONDecode"),
        ("model.safetensors", "cut", "checkpoint-5: cannot be read: "),
        (
            "tokenizer.json",
            None,
            "text.txt: the checkpoint's tokeniser gives 0 tokens, allowed",
        ),
        ("config.json", None, "checkpoint-5: cannot be read: "),
    ],
)
def test_broken_and_missing_files_are_named(run, saved, capsys, file, content, expected):
    path = run / "checkpoint-5" / file
    if content is None:
        path.unlink()
        (run / "checkpoint-5" / "tokenizer_config.json").unlink(missing_ok=True)
    else:
        path.write_text(content)
    assert expected in wrong(run, saved, capsys)


def test_missing_weights_are_not_drawn_at_random(run, saved, capsys):
    from safetensors.torch import load_file, save_file

    file = run / "checkpoint-10" / "model.safetensors"
    weights = load_file(file)
    del weights["transformer.h.0.attn.c_attn.weight"]
    save_file(weights, file, {"format": "pt"})
    code, _ = measured(run, saved)
    assert code == 1
    said = capsys.readouterr().err
    assert "checkpoint-10: has no weights for transformer.h.0.attn.c_attn.weight" in said


def test_a_device_that_is_not_here_is_named(saved, tmp_path, capsys):
    for device in ("cuda:7", "nonsense"):
        said = wrong(
            Path(shutil.copytree(saved, tmp_path / device)), saved, capsys, "--device", device
        )
        assert f"--device: got '{device}', which is not here (" in said


def test_models_of_pictures_are_refused(tmp_path, capsys):
    sizes: Any = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 16, "image_size": 8, "patch_size": 4}
    model = transformers.ViTForImageClassification(transformers.ViTConfig(**sizes))
    model.save_pretrained(tmp_path / "model")
    tokeniser().save_pretrained(tmp_path / "model")
    (tmp_path / "text.txt").write_text(TEXT)
    arguments = [str(tmp_path / "model"), "--text", str(tmp_path / "text.txt")]
    assert main(["measure", *arguments, "-o", str(tmp_path / "record.nc")]) == 1
    assert "model: the model takes pixel_values, allowed: models of text" in capsys.readouterr().err


def test_weights_of_another_size_are_named(run, saved, capsys):
    config = transformers.GPT2Config(**FAMILIES["gpt2"].settings | {"n_embd": 16}, vocab_size=97)
    transformers.GPT2LMHeadModel(config).save_pretrained(run / "checkpoint-10")
    code, _ = measured(run, saved)
    assert code == 1
    assert "checkpoint-10: its weights do not fit the first checkpoint's" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["measure"], "got 0 folders, allowed: one folder, or --hub NAME with --steps"),
        (["measure", "a", "b"], "got 2 folders, allowed"),
        (["measure", "a"], "--text: got none, allowed: the text file on which to measure"),
        (["measure", "a", "--text", "none.txt"], "cannot read none.txt: no such file"),
        (["measure", "--hub", "a/b", "--text", __file__], "--hub: got no --steps, allowed"),
        (["measure", "none", "--text", __file__], "cannot read none: no such folder"),
        (["measure", ".", "--steps", "3", "--text", __file__], "--steps: got steps for a folder"),
        (["measure", ".", "--rows", "0", "--text", __file__], "--rows: got 0, allowed: a whole n"),
    ],
)
def test_wrong_options_are_one_line(arguments, expected, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) in (1, 2)
    said = capsys.readouterr().err
    assert said.startswith(f"saccade: {expected}")
    assert said.count("\n") == 1


def test_an_empty_folder_and_an_empty_text_are_named(saved, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.txt").write_text("\n\n")
    text = ["--text", str(tmp_path / "empty.txt"), "-o", str(tmp_path / "record.nc")]
    assert main(["measure", str(tmp_path / "empty"), *text]) == 1
    assert "empty: no folders checkpoint-*, and no config.json" in capsys.readouterr().err
    assert main(["measure", str(saved), *text]) == 1
    assert "empty.txt: has no text" in capsys.readouterr().err


def test_without_a_network_the_hub_is_one_line(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "text.txt").write_text(TEXT)
    arguments = ["--hub", "nobody/nothing", "--steps", "0", "--text", str(tmp_path / "text.txt")]
    assert main(["measure", *arguments, "-o", str(tmp_path / "record.nc")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("saccade: nobody/nothing, revision step0: cannot be read: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("name", ["bert", "t5"])
def test_other_kinds_of_models_get_their_own_labels(name, tmp_path):
    family = FAMILIES[name]
    folder = tmp_path / "model"
    family.build("eager").save_pretrained(folder)
    tokeniser().save_pretrained(folder)
    (tmp_path / "text.txt").write_text(TEXT)
    arguments = [str(folder), "--text", str(tmp_path / "text.txt"), "--tokens", "16"]
    assert main(["measure", *arguments, "-o", str(tmp_path / "record.nc")]) == 0
    found = Record.open(tmp_path / "record.nc").arms["run"].trajectory
    assert np.isfinite(found["loss"]).all()
    assert found.sizes["layer"] == family.layers


def test_decoders_do_not_see_the_word_that_they_predict():
    from saccade.watch.checkpoints import _arguments

    ids = torch.arange(3, 9)[None]
    batch = _arguments(FAMILIES["t5"].build(), tokeniser(), ids)
    assert batch["decoder_input_ids"].tolist() == [[0, 3, 4, 5, 6, 7]]
    assert batch["labels"].tolist() == ids.tolist()
