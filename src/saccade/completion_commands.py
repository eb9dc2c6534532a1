"""The command `saccade completion`: scripts for bash and zsh, made from the options' dataclasses.

A script holds all words itself, so that a tab waits for no Python. It is made without importing a
study, because every new shell makes it.
"""

import inspect
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from saccade.errors import ConfigError
from saccade.options import (
    COMMANDS,
    CompletionOptions,
    MapOptions,
    Option,
    RunOptions,
    options_of,
)
from saccade.registry import Outline, outlines
from saccade.version import __version__

USUAL = ("quick", "paper")
"""Presets of a study that is given as a file."""
DEFAULTS: Mapping[str, Any] = {
    "run": RunOptions(),
    "map": MapOptions(),
    **{command: default for command, (default, _) in COMMANDS.items()},
}
"""The options of every command."""
WORDS = {
    "data": ("list", "fetch", "check"),
    "cache": ("prune",),
    "completion": ("bash", "zsh"),
    "reproduce": (),
    "doctor": (),
}
"""Positional arguments of commands that take a few words only."""
NAMED = {"run": "study", "map": "study", "list": "study", "explain": "claim"}
"""What the positional arguments of commands name; those of all others are files."""
OF_OPTIONS = {"--preset": "preset", "--claim": "claim of study", "--only": "study"}
"""What the values of options name."""


def completion_command(options: CompletionOptions, given: list[str]) -> int:
    del options  # there are none
    if len(given) != 1 or given[0] not in SHELLS:
        got = repr(" ".join(given)) if given else "nothing"
        raise ConfigError(f"shell: got {got}, allowed: {', '.join(SHELLS)}")
    print(SHELLS[given[0]](outlines()), end="")
    return 0


def _summary(default: Any) -> str:
    """The first sentence of what a command does."""
    text = " ".join((inspect.getdoc(type(default)) or "").split())
    return _short(text)


def _short(text: str) -> str:
    for end in (". ", ": ", "; "):
        text = text.partition(end)[0]
    return text.rstrip(".")


def _names(known: Mapping[str, Outline], kind: str) -> str:
    """The words of a kind, apart by spaces."""
    claims = [claim for outline in known.values() for claim in outline.claims]
    return " ".join([*claims, *known] if kind == "claim" else known)


# -- bash ------------------------------------------------------------------------------------------

_BASH = r"""# Completion of saccade {version} for bash.
# In ~/.bashrc: eval "$(saccade completion bash)"
_saccade_words() {{
    local IFS=$' \t\n'
    COMPREPLY=($(compgen -W "$1" -- "$current"))
}}
_saccade_files() {{
    local IFS=$'\n'
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$current"))
}}
_saccade_python() {{
    local IFS=$'\n'
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -d -- "$current") $(compgen -f -X '!*.py' -- "$current"))
}}
_saccade_named() {{
    _saccade_words "$1"
    if ((!${{#COMPREPLY[@]}})); then _saccade_python; fi
}}
_saccade_presets() {{
    case $1 in
{presets}
        *) echo "{usual}" ;;
    esac
}}
_saccade_claims() {{
    case $1 in
{claims}
    esac
}}
_saccade() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
    local command=${{COMP_WORDS[1]}} study=${{COMP_WORDS[2]}} options=
    COMPREPLY=()
    # Bash splits --name=value into three words.
    if [[ $current == "=" ]]; then
        current=
    elif [[ $previous == "=" ]]; then
        previous=${{COMP_WORDS[COMP_CWORD - 2]}}
    fi
    if ((COMP_CWORD == 1)); then
        _saccade_words "{commands}"
        return
    fi
    case "$command $previous" in
{values}
    esac
    case $command in
{options}
    esac
    if [[ $current == -* ]]; then
        _saccade_words "$options --help"
        return
    fi
    case $command in
{positional}
    esac
}}
complete -F _saccade saccade
"""


def _bash(known: Mapping[str, Outline]) -> str:
    commands = " ".join([*DEFAULTS, "--help", "--version"])
    every = {command: options_of(default) for command, default in DEFAULTS.items()}
    flags = {
        command: [flag for it in found for flag in it.flags] for command, found in every.items()
    }
    options = (
        f'        {command}) options="{" ".join(some)}" ;;' for command, some in flags.items()
    )
    presets = (f'        {name}) echo "{" ".join(it.presets)}" ;;' for name, it in _known(known))
    claims = (f'        {name}) echo "{" ".join(it.claims)}" ;;' for name, it in _known(known))
    return _BASH.format(
        version=__version__,
        presets="\n".join(presets),
        claims="\n".join(claims),
        usual=" ".join(USUAL),
        commands=commands,
        values="\n".join(_bash_values(every, known)),
        options="\n".join(options),
        positional="\n".join(_bash_positional(known)),
    )


def _known(known: Mapping[str, Outline]) -> list[tuple[str, Outline]]:
    """The studies whose presets are known."""
    return [(name, outline) for name, outline in known.items() if outline.presets]


def _bash_values(every: Mapping[str, list[Option]], known: Mapping[str, Outline]) -> Iterator[str]:
    """One case for every option that takes a value."""
    for command, options in every.items():
        for one in (one for one in options if one.word):
            patterns = "|".join(f'"{command} {flag}"' for flag in one.flags)
            yield f"        {patterns}) {_bash_value(one, known)}return ;;"


