-- Made of the rows in services/analytics/src/store by APPORTION_WRITE=1 cargo test -p analytics --test it the_tables_are

CREATE TABLE IF NOT EXISTS ledger_ranges (
    ledger Int64 COMMENT 'Which ledger: its time of creation, Unix nanoseconds.',
    after_lsn UInt64 COMMENT 'The range begins behind it.',
    to_lsn UInt64 COMMENT 'The last position of the range.',
    state LowCardinality(String) COMMENT 'begun or applied.',
    allocation_intervals UInt64 COMMENT 'Rows of the range in that table.',
    running_allocations Int128 COMMENT 'Of the range''s rows in that table, where two of one run go away together: the sum of sign times the run''s checksum.',
    unplaced_allocations UInt64 COMMENT 'Rows of the range in that table.',
    preemptions UInt64 COMMENT 'Rows of the range in that table.',
    quota_denials UInt64 COMMENT 'Rows of the range in that table.',
    node_transfers UInt64 COMMENT 'Rows of the range in that table.',
    node_capacities UInt64 COMMENT 'Rows of the range in that table.',
    node_conditions UInt64 COMMENT 'Rows of the range in that table.',
    rates UInt64 COMMENT 'Rows of the range in that table.',
    budgets UInt64 COMMENT 'Rows of the range in that table.',
    closed_periods UInt64 COMMENT 'Rows of the range in that table.',
    usage_ms Int64 COMMENT 'Milliseconds of the range''s rows in usage_hourly. Rows of one key become one there, so that rows cannot be counted.',
    capacity_transfers UInt64 COMMENT 'Transfers of the range''s rows in capacity_hourly, where rows of one key become one, too.',
    clock DateTime64(3, 'UTC') COMMENT 'The latest moment that the ledger has said up to the end of the range; 1970 in a range without an event that counts.',
    accrued_to DateTime64(3, 'UTC') COMMENT 'A full hour: what runs is in usage_hourly up to here.',
    digest String COMMENT 'Of what stands at the end of the range, SHA-256 as hexadecimal digits; empty if nobody knows.',
    recorded_at DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'By the server''s clock.'
)
ENGINE = MergeTree
ORDER BY (to_lsn, state)
SETTINGS non_replicated_deduplication_window = 10000, max_suspicious_broken_parts = 1000000
COMMENT 'Which range of the ledger is in the other tables. A range is recorded as begun before its rows are sent, so that a restart sends exactly the same rows with the same tokens, and as applied after the last of them has landed.';

CREATE TABLE IF NOT EXISTS allocation_intervals (
    lsn UInt64 COMMENT 'Where in the ledger the end of the run is.',
    event_index UInt32 COMMENT 'Of the event among those of its frame.',
    allocation UUID COMMENT 'The allocation, as tenants know it.',
    operation_id String COMMENT 'Of the request; empty when it had none.',
    tenant String COMMENT 'Who pays.',
    team String COMMENT 'Of the tenant; empty when the request had none.',
    namespace String COMMENT 'Of the team; empty when the request had none.',
    queue String COMMENT 'Where it waited; the tenant''s own queue has its name.',
    job_set String COMMENT 'What it is a part of.',
    priority_class String COMMENT 'Empty when the request had none.',
    gang String COMMENT 'Empty when it was in none.',
    name String COMMENT 'Empty when the request had none.',
    labels Map(String, String) COMMENT 'The tenant''s own words about it, by name.',
    attempt UInt32 COMMENT 'Counts the tries of the allocation, from 1.',
    node String COMMENT 'Where it ran.',
    incarnation UInt64 COMMENT 'Counts the lives of the node.',
    cluster String COMMENT 'The node''s label cluster; empty when it has none.',
    zone String COMMENT 'The node''s label zone; empty when it has none.',
    pool String COMMENT 'The node''s label pool; empty when it has none.',
    gpu_model String COMMENT 'Of the node; empty when it has none.',
    cpu_milli UInt64 COMMENT 'Thousandths of a core.',
    memory_bytes UInt64 COMMENT 'Bytes.',
    gpu_milli UInt64 COMMENT 'Thousandths of a GPU.',
    queued_at DateTime64(3, 'UTC') COMMENT 'When it was requested, or queued again after the try before.',
    wait_reason String COMMENT 'The last that was said of why it waited; empty when it was placed at once.',
    placed_at DateTime64(3, 'UTC') COMMENT 'The first moment that it was reserved.',
    started_at DateTime64(3, 'UTC') COMMENT 'The first moment that was used.',
    ended_at DateTime64(3, 'UTC') COMMENT 'The first moment that was not used any more.',
    released_at DateTime64(3, 'UTC') COMMENT 'The first moment that was not reserved any more.',
    whole Bool COMMENT 'The run''s transfers, from idle to reserved, to allocated, and back, are in this row and not in node_transfers.',
    cause String COMMENT 'Why the run ended: finished, failed, cancelled, node_lost, rejected_by_node, preempted, dependency_failed, time_limit or evicted.',
    exit_code Int16 COMMENT 'Exit code of its command, 0 to 255; -1 when the node''s agent said none.',
    exit_signal UInt8 COMMENT 'Number of the signal that ended its command; 0 when none did.',
    measured Bool COMMENT 'Whether the node''s agent has measured what the run used.',
    cpu_used_us UInt64 COMMENT 'CPU time of all its processes, microseconds; 0 when it was not measured.',
    memory_peak_bytes UInt64 COMMENT 'The most memory that it had at a time, bytes; 0 when it was not measured.',
    log_bytes UInt64 COMMENT 'What it wrote to its standard output and error, bytes; 0 when it was not measured.'
)
ENGINE = MergeTree
ORDER BY (tenant, started_at, lsn, event_index)
SETTINGS non_replicated_deduplication_window = 10000, max_suspicious_broken_parts = 1000000
COMMENT 'Every run that is over: who used what, where, from when to when. The facts of the bill.';

