"""What the compose file shares with the local stack: its secrets, and who is who on its bus."""

import json
import secrets

from . import bus, clickhouse, paths, postgres, services
from .paths import CHECKOUT

SECRETS = CHECKOUT / "infra" / "secrets"
CELL = "local"
TENANTS = ["team-a", "team-b"]
# In the servers' containers: the accounts that they know.
RESOLVER_DIR = "/data/accounts"
# Where a program reaches the servers: in a container, by the services' names; on the host, by the published ports.
INSIDE = {"nats": "nats", "postgres": "postgres", "clickhouse": "clickhouse"}
OUTSIDE = dict.fromkeys(INSIDE, "127.0.0.1")


def secret_names():
    """One file each: the server, then its user."""
    roles = ["superuser", *(schema.replace("_", "-") for schema in postgres.SCHEMAS), postgres.READER]
    return (["nats-route"] + [f"postgres-{role}" for role in roles]
            + [f"clickhouse-{user}" for user in ("analytics", "reader")] + ["grafana-admin"])


def write_secrets(program, directory=SECRETS):
    """
    Makes the passwords and creds that are missing and keeps those that are there, for the servers know them already.
    Containers run as users of their own, so what they get is readable for all; the directory is for its owner only, and
    the keys of the bus no container gets.
    """
    paths.make_dir(directory)
    tenants = bus.of_new(bus_dir(directory), TENANTS)
    bus.init(program, bus_dir(directory), CELL, tenants, "--resolver-dir", RESOLVER_DIR)
    for path in given(bus_dir(directory)):
        path.chmod(0o444)
    words = {}
    for name in secret_names():
        path = directory / name
        if not path.exists():
            # A letter first, or NATS reads a number.
            write(path, f"p{secrets.token_hex(16)}\n")
        words[name] = path.read_text(encoding="utf-8").strip()
    write(directory / "stack", json.dumps(stack(words, INSIDE, "/run/secrets"), indent=2) + "\n")
    creds = str(bus_dir(directory) / "creds")
    write(directory / "stack.json", json.dumps(stack(words, OUTSIDE, creds), indent=2) + "\n")


def bus_dir(directory):
    return directory / "bus"


def given(directory):
    """What containers get of the bus's directory: the servers whom they trust, and each party its own creds."""
    parties = [bus.creds(directory, key) for key in (*services.NAMES, "operator", bus.BUS)]
    return [bus.configuration(directory), bus.node_signing(directory), *parties]


def write(path, text):
    paths.write_private(path, text)
    path.chmod(0o444)


def stack(words, hosts, creds):
    """What the command line reads, as the local launcher writes it."""
    return {
        "cell": {"name": CELL, "number": services.CELL_NUMBER},
        "tenants": TENANTS,
        "nats": {
            "url": f"nats://{hosts['nats']}:4222",
            "creds": creds,
        },
        "postgres": {"url": f"postgres://{postgres.READER}:{words['postgres-reader']}@{hosts['postgres']}:5432/"
                            f"{postgres.DATABASE}"},
        "clickhouse": {
            "url": f"http://{hosts['clickhouse']}:8123",
            "database": clickhouse.DATABASE,
            "reader": {"user": "reader", "password": words["clickhouse-reader"]},
        },
        # Containers are no business of the launcher's; these are for what asks for them all the same.
        "otlp_listen": "127.0.0.1:4317",
        "state_dir": "/nonexistent",
    }
