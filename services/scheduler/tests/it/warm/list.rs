//! Pages of what a tenant has, against a plain filter of the same rows.

use super::{CELL, apply_changes, ended, held, nominated, queued, ready, row, token, written};
use ledger::memory::Seeded;
use scheduler::{
    project::{AllocationRow, AllocationState},
    store::{self, Wanted},
};
use sqlx::PgPool;
use vocab::{AllocationId, Gang, Millis};

/// More than are looked at for one page.
const ROWS: u64 = 6000;
const QUERIES: usize = 100;
const STATES: [&str; 8] = [
    "requested",
    "awaiting_quota",
    "queued",
    "nominated",
    "placed",
    "running",
    "ended",
    "denied",
];

fn state(name: &str) -> AllocationState {
    match name {
        "requested" => AllocationState::Requested { refusal: None },
        "awaiting_quota" => AllocationState::Requested {
            refusal: Some(super::refusal()),
        },
        "queued" => queued(None, 5),
        "nominated" => nominated(),
        "placed" => held(None, None),
        "running" => held(None, Some(1_700_000_000_002)),
        "ended" => ended(Some(super::place(Some(1_700_000_000_002)))),
        _ => AllocationState::Denied {
            refusal: super::refusal(),
            at: Millis(9),
        },
    }
}

fn one_of<'a>(random: &mut Seeded, names: &[&'a str]) -> &'a str {
    names[random.below(names.len() as u64) as usize]
}

fn rows(random: &mut Seeded) -> Vec<AllocationRow> {
    let row = |no| {
        let mut row = row(no, 0, state(one_of(random, &STATES)));
        row.tenant = token(one_of(random, &["t", "t", "t", "other"]));
        row.requested_at = Millis(1_700_000_000_000 + no as i64);
        let mut spec = row.spec.whole();
        spec.name = Some(token(&format!("{}-{no}", one_of(random, &["a", "b"]))));
        spec.job_set = token(one_of(random, &["x", "y"]));
        spec.queue = random.chance(500).then(|| token("q"));
        let account = one_of(random, &["", "team", "team space"]);
        let (team, namespace) = account.split_once(' ').unwrap_or((account, ""));
        spec.team = (!team.is_empty()).then(|| token(team));
        spec.namespace = (!namespace.is_empty()).then(|| token(namespace));
        // Few: a page may have to look at many for one.
        spec.gang = random.chance(3).then(|| Gang {
            name: token("g"),
            size: 2,
            min: 1,
            uniform_label: None,
        });
        spec.priority_class = random.chance(300).then(|| token("urgent"));
        let label = |name, random: &mut Seeded| (token(name), token(one_of(random, &["1", "2"])));
        let named = ["grant", "model"].into_iter();
        let named: Vec<_> = named.filter(|_| random.chance(300)).collect();
        spec.labels = (named.into_iter())
            .map(|name| label(name, random))
            .collect();
        row.spec = spec.into();
        row
    };
    (1..=ROWS).map(row).collect()
}

fn wanted(random: &mut Seeded) -> Wanted {
    let mut some = |names: &[&str]| {
        let name = one_of(random, names).to_owned();
        random.chance(250).then_some(name)
    };
    let mut wanted = Wanted {
        queue: some(&["q", "t", "none"]),
        job_set: some(&["x", "y"]),
        team: some(&["team"]),
        namespace: some(&["space"]),
        node: some(&["node-1"]),
        gang: some(&["g"]),
        priority_class: some(&["urgent"]),
        name_prefix: some(&["a-", "b-59"]),
        ..Wanted::default()
    };
    for (name, value) in [("grant", Some("1")), ("model", None)] {
        if random.chance(150) {
            wanted.labels.push((token(name), value.map(token)));
        }
    }
    wanted.oldest_first = random.chance(500);
    let mut moment = || {
        let ms = 1_700_000_000_000 + random.below(ROWS) as i64;
        let moment = Millis(ms).try_into().unwrap();
        random.chance(200).then_some(moment)
    };
    (wanted.since, wanted.until) = (moment(), moment());
    let states = STATES.into_iter();
    wanted.states = states.filter(|_| random.chance(400)).collect();
    wanted.limit = [1000, 7, 300][random.below(3) as usize];
    wanted
}

