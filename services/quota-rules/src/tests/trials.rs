//! What a trial says is what is decided when the same is asked at that moment, and it leaves nothing behind.

use super::{
    World,
    histories::History,
    properties::{for_all, history},
    words::{operation, token},
};
use crate::{Trial, WouldBe};
use std::sync::atomic::{AtomicU32, Ordering};
use vocab::fact::AllocationRequested;
use vocab::{
    Account, AllocationNo, AllocationSpec, Event, Gang, GpuRequest, QuotaFlags, Refusal, Rule,
    Token,
};

/// A number that no history comes to, for what is asked for real.
const NEXT: u64 = 1 << 31;

/// What becomes of it for real.
fn asked(world: &mut World, account: &Account, spec: &AllocationSpec) -> WouldBe {
    let size = spec.gang.as_ref().map_or(1, |gang| gang.size);
    for member in 0..u64::from(size) {
        let request = AllocationRequested {
            operation: operation(&account.tenant),
            spec: spec.clone(),
        };
        world.observe(NEXT + member, &Event::AllocationRequested(request));
    }
    let events = world.decide();
    let no = AllocationNo(NEXT);
    let taken_for_it =
        |event: &&Event| matches!(event, Event::QuotaReclaimed(fact) if fact.by == Some(no));
    let reclaims = events.iter().filter(taken_for_it).count();
    // Of a gang, what is decided when all of it has asked.
    let of_it = events.iter().rev().find_map(|event| match event {
        Event::QuotaReserved(fact) if fact.allocation == no => Some(WouldBe::Reserved {
            flags: fact.flags,
            except: fact
                .models
                .as_ref()
                .map_or(Vec::new(), |it| it.except.clone()),
        }),
        Event::QuotaDenied(fact) if fact.allocation == no => {
            Some(WouldBe::Denied(fact.refusal.clone()))
        }
        Event::QuotaWaiting(fact) if fact.allocation == no => Some(match fact.refusal.rule {
            Rule::DependencyPending => WouldBe::AwaitingOthers,
            _ => WouldBe::Waiting {
                refusal: fact.refusal.clone(),
                reclaims,
            },
        }),
        _ => None,
    });
    of_it.expect("it is decided")
}

fn tried(world: &mut World, account: &Account, spec: &AllocationSpec) -> Result<Trial, Refusal> {
    let before = world.state.clone();
    let trial = world.state.try_request(&account.tenant, spec, world.now);
    assert!(world.state == before, "a trial has left something behind");
    world.at_rest();
    trial
}

/// One of a tenant that is known or not, that asks for what others ask for or for names that nobody has.
fn request(history: &mut History, seed: u64) -> (Account, AllocationSpec) {
    let mut account = history.account();
    if seed.is_multiple_of(11) {
        account.tenant = token("nobody");
    }
    let mut spec = history.spec(&account);
    spec.gang = seed.is_multiple_of(3).then(|| gang(2 + (seed % 2) as u32));
    if seed.is_multiple_of(5) {
        spec.extended.push((token("unheard"), 1));
    }
    if seed.is_multiple_of(7) {
        spec.gpu = Some(GpuRequest {
            count: 1,
            milli: 500,
            models: vec![token("T4"), token("unheard"), token("unseen")],
        });
    }
    if seed.is_multiple_of(13) {
        (spec.cpu_milli, spec.memory_bytes) = (0, 0);
    }
    (account, spec)
}

fn gang(size: u32) -> Gang {
    Gang {
        name: token("unformed"),
        size,
        min: size,
        uniform_label: None,
    }
}

