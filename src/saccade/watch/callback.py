"""A callback for the Trainer of Hugging Face's transformers."""

from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from saccade.records.record import Record
from saccade.records.schedule import AbstractSchedule, Logarithmic
from saccade.watch.watcher import Watch


class Callback(TrainerCallback):
    """Watches a run of the Trainer: `Trainer(..., callbacks=[Callback(probe=batch)])`.

    `probe` is a dict of the model's arguments, as a collator makes it; further options are those of
    `Watch`. Precision and the number of steps are the Trainer's. The record is written to
    `saccade/record.nc` in the Trainer's output folder, or to `output`; that of a run that goes on
    from a checkpoint to a file of its own, `record-from-STEP.nc`.
    """

    def __init__(
        self,
        probe: Any,
        every: AbstractSchedule = Logarithmic(40),  # noqa: B008 (frozen)
        output: str | Path | None = None,
        **options: Any,
    ):
        self._probe, self._every, self._output, self._options = probe, every, output, options
        self._run: Watch | None = None

    @property
    def run(self) -> Watch | None:
        """The watched run, once training has begun."""
        return self._run

    @property
    def record(self) -> Record | None:
        return None if self._run is None else self._run.record

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        lower = torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else None
        output = Path(self._output or Path(args.output_dir) / "saccade" / "record.nc")
        if state.global_step and output.exists():  # of the run that is gone on with
            output = output.with_name(f"{output.stem}-from-{state.global_step}{output.suffix}")
        given: dict[str, Any] = {
            "steps": state.max_steps if state.max_steps > 0 else None,
            "first": state.global_step,
            "autocast": lower,
            "output": output,
            "optimiser": _plain(parts.get("optimizer")),
        }
        self._run = Watch(parts["model"], self._probe, self._every, **given | self._options)

    def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        if self._run is not None:
            self._run.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        if self._run is not None:
            self._run.add_losses(logged_losses(state.log_history))
            self._run.finish()


def logged_losses(history: Any) -> dict[int, float]:
    """Training losses by step, from the Trainer's log."""
    return {int(one["step"]): float(one["loss"]) for one in history if "loss" in one}


def _plain(optimiser: Any) -> Any:
    """The optimiser within wrappers, if it is one of PyTorch."""
    inner = getattr(optimiser, "optimizer", optimiser)
    return inner if isinstance(inner, torch.optim.Optimizer) else None
