"""Models that transformers has stored: in a folder, or by name on the hub. A model's own code is
never run.
"""

import contextlib
import dataclasses
import logging
from collections.abc import Iterator
from typing import Any

import transformers
from torch import nn

from saccade.errors import FileError, described


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Weights at a step."""

    step: int
    path: str
    """A folder, or a name on the hub."""
    revision: str | None = None

    @property
    def title(self) -> str:
        return self.path if self.revision is None else f"{self.path}, revision {self.revision}"

    def load(self) -> nn.Module:
        """The model, of the class that its config names."""
        config = self.read(transformers.AutoConfig)
        names = getattr(config, "architectures", None) or []
        kind = next(
            (getattr(transformers, one) for one in names if hasattr(transformers, one)), None
        )
        if kind is None:
            known = f"{', '.join(names) or 'none'}"
            raise FileError(
                f"{self.title}: its config names the class {known}, which transformers "
                "does not have; a checkpoint's own code is never run"
            )
        model, loaded = self.read(kind, use_safetensors=True, output_loading_info=True)
        absent = sorted({*loaded["missing_keys"], *(str(one) for one in loaded["mismatched_keys"])})
        if absent:
            more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
            raise FileError(f"{self.title}: has no weights for {absent[0]}{more}")
        takes = getattr(model, "main_input_name", "input_ids")
        if takes != "input_ids":
            raise FileError(f"{self.title}: the model takes {takes}, allowed: models of text")
        return model

    def read(self, kind: Any, **options: Any) -> Any:
        """A part of the checkpoint, by a class of transformers."""
        local = self.revision is None
        where: dict[str, Any] = {"local_files_only": True} if local else {"revision": self.revision}
        try:
            with quietly():
                return kind.from_pretrained(self.path, trust_remote_code=False, **where, **options)
        except Exception as error:
            # transformers raises errors of many kinds for files that are missing or broken
            raise FileError(f"{self.title}: cannot be read: {described(error)}") from error


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without the warnings and bars of transformers, which say nothing about the record."""
    loggers = [logging.getLogger(name) for name in ("transformers", "huggingface_hub")]
    levels = [logger.level for logger in loggers]
    bars = transformers.utils.logging.is_progress_bar_enabled()
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if bars:
            transformers.utils.logging.enable_progress_bar()
