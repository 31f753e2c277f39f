"""
Commands that no other test runs. Each answer is read as text and as JSON, and a value that is wrong is refused with the
exit code of its reason. `recording.py` lists the commands that still no test ran.
"""

import json
import re
from datetime import datetime, timedelta, timezone

import pytest

from apportion_local import wheels

from .support import PROGRAMS, Stack, run, succeeded, wait

pytestmark = pytest.mark.system

FAILED, WRONG_USAGE, REFUSED = 1, 2, 3


class Cell(Stack):
    """A running stack, and what its commands answer."""

    def reason(self, code, *words):
        """The error of a command that ends with this exit code and prints nothing else."""
        done = self.ask(*words)
        assert (done.returncode, done.stdout) == (code, ""), f"{words}: {done.stderr}"
        return done.stderr

    def until(self, is_right, *words):
        """The first JSON answer that is right: read models follow the ledger."""
        answers = []

        def answer():
            answers[:] = [self.json(*words)]
            return is_right(answers[0])

        wait(answer, lambda: f"{words}: {answers}")
        return answers[0]

    def shown(self, *words, **fields):
        """An answer about one thing, once it has these fields."""
        return self.until(lambda answer: fields.items() <= answer.items(), *words)

    def row(self, *words, **fields):
        """The one row of a list that has these fields, once it is there."""
        def rows(answer):
            return [row for row in answer["items"] if fields.items() <= row.items()]

        (row,) = rows(self.until(rows, *words))
        return row


@pytest.fixture(scope="module")
def cell():
    """All services in one process, which `apportion serve` runs."""
    cell = Cell("--together")
    yield cell
    cell.close()


@pytest.fixture(scope="module")
def started(cell):
    """An allocation of team-a that has started on a simulated node, where it lasts until it is cancelled."""
    allocation = cell.submit("--name", "leaf", "--account", "team-a/ml", "--gpus", "1", "--wait", "started", "--deadline", "3m",
                             cpu="4")
    return cell.json("get", "--tenant", "team-a", allocation)


@pytest.fixture(scope="module")
def billed(cell, started):
    """The same one, once it is in the bill, which follows the last decision. Its tenant has a budget."""
    cell.apportion("quota", "budget", "team-a", "money", "250", "--per", "month")

    def is_billed():
        cell.apportion("quota", "set", "team-b", "cpu", "256")
        lines = cell.items("invoice", "show", month(started["placed_ms"]))
        return any(int(line["amount_micro"]) > 0 for line in lines)

    wait(is_billed, lambda: f"in the bill: {cell.json('usage')}", interval_s=1)
    return started


def moment(ms):
    return datetime.fromtimestamp(ms / 1000, timezone.utc)


def month(ms, before=0):
    """A month as commands take it: that of the moment, or one so many months before."""
    months = moment(ms).year * 12 + moment(ms).month - 1 - before
    return f"{months // 12}-{months % 12 + 1:02}"


def in_days(days):
    return f"{datetime.now(timezone.utc) + timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}"


# Named resources.


def test_a_resource_is_leased_confirmed_revoked_and_reclaimed(cell):
    of_tenant = ("resource", "--tenant", "team-a")
    assert cell.json(*of_tenant, "create", "gate") == {"result": "created"}
    assert "created" in cell.apportion(*of_tenant, "create", "bridge")
    assert "already exists" in cell.reason(REFUSED, *of_tenant, "create", "gate")
    cell.shown(*of_tenant, "get", "gate", state="available", version=0)

    lease = cell.json(*of_tenant, "acquire", "gate", "bridge", "--holder", "h1", "--ttl", "1000")
    assert lease["fencing_token"] == 1
    held = cell.shown(*of_tenant, "get", "bridge", state="granted", version=1)
    assert (held["lease_id"], held["lease_state"], held["holder"]) == (lease["lease_id"], "granted", "h1")
    assert sorted(held["resources"].split()) == ["bridge", "gate"]
    assert "resource busy" in cell.reason(REFUSED, *of_tenant, "acquire", "gate", "--holder", "h2")
    assert lease["lease_id"] in cell.apportion(*of_tenant, "get", "gate")

    own = (lease["lease_id"], "--holder", "h1", "--fencing-token", "1")
    assert cell.json(*of_tenant, "confirm", *own) == {"result": "confirmed"}
    cell.shown(*of_tenant, "get", "gate", state="confirmed", version=2)
    revoked = cell.json(*of_tenant, "revoke", lease["lease_id"])
    assert (revoked["result"], int(revoked["fencing_token"]) > 1) == ("revoked", True)
    cell.shown(*of_tenant, "get", "gate", state="revoking", lease_state="revoking", version=3)
    # A holder that comes late with the token from before.
    assert "stale fencing token" in cell.reason(REFUSED, *of_tenant, "release", *own)
    assert "reclaimed" in cell.apportion(*of_tenant, "reclaim", lease["lease_id"])
    cell.shown(*of_tenant, "get", "gate", state="available", version=4)


