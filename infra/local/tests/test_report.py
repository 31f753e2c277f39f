"""`apportion report`: the page in a browser without a screen, and the summaries.

The tests start a stack, use it, and open its page. To open another page instead:

    APPORTION_REPORT_HTML=report.html python3 infra/local/run_tests.py infra/local/tests/test_report.py

They need Chromium, and programs that were built with the chart library. Without one of these they are skipped with the
reason. With APPORTION_CI set they fail instead.
"""

import collections
import contextlib
import csv
import datetime
import html.parser
import http.server
import io
import itertools
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import threading
import unittest
import zlib
from pathlib import Path

import pytest

from apportion_local import npm

from .support import COMMAND_TIMEOUT_S, Stack, wait

pytestmark = [pytest.mark.system, pytest.mark.together]

BROWSER = "chromium"
# Half as many pixels each way: the charts are large, and the file is read in Python.
SCALE = 0.5
WIDTHS = {"desk": 1280, "phone": 400}
HEIGHT = 8000
# Minimum number of pixels of a chart's colour in the smaller picture.
PAINTED_MIN = 100
# Text that might end a script, begin a comment or an element, or be run.
TROUBLE = "</script><script>window.ran = 1</script><!-- <img src=x onerror='window.ran = 1'> &lt;"


def missing(what):
    if os.environ.get("APPORTION_CI"):
        raise AssertionError(what)
    raise unittest.SkipTest(what)


def browser():
    return shutil.which(BROWSER) or missing("Chromium is missing (on Debian: apt install chromium)")


def browse(page, *flags, width=WIDTHS["desk"]):
    """The output of a new browser, which resolves no names."""
    with tempfile.TemporaryDirectory(prefix="apportion-browser-") as profile:
        done = subprocess.run(
            [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
             "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
             f"--user-data-dir={profile}", f"--window-size={width},{HEIGHT}", f"--force-device-scale-factor={SCALE}",
             *flags, Path(page).resolve().as_uri()],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, encoding="utf-8", timeout=COMMAND_TIMEOUT_S)
    if done.returncode != 0:
        raise AssertionError(f"the browser broke off with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


Cell = collections.namedtuple("Cell", ["text", "exact"])


class Dom(html.parser.HTMLParser):
    """The content of a page after its scripts have run."""

    VOID = {"meta", "img", "br", "link", "input"}

    def __init__(self, text):
        super().__init__()
        self.root, self.open, self.tags, self.words = {}, [], collections.Counter(), []
        self.section, self.policy = None, None
        # By section and part of a table: rows of cells.
        self.rows = collections.defaultdict(list)
        # Terms with their values.
        self.facts, self.term = {}, ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag not in self.VOID:
            self.open.append(tag)
        if "main" in self.open:
            self.tags[tag] += 1
        if tag == "html":
            self.root = attributes
        elif tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"]
        elif tag == "section":
            self.section = attributes["id"]
        elif tag == "tr":
            self.part().append([])
        elif tag in ("td", "th"):
            self.part()[-1].append(Cell("", attributes.get("data-exact")))

    def part(self):
        part = next(tag for tag in reversed(self.open) if tag in ("thead", "tbody", "tfoot"))
        return self.rows[self.section, part]

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, text):
        inner = self.open[-1] if self.open else None
        if inner in ("td", "th"):
            row = self.part()[-1]
            row[-1] = row[-1]._replace(text=row[-1].text + text)
        elif inner == "dt":
            self.term = text
        elif inner == "dd":
            self.facts[self.term] = text
        if "main" in self.open:
            self.words.append(text)

    def amounts(self, section, part, column=-2):
        """By the texts of the first two columns."""
        return {(row[0].text, row[1].text): int(exact(row[column])) for row in self.rows[section, part]}


def exact(cell):
    return cell.text if cell.exact is None else cell.exact


