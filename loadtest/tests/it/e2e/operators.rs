//! The operators' path: what they set holds, and what they may not set is refused by name.

use crate::e2e::suite::{GIB, Outcome, Suite, id, set_quota, small};
use client::{Client, Failed, SetQuota, SetRate, SetTenant, Submit};
use schemas::v1::{Refusal, Rule};
use vocab::HOUR_MS;

/// The rule, and what it was about.
pub fn refused<T: std::fmt::Debug>(outcome: Result<T, Failed>) -> Refusal {
    match outcome {
        Err(Failed::Refused(refused)) => refused.refusal.expect("a refusal names its rule"),
        other => panic!("no refusal: {other:?}"),
    }
}

fn said(refusal: &Refusal) -> (Rule, &str, u64, u64) {
    (
        refusal.rule(),
        &refusal.subject,
        refusal.limit,
        refusal.actual,
    )
}

#[tokio::test]
async fn a_quota_denial_names_resource_limit_and_actual() -> Outcome {
    let suite = Suite::start().await;
    let (operator, tenant) = (suite.operator().await, suite.tenant("tenant-a").await);
    let ask = |cpu_milli, memory_bytes, gpu_count| Submit {
        cpu_milli,
        memory_bytes,
        gpu_count,
        ..small("")
    };
    set_quota(&operator, "tenant-a", "cpu", 1_000).await;
    set_quota(&operator, "tenant-a", "memory", 4 * GIB).await;
    set_quota(&operator, "tenant-a", "gpu", 2_000).await;

    let kept = tenant.submit(ask(600, GIB, 1), id()).await?;
    let again = ask(401, GIB, 1);
    let denied = refused(tenant.submit(again.clone(), "over").await);
    assert_eq!(
        said(&denied),
        (Rule::QuotaExceeded, "tenant-a cpu", 1_000, 1_001)
    );
    // The same operation has the same outcome, also when there would be room now.
    set_quota(&operator, "tenant-a", "cpu", 10_000).await;
    let repeated = refused(tenant.submit(again.clone(), "over").await);
    assert_eq!(repeated, denied);
    let other = tenant.submit(again, id()).await?;

    let gib = GIB as u64;
    let denied = refused(tenant.submit(ask(1, 3 * GIB, 0), id()).await);
    assert_eq!(
        said(&denied),
        (Rule::QuotaExceeded, "tenant-a memory", 4 * gib, 5 * gib)
    );
    let denied = refused(tenant.submit(ask(1, GIB, 1), id()).await);
    assert_eq!(
        said(&denied),
        (Rule::QuotaExceeded, "tenant-a gpu", 2_000, 3_000)
    );

    // A limit below what is held takes nothing away, and lets nothing more in.
    set_quota(&operator, "tenant-a", "cpu", 10).await;
    let denied = refused(tenant.submit(ask(1, 1, 0), id()).await);
    assert_eq!(
        said(&denied),
        (Rule::QuotaExceeded, "tenant-a cpu", 10, 1_002)
    );
    for held in [kept, other] {
        tenant.cancel(held.allocation_id, id()).await?;
    }
    // The release is on its way from the scheduler by quota.
    let released =
        |_: &_, event: &vocab::Event| matches!(event, vocab::Event::QuotaReleased(_)).then_some(());
    suite.events_of("two releases", 2, released).await;
    tenant.submit(ask(10, 1, 0), id()).await?;

    // No limit is no room.
    let nobody = SetTenant {
        tenant: "tenant-c".to_owned(),
        expected_version: None,
        ..SetTenant::default()
    };
    let stranger = suite.tenant("tenant-c").await;
    let denied = refused(stranger.submit(ask(1, 1, 0), "early").await);
    assert_eq!(said(&denied), (Rule::TenantUnknown, "tenant", 0, 0));
    operator.set_tenant(nobody, id()).await?;
    let denied = refused(stranger.submit(ask(1, 1, 0), "early").await);
    assert_eq!(said(&denied), (Rule::QuotaNeverFits, "tenant-c cpu", 0, 1));
    suite.close().await;
    Ok(())
}

#[tokio::test]
async fn an_operators_change_knows_what_it_changes() -> Outcome {
    let suite = Suite::start().await;
    let operator = suite.operator().await;
    versions(&operator).await?;
    names(&operator).await;
    rates(&operator).await?;
    let tenant = suite.tenant("tenant-a").await;
    suite.assert_healthy(&tenant).await;
    suite.close().await;
    Ok(())
}

fn quota(tenant: &str, resource: &str, limit: i64, expected_version: Option<u64>) -> SetQuota {
    SetQuota {
        tenant: tenant.to_owned(),
        resource: resource.to_owned(),
        limit,
        expected_version,
        ..SetQuota::default()
    }
}

async fn versions(operator: &Client) -> Outcome {
    let set = |expected| operator.set_quota(quota("tenant-b", "cpu", 5, expected), id());
    // The suite's own was the first.
    assert_eq!(set(Some(1)).await?.version, 2);
    let conflict = refused(set(Some(1)).await);
    assert_eq!(
        said(&conflict),
        (Rule::VersionConflict, "expected_version", 2, 1)
    );
    assert_eq!(set(None).await?.version, 3);
    let conflict = refused(set(Some(u64::MAX)).await);
    assert_eq!(
        said(&conflict),
        (Rule::VersionConflict, "expected_version", 3, u64::MAX)
    );
    let anew = |expected_version| SetTenant {
        tenant: "tenant-b".to_owned(),
        expected_version,
        ..SetTenant::default()
    };
    let conflict = refused(operator.set_tenant(anew(Some(0)), id()).await);
    assert_eq!(
        said(&conflict),
        (Rule::VersionConflict, "expected_version", 1, 0)
    );
    assert_eq!(operator.set_tenant(anew(Some(1)), id()).await?.version, 2);
    Ok(())
}

