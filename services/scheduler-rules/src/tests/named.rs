//! Named resources through the decider, with the bounds and rows of conformance table A. Each line is what a tenant asks
//! at a slot, and all that is decided then:
//!
//! ```text
//! 3 acquire x ann 5 a b -> until 8
//! 9 confirm x ann 1     -> confirmed
//! 9 show x              -> confirmed by ann, fencing_token 1: a b
//! ```

use super::*;
use vocab::fact::{LeaseExpired, LimitsInForce, QuotaSet, ResourceAsked, ResourceDecided};
use vocab::{
    Account, Event, LeaseNo, Limits, QuotaResource, ResourceAnswer, ResourceAsk, Validity,
};

struct Desk {
    w: World,
    numbers: BTreeMap<String, LeaseNo>,
}

fn small() -> Config {
    Config {
        leases: Bounds {
            resources_max: 4,
            leases_max: 4,
            bundle_max: 3,
            ttl_slots_max: 16,
            history_slots: 4,
            expirations_per_slot_max: 2,
        },
        slot_ms: 0,
    }
}

impl Desk {
    fn new(config: Config) -> Self {
        let w = World {
            config,
            ..World::new()
        };
        Self {
            w,
            numbers: BTreeMap::new(),
        }
    }

    fn ask(&mut self, tenant: &str, text: &str) {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let lease = |at: usize| {
            self.numbers
                .get(words[at])
                .copied()
                .unwrap_or_else(|| LeaseNo(number(words[at])))
        };
        let ask = match words[1] {
            "create" => ResourceAsk::Create {
                resource: token(words[2]),
            },
            "acquire" => ResourceAsk::Acquire {
                resources: words[5..].iter().map(|name| token(name)).collect(),
                holder: token(words[3]),
                ttl_slots: number(words[4]),
            },
            "confirm" => ResourceAsk::Confirm {
                lease: lease(2),
                holder: token(words[3]),
                fencing_token: number(words[4]),
            },
            "release" => ResourceAsk::Release {
                lease: lease(2),
                holder: token(words[3]),
                fencing_token: number(words[4]),
            },
            "revoke" => ResourceAsk::Revoke { lease: lease(2) },
            "reclaim" => ResourceAsk::Reclaim { lease: lease(2) },
            other => panic!("{other}"),
        };
        self.w.observe(Event::ResourceAsked(ResourceAsked {
            operation: operation(tenant),
            slot: number(words[0]),
            by_requests: self.w.config.slot_ms == 0,
            ask,
        }));
        if words[1] == "acquire" {
            // It is the next that is decided, if it is granted.
            let next = LeaseNo(self.w.next_own);
            self.numbers.insert(words[2].to_owned(), next);
        }
    }

    /// All that is decided now, as the next leader would go on with it.
    fn decide(&mut self) -> String {
        self.w.state = again(&self.w.state);
        let said: Vec<_> = self
            .w
            .decide()
            .iter()
            .map(|event| self.words(event))
            .collect();
        said.join(", ")
    }

    fn words(&self, event: &Event) -> String {
        match event {
            Event::ResourceDecided(ResourceDecided { answer, .. }) => match answer {
                ResourceAnswer::Created => "created".into(),
                ResourceAnswer::Granted { deadline } => format!("until {deadline}"),
                ResourceAnswer::Confirmed => "confirmed".into(),
                ResourceAnswer::Released {
                    fencing_token,
                    retire_after,
                } => format!("released fencing_token {fencing_token} through {retire_after}"),
                ResourceAnswer::Revoked { fencing_token } => {
                    format!("revoked fencing_token {fencing_token}")
                }
                ResourceAnswer::Reclaimed { retire_after } => {
                    format!("reclaimed through {retire_after}")
                }
                ResourceAnswer::Refused(refusal) => refusal.rule.name().into(),
            },
            Event::LeaseExpired(LeaseExpired {
                lease,
                slot,
                fencing_token,
                retire_after,
                ..
            }) => {
                let name = self.numbers.iter().find(|(_, no)| *no == lease);
                let name = name.map_or("?", |(name, _)| name);
                format!(
                    "{name} expired at {slot} fencing_token {fencing_token} through {retire_after}"
                )
            }
            other => format!("{other:?}"),
        }
    }

