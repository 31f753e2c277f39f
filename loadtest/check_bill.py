#!/usr/bin/env python3
"""
Computes a run's bill a second time and compares it with the first, to the last millionth of the currency.

Shares no code with the suite and needs only Python's standard library. From the workload it takes what every pod asked
for and how long it lived; from intervals.csv when and where the tenants' feeds say it ran; from rates.csv the prices.
Each run is cut at the full hours, and wherever a rate begins. A line of the bill is the use of one resource by one job set of a
tenant in one hour, at one price: quantity (unit-ms) x micro_per_unit_hour / (units per billed unit x 3,600,000), rounded half
up; months are sums of lines.
`--without-trace`: the runs are of no recorded workload, and what they asked for is taken from intervals.csv.

Exit code 0 when all agree, 1 when something differs, 2 when the files cannot be used.
"""

import argparse
import csv
import json
import sys
from collections import defaultdict
from datetime import datetime, timedelta, timezone
from pathlib import Path

HOUR_MS = 3_600_000
MIB = 2**20
PER_BILLED_UNIT = {"cpu": 1000, "gpu": 1000, "memory": 2**30}
DIFFERENCES_MAX = 20
UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Unusable(Exception):
    """The files do not hold what they should."""


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def pod_list(directory):
    """The pod list of a workload directory: the exact name, the only default list, or the only list at all."""
    exact = directory / "pod_list.csv"
    if exact.exists():
        return exact
    for pattern in ("*pod_list*default*.csv", "*pod_list*.csv"):
        found = sorted(directory.glob(pattern))
        if len(found) == 1:
            return found[0]
        if found:
            raise Unusable(f"{directory} has several pod lists: {', '.join(path.name for path in found)}")
    raise Unusable(f"{directory} has no pod list")


def model_of_nodes(directory):
    exact = directory / "node_list.csv"
    found = [exact] if exact.exists() else (
        sorted(directory.glob("*node_list*gpu*.csv")) or sorted(directory.glob("*node_list*.csv")))
    if len(found) != 1:
        raise Unusable(f"{directory} has {len(found)} node lists, and one is needed")
    return {row["sn"]: row.get("model") or "" for row in rows(found[0])}


def check_interval(run, pod, models):
    """What a run says against what the trace says of its pod; yields sentences."""
    count = int(pod["num_gpu"])
    asked = {
        "cpu_milli": int(pod["cpu_milli"]),
        "memory_bytes": int(pod["memory_mib"]) * MIB,
        "gpu_milli": count * int(pod["gpu_milli"]) if count else 0,
    }
    for column, expected in asked.items():
        if int(run[column]) != expected:
            yield f"{run['pod']}: {column} is {run[column]}, the trace has {expected}"
    lifetime = (int(pod["deletion_time"]) - int(pod["creation_time"])) * 1000
    length = int(run["ended_ms"]) - int(run["started_ms"])
    if run["cause"] == "finished" and length != lifetime:
        yield f"{run['pod']}: it ran for {length} ms, the trace has {lifetime}"
    if not 0 <= length <= lifetime:
        yield f"{run['pod']}: it ran for {length} ms of at most {lifetime}"
    if run["node"] not in models:
        yield f"{run['pod']}: the workload has no node {run['node']}"
    elif models[run["node"]] != run["gpu_model"]:
        yield f"{run['pod']}: {run['node']} has {models[run['node']]}, not {run['gpu_model']}"
    allowed = [model for model in (pod.get("gpu_spec") or "").split("|") if model]
    if count and allowed and run["gpu_model"] not in allowed:
        yield f"{run['pod']}: {run['gpu_model']} is none of {', '.join(allowed)}"


