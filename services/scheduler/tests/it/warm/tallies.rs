//! How many allocations of job sets and of tenants stand where.

use super::*;
use scheduler::project::SettingRow;
use store::{JobSet, Listed, WantedJobSets};
use vocab::QueueSettings;

const NAMES: [&str; Standing::COUNT] = [
    "requested",
    "waiting",
    "placed",
    "running",
    "stopping",
    "finished",
    "failed",
    "cancelled",
    "denied",
];

/// In the job set and queue, of the tenant.
fn of(no: u64, tenant: &str, job_set: &str, queue: &str, state: AllocationState) -> AllocationRow {
    let mut row = row(no, 0, state);
    row.tenant = token(tenant);
    row.requested_at = Millis(1_700_000_000_000 + no as i64);
    row.since = Millis(1_700_000_000_100 + no as i64);
    let spec = row.spec.common_mut();
    spec.job_set = token(job_set);
    spec.queue = Some(token(queue));
    (spec.cpu_milli, spec.memory_bytes, spec.gpu) = (1000 * no, no, None);
    row
}

fn on_node(started_at: Option<i64>, stop: Option<Stop>) -> AllocationState {
    let place = Place {
        gpus: Default::default(),
        ..place(started_at)
    };
    AllocationState::Held { place, stop }
}

fn over(cause: EndCause) -> AllocationState {
    AllocationState::Ended {
        place: None,
        cause,
        at: Millis(1_700_000_000_200),
        exit: None,
    }
}

/// `tenant/job_set@queue: 1 running 2 finished; …`, and where the next page begins.
async fn listed(pool: &PgPool, tenant: Option<&str>, wanted: WantedJobSets, after: &str) -> String {
    let wanted = WantedJobSets {
        limit: if wanted.limit == 0 { 10 } else { wanted.limit },
        ..wanted
    };
    let mut key = after.split(' ').map(str::to_owned);
    let key = [(); 3].map(|()| key.next().unwrap_or_default());
    let tenant = tenant.map(token);
    let Listed { found, next } = store::job_sets(pool, tenant.as_ref(), &wanted, &key)
        .await
        .unwrap();
    let text = |one: &JobSet| {
        let counts = one
            .counts
            .iter()
            .zip(NAMES)
            .filter(|(count, _)| **count > 0);
        let counts = counts.map(|(count, name)| format!(" {count} {name}"));
        let counts: String = counts.collect();
        format!("{}/{}@{}:{counts}", one.tenant, one.job_set, one.queue)
    };
    let mut texts: Vec<String> = found.iter().map(text).collect();
    texts.extend(next.map(|next| format!("after {}", next.join(" "))));
    texts.join("; ")
}

