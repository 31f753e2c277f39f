//! Events that do not fit the state: each is refused by name, and leaves the state as it was.

use super::{restored, token};
use crate::space::{Space, Unfit};
use ledger::{Chain, Snapshot};
use vocab::{
    LeaseNo, LeaseState as State, Refusal, ResourceAnswer as Answer, ResourceAsk as Ask, Rule,
    Slot, Token,
};

const X: LeaseNo = LeaseNo(2);

fn create(name: &str) -> Ask {
    Ask::Create {
        resource: token(name),
    }
}

fn acquire(names: &[&str]) -> Ask {
    Ask::Acquire {
        resources: names.iter().map(|name| token(name)).collect(),
        holder: token("ann"),
        ttl_slots: 5,
    }
}

fn confirm() -> (Ask, Answer) {
    let (holder, fencing_token) = (token("ann"), 1);
    let ask = Ask::Confirm {
        lease: X,
        holder,
        fencing_token,
    };
    (ask, Answer::Confirmed)
}

fn release(fencing_token: u64, retire_after: Slot) -> (Ask, Answer) {
    let ask = Ask::Release {
        lease: X,
        holder: token("ann"),
        fencing_token: 1,
    };
    let answer = Answer::Released {
        fencing_token,
        retire_after,
    };
    (ask, answer)
}

fn revoke(fencing_token: u64) -> (Ask, Answer) {
    (Ask::Revoke { lease: X }, Answer::Revoked { fencing_token })
}

fn reclaim(retire_after: Slot) -> (Ask, Answer) {
    let answer = Answer::Reclaimed { retire_after };
    (Ask::Reclaim { lease: X }, answer)
}

/// One resource `a`, and one lease of it in that state; five slots have gone by.
fn space(state: State) -> Space {
    let mut space = Space::default();
    let mut apply = |no, (ask, answer): (Ask, Answer)| {
        let fits = space.apply(LeaseNo(no), &ask, 5, &answer);
        assert_eq!(fits, Ok(()));
    };
    apply(1, (create("a"), Answer::Created));
    apply(X.0, (acquire(&["a"]), Answer::Granted { deadline: 10 }));
    match state {
        State::Granted | State::Expired => {}
        State::Confirmed => apply(3, confirm()),
        State::Revoking => [confirm(), revoke(2)]
            .into_iter()
            .for_each(|event| apply(3, event)),
        State::Released => apply(3, release(2, 20)),
        State::Revoked => [confirm(), revoke(2), reclaim(20)]
            .into_iter()
            .for_each(|event| apply(3, event)),
    }
    if state == State::Expired {
        assert_eq!(space.expire(X, 10, 20), Ok(()));
    }
    space
}

#[test]
fn each_state_takes_its_own_events_only() {
    let check = |state: State, expected: [bool; 5]| {
        let events = [confirm(), release(2, 20), revoke(2), reclaim(20)];
        let mut fits: Vec<_> = events
            .iter()
            .map(|(ask, answer)| {
                let mut space = space(state);
                let before = space.clone();
                let fits = space.apply(LeaseNo(9), ask, 11, answer);
                assert!(fits.is_ok() || space == before);
                fits.is_ok()
            })
            .collect();
        fits.push(space(state).expire(X, 11, 20).is_ok());
        assert_eq!(fits, expected, "{state:?}");
    };
    // confirm, release, revoke, reclaim, expire
    check(State::Granted, [true, true, false, false, true]);
    check(State::Confirmed, [false, true, true, false, false]);
    check(State::Revoking, [false, false, false, true, false]);
    check(State::Released, [false; 5]);
    check(State::Expired, [false; 5]);
    check(State::Revoked, [false; 5]);
}