async fn names(operator: &Client) {
    let long = "x".repeat(300);
    for name in [
        "",
        "_operator",
        "_x",
        "a.b",
        "a*",
        ">",
        "nul\0",
        "раураl",
        "a b",
        &long,
    ] {
        let change = SetTenant {
            tenant: name.to_owned(),
            expected_version: None,
            ..SetTenant::default()
        };
        let refusal = refused(operator.set_tenant(change, id()).await);
        assert_eq!(
            said(&refusal),
            (Rule::NameInvalid, "tenant", 0, 0),
            "{name:?}"
        );
        let refusal = refused(operator.set_quota(quota(name, "cpu", 1, None), id()).await);
        assert_eq!(
            said(&refusal),
            (Rule::NameInvalid, "tenant", 0, 0),
            "{name:?}"
        );
    }
    let table = [
        (
            quota("nobody", "cpu", 1, None),
            (Rule::TenantUnknown, "tenant", 0, 0),
        ),
        (
            quota("tenant-b", "disk", 1, None),
            (Rule::ResourceUnknown, "resource", 0, 0),
        ),
        (
            quota("tenant-b", "gpu:", 1, None),
            (Rule::ResourceUnknown, "resource", 0, 0),
        ),
        (
            quota("tenant-b", "cpu", -1, None),
            (Rule::QuantityNegative, "limit", 0, 0),
        ),
        (
            quota("tenant-b", "cpu", i64::MIN, None),
            (Rule::QuantityNegative, "limit", 0, 0),
        ),
        (
            quota("tenant-b", "cpu", (1 << 53) + 1, None),
            (Rule::QuantityTooLarge, "limit", 1 << 53, (1 << 53) + 1),
        ),
    ];
    for (change, expected) in table {
        let refusal = refused(operator.set_quota(change.clone(), id()).await);
        assert_eq!(said(&refusal), expected, "{change:?}");
    }
}

async fn rates(operator: &Client) -> Outcome {
    let rate = |resource: &str, micro_per_unit_hour, effective_from_ms| SetRate {
        resource: resource.to_owned(),
        micro_per_unit_hour,
        effective_from_ms,
        ..SetRate::default()
    };
    let set = |change| operator.set_rate(change, id());
    let now = chassis::Clock::real().now_ms();
    let hour = now - now.rem_euclid(HOUR_MS);
    let (last, next) = (hour, hour + 2 * HOUR_MS);
    let table = [
        (
            rate("gpu", 5, -HOUR_MS),
            (Rule::SettingInvalid, "effective_from_ms", 0, 0),
        ),
        (
            rate("gpu", 5, i64::MAX),
            (Rule::SettingInvalid, "effective_from_ms", 0, 0),
        ),
        // What has been billed stays as it is.
        (
            rate("gpu", 5, 0),
            (Rule::RateForAPastHour, "effective_from_ms", 0, 0),
        ),
        (
            rate("gpu", 5, last),
            (Rule::RateForAPastHour, "effective_from_ms", 0, 0),
        ),
        (
            rate("gpu", -5, next),
            (Rule::QuantityNegative, "micro_per_unit_hour", 0, 0),
        ),
        (
            rate("gpu", 1_000_000_000_001, next),
            (
                Rule::QuantityTooLarge,
                "micro_per_unit_hour",
                1_000_000_000_000,
                1_000_000_000_001,
            ),
        ),
        (
            rate("disk", 5, next),
            (Rule::ResourceUnknown, "resource", 0, 0),
        ),
        (
            rate("gpu:a.b", 5, next),
            (Rule::ResourceUnknown, "resource", 0, 0),
        ),
        (
            rate("cpu:x", 5, next),
            (Rule::ResourceUnknown, "resource", 0, 0),
        ),
    ];
    for (change, expected) in table {
        let refusal = refused(set(change.clone()).await);
        assert_eq!(said(&refusal), expected, "{change:?}");
    }
    let back = |resource: &str, effective_from_ms| SetRate {
        withdrawn: true,
        ..rate(resource, 0, effective_from_ms)
    };
    let priced = SetRate {
        withdrawn: true,
        ..rate("gpu", 5, next)
    };
    let table = [
        (back("gpu:H100", next), (Rule::NeverSet, "gpu:H100", 0, 0)),
        (
            back("gpu", last),
            (Rule::RateForAPastHour, "effective_from_ms", 0, 0),
        ),
        (
            priced,
            (Rule::QuantityTooLarge, "micro_per_unit_hour", 0, 5),
        ),
    ];
    for (change, expected) in table {
        let refusal = refused(set(change.clone()).await);
        assert_eq!(said(&refusal), expected, "{change:?}");
    }
    // To the millisecond.
    assert_eq!(set(rate("gpu", 5, next + 1)).await?.version, 2);
    // A model's own first rate may reach back: nothing was billed by one.
    assert_eq!(set(rate("gpu:A100", 7, 0)).await?.version, 1);
    let late = rate("gpu:A100", 8, last);
    assert_eq!(refused(set(late).await).rule(), Rule::RateForAPastHour);
    let stale = SetRate {
        expected_version: Some(7),
        ..rate("gpu", 6, next)
    };
    let conflict = refused(set(stale).await);
    assert_eq!(
        said(&conflict),
        (Rule::VersionConflict, "expected_version", 2, 7)
    );
    Ok(())
}