#[tokio::test]
async fn job_sets_are_counted_as_their_allocations_stand() {
    let scratch = ready("job_sets").await;
    let pool = scratch.pool();
    let all = WantedJobSets::default;
    let waits = queued(None, 1);
    let rows = vec![
        of(
            1,
            "a",
            "j",
            "q",
            AllocationState::Requested { refusal: None },
        ),
        of(2, "a", "j", "q", waits.clone()),
        of(3, "a", "j", "q", on_node(None, None)),
        of(4, "a", "j", "r", waits.clone()),
        of(5, "a", "k", "q", over(EndCause::Finished)),
        of(6, "b", "j", "q", waits.clone()),
    ];
    apply(&pool, rows).await.unwrap();
    assert_eq!(
        listed(&pool, None, all(), "").await,
        "a/j@q: 1 requested 1 waiting 1 placed; a/j@r: 1 waiting; a/k@q: 1 finished; b/j@q: 1 waiting"
    );
    let started = 1_700_000_000_002;
    let rows = vec![
        of(1, "a", "j", "q", waits.clone()),
        of(2, "a", "j", "q", over(EndCause::Cancelled)),
        of(3, "a", "j", "q", on_node(Some(started), None)),
        of(4, "a", "j", "r", over(EndCause::NodeLost)),
        of(
            7,
            "a",
            "j",
            "q",
            AllocationState::Denied {
                refusal: refusal(),
                at: Millis(9),
            },
        ),
        of(8, "a", "j", "q", on_node(None, Some(Stop::ForGood))),
    ];
    apply(&pool, rows).await.unwrap();
    let own = "a/j@q: 1 waiting 1 running 1 stopping 1 cancelled 1 denied; a/j@r: 1 failed; a/k@q: 1 finished";
    assert_eq!(listed(&pool, Some("a"), all(), "").await, own);
    // Whose they are is not the cursor's matter.
    assert_eq!(listed(&pool, Some("a"), all(), "b").await, own);
    assert_eq!(listed(&pool, Some("b"), all(), "a j q").await, "");
    assert_eq!(listed(&pool, Some("c"), all(), "").await, "");

    let (own, one) = (token("a"), WantedJobSets { limit: 1, ..all() });
    let page = store::job_sets(&pool, Some(&own), &one, &Default::default()).await;
    let first = page.unwrap().found.remove(0);
    assert_eq!(first.first_requested, Millis(1_700_000_000_001));
    assert_eq!(first.last_change, Millis(1_700_000_000_108));

    let picky = |wanted| listed(&pool, Some("a"), wanted, "");
    let name_prefix = "k".to_owned();
    let wanted = WantedJobSets {
        name_prefix,
        ..all()
    };
    assert_eq!(picky(wanted).await, "a/k@q: 1 finished");
    let queue = Some(token("r"));
    assert_eq!(
        picky(WantedJobSets { queue, ..all() }).await,
        "a/j@r: 1 failed"
    );
    let standings = vec![Standing::Failed, Standing::Finished];
    let wanted = WantedJobSets { standings, ..all() };
    assert_eq!(picky(wanted).await, "a/j@r: 1 failed; a/k@q: 1 finished");
    let two = WantedJobSets { limit: 2, ..all() };
    let page = picky(two.clone()).await;
    assert!(page.ends_with("; after a j r"), "{page}");
    let page = listed(&pool, Some("a"), two, "a j r").await;
    assert_eq!(page, "a/k@q: 1 finished");
    scratch.close().await;
}

#[tokio::test]
async fn tenants_are_listed_with_what_they_have() {
    let scratch = ready("tenants").await;
    let pool = scratch.pool();
    let rows = vec![
        of(1, "a", "j", "q", queued(None, 1)),
        of(2, "a", "j", "q", on_node(None, None)),
        of(3, "a", "k", "q", on_node(Some(1_700_000_000_002), None)),
        of(4, "a", "k", "q", over(EndCause::Finished)),
    ];
    apply(&pool, rows).await.unwrap();
    let weight = SettingRow::TenantWeight {
        tenant: token("b"),
        weight_milli: 250,
        version: 3,
        at: Millis(1),
    };
    let queue = SettingRow::Queue {
        queue: token("shared"),
        settings: QueueSettings {
            tenants: vec![token("a"), token("b")],
            ..QueueSettings::default()
        },
        version: 1,
        at: Millis(1),
    };
    let changes = [weight, queue].map(|row| Change::Setting(Box::new(row)));
    apply_changes(&pool, changes.into()).await.unwrap();
    let check = async |prefix: &str, after: &str, limit, expected: &str| {
        let Listed { found, next } = store::tenants(&pool, prefix, after, limit).await.unwrap();
        let mut texts: Vec<String> = found
            .iter()
            .map(|one| {
                let counts = [
                    one.requested,
                    one.waiting,
                    one.placed,
                    one.running,
                    one.stopping,
                ];
                let (settings, queues) = (one.settings, one.queues.join(" "));
                format!(
                    "{} {settings:?} [{queues}] {counts:?} {:?}",
                    one.tenant, one.held
                )
            })
            .collect();
        texts.extend(next.map(|next| format!("after {next}")));
        assert_eq!(texts.join("; "), expected, "{prefix} {after}");
    };
    let a = "a None [shared] [0, 1, 1, 1, 0] [5000, 5, 0]";
    let b = "b Some((3, 250)) [shared] [0, 0, 0, 0, 0] [0, 0, 0]";
    check("", "", 10, &format!("{a}; {b}")).await;
    check("", "", 1, &format!("{a}; after a")).await;
    check("", "a", 1, b).await;
    check("b", "", 10, b).await;
    apply(
        &pool,
        vec![
            of(2, "a", "j", "q", on_node(None, Some(Stop::ForGood))),
            of(3, "a", "k", "q", over(EndCause::Failed)),
        ],
    )
    .await
    .unwrap();
    check("a", "", 10, "a None [shared] [0, 1, 0, 0, 1] [2000, 2, 0]").await;
    scratch.close().await;
}
