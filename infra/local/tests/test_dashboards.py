"""Dashboards, alerts and the runbook: they use exported metrics, and each alert is explained."""

import json
import re
import unittest

import pytest
import yaml

from apportion_local import net, promql, services
from apportion_local.paths import CHECKOUT

from .support import PATIENCE_S, Stack

DASHBOARDS = sorted((CHECKOUT / "infra/grafana/dashboards").glob("*.json"))
PROVISIONING = CHECKOUT / "infra/grafana/provisioning"
PROMETHEUS = CHECKOUT / "infra/otel/prometheus.yaml"
ALERTS = CHECKOUT / "infra/otel/alerts.yaml"
RUNBOOK = CHECKOUT / "docs/runbook.md"
REFERENCE = CHECKOUT / "docs/metrics.md"
COMPOSE = CHECKOUT / "docker-compose.yml"

# Added by Prometheus itself.
OWN_METRICS = {"up": {"job": {"apportion"}, "instance": set()}}
OWN_LABELS = {"job", "instance"}
# Values of labels that are exported after a rare event only, with the source files that have them.
RARE_VALUES = {
    # After a broken connection to the bus.
    ("event", "disconnected"): "services/chassis/src/connect.rs",
}
# Metrics that are exported after a rare event only. The reference has them.
RARE = {
    # After an eviction.
    "apportion_preemptions_total",
}
# The samples of a histogram in OpenMetrics.
PARTS = ("_bucket", "_sum", "_count")
SECTIONS = ("What it means", "What users notice", "Look first", "Mend", "Do not")
SEVERITIES = {"critical", "warning", "info"}


def dashboards():
    return [(path.name, json.loads(path.read_text(encoding="utf-8"))) for path in DASHBOARDS]


def rules():
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def plain(expression):
    """Grafana's variables replaced, as it does before it asks Prometheus."""
    return expression.replace("$__rate_interval", "1m").replace("$cell", "local")


def questions():
    """Each expression: its place, the expression, and the labels that its legend or text names."""
    for name, dashboard in dashboards():
        for panel in dashboard["panels"]:
            for target in panel.get("targets", []):
                shown = set(re.findall(r"{{\s*(\w+)\s*}}", target["legendFormat"]))
                yield f"{name}: {panel['title']}", plain(target["expr"]), shown
    for rule in rules():
        shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        yield f"{ALERTS.name}: {rule['alert']}", rule["expr"], shown - set(rule["labels"])