def picture(path):
    """The number of pixels of each colour in a PNG with 8 bits a channel, without alpha."""
    data = path.read_bytes()
    at, packed, head = 8, bytearray(), None
    while at < len(data):
        (size,), kind = struct.unpack_from(">I", data, at), data[at + 4:at + 8]
        body = data[at + 8:at + 8 + size]
        at += size + 12
        if kind == b"IHDR":
            head = struct.unpack(">IIBBBBB", body)
        elif kind == b"IDAT":
            packed += body
    width, height, depth, colours, _, _, interlaced = head
    channels = {2: 3, 6: 4}[colours]
    assert (depth, interlaced) == (8, 0)
    raw, stride = zlib.decompress(packed), width * channels
    rows, above = collections.Counter(), bytes(stride)
    for no in range(height):
        begins = no * (stride + 1)
        above = unfiltered(raw[begins], raw[begins + 1:begins + 1 + stride], above, channels)
        rows[above] += 1
    # Most rows are the same as others.
    found = collections.Counter()
    for row, times in rows.items():
        for pixel, count in collections.Counter(zip(row[0::channels], row[1::channels], row[2::channels])).items():
            found[pixel] += count * times
    return found


def unfiltered(how, row, above, channels):
    """The row without its filter, by the specification of PNG."""
    if how == 0:
        return row
    if how == 2:
        return above if not any(row) else bytes((here + over) & 255 for here, over in zip(row, above))
    row = bytearray(row)
    if how == 1:
        for channel in range(channels):
            row[channel::channels] = bytes(total & 255 for total in itertools.accumulate(row[channel::channels]))
    elif how == 3:
        for at in range(len(row)):
            left = row[at - channels] if at >= channels else 0
            row[at] = (row[at] + (left + above[at]) // 2) & 255
    elif how == 4:
        for at in range(len(row)):
            left, corner = (row[at - channels], above[at - channels]) if at >= channels else (0, 0)
            over = above[at]
            guess = left + over - corner
            distances = abs(guess - left), abs(guess - over), abs(guess - corner)
            nearest = (left, over, corner)[distances.index(min(distances))]
            row[at] = (row[at] + nearest) & 255
    return bytes(row)


def colour(page, name):
    """A colour of the page's light style sheet, which comes first."""
    digits = re.search(rf"--{name}: #([0-9a-f]{{6}});", page).group(1)
    return tuple(bytes.fromhex(digits))


@contextlib.contextmanager
def counting_server():
    """A server, and the list of the paths that were fetched from it."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# The page. `usage` and `bill` are the results of the commands at its moment. Without a stack, all but `path` are None.
Page = collections.namedtuple("Page", ["path", "text", "stack", "usage", "bill"], defaults=[None] * 3)


@pytest.fixture(scope="module")
def page():
    browser()
    if given := os.environ.get("APPORTION_REPORT_HTML"):
        yield Page(given, Path(given).read_text(encoding="utf-8"))
        return
    if npm.current() is None:
        missing("the chart library is missing: run `make setup` with npm, and build again")
    stack = Stack()
    try:
        stack.use()
        stack.apportion("quota", "budget", "team-a", "money", "250", "--per", "month")
        # One allocation that never gets a place, and one that has ended.
        stack.submit("--job-set", "none", "--gpus", "1", "--gpu-model", "none", tenant="team-b")
        stack.apportion("cancel", "--tenant", "team-b", "--job-set", "none")
        stack.apportion("cancel", "--tenant", "team-a", "--job-set", "train")
        stack.submit("--account", "team-a/ml", "--job-set", "train", "--gpus", "2", cpu="4", memory="16GiB")
        yield wait(lambda: written(stack), "a page is of one moment, with the budget and the ended allocation")
    finally:
        stack.close()


def written(stack):
    """The page, if it has everything and the tables did not change meanwhile."""
    path, before = stack.root / "report.html", figures(stack)
    stack.apportion("report", "--html", path)
    text = path.read_text(encoding="utf-8")
    complete = figures(stack) == before and all(word in text for word in ("cancelled", "250.000000"))
    return Page(path, text, stack, *before) if complete else None


def figures(stack):
    bill = csv.DictReader(io.StringIO(stack.apportion(
        "invoice", "export", f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m}", "--open")))
    return stack.json("usage", "--by", "team"), sum(int(line["amount_micro"]) for line in bill)


@pytest.fixture(scope="module")
def dom(page):
    return Dom(browse(page.path, "--dump-dom"))


class PageTest(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def use_page(self, page, dom):
        self.page, self.dom = page, dom


class Drawn(PageTest):
    def test_no_script_failed(self):
        self.assertEqual((self.dom.root.get("data-state"), self.dom.root.get("data-failures")), ("drawn", None))

    def test_what_it_is_of_stands_above(self):
        self.assertRegex(self.dom.facts["month"], r"\A\d{4}-\d\d\Z")
        self.assertRegex(self.dom.facts["state"], r"\A(open: its figures may still change|closed at .*)\Z")
        self.assertRegex(self.dom.facts["up to"], r"\A\d{4}-\d\d-\d\dT")
        self.assertTrue(self.dom.facts["the tables have read"].startswith("positions 1 to "))

    def test_each_chart_has_a_table(self):
        self.assertGreaterEqual(self.dom.tags["canvas"], 8)
        self.assertEqual(self.dom.tags["canvas"], self.dom.tags["figcaption"])
        self.assertGreaterEqual(self.dom.tags["table"], self.dom.tags["canvas"])
        self.assertEqual(self.dom.tags["section"], 9)

    def test_charts_are_painted(self):
        # Memory costs so little, compared with the others, that its part of a bar may be narrower than a pixel.
        names = ("one", "idle")
        for form, width in WIDTHS.items():
            with self.subTest(form), tempfile.TemporaryDirectory() as directory:
                file = Path(directory) / "page.png"
                browse(self.page.path, f"--screenshot={file}", width=width)
                found = picture(file)
                painted = {name: found[colour(self.page.text, name)] for name in names}
                self.assertGreater(min(painted.values()), PAINTED_MIN, painted)

    def test_variances_are_0(self):
        rows = self.dom.rows["reconciliation", "tbody"]
        self.assertEqual({row[-1].text for row in rows}, {"0"})


class Totals(PageTest):
    @pytest.fixture(autouse=True)
    def use_figures(self, page):
        if page.stack is None:
            self.skipTest("the page is of another stack")
        self.usage, self.bill, self.stack = page.usage, page.bill, page.stack

    def test_they_are_those_of_the_bill_and_of_the_use(self):
        by_team = collections.Counter()
        for line in self.usage["items"]:
            by_team[line["tenant"], line["team"] or "-"] += int(line["amount_micro"])
        total = sum(by_team.values())
        self.assertGreater(total, 0)
        self.assertEqual(self.bill, total)
        self.assertEqual(self.dom.amounts("bill", "tfoot"), {("all", ""): total})
        self.assertEqual(self.dom.amounts("bill", "tbody"), dict(by_team))
        self.assertEqual(sum(int(exact(row[-1])) for row in self.dom.rows["spenders", "tbody"]), total)

    def test_its_moment_and_currency_are_those_of_the_use(self):
        moment = datetime.datetime.fromisoformat(self.dom.facts["up to"].replace("Z", "+00:00"))
        # The page shows seconds.
        self.assertEqual(round(moment.timestamp()), self.usage["through_ms"] // 1000)
        self.assertEqual(self.dom.facts["currency"], self.usage["currency"])

    def test_the_capacity_of_a_resource_is_all_of_its_states(self):
        sums = collections.defaultdict(collections.Counter)
        rows = (row for row in self.dom.rows["use", "tbody"] if row[1].text in (
            "allocated", "reserved", "idle", "cordoned", "unavailable", "capacity"))
        for resource, state, quantity, _ in rows:
            sums[resource.text]["capacity" if state.text == "capacity" else "states"] += int(exact(quantity))
        self.assertLessEqual({"cpu", "memory"}, sums.keys())
        for resource, found in sums.items():
            self.assertEqual(found["capacity"], found["states"], resource)

    def test_the_budget_is_there(self):
        (budget,) = self.dom.rows["budgets", "tbody"]
        self.assertEqual([cell.text for cell in budget[:5]], ["team-a", "-", "-", "money", "month"])
        self.assertEqual(exact(budget[8]), "250000000")

    def test_summaries_are_of_the_same_use(self):
        top = json.loads(self.stack.apportion("report", "top", "--by", "tenant", "-o", "json"))
        self.assertEqual([line["tenant"] for line in top["items"]], ["team-a", "team-b"])
        self.assertGreaterEqual(sum(int(line["amount_micro"]) for line in top["items"]), self.bill)
        states = list(csv.DictReader(io.StringIO(self.stack.apportion("report", "utilization", "-o", "csv"))))
        self.assertEqual({line["percent"] for line in states if line["state"] == "capacity"}, {"100.0"})
        sizes = json.loads(self.stack.apportion("report", "sizes", "-o", "json"))["items"]
        self.assertIn(("gpu", 2000, 1), {(line["resource"], line["up_to_milli"], line["runs"]) for line in sizes})
        waits = json.loads(self.stack.apportion("report", "waits", "-o", "json"))["items"]
        self.assertEqual({(line["queue"], line["placed"], line["unplaced"]) for line in waits},
                         {("team-a", 1, 0), ("team-b", 0, 1)})
        # A wait without a place is in no figure.
        self.assertEqual({line["queue"]: line["max_ms"] is None for line in waits}, {"team-a": False, "team-b": True})
        empty = self.stack.apportion("invoice", "export", "2020-01", "--open")
        self.assertRegex(empty, r'\A"billing_period",.*"currency"\n\Z')
        shares = json.loads(self.stack.apportion("report", "shares", "--method", "cost-centre", "--cost-centre", "it", "-o", "json"))
        shares = {line["tenant"]: line for line in shares["items"]}
        self.assertEqual(set(shares), {"team-a", "team-b", "it"})
        self.assertEqual({name for name, line in shares.items() if int(line["idle_micro"])}, {"it"})
        self.assertGreaterEqual(sum(int(line["charged_micro"]) for line in shares.values()), self.bill)
        self.assertIn("of capacity", self.stack.apportion("report", "utilization"))


class Closed(unittest.TestCase):
    """The page fetches and sends nothing, with any text in it."""

    @pytest.fixture(autouse=True)
    def use_text(self, page):
        self.text = page.text

    def browsed(self, text):
        with tempfile.NamedTemporaryFile("w", suffix=".html", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            return Dom(browse(file.name, "--dump-dom"))

    def test_names_stay_text(self):
        before, data, after = re.split(r'(?<=id="data">)(.*?)(?=</script>)', self.text, maxsplit=1, flags=re.DOTALL)
        data = json.loads(data)
        tenant = data["sections"][0]["parts"][0]["sheet"]["rows"][0][0]["text"]

        def spoilt(value):
            if isinstance(value, dict):
                return {key: spoilt(part) for key, part in value.items()}
            if isinstance(value, list):
                return [spoilt(part) for part in value]
            return value.replace(tenant, TROUBLE) if isinstance(value, str) else value

        data = json.dumps(spoilt(data)).replace("<", "\\u003c")
        dom = self.browsed(before + data + after)
        self.assertEqual(dom.root.get("data-state"), "drawn")
        self.assertEqual((dom.tags["script"], dom.tags["img"]), (0, 0))
        self.assertIn(TROUBLE, dom.words)

    def test_the_page_may_not_fetch_nor_run_what_is_not_its_own(self):
        with counting_server() as (url, asked):
            added = (f'<img src="{url}/image"><link rel="stylesheet" href="{url}/style">'
                     f'<script src="{url}/script"></script>'
                     f'<script>document.title = "ran"; fetch("{url}/data")</script>')
            dom = self.browsed(self.text.replace("</body>", added + "</body>"))
        self.assertEqual(asked, [])
        self.assertEqual(dom.root.get("data-state"), "failed")
        for directive in ("img-src", "style-src-elem", "script-src-elem"):
            self.assertIn(f"forbidden by {directive}", dom.root["data-failures"])

    def test_the_server_would_notice(self):
        with counting_server() as (url, asked):
            self.browsed(f'<img src="{url}/image">')
        self.assertEqual(asked, ["/image"])

    def test_the_policy_names_nothing_but_what_stands_in_the_page(self):
        dom = self.browsed(self.text)
        policy = {name: sources for name, *sources in map(str.split, dom.policy.split(";"))}
        self.assertEqual([policy[name] for name in ("default-src", "base-uri", "form-action")], [["'none'"]] * 3)
        digests = policy["style-src"] + policy["script-src"]
        self.assertEqual((len(policy), len(digests)), (5, 3))
        for digest in digests:
            self.assertRegex(digest, r"\A'sha256-[A-Za-z0-9+/]{43}='\Z")