def test_a_lease_is_released(cell):
    of_tenant = ("resource", "--tenant", "team-b")
    cell.apportion(*of_tenant, "create", "gate")
    lease = cell.json(*of_tenant, "acquire", "gate", "--holder", "h1", "--ttl", "1000")["lease_id"]
    own = (lease, "--holder", "h1")
    assert "stale fencing token" in cell.reason(REFUSED, *of_tenant, "release", *own, "--fencing-token", "7")
    assert "released" in cell.apportion(*of_tenant, "release", *own)
    cell.shown(*of_tenant, "get", "gate", state="available", version=2)
    assert "stale fencing token" in cell.reason(REFUSED, *of_tenant, "confirm", *own)
    assert "lease id invalid" in cell.reason(REFUSED, *of_tenant, "reclaim", "not-a-lease")
    cell.reason(WRONG_USAGE, *of_tenant, "acquire", "gate")


# What operators set.


def test_a_queue_is_set_and_read_back(cell):
    asked = ("--tenant", "team-a", "--weight", "3", "--limit", "cpu=8")
    assert "version 1" in cell.apportion("queue-set", "narrow", *asked)
    changed = cell.json("queue-set", "narrow", "--order", "sjf")
    assert changed == {"set": "queue narrow", "version": 2}
    found = cell.json("settings", "get", "queue", "narrow")
    assert (found["tenants"], found["weight"], found["order"], found["limits"]["cpu"]) == (["team-a"], 3, "sjf", 8)
    assert cell.row("queues", queue="narrow")["weight_milli"] == 3000
    assert "fcfs" in cell.reason(WRONG_USAGE, "queue-set", "narrow", "--order", "lifo")
    assert "quantity zero" in cell.reason(REFUSED, "queue-set", "narrow", "--weight", "0")


def test_a_priority_class_and_the_policy_are_set_and_read_back(cell):
    assert "version 1" in cell.apportion("priority-class", "spare", "5", "--preemptible")
    assert cell.json("priority-class", "spare", "--grace", "30s")["version"] == 2
    found = cell.json("settings", "get", "priority-class", "spare")
    assert (found["value"], found["preemptible"], found["grace"]) == (5, True, "30s")
    cell.reason(WRONG_USAGE, "priority-class", "spare", "--placement", "worst")

    before = cell.json("policy", "--aging", "10m")["version"]
    assert f"version {before + 1}" in cell.apportion("policy", "--backfill")
    found = cell.json("settings", "get", "scheduling")
    assert (found["aging"], found["backfill"]) == ("10m", True)
    assert "version conflict" in cell.reason(REFUSED, "policy", "--aging", "5m", "--expected-version", "99")
    cell.reason(WRONG_USAGE, "policy", "--half-life", "soon")


