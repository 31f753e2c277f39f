//! The states that snapshots keep, of one recorded ledger: as they were, or upgraded from what they were.
//!
//! `schemas/golden/ledger` is a simulated cell's ledger, and `schemas/golden/states` has what each decider and each projection
//! made of it, by its version. A state that is another one now must have another version, and the state of the version before
//! must be upgraded to it: a service that starts with an older snapshot then has what a fold of the whole ledger would give.

use admission::feed::Feed;
use admission_rules::Admission;
use analytics::domain::Usage;
use ledger::{
    Chain, Decider, LedgerId, Projection, Record, Replica, Snapshot, Upgrade, state_digest,
};
use ledger_nats::Copy;
use node_heartbeat_rules::Nodes;
use proof::simulate::run_seed;
use quota_rules::Quota;
use scheduler_rules::Scheduler;
use serde::{Serialize, de::DeserializeOwned};
use std::{collections::BTreeSet, env, fs, path::PathBuf};
use vocab::{EventKind, Kinds, Lsn, fact::Inputs};

const LEDGER: LedgerId = LedgerId(1);
const SUFFIX: &str = "snapshot";
/// States of which a version before the current one is kept. It never falls: files are added, never removed.
const UPGRADED_MIN: usize = 6;

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../schemas/golden")
}

fn writes() -> bool {
    env::var_os("APPORTION_WRITE").is_some()
}

fn records() -> Vec<Record> {
    let copy = Copy::read(&golden().join("ledger")).expect("the recorded ledger holds together");
    let mut records = Vec::new();
    copy.each(Lsn(1), |record, _| records.push(record.clone()))
        .expect("it has just been read");
    records
}

/// Two thirds of the records, so that something is still under way, and how many kinds of events they have. At their end the
/// simulation has had the bus lose some.
fn beginning(mut records: Vec<Record>) -> (usize, Vec<Record>) {
    records.truncate(records.len() * 2 / 3);
    let mut chain = Chain::default();
    let mut kinds: BTreeSet<EventKind> = BTreeSet::new();
    let holds = |record: &Record| {
        let frame = chain.accept(record, Kinds::ALL).ok().flatten();
        let events = frame.iter().flat_map(|frame| frame.placed());
        kinds.extend(events.map(|(_, event)| event.kind()));
        frame.is_some()
    };
    let records = records.into_iter().take_while(holds).collect();
    (kinds.len(), records)
}

/// A simulated cell in which as much as possible happens; written once.
fn write_ledger() {
    let outcomes = (1..=400).map(run_seed);
    let short = outcomes.filter(|outcome| outcome.violation.is_none() && outcome.events < 1500);
    let richest = short
        .map(|outcome| beginning(outcome.ledger))
        .max_by_key(|(kinds, _)| *kinds);
    let (_, records) = richest.expect("some seeds are short");
    let dir = golden().join("ledger");
    let mut copy = Copy::open(&dir).expect("a new copy");
    for record in &records {
        copy.append(record).expect("it is written");
    }
    copy.sync().expect("it is written");
    drop(copy);
    fs::remove_file(dir.join("lock")).expect("nobody else writes");
}

/// Checks that the state, taken at the end of `chain`, is the one in the file of its version, and that the one in the file of
/// the version before is upgraded to it. Returns whether there is a version before.
fn check<S: Serialize + DeserializeOwned>(
    name: &str,
    version: u32,
    upgrade: Upgrade<S>,
    state: &S,
    chain: Chain,
) -> Result<bool, String> {
    let states = golden().join("states");
    let file = |version: u32| states.join(format!("{name}.{version}.{SUFFIX}"));
    let bytes = Snapshot::of(version, chain, state).to_bytes(LEDGER);
    match fs::read(file(version)) {
        Ok(known) if known == bytes => {}
        Ok(_) => {
            return Err(format!(
                "{name}: the state is not what version {version} was: raise STATE_VERSION and write its `upgrade`"
            ));
        }
        Err(_) if writes() => {
            fs::create_dir_all(&states).map_err(|error| error.to_string())?;
            fs::write(file(version), &bytes).map_err(|error| error.to_string())?;
        }
        Err(error) => return Err(format!("{name}: {error}: run this with APPORTION_WRITE=1")),
    }
    let Ok(before) = fs::read(file(version - 1)) else {
        return Ok(false);
    };
    let before = Snapshot::from_bytes(&before, LEDGER).ok_or("a damaged file")?;
    let upgraded = before.upgraded(version, upgrade);
    match upgraded.as_ref().map(state_digest) == Some(state_digest(state)) {
        true => Ok(true),
        false => Err(format!(
            "{name}: the state of version {} is not upgraded to the one that a fold gives",
            version - 1
        )),
    }
}

fn decider<D: Decider>(records: &[Record]) -> Result<bool, String> {
    let mut replica = Replica::<D>::default();
    for record in records {
        let received = replica.receive(record);
        received.map_err(|error| error.to_string())?;
    }
    // As of the decider's last frame; a snapshot of it is restored by the leader in the same way.
    let snapshot = replica.snapshot();
    let (name, version) = (D::WRITER.name(), D::STATE_VERSION);
    check(name, version, D::upgrade, replica.state(), snapshot.chain)
}

fn projection<P: Projection>(records: &[Record]) -> Result<bool, String> {
    let (mut state, mut chain) = (P::default(), Chain::default());
    let mut changes = Vec::new();
    for record in records {
        let frame = chain.accept(record, P::Input::KINDS);
        let frame = frame.map_err(|error| error.to_string())?;
        if let Some(frame) = frame {
            let taken = state.take(&frame, &mut changes);
            taken.map_err(|error| error.to_string())?;
        }
    }
    state.end_batch(&mut changes);
    let name = format!("{}-rows", P::NAME);
    check(&name, P::STATE_VERSION, P::upgrade, &state, chain)
}

#[test]
fn a_state_of_the_version_before_is_upgraded_to_what_a_fold_gives() {
    if writes() && !golden().join("ledger").exists() {
        write_ledger();
    }
    let records = records();
    let found = [
        decider::<Admission>(&records),
        decider::<Quota>(&records),
        decider::<Scheduler>(&records),
        decider::<Nodes>(&records),
        projection::<admission::project::WarmProjection>(&records),
        projection::<Feed>(&records),
        projection::<quota::project::WarmProjection>(&records),
        projection::<scheduler::project::WarmProjection>(&records),
        projection::<node_heartbeat::project::WarmProjection>(&records),
        projection::<Usage>(&records),
    ];
    let upgraded = found.iter().filter(|it| **it == Ok(true)).count();
    let wrong: Vec<String> = found.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(
        upgraded >= UPGRADED_MIN,
        "{upgraded} states were upgraded, at least {UPGRADED_MIN} must be: schemas/golden/states lacks files of versions \
         before"
    );
}
