"""Runs the commands that a document shows, by a shell or without starting new interpreters.

A new interpreter imports torch for longer than most commands take; so does each rank of `torchrun`.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from unity_dsl import cli

from .emit.started import Started, start_ranks, start_script

SECONDS = 300.0
"""Time limit of a command."""
VARIABLE = re.compile(r"(\w+)=(.*)")


WRITTEN = re.compile(r"(?:-o|--output|--checkpoint|rules prove) ([\w.]+)")
"""The files that a command may write for later commands."""


def with_what_they_use(commands: Sequence[str], chosen: Collection[int], texts: Mapping[str, str]) -> list[int]:
    """Positions of the chosen commands and of the earlier commands that they need. A command needs the last earlier one
    that writes a file named in the command, or in the `texts` of a file that the command names.
    """
    found: set[int] = set()
    left = set(chosen)
    while left:
        place = left.pop()
        found.add(place)
        named = [commands[place], *(text for name, text in texts.items() if name in commands[place])]
        words = set(re.findall(r"[\w.]+", "\n".join(named)))
        for name in {name for command in commands[:place] for name in WRITTEN.findall(command)} & words:
            left.add(max(before for before in range(place) if name in WRITTEN.findall(commands[before])))
        left -= found
    return sorted(found)


def run_by_shell(command: str, folder: Path) -> None:
    """Runs a command in bash, with the executables of this environment first."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def run(command: str, folder: Path) -> None:
    """Runs a command as the shell would: `unityc` by its entry point in this process, `torchrun` and scripts that
    import torch in forked processes, anything else by the shell.
    """
    variables, words = _words(command, folder)
    match words:
        case ["unityc", *arguments]:
            _run_unityc(command, arguments, variables, folder)
        case [*_, name] if name.endswith(".py") and "import unity_dsl" in (folder / name).read_text():
            run_by_shell(command, folder)  # a script run by `start_script` does not find the package
        case ["torchrun", "--standalone", "--nproc-per-node", ranks, *script] if not variables:
            _wait(command, start_ranks(script, int(ranks), folder, folder))
        case ["python", name, *_] if not variables and "import torch" in (folder / name).read_text():
            _wait(command, [start_script(words[1:], {"OMP_NUM_THREADS": "1"}, folder, folder)])
        case _:
            run_by_shell(command, folder)


def _words(command: str, folder: Path) -> tuple[Mapping[str, str], Sequence[str]]:
    """The variables before a command, and its words as the shell expands them. No words for more than one command."""
    if any(token[0] in "|&;<>()" for token in shlex.shlex(command, punctuation_chars=True)):
        return {}, []
    listed = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], cwd=folder, capture_output=True, text=True)
    words = listed.stdout.split("\0")[:-1]
    variables = {}
    while words and (found := VARIABLE.fullmatch(words[0])):
        variables[found[1]] = found[2]
        words = words[1:]
    return variables, words


def _run_unityc(command: str, arguments: Sequence[str], variables: Mapping[str, str], folder: Path) -> None:
    told = io.StringIO()
    with chdir(folder), mock.patch.dict(os.environ, variables), redirect_stdout(told), redirect_stderr(told):
        code = cli.run(arguments)
    assert code == 0, f"{command}\n{told.getvalue()}"


def _wait(command: str, processes: Sequence[Started]) -> None:
    told = [process.communicate(timeout=SECONDS) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), f"{command}\n{told}"