def test_a_reservation_is_made_and_withdrawn(cell):
    wanted = ("--queue", "team-a", "--from", in_days(1), "--until", in_days(2), "--nodes", "1")
    assert "version 1" in cell.apportion("reserve", "night", *wanted)
    changed = cell.json("reserve", "night", *wanted, "--expected-version", "1")
    assert changed == {"set": "reservation night", "version": 2}
    found = cell.row("reservations", reservation="night", version=2)
    assert (found["queue"], found["nodes_wanted"]) == ("team-a", 1)
    assert "queue unknown" in cell.reason(REFUSED, "reserve", "other", "--queue", "nosuch", *wanted[2:])
    assert "too few nodes match it" in cell.reason(REFUSED, "reserve", "large", *wanted[:-1], "10000")
    over = ("--queue", "team-a", "--until", in_days(-1), "--nodes", "1")
    assert "interval invalid" in cell.reason(REFUSED, "reserve", "other", *over)

    assert "version conflict" in cell.reason(REFUSED, "unreserve", "night", "--expected-version", "1")
    assert "version 3" in cell.apportion("unreserve", "night")
    assert cell.row("reservations", reservation="night", version=3)["state"] == "withdrawn"
    assert cell.json("unreserve", "night")["version"] == 4


def test_what_was_never_set_is_not_taken_back(cell):
    for words in (("unreserve", "nosuch"), ("quota", "budget", "team-b", "gpu", "--none"),
                  ("quota", "set", "team-a", "extended:nosuch", "--none"), ("rates", "delete", "gpu:nosuch")):
        assert "never set" in cell.reason(REFUSED, *words), words
    assert "no such node" in cell.reason(REFUSED, "node", "forget", "nosuch")


def test_a_lender_that_waits_sees_what_it_lent_and_operators_see_to_whom(cell):
    """What the borrower holds stays reserved: no node has the resource."""
    licences = "extended:licence"
    cell.apportion("tenant", "team-a", "--cohort", "labs", "--on-exceed", "wait", "--reclaim", "never")
    cell.apportion("tenant", "team-b", "--cohort", "labs")
    cell.apportion("quota", "set", "team-a", licences, "2")
    cell.apportion("quota", "set", "team-b", licences, "0")
    borrower = cell.submit("--extended", "licence=2", tenant="team-b")
    cell.until(lambda it: any(one["resource"] == licences and one["borrowed"] == 2 for one in it["resources"]),
               "quota", "get", "team-b")

    lent = "2 of the limit of 2 of extended:licence, to 1 tenant of cohort labs"
    kept = "the tenant's setting reclaim is never"
    asks = ("submit", "--tenant", "team-a", "--cpu", "1", "--memory", "1GiB", "--extended", "licence=1")
    trial = cell.ask(*asks, "--dry-run").stdout
    assert lent in trial and kept in trial and "it may hold 0 now" in trial, trial
    waits = cell.submit("--extended", "licence=1")
    own = cell.apportion("explain", "--tenant", "team-a", waits)
    assert lent in own and kept in own and "team-b" not in own, own
    by_operator = ("--creds", str(cell.creds("operator")), "explain", "--tenant", "team-a", waits)
    assert "team-b (2)" in cell.apportion(*by_operator)
    assert cell.json(*by_operator)["lent"]["borrowed_by"] == ["team-b"]
    assert cell.json("explain", "--tenant", "team-a", waits)["lent"] == {
        "resource": licences, "limit": 2, "lent": 2, "borrowers": 1, "borrowed_by": [], "returning": 0, "reclaim": "never", "own": True}

    cell.apportion("cancel", "--tenant", "team-b", borrower)
    cell.shown("explain", "--tenant", "team-a", waits, lent=None)
    cell.apportion("cancel", "--tenant", "team-a", waits)
    cell.apportion("tenant", "team-a", "--clear", "cohort", "--clear", "on_exceed", "--clear", "reclaim")
    cell.apportion("tenant", "team-b", "--clear", "cohort")
    for tenant in ("team-a", "team-b"):
        cell.apportion("quota", "set", tenant, licences, "--none")


