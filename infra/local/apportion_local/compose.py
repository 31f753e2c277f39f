"""What the compose file shares with the local stack: the NATS accounts, for tenants that are known beforehand."""

import re

from . import nats_conf, services
from .paths import CHECKOUT

ACCOUNTS = CHECKOUT / "infra" / "nats" / "accounts.conf"
CELL = "local"
TENANTS = ["team-a", "team-b"]


def variable(key):
    """The environment variable that holds a NATS user's password: "tenant:team-a" → NATS_PASSWORD_TENANT_TEAM_A."""
    return "NATS_PASSWORD_" + re.sub(r"[^A-Za-z0-9]", "_", key).upper()


def accounts_conf():
    passwords = {key: "$" + variable(key) for key in services.nats_users(TENANTS)}
    text = nats_conf.render_accounts(nats_conf.accounts(CELL, TENANTS, passwords))
    # NATS looks a variable up only where it is not quoted.
    text = re.sub(r'"(\$NATS_PASSWORD_\w+)"', r"\1", text)
    return "# Written by `python3 infra/local/stack.py compose-accounts`; a test compares.\n" + text
