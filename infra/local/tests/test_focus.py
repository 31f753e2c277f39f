"""The FOCUS export conforms to FOCUS 1.2: by its validator, and by checks of rules that the validator skips.

The tests start a stack and export its bill. To check another export instead:

    APPORTION_FOCUS_CSV=bill.csv python3 infra/local/run_tests.py infra/local/tests/test_focus.py

The validator has its own environment, .local/focus. run_tests.py installs it before the tests begin.
"""

import collections
import csv
import datetime
import os
import re
import subprocess
import tempfile
import unittest
from decimal import Decimal, localcontext
from pathlib import Path

import pytest

from apportion_local import wheels

from .support import Stack, wait

pytestmark = [pytest.mark.system, pytest.mark.together]

# The criteria that apply to the suite's bill. Without one of these the validator skips the rules that depend on it. The bill
# has no zones, regions, tags, capacity reservations, commitments, account types, and no second or virtual currency.
APPLIES = ("ACCOUNT_NAMING_SUPPORTED", "BILLING_BASED_ON_PROVISIONED_RESOURCES_SUPPORTED",
           "MULTIPLE_PRICING_CATEGORIES_SUPPORTED", "NEGOTIATED_PRICING_SUPPORTED", "PUBLIC_PRICE_LIST_SUPPORTED",
           "RESOURCE_TYPE_ASSIGNMENT_SUPPORTED", "SUB_ACCOUNT_SUPPORTED", "UNIT_PRICING_SUPPORTED",
           "USAGE_MEASUREMENT_SUPPORTED")
# One of these two always fails: the rules' file has "null without an invoice" and "not null with one", without the
# conditions. The rule above them, InvoiceId-C-003-C, requires one of the two.
CONTRADICTING = {"InvoiceId-C-004-C", "InvoiceId-C-005-C"}
RULES, CHECKED_AT_LEAST = 578, 260

MICRO = Decimal("0.000001")
HOUR = datetime.timedelta(hours=1)
UNITS = {"cpu": ("Core-Hours", 1000), "memory": ("GiB-Hours", 1 << 30), "gpu": ("GPU-Hours", 1000)}


