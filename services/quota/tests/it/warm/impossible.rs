//! Rows that cannot be are refused, whatever the code believes.

use super::*;

async fn refused(scratch: &Scratch, table: &str, cases: &[(&str, &str)]) {
    for (values, constraint) in cases {
        let insert = format!("INSERT INTO {table} VALUES ({values})");
        let result = scratch.pool().execute(&*insert).await;
        let error = WarmError::from(result.expect_err(values));
        assert_eq!(error.constraint(), Some(*constraint), "{values}");
    }
}

/// Columns that are left out have their defaults, or none.
async fn refused_with(
    scratch: &Scratch,
    table: &str,
    base: &[(&str, &str)],
    cases: &[(&str, &str)],
) {
    for (changed, constraint) in cases {
        let mut columns: Vec<(&str, &str)> = base.to_vec();
        for change in changed.split("; ") {
            let (name, value) = change.split_once('=').unwrap();
            columns.retain(|(known, _)| *known != name);
            columns.push((name, value));
        }
        let (names, values): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        let table = format!("{table} ({})", names.join(", "));
        refused(scratch, &table, &[(&values.join(", "), constraint)]).await;
    }
}

const ACCOUNT: [(&str, &str); 4] = [
    ("tenant", "'t'"),
    ("team", "''"),
    ("namespace", "''"),
    ("resource", "'cpu'"),
];

#[tokio::test]
async fn accounts() {
    let scratch = ready("quota_checks").await;
    let mut base = ACCOUNT.to_vec();
    base.extend([
        ("hard", "10"),
        ("burst_ms", "0"),
        ("version", "1"),
        ("reserved", "0"),
        ("used", "0"),
        ("used_peak", "0"),
        ("borrowed", "0"),
        ("changed_at", "now()"),
    ]);
    let cases = [
        ("reserved=-1", "resource_quotas_reserved_check"),
        ("used=-1", "resource_quotas_used_check"),
        ("hard=-1; over_since=now()", "resource_quotas_hard_check"),
        ("resource='disk'", "resource_quotas_resource_check"),
        ("resource='gpu:'", "resource_quotas_resource_check"),
        ("resource='gpu:a b'", "resource_quotas_resource_check"),
        ("resource='cpu:x'", "resource_quotas_resource_check"),
        ("tenant='a.b'", "resource_quotas_tenant_check"),
        ("team='a.b'", "resource_quotas_team_check"),
        ("namespace='n'", "namespace_only_with_team"),
        ("version=0", "limits_have_a_version"),
        ("hard=NULL; soft=1", "limits_only_with_hard"),
        ("hard=NULL; lend=1", "limits_only_with_hard"),
        ("soft=11", "soft_not_above_hard"),
        ("burst=9; burst_ms=1", "burst_not_below_hard"),
        ("burst=11", "burst_has_its_time"),
        ("burst_ms=1", "burst_has_its_time"),
        ("used=2; used_peak=1; peak_at=now()", "peak_is_the_most"),
        ("used_peak=1", "peak_has_its_time"),
        ("soft=5; reserved=6", "soft_since_while_above"),
        ("soft=5; soft_since=now()", "soft_since_while_above"),
        ("reserved=11", "over_since_while_above"),
        ("hard=NULL; over_since=now()", "over_since_while_above"),
        ("borrowed=1", "borrowed_only_beyond_hard"),
        (
            "team='x'; reserved=11; over_since=now(); borrowed=1",
            "borrowed_only_beyond_hard",
        ),
        (
            "borrow=1; reserved=12; over_since=now(); borrowed=2",
            "borrowed_within_the_most",
        ),
    ];
    refused_with(&scratch, "resource_quotas", &base, &cases).await;
    scratch.close().await;
}

