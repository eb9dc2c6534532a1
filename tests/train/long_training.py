"""A training that takes a second or two and writes its state all the time: run as a script to be
killed.

    python long_training.py FOLDER

Prints a line per event, and in the end a digest of every number.
"""

import dataclasses
import hashlib
import sys
import time
from pathlib import Path

import jax
from word_table import Sentences, SplitLoss, Table, WordTableConfig

from saccade.errors import SaccadeError
from saccade.records.schedule import Every
from saccade.train.batches import Minibatch
from saccade.train.lab import Lab
from saccade.train.optimiser import Adam
from saccade.train.rates import Cosine
from saccade.train.recipe import Recipe
from saccade.train.stopping import EarlyStopping
from saccade.train.training import TrainedArm
from saccade.workers.progress import Progress

STEPS = 4000
"""A dispatch ends after 32 recorded steps at the latest, so this makes 25 of them or more on any
machine.
"""


def train(lab: Lab) -> TrainedArm:
    """Minibatches by length, Adam with a schedule, early stopping: order, optimiser state
    and best weights must survive a kill.
    """
    recipe = Recipe(
        Sentences(tuple(range(1, 25))),
        WordTableConfig(),
        Adam(0.01, schedule=Cosine(2 * STEPS, warmup=100), decay=0.01),
        STEPS,
        probes=(Table(), SplitLoss()),
        at=Every(5),
        ends=(Table(),),
        batches=Minibatch(3, by_length=True),
        stopping=EarlyStopping("validation_loss", patience=STEPS),
    )
    return lab.train({"long training": recipe}, 4)["long training"]


def numbers(training: TrainedArm) -> str:
    """A digest of all recorded numbers and of the trained models."""
    digest = hashlib.sha256()
    for dataset in (training.trajectory, training.snapshot):
        for name in sorted(dataset.variables, key=str):
            digest.update(str(name).encode() + dataset[name].values.tobytes())
    digest.update(training.models.table.tobytes())
    return digest.hexdigest()


def _slow(event: Progress) -> None:
    print(event.step, event.note, flush=True)
    time.sleep(0.03)  # so that no machine is through before it is killed


def main() -> int:
    jax.config.update("jax_num_cpu_devices", 2)
    jax.devices()
    lab = Lab(Path(sys.argv[1]), progress=_slow, state_interval=0)
    try:
        print(numbers(train(lab)))
    except SaccadeError as error:
        print(error)
        return error.exit_code
    # A finished training leaves nothing to do: the same call with the same lab is answered from the
    # cache.
    print(numbers(train(dataclasses.replace(lab, progress=None))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