CREATE TABLE IF NOT EXISTS running_allocations (
    allocation UUID COMMENT 'The allocation, as tenants know it.',
    operation_id String COMMENT 'Of the request; empty when it had none.',
    tenant LowCardinality(String) COMMENT 'Who pays.',
    team String COMMENT 'Of the tenant; empty when the request had none.',
    namespace String COMMENT 'Of the team; empty when the request had none.',
    queue String COMMENT 'Where it waited; the tenant''s own queue has its name.',
    job_set String COMMENT 'What it is a part of.',
    priority_class String COMMENT 'Empty when the request had none.',
    name String COMMENT 'Empty when the request had none.',
    node String COMMENT 'Where it runs.',
    cluster String COMMENT 'The node''s label cluster; empty when it has none.',
    pool String COMMENT 'The node''s label pool; empty when it has none.',
    gpu_model String COMMENT 'Of the node; empty when it has none.',
    cpu_milli UInt64 COMMENT 'Thousandths of a core.',
    memory_bytes UInt64 COMMENT 'Bytes.',
    gpu_milli UInt64 COMMENT 'Thousandths of a GPU.',
    started_at DateTime64(3, 'UTC') COMMENT 'The first moment that was used.',
    checksum UInt64 COMMENT 'Differs from run to run, so that a loss of rows shows though their signs come to nothing.',
    sign Int8 COMMENT '1: it runs; -1: it does not any more.'
)
ENGINE = CollapsingMergeTree(sign)
ORDER BY (tenant, allocation, started_at)
SETTINGS non_replicated_deduplication_window = 10000, max_suspicious_broken_parts = 1000000
COMMENT 'Runs that are under way: a row with the sign 1 at the end of the batch in which it began, and the same with -1 when it is over; the server merges the two away. Runs of less than a batch are not here.';

CREATE TABLE IF NOT EXISTS unplaced_allocations (
    lsn UInt64 COMMENT 'Where in the ledger its end is.',
    event_index UInt32 COMMENT 'Of the event among those of its frame.',
    allocation UUID COMMENT 'The allocation, as tenants know it.',
    operation_id String COMMENT 'Of the request; empty when it had none.',
    tenant LowCardinality(String) COMMENT 'Whose it was.',
    team String COMMENT 'Of the tenant; empty when the request had none.',
    namespace String COMMENT 'Of the team; empty when the request had none.',
    queue String COMMENT 'Where it waited; the tenant''s own queue has its name.',
    job_set String COMMENT 'What it was a part of.',
    priority_class String COMMENT 'Empty when the request had none.',
    cpu_milli UInt64 COMMENT 'Thousandths of a core.',
    memory_bytes UInt64 COMMENT 'Bytes.',
    gpu_milli UInt64 COMMENT 'Thousandths of a GPU.',
    attempt UInt32 COMMENT 'Counts the tries of the allocation, from 1.',
    queued_at DateTime64(3, 'UTC') COMMENT 'When it was requested, or queued again after the try before.',
    ended_at DateTime64(3, 'UTC') COMMENT 'When it ended.',
    wait_reason String COMMENT 'The last that was said of why it waited; empty when nothing was.',
    cause String COMMENT 'Why it ended.'
)
ENGINE = MergeTree
ORDER BY (tenant, queued_at, lsn, event_index)
SETTINGS non_replicated_deduplication_window = 10000, max_suspicious_broken_parts = 1000000
COMMENT 'Allocations that waited for a place and ended without one.';

