#!/usr/bin/env python3
"""
Looks for a generated history, a seed of the simulation or a damaged input that breaks a rule, until the time is up. Each
round takes random seeds and prints them, so that a failure can be repeated. Ends with 1 at the first failure.
"""

import argparse
import os
import secrets
import subprocess
import sys
import time

# Histories of each property in one round, and cases of each decoder.
CASES = 20_000
SIMULATION_SECONDS = 60
PROPERTIES = (
    ("histories of the scheduler", ("-p", "scheduler", "--lib", "histories")),
    ("histories of the bill", ("-p", "analytics", "--lib", "properties")),
    ("decoders", ("-p", "wire", "--test", "it")),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=10, help="minutes after which no new round begins")
    parser.add_argument("--simulate", required=True, help="path of the program loadtest")
    options = parser.parse_args()
    end = time.monotonic() + options.minutes * 60
    rounds = 0
    while rounds == 0 or time.monotonic() < end:
        for name, words in PROPERTIES:
            seed = str(secrets.randbits(32))
            environment = {"PROPTEST_RNG_SEED": seed, "PROPTEST_CASES": str(CASES)}
            if not ran(f"{name}: PROPTEST_RNG_SEED={seed} PROPTEST_CASES={CASES}",
                       ["cargo", "test", "--quiet", "--locked", *words], environment):
                return 1
        seed = str(secrets.randbits(48))
        if not ran(f"simulation: loadtest simulate --seed {seed} --seconds {SIMULATION_SECONDS}",
                   [options.simulate, "simulate", "--seed", seed, "--seconds", str(SIMULATION_SECONDS)], {}):
            return 1
        rounds += 1
    print(f"{rounds} rounds without a failure")
    return 0


def ran(name, command, environment):
    """Whether the command ended well; `name` says how to repeat it."""
    print(f"== {name}", flush=True)
    done = subprocess.run(command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        print(f"FAILED: {name}", file=sys.stderr)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
