"""The command `saccade compare`: two records of one study side by side."""

import json
import sys
from pathlib import Path

from saccade.commands import opened, record_files
from saccade.errors import ConfigError
from saccade.options import CompareOptions
from saccade.report import terminal
from saccade.report.comparison import compared
from saccade.report.formatting import counted


def compare_command(options: CompareOptions, paths: list[str]) -> int:
    if len(paths) != 2:
        raise ConfigError(f"got {counted(len(paths), 'record')}, usage: saccade compare A B")
    files = [_file(path) for path in paths]
    first, second = (opened([file], options.study)[0] for file in files)
    identical = files[0].samefile(files[1]) or files[0].read_bytes() == files[1].read_bytes()
    found = compared(first, second, (str(files[0]), str(files[1])), identical)
    if options.output is not None:
        # After the records, whose mistakes are quick then.
        from saccade.report.comparison_page import write_comparison

        write_comparison(found, first, second, options.output)
    if options.json:
        print(json.dumps(found.plain(), indent=2))
    elif options.output is None:
        from saccade.report.comparison_text import comparison_text

        terminal.print_to_terminal(*comparison_text(found))
    else:
        terminal.print_to_terminal(*map(terminal.Words, found.summary()))
    if options.output is not None:
        print(f"the page: {options.output}", file=sys.stderr if options.json else sys.stdout)
    return 0


def _file(path: str) -> Path:
    files = record_files([path])
    if len(files) != 1:
        raise ConfigError(f"record: got {len(files)} records below {path}, allowed: one")
    return files[0]
