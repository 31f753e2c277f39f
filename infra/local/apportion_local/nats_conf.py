"""
The NATS configuration: accounts, users and what each may say and hear. Pure: text in, text out.

A user's permissions do not reach what the server publishes for the user. Whoever may create a consumer names the
subject that it delivers to, and whoever asks JetStream for anything names the subject that the answer goes to; the server
publishes there, whatever the user may publish, in the account that was asked. So no two parties share an account:

- Each stream lives in an account of its own, where nobody publishes but by a crossing that is listed here. A consumer
  delivers inside of that account: not to the stream's own subjects, which the server refuses, and there are no others.
- Each service, tenant and operator, and the fleet, has an account of its own. An answer comes back to the account that
  asked, where the subjects of the others are not.

The cell may be "*": one server for many cells whose names are not known yet, as the tests need it. NATS has no
wildcard inside a token, so a stream's name then becomes "*" as a whole, and all streams share one account.
"""

import base64
import json
from dataclasses import dataclass, field, replace

SERVICES = ("admission", "quota", "scheduler", "node-heartbeat", "analytics")
LEDGER_WRITERS = ("admission", "quota", "scheduler", "node-heartbeat")
STREAMS = ("LEDGER", "INGRESS", "REPORT", "EVENT", "SNAPSHOT")
# The operator of the cell and the operator of the bus, who alone makes and deletes streams.
OPERATORS = ("operator", "bus")
# What tenants may ask, by the service that answers. Admission refuses the verbs that nobody has, so it hears them all.
QUERIES = {"admission": ("*",), "scheduler": ("allocation", "reservation", "resource")}
# Whose snapshots a service saves: its decider's and its projections'. Those of one name are saved in two places by turns.
PROJECTIONS = {name: (name, "feed") if name == "admission" else (name,) for name in SERVICES}
SNAPSHOT_PLACES = ("", ".2")
INBOX = "_INBOX.>"
API_INFO = "$JS.API.INFO"
# An answer that comes in parts is over when this long none came; a pull request is longer under way.
RESPONSE_THRESHOLD = "20s"
LINE_MAX = 120
MAX_PAYLOAD_BYTES = 8 * 1024 * 1024
# Each stream has its own limit; the server's is not to be in the way of many small cells, to each of which feeds are promised.
UNLIMITED_BYTES = 1 << 40
# One tenant takes neither the server's sockets nor its memory for itself: connections of the account, and
# subscriptions of one connection.
TENANT_LIMITS = {"max_connections": 256, "max_subscriptions": 1024}


@dataclass(frozen=True)
class Party:
    """Who connects, by one user, alone in an account. A crossing is (the other account, the subject)."""

    account: str
    user: str
    # The entry of this user among the passwords.
    key: str
    # What it publishes and another account takes; the answer, if any, comes to its inbox.
    calls: tuple
    # What it subscribes and another account publishes.
    hears: tuple
    # What it publishes, and subscribes, in its own account, where others import it.
    says: tuple = ()
    answers: tuple = ()
    # What the server allows this account, by the server's names for it.
    limits: dict = field(default_factory=dict)


def subject(cell, *tokens):
    return ".".join(("apportion", "v1", cell) + tokens)


def stream(cell, kind):
    """The name of a cell's stream; SNAPSHOT is an object store."""
    if cell == "*":
        return "*"
    return f"OBJ_APPORTION_{cell}_SNAPSHOT" if kind == "SNAPSHOT" else f"APPORTION_{cell}_{kind}"


def stream_account(cell, kind):
    return "STREAMS" if cell == "*" else kind


def service_account(service):
    return service.upper().replace("-", "_")


def tenant_account(tenant):
    return f"T_{tenant}"


# What may be done with a stream, as subjects of JetStream's own interface.


def look_at(name):
    return [f"$JS.API.STREAM.INFO.{name}"]


def read(name):
    """Look at a stream, read single messages from its leader, follow it with consumers that need no acknowledgement."""
    api = "$JS.API"
    return look_at(name) + [
        f"{api}.STREAM.MSG.GET.{name}",
        f"{api}.CONSUMER.CREATE.{name}",
        f"{api}.CONSUMER.CREATE.{name}.>",
        f"{api}.CONSUMER.INFO.{name}.*",
        f"{api}.CONSUMER.DELETE.{name}.*",
        f"{api}.CONSUMER.MSG.NEXT.{name}.*",
    ]