CREATE TABLE IF NOT EXISTS preemptions (
    lsn UInt64 COMMENT 'Where in the ledger the decision is.',
    event_index UInt32 COMMENT 'Of the event among those of its frame.',
    at DateTime64(3, 'UTC') COMMENT 'When it was decided.',
    allocation UUID COMMENT 'Who had to go.',
    tenant LowCardinality(String) COMMENT 'Whose it was.',
    queue String COMMENT 'Its queue.',
    job_set String COMMENT 'What it was a part of.',
    priority_class String COMMENT 'Empty when the request had none.',
    node String COMMENT 'Where it ran; empty when it was on no node any more.',
    cause String COMMENT 'priority, fair_share, gang, reservation, quota, drain or taint.',
    by_allocation UUID COMMENT 'Whom it made room for; all zeros for a reservation.',
    by_tenant String COMMENT 'Whose that is; empty when that is not known any more.',
    by_priority_class String COMMENT 'Empty when it has none.'
)
ENGINE = MergeTree
ORDER BY (at, lsn, event_index)
SETTINGS non_replicated_deduplication_window = 10000, max_suspicious_broken_parts = 1000000
COMMENT 'Allocations that had to make room.';

CREATE TABLE IF NOT EXISTS quota_denials (
    lsn UInt64 COMMENT 'Where in the ledger the event is.',
    event_index UInt32 COMMENT 'Of the event among those of its frame.',
    at DateTime64(3, 'UTC') COMMENT 'When it was denied.',
    allocation UUID COMMENT 'The allocation, as tenants know it.',
    operation_id String COMMENT 'Of the request; empty when it had none.',
    tenant String COMMENT 'Whose it was.',
    team String COMMENT 'Of the tenant; empty when the request had none.',
    namespace String COMMENT 'Of the team; empty when the request had none.',
    queue String COMMENT 'Where it waited; the tenant''s own queue has its name.',
    job_set String COMMENT 'What it is a part of.',
    priority_class String COMMENT 'Empty when the request had none.',
    cpu_milli UInt64 COMMENT 'Thousandths of a core.',
    memory_bytes UInt64 COMMENT 'Bytes.',
    gpu_milli UInt64 COMMENT 'Thousandths of a GPU.',
    rule LowCardinality(String) COMMENT 'The broken rule: quota_exceeded, quota_never_fits, budget_exhausted and others.',
    subject String COMMENT 'What the rule was about: of a quota or a budget, the account and the resource or money.',
    rule_limit UInt64 COMMENT 'What the rule allows of the subject, in its unit.',
    rule_actual UInt64 COMMENT 'What it would have come to, in the same unit; of a budget, what was used.'
)
ENGINE = MergeTree
ORDER BY (tenant, at, lsn, event_index)
SETTINGS non_replicated_deduplication_window = 10000, max_suspicious_broken_parts = 1000000
COMMENT 'Allocations that quota let never run, and why. What the scheduler had ended before is nobody''s here.';

CREATE TABLE IF NOT EXISTS node_transfers (
    lsn UInt64 COMMENT 'Where in the ledger the event is.',
    event_index UInt32 COMMENT 'Of the event among those of its frame.',
    node String COMMENT 'Whose books.',
    incarnation UInt64 COMMENT 'Counts the lives of the node.',
    gpu_model String COMMENT 'Of the node; empty when it has none.',
    allocation UUID COMMENT 'Whose run it is about; all zeros when it is about none.',
    from_account String COMMENT 'outside, allocated, reserved, idle, cordoned or unavailable.',
    to_account String COMMENT 'Of the same names.',
    at DateTime64(3, 'UTC') COMMENT 'From when on.',
    cpu_milli Int64 COMMENT 'Thousandths of a core; less than 0 is the other way.',
    memory_bytes Int64 COMMENT 'Less than 0 is the other way.',
    gpu_milli Int64 COMMENT 'Thousandths of a GPU; less than 0 is the other way.'
)
ENGINE = MergeTree
ORDER BY (node, incarnation, at, lsn, event_index)
SETTINGS non_replicated_deduplication_window = 10000, max_suspicious_broken_parts = 1000000
COMMENT 'The books of the nodes, without the runs that are whole in allocation_intervals: from a moment on, so much is no longer in the one account but in the other. The view node_entries has all of them, and node_segments adds them up.';

