"""`footplate completion SHELL`: commands, tasks and flags at the press of a key."""

from __future__ import annotations

import argparse
from typing import Any

BASH = """_footplate() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{commands}" -- "$word"))
  elif [ "$COMP_CWORD" -eq 2 ] && [[ "$before" =~ ^(run|search|inspect|new)$ ]]; then
    COMPREPLY=($(compgen -W "{tasks}" -f -- "$word"))
  elif [[ "$word" == --* ]]; then
    COMPREPLY=($(compgen -W "{flags}" -- "$word"))
  else
    COMPREPLY=($(compgen -f -- "$word"))
  fi
}}
complete -F _footplate footplate
"""
FISH = """complete -c footplate -n "__fish_use_subcommand" -f -a "{commands}"
complete -c footplate -n "__fish_seen_subcommand_from run search inspect new" -a "{tasks}"
{fish_flags}
"""


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    text = "Print a script that lets your shell complete commands, tasks and flags."
    parser = commands.add_parser(
        "completion", help=text, description=text, epilog='For bash: eval "$(footplate completion bash)"'
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    from footplate.cli.main import COMMANDS
    from footplate.tasks.common.catalog import TASKS, find_recipe
    from footplate.tasks.common.parsing import build_parser

    flags = {flag for name in TASKS for flag in build_parser(find_recipe(name))._option_string_actions}
    shown = sorted(flag for flag in flags if flag.startswith("--") and "-" not in flag[2:])
    words = {"commands": " ".join(COMMANDS), "tasks": " ".join(TASKS), "flags": " ".join(shown)}
    if options.shell == "fish":
        lines = "\n".join(f"complete -c footplate -l {flag[2:]}" for flag in shown)
        print(FISH.format(**words, fish_flags=lines))
    else:
        zsh = "autoload -Uz bashcompinit && bashcompinit\n" if options.shell == "zsh" else ""
        print(zsh + BASH.format(**words))
    return 0