#[test]
fn what_does_not_follow_is_refused() {
    let check = |state, no, slot, (ask, answer): (Ask, Answer), expected: Result<(), Unfit>| {
        let mut space = space(state);
        let before = space.clone();
        let fits = space.apply(LeaseNo(no), &ask, slot, &answer);
        assert_eq!((fits, space == before), (expected, expected.is_err()));
    };
    let granted = |names: &[&str], deadline| (acquire(names), Answer::Granted { deadline });
    let fencing_token = Err("the lease has another fencing token");
    check(State::Granted, 9, 5, release(1, 20), fencing_token);
    check(State::Confirmed, 9, 5, release(3, 20), fencing_token);
    check(State::Confirmed, 9, 5, revoke(1), fencing_token);
    let forgotten = Err("it would be forgotten before it has happened");
    check(State::Granted, 9, 5, release(2, 4), forgotten);
    check(State::Revoking, 9, 5, reclaim(4), forgotten);
    let back = Err("its slot lies before the latest");
    check(State::Granted, 9, 4, confirm(), back);
    let used = Err("its number was used before");
    check(State::Released, X.0, 6, granted(&["a"], 9), used);
    let early = Err("its deadline lies before it");
    check(State::Released, 9, 6, granted(&["a"], 5), early);
    let missing = Err("a member is not available");
    check(State::Granted, 9, 6, granted(&["a"], 9), missing);
    check(State::Released, 9, 6, granted(&["a", "a"], 9), missing);
    check(State::Released, 9, 6, granted(&["a", "b"], 9), missing);
    let exists = Err("the resource exists");
    check(State::Granted, 9, 6, (create("a"), Answer::Created), exists);
    let other = Err("it answers another ask");
    check(
        State::Granted,
        9,
        6,
        (create("b"), Answer::Confirmed),
        other,
    );
    check(State::Granted, 9, 6, (confirm().0, Answer::Created), other);
}

#[test]
fn an_expiry_before_its_deadline_does_not_fit() {
    let mut space = space(State::Granted);
    let early = Err("its deadline has not come");
    assert_eq!(space.expire(X, 9, 20), early);
    assert_eq!(space.expire(LeaseNo(1), 9, 20), Err("no such lease"));
    assert_eq!(space, self::space(State::Granted));
}

#[test]
fn a_retired_number_is_not_given_out_again() {
    let mut space = space(State::Released);
    let refused = |rule| Answer::Refused(Refusal::new(rule, ""));
    let exists = refused(Rule::AlreadyExists);
    assert_eq!(space.apply(LeaseNo(4), &create("a"), 21, &exists), Ok(()));
    assert_eq!(space.leases.len(), 0);
    let answer = Answer::Granted { deadline: 30 };
    let fits = space.apply(X, &acquire(&["a"]), 21, &answer);
    assert_eq!(fits, Err("its number was used before"));
}

/// Otherwise one request with the last slot would be the last request.
#[test]
fn a_slot_that_is_refused_is_not_seen() {
    for rule in [Rule::SlotOverflow, Rule::SlotBackwards] {
        let mut space = space(State::Granted);
        let answer = Answer::Refused(Refusal::new(rule, "slot"));
        let fits = space.apply(LeaseNo(9), &create("b"), Slot::MAX, &answer);
        assert_eq!((fits, space.slot()), (Ok(()), 5));
    }
}

#[test]
fn what_is_no_state_is_not_read() {
    type Stored<'a> = (Slot, Option<u64>, Vec<(&'a str, u64)>, Vec<(u64, Entry)>);
    type Entry = (State, Token, u64, Slot, Slot, Vec<u32>);
    let entry = |members: &[u32]| -> Entry {
        let members = members.to_vec();
        (State::Granted, token("ann"), 1, 9, Slot::MAX, members)
    };
    let check = |names: &[&'static str], entries: Vec<Entry>, expected: bool| {
        let names = names.iter().map(|name| (*name, 1)).collect();
        let stored: Stored = (5, None, names, (1..).zip(entries).collect());
        let read = Snapshot::of(1, Chain::default(), &stored).state::<Space>(1);
        assert_eq!(read.is_some(), expected);
        read.iter().for_each(|space| drop(restored(space)));
    };
    check(&["a", "b"], vec![entry(&[0]), entry(&[1])], true);
    check(&["a", "b"], vec![entry(&[0, 1])], true);
    check(&["a", "a"], vec![], false);
    check(&["a", "no token"], vec![], false);
    check(&["a", "b"], vec![entry(&[0]), entry(&[1, 0])], false);
    check(&["a", "b"], vec![entry(&[2])], false);
}