CREATE TABLE IF NOT EXISTS node_capacities (
    lsn UInt64 COMMENT 'Where in the ledger the event is.',
    event_index UInt32 COMMENT 'Of the event among those of its frame.',
    part UInt32 COMMENT 'Counts what is said by the event.',
    node LowCardinality(String) COMMENT 'What has it.',
    incarnation UInt64 COMMENT 'Counts the lives of the node. An older one has what is still held of it.',
    at DateTime64(3, 'UTC') COMMENT 'From when on.',
    cpu_milli Int64 COMMENT 'Thousandths of a core.',
    memory_bytes Int64 COMMENT 'Bytes.',
    gpu_milli Int64 COMMENT 'Thousandths of a GPU.'
)
ENGINE = MergeTree
ORDER BY (node, incarnation, lsn, event_index, part)
SETTINGS non_replicated_deduplication_window = 10000, max_suspicious_broken_parts = 1000000
COMMENT 'What the nodes have in all, from a moment on: at every moment, allocated, reserved, idle, cordoned and unavailable of the node add up to it.';

CREATE TABLE IF NOT EXISTS node_conditions (
    lsn UInt64 COMMENT 'Where in the ledger the event is.',
    event_index UInt32 COMMENT 'Of the event among those of its frame.',
    node LowCardinality(String) COMMENT 'What it is of.',
    condition LowCardinality(String) COMMENT 'Ready, by the cell''s judgement; or what its agent names: MemoryPressure, DiskPressure, NetworkUnavailable, or a name of the site''s own.',
    status LowCardinality(String) COMMENT 'true, false or unknown. Of Ready, unknown is a node that was silent for half a lease.',
    reason LowCardinality(String) COMMENT 'Of Ready: registered, heard, silent, lost or forgotten. Of others what the agent says; empty when it says nothing.',
    at DateTime64(3, 'UTC') COMMENT 'From when on.'
)
ENGINE = MergeTree
ORDER BY (node, condition, lsn, event_index)
SETTINGS non_replicated_deduplication_window = 10000, max_suspicious_broken_parts = 1000000
COMMENT 'When what began to hold of which node, and when it did not any more. The view node_condition_history says until when.';

CREATE TABLE IF NOT EXISTS rates (
    lsn UInt64 COMMENT 'Where in the ledger the event is.',
    event_index UInt32 COMMENT 'Of the event among those of its frame.',
    resource LowCardinality(String) COMMENT 'cpu, memory, gpu or gpu:<model>.',
    tenant LowCardinality(String) COMMENT 'Whose use it prices; empty: everybody''s.',
    priority_class LowCardinality(String) COMMENT 'Use of which priority class it prices; empty: of all.',
    pool LowCardinality(String) COMMENT 'Use of nodes of which pool it prices; empty: of all.',
    cluster LowCardinality(String) COMMENT 'Use of nodes of which cluster it prices; empty: of all.',
    effective_from DateTime64(3, 'UTC') COMMENT 'From when on it was to be the price.',
    applied_from DateTime64(3, 'UTC') COMMENT 'From when on it is the price: what was known before the rate keeps its price, which may be some milliseconds more.',
    version UInt64 COMMENT 'Counts the rates of the resource and scope.',
    micro_per_unit_hour UInt64 COMMENT 'Millionths of the currency per core, GiB or GPU and hour.',
    withdrawn Bool COMMENT 'From then on there is no price of this resource and scope, and none that was to come.'
)
ENGINE = MergeTree
ORDER BY (resource, tenant, priority_class, pool, cluster, applied_from, version)
SETTINGS non_replicated_deduplication_window = 10000, max_suspicious_broken_parts = 1000000
COMMENT 'Prices.';