def test_a_rate_is_deleted(cell):
    scope = ("gpu:A10", "--tenant", "team-a")
    assert "never set" in cell.reason(REFUSED, "rates", "delete", *scope)
    assert "version 1" in cell.apportion("rates", "set", *scope, "2.5", "--from", in_days(1))
    assert cell.json("rates", "delete", *scope, "--from", in_days(2)) == {"set": "rate of gpu:A10", "version": 2}
    of_it = ("rates", "list", "--resource", "gpu:A10")
    assert cell.row(*of_it, version=1)["micro_per_unit_hour"] == 2500000
    assert cell.row(*of_it, version=2)["micro_per_unit_hour"] is None
    assert "version 3" in cell.apportion("rates", "delete", *scope)
    cell.reason(WRONG_USAGE, "rates", "delete", "gpu:A10", "--from", "soon")


def test_a_node_is_forgotten(cell):
    token = cell.json("node", "approve", "machine-7", "--cpu", "4", "--memory", "8GiB")["token"]
    assert re.fullmatch("[0-9a-f]{64}", token)
    assert cell.row("node", "list", node="machine-7")["cpu_milli"] == 4000
    assert "version conflict" in cell.reason(REFUSED, "node", "forget", "machine-7", "--expected-version", "9")
    assert cell.json("node", "forget", "machine-7") == {"set": "forget machine-7", "version": 2}
    cell.until(lambda answer: "machine-7" not in {row["node"] for row in answer["items"]}, "node", "list")
    assert "no such node" in cell.reason(REFUSED, "node", "forget", "machine-7")
    assert "machine-7" not in cell.apportion("node", "list")


# Questions.


def test_the_largest_holders_come_first(cell, started):
    tops = {"nodes": ("node", started["node"]), "tenants": ("tenant", "team-a"), "queues": ("queue", "team-a")}
    for leaf, (column, first) in tops.items():
        def is_first(answer):
            rows = answer["items"]
            return rows[0][column] == first and rows[0]["gpu_milli"] == 1000

        # Nothing else has a GPU.
        (row,) = cell.until(is_first, "top", leaf, "--by", "gpu", "--limit", "1")["items"]
        assert (row["allocations"], row["cpu_milli"]) == (1, 4000)
        assert cell.apportion("top", leaf, "--by", "gpu").splitlines()[1].split()[0] == first
        assert "gpu" in cell.reason(WRONG_USAGE, "top", leaf, "--by", "disk")
    assert cell.row("tenants", tenant="team-a")["started"] == 1
    assert "team-b" in cell.apportion("tenants", "--name-prefix", "team-")


def test_a_forecast_has_the_month_and_the_budgets(cell, billed):
    def has_both(found):
        return found["items"] and [(one["tenant"], one["of"], one["amount"]) for one in found["budgets"]] == [
            ("team-a", "money", 250_000_000)]

    found = cell.until(has_both, "report", "forecast")
    assert {line["tenant"] for line in found["items"] if int(line["so_far_micro"]) > 0} == {"team-a"}
    assert found["currency"] == "USD"
    text = cell.apportion("report", "forecast", "--tenant", "team-b")
    assert "USD" in text and "team-a" not in text
    cell.reason(WRONG_USAGE, "report", "forecast", "--month", "2026-11")


def test_summaries_of_a_month_are_of_the_bill(cell, billed):
    """test_report.py checks their figures, on machines that have Chromium."""
    def lines(*words):
        return cell.items("report", *words, "--month", month(billed["placed_ms"]))

    assert {line["resource"] for line in lines("utilization") if line["state"] == "capacity"} >= {"cpu", "memory"}
    assert [line["tenant"] for line in lines("top", "--by", "tenant")] == ["team-a"]
    shares = lines("shares", "--method", "none")
    assert {line["tenant"] for line in shares if int(line["charged_micro"]) > 0} == {"team-a"}
    sizes = {(line["resource"], line["up_to_milli"], line["runs"]) for line in lines("sizes")}
    assert sizes == {("cpu", 4000, 1), ("gpu", 1000, 1)}
    # Waits are those of finished runs, and there is none. What other tests cancelled got no place.
    assert all(line["p50_ms"] is None for line in lines("waits"))
    assert "cpu" in cell.apportion("report", "utilization")
    cell.reason(WRONG_USAGE, "report", "top", "--by", "node")


