"""One call of `Lab.train`: the members at once, or in chunks that fit the device."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from saccade.core.engine import Engine
from saccade.core.errors import DoesNotFitError
from saccade.core.identity import address, surroundings, training_digest
from saccade.core.members import Carry, Members
from saccade.core.plan import planned
from saccade.core.program import is_out_of_memory
from saccade.core.run import CARRY, STATE, Run

if TYPE_CHECKING:
    from saccade.core.lab import Lab

__all__: list[str] = []


@dataclasses.dataclass(frozen=True)
class Job:
    """A training, whatever number of members is trained at once."""

    lab: "Lab"
    engine_of: Callable[[Members], Engine]
    """The programs of some members."""
    steps: int
    recorded: np.ndarray
    name: str
    after: Carry | None = None
    """The state of all members with which they begin, if they go on from another training."""
    keep_state: bool = False

    def result(self, members: Members) -> tuple[Engine, str | None, dict[str, np.ndarray], float]:
        """The programs (of all members, or of the first chunk), the content address, what the
        training left, and the seconds that it took.
        """
        count = len(members.seed)
        done = self._chunked(members, self.lab.members_at_once or count)
        if len(done) == 1:
            return done[0]
        digests = [digest for _, digest, _, _ in done]
        digest = None if None in digests else address({"chunks": digests})
        arrays = _joined([one for _, _, one, _ in done])
        return done[0][0], digest, arrays, sum(seconds for *_, seconds in done)

    def _chunked(self, members: Members, size: int) -> list[Any]:
        """The results of chunks of at most `size` members; of half as many from where a chunk does
        not fit.
        """
        count, at, done = len(members.seed), 0, []
        while at < count:
            some = slice(at, at + size)
            chunk, begun = (
                jax.tree.map(lambda leaf, some=some: leaf[some], tree)
                for tree in (members, self.after)
            )
            held = len(chunk.seed)
            name = self.name if held == count else f"{self.name} ({at + 1}-{at + held})"
            run = self._run(chunk, begun, name)
            result = self._result(run, held)
            run.engine.release()
            if result is None:
                size = -(-held // 2)
                continue
            arrays, seconds = result
            done.append((run.engine, run.digest, _cut(arrays, held), seconds))
            at += held
        return done

    def _result(self, run: Run, held: int) -> tuple[dict[str, np.ndarray], float] | None:
        """What a chunk left, and the seconds that it took; None if half of it is to be tried."""
        if self.lab.dry_run:
            plan, arrays = planned(run)
            self.lab.plans.append(plan)
            self.lab.say(run.name, "planned")
            return arrays, 0.0
        if held == 1:
            return run.result()
        # What was begun as a whole goes on as a whole.
        if not run.is_begun() and not _fits(run.engine):
            return None
        try:
            return run.result()
        except DoesNotFitError:
            if run.is_begun():
                raise
            return None

    def _run(self, members: Members, after: Carry | None, name: str) -> Run:
        engine = self.engine_of(members)
        engine.require_fitting_start()
        engine.require_fitting_state(after)
        around = surroundings(self.lab.device, self.lab.precision)
        digest = training_digest(engine, self.steps, self.recorded, around, after)
        return Run(
            self.lab, engine, self.steps, self.recorded, name, digest, after, self.keep_state
        )


def _cut(arrays: Mapping[str, np.ndarray], count: int) -> dict[str, np.ndarray]:
    """Without the members that only fill the devices."""
    return {
        key: array[:count] if key.startswith((CARRY, STATE)) else array
        for key, array in arrays.items()
    }


def _joined(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The results of all chunks. A chunk that ended earlier repeats its last row; what lies after
    its members' ends is not shown.
    """
    rows = max(len(part["probes:loss"]) for part in parts)

    def filled(array: np.ndarray) -> np.ndarray:
        return np.concatenate([array, np.repeat(array[-1:], rows - len(array), axis=0)])

    joined = {}
    for key in parts[0]:
        arrays = [part[key] for part in parts]
        if key.startswith("probes:"):
            arrays = [filled(array) for array in arrays]
        joined[key] = np.concatenate(arrays, axis=0 if key.startswith((CARRY, STATE)) else 1)
    return joined


def _fits(engine: Engine) -> bool:
    """Whether a training fits the memory of a device, as the compiler counts it."""
    device = engine.devices[0]
    limit = (device.memory_stats() or {}).get("bytes_limit", 0)
    if device.platform == "cpu":
        limit = _free_memory() // len(engine.devices)
    try:
        return not limit or engine.programs["advance"].memory <= 0.9 * limit
    except jax.errors.JaxRuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return False


def _free_memory() -> int:
    """Bytes of main memory that are available; 0 where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    sizes = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return 1024 * sum(sizes)
