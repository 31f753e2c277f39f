"""The FOCUS export holds what FOCUS 1.2 asks for: by its validator, and by what the validator does not look at.

It starts a stack of its own and exports its bill. To look at another export:

    APPORTION_FOCUS_CSV=bill.csv .local/venv/bin/python -m unittest discover -t infra/local -s infra/local/tests -p test_focus.py

The validator has a venv of its own, .local/focus, which is filled at first use (590 MB). It needs no network after that.
"""

import collections
import csv
import datetime
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import unittest
import venv
from decimal import Decimal, localcontext
from pathlib import Path

from . import support
from apportion_local import net, paths

LOCAL = paths.CHECKOUT / "infra" / "local"
VENV = Path(os.environ.get("APPORTION_FOCUS_VENV", paths.CHECKOUT / ".local" / "focus"))

# pip's arguments for each list of packages; the validator says that it needs Python 3.12, and does not.
STEPS = {
    "requirements-focus.txt": ["--only-binary=:all:"],
    "requirements-focus-source.txt": ["--no-build-isolation", "--ignore-requires-python"],
}

# What the suite's bill has. Without one of these the validator skips the rules that hang on it. It has no zones, regions,
# tags, capacity reservations, commitments, account types, and no second or virtual currency.
APPLIES = ("ACCOUNT_NAMING_SUPPORTED", "BILLING_BASED_ON_PROVISIONED_RESOURCES_SUPPORTED",
           "MULTIPLE_PRICING_CATEGORIES_SUPPORTED", "NEGOTIATED_PRICING_SUPPORTED", "PUBLIC_PRICE_LIST_SUPPORTED",
           "RESOURCE_TYPE_ASSIGNMENT_SUPPORTED", "SUB_ACCOUNT_SUPPORTED", "UNIT_PRICING_SUPPORTED",
           "USAGE_MEASUREMENT_SUPPORTED")
# Of these two one fails always: the rules' file has "null without an invoice" and "not null with one", without the
# conditions. The rule above them, InvoiceId-C-003-C, wants one of the two.
CONTRADICTING = {"InvoiceId-C-004-C", "InvoiceId-C-005-C"}
RULES, CHECKED_AT_LEAST = 578, 260

MICRO = Decimal("0.000001")
HOUR = datetime.timedelta(hours=1)
UNITS = {"cpu": ("Core-Hours", 1000), "memory": ("GiB-Hours", 1 << 30), "gpu": ("GPU-Hours", 1000)}


def install():
    """Into the venv, once for each version of the lists and of Python."""
    digest = hashlib.sha256(sys.implementation.cache_tag.encode())
    for name in STEPS:
        digest.update((LOCAL / name).read_bytes())
    stamp = VENV / "apportion-stamp"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == digest.hexdigest():
        return
    venv.create(VENV, symlinks=True, clear=True, with_pip=False)
    for name, how in STEPS.items():
        # The launcher's venv has no pip; the Python that it was made of has.
        python = getattr(sys, "_base_executable", sys.executable)
        subprocess.run([python, "-m", "pip", "--python", str(VENV / "bin" / "python"), "install", "--quiet",
                        "--disable-pip-version-check", "--no-deps", "--require-hashes", *how, "-r", str(LOCAL / name)],
                       check=True, stdin=subprocess.DEVNULL)
    stamp.write_text(digest.hexdigest(), encoding="utf-8")


def statuses(export):
    """What the validator says of each rule: PASS, FAIL or SKIPPED. Its exit code is 0 whatever it finds."""
    (packages,) = (VENV / "lib").glob("python3*/site-packages")
    done = subprocess.run(
        [str(VENV / "bin" / "focus-validator"), "--data-file", str(Path(export).resolve()), "--validate-version", "1.2",
         "--block-download", "--applicability-criteria", ",".join(APPLIES)],
        # It looks for its list of currencies from the working directory.
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


def export(stack, path):
    """Twice the same: what is asked for while time goes on in the tables is of two moments."""
    def is_of_one_moment():
        before = path.read_bytes() if path.exists() else b""
        month = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m}"
        stack.apportion("invoice", "export", month, "--open", "--format", "focus-csv", "--to", str(path))
        return path.read_bytes() == before
    return net.wait_until(is_of_one_moment, stack.PATIENCE_SECONDS, 1)


EXPORT = os.environ.get("APPORTION_FOCUS_CSV")


def setUpModule():
    global EXPORT
    if EXPORT:
        return
    directory = tempfile.TemporaryDirectory(prefix="apportion-focus-")
    unittest.addModuleCleanup(directory.cleanup)
    Path(directory.name).chmod(0o711)
    stack = support.Stack(Path(directory.name))
    unittest.addModuleCleanup(stack.launcher, "down")
    if not stack.use():
        raise AssertionError("what runs is not in the bill")
    EXPORT = Path(directory.name) / "bill.csv"
    if not export(stack, EXPORT):
        raise AssertionError("no two exports are the same")


class Validator(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        install()

    def test_every_rule_that_can_be_checked_holds(self):
        found = statuses(EXPORT)
        self.assertEqual(len(found), RULES)
        self.assertGreaterEqual(sum(status != "SKIPPED" for status in found.values()), CHECKED_AT_LEAST)
        self.assertEqual(len(failed(found) & CONTRADICTING), 1)
        self.assertEqual(failed(found) - CONTRADICTING, set())

    def test_it_notices_what_is_wrong(self):
        broken = rows(EXPORT)
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


class Lines(unittest.TestCase):
    """What the validator skips or passes whatever it is: the products, the times' form, what a correction is."""

    @classmethod
    def setUpClass(cls):
        cls.rows = rows(EXPORT)

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
            # Half a micro-unit, and what was cut off the quantity. What is idle takes the rounding of the other lines.
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


if __name__ == "__main__":
    unittest.main()
