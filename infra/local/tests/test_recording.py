"""Which commands a test ran, by its arguments, and how the wrapper records them."""

import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from . import recording
from .recording import Command

pytestmark = pytest.mark.fast

GROUP = """\
Shares out machines

Usage: program [OPTIONS] <COMMAND>

Commands:
  list        Show all
  quota-set   Limit what a tenant may hold: a line that goes on
              below
  q
  help        Print this message or the help of the given subcommand(s)

Options:
  -o, --output <FORM>        How to print [possible values: table, json]
      --context <NAME>       The context
      --watch[=<DURATION>]   Show it again
      --closed[=<true|false>]
  -f <FILE>                  A file
  -h, --help                 Print help

Exit codes:
  0  done
"""

LEAF = """\
Usage: program list [OPTIONS] <NAME>

Arguments:
  <NAME>  The name

Options:
      --limit <N>  At most
"""

GROUPED = """\
Usage: program [OPTIONS] <COMMAND>

Commands for work:
  list  Show all

Commands to see:
  get   Show one
"""

BOTH = """\
Usage: program report --html <FILE>
       program report <COMMAND>

Commands:
  top   Show which tenants spent most
  help  Print this message or the help of the given subcommand(s)

Options:
      --html <FILE>  The file
"""


def test_a_help_text_names_subcommands_and_the_options_with_a_value():
    def check(text, below, with_value, runs):
        assert recording.parsed(text) == (below, frozenset(with_value), runs)

    check(GROUP, ["list", "quota-set", "q"], ["-o", "--output", "--context", "-f"], False)
    check(LEAF, [], ["--limit"], True)
    check(GROUPED, ["list", "get"], [], False)
    check(BOTH, ["top"], ["--html"], True)


def command(subcommands=None, with_value=(), runs=None):
    everywhere = {"--context", "--stack"}
    return Command(subcommands or {}, frozenset({*everywhere, *with_value}), not subcommands if runs is None else runs)


PROGRAM = command({
    "list": command(with_value=["-o", "--output", "--queue"]),
    "quota": command({"set": command(), "get": command()}),
    "resource": command({"create": command(), "get": command()}, with_value=["--slot"]),
    "report": command({"top": command()}, with_value=["--html"], runs=True),
})


def test_leaves_are_the_commands_that_run_without_a_subcommand():
    assert recording.leaves(PROGRAM) == {
        "list", "quota set", "quota get", "resource create", "resource get", "report", "report top"}
    assert recording.leaves(command()) == {""}


def test_arguments_run_a_leaf():
    def check(line, expected):
        assert recording.leaf(PROGRAM, line.split()) == expected, line

    check("list", "list")
    check("list --all -o json", "list")
    check("quota set team-a cpu 4", "quota set")
    # Options before a command, between two, and with a value that is a command's name.
    check("--stack f --context c quota get team-a", "quota get")
    check("--context list quota get", "quota get")
    check("--context=list quota get", "quota get")
    check("resource --slot 3 create r", "resource create")
    check("--unknown quota --unknown get", "quota get")
    check("list --queue", "list")
    check("report --html page", "report")
    check("report top", "report top")
    # Words behind `--` are those of another program.
    check("list -- --help", "list")
    # A request for help runs nothing, but a value may look like one.
    check("list --help", None)
    check("quota set -h", None)
    check("--version", None)
    check("list --queue --help", "list")
    # These name no command, or only a group of commands.
    check("", None)
    check("quota", None)
    check("lst", None)
    check("quota list", None)
    check("help list", None)
    check("report list", None)


def test_runs_of_one_program_are_those_of_its_name():
    runs = [("apportion", ["list"]), ("apportion", ["list", "--help"]), ("loadtest", ["quota", "get"])]
    assert recording.ran(runs, "apportion", PROGRAM) == {"list"}
    assert recording.ran(runs, "loadtest", PROGRAM) == {"quota get"}


@pytest.fixture
def wrapped(tmp_path):
    """Wrappers for two programs, and a link to a third."""
    programs = tmp_path / "it's here"
    programs.mkdir()
    for name in ("apportion", "loadtest", "apportion-quota"):
        (programs / name).write_text('#!/bin/sh\ncat\nprintf "<%s>" "$0" "$@"\necho "$$" >&2\nexit 7\n')
        (programs / name).chmod(0o755)
    (programs / "apportion.d").write_text("no program")
    return recording.make_wrapper(programs, tmp_path / "wrapped", tmp_path / "record"), programs, tmp_path / "record"


def test_the_wrapper_becomes_the_program_and_records_its_arguments(wrapped):
    directory, programs, record = wrapped
    assert {path.name for path in directory.iterdir()} == {"apportion", "loadtest", "apportion-quota"}
    assert (directory / "apportion-quota").readlink() == programs / "apportion-quota"
    for words in (["list", "", "a b", "two\nlines", "%s\\0", "x" * 1000], []):
        process = subprocess.Popen([directory / "apportion", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env={})
        said, pid = process.communicate("from stdin ")
        assert (process.returncode, int(pid)) == (7, process.pid)
        assert said == "from stdin " + "".join(f"<{word}>" for word in (programs / "apportion", *words))
    kept = ["list", "", "a b", "two\nlines", "%s\\0", "x" * recording.WORD_BYTES_MAX]
    assert recording.read(record) == [("apportion", kept), ("apportion", [])]


def test_records_of_concurrent_runs_stay_whole(wrapped):
    directory, _, record = wrapped

    def run(number):
        name = recording.RECORDED[number % 2]
        words = [str(number)] * number
        subprocess.run([directory / name, *words], stdin=subprocess.DEVNULL, capture_output=True)
        return name, words

    with ThreadPoolExecutor(8) as pool:
        expected = list(pool.map(run, range(48)))
    assert sorted(recording.read(record)) == sorted(expected)


def test_a_record_that_is_torn_is_an_error(tmp_path):
    record = tmp_path / "record"
    for torn in (b"x\0apportion\0", b"2\0apportion\0list\0"):
        record.write_bytes(torn)
        with pytest.raises(ValueError, match="should be the number of arguments"):
            recording.read(record)