def statuses(export):
    """The validator's result of each rule: PASS, FAIL or SKIPPED. Its exit code is 0 in all cases."""
    (packages,) = (wheels.FOCUS_VENV / "lib").glob("python3*/site-packages")
    done = subprocess.run(
        [str(wheels.FOCUS_VENV / "bin" / "focus-validator"), "--data-file", str(Path(export).resolve()), "--validate-version", "1.2",
         "--block-download", "--applicability-criteria", ",".join(APPLIES)],
        # It reads its list of currencies from the working directory.
        cwd=packages, stdin=subprocess.DEVNULL, capture_output=True, text=True, encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"})
    if done.returncode != 0:
        raise AssertionError(f"the validator broke off with {done.returncode}: {done.stderr[-2000:]}")
    return dict(re.findall(r"^\S+ ([A-Za-z]+-[A-Z]-\d+-[A-Z]): (PASS|FAIL|SKIPPED)\b", done.stdout, re.MULTILINE))


def failed(found):
    return {rule for rule, status in found.items() if status == "FAIL"}


def rows(export):
    with open(export, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def moment(text):
    return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")


def next_month(when):
    return (when.replace(day=1) + datetime.timedelta(days=32)).replace(day=1)


def exported(stack, path):
    """Exports the bill until two exports are the same: one that is made while time passes in the tables has two moments."""
    def is_of_one_moment():
        before = path.read_bytes() if path.exists() else b""
        month = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m}"
        stack.apportion("invoice", "export", month, "--open", "--format", "focus-csv", "--to", path)
        return path.read_bytes() == before

    wait(is_of_one_moment, "two exports are the same")
    return path


@pytest.fixture(scope="module")
def export():
    """The file that is checked."""
    if given := os.environ.get("APPORTION_FOCUS_CSV"):
        yield Path(given)
        return
    stack = Stack()
    try:
        stack.use()
        yield exported(stack, stack.root / "bill.csv")
    finally:
        stack.close()


class ExportTest(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def use_export(self, export):
        self.export = export


class Validator(ExportTest):
    @classmethod
    def setUpClass(cls):
        if wheels.current(wheels.FOCUS_VENV) != wheels.stamp(wheels.FOCUS):
            raise AssertionError(f"{wheels.FOCUS_VENV} is missing or out of date. Run: python3 infra/local/stack.py setup --only focus")

    def test_every_rule_that_can_be_checked_holds(self):
        found = statuses(self.export)
        self.assertEqual(len(found), RULES)
        self.assertGreaterEqual(sum(status != "SKIPPED" for status in found.values()), CHECKED_AT_LEAST)
        self.assertEqual(len(failed(found) & CONTRADICTING), 1)
        self.assertEqual(failed(found) - CONTRADICTING, set())

    def test_it_notices_what_is_wrong(self):
        broken = rows(self.export)
        for row in broken:
            del row["ConsumedUnit"]
            row["BillingCurrency"] = "EURO"
        broken[0]["ListUnitPrice"] = "-1.500000"
        with tempfile.NamedTemporaryFile("w", suffix=".csv", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(broken[0]))
            writer.writeheader()
            writer.writerows(broken)
            file.flush()
            noticed = failed(statuses(file.name))
        self.assertLessEqual({"CostAndUsage-D-066-C", "BillingCurrency-C-006-M", "ListUnitPrice-C-008-M"}, noticed)


class Lines(ExportTest):
    """Rules that the validator skips or always passes: products, the form of times, corrections."""

    @pytest.fixture(autouse=True)
    def read_rows(self, export):
        self.rows = rows(export)

    def each(self, check):
        wrong = collections.Counter()
        first = None
        with localcontext() as context:
            context.prec = 80
            for row in self.rows:
                why = check(row)
                if why:
                    wrong[why] += 1
                    first = first or (why, row)
        self.assertFalse(wrong, first)

    def test_there_are_lines(self):
        self.assertTrue(self.rows)

    def test_the_columns_of_focus_come_first_and_each_part_is_sorted(self):
        names = list(self.rows[0])
        own = [name for name in names if name.startswith("x_")]
        self.assertEqual(names, sorted(set(names) - set(own)) + sorted(own))
        for name in names:
            self.assertRegex(name, r"\A(x_)?[A-Z][A-Za-z]{1,48}\Z")

    def test_a_line_is_an_hour_of_its_period_and_a_correction_of_an_earlier_one(self):
        def check(row):
            start, end = moment(row["ChargePeriodStart"]), moment(row["ChargePeriodEnd"])
            period = moment(row["BillingPeriodStart"])
            if start.minute or start.second or end - start != HOUR:
                return "not an hour"
            if (period.day, period.hour) != (1, 0) or moment(row["BillingPeriodEnd"]) != next_month(period):
                return "not a month"
            if row["ChargeClass"] not in ("", "Correction"):
                return "class"
            if row["ChargeClass"] == "Correction":
                return start >= period and "a correction of its own period"
            return not period <= start < next_month(period) and "an hour of another period"
        self.each(check)

    def test_money_is_the_amount_and_the_product(self):
        def check(row):
            amount = Decimal(row["x_AmountMicro"]) * MICRO
            charged = row["x_CapacityState"] == "allocated"
            if Decimal(row["EffectiveCost"]) != amount or Decimal(row["BilledCost"]) != (amount if charged else 0):
                return "not the amount"
            costs, price = {row["ListCost"], row["ContractedCost"]}, Decimal(row["ListUnitPrice"])
            if len(costs) != 1 or Decimal(row["ContractedUnitPrice"]) != price:
                return "a discount"
            cost = Decimal(costs.pop())
            if row["ChargeClass"] == "Correction":
                return cost != amount and "a correction that is not the amount"
            if cost != price * Decimal(row["PricingQuantity"]):
                return "not the product"
            # Half a micro-unit, and the part that was cut off the quantity. Idle lines take the rounding of the others.
            lines = len(self.rows) if row["x_CapacityState"] == "idle" else 1
            return abs(cost - amount) > lines * MICRO / 2 + price * Decimal("1e-12") and "rounded too far"
        self.each(check)

    def test_a_quantity_is_that_of_the_ledger(self):
        def check(row):
            unit, each = UNITS[row["SkuId"].split(":")[0]]
            quantity = Decimal(row["PricingQuantity"])
            if (row["PricingUnit"], row["ConsumedUnit"]) != (unit, unit) or Decimal(row["ConsumedQuantity"]) != quantity:
                return "unit"
            exact = Decimal(row["x_UnitSeconds"]) / (each * 3600)
            return abs(quantity - exact) >= Decimal("1e-12") and "quantity"
        self.each(check)

    def test_whom_and_what_a_line_is_about(self):
        def check(row):
            charged = row["x_CapacityState"] == "allocated"
            if row["ChargeCategory"] != "Usage" or row["ChargeFrequency"] != "Usage-Based":
                return "category"
            if (row["SubAccountId"] != "") != charged or row["SubAccountId"] != row["x_Tenant"]:
                return "tenant"
            if row["x_Rated"] == "0" and (Decimal(row["ListUnitPrice"]) or not row["SkuPriceId"].endswith("@unrated")):
                return "a price without a rate"
            return row["SkuPriceId"].split("@")[0] != row["SkuId"] and "price of another resource"
        self.each(check)

    def test_a_number_is_written_with_its_decimals(self):
        decimal = re.compile(r"-?\d+\.\d{6,18}\Z").match
        columns = [name for name in self.rows[0] if re.search(r"(Cost|Quantity|UnitPrice)\Z", name)]

        def check(row):
            return next((f"{name} is {row[name]}" for name in columns if not decimal(row[name])), None)
        self.each(check)
