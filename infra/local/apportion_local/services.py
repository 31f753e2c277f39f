"""The five services: their configuration files and how they are run."""

import json
import re

from pathlib import Path

from .net import LOOPBACK, http_ok, http_text
from .supervisor import Spec

NAMES = ("admission", "quota", "scheduler", "node-heartbeat", "analytics")
LEDGER_WRITERS = ("admission", "quota", "scheduler", "node-heartbeat")
CELL_NUMBER = 1
LEASE_MS = 15_000
# The time that commands get to stop with the stack; less than the launcher waits for a process.
AGENT_GRACE_MS = 5_000
# How long an operation id is remembered.
OPERATION_WINDOW_MS = 24 * 3_600_000
# The one process of all services, where they run together.
TOGETHER = "services"
WITH_POSTGRES = ("admission", "quota", "scheduler", "node-heartbeat")


def schema(service):
    """A service's schema and Postgres role: its name, as SQL likes it."""
    return service.replace("-", "_")


def process(service, replica):
    """The name of one of a service's processes; the first is called as the service is."""
    return service if replica == 1 else f"{service}-{replica}"


def role(address):
    """What a process of a service says of itself; nothing if it does not decide, or does not answer."""
    page = http_text(f"http://{address}/metrics") or ""
    leading = re.search(r"^apportion_leading{.*} (\d)$", page, re.MULTILINE)
    return {None: "", "0": "stands by", "1": "leads"}[leading and leading[1]]


def spec(name, program, config, port, environment):
    return Spec(
        name=name,
        argv=[str(program), "--config", str(config)],
        env=environment,
        ready=lambda: http_ok(f"http://{LOOPBACK}:{port}/readyz"),
        stop_grace_s=10.0,
        ready_timeout_s=60.0,
    )


def together_spec(program, config_dir, ports):
    """All five as one process."""
    return Spec(
        name=TOGETHER,
        argv=[str(program), "serve", "--config-dir", str(config_dir)],
        ready=lambda: all(http_ok(f"http://{LOOPBACK}:{port}/readyz") for port in ports),
        stop_grace_s=10.0,
        ready_timeout_s=60.0,
    )


def config(service, stack, listen):
    """The configuration of one of a service's processes as tables of TOML."""
    held = Path(stack["nats"]["creds"])
    tables = common(held / f"{service}.creds", stack)
    if stack["clock"] is not None:
        tables["clock"] = stack["clock"]
    tables["http"] = {"listen": listen}
    # Nobody listens there until a driver does; the exporters put up with that.
    scheme = "https" if stack.get("tls") else "http"
    tables["telemetry"] = {"otlp_endpoint": f"{scheme}://{stack['otlp_listen']}", **ca_file(stack)}
    if service in WITH_POSTGRES:
        role = schema(service)
        tables["postgres"] = {"url": stack["postgres"]["urls"][role], "schema": role, **ca_file(stack)}
    if service == "analytics":
        tables["clickhouse"] = {key: stack["clickhouse"][key] for key in ("url", "user", "password", "database")}
        tables["clickhouse"] |= ca_file(stack)
    # Both run on the cell's clock. Scaled with its rate, the real load of heartbeats and retries stays the same.
    rate = stack["clock"]["rate"] if stack["clock"] else 1
    if service == "node-heartbeat":
        tables["nats"]["signing_key_file"] = str(held / "node-signing.nk")
        # The simulated fleet has one user for all of its nodes.
        tables["service"] = {"lease_ms": round(stack["lease_ms"] * rate), "joining": "open"}
    if service == "admission":
        tables["service"] = {"operation_window_ms": round(stack["operation_window_ms"] * rate)}
    return tables


def agent_config(stack, node, listen, state_dir, work_dir, run_users):
    """
    The configuration of an agent. The cell is open, so it needs no token: it speaks as the simulated nodes do. It takes work until
    this machine's disk is almost full. `run_users`: the range of users of runs, or None for the launcher's own.
    """
    tables = common(Path(stack["nats"]["creds"]) / "fleet.creds", stack)
    tables["http"] = {"listen": listen}
    tables["service"] = {"node": node, "state_dir": str(state_dir), "work_dir": str(work_dir), "grace_ms": AGENT_GRACE_MS,
                         "memory_pressure_percent": 0, "disk_pressure_percent": 2}
    if run_users is not None:
        tables["service.run_users"] = {"first": run_users.start, "count": len(run_users)}
    return tables


def bus_config(stack, creds):
    """What `apportion cell init` needs to create the cell's streams. Its creds are not the stack's to tell."""
    return common(creds, stack)


def common(creds, stack):
    return {
        "cell": stack["cell"],
        "nats": {
            "url": stack["nats"]["url"],
            "creds": str(creds),
            "monitor_url": stack["nats"]["monitor_url"],
            **ca_file(stack),
        },
        "log": {"format": "json", "filter": "info"},
    }


def ca_file(stack):
    """What says in a server's table whose certificate it has; nothing, if it has none."""
    return {"ca_file": stack["tls"]["ca_file"]} if stack.get("tls") else {}


def to_toml(tables):
    """Tables of strings and integers, which is all these files hold. JSON's strings are TOML's basic strings."""
    lines = []
    for name, table in tables.items():
        lines.append(f"[{name}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
        lines.append("")
    return "\n".join(lines)