    fn show(&self, tenant: &str, slot: u64, name: &str) -> String {
        let tenant = token(tenant);
        let resource = self.w.state.resource(&tenant, &token(name));
        if let Some(resource) = resource {
            return format!("{:?} v{}", resource.state, resource.version).to_lowercase();
        }
        let no = match self.numbers.get(name) {
            Some(no) => *no,
            None => LeaseNo(name.parse().expect("a number")),
        };
        match self.w.state.lease(&tenant, no, slot) {
            Err(refusal) => refusal.rule.name().into(),
            Ok(found) => {
                let members: Vec<_> = found.resources.iter().map(Token::as_str).collect();
                let (state, holder) = (found.state.name(), &found.holder);
                let members = members.join(" ");
                format!(
                    "{state} by {holder}, fencing_token {}: {members}",
                    found.fencing_token
                )
            }
        }
    }

    fn check(&mut self, tenant: &str, lines: &str) {
        let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
        for line in lines {
            let (asked, expected) = line.split_once("->").expect("ask -> answer");
            let words: Vec<&str> = asked.split_whitespace().collect();
            let found = if words[1] == "show" {
                self.show(tenant, words[0].parse().expect("a slot"), words[2])
            } else {
                self.ask(tenant, asked);
                self.decide()
            };
            assert_eq!(found, expected.trim(), "{line}");
        }
    }
}

/// Four resources are there.
fn check_four(lines: &str) -> Desk {
    let mut desk = Desk::new(small());
    for name in ["a", "b", "c", "d"] {
        desk.check("t", &format!("0 create {name} -> created"));
    }
    desk.check("t", lines);
    desk
}

#[test]
fn row_1_what_is_there_already_and_a_full_table() {
    check_four(
        "0 show a    -> available v0
         0 create a  -> already_exists
         0 create e  -> resource_table_full",
    );
}

#[test]
fn row_2_the_time_to_live_comes_first() {
    check_four(
        "3 acquire x ann 0 a    -> ttl_out_of_range
         3 acquire x ann 17 a   -> ttl_out_of_range
         3 acquire x ann 0 e    -> ttl_out_of_range
         3 acquire x ann 16 a   -> until 19",
    );
}

#[test]
fn row_3_the_resource_comes_before_the_table() {
    let mut config = small();
    config.leases.resources_max = 5;
    let mut desk = Desk::new(config);
    for name in ["a", "b", "c", "d", "e"] {
        desk.check("t", &format!("0 create {name} -> created"));
    }
    desk.check(
        "t",
        "0 acquire w ann 1 a  -> until 1
         0 acquire x ann 2 b  -> until 2
         0 acquire y ann 3 c  -> until 3
         0 acquire z ann 4 d  -> until 4
         0 acquire q ann 5 f  -> resource_not_found
         0 acquire q ann 5 a  -> resource_busy
         0 acquire q ann 5 e  -> lease_table_full",
    );
}

#[test]
fn row_4_a_deadline_is_for_so_many() {
    check_four(
        "0 acquire x ann 5 a  -> until 5
         0 acquire y ann 5 b  -> until 5
         0 acquire z ann 5 c  -> expiration_index_full
         0 acquire z ann 6 c  -> until 6",
    );
}

#[test]
fn row_5_history_holds_its_place() {
    check_four(
        "0 acquire w ann 16 a  -> until 16
         0 acquire x ann 16 b  -> until 16
         0 acquire y ann 15 c  -> until 15
         0 acquire z ann 15 d  -> until 15
         2 release w ann 1     -> released fencing_token 2 through 6
         6 acquire q bob 9 a   -> lease_table_full
         7 acquire q bob 9 a   -> until 16",
    );
}

#[test]
fn row_6_all_of_a_bundle_or_none() {
    check_four(
        "0 acquire x ann 5           -> bundle_too_large
         0 acquire x ann 5 a b c d   -> bundle_too_large
         0 acquire x ann 5 b b       -> resource_busy
         0 acquire y ann 5 d         -> until 5
         0 acquire x ann 5 b e d     -> resource_not_found
         0 acquire x ann 5 b d e     -> resource_busy
         0 show b                    -> available v0
         0 acquire x ann 6 b a       -> until 6
         0 show x                    -> granted by ann, fencing_token 1: b a
         0 show b                    -> granted v1",
    );
}

#[test]
fn row_7_who_may_confirm() {
    check_four(
        "0 acquire x ann 2 a  -> until 2
         0 confirm x bob 1    -> holder_mismatch
         0 confirm x bob 7    -> holder_mismatch
         0 confirm x ann 2    -> stale_fencing_token
         3 confirm x ann 1    -> confirmed
         3 confirm x ann 1    -> invalid_state",
    );
}