CREATE TABLE IF NOT EXISTS budgets (
    lsn UInt64 COMMENT 'Where in the ledger the event is.',
    event_index UInt32 COMMENT 'Of the event among those of its frame.',
    tenant String COMMENT 'Whose uses are counted, with all that is below the account.',
    team String COMMENT 'Of the tenant; empty when the budget is the whole tenant''s.',
    namespace String COMMENT 'Of the team; empty when the budget is not a namespace''s.',
    budget_of String COMMENT 'What is counted: money, cpu, memory or gpu.',
    amount Nullable(UInt64) COMMENT 'Millionths of the currency, or thousandths of a core or GPU, or bytes, times hours; NULL: the budget is taken back.',
    period String COMMENT 'hour, day, week (from Monday on) or month, in UTC; empty when the budget is taken back.',
    set_at DateTime64(3, 'UTC') COMMENT 'When it was set, by the ledger''s clock.',
    version UInt64 COMMENT 'Counts what was set of it.'
)
ENGINE = MergeTree
ORDER BY (tenant, team, namespace, budget_of, version)
SETTINGS non_replicated_deduplication_window = 10000, max_suspicious_broken_parts = 1000000
COMMENT 'What accounts may use up in every period. Of an account and what is counted, the row of the highest version counts.';

CREATE TABLE IF NOT EXISTS closed_periods (
    lsn UInt64 COMMENT 'Where in the ledger it was closed: its bill is made of what stands before.',
    event_index UInt32 COMMENT 'Of the event among those of its frame.',
    period Date COMMENT 'The month, as its first day. The first one that was closed closed all before it.',
    closed_at DateTime64(3, 'UTC') COMMENT 'When it was closed.',
    version UInt64 COMMENT 'Counts the months that were closed.'
)
ENGINE = MergeTree
ORDER BY period
SETTINGS non_replicated_deduplication_window = 10000, max_suspicious_broken_parts = 1000000
COMMENT 'Months whose bill is final.';

CREATE TABLE IF NOT EXISTS usage_hourly (
    billing_period Date COMMENT 'The month in whose bill it stands, as its first day: that of the hour, or, if that was closed before this was known, the first one that was open.',
    tenant LowCardinality(String) COMMENT 'Who pays.',
    team LowCardinality(String) COMMENT 'Of the tenant; empty when the request had none.',
    namespace LowCardinality(String) COMMENT 'Of the team; empty when the request had none.',
    queue LowCardinality(String) COMMENT 'Where it waited; the tenant''s own queue has its name.',
    job_set String COMMENT 'What it is a part of.',
    priority_class LowCardinality(String) COMMENT 'Empty when the request had none.',
    cluster LowCardinality(String) COMMENT 'The node''s label cluster; empty when it has none.',
    pool LowCardinality(String) COMMENT 'The node''s label pool; empty when it has none.',
    hour DateTime('UTC') COMMENT 'Its beginning.',
    resource LowCardinality(String) COMMENT 'cpu, memory, gpu or gpu:<model>.',
    since DateTime64(3, 'UTC') COMMENT 'A moment before the use since when no rate began that fits it; 1970: none had begun. The view prices has the price by it.',
    quantity SimpleAggregateFunction(sum, Int128) COMMENT 'Millicore-, byte- or milli-GPU-milliseconds.',
    ms SimpleAggregateFunction(sum, Int64) COMMENT 'Milliseconds of allocations that had some of it.',
    first_lsn SimpleAggregateFunction(min, UInt64) COMMENT 'Where in the ledger the first event is that is in it.',
    last_lsn SimpleAggregateFunction(max, UInt64) COMMENT 'Where in the ledger the last event is that is in it.'
)
ENGINE = AggregatingMergeTree
ORDER BY (tenant, hour, resource, team, namespace, queue, job_set, priority_class, cluster, pool, since, billing_period)
SETTINGS non_replicated_deduplication_window = 10000, max_suspicious_broken_parts = 1000000
COMMENT 'Use by the hour, exact to the millisecond, of what is over and, up to the last full hour, of what runs. Sum over it: every batch has a row of its own until the server merges them. A negative row takes back what was accrued beyond a run''s end.';