/// What is asked for, by the rows alone.
fn fits(row: &AllocationRow, wanted: &Wanted) -> bool {
    let spec = row.spec.common();
    let is = |wanted: &Option<String>, has: Option<&vocab::Token>| {
        let has = has.map(vocab::Token::as_str);
        wanted.as_deref().is_none_or(|wanted| has == Some(wanted))
    };
    let name = row.spec.name().map_or("", vocab::Token::as_str);
    let prefix = wanted.name_prefix.as_deref().unwrap_or("");
    row.tenant.as_str() == "t"
        && wanted.states.contains(&row.state.name())
        && is(&wanted.queue, Some(row.queue()))
        && is(&wanted.job_set, Some(&spec.job_set))
        && is(&wanted.team, spec.team.as_ref())
        && is(&wanted.namespace, spec.namespace.as_ref())
        && is(&wanted.node, row.state.place().map(|place| &place.node))
        && is(&wanted.gang, spec.gang.as_ref().map(|gang| &gang.name))
        && is(&wanted.priority_class, spec.priority_class.as_ref())
        && wanted.labels.iter().all(|(name, value)| {
            let has = spec.labels.iter().find(|label| label.0 == *name);
            has.is_some_and(|has| value.as_ref().is_none_or(|value| has.1 == *value))
        })
        && name.starts_with(prefix)
        && (wanted.since).is_none_or(|since| row.requested_at >= since.into())
        && (wanted.until).is_none_or(|until| row.requested_at < until.into())
}

async fn all(pool: &PgPool, wanted: &Wanted) -> Vec<AllocationId> {
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let page = store::list(pool, &token("t"), wanted, before)
            .await
            .unwrap();
        assert!(page.allocations.len() <= wanted.limit as usize);
        found.extend(page.allocations.iter().map(|one| one.id));
        if page.next.is_none() {
            return found;
        }
        assert!(
            before.is_none_or(|before: AllocationId| match wanted.oldest_first {
                true => page.next > Some(before),
                false => page.next < Some(before),
            })
        );
        before = page.next;
    }
}

#[tokio::test]
async fn pages_have_all_that_is_asked_for_in_order_and_nothing_else() {
    let scratch = ready("alloc_list").await;
    let pool = scratch.pool();
    let mut random = Seeded::new(1);
    let rows = rows(&mut random);
    let changes = rows.iter().map(|row| written(row.clone(), None));
    apply_changes(&pool, changes.collect()).await.unwrap();
    let mut found_some = 0;
    for _ in 0..QUERIES {
        let wanted = wanted(&mut random);
        let expected = rows.iter().filter(|row| fits(row, &wanted));
        let mut expected: Vec<_> = expected.map(|row| row.allocation.id(CELL)).collect();
        if !wanted.oldest_first {
            expected.reverse();
        }
        assert_eq!(all(&pool, &wanted).await, expected, "{wanted:?}");
        found_some += usize::from(!expected.is_empty());
    }
    assert!(found_some > QUERIES / 3, "{found_some}");
    // What was requested too early is not gone through.
    let lately = Wanted {
        states: STATES.to_vec(),
        since: Some(
            Millis(1_700_000_000_000 + ROWS as i64 - 10)
                .try_into()
                .unwrap(),
        ),
        limit: 50,
        ..Wanted::default()
    };
    let page = store::list(&pool, &token("t"), &lately, None)
        .await
        .unwrap();
    assert!(
        !page.allocations.is_empty() && page.next.is_none(),
        "{:?}",
        page.next
    );
    scratch.close().await;
}
