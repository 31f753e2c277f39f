#!/usr/bin/env python3
"""
Looks for a generated history, a seed of the simulation or a damaged input that breaks a rule, until the time is up. Each
round takes random seeds and prints them, so that a failure can be repeated. Damaged inputs need cargo fuzz and a nightly
compiler; without them a line says so. Ends with 1 at the first failure, and for a part of a round that ran nothing.
"""

import argparse
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path

# Histories of each property in one round, and cases of each decoder.
CASES = 20_000
SIMULATION_SECONDS = 60
# For each target, in one round.
FUZZ_SECONDS = 10
PROPERTIES = (
    ("histories of the scheduler", ("-p", "scheduler-rules", "--lib", "histories")),
    ("placements of the scheduler", ("-p", "scheduler-rules", "--lib", "properties")),
    ("histories of the bill", ("-p", "analytics", "--lib", "properties")),
    ("decoders", ("-p", "wire", "--test", "it")),
)

INPUTS = Path("loadtest/inputs")
CORPUS = INPUTS / "corpus"
LOCK = INPUTS / "fuzz/Cargo.lock"
BUILT = Path(os.environ.get("CARGO_TARGET_DIR", "target")) / "fuzz"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=10, help="minutes after which no new round begins")
    parser.add_argument("--simulate", help="path of the program loadtest; without it, only inputs are fuzzed")
    parser.add_argument("--fuzz", action="append", metavar="TARGET", help="fuzz only this target; repeatable")
    parser.add_argument("--minimise", action="store_true", help="copy into the corpus what reaches more code, and end")
    parser.add_argument("--fuzz-seconds", type=int, default=FUZZ_SECONDS, help="seconds for each target in a round")
    options = parser.parse_args()
    os.chdir(Path(__file__).parent.parent)
    targets = options.fuzz or sorted(path.name for path in CORPUS.iterdir())
    lacks = fuzzer_lacks()
    if lacks:
        print(f"inputs are not fuzzed: {lacks}", file=sys.stderr)
        if not options.simulate:
            return 1
    elif not built():
        return 1
    if options.minimise:
        return 0 if not lacks and all(ran(*merging(target)) for target in targets) else 1
    end = time.monotonic() + options.minutes * 60
    rounds = 0
    while rounds == 0 or time.monotonic() < end:
        steps = [] if not options.simulate else [*properties(), simulation(options.simulate)]
        if not lacks:
            steps += [fuzzing(target, options.fuzz_seconds) for target in targets]
        if not all(ran(*step) for step in steps):
            return 1
        rounds += 1
    print(f"{rounds} rounds without a failure")
    return 0


def properties():
    for name, words in PROPERTIES:
        seed = secrets.randbits(32)
        environment = {"PROPTEST_RNG_SEED": str(seed), "PROPTEST_CASES": str(CASES)}
        command = ["cargo", "test", "--quiet", "--locked", *words]
        yield f"{name}: PROPTEST_RNG_SEED={seed} PROPTEST_CASES={CASES}", command, environment, tests_passed


def simulation(program):
    seed = secrets.randbits(48)
    words = ["simulate", "--seed", str(seed), "--seconds", str(SIMULATION_SECONDS)]
    return f"simulation: loadtest {' '.join(words)}", [program, *words], {}, seeds_simulated


def fuzzing(target, seconds):
    """New inputs are kept in the build directory, and are where the next round begins."""
    found = collected(target)
    broken = BUILT / "broken"
    broken.mkdir(exist_ok=True)
    seed = secrets.randbits(31)
    limits = [f"-max_total_time={seconds}", f"-seed={seed}", "-timeout=20", "-rss_limit_mb=4096", "-print_final_stats=1"]
    command = [*fuzz("run"), "inputs", str(found), str(CORPUS / target), "--", *limits, f"-artifact_prefix={broken}/{target}-"]
    return f"inputs: {target}, seed {seed}", command, {"APPORTION_TARGET": target}, inputs_run


def merging(target):
    """Adds to the corpus the fewest of the new inputs that reach all code that they reach together."""
    command = [*fuzz("run"), "inputs", str(CORPUS / target), str(collected(target)), "--", "-set_cover_merge=1"]
    return f"inputs: {target}, into the corpus", command, {"APPORTION_TARGET": target}, inputs_merged


def collected(target):
    found = BUILT / "corpus" / target
    found.mkdir(parents=True, exist_ok=True)
    return found


def fuzz(verb):
    """A command of cargo fuzz. The rules have no unsafe code that a sanitizer would watch."""
    options = ["--fuzz-dir", str(INPUTS / "fuzz"), "--target-dir", str(BUILT), "--sanitizer", "none"]
    return ["cargo", "+nightly", "fuzz", verb, *options]


def fuzzer_lacks():
    """What is missing for fuzzing; nothing if it can be done."""
    if not shutil.which("cargo-fuzz"):
        return "install it by `cargo install cargo-fuzz --locked`"
    nightly = subprocess.run(["cargo", "+nightly", "--version"], capture_output=True)
    return None if nightly.returncode == 0 else "install a nightly compiler by `rustup toolchain install nightly`"


def built():
    # The versions of all dependencies are those of the project; cargo adds the fuzzer's own.
    shutil.copyfile("Cargo.lock", LOCK)
    return subprocess.run([*fuzz("build"), "inputs"]).returncode == 0


def tests_passed(output):
    return sum(int(count) for count in re.findall(r"^test result: ok\. (\d+) passed", output, re.MULTILINE))


def seeds_simulated(output):
    return sum(int(count) for count in re.findall(r'"seeds": (\d+)', output))


def inputs_run(output):
    return sum(int(count) for count in re.findall(r"^stat::number_of_executed_units: (\d+)", output, re.MULTILINE))


def inputs_merged(output):
    return len(re.findall(r"^MERGE-OUTER: the merged set|^MERGE-OUTER: \d+ new files", output, re.MULTILINE))


def ran(name, command, environment, count):
    """
    Whether the command ended well and ran anything; `count` says how much by its output. `name` says how to repeat it.
    """
    print(f"== {name}", flush=True)
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    lines = []
    for line in process.stdout:
        lines.append(line)
        print(line, end="", flush=True)
    code = process.wait()
    if code != 0:
        print(f"FAILED ({code}): {name}", file=sys.stderr)
    elif count("".join(lines)) == 0:
        print(f"FAILED, nothing ran: {name}", file=sys.stderr)
        return False
    return code == 0


if __name__ == "__main__":
    sys.exit(main())
