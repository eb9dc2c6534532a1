"""Checkpoints of a run on disk (or, by name, on the hub), measured one after another.

Only safetensors are read: no pickle, and no code of the checkpoint's own.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from saccade.errors import ConfigError, FileError, described
from saccade.files import decoded_text
from saccade.records.record import Record
from saccade.records.schedule import AtSteps
from saccade.stored_models import Checkpoint, quietly
from saccade.watch.callback import logged_losses
from saccade.watch.watcher import Watch

MASKED_SHARE = 0.15
"""Share of the words that a masked language model has to predict."""
Say = Callable[[str], None]


def in_folder(folder: Path, say: Say) -> tuple[list[Checkpoint], dict[int, float]]:
    """The checkpoints of a run, ascending, and its training losses by step. What is wrong with
    their numbers or contents is said by name.
    """
    if not folder.is_dir():
        raise FileError(f"cannot read {folder}: no such folder")
    found = {path: re.fullmatch(r"checkpoint-(\d+)", path.name) for path in folder.iterdir()}
    numbered = sorted((int(match[1]), path) for path, match in found.items() if match)
    if not numbered and (folder / "config.json").exists():
        numbered = [(0, folder)]
    if not numbered:
        raise FileError(f"{folder}: no folders checkpoint-*, and no config.json")
    checkpoints: list[Checkpoint] = []
    losses: dict[int, float] = {}
    contents: dict[str, Path] = {}
    for number, path in numbered:
        digest = _content(path)
        if digest in contents:
            say(f"{path}: has the weights of {contents[digest].name}; it is left out")
            continue
        contents[digest] = path
        step, logged = _state(path)
        losses |= logged
        if step is not None and step != number and path != folder:
            say(f"{path}: its trainer_state.json says step {step}, which is taken")
        checkpoints.append(Checkpoint(number if step is None else step, str(path)))
    steps = [one.step for one in checkpoints]
    twice = [one for one in checkpoints if steps.count(one.step) > 1]
    if twice:
        names = ", ".join(Path(one.path).name for one in twice)
        raise FileError(f"{folder}: {names} are of one step with different weights")
    return sorted(checkpoints, key=lambda one: one.step), losses


def _content(path: Path) -> str:
    """Hash of the weights of a checkpoint."""
    files = sorted(path.glob("*.safetensors"))
    if not files:
        others = sorted(one.name for one in (*path.glob("*.bin"), *path.glob("*.pt")))
        has = f"only {', '.join(others)}, which is never read: " if others else ""
        raise FileError(f"{path}: {has}no *.safetensors; save with save_pretrained(...)")
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(2**20):
                digest.update(block)
    return digest.hexdigest()


def _state(path: Path) -> tuple[int | None, dict[int, float]]:
    """Step and losses that the Trainer wrote beside the weights."""
    file = path / "trainer_state.json"
    if not file.exists():
        return None, {}
    try:
        state = json.loads(file.read_text(encoding="utf-8"))
        return int(state["global_step"]), logged_losses(state.get("log_history", []))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileError(f"{file}: not a state of the Trainer ({described(error)})") from error


def batch_of(
    model: nn.Module, tokeniser: Any, text: Path, sequences: int, tokens: int, say: Say
) -> dict[str, Tensor]:
    """Evenly spaced sequences of a text file, as the model's arguments."""
    lines = [line for line in decoded_text(str(text)).splitlines() if line.strip()]
    if not lines:
        raise FileError(f"{text}: has no text")
    with quietly():
        ids = tokeniser("\n".join(lines), return_tensors="pt", verbose=False)["input_ids"][0]
    known = getattr(model.config, "vocab_size", None)
    if len(ids) < 2 or (known is not None and int(ids.max()) >= known):
        ends = f"{len(ids)} tokens" if len(ids) < 2 else f"the token {int(ids.max())}"
        raise FileError(
            f"{text}: the checkpoint's tokeniser gives {ends}, allowed: at least 2 tokens, below "
            f"{known}; is the tokeniser of the model beside its weights?"
        )
    longest = getattr(model.config, "max_position_embeddings", None) or tokens
    fitting = min(tokens, longest, tokeniser.model_max_length, len(ids))
    if fitting < tokens:
        say(f"sequences have {fitting} tokens, the most that model and text have, not {tokens}")
    tokens = fitting
    count = min(sequences, max(1, len(ids) // tokens))
    starts = torch.linspace(0, max(0, len(ids) - tokens), count).long()
    chosen = torch.stack([ids[start : start + tokens] for start in starts])
    return _arguments(model, tokeniser, chosen)


def _arguments(model: nn.Module, tokeniser: Any, ids: Tensor) -> dict[str, Tensor]:
    name = type(model).__name__
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if name.endswith(("ForCausalLM", "LMHeadModel")):
        return batch | {"labels": ids}
    if name.endswith("ForMaskedLM") and tokeniser.mask_token_id is not None:
        random = torch.rand(ids.shape, generator=torch.Generator().manual_seed(0))
        masked = random < MASKED_SHARE
        words = torch.where(masked, tokeniser.mask_token_id, ids)
        return batch | {"input_ids": words, "labels": torch.where(masked, ids, -100)}
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        shifted = model.prepare_decoder_input_ids_from_labels(labels=ids)  # pyright: ignore[reportCallIssue]
        return batch | {"labels": ids, "decoder_input_ids": shifted}
    return batch


@dataclasses.dataclass(frozen=True)
class Measuring:
    """How checkpoints are measured."""

    text: Path
    sequences: int
    tokens: int
    rows: int
    ablations: bool
    device: str

    def record(
        self,
        checkpoints: Sequence[Checkpoint],
        losses: Mapping[int, float],
        output: Path,
        say: Say,
    ) -> Record:
        """Measure each on the same batch, into one record."""
        first = checkpoints[0]
        path = Path(first.path).resolve()
        is_one = not path.name.startswith("checkpoint-")
        source = first.path if first.revision else path.name if is_one else path.parent.name
        tokeniser = first.read(transformers.AutoTokenizer)
        model = first.load()
        try:
            model.to(self.device)
        except (RuntimeError, AssertionError) as error:
            why = described(error)
            raise ConfigError(
                f"--device: got {self.device!r}, which is not here ({why})"
            ) from error
        batch = batch_of(model, tokeniser, self.text, self.sequences, self.tokens, say)
        run = Watch(
            model,
            batch,
            AtSteps(tuple(one.step for one in checkpoints)),
            first=first.step,
            name=f"Checkpoints of {source}",
            output=output,
            rows=self.rows,
            ablations=self.ablations,
        )
        say(f"step {first.step}: {first.title}")
        for checkpoint in checkpoints[1:]:
            try:
                model.load_state_dict(checkpoint.load().state_dict())
            except RuntimeError as error:
                why = "its weights do not fit the first checkpoint's model"
                raise FileError(f"{checkpoint.title}: {why} ({described(error)})") from error
            run.at(checkpoint.step)
            say(f"step {checkpoint.step}: {checkpoint.title}")
        run.add_losses(losses)
        return run.record
