"""The command `saccade data`: which corpora there are, where they are, and how to get them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.table import Column, Table
from rich.text import Text

from saccade.data import store
from saccade.data.catalogue import known_corpus
from saccade.data.corpora import KnownCorpus, checksum_of, sizes_of
from saccade.errors import ConfigError, FileError
from saccade.options import DataOptions

ACTIONS = ("list", "fetch", "check")


def data_command(options: DataOptions, given: list[str]) -> int:
    action, *names = given or ["list"]
    wrong = (action == "list" and names) or (action == "fetch" and not names)
    if action not in ACTIONS or wrong:
        got = f"saccade data {' '.join(given)}"
        allowed = "saccade data list, saccade data fetch NAME..., saccade data check [NAME...]"
        raise ConfigError(f"got '{got}', allowed: {allowed}")
    if action != "fetch":  # which makes the folder
        store.require_folder(options.data)
    if action == "list":
        found = list(store.described(options.data))
        _print_list(found, options)
        return 0
    here = [one["name"] for one in store.described(options.data) if one["folder"]]
    corpora, failed, done = [known_corpus(name) for name in names or here], [], []
    for corpus in corpora:
        try:
            if action == "fetch":
                store.fetch_corpus(corpus.name, options.data)
            done.append(_checked(corpus, options))
        except FileError as error:  # the others may be whole
            if names or not isinstance(error, store.AnotherCorpusError):
                failed.append(str(error))
    if options.json:
        print(json.dumps(done, indent=2))
    elif not corpora:
        print("no corpus is here; 'saccade data list' says which there are")
    if failed:
        raise FileError("; ".join(failed))
    return 0


def _checked(corpus: KnownCorpus, options: DataOptions) -> dict[str, Any]:
    """Read a corpus, and say that its examples are the known ones."""
    examples = store.load_corpus(corpus.name, options.data)
    folder = store.find_corpus(corpus.name, options.data)
    place = "" if folder is None else str(folder.path)
    if not options.json:
        sizes = store.counted(sizes_of(examples))
        sums = "SHA-256 as known" if corpus.checksum else "no SHA-256 is known to compare"
        print(f"{corpus.name}: {sizes}; {sums}; {place}", flush=True)
    about = {"name": corpus.name, "folder": place, "sizes": sizes_of(examples)}
    return about | {"sha256": checksum_of(examples), "known": bool(corpus.checksum)}


def _print_list(found: Sequence[Mapping[str, Any]], options: DataOptions) -> None:
    if options.json:
        print(json.dumps(found, indent=2))
        return
    table = Table(Column("corpus", no_wrap=True, style="bold"), "what it is", "here", box=None)
    for one in found:
        about = [f"{one['title']} ({one['task']})", store.counted(one["sizes"]), one["note"]]
        source = [f"licence: {one['licence']}", one["citation"]]
        lines = [Text(line) for line in about if line] + [Text(line, "dim") for line in source]
        absent = "can be fetched" if one["download"] else "by hand"
        table.add_row(one["name"], Group(*lines, Text()), one["folder"] or Text(absent, "dim"))
    Console().print(table)
