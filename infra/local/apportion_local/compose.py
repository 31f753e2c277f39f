"""What the compose file shares with the local stack: its secrets, and who is who on its bus."""

import json
import secrets

from . import bus, clickhouse, paths, postgres, services, tls
from .paths import CHECKOUT

SECRETS = CHECKOUT / "infra" / "secrets"
CELL = "local"
TENANTS = ["team-a", "team-b"]
# In the servers' containers: the accounts that they know.
RESOLVER_DIR = "/data/accounts"
# Where a program reaches the servers: in a container, by the services' names; on the host, by the published ports.
INSIDE = {"nats": "nats", "postgres": "postgres", "clickhouse": "clickhouse"}
OUTSIDE = dict.fromkeys(INSIDE, "127.0.0.1")
# Names in the servers' certificates, in addition to the host's own.
HOSTS = ["nats", "nats-1", "nats-2", "nats-3", "postgres", "clickhouse", "otel-collector"]


def secret_names():
    """One file each: the server, then its user."""
    roles = ["superuser", *(schema.replace("_", "-") for schema in postgres.SCHEMAS), postgres.READER]
    return (["nats-route"] + [f"postgres-{role}" for role in roles]
            + [f"clickhouse-{user}" for user in ("analytics", "reader")] + ["grafana-admin"])


def write_secrets(program, directory=SECRETS):
    """
    Makes the passwords, creds and certificates that are missing and keeps those that are there, for the servers know them
    already. Containers run as users of their own, so what they get is readable for all; the directory is for its owner
    only, and no container gets the keys of the bus or the one that signs certificates.
    """
    paths.make_dir(directory)
    tenants = bus.of_new(bus_dir(directory), TENANTS)
    bus.init(program, bus_dir(directory), CELL, tenants, "--resolver-dir", RESOLVER_DIR)
    tls.init(program, tls_dir(directory), HOSTS)
    for path in given(bus_dir(directory)) + shown(tls_dir(directory)):
        path.chmod(0o444)
    words = {}
    for name in secret_names():
        path = directory / name
        if not path.exists():
            # A letter first, or NATS reads a number.
            write(path, f"p{secrets.token_hex(16)}\n")
        words[name] = path.read_text(encoding="utf-8").strip()
    write(directory / "stack", json.dumps(stack(words, INSIDE, "/run/secrets", "/run/secrets/ca.pem"), indent=2) + "\n")
    creds, ca_file = str(bus_dir(directory) / "creds"), str(tls.ca(tls_dir(directory)))
    write(directory / "stack.json", json.dumps(stack(words, OUTSIDE, creds, ca_file), indent=2) + "\n")


def bus_dir(directory):
    return directory / "bus"


def tls_dir(directory):
    return directory / "tls"


def shown(directory):
    """What containers get of the authority's directory: whom to believe, and each server what it shows."""
    return [tls.ca(directory)] + [file(directory, server) for server in tls.SERVERS for file in (tls.certificate, tls.key)]


def given(directory):
    """What containers get of the bus's directory: the servers whom they trust, and each party its own creds."""
    parties = [bus.creds(directory, key) for key in (*services.NAMES, "operator", bus.BUS)]
    return [bus.configuration(directory), bus.node_signing(directory), *parties]


def write(path, text):
    paths.write_private(path, text)
    path.chmod(0o444)


def stack(words, hosts, creds, ca_file):
    """What the command line reads, as the local launcher writes it."""
    return {
        "cell": {"name": CELL, "number": services.CELL_NUMBER},
        "tenants": TENANTS,
        "nats": {
            "url": f"tls://{hosts['nats']}:4222",
            "creds": creds,
        },
        "postgres": {"url": tls.postgres_url(
            f"postgres://{postgres.READER}:{words['postgres-reader']}@{hosts['postgres']}:5432/{postgres.DATABASE}",
            ca_file)},
        "clickhouse": {
            "url": f"https://{hosts['clickhouse']}:8443",
            "database": clickhouse.DATABASE,
            "reader": {"user": "reader", "password": words["clickhouse-reader"]},
        },
        "tls": {"ca_file": ca_file},
        # Containers are no business of the launcher's; these are for what asks for them all the same.
        "otlp_listen": "127.0.0.1:4317",
        "state_dir": "/nonexistent",
    }