CREATE TABLE IF NOT EXISTS capacity_hourly (
    billing_period Date COMMENT 'The month in whose reconciliation it stands, as its first day: that of the hour, or, if that was closed before this was known, the first one that was open.',
    cluster LowCardinality(String) COMMENT 'The nodes'' label cluster; empty when they have none.',
    pool LowCardinality(String) COMMENT 'The nodes'' label pool; empty when they have none.',
    resource LowCardinality(String) COMMENT 'cpu, memory, gpu or gpu:<model>.',
    account LowCardinality(String) COMMENT 'allocated, reserved, idle, cordoned or unavailable.',
    hour DateTime('UTC') COMMENT 'Its beginning.',
    since DateTime64(3, 'UTC') COMMENT 'A moment before the changes since when no list price began; 1970: none had begun.',
    risen SimpleAggregateFunction(sum, Int128) COMMENT 'How much more is in the account at the end of the hour, or at the next rate, than at its beginning.',
    moment SimpleAggregateFunction(sum, Int128) COMMENT 'The same, each change times its milliseconds since the beginning of the hour.',
    transfers SimpleAggregateFunction(sum, UInt64) COMMENT 'Transfers that are in it.'
)
ENGINE = AggregatingMergeTree
ORDER BY (cluster, pool, resource, account, hour, since, billing_period)
SETTINGS non_replicated_deduplication_window = 10000, max_suspicious_broken_parts = 1000000
COMMENT 'How the nodes'' books changed by the hour, summed from each batch''s transfers. Sum over it; the view cluster_slices makes integrals of it.';

CREATE TABLE IF NOT EXISTS cells (
    cell UInt64 COMMENT 'The number of the cell.',
    at DateTime64(3, 'UTC') COMMENT 'By the cell''s clock: nothing had happened up to then that is not in the tables.',
    currency String COMMENT 'What amounts are millionths of, as ISO 4217 has it.'
)
ENGINE = ReplacingMergeTree(at)
ORDER BY cell
SETTINGS non_replicated_deduplication_window = 10000, max_suspicious_broken_parts = 1000000
COMMENT 'What the service says of itself, and the ledger does not. Its newest row counts.';

CREATE TABLE IF NOT EXISTS node_samples (
    at DateTime64(3, 'UTC') COMMENT 'When the service heard it, by its own clock; the last one of the row.',
    slot DateTime('UTC') COMMENT 'The beginning of the five minutes that it is in.',
    node LowCardinality(String) COMMENT 'Whose.',
    samples UInt32 COMMENT 'How many the row stands for. What is in use is their average, what is counted their greatest.',
    cpu_milli UInt64 COMMENT 'In use, thousandths of a core.',
    memory_bytes UInt64 COMMENT 'In use.',
    gpus UInt32 COMMENT 'How many GPUs could be asked.',
    gpu_busy_milli UInt64 COMMENT 'In use, of all GPUs together, thousandths of a GPU.',
    gpu_memory_bytes UInt64 COMMENT 'In use, of all GPUs together.',
    disk_used_bytes UInt64 COMMENT 'In use of the file system that holds the agent''s state and the runs'' logs; the most of the row.',
    disk_free_bytes UInt64 COMMENT 'Free of it; the least of the row.',
    network_received_bytes UInt64 COMMENT 'Since the machine was started.',
    network_sent_bytes UInt64 COMMENT 'Since the machine was started.',
    load_milli UInt64 COMMENT 'The load of the last minute, in thousandths.',
    oom_kills UInt64 COMMENT 'Processes that the kernel has killed for want of memory, since the machine was started.',
    runs UInt32 COMMENT 'Runs that are not over; the most of the row.'
)
ENGINE = MergeTree
ORDER BY (node, slot, at)
TTL toDateTime(at) + toIntervalHour(1) GROUP BY node, slot SET at = max(at), cpu_milli = toUInt64(avgWeighted(cpu_milli, samples)), memory_bytes = toUInt64(avgWeighted(memory_bytes, samples)), gpus = max(gpus), gpu_busy_milli = toUInt64(avgWeighted(gpu_busy_milli, samples)), gpu_memory_bytes = toUInt64(avgWeighted(gpu_memory_bytes, samples)), disk_used_bytes = max(disk_used_bytes), disk_free_bytes = min(disk_free_bytes), network_received_bytes = max(network_received_bytes), network_sent_bytes = max(network_sent_bytes), load_milli = toUInt64(avgWeighted(load_milli, samples)), oom_kills = max(oom_kills), runs = max(runs), samples = sum(samples), toStartOfDay(at) + toIntervalDay(31)
SETTINGS merge_with_ttl_timeout = 600, max_suspicious_broken_parts = 1000000
COMMENT 'How busy the nodes were, as their agents measured it: for an hour every sample, then one row for each node and five minutes, for 30 days. Samples may be missing; nothing of the bill is made of them.';
