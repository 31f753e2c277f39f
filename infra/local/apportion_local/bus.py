"""Who is who on the bus: `apportion bus init` makes keys, accounts and creds, and what NATS' configuration includes."""

from . import apportion

# Who makes and deletes streams.
BUS = "bus"


def init(program, directory, cell, tenants, *more):
    """Makes what is missing in the directory. A second time it changes nothing."""
    named = [word for tenant in tenants for word in ("--tenant", tenant)]
    apportion.run(program, "bus", "init", "--cell", cell, "--out", str(directory), *more, *named)


def of_new(directory, tenants):
    """Tenants are named to a new directory. In one that is there they come and go by `apportion bus tenant`."""
    return [] if (directory / "plan.json").exists() else tenants


def creds(directory, key):
    """The creds file of a party: "quota", "tenant:team-a"."""
    place = "admin" if key in (BUS, "system") else "creds"
    return directory / place / f"{key.replace(':', '-')}.creds"


def node_signing(directory):
    """What lets a service sign the users of nodes."""
    return directory / "creds" / "node-signing.nk"


def configuration(directory):
    return directory / "bus.conf"
