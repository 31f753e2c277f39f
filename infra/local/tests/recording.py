"""
Records which commands of a program the tests run, and lists the commands that no test ran:

    python infra/local/tests/recording.py check RECORD PROGRAM...
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# Programs with commands. Links lead to all others.
RECORDED = ("apportion", "loadtest")
# Kept of each word. The shell writes a record of less than 4 KiB in one piece, so records of concurrent processes do
# not mix.
WORD_BYTES_MAX = 60
# Options that print something about a command instead of running it.
ASKS_FOR_HELP = {"-h", "--help", "-V", "--version"}

SECTION = re.compile(r"^(\S.*):$")
USAGE = re.compile(r"^(?:Usage:|      ) (\S.*)$")
SUBCOMMAND = re.compile(r"^  ([a-z]\S*)(?:  |$)")
# An option with the next word as its value. `--watch[=<DURATION>]` has its own in the same word.
WITH_VALUE = re.compile(r"^ {2,6}(?:(-\w), )?(--[\w-]+|-\w) <")


@dataclass(frozen=True)
class Command:
    """A command as its help describes it."""

    subcommands: dict
    # Options that take the next word as their value.
    with_value: frozenset
    # Whether it does something without a subcommand.
    runs: bool


def make_wrapper(programs, directory, record):
    """
    Fills a directory with links to the programs of another, and with a wrapper for each of RECORDED. The wrapper
    appends its arguments to the file `record`, then becomes the program. The path is a part of the wrapper, because
    some tests run programs with an environment that they choose.
    """
    programs, record = Path(programs).resolve(), Path(record).resolve()
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for program in programs.iterdir():
        if program.suffix or not program.is_file() or not os.access(program, os.X_OK):
            continue
        made = directory / program.name
        made.unlink(missing_ok=True)
        if program.name in RECORDED:
            made.write_text(script(program, record), encoding="utf-8")
            made.chmod(0o755)
        else:
            made.symlink_to(program)
    return directory


def script(program, record):
    """
    The wrapper of a program. A record is the number of arguments, the program's name and the arguments, each with a NUL
    behind it.
    """
    return "\n".join([
        "#!/bin/sh",
        f"printf '%.{WORD_BYTES_MAX}s\\0' \"$#\" {shlex.quote(program.name)} \"$@\" >>{shlex.quote(str(record))}",
        f"exec {shlex.quote(str(program))} \"$@\"",
        "",
    ])


def read(record):
    """The recorded runs, each a program's name and its arguments."""
    words = Path(record).read_bytes().decode(errors="replace").split("\0")
    # Each word has a NUL behind it.
    words.pop()
    runs, at = [], 0
    while at < len(words):
        if not words[at].isdigit() or len(words) < at + 2 + int(words[at]):
            raise ValueError(
                f"{record}: word {at + 1} of {len(words)} is {words[at]!r} and should be the number of arguments of a "
                "run. Was a record of 4 KiB or more torn by another? Remove the file, and run the tests again")
        end = at + 2 + int(words[at])
        runs.append((words[at + 1], words[at + 2:end]))
        at = end
    return runs


def described(program, names=()):
    """A program's command and those below it, by their help."""
    done = subprocess.run([str(program), *names, "-h"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError(f"{program} {' '.join(names)} -h: exit code {done.returncode} and should be 0: "
                         f"{done.stderr.strip()}")
    below, with_value, runs = parsed(done.stdout)
    return Command({name: described(program, (*names, name)) for name in below}, with_value, runs)


def parsed(text):
    """The subcommands of a help text, its options with a value, and whether the command runs without a subcommand."""
    below, with_value, usages, section = [], set(), [], ""
    for line in text.splitlines():
        if header := SECTION.match(line):
            section = header[1]
        elif usage := not section and USAGE.match(line):
            usages.append(usage[1])
        elif section.startswith("Commands") and (name := SUBCOMMAND.match(line)):
            below.append(name[1])
        elif option := WITH_VALUE.match(line):
            with_value |= set(option.groups()) - {None}
    below = [name for name in below if name != "help"]
    runs = not below or not all(usage.endswith("<COMMAND>") for usage in usages)
    return below, frozenset(with_value), runs


def leaves(command, names=()):
    """The names of all commands that run without a subcommand; that of the program itself is empty."""
    own = {" ".join(names)} if command.runs else set()
    return own.union(*(leaves(below, (*names, name)) for name, below in command.subcommands.items()))


def leaf(command, words):
    """The name of the command that these arguments run. None if they ask for help, or name no command."""
    names, words = [], iter(words)
    for word in words:
        if word == "--":
            break
        if word in command.with_value:
            next(words, None)
        elif word in ASKS_FOR_HELP:
            return None
        elif word in command.subcommands:
            command = command.subcommands[word]
            names.append(word)
        elif command.subcommands and not word.startswith("-"):
            return None
    return " ".join(names) if command.runs else None


def ran(runs, name, command):
    """The commands of a program of this name that ran."""
    return {leaf(command, words) for program, words in runs if program == name} - {None}


def check(record, programs):
    """Prints the commands that no test ran; whether there are none."""
    runs, good = read(record), True
    for program in map(Path, programs):
        command = described(program)
        expected = leaves(command)
        missing = sorted(expected - ran(runs, program.name, command))
        good = good and not missing
        if missing:
            print(f"No test ran these {len(missing)} of the {len(expected)} commands of {program.name}. Add each to "
                  "infra/local/tests/test_leaves.py or to another test:")
        else:
            print(f"The tests ran all {len(expected)} commands of {program.name}.")
        for name in missing:
            print(f"  {program.name} {name}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    checked = commands.add_parser("check", help="list the commands that no test ran; exit code 1 if there are some")
    checked.add_argument("record", type=Path, help="file that the wrappers appended to")
    checked.add_argument("programs", nargs="+", type=Path, help="programs whose commands should have run")
    options = parser.parse_args()
    if not options.record.exists():
        sys.exit(f"{options.record}: there is no such file. Run the tests with the programs of `make_wrapper`")
    sys.exit(0 if check(options.record, options.programs) else 1)


if __name__ == "__main__":
    main()