def _bash_value(one: Option, known: Mapping[str, Outline]) -> str:
    match OF_OPTIONS.get(one.flags[0]), one.flags[0], one.word:
        case "preset", _, _:
            return '_saccade_words "$(_saccade_presets "$study")"; '
        case "claim of study", _, _:
            return '_saccade_words "$(_saccade_claims "$study")"; '
        case "study", _, _:
            return f'_saccade_named "{_names(known, "study")}"; '
        case _, "--study", _:
            return "_saccade_python; "
        case _, _, "PATH":
            return "_saccade_files; "
        case _:
            return f'_saccade_words "{" ".join(one.choices)}"; ' if one.choices else ""


def _bash_positional(known: Mapping[str, Outline]) -> Iterator[str]:
    for command in DEFAULTS:
        if command in ("run", "map"):  # the first argument alone; then come options
            named = f'_saccade_named "{_names(known, "study")}"'
            yield f"        {command}) if ((COMP_CWORD == 2)); then {named}; fi ;;"
        elif command in NAMED:
            yield f'        {command}) _saccade_named "{_names(known, NAMED[command])}" ;;'
        elif command in WORDS:
            yield f'        {command}) _saccade_words "{" ".join(WORDS[command])}" ;;'
        else:
            yield f"        {command}) _saccade_files ;;"


# -- zsh -------------------------------------------------------------------------------------------

_ZSH = r"""#compdef saccade
# Completion of saccade {version} for zsh.
# In ~/.zshrc: eval "$(saccade completion zsh)"
_saccade_presets() {{
    case $words[2] in
{presets}
        *) compadd {usual} ;;
    esac
}}
_saccade_claims() {{
    case $words[2] in
{claims}
    esac
}}
_saccade_studies() {{
    compadd -- {studies}
    _files -g '*.py'
}}
_saccade() {{
    local curcontext="$curcontext" state line
    typeset -A opt_args
    local -a commands
    commands=(
{commands}
    )
    _arguments -C \
        '(- *)'{{-h,--help}}'[Show all commands]' \
        '(- *)--version[Show the version]' \
        '1:command:->command' \
        '*::argument:->argument'
    case $state in
        command) _describe -t commands command commands ;;
        argument)
            case $words[1] in
{options}
            esac
            ;;
    esac
}}
if (( ! $+functions[compdef] )); then
    autoload -Uz compinit && compinit
fi
compdef _saccade saccade
"""


def _zsh(known: Mapping[str, Outline]) -> str:
    described = {command: _summary(default) for command, default in DEFAULTS.items()}
    # A colon ends the name of a command.
    commands = (
        f"        {shlex.quote(f'{command}:' + text.replace(':', ' '))}"
        for command, text in described.items()
    )
    presets = (f"        {name}) compadd {' '.join(it.presets)} ;;" for name, it in _known(known))
    claims = (f"        {name}) compadd {' '.join(it.claims)} ;;" for name, it in _known(known))
    options = []
    for command, default in DEFAULTS.items():
        specs = [spec for one in options_of(default) for spec in _zsh_option(one)]
        specs = ["(- *)--help[Show this help]", *specs, *_zsh_positional(command, known)]
        lines = " \\\n                        ".join(map(shlex.quote, specs))
        options.append(f"                {command})\n                    _arguments {lines} ;;")
    return _ZSH.format(
        version=__version__,
        presets="\n".join(presets),
        claims="\n".join(claims),
        usual=" ".join(USUAL),
        studies=_names(known, "study"),
        commands="\n".join(commands),
        options="\n".join(options),
    )


def _zsh_option(one: Option) -> Iterator[str]:
    """The option as `_arguments` reads it, once for each of its names."""
    text = _short(one.help).replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
    repeated = "*" if one.several else ""
    for flag in one.flags:
        equals = "=" if one.word and flag.startswith("--") else ""
        yield f"{repeated}{flag}{equals}[{text}]{_zsh_value(one)}"


def _zsh_value(one: Option) -> str:
    named = {"preset": "_saccade_presets", "claim of study": "_saccade_claims"}
    named |= {"study": "_saccade_studies"}
    match OF_OPTIONS.get(one.flags[0]), one.flags[0], one.word:
        case _, _, "":
            return ""
        case str(kind), _, _:
            return f":{kind}:{named[kind]}"
        case _, "--study", _:
            return ':study:_files -g "*.py"'
        case _, _, "PATH":
            return ":path:_files"
        case _:
            return f":value:({' '.join(one.choices)})" if one.choices else ":value: "


def _zsh_positional(command: str, known: Mapping[str, Outline]) -> list[str]:
    if command in ("run", "map"):
        return ["1:study:_saccade_studies"]
    if command in NAMED:
        return [f"*:{NAMED[command]}:({_names(known, NAMED[command])})"]
    if command in WORDS:
        return [f"*:argument:({' '.join(WORDS[command])})"] if WORDS[command] else []
    return ["*:record:_files"]


SHELLS: Mapping[str, Callable[[Mapping[str, Outline]], str]] = {"bash": _bash, "zsh": _zsh}