#[test]
fn a_trial_is_what_is_decided_and_leaves_nothing() {
    let seen = std::sync::Mutex::new([[0u32; 5]; 2]);
    let lenders = AtomicU32::new(0);
    for_all(|seed| {
        let mut history = history(seed);
        let (account, spec) = request(&mut history, seed);
        let world = &mut history.world;
        let trial = tried(world, &account, &spec).expect("it is judged");
        let decided = asked(world, &account, &spec);
        assert_eq!(trial.decided, decided, "{account} {spec:?}");
        check_lent(world, &trial);
        lenders.fetch_add(u32::from(trial.lent.is_some()), Ordering::Relaxed);
        let kind = match decided {
            WouldBe::Reserved { .. } => 0,
            WouldBe::Waiting { reclaims: 0, .. } => 1,
            WouldBe::Waiting { .. } => 2,
            WouldBe::Denied(_) => 3,
            WouldBe::AwaitingOthers => 4,
        };
        seen.lock().unwrap()[usize::from(spec.gang.is_some())][kind] += 1;
    });
    let seen = seen.into_inner().unwrap();
    let often = |seen: &[u32; 5]| seen.iter().all(|times| *times > 5);
    assert!(seen.iter().all(often), "{seen:?}");
    let lenders = lenders.into_inner();
    assert!(lenders > 5, "{lenders}");
}

/// Asserts that lent quota explains a limit below the tenant's own.
fn check_lent(world: &World, trial: &Trial) {
    let refusal = match &trial.decided {
        WouldBe::Waiting { refusal, .. } | WouldBe::Denied(refusal) => refusal,
        WouldBe::Reserved { .. } | WouldBe::AwaitingOthers => return,
    };
    let of_tenant = trial.limits.iter().find(|limit| {
        let subject = format!("{} {}", limit.account, limit.resource);
        limit.account.team.is_none() && subject == refusal.subject
    });
    let Some(limit) = of_tenant else {
        return;
    };
    let is_less = refusal.rule == Rule::QuotaExceeded && refusal.limit < limit.limits.hard;
    if is_less && trial.cohort.is_some() && refusal.limit < limit.held + limit.asked {
        let lent = trial.lent.as_ref();
        assert!(lent.is_some(), "{refusal} of {}", limit.limits.hard);
    }
    if let Some(lent) = &trial.lent {
        let tenant = &limit.account.tenant;
        assert!((1..=lent.limit).contains(&lent.lent), "{lent:?}");
        assert!(!lent.borrowers.contains(tenant), "{lent:?}");
        for borrower in &lent.borrowers {
            let account = Account::tenant(borrower.clone());
            let holding = world.state.holding(&account, &lent.resource);
            let hard = holding.limits.map_or(0, |limits| limits.hard);
            assert!(holding.held() > hard, "{lent:?}");
        }
    }
}

/// Returns the lent part of the tenant's limit while the allocation waits.
pub(super) fn lent(world: &World, tenant: &str, no: u64) -> String {
    let trial = world
        .state
        .try_waiting(&token(tenant), AllocationNo(no), world.now);
    let trial = match trial {
        Ok(trial) => trial,
        Err(refusal) => return refusal.to_string(),
    };
    let Some(lent) = trial.lent else {
        return "nothing".to_owned();
    };
    let borrowers: Vec<&str> = lent.borrowers.iter().map(Token::as_str).collect();
    let own = if lent.own { "own" } else { "beyond" };
    format!(
        "{} of {} {} by {}, {} returning, {} {own}",
        lent.lent,
        lent.limit,
        lent.resource,
        borrowers.join(" "),
        lent.returning,
        lent.reclaim.name()
    )
}

