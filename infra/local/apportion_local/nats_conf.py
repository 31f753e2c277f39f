"""
The NATS configuration: accounts, users and what each may say and hear. Pure: text in, text out.

JetStream lets whoever may create a consumer have it deliver to any subject of its own account. So tenants and nodes
live in accounts of their own, and only what is exported to them crosses: a request of theirs gets its answer in their
account, whatever reply subject it names.

The cell may be "*": one server for many cells whose names are not known yet, as the tests need it. NATS has no
wildcard inside a token, so a stream's name then becomes "*" as a whole.
"""

import json

SERVICES = ("admission", "quota", "scheduler", "node-heartbeat", "analytics")
LEDGER_WRITERS = ("admission", "quota", "scheduler", "node-heartbeat")
# What tenants may ask, by the service that answers. Admission refuses the verbs that nobody has, so it hears them all.
QUERIES = {"admission": ("*",), "scheduler": ("allocation", "reservation", "resource")}
INBOX = "_INBOX.>"
MAX_PAYLOAD_BYTES = 8 * 1024 * 1024


def subject(cell, *tokens):
    return ".".join(("apportion", "v1", cell) + tokens)


def stream(cell, kind):
    """The name of a cell's stream: LEDGER, INGRESS, REPORT, EVENT or SNAPSHOT (an object store)."""
    if cell == "*":
        return "*"
    return f"OBJ_APPORTION_{cell}_SNAPSHOT" if kind == "SNAPSHOT" else f"APPORTION_{cell}_{kind}"


def object_store(cell):
    return "$O.*.>" if cell == "*" else f"$O.APPORTION_{cell}_SNAPSHOT.>"


def tenant_account(tenant):
    return f"T_{tenant}"


# What a role may do with a stream, as subjects of JetStream's own interface.


def read_stream(name):
    """Look at a stream, read single messages from its leader, follow it with consumers."""
    api = "$JS.API"
    return [
        f"{api}.STREAM.INFO.{name}",
        f"{api}.STREAM.MSG.GET.{name}",
        f"{api}.CONSUMER.CREATE.{name}",
        f"{api}.CONSUMER.CREATE.{name}.>",
        f"{api}.CONSUMER.INFO.{name}.*",
        f"{api}.CONSUMER.DELETE.{name}.*",
        f"{api}.CONSUMER.MSG.NEXT.{name}.*",
        f"$JS.ACK.{name}.>",
        f"$JS.FC.{name}.>",
    ]


def purge_stream(name):
    return [f"$JS.API.STREAM.PURGE.{name}"]


def use_object_store(cell):
    """Read and write snapshots; replacing one purges the old chunks."""
    name = stream(cell, "SNAPSHOT")
    return read_stream(name) + purge_stream(name) + [
        f"$JS.API.DIRECT.GET.{name}",
        f"$JS.API.DIRECT.GET.{name}.>",
        object_store(cell),
    ]


def service_permissions(cell, service):
    """What one service may publish and subscribe; whether it answers requests."""
    publish = ["$JS.API.INFO", "$JS.API.STREAM.NAMES"] + read_stream(stream(cell, "LEDGER")) + use_object_store(cell)
    subscribe = [INBOX]
    answers = False
    if service in LEDGER_WRITERS:
        publish.append(subject(cell, "ledger", service))
    if service == "admission":
        publish += read_stream(stream(cell, "INGRESS")) + purge_stream(stream(cell, "INGRESS"))
        # The feeds are made of the ledger: those of another one are thrown away.
        publish += read_stream(stream(cell, "EVENT")) + purge_stream(stream(cell, "EVENT"))
        publish += [subject(cell, "event", ">"), subject(cell, "reply", ">")]
    if service == "node-heartbeat":
        publish += read_stream(stream(cell, "REPORT")) + purge_stream(stream(cell, "REPORT"))
        publish.append(subject(cell, "node", "*", "assign"))
        subscribe += [subject(cell, "node", "*", "heartbeat"), subject(cell, "node", "*", "sync")]
        answers = True
    for verb in QUERIES.get(service, ()):
        subscribe.append(subject(cell, "query", "*", verb))
        answers = True
    return permissions(publish, subscribe, answers)