#[tokio::test]
async fn plans_and_tenants() {
    let scratch = ready("quota_checks_plans").await;
    let mut base = ACCOUNT.to_vec();
    base.extend([
        ("version", "1"),
        ("valid_from", "now()"),
        ("hard", "10"),
        ("burst_ms", "0"),
    ]);
    let cases = [
        ("valid_from=NULL", "planned_for_a_time"),
        ("valid_until=now()", "begins_before_it_ends"),
        ("version=0", "quota_limits_planned_version_check"),
        ("resource='disk'", "quota_limits_planned_resource_check"),
        ("namespace='n'", "namespace_only_with_team"),
        ("soft=11", "soft_not_above_hard"),
        ("hard=NULL; borrow=1", "limits_only_with_hard"),
        ("burst=9; burst_ms=1", "burst_not_below_hard"),
    ];
    refused_with(&scratch, "quota_limits_planned", &base, &cases).await;
    let cases = [
        (
            "'t', NULL, true, 'ask', 'any', 1",
            "quota_tenants_on_exceed_check",
        ),
        (
            "'t', NULL, true, 'wait', 'all', 1",
            "quota_tenants_reclaim_check",
        ),
        (
            "'t', '', true, 'wait', 'any', 1",
            "quota_tenants_cohort_check",
        ),
        (
            "'t', NULL, true, 'wait', 'any', 0",
            "quota_tenants_version_check",
        ),
    ];
    refused(&scratch, "quota_tenants", &cases).await;
    scratch.close().await;
}

#[tokio::test]
async fn history() {
    let scratch = ready("quota_checks_history").await;
    let mut base = ACCOUNT.to_vec();
    base.extend([
        ("hour", "to_timestamp(7200)"),
        ("hours", "1"),
        ("used_min", "1"),
        ("used_max", "2"),
        ("used_ms", "1500"),
        ("covered_ms", "1000"),
        ("reserved_max", "0"),
    ]);
    let cases = [
        ("hour=to_timestamp(7201)", "quota_usage_history_hour_check"),
        (
            "hours=0; used_min=2; covered_ms=0; used_ms=0",
            "quota_usage_history_hours_check",
        ),
        (
            "used_min=3; used_ms=0; covered_ms=0",
            "least_not_above_most",
        ),
        ("used_ms=2001", "average_between_least_and_most"),
        ("used_ms=999", "average_between_least_and_most"),
        ("used_ms=1500.5", "quota_usage_history_used_ms_check"),
        ("covered_ms=3600001; used_ms=3600001", "covers_its_hours"),
        (
            "hours=2; used_min=2; used_ms=2000",
            "many_hours_only_when_over",
        ),
        (
            "hours=2; covered_ms=7200000; used_ms=7200000",
            "many_hours_only_unchanged",
        ),
    ];
    refused_with(&scratch, "quota_usage_history", &base, &cases).await;
    scratch.close().await;
}

#[tokio::test]
async fn budgets_and_what_waits() {
    let scratch = ready("quota_checks_budgets").await;
    let mut base = ACCOUNT[..3].to_vec();
    base.extend([
        ("budget_of", "'money'"),
        ("period", "'day'"),
        ("amount", "10"),
        ("version", "1"),
        ("period_start", "to_timestamp(0)"),
        ("period_end", "to_timestamp(86400)"),
        ("spent", "1"),
        ("as_of", "to_timestamp(9)"),
        ("burn", "0"),
    ]);
    let cases = [
        ("budget_of='pods'", "quota_budgets_budget_of_check"),
        ("period='year'", "quota_budgets_period_check"),
        ("spent=-1", "quota_budgets_spent_check"),
        ("spent=0.5", "quota_budgets_spent_check"),
        ("as_of=to_timestamp(86400)", "as_of_in_its_period"),
        (
            "exhausted_at=to_timestamp(86400)",
            "exhausted_in_its_period",
        ),
        ("spent=10", "exhausted_when_spent"),
        (
            "spent=10; exhausted_at=to_timestamp(10)",
            "exhausted_when_spent",
        ),
    ];
    refused_with(&scratch, "quota_budgets", &base, &cases).await;
    let mut base = ACCOUNT[..3].to_vec();
    base.extend([
        ("allocation", "1"),
        ("priority", "0"),
        ("since", "now()"),
        ("reclaimed", "false"),
    ]);
    let cases = [
        ("allocation=0", "quota_waiting_allocation_check"),
        ("namespace='n'", "namespace_only_with_team"),
        ("rule='quota_exceeded'", "refusal_whole_or_none"),
        ("reclaimed_by=2", "reclaimed_by_only_when_reclaimed"),
    ];
    refused_with(&scratch, "quota_waiting", &base, &cases).await;
    scratch.close().await;
}
