"""Who is who on the bus: `apportion bus init` makes keys, accounts and creds, and what NATS' configuration includes."""

import subprocess

from .paths import StackError

# Who makes and deletes streams.
BUS = "bus"


def init(program, directory, cell, tenants, *more):
    """Makes what is missing in the directory. A second time it changes nothing."""
    if not program.exists():
        raise StackError(f"{program} is missing, which makes the keys of the bus. Run: make {built_by(program)}")
    command = [str(program), "bus", "init", "--cell", cell, "--out", str(directory), *more]
    command += [word for tenant in tenants for word in ("--tenant", tenant)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise StackError(f"`{' '.join(command)}` failed:\n" + (done.stderr or done.stdout).strip())


def of_new(directory, tenants):
    """Tenants are named to a new directory. In one that is there they come and go by `apportion bus tenant`."""
    return [] if (directory / "plan.json").exists() else tenants


def built_by(program):
    """The target of the Makefile that builds a program."""
    return "build" if program.parent.name == "release" else "build-debug"


def creds(directory, key):
    """The creds file of a party: "quota", "tenant:team-a"."""
    place = "admin" if key in (BUS, "system") else "creds"
    return directory / place / f"{key.replace(':', '-')}.creds"


def node_signing(directory):
    """What lets a service sign the users of nodes."""
    return directory / "creds" / "node-signing.nk"


def configuration(directory):
    return directory / "bus.conf"
