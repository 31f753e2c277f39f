"""What the compose file shares with the local stack: the NATS accounts, for tenants known beforehand, and its secrets."""

import json
import re
import secrets

from . import clickhouse, nats_conf, paths, postgres, services
from .paths import CHECKOUT

ACCOUNTS = CHECKOUT / "infra" / "nats" / "accounts.conf"
SECRETS = CHECKOUT / "infra" / "secrets"
CELL = "local"
TENANTS = ["team-a", "team-b"]
# Where a program reaches the servers: in a container, by the services' names; on the host, by the published ports.
INSIDE = {"nats": "nats", "postgres": "postgres", "clickhouse": "clickhouse"}
OUTSIDE = dict.fromkeys(INSIDE, "127.0.0.1")


def variable(key):
    """The environment variable that holds a NATS user's password: "tenant:team-a" → NATS_PASSWORD_TENANT_TEAM_A."""
    return "NATS_PASSWORD_" + re.sub(r"[^A-Za-z0-9]", "_", key).upper()


def accounts_conf():
    passwords = {key: "$" + variable(key) for key in services.nats_users(TENANTS)}
    text = nats_conf.render_accounts(nats_conf.accounts(CELL, TENANTS, passwords))
    # NATS looks a variable up only where it is not quoted.
    text = re.sub(r'"(\$NATS_PASSWORD_\w+)"', r"\1", text)
    return "# Written by `python3 infra/local/stack.py compose-accounts`; a test compares.\n" + text


def secret_names():
    """One file each: the server, then its user."""
    nats = ["route", *(key.replace(":", "-") for key in services.nats_users(TENANTS))]
    roles = ["superuser", *(schema.replace("_", "-") for schema in postgres.SCHEMAS), postgres.READER]
    return ([f"nats-{user}" for user in nats] + [f"postgres-{role}" for role in roles]
            + [f"clickhouse-{user}" for user in ("analytics", "reader")] + ["grafana-admin"])


def write_secrets(directory=SECRETS):
    """
    Makes the passwords that are missing and keeps those that are there, for the servers know them already. Containers run
    as users of their own, so the files are readable for all; their directory is for its owner only.
    """
    paths.make_dir(directory)
    words = {}
    for name in secret_names():
        path = directory / name
        if not path.exists():
            # A letter first, or NATS reads a number.
            write(path, f"p{secrets.token_hex(16)}\n")
        words[name] = path.read_text(encoding="utf-8").strip()
    write(directory / "stack", json.dumps(stack(words, INSIDE), indent=2) + "\n")
    write(directory / "stack.json", json.dumps(stack(words, OUTSIDE), indent=2) + "\n")


def write(path, text):
    paths.write_private(path, text)
    path.chmod(0o444)


def stack(words, hosts):
    """What the command line reads, as the local launcher writes it."""
    passwords = {key: words[f"nats-{key.replace(':', '-')}"] for key in services.nats_users(TENANTS)}
    return {
        "cell": {"name": CELL, "number": services.CELL_NUMBER},
        "tenants": TENANTS,
        "nats": {
            "url": f"nats://{hosts['nats']}:4222",
            "users": services.nats_logins(TENANTS, passwords),
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
