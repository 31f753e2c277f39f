//! What is closed accepts nothing new, and lets go on what it has accepted.

use super::*;

fn tenant(closed: bool) -> ChangeRequest {
    ChangeRequest::SetTenant(TenantRequest {
        tenant: "a".into(),
        rate_milli: Some(0),
        closed,
        ..TenantRequest::default()
    })
}

fn queue(name: &str, closed: bool) -> ChangeRequest {
    ChangeRequest::SetQueue(QueueRequest {
        queue: name.into(),
        tenants: vec!["a".into()],
        closed,
        ..QueueRequest::default()
    })
}

fn class(closed: bool) -> ChangeRequest {
    ChangeRequest::SetPriorityClass(ClassRequest {
        class: "c".into(),
        closed,
        ..ClassRequest::default()
    })
}

fn resource(name: &str) -> ResourceRequest {
    ResourceRequest::CreateResource {
        resource: name.into(),
        slot: None,
    }
}

fn acquire(name: &str) -> ResourceRequest {
    ResourceRequest::Acquire {
        resource: name.into(),
        holder: "h".into(),
        ttl_slots: 5,
        slot: None,
    }
}

fn release() -> ResourceRequest {
    ResourceRequest::Release {
        lease_id: id(9),
        holder: "h".into(),
        fencing_token: 1,
        slot: None,
    }
}

/// Time counts the slots.
fn table() -> Table {
    let mut t = Table::new().roomy();
    t.config.slot_ms = 1;
    t
}

#[test]
fn a_closed_tenant_begins_nothing_and_ends_what_it_has() {
    let mut t = table();
    t.check("1", 1, plain(), "requested");
    t.set(tenant(true), "applied 2");
    t.check("2", 1, plain(), "closed tenant");
    let asks = |request| Verb::Resource(request);
    t.check("3", 1, asks(resource("r")), "closed tenant");
    t.check("4", 1, asks(acquire("r")), "closed tenant");
    t.check("5", 1, asks(release()), "asked in 0");
    let target = TargetRequest::AllocationId(id(2));
    let priority = 1;
    let priority = Verb::SetPriority { target, priority };
    t.check("6", 1, priority, "priority 1");
    t.check("7", 1, cancel(&id(2)), "cancel 2");
    // A repeat is told what the first was told.
    t.check("1", 1, plain(), "repeated 2");
    t.admin("b", set_tenant("b"), "applied 1");
    assert_eq!(t.ask("b", "1", 1, Ok(plain())), "requested");
    t.set(tenant(false), "applied 3");
    t.check("8", 1, plain(), "requested");
    t.check("9", 1, asks(resource("r")), "asked in 0");
}

#[test]
fn nothing_is_accepted_into_a_closed_queue() {
    let mut t = table();
    for name in ["q", "r"] {
        t.set(queue(name, false), "applied 1");
    }
    let into = |queue: &'static str| move |r: &mut SubmitRequest| r.queue = queue.into();
    t.set(queue("q", true), "applied 2");
    t.broken(into("q"), "closed queue");
    assert!(t.spec(into("r")).is_ok() && t.spec(|_| {}).is_ok());
    t.set(queue("q", false), "applied 3");
    assert!(t.spec(into("q")).is_ok());
    // A tenant's own queue is its own also when it does not name it.
    t.set(queue("a", true), "applied 1");
    t.broken(into("a"), "closed queue");
    t.broken(|_| {}, "closed queue");
    assert!(t.spec(into("q")).is_ok());
}

#[test]
fn nothing_is_accepted_with_a_closed_class() {
    let mut t = table();
    t.set(class(false), "applied 1");
    let with = |r: &mut SubmitRequest| r.priority_class = "c".into();
    assert!(t.spec(with).is_ok());
    t.set(class(true), "applied 2");
    t.broken(with, "closed priority_class");
    assert!(t.spec(|_| {}).is_ok());
    t.set(class(false), "applied 3");
    assert!(t.spec(with).is_ok());
}

#[test]
fn closing_is_of_a_feature_level() {
    let mut t = table();
    t.level = vocab::Level(vocab::Level::CLOSING.0 - 1);
    for change in [tenant(true), queue("q", true), class(true)] {
        t.set(change, "not_supported feature level");
    }
    t.set(tenant(false), "applied 2");
}