#[test]
fn a_lender_that_waits_sees_what_it_has_lent_and_why_it_is_not_taken_back() {
    super::check(
        "tenant a cohort=c wait, tenant b cohort=c, tenant d cohort=c, limit a cpu 4, limit b cpu 0, limit d cpu 0
         ask 1 b cpu=3 prio=5, ask 2 d cpu=1 prio=5 => 1 reserved borrowed; 2 reserved borrowed
         ask 3 a cpu=4 => 3 waits quota exceeded: a cpu (limit 0, actual 4); 2 reclaimed by 3; 1 reclaimed by 3
         ? lent a 3 => 4 of 4 cpu by b d, 4 returning, any own
         ? lent b 3 => allocation not found: allocation_id
         ? lent b 1 => allocation not found: allocation_id
         end 1 => 1 released
         ? lent a 3 => 1 of 4 cpu by d, 1 returning, any own
         end 2 => 2 released; 3 reserved
         ? lent a 3 => allocation not found: allocation_id",
    );
    let priority = |reclaim: &str, expected: &str| {
        super::check(&format!(
            "tenant a cohort=c wait {reclaim}, tenant b cohort=c, limit a cpu 4, limit b cpu 0
             ask 1 b cpu=3 prio=5 => 1 reserved borrowed
             ask 3 a cpu=4 => 3 waits quota exceeded: a cpu (limit 1, actual 4)
             ? lent a 3 => 3 of 4 cpu by b, 0 returning, {expected}"
        ));
    };
    priority("lower", "lower_priority own");
    priority("never", "never own");
    // A tenant that borrows itself and asks for more has no right to it.
    super::check(
        "tenant a cohort=c wait, tenant b cohort=c, limit a cpu 4, limit b cpu 2
         ask 1 b cpu=4 => 1 reserved borrowed
         ask 2 a cpu=5 => 2 waits quota exceeded: a cpu (limit 2, actual 5)
         ? lent a 2 => 2 of 4 cpu by b, 0 returning, any beyond",
    );
}

fn world(steps: &str) -> World {
    let mut world = World::new();
    for step in steps.split(", ") {
        super::step_on(&mut world, step);
    }
    world.decide();
    world
}

fn cpu(milli: u64) -> AllocationSpec {
    AllocationSpec::plain(token("j"), milli, 0)
}

#[test]
fn a_trial_says_which_limit_of_which_account_and_how_much_of_it_is_held() {
    let mut world = world("limit t cpu 10 soft=5, limit t/x cpu 6, ask 1 t/x cpu=4");
    let account = Account::parse("t/x").unwrap();
    let spec = |milli| AllocationSpec {
        team: Some(token("x")),
        ..cpu(milli)
    };
    let trial = tried(&mut world, &account, &spec(2)).unwrap();
    let flags = QuotaFlags::SOFT;
    let reserved = WouldBe::Reserved {
        flags,
        except: Vec::new(),
    };
    assert_eq!(trial.decided, reserved);
    let said: Vec<_> = trial
        .limits
        .iter()
        .map(|it| {
            let of = format!("{} {}", it.account, it.resource);
            (of, it.asked, it.held, it.limits.hard, it.flags)
        })
        .collect();
    let none = QuotaFlags::default();
    let expected = [
        ("t/x cpu".to_owned(), 2, 4, 6, Some(none)),
        ("t cpu".to_owned(), 2, 4, 10, Some(flags)),
    ];
    assert_eq!(said, expected);
    let trial = tried(&mut world, &account, &spec(3)).unwrap();
    let over = Refusal::over(Rule::QuotaExceeded, "t/x cpu", 6, 7);
    assert_eq!(trial.decided, WouldBe::Denied(over));
    assert_eq!(trial.limits[0].flags, None);
}

#[test]
fn of_a_gang_all_members_are_judged_at_once() {
    let mut world = world("limit t cpu 10");
    let account = Account::parse("t").unwrap();
    let mut check = |size, expected: Result<u64, Refusal>| {
        let spec = AllocationSpec {
            gang: Some(gang(size)),
            ..cpu(3)
        };
        let trial = tried(&mut world, &account, &spec);
        let said = trial.and_then(|trial| match trial.decided {
            WouldBe::Reserved { .. } => Ok(trial.limits[0].asked),
            WouldBe::Denied(refusal) => Err(refusal),
            other => panic!("{other:?}"),
        });
        assert_eq!(said, expected, "{size}");
    };
    check(1, Ok(3));
    check(3, Ok(9));
    let over = Refusal::over(Rule::QuotaNeverFits, "t cpu", 10, 12);
    check(4, Err(over));
    // Whoever asks past the inbox may say any size.
    let wrong = |size: u32| Refusal::over(Rule::GangInvalid, "gang", 1024, size.into());
    check(0, Err(wrong(0)));
    check(u32::MAX, Err(wrong(u32::MAX)));
}