def purge(name):
    return [f"$JS.API.STREAM.PURGE.{name}"]


def read_snapshots(name):
    """The client library has snapshots pushed to it, with flow control, and looks for them by direct reads."""
    return read(name) + [f"$JS.API.DIRECT.GET.{name}", f"$JS.API.DIRECT.GET.{name}.>", f"$JS.FC.{name}.>"]


def snapshot_subjects(cell, service):
    """
    Parts of a snapshot have random names, so that anybody's can be written. What makes a snapshot of them is a message
    under its name, with their digest, and only its owner writes that.
    """
    bucket = "*" if cell == "*" else f"APPORTION_{cell}_SNAPSHOT"
    decider = [service] if service in LEDGER_WRITERS else []
    names = decider + [f"projection-{name}" for name in PROJECTIONS[service]]
    places = [base64.urlsafe_b64encode(f"{name}{place}".encode()).decode()
              for name in names for place in SNAPSHOT_PLACES]
    return [f"$O.{bucket}.C.*"] + [f"$O.{bucket}.M.{place}" for place in places]


def manage(name):
    """Make, look at, change, empty and delete a stream, and look at and delete messages in it."""
    verbs = ("CREATE", "UPDATE", "DELETE", "MSG.GET", "MSG.DELETE")
    return look_at(name) + purge(name) + [f"$JS.API.STREAM.{verb}.{name}" for verb in verbs]


class Crossings:
    """Collects what a party does in the accounts of others."""

    def __init__(self, cell):
        self.cell = cell
        self.calls = []
        self.hears = []

    def call(self, account, subjects):
        self.calls += [(account, name) for name in subjects]

    def hear(self, account, subjects):
        self.hears += [(account, name) for name in subjects]

    def store(self, kind, subjects):
        """To publish into a stream."""
        self.call(stream_account(self.cell, kind), subjects)

    def ask(self, kind, what):
        """To ask JetStream; `what` makes subjects of a stream's name."""
        # The server gives an account that does not import this a JetStream interface of its own, which answers, faster
        # than the stream's account, that there is no JetStream.
        first = [] if any(name == API_INFO for _, name in self.calls) else [API_INFO]
        self.store(kind, first + what(stream(self.cell, kind)))

    def read_snapshots(self):
        """They are pushed to an inbox, which must be heard in the account of the stream."""
        self.ask("SNAPSHOT", read_snapshots)
        self.hear(stream_account(self.cell, "SNAPSHOT"), [INBOX])

    def query(self, tenant):
        for name, verbs in QUERIES.items():
            self.call(service_account(name), [subject(self.cell, "query", tenant, verb) for verb in verbs])

    def party(self, account, user, key, says=(), answers=()):
        return Party(account, user, key, unique(self.calls), unique(self.hears), says, answers)


def service(cell, name):
    to = Crossings(cell)
    says, answers = [], []
    to.ask("LEDGER", read)
    to.read_snapshots()
    to.ask("SNAPSHOT", purge)
    to.store("SNAPSHOT", snapshot_subjects(cell, name))
    if name in LEDGER_WRITERS:
        to.store("LEDGER", [subject(cell, "ledger", name)])
    if name == "admission":
        to.ask("INGRESS", lambda door: read(door) + purge(door))
        # The feeds are made of the ledger: those of another one are thrown away.
        to.ask("EVENT", lambda feeds: read(feeds) + purge(feeds))
        to.store("EVENT", [subject(cell, "event", "*", "*")])
        # What came by a call is not handed on to those who hear an account, so they hear the events where they are said.
        says += [subject(cell, "event", ">"), subject(cell, "reply", ">")]
    if name == "node-heartbeat":
        to.ask("REPORT", lambda door: read(door) + purge(door))
        says += [subject(cell, "node", "*", "assign")]
        answers += [subject(cell, "node", "*", verb) for verb in ("heartbeat", "sync")]
    answers += [subject(cell, "query", "*", verb) for verb in QUERIES.get(name, ())]
    return to.party(service_account(name), name, name, tuple(says), tuple(answers))


def operator(cell):
    """Whose commands reach the cell's administration, and who looks at everything. Changes no stream."""
    to = Crossings(cell)
    for kind in STREAMS:
        to.ask(kind, look_at)
    to.ask("LEDGER", read)
    to.read_snapshots()
    to.store("INGRESS", [subject(cell, "admin")])
    to.query("*")
    # Answers to the operators come under a tenant name that no tenant may have.
    to.hear(service_account("admission"), [subject(cell, "reply", "_operator", ">"), subject(cell, "event", ">")])
    return to.party("OPERATOR", "operator", "operator")