#[test]
fn row_8_only_what_is_granted_expires() {
    check_four(
        "0 acquire w ann 2 a   -> until 2
         0 confirm w ann 1     -> confirmed
         0 acquire x ann 2 b   -> until 2
         0 release x ann 1     -> released fencing_token 2 through 4
         0 acquire y ann 2 c   -> until 2
         0 acquire z ann 3 d   -> until 3
         1 revoke w            -> revoked fencing_token 2
         2 create a            -> already_exists, y expired at 2 fencing_token 2 through 6
         2 confirm y ann 1     -> stale_fencing_token
         2 confirm y ann 2     -> invalid_state
         5 acquire q bob 1 c   -> until 6, z expired at 5 fencing_token 2 through 9
         9 show z              -> expired by ann, fencing_token 2: d
         10 show z             -> lease_retired
         10 show w              -> revoking by ann, fencing_token 2: a",
    );
}

#[test]
fn row_9_the_old_holder_comes_too_late() {
    check_four(
        "0 acquire x ann 9 a  -> until 9
         1 release x ann 1    -> released fencing_token 2 through 5
         1 acquire y bob 9 a  -> until 10
         1 confirm x ann 1    -> stale_fencing_token
         1 show y             -> granted by bob, fencing_token 1: a",
    );
}

#[test]
fn row_10_revoke_blocks_and_reclaim_frees() {
    check_four(
        "0 acquire x ann 9 a  -> until 9
         0 revoke x           -> invalid_state
         0 confirm x ann 1    -> confirmed
         0 reclaim x          -> invalid_state
         1 revoke x           -> revoked fencing_token 2
         1 acquire y bob 9 a  -> resource_busy
         1 reclaim x          -> reclaimed through 5
         1 show a             -> available v4
         1 show x             -> revoked by ann, fencing_token 2: a",
    );
}

#[test]
fn row_14_what_has_ended_is_remembered_for_so_long() {
    check_four(
        "0 acquire x ann 9 a     -> until 9
         1 release x ann 1       -> released fencing_token 2 through 5
         5 show x                -> released by ann, fencing_token 2: a
         6 show x                -> lease_retired
         6 create a              -> already_exists
         6 show x                -> lease_retired
         6 show 1                -> lease_retired
         6 show 4000             -> lease_not_found
         6 confirm x ann 2       -> lease_retired
         6 confirm 4000 ann 2    -> lease_not_found",
    );
}

#[test]
fn tenants_share_nothing() {
    let mut desk = check_four("0 acquire x ann 9 a -> until 9");
    desk.check(
        "u",
        "0 show x             -> lease_not_found
         0 acquire y ann 9 a  -> resource_not_found
         0 confirm x ann 1    -> lease_not_found
         0 create a           -> created
         0 acquire y ann 9 a  -> until 9",
    );
    desk.check("t", "0 show x -> granted by ann, fencing_token 1: a");
}

#[test]
fn what_comes_together_is_decided_as_if_it_came_one_by_one() {
    let asked = [
        "0 create a",
        "0 create b",
        "0 acquire x ann 2 a",
        "0 acquire y ann 2 b",
        "5 acquire z bob 3 a",
        "6 acquire z bob 3 a",
        "7 confirm y ann 1",
        "9 acquire q ann 1 b",
        "9 acquire r ann 1 a",
        "9 create a",
    ];
    let one_by_one = |desk: &mut Desk| {
        asked
            .map(|asked| {
                desk.ask("t", asked);
                desk.decide()
            })
            .join(", ")
    };
    let together = |desk: &mut Desk| {
        asked.iter().for_each(|asked| desk.ask("t", asked));
        desk.decide()
    };
    let (mut first, mut second) = (Desk::new(small()), Desk::new(small()));
    let (one_by_one, together) = (one_by_one(&mut first), together(&mut second));
    assert_eq!(one_by_one.split(", ").count(), 13);
    assert_eq!(first.w.state, second.w.state);
    assert!(together.contains("expired at 5"), "{together}");
}

