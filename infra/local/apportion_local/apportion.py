"""The program `apportion`, of which the launcher has the keys made."""

import subprocess

from .paths import StackError


def run(program, *words):
    if not program.exists():
        raise StackError(f"{program} is missing, which makes the stack's keys. Run: make {built_by(program)}")
    command = [str(program), *words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise StackError(f"`{' '.join(command)}` failed:\n" + (done.stderr or done.stdout).strip())


def built_by(program):
    """The target of the Makefile that builds a program."""
    return {"release": "build", "quick": "build-run"}.get(program.parent.name, "build-debug")
