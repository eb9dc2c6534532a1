"""The command `measure`: checkpoints of a model that was trained elsewhere."""

import sys
from pathlib import Path

from saccade.errors import ConfigError, FileError
from saccade.options import MeasureOptions
from saccade.report import terminal
from saccade.report.formatting import counted, number


def measure_command(options: MeasureOptions, paths: list[str]) -> int:
    if len(paths) + (options.hub is not None) != 1:
        got = f"{len(paths)} folders" + (" and --hub" if options.hub else "")
        raise ConfigError(f"got {got}, allowed: one folder, or --hub NAME with --steps")
    if options.hub is not None and not options.steps:
        raise ConfigError("--hub: got no --steps, allowed: those of the revisions to measure")
    if options.hub is None and options.steps:
        raise ConfigError("--steps: got steps for a folder, allowed: with --hub")
    if options.text is None:
        raise ConfigError("--text: got none, allowed: the text file on which to measure")
    if not options.text.is_file():
        raise FileError(f"cannot read {options.text}: no such file")
    for name in ("sequences", "tokens", "rows"):
        if getattr(options, name) < 1:
            got = getattr(options, name)
            raise ConfigError(f"--{name}: got {got}, allowed: a whole number, at least 1")
    try:
        from saccade.watch.checkpoints import Checkpoint, Measuring, in_folder
    except ModuleNotFoundError as error:
        needs = "pip install 'saccade[torch]'"
        raise ConfigError(f"measure needs {error.name}: {needs}") from error

    def say(text: str) -> None:
        print(f"saccade: {text}", file=sys.stderr, flush=True)

    if options.hub is None:
        checkpoints, losses = in_folder(Path(paths[0]), say)
    else:
        names = {step: options.revision.replace("{}", str(step)) for step in options.steps}
        checkpoints = [Checkpoint(step, options.hub, names[step]) for step in sorted(names)]
        losses = {}
    how = Measuring(
        options.text,
        options.sequences,
        options.tokens,
        options.rows,
        options.ablations,
        options.device,
    )
    record = how.record(checkpoints, losses, options.output, say)
    record.save(options.output)
    terminal.print_to_terminal(terminal.watched_table(record))
    for path, why in record.config["unseen"].items():
        print(f"not measured: {path} looks like attention, but {why}")
    for note in record.config["notes"]:
        print(f"note: {note}")
    run = record.arms["run"].trajectory.isel(seed=0)
    steps, loss = counted(run.sizes["step"], "step"), run["loss"].values
    known = f", loss {number(loss[0])} -> {number(loss[-1])}" if loss[0] == loss[0] else ""
    print(f"{steps}{known}; record: {options.output}")
    print(f"next: saccade diagnose {options.output}, saccade report {options.output}")
    return 0