def operator_permissions(cell):
    """The only one who creates, changes and deletes streams, and whose commands reach the cell's administration."""
    publish = ["$JS.API.>", "$JS.ACK.>", "$JS.FC.>", object_store(cell),
               subject(cell, "admin"), subject(cell, "query", ">")]
    # Answers to the operators come under a tenant name that no tenant may have.
    subscribe = [subject(cell, "reply", "_operator", ">"), subject(cell, "event", ">"), INBOX]
    return permissions(publish, subscribe, answers=False)


def tenant_permissions(cell, tenant):
    publish = [subject(cell, "ingress", tenant), subject(cell, "query", tenant, "*")]
    subscribe = [subject(cell, "event", tenant, ">"), subject(cell, "reply", tenant, ">"), INBOX]
    return permissions(publish, subscribe, answers=False)


def fleet_permissions(cell):
    node = lambda verb: subject(cell, "node", "*", verb)  # noqa: E731
    return permissions([node("report"), node("sync"), node("heartbeat")], [node("assign"), INBOX], answers=False)


def permissions(publish, subscribe, answers):
    value = {"publish": {"allow": unique(publish)}, "subscribe": {"allow": unique(subscribe)}}
    if answers:
        # One answer for each request received, to the reply subject that the server made up for it.
        value["allow_responses"] = True
    return value


def unique(values):
    return list(dict.fromkeys(values))


def accounts(cell, tenants, passwords):
    """The accounts as data. `passwords` maps "operator", each service, "fleet" and "tenant:<name>" to a password."""

    def user(name, key, allowed):
        return {"user": name, "password": passwords[key], "permissions": allowed}

    cell_users = [user(name, name, service_permissions(cell, name)) for name in SERVICES]
    cell_users.append(user("operator", "operator", operator_permissions(cell)))
    value = {
        "CELL": {"jetstream": True, "users": cell_users, "exports": cell_exports(cell, tenants)},
        "NODES": {"users": [user("fleet", "fleet", fleet_permissions(cell))], "imports": node_imports(cell)},
    }
    for tenant in tenants:
        value[tenant_account(tenant)] = {
            "users": [user(tenant, f"tenant:{tenant}", tenant_permissions(cell, tenant))],
            "imports": tenant_imports(cell, tenant),
        }
    return value


def tenant_services(cell, tenant):
    return [subject(cell, "ingress", tenant), subject(cell, "query", tenant, "*")]


def tenant_streams(cell, tenant):
    return [subject(cell, "event", tenant, ">"), subject(cell, "reply", tenant, ">")]


def node_services(cell):
    return [subject(cell, "node", "*", verb) for verb in ("report", "sync", "heartbeat")]


def node_streams(cell):
    return [subject(cell, "node", "*", "assign")]


def cell_exports(cell, tenants):
    """Every export names the one account that may import it."""
    exports = []
    for tenant in tenants:
        exports += export(tenant_account(tenant), tenant_services(cell, tenant), tenant_streams(cell, tenant))
    return exports + export("NODES", node_services(cell), node_streams(cell))


def export(account, services, streams):
    return ([{"service": name, "accounts": [account]} for name in services]
            + [{"stream": name, "accounts": [account]} for name in streams])


def tenant_imports(cell, tenant):
    return imports(tenant_services(cell, tenant), tenant_streams(cell, tenant))


def node_imports(cell):
    return imports(node_services(cell), node_streams(cell))


def imports(services, streams):
    return ([{"service": {"account": "CELL", "subject": name}} for name in services]
            + [{"stream": {"account": "CELL", "subject": name}} for name in streams])


def render_accounts(value):
    """NATS reads JSON as configuration; one account per line group keeps it readable."""
    return "accounts: " + json.dumps(value, indent=2) + "\n"


def render(*, port, monitor_port, store_dir, cell, tenants, passwords):
    """The whole configuration of the local server."""
    return f"""# Written by the local stack; the next start overwrites it.
server_name: apportion-local
listen: "127.0.0.1:{port}"
http: "127.0.0.1:{monitor_port}"
max_payload: {MAX_PAYLOAD_BYTES}
max_pending: 67108864
jetstream: {{
  store_dir: {json.dumps(str(store_dir))}
  # An acknowledged message is on disk. The default of two minutes loses them at a power cut.
  sync_interval: always
  # Each stream has its own limit; the server's must only not be in the way of many small cells.
  max_file_store: 1TB
  max_memory_store: 256MB
}}
{render_accounts(accounts(cell, tenants, passwords))}"""