def test_a_page_of_a_month_is_written(cell, tmp_path):
    page = tmp_path / "page.html"
    done = cell.ask("report", "--html", str(page))
    if done.returncode == 0:
        assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    else:
        assert "without its chart library" in done.stderr


def test_an_invoice_is_shown_and_explained(cell, billed):
    this_month = month(billed["placed_ms"])
    shown = cell.json("invoice", "show", this_month)
    assert (shown["month"], shown["closed"], shown["currency"]) == (this_month, False, "USD")
    own = [line for line in shown["items"] if (line["tenant"], line["team"]) == ("team-a", "ml")]
    assert {line["resource"].split(":")[0] for line in own} == {"cpu", "memory", "gpu"}
    of_tenant = cell.items("invoice", "show", this_month, "--tenant", "team-a")
    assert {line["tenant"] for line in of_tenant} == {"team-a"}
    assert re.search(r"(?m)^team-a +ml +cpu ", cell.apportion("invoice", "show", this_month))
    cell.reason(WRONG_USAGE, "invoice", "show", "2026-13")

    hour = ("invoice", "explain", f"{moment(billed['placed_ms']):%Y-%m-%dT%H:00:00Z}", "--tenant", "team-a")
    parts = cell.items(*hour)
    assert {part["resource"].split(":")[0] for part in parts} == {"cpu", "memory", "gpu"}
    assert {part["allocation_id"] for part in parts} == {billed["allocation_id"]}
    assert all(int(part["quantity"]) > 0 for part in parts)
    assert [part["resource"] for part in cell.items(*hour, "--resource", "cpu")] == ["cpu"]
    # All models.
    (gpus,) = cell.items(*hour, "--resource", "gpu")
    assert gpus["resource"].startswith("gpu:")
    used = cell.json("usage", "--tenant", "team-a", "--resource", "gpu")
    assert used["total_micro"] == sum(line["amount_micro"] for line in used["items"])
    used = {total["resource"] for total in used["totals"]}
    assert gpus["resource"] in used and all(resource.startswith("gpu:") for resource in used)
    assert gpus["name"] == billed["name"] == "leaf"
    assert billed["allocation_id"] in cell.apportion(*hour)
    assert "full hour" in cell.reason(WRONG_USAGE, "invoice", "explain", "2026-11-03T10:30:00Z", "--tenant", "team-a")

    # The exit code says whether it adds up. While a batch is sent, tables are one batch apart.
    wait(lambda: cell.ask("invoice", "reconcile").returncode == 0, lambda: cell.refused("invoice", "reconcile"))
    open_month = cell.row("invoice", "reconcile", month=this_month)
    assert (open_month["state"], open_month["variance"]) == ("open", "0")
    cell.reason(WRONG_USAGE, "invoice", "reconcile", "2026-13")


def test_months_are_closed_one_after_the_other(cell, started):
    """The first one may be any that ended more than an hour ago."""
    first, second, this = (month(started["placed_ms"], before) for before in (3, 2, 0))
    assert f"close {first}: version 1" in cell.apportion("invoice", "close", first)
    assert "period out of turn" in cell.reason(REFUSED, "invoice", "close", this)
    assert cell.json("invoice", "close", second) == {"set": f"close {second}", "version": 2}
    assert "period closed" in cell.reason(REFUSED, "invoice", "close", first)
    shown = cell.until(lambda found: found["closed"], "invoice", "show", second)
    assert (shown["month"], shown["items"]) == (second, [])
    cell.reason(WRONG_USAGE, "invoice", "close", "November")


# Tables.