def bus(cell):
    """
    The only one who makes, changes and deletes streams. Says nothing in the cell; but what stood on the ledger and was lost is
    put back by it, from a copy.
    """
    to = Crossings(cell)
    for kind in STREAMS:
        to.ask(kind, manage)
    to.store("LEDGER", [subject(cell, "ledger", name) for name in LEDGER_WRITERS])
    return to.party("BUS", "bus", "bus")


def tenant(cell, name):
    to = Crossings(cell)
    to.store("INGRESS", [subject(cell, "ingress", name)])
    to.query(name)
    to.hear(service_account("admission"), [subject(cell, "event", name, ">"), subject(cell, "reply", name, ">")])
    return replace(to.party(tenant_account(name), name, f"tenant:{name}"), limits=TENANT_LIMITS)


def fleet(cell):
    to = Crossings(cell)
    door = service_account("node-heartbeat")
    to.store("REPORT", [subject(cell, "node", "*", "report")])
    to.call(door, [subject(cell, "node", "*", verb) for verb in ("sync", "heartbeat")])
    to.hear(door, [subject(cell, "node", "*", "assign")])
    return to.party("NODES", "fleet", "fleet")


def parties(cell, tenants):
    return [*(service(cell, name) for name in SERVICES), operator(cell), bus(cell), fleet(cell),
            *(tenant(cell, name) for name in tenants)]


def permissions(party):
    """What the account can do, once more for its user, so that who tries more is told."""
    calls = [name for _, name in party.calls]
    hears = [name for _, name in party.hears]
    value = {
        "publish": {"allow": list(unique([*calls, *party.says]))},
        "subscribe": {"allow": list(unique([*hears, *party.answers, INBOX]))},
    }
    if party.answers:
        # One answer for each request received, to the reply subject that the server made up for it.
        value["allow_responses"] = True
    return value


def unique(values):
    return tuple(dict.fromkeys(values))


def imports(party):
    return ([{"service": {"account": account, "subject": name}} for account, name in party.calls]
            + [{"stream": {"account": account, "subject": name}} for account, name in party.hears])


def exports(everybody, account):
    """Every export names the accounts that may import it."""
    importers = {}
    for party in everybody:
        for how, crossings in (("service", party.calls), ("stream", party.hears)):
            for other, name in crossings:
                if other == account:
                    importers.setdefault((how, name), []).append(party.account)
    return [export(how, name, accounts) for (how, name), accounts in importers.items()]


def export(how, name, accounts):
    value = {how: name, "accounts": accounts}
    if ".CONSUMER.MSG.NEXT." in name:
        value |= {"response_type": "stream", "response_threshold": RESPONSE_THRESHOLD}
    return value


def accounts(cell, tenants, passwords):
    """The accounts as data. `passwords` maps each operator and service, "fleet" and "tenant:<name>" to a password."""
    everybody = parties(cell, tenants)
    value = {}
    for kind in STREAMS:
        name = stream_account(cell, kind)
        value[name] = {"jetstream": True, "exports": exports(everybody, name)}
    for party in everybody:
        user = {"user": party.user, "password": passwords[party.key], "permissions": permissions(party)}
        value[party.account] = {"users": [user], "imports": imports(party)}
        if party.limits:
            value[party.account]["limits"] = party.limits
        if theirs := exports(everybody, party.account):
            value[party.account]["exports"] = theirs
    return value


def render_accounts(value):
    """NATS reads JSON as configuration."""
    return "accounts: " + layout(value) + "\n"


def layout(value, indent=""):
    """JSON in which what fits a line has one."""
    line = json.dumps(value)
    if len(indent + line) <= LINE_MAX or not isinstance(value, (dict, list)):
        return line
    deeper = indent + "  "
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {layout(item, deeper)}" for key, item in value.items()]
    else:
        items = [layout(item, deeper) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + ",".join(f"\n{deeper}{item}" for item in items) + f"\n{indent}{closing}"


def render(*, port, monitor_port, store_dir, cell, tenants, passwords, file_store_bytes=UNLIMITED_BYTES):
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
  max_file_store: {file_store_bytes}
  max_memory_store: 256MB
}}
{render_accounts(accounts(cell, tenants, passwords))}"""