def declared():
    """Name, type and labels of each metric of the reference."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| \w* \| (.*?) \|", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def family(name, known):
    """The metric of a sample."""
    bare = next((name.removesuffix(part) for part in PARTS if name.endswith(part)), name)
    return bare if known.get(bare, ("",))[0] == "histogram" else name


def faults(where, text, shown, exported):
    """The metrics and labels of an expression that are not exported."""
    expression = promql.parse(text)
    if not expression.selectors:
        yield f"{where}: no metric in {text}"
    for selector in expression.selectors:
        name = selector.metric
        if name in RARE:
            continue
        if name not in exported:
            yield f"{where}: nobody exports {name}"
            continue
        labels = exported[name]
        known = set(labels) | OWN_LABELS
        asked = {label for label, _, _ in selector.matchers} | expression.grouping | shown
        yield from (f"{where}: {name} has no label {label}" for label in sorted(asked - known))
        for label, sign, value in selector.matchers:
            if sign.startswith("!"):
                continue
            for one in value.split("|") if sign == "=~" else [value]:
                if one not in labels.get(label, set()) and (label, one) not in RARE_VALUES:
                    yield f"{where}: no {name} with {label}={one}"
        grows = name.endswith(("_total", "_bucket", "_sum", "_count"))
        if (selector.function in promql.OF_COUNTERS) != grows:
            yield f"{where}: {selector.function or 'no rate'} of {name}"
    if expression.grouping:
        yield from (f"{where}: {label} is not grouped by" for label in sorted(shown - expression.grouping))


@pytest.mark.system
class Metrics(unittest.TestCase):
    """The exported metrics of a running stack, after a few requests."""

    @classmethod
    def setUpClass(cls):
        cls.stack = Stack()
        cls.addClassCleanup(cls.stack.close)
        placed = cls.stack.submit("--gpus", "1")
        cls.stack.submit(tenant="team-b")
        cls.stack.apportion("cancel", "--tenant", "team-a", placed)
        cls.stack.apportion("quota", "budget", "team-a", "gpu", "500", "--per", "month")
        cls.stack.apportion("list", "--tenant", "team-a")
        # It waits, because no node has this model.
        cls.stack.submit("--gpus", "1", "--gpu-model", "none", tenant="team-b")
        # It is refused, because there is no such class.
        cls.stack.refused("submit", "--tenant", "team-b", "--cpu", "1", "--memory", "1GiB", "--priority-class", "none")
        # Until the requests are in every table and counted. The tests show the faults that are left.
        net.wait_until(lambda: not cls.wrong(), PATIENCE_S)

    @classmethod
    def scrape(cls):
        found = dict(OWN_METRICS)
        for name in services.NAMES:
            page = net.http_text(f"http://{cls.stack.value['services'][name]['http']}/metrics")
            for metric, labels in promql.exported(page or "").items():
                of_all = found.setdefault(metric, {})
                for label, values in labels.items():
                    of_all.setdefault(label, set()).update(values)
        return found

    @classmethod
    def wrong(cls):
        cls.exported = cls.scrape()
        return [fault for question in questions() for fault in faults(*question, cls.exported)]

    def found(self, where, text, shown=()):
        return list(faults(where, text, set(shown), self.exported))

    def test_every_metric_and_label_of_dashboards_and_alerts_is_exported(self):
        self.assertEqual(self.wrong(), [])

    def test_every_metric_that_the_runbook_names_is_exported(self):
        named = set(re.findall(r"`(apportion_\w+)`", RUNBOOK.read_text(encoding="utf-8")))
        self.assertLess({"apportion_projection_lag_seconds"}, named)
        self.assertEqual(named - set(self.exported), set())

    def test_the_variable_of_each_dashboard_is_a_label_that_is_exported(self):
        for name, dashboard in dashboards():
            (variable,) = dashboard["templating"]["list"]
            metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()
            self.assertIn(label, self.exported[metric], name)

    def test_the_reference_lists_what_is_exported_with_its_labels_and_nothing_else(self):
        known = declared()
        for sample, labels in self.exported.items():
            name = family(sample, known)
            if sample in OWN_METRICS:
                continue
            self.assertIn(name, known, sample)
            own = {"le"} if sample.endswith("_bucket") else set()
            self.assertEqual(set(labels) - own, known[name][1] | {"cell", "service"}, sample)
        exported = {family(sample, known) for sample in self.exported}
        # The stack has no agent, because its nodes are simulated.
        _, of_agent = REFERENCE.read_text(encoding="utf-8").split("\n## Node agent\n")
        missing = {name for name in known if f"`{name}`" not in of_agent} - exported
        self.assertEqual(missing, RARE)

    def test_what_is_not_exported_is_found(self):
        for text, shown, expected in [
            ("sum by (cell) (rate(apportion_frames_total[1m]))", (), []),
            ("sum by (cell) (rate(apportion_frame_total[1m]))", (), ["x: nobody exports apportion_frame_total"]),
            ("apportion_leading == 0 or apportion_leads", (), ["x: nobody exports apportion_leads"]),
            ('apportion_leading{queue="a"}', (), ["x: apportion_leading has no label queue",
                                                 "x: no apportion_leading with queue=a"]),
            ("max by (tenant) (apportion_leading)", (), ["x: apportion_leading has no label tenant"]),
            ('apportion_leading{cell="elsewhere"}', (), ["x: no apportion_leading with cell=elsewhere"]),
            ('apportion_leading{service="analytics"}', (), ["x: no apportion_leading with service=analytics"]),
            ('apportion_leading{cell!~"elsewhere"}', (), []),
            ("max by (cell) (apportion_leading)", ["instance"], ["x: instance is not grouped by"]),
            ("rate(apportion_leading[1m])", (), ["x: rate of apportion_leading"]),
            ("apportion_frames_total", (), ["x: no rate of apportion_frames_total"]),
            ("1 + 1", (), ["x: no metric in 1 + 1"]),
        ]:
            self.assertEqual(self.found("x", text, shown), expected, text)
        for text in ("sum by (cell (a)", "a)", "a{b}", "a ? b"):
            with self.assertRaises(ValueError, msg=text):
                promql.parse(text)

    def test_a_renamed_metric_of_a_dashboard_is_found(self):
        where, text, shown = next(questions())
        for old in promql.parse(text).metrics():
            self.assertEqual(self.found(where, text, shown), [])
            self.assertEqual(self.found(where, text.replace(old, f"{old}_old"), shown), [f"{where}: nobody exports {old}_old"])


@pytest.mark.fast
class Files(unittest.TestCase):
    def test_dashboards_are_found_by_grafana_and_have_names_of_their_own(self):
        (provider,) = yaml.safe_load((PROVISIONING / "dashboards/apportion.yaml").read_text(encoding="utf-8"))["providers"]
        mounts = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]["grafana"]["volumes"]
        self.assertIn(f"./infra/grafana/dashboards:{provider['options']['path']}:ro", mounts)
        sources = yaml.safe_load((PROVISIONING / "datasources/apportion.yaml").read_text(encoding="utf-8"))["datasources"]
        known = {(source["type"], source["uid"]) for source in sources}
        boards = [board for _, board in dashboards()]
        self.assertEqual({board["uid"] for board in boards},
                         {f"apportion-{name}" for name in ("bill", "cluster", "health", "queues", "tenant")})
        self.assertEqual(len({board["title"] for board in boards}), len(boards))
        for board in boards:
            asked = [*board["panels"], *board["templating"]["list"]]
            self.assertLessEqual({(it["datasource"]["type"], it["datasource"]["uid"]) for it in asked if "datasource" in it}, known)
            ids = [panel["id"] for panel in board["panels"]]
            self.assertEqual(len(ids), len(set(ids)), board["title"])
            self.assert_side_by_side([panel["gridPos"] for panel in board["panels"]], board["title"])

    def assert_side_by_side(self, places, title):
        covered = [(x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]
        self.assertEqual(len(covered), len(set(covered)), title)
        self.assertLess(max(x for x, _ in covered), 24, title)

    def test_prometheus_reads_the_alerts(self):
        (file,) = yaml.safe_load(PROMETHEUS.read_text(encoding="utf-8"))["rule_files"]
        mounts = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]["prometheus"]["volumes"]
        self.assertIn(f"./infra/otel/alerts.yaml:{file}:ro", mounts)

    def test_every_alert_says_how_bad_it_is_and_where_to_read_on(self):
        for rule in rules():
            name = rule["alert"]
            self.assertLessEqual(set(rule), {"alert", "expr", "for", "labels", "annotations"}, name)
            self.assertIn(rule["labels"]["severity"], SEVERITIES, name)
            self.assertRegex(rule.get("for", "1m"), r"^\d+[smh]$", name)
            self.assertEqual(set(rule["annotations"]), {"summary", "runbook_url"}, name)
            self.assertEqual(rule["annotations"]["runbook_url"], f"docs/runbook.md#{name.lower()}")
        # Several services have rules of one name, which differ by the service alone.
        keys = [(rule["alert"], rule["labels"].get("service")) for rule in rules()]
        self.assertEqual(len(keys), len(set(keys)))

    def test_every_alert_has_a_section_in_the_runbook_and_every_section_an_alert(self):
        text = RUNBOOK.read_text(encoding="utf-8")
        title, *parts = re.split(r"^### (.*)\n", text, flags=re.MULTILINE)
        found = dict(zip(parts[::2], parts[1::2]))
        self.assertEqual(set(found), {rule["alert"] for rule in rules()})
        for name, section in found.items():
            said = tuple(re.findall(r"^\*\*(.*?)\.\*\*", section, re.MULTILINE))
            self.assertEqual(said, SECTIONS, name)
            severities = {rule["labels"]["severity"] for rule in rules() if rule["alert"] == name}
            self.assertEqual(set(re.findall(r"^Severity: (\w+)\.", section, re.MULTILINE)), severities, name)

    def test_values_of_rare_events_are_said_in_the_code(self):
        for (_, value), file in RARE_VALUES.items():
            self.assertIn(f'"{value}"', (CHECKOUT / file).read_text(encoding="utf-8"))