def test_tables_are_compared_and_made(cell, tmp_path):
    """Those of the running services, and those of a configuration that names empty schemas."""
    assert cell.items("schema", "diff") == []
    assert cell.items("schema", "ensure") == []
    assert len(cell.apportion("schema", "diff").splitlines()) == 1
    assert "admission.toml" in cell.reason(FAILED, "schema", "diff", "--config-dir", str(tmp_path))

    urls = cell.value["postgres"]
    for file in (cell.state / "config").glob("*.toml"):
        other = re.sub(r'(?m)^schema = "', 'schema = "empty_', file.read_text(encoding="utf-8"))
        (tmp_path / file.name).write_text(other, encoding="utf-8")
    sql = "".join(f"CREATE SCHEMA empty_{role} AUTHORIZATION {role};" for role in urls["urls"])
    psql = wheels.postgres_install() / "bin" / "psql"
    succeeded(run(psql, "--no-psqlrc", "-v", "ON_ERROR_STOP=1", "-c", sql, urls["admin_url"]))

    elsewhere = ("--config-dir", str(tmp_path))
    done = cell.ask("schema", "diff", *elsewhere, "-o", "json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)["items"]
    assert {one["service"] for one in found} == {"admission", "quota", "scheduler", "node-heartbeat"}
    assert {one["kind"] for one in found} == {"missing"}
    assert cell.items("schema", "ensure", *elsewhere) == []
    assert cell.items("schema", "diff", *elsewhere) == []


# Trials of changes.


def what_if(cell, *words):
    """The differences as JSON, and as text, which says for which position of the ledger they hold."""
    assert re.match(r"as of lsn [1-9]\d*,", cell.apportion("what-if", *words))
    return cell.json("what-if", *words)


def test_settings_are_tried_and_not_set(cell, started):
    wanted = ("--queue", "team-a", "--from", in_days(1), "--until", in_days(2), "--nodes", "1")
    tried = {
        ("queue", "tried"): ("queue-set", "tried", "--tenant", "team-a", "--weight", "2"),
        ("priority-class", "tried"): ("priority-class", "tried", "5", "--preempts"),
        ("reservation", "tried"): ("reserve", "tried", *wanted),
    }
    for setting, words in tried.items():
        found = what_if(cell, *words)
        assert (found["allocations"], found["nodes_after"]) == ([], found["nodes_before"]), words
        cell.reason(REFUSED, "settings", "get", *setting)
    before = cell.json("settings", "list", "scheduling")
    assert what_if(cell, "policy", "--placement", "spread")["allocations"] == []
    assert cell.json("settings", "list", "scheduling") == before
    assert "never set" in cell.reason(REFUSED, "what-if", "unreserve", "tried")
    cell.apportion("reserve", "kept", *wanted)
    assert what_if(cell, "unreserve", "kept")["allocations"] == []
    cell.apportion("unreserve", "kept")

    assert "quantity zero" in cell.reason(REFUSED, "what-if", "queue-set", "team-a", "--weight", "0")
    cell.reason(WRONG_USAGE, "what-if", "priority-class", "tried", "high")
    cell.reason(WRONG_USAGE, "what-if", "policy", "--placement", "worst")
    unknown = ("--queue", "nosuch", *wanted[2:])
    assert "queue unknown" in cell.reason(REFUSED, "what-if", "reserve", "tried", *unknown)
    assert "version conflict" in cell.reason(REFUSED, "what-if", "unreserve", "tried", "--expected-version", "9")


def test_nodes_are_added_removed_and_cordoned_as_a_trial(cell, started):
    node = started["node"]
    added = what_if(cell, "add-nodes", "2", "--like", node)
    assert added["nodes_after"]["ready"] == added["nodes_before"]["ready"] + 2
    removed = what_if(cell, "remove-node", node)
    assert removed["nodes_after"]["ready"] == removed["nodes_before"]["ready"] - 1
    (moved,) = [one for one in removed["allocations"] if one["allocation_id"] == started["allocation_id"]]
    assert (moved["before"]["node"], moved["after"]["node"] != node) == (node, True)
    before = cell.row("nodes", node=node)["standing"]
    for leaf in ("cordon", "uncordon"):
        assert what_if(cell, leaf, node)["allocations"] == []
    assert cell.row("nodes", node=node)["standing"] == before
    earlier = started["lsn"]
    assert cell.json("what-if", "cordon", node, "--at", str(earlier))["as_of_lsn"] == earlier
    assert "ledger ends at" in cell.reason(FAILED, "what-if", "cordon", node, "--at", "99999999")
    for words in (["remove-node"], ["add-nodes", "1", "--like"], ["cordon"], ["uncordon"]):
        assert "no node nosuch" in cell.reason(FAILED, "what-if", *words, "nosuch")


def test_a_request_is_tried_and_not_made(cell):
    task = ("submit", "--tenant", "team-b", "--cpu", "1", "--memory", "1GiB")
    before = cell.json("list", "--tenant", "team-b", "--all")
    (one,) = what_if(cell, *task)["requested"]
    assert (one["standing"]["state"], one["standing"]["reason"]) == ("placed", None)
    waiting = what_if(cell, *task, "--gpus", "1", "--gpu-model", "none", "--count", "3")["requested"]
    assert [it["standing"]["reason"] for it in waiting] == ["no_node_of_model"] * 3
    assert cell.json("list", "--tenant", "team-b", "--all") == before
    cell.reason(WRONG_USAGE, "what-if", *task, "--count", "0")
    unknown = ("submit", "--tenant", "nosuch", *task[3:])
    assert "tenant unknown" in cell.reason(REFUSED, "what-if", *unknown)


# Without a cell.


def test_shells_and_the_manual_have_all_commands(tmp_path):
    for shell in ("bash", "zsh", "fish"):
        done = run(PROGRAMS / "apportion", "completions", shell)
        assert (done.returncode, "APPORTION_COMPLETE" in done.stdout) == (0, True), done.stderr
    assert run(PROGRAMS / "apportion", "completions", "cmd").returncode == WRONG_USAGE
    done = run(PROGRAMS / "apportion", "man", "--out", str(tmp_path / "pages"))
    assert done.returncode == 0, done.stderr
    assert "invoice" in (tmp_path / "pages" / "apportion-invoice-close.1").read_text(encoding="utf-8")


def test_the_agent_discovers_this_machine():
    done = run(PROGRAMS / "apportion-node-agent", "discover", "--reserved-cpu-milli", "100")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["capacity"]["cpu_milli"] - found["allocatable"]["cpu_milli"] == 100
    assert found["capacity"]["memory_bytes"] == found["allocatable"]["memory_bytes"] > 0
    assert run(PROGRAMS / "apportion-node-agent", "discover", "--reserved-cpu-milli", "many").returncode == WRONG_USAGE


# Forms for programs.

# Commands that print a list of all tenants or nodes.
LISTS = (
    ("queues",), ("preemptions",), ("reservations",), ("refusals",), ("job-sets",), ("nodes",), ("node", "list"), ("tenants",),
    ("top", "nodes"), ("top", "tenants"), ("top", "queues"), ("quota", "tree"), ("budgets",), ("usage",), ("usage", "--by", "team"),
    ("bill",), ("rates", "list"), ("settings", "list"), ("report", "utilization"), ("report", "top"), ("report", "sizes"),
    ("report", "waits"), ("report", "forecast"), ("report", "shares"), ("invoice", "reconcile"), ("context", "list"),
    ("schema", "diff"),
)
LISTS_OF_A_TENANT = (
    ("list", "--all"), ("queue",), ("queues",), ("preemptions",), ("reservations",), ("refusals",), ("job-sets", "--cost"),
    ("quota", "tree"), ("budgets",), ("usage",), ("bill",),
)
# Of files and tables alone.
OF_NO_LEDGER = (("context", "list"), ("schema", "diff"))
NUMBERS = re.compile(r"(_ms|_milli|_bytes|_micro|_ppm|_hour|^version|^number|^limit|^actual|^quantity|^spent)$")


def wrong(value, key=""):
    """What is no number where one should be, and what is absent and not null."""
    if isinstance(value, dict):
        return [it for name, one in value.items() for it in wrong(one, name)]
    if isinstance(value, list):
        return [it for one in value for it in wrong(one, key)]
    return [f"{key}: {value!r}"] if isinstance(value, str) and (value == "" or NUMBERS.search(key)) else []


def test_every_list_has_one_form(cell, billed):
    of_tenant = [(*words, "--tenant", "team-a") for words in LISTS_OF_A_TENANT]
    for words in (*LISTS, *of_tenant):
        answer = cell.json(*words)
        assert isinstance(answer["items"], list), words
        assert (answer["as_of"] is None) == (words in OF_NO_LEDGER), words
        assert wrong(answer) == [], words
    for words in (("budgets",), ("rates", "list"), ("usage",), ("bill",), ("report", "top")):
        names, first, *_ = cell.apportion(*words, "-o", "csv").splitlines()
        assert names.endswith(",currency") and re.search(r",[A-Z]{3}$", first), words


def test_nothing_is_told_of_a_tenant_a_node_or_a_label_that_is_unknown(cell):
    for words in LISTS_OF_A_TENANT:
        assert "there is no such tenant" in cell.reason(REFUSED, *words, "--tenant", "nosuch"), words
    hour = f"{datetime.now(timezone.utc):%Y-%m-%dT%H:00:00Z}"
    for words in (("report", "forecast"), ("invoice", "explain", hour), ("settings", "list"), ("operation", "x")):
        assert "there is no such tenant" in cell.reason(REFUSED, *words, "--tenant", "nosuch"), words
    for words in (("quota", "get", "nosuch"), ("quota", "history", "nosuch", "cpu"), ("queue", "nosuch"), ("quota", "tree", "nosuch")):
        assert "there is no such tenant" in cell.reason(REFUSED, *words), words
    assert "node not found" in cell.reason(REFUSED, "node", "describe", "nosuch")
    for word in ("cordon", "uncordon", "drain"):
        assert "nosuch" in cell.reason(REFUSED, word, "nosuch"), word
    assert "nosuch" in cell.reason(REFUSED, "taint", "nosuch", "a=b:NoSchedule")
    for word in ("cordon", "uncordon", "drain"):
        assert "labels" in cell.reason(REFUSED, word, "--node-label", "nosuch=1"), word


def test_batches_are_scriptable(cell):
    of_tenant = ("--tenant", "team-a")
    waits = ("--wait", "started", "--deadline", "3m")
    sent = cell.items("submit", *of_tenant, "--cpu", "0.1", "--memory", "64Mi", "--name", "batch", "--array", "0-2", *waits)
    assert [(one["name"], one["result"], one["state"]) for one in sent] == [(f"batch-{no}", "accepted", "started") for no in range(3)]
    assert all(one["started_ms"] > 0 and one["ended_ms"] is None and one["exit_code"] is None for one in sent)

    # The name of an array stands for its elements.
    started = cell.items("wait", *of_tenant, "batch", "--for", "started")
    assert [one["allocation_id"] for one in started] == [one["allocation_id"] for one in sent]
    cancelled = cell.items("cancel", *of_tenant, "batch-0", "batch")
    assert {one["allocation_id"] for one in cancelled} == {one["allocation_id"] for one in sent}
    assert cell.ask("wait", *of_tenant, "batch", "--timeout", "2m").returncode == FAILED
    listed = cell.items("list", *of_tenant, "--state", "cancelled", "--name-prefix", "batch-")
    assert {one["name"] for one in listed} == {"batch-0", "batch-1", "batch-2"}
    assert cell.items("list", *of_tenant, "--state", "failed", "--name-prefix", "batch-") == []

    # The list has the refused request next to the accepted one.
    file = cell.root / "batch.yaml"
    file.write_text("{name: good, cpu: 0.1, memory: 64Mi}\n---\n{name: bad, cpu: 0.1, memory: 64Mi, gpus: 1000}\n")
    done = cell.ask("submit", *of_tenant, "--file", file, "-o", "json")
    results = {one["name"]: one["result"] for one in json.loads(done.stdout)["items"]}
    assert (done.returncode, results) == (FAILED, {"good": "accepted", "bad": "refused"})
    cell.apportion("cancel", *of_tenant, "good")