def pieces(started_ms, ended_ms, cuts):
    """A run, cut at the full hours and at some moments: where each piece begins, and how long it is."""
    at = started_ms
    while at < ended_ms:
        until = min([ended_ms, (at // HOUR_MS + 1) * HOUR_MS] + [cut for cut in cuts if cut > at])
        yield at, until - at
        at = until


def usage(intervals, table):
    """Unit-milliseconds by tenant, hour, resource, job set and price."""
    quantity = defaultdict(int)
    for run in intervals:
        gpu = f"gpu:{run['gpu_model']}" if run["gpu_model"] else "gpu"
        amounts = {"cpu": int(run["cpu_milli"]), "memory": int(run["memory_bytes"]), gpu: int(run["gpu_milli"])}
        for resource, amount in amounts.items():
            cuts = [since for name in (resource, resource.split(":")[0]) for since, _ in table.get(name, [])]
            for at, ms in pieces(int(run["started_ms"]), int(run["ended_ms"]), cuts):
                if amount:
                    line = run["tenant"], at // HOUR_MS, resource, run["job_set"], price(table, resource, at)
                    quantity[line] += amount * ms
    return quantity


def rate_table(rate_rows):
    """Prices of a resource by the time from which they apply."""
    table = defaultdict(list)
    for row in rate_rows:
        table[row["resource"]].append((int(row["effective_from_ms"]), int(row["micro_per_unit_hour"])))
    return {resource: sorted(prices) for resource, prices in table.items()}


def price(table, resource, at):
    """The newest price of the resource at a moment; a GPU model without one costs what a GPU costs."""
    for name in dict.fromkeys((resource, resource.split(":")[0])):
        effective = [micro for since, micro in table.get(name, []) if since <= at]
        if effective:
            return effective[-1]
    raise Unusable(f"{resource} has no rate")


def line_micro(quantity, resource, micro_per_unit_hour):
    divisor = PER_BILLED_UNIT[resource.split(":")[0]] * HOUR_MS
    # Half up, in whole numbers.
    return (2 * quantity * micro_per_unit_hour + divisor) // (2 * divisor)


def month_of(hour):
    # Whole hours added to a date: no floating point and no local time in between.
    return (UNIX_EPOCH + timedelta(hours=hour)).strftime("%Y-%m")


def charges(quantities):
    """Micro-units by tenant and month."""
    total = defaultdict(lambda: defaultdict(int))
    for (tenant, hour, resource, _, micro), quantity in quantities.items():
        total[tenant][month_of(hour)] += line_micro(quantity, resource, micro)
    return {tenant: dict(months) for tenant, months in total.items()}


def compare(own, billed):
    """Yields a sentence for every amount that differs; an absent month is nothing charged."""
    for tenant in sorted(own.keys() | billed.keys()):
        ours, theirs = own.get(tenant, {}), billed.get(tenant, {})
        for month in sorted(ours.keys() | theirs.keys()):
            if ours.get(month, 0) != theirs.get(month, 0):
                yield f"{tenant} {month}: billed {theirs.get(month, 0)}, recomputed {ours.get(month, 0)} micro-units"


def decimals_agree(report):
    for tenant, months in report["charges_micro"].items():
        for month, micro in months.items():
            written = f"{micro // 10**6}.{micro % 10**6:06}"
            if report["charges"].get(tenant, {}).get(month) != written:
                yield f"{tenant} {month}: {report['charges'].get(tenant, {}).get(month)} is written for {written}"


def check_hours(report, quantities, intervals):
    billed = len({(tenant, hour) for tenant, hour, *_ in quantities})
    if report["hours_billed"] != billed:
        yield f"hours_billed is {report['hours_billed']}, the intervals touch {billed}"
    length = sum(int(run["ended_ms"]) - int(run["started_ms"]) for run in intervals) / HOUR_MS
    if abs(report["allocation_hours"] - length) > 0.001:
        yield f"allocation_hours is {report['allocation_hours']}, the intervals make {length}"


def check_trace(workload, intervals):
    """What the runs say against what the trace says; yields sentences."""
    pods = {row["name"]: row for row in rows(pod_list(workload))}
    models = model_of_nodes(workload)
    seen = set()
    for run in intervals:
        if run["pod"] not in pods:
            yield f"{run['pod']} is not in the trace"
            continue
        # One that was sent back to the queue runs again.
        if run["cause"] not in ("preempted", "evicted", "node_lost", "rejected_by_node"):
            if run["pod"] in seen:
                yield f"{run['pod']} ran twice"
            seen.add(run["pod"])
        yield from check_interval(run, pods[run["pod"]], models)


def check(workload, report_path, intervals_path, rates_path):
    """All differences, and a summary. Without a workload, the runs are not compared with one."""
    report = json.loads(report_path.read_text(encoding="utf-8"))
    intervals = rows(intervals_path)
    differences = [] if workload is None else list(check_trace(workload, intervals))
    finished = sum(1 for run in intervals if run["cause"] == "finished")
    if finished != report["finished"]:
        differences.append(f"{finished} intervals are finished, the report says {report['finished']}")
    quantities = usage(intervals, rate_table(rows(rates_path)))
    own = charges(quantities)
    differences += compare(own, report["charges_micro"])
    differences += decimals_agree(report)
    differences += check_hours(report, quantities, intervals)
    total = sum(sum(months.values()) for months in own.values())
    summary = f"{len(intervals)} runs, {len(own)} tenants, {total // 10**6}.{total % 10**6:06} in all"
    return differences, summary


def main(arguments):
    parser = argparse.ArgumentParser(description="Computes a run's bill a second time and compares.")
    default = Path(__file__).resolve().parent / "workloads" / "openb"
    parser.add_argument("--workload", type=Path, default=default, metavar="DIR")
    parser.add_argument("--without-trace", action="store_true", help="the runs are of no recorded workload")
    parser.add_argument("--report", type=Path, default=Path("target/run/report.json"), metavar="PATH")
    parser.add_argument("--intervals", type=Path, metavar="PATH", help="default: beside the report")
    parser.add_argument("--rates", type=Path, metavar="PATH", help="default: beside the report")
    options = parser.parse_args(arguments)
    beside = options.report.parent
    try:
        differences, summary = check(None if options.without_trace else options.workload, options.report,
                                     options.intervals or beside / "intervals.csv",
                                     options.rates or beside / "rates.csv")
    except (Unusable, OSError, KeyError, ValueError) as error:
        print(f"cannot check: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    for difference in differences[:DIFFERENCES_MAX]:
        print(difference)
    if differences:
        print(f"{len(differences)} differences; {summary}")
        return 1
    print(f"The bill is right to the last micro-unit: {summary}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