#[test]
fn by_the_clock_it_expires_late_or_on_time_and_never_early() {
    let config = Config {
        slot_ms: 1000,
        ..small()
    };
    let mut desk = Desk::new(config);
    // The world's clock begins at slot 1000.
    desk.check(
        "t",
        "1000 create a           -> created
         1000 acquire x ann 2 a  -> until 1002
         1000 create b           -> created
         1000 acquire y ann 3 b  -> until 1003
         1000 confirm y ann 1    -> confirmed",
    );
    // The deadline of `y` does not matter any more.
    assert_eq!(desk.w.state.wake_at(), Some(Millis(1_002_000)));
    // Admission's clock is ahead: what it says does not let anything expire.
    desk.check("t", "1005 create b -> already_exists");
    desk.w.now = Millis(1_001_998);
    assert_eq!(desk.decide(), "");
    assert_eq!(
        desk.decide(),
        "x expired at 1005 fencing_token 2 through 1009"
    );
    assert_eq!(desk.w.decide(), []);
    assert_eq!(desk.w.state.wake_at(), None);
    // Admission's clock is behind.
    desk.w.now = Millis(1_020_000);
    desk.check(
        "t",
        "1019 acquire z ann 1 a -> until 1020, z expired at 1020 fencing_token 2 through 1024",
    );
    desk.check("t", "1019 acquire z ann 1 a -> until 1021");
}

#[test]
fn a_tenants_limit_is_of_live_leases() {
    let limit = |account: &str, hard: Option<u64>, validity| {
        AdminChange::Quota(QuotaSet {
            account: Account::parse(account).unwrap(),
            resource: QuotaResource::Leases,
            limits: hard.map(Limits::hard),
            validity,
        })
    };
    let mut desk = check_four("0 acquire x ann 9 a -> until 9");
    let later = Validity {
        from: Some(Millis(2_000_000)),
        until: None,
    };
    desk.w.admin(limit("t", Some(1), Validity::default()));
    desk.w.admin(limit("t/team", Some(0), Validity::default()));
    desk.w.admin(limit("t", Some(3), later));
    desk.check("t", "0 acquire y ann 9 b -> quota_exceeded");
    desk.check("t", "0 acquire y ann 9 a -> resource_busy");
    desk.w.observe(Event::LimitsInForce(LimitsInForce {
        account: Account::parse("t").unwrap(),
        resource: QuotaResource::Leases,
        limits: Some(Limits::hard(3)),
    }));
    desk.check("t", "0 acquire y ann 9 b -> until 9");
    desk.w.admin(limit("t", None, Validity::default()));
    desk.check("t", "0 acquire z ann 8 c -> until 8");
    desk.check("t", "0 acquire q ann 8 d -> until 8");
}

#[test]
fn many_expire_in_several_frames() {
    let mut desk = Desk::new(Config {
        leases: Bounds::default(),
        slot_ms: 0,
    });
    const ALL: u64 = 60_000;
    for no in 0..ALL {
        desk.ask("t", &format!("0 create r{no}"));
        desk.ask("t", &format!("0 acquire x{no} ann 2 r{no}"));
    }
    let mut frames = 0;
    while !desk.w.decide().is_empty() {
        frames += 1;
    }
    assert!(frames > 1);
    desk.ask("t", "2 create a");
    desk.ask("t", "2 acquire again ann 2 r0");
    let (mut expired, mut frames) = (0, 0);
    loop {
        desk.w.state = again(&desk.w.state);
        let events = desk.w.decide();
        if events.is_empty() {
            break;
        }
        frames += 1;
        let expiries = events
            .iter()
            .filter(|event| matches!(event, Event::LeaseExpired(_)));
        expired += expiries.count() as u64;
    }
    assert!(frames > 1);
    assert_eq!(expired, ALL);
    let busy = desk.show("t", 2, "r0");
    assert_eq!(busy, "granted v3");
}

#[test]
fn an_answer_to_another_request_is_illegal() {
    let mut desk = check_four("0 show a -> available v0");
    desk.ask("t", "0 create a");
    let at = At {
        lsn: Lsn(0),
        index: 0,
        no: EventNo(99),
        now: desk.w.now,
    };
    let event = Event::ResourceDecided(ResourceDecided {
        request: EventNo(1),
        answer: ResourceAnswer::Created,
    });
    assert!(desk.w.state.clone().evolve_event(&at, &event).is_err());
    let expired = Event::LeaseExpired(LeaseExpired {
        tenant: token("t"),
        lease: LeaseNo(1),
        slot: 3,
        fencing_token: 2,
        retire_after: 7,
    });
    assert!(desk.w.state.clone().evolve_event(&at, &expired).is_err());
}
