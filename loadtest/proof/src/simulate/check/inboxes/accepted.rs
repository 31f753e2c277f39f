//! What was accepted is what was asked.

use super::{Operation, table::Window};
use crate::simulate::check::{Checker, Demand, Invariant, Violation};
use admission::{
    operation::OperationFact,
    project::{Change, WarmProjection},
};
use ledger::Projection;
use prost::Message as _;
use schemas::v1::{
    self, event::Kind, priority_requested, request::Verb, resource_asked, set_priority,
};
use vocab::{At, Event, EventNo, Lsn, Millis, Token, fact::Inputs};
use wire::Message as _;

impl Checker {
    /// Takes the event in; when its operation id will be forgotten.
    pub(super) fn accepted(&mut self, of: &Operation, kind: &Kind) -> Result<Window, Violation> {
        let wrong = || of.wrong(Invariant::Outcome, format!("{kind:?} was not asked"));
        let verb = of.read.verb.as_ref().ok_or_else(wrong)?;
        let by_clock = Window::Ms(of.at.now);
        let (at, tenant) = (&of.at, of.ask.tenant.as_str());
        let fits = match (verb, kind) {
            (Verb::Submit(submit), Kind::AllocationRequested(e)) => {
                let value = self.settings.class_value(&submit.priority_class);
                let settings = self.settings.tenant(tenant);
                let asked = Demand::asked(tenant, submit, value, settings);
                let fits = e.spec.as_ref().map(Demand::specified).as_ref() == Some(&asked);
                self.quotas.requested(at, tenant, &asked);
                self.allocations.requested(at, tenant, asked);
                fits
            }
            (Verb::Cancel(asked), Kind::CancelRequested(e)) => {
                self.allocations.cancel_requested(at, e.allocation);
                self.allocation_no(&asked.allocation_id) == Some(e.allocation)
            }
            (Verb::CancelJobSet(asked), Kind::JobSetCancelRequested(e)) => {
                let members = self.allocations.in_job_set(tenant, &e.job_set, at.no);
                self.allocations.set_cancel_requested(at.lsn, &members);
                self.asked.cancel(at, tenant, &e.job_set);
                asked.job_set == e.job_set
            }
            (Verb::SetPriority(asked), Kind::PriorityRequested(e)) => {
                self.asked.priority(at, tenant, e);
                self.same_target(asked, e)
            }
            (_, Kind::ResourceAsked(e)) => {
                let fits = self.same_ask(of, verb, e);
                self.resources.asked(at, tenant, e);
                if e.by_requests && fits {
                    self.inboxes.slots.insert(tenant.to_owned(), e.slot);
                    return Ok(Window::Slots(e.slot));
                }
                fits
            }
            (verb, kind) => {
                let fits = self.settings.set(at, verb, kind).ok_or_else(wrong)?;
                self.reads_back(of, kind)?;
                self.quotas.administered(at, kind);
                self.resources.administered(at, kind);
                fits
            }
        };
        if fits { Ok(by_clock) } else { Err(wrong()) }
    }

    /// What `settings` and `rates` tell of it: the operation, who asked, when and where.
    fn reads_back(&self, of: &Operation, kind: &Kind) -> Result<(), Violation> {
        let wrong =
            |what: &str| of.wrong(Invariant::Outcome, format!("{kind:?} reads back {what}"));
        let event = v1::Event {
            kind: Some(kind.clone()),
        };
        let event = Event::decode(&event.encode_to_vec()).map_err(|_| wrong("as no event"))?;
        let fact = OperationFact::of(&event).ok_or_else(|| wrong("as no operation"))?;
        let at = At {
            lsn: Lsn(of.at.lsn),
            index: of.at.index,
            no: EventNo(of.at.no),
            now: Millis(of.at.now),
        };
        let mut changes = Vec::new();
        let projected = WarmProjection::default().project(&at, fact, &mut changes);
        projected.map_err(|_| wrong("as an illegal event"))?;
        let row = changes.iter().find_map(|change| match change {
            Change::Setting(row) => Some(row),
            _ => None,
        });
        let row = row.ok_or_else(|| wrong("as no setting"))?;
        let by = row.set_by.as_ref().map_or("", Token::as_str);
        let id = row.operation_id.as_ref().map(Token::as_str);
        let same = id == of.read.id.as_deref() && (row.at, row.lsn) == (at.now, at.lsn);
        match same && self.is_by(of.ask, by) {
            true => Ok(()),
            false => Err(wrong(&format!("as {row:?}"))),
        }
    }

    fn same_target(&self, asked: &v1::SetPriority, e: &v1::PriorityRequested) -> bool {
        use priority_requested::Target as To;
        let same = match (&asked.target, &e.target) {
            (Some(set_priority::Target::AllocationId(id)), Some(To::Allocation(no))) => {
                self.allocation_no(id) == Some(*no)
            }
            (Some(set_priority::Target::JobSet(name)), Some(To::JobSet(named))) => name == named,
            _ => false,
        };
        same && asked.priority == e.priority
    }

    /// The request says the slot, or the clock does.
    fn same_ask(&self, of: &Operation, verb: &Verb, e: &v1::ResourceAsked) -> bool {
        let given = super::slot_of(verb).flatten();
        let slot = match (given, self.limits.slot_ms) {
            (Some(slot), _) => slot,
            (None, 0) => return false,
            (None, length) => u64::try_from(of.at.now).unwrap_or(0) / length,
        };
        let same_slot = e.slot == slot && e.by_requests == given.is_some();
        same_slot && self.ask_of(verb) == e.ask
    }

    fn ask_of(&self, verb: &Verb) -> Option<resource_asked::Ask> {
        use resource_asked::Ask;
        let acquire = |resources: &[String], holder: &str, ttl_slots| v1::AcquireAsk {
            resources: resources.to_vec(),
            holder: holder.to_owned(),
            ttl_slots,
        };
        let holds = |id: &str, holder: &str, fencing_token| {
            Some(v1::HolderAsk {
                lease: self.allocation_no(id)?,
                holder: holder.to_owned(),
                fencing_token,
            })
        };
        Some(match verb {
            Verb::CreateResource(m) => Ask::Create(m.resource.clone()),
            Verb::Acquire(m) => {
                let one = std::slice::from_ref(&m.resource);
                Ask::Acquire(acquire(one, &m.holder, m.ttl_slots))
            }
            Verb::AcquireBundle(m) => Ask::Acquire(acquire(&m.resources, &m.holder, m.ttl_slots)),
            Verb::Confirm(m) => Ask::Confirm(holds(&m.lease_id, &m.holder, m.fencing_token)?),
            Verb::Release(m) => Ask::Release(holds(&m.lease_id, &m.holder, m.fencing_token)?),
            Verb::Revoke(m) => Ask::Revoke(self.allocation_no(&m.lease_id)?),
            Verb::Reclaim(m) => Ask::Reclaim(self.allocation_no(&m.lease_id)?),
            _ => return None,
        })
    }
}
