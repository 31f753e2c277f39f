//! Ingress: every operation of every message is decided exactly once, in order, and a repeated one is recognised.
//!
//! What has to come of an operation follows from what stands on the ledger before it: it is worked out here (`due`) and
//! compared with the next event. What is to be refused without a record has none.

mod accepted;
mod due;
mod message;
mod rates;
mod room;
mod table;

pub use message::{Answer, Ask, Asked, Decided, Expect, TurnedAway};

use super::{Checker, Invariant, Place, Violation, Writer, chain::Handled, foreign, process_of};
use crate::simulate::process::Orders;
use due::{Due, GANG_INVALID};
use message::{Read, slot_of};
use rates::Rates;
use schemas::v1::{self, event::Kind, request::Verb};
use std::{
    collections::{BTreeMap, BTreeSet},
    iter::Peekable,
    rc::Rc,
    slice,
    sync::PoisonError,
};
use table::{Kept, Table, Window};

#[derive(Debug, Default)]
pub struct Inboxes {
    asks: Vec<Rc<Ask>>,
    /// Messages that were not decided yet, counted from 1.
    open: BTreeSet<u64>,
    orders: Orders,
    decided: Vec<Decided>,
    table: Table,
    rates: Rates,
    /// The latest slots of the tenants' requests, where requests say them.
    slots: BTreeMap<String, u64>,
}

pub const OPERATOR: &str = "_operator";
const NOT_SUPPORTED: i32 = 18;
const OPERATION_CONFLICT: i32 = 6;

/// An operation, and where it was decided or not.
struct Operation<'a> {
    at: Place,
    ask: &'a Rc<Ask>,
    asked: &'a Asked,
    read: Read,
}

impl Operation<'_> {
    fn key(&self) -> Option<(String, String)> {
        let id = self.read.id.clone()?;
        Some((self.ask.tenant.clone(), id))
    }

    fn wrong(&self, invariant: Invariant, text: impl std::fmt::Display) -> Violation {
        let (ask, request) = (&self.ask, &self.read);
        let (tenant, verb) = (&ask.tenant, &request.verb);
        let what = format!("{text}, for {:?} of {tenant}: {verb:?}", request.id);
        self.at.wrong(invariant, what)
    }
}

type Events<'a, 'b> = Peekable<slice::Iter<'a, (Place, &'b Kind)>>;

impl Inboxes {
    pub fn new(orders: Orders) -> Self {
        Self {
            orders,
            ..Self::default()
        }
    }

    pub fn asked(&mut self, ask: Ask) {
        self.asks.push(Rc::new(ask));
        self.open.insert(self.asks.len() as u64);
    }

    fn ask(&self, seq: u64) -> &Rc<Ask> {
        // Messages count from 1, and those of `open` are there.
        &self.asks[seq as usize - 1]
    }

    /// The messages that a frame has handled, in the order in which its leader did.
    fn handled(
        &mut self,
        frame: &Place,
        by: u64,
        handled: &Handled,
    ) -> Result<Vec<u64>, Violation> {
        let is_new = |seq: &u64| *seq <= handled.of(&self.ask(*seq).tenant);
        let new: BTreeSet<u64> = self.open.iter().copied().filter(is_new).collect();
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let read = orders.entry(by).or_default();
        let mut order = Vec::with_capacity(new.len());
        for seq in read.iter().rev() {
            if new.contains(seq) && !order.contains(seq) {
                order.push(*seq);
            }
        }
        order.reverse();
        if let Some(last) = order.last()
            && let Some(at) = read.iter().rposition(|seq| seq == last)
        {
            read.drain(..=at);
        }
        drop(orders);
        frame.rule(order.len() == new.len(), Invariant::Outcome, || {
            format!("{new:?} counts as handled, but only {order:?} was read")
        })?;
        let mut last = BTreeMap::new();
        for seq in &order {
            let before = last.insert(&self.ask(*seq).tenant, *seq);
            frame.rule(
                before.is_none_or(|before| before < *seq),
                Invariant::Outcome,
                || format!("{seq} was handled behind {before:?} of the same sender"),
            )?;
        }
        self.open.retain(|seq| !new.contains(seq));
        Ok(order)
    }

    pub fn decided(&self) -> &[Decided] {
        &self.decided
    }

    pub fn finish(&self, end: &Place) -> Result<(), Violation> {
        end.rule(self.open.is_empty(), Invariant::Outcome, || {
            format!("not decided at ingress: {:?}", self.open)
        })
    }

    /// Each who is told was refused by that rule, and is told once.
    pub fn turned(&mut self, lsn: u64, turned: &TurnedAway) -> Result<(), Violation> {
        let is = |decided: &&mut Decided| {
            let ask = &decided.ask;
            let whose = (&ask.tenant, ask.reply_to.as_ref(), &decided.operation_id);
            let answer = Answer::Turned {
                rule: turned.rule,
                told: false,
            };
            whose == (&turned.tenant, Some(&turned.reply_to), &turned.operation_id)
                && decided.answer == answer
        };
        let Some(found) = self.decided.iter_mut().find(is) else {
            return Err(Violation {
                invariant: Invariant::Outcome,
                lsn,
                text: format!("{turned:?}, but nobody was to be refused so"),
            });
        };
        found.answer = Answer::Turned {
            rule: turned.rule,
            told: true,
        };
        Ok(())
    }
}

/// Who asked, of what takes up an operation.
pub(super) fn operation_of(kind: &Kind) -> Option<&v1::Operation> {
    match kind {
        Kind::TenantSet(e) => e.operation.as_ref(),
        Kind::QuotaSet(e) => e.operation.as_ref(),
        Kind::BudgetSet(e) => e.operation.as_ref(),
        Kind::RateSet(e) => e.operation.as_ref(),
        Kind::QueueSet(e) => e.operation.as_ref(),
        Kind::PriorityClassSet(e) => e.operation.as_ref(),
        Kind::SchedulingSet(e) => e.operation.as_ref(),
        Kind::CordonSet(e) => e.operation.as_ref(),
        Kind::TaintsSet(e) => e.operation.as_ref(),
        Kind::NodeSet(e) => e.operation.as_ref(),
        Kind::PeriodClosed(e) => e.operation.as_ref(),
        Kind::ReservationSet(e) => e.operation.as_ref(),
        Kind::AllocationRequested(e) => e.operation.as_ref(),
        Kind::CancelRequested(e) => e.operation.as_ref(),
        Kind::JobSetCancelRequested(e) => e.operation.as_ref(),
        Kind::PriorityRequested(e) => e.operation.as_ref(),
        Kind::ResourceAsked(e) => e.operation.as_ref(),
        Kind::OperationRefused(e) => e.operation.as_ref(),
        _ => None,
    }
}

/// As the ledger writes it: an array is many submits.
fn verb_asked(verb: &Verb) -> v1::Verb {
    use v1::Verb as Is;
    match verb {
        Verb::Submit(_) | Verb::TrySubmit(_) | Verb::SubmitArray(_) => Is::Submit,
        Verb::Cancel(_) => Is::Cancel,
        Verb::Batch(_) => Is::Unspecified,
        Verb::CancelJobSet(_) => Is::CancelJobSet,
        Verb::SetPriority(_) => Is::SetPriority,
        Verb::CreateResource(_) => Is::CreateResource,
        Verb::Acquire(_) | Verb::AcquireBundle(_) => Is::Acquire,
        Verb::Confirm(_) => Is::Confirm,
        Verb::Release(_) => Is::Release,
        Verb::Revoke(_) => Is::Revoke,
        Verb::Reclaim(_) => Is::Reclaim,
        Verb::SetTenant(_) => Is::SetTenant,
        Verb::SetQuota(_) => Is::SetQuota,
        Verb::SetRate(_) => Is::SetRate,
        Verb::SetQueue(_) => Is::SetQueue,
        Verb::SetPriorityClass(_) => Is::SetPriorityClass,
        Verb::SetScheduling(_) => Is::SetScheduling,
        Verb::SetCordon(_) => Is::SetCordon,
        Verb::SetReservation(_) => Is::SetReservation,
        Verb::SetBudget(_) => Is::SetBudget,
        Verb::SetNode(_) => Is::SetNode,
        Verb::ClosePeriod(_) => Is::ClosePeriod,
        Verb::SetTaints(_) => Is::SetTaints,
    }
}

fn refused_by(kind: &Kind) -> Option<i32> {
    match kind {
        Kind::OperationRefused(e) => e.refusal.as_ref().map(|refusal| refusal.rule),
        _ => None,
    }
}

impl Checker {
    pub(super) fn admission(
        &mut self,
        frame: &Place,
        leader: &[u8],
        kinds: &[(Place, &Kind)],
    ) -> Result<(), Violation> {
        let asked = self.inboxes.asks.len() as u64;
        let handled = self.chain.handled(Writer::Admission);
        frame.rule(handled.last() <= asked, Invariant::Outcome, || {
            format!("inbox position {handled:?} of {asked}")
        })?;
        let process = process_of(leader).unwrap_or(0);
        let mut events = kinds.iter().peekable();
        for seq in self.inboxes.handled(frame, process, &handled)? {
            let ask = self.inboxes.ask(seq).clone();
            for asked in &ask.operations {
                let operation = Operation {
                    at: *frame,
                    ask: &ask,
                    asked,
                    read: Read::of(asked),
                };
                self.operation(operation, &mut events)?;
            }
        }
        // What is over is forgotten in frames without messages, too.
        while let Some((at, Kind::OperationsForgotten(e))) = events.peek() {
            self.forgotten(at, e, None)?;
            events.next();
        }
        match events.next() {
            None => Ok(()),
            Some((at, kind)) => {
                let text = format!("decided what nobody asked: {kind:?}");
                Err(at.wrong(Invariant::Outcome, text))
            }
        }
    }

    fn forgotten(
        &mut self,
        at: &Place,
        e: &v1::OperationsForgotten,
        next: Option<&Operation>,
    ) -> Result<(), Violation> {
        if e.slots_of.is_empty() {
            let window = self.limits.window_ms;
            self.allocations.forget(at, e, window)?;
            return self.inboxes.table.forget(at, e.through, window);
        }
        let Some(next) = next else {
            let text = format!("{e:?}, but no slot has come");
            return Err(at.wrong(Invariant::Operation, text));
        };
        let slot = self.said_slot(next).unwrap_or(0);
        let window = self.limits.bounds.window_slots;
        self.inboxes.table.forget_slots(at, e, slot, window)
    }

    /// The slot that a request says, if it is one that may come.
    fn said_slot(&self, of: &Operation) -> Option<u64> {
        let slot = of.read.verb.as_ref().and_then(slot_of)??;
        let seen = self.inboxes.slots.get(&of.ask.tenant).copied().unwrap_or(0);
        let end = slot.checked_add(self.limits.bounds.window_slots);
        (self.limits.slot_ms == 0 && slot >= seen && end.is_some()).then_some(slot)
    }

    /// Forgets what is over when an operation comes: by a slot only when that slot is put on record with it.
    fn forgets(&mut self, of: &Operation, events: &mut Events) -> Result<(), Violation> {
        while let Some((at, Kind::OperationsForgotten(e))) = events.peek() {
            let comes = e.slots_of == of.ask.tenant
                && self.said_slot(of).is_some()
                && self.due(of) == Due::Accepted;
            if !e.slots_of.is_empty() && !comes {
                return Ok(());
            }
            self.forgotten(at, e, Some(of))?;
            events.next();
        }
        Ok(())
    }

    /// One operation: the next event, or none.
    fn operation(&mut self, mut of: Operation, events: &mut Events) -> Result<(), Violation> {
        self.forgets(&of, events)?;
        let due = match self.due(&of) {
            // The earlier members of its gang may count, and their terms are checked before its place in the backlog.
            Due::Turned(_) | Due::Refused(_) if self.contradicts(&of, events) => Due::Accepted,
            due => due,
        };
        if let Due::Turned(rule) = due {
            self.inboxes.decided.push(Decided {
                ask: of.ask.clone(),
                operation_id: of.read.id,
                answer: Answer::Turned { rule, told: false },
            });
            return Ok(());
        }
        let known = matches!(due, Due::Repeat(_) | Due::Conflict);
        let invariant = match known {
            true => Invariant::Operation,
            false => Invariant::Outcome,
        };
        let Some((at, kind)) = events.next() else {
            return Err(of.wrong(invariant, format!("no event, but {due:?} was due")));
        };
        if let Kind::OperationsForgotten(e) = kind {
            self.forgotten(at, e, None)?;
        }
        of.at = *at;
        self.is_of(&of, kind, invariant)?;
        if let (Kind::RateSet(e), Some(Verb::SetRate(asked))) = (kind, &of.read.verb) {
            let rate = e.change.clone().unwrap_or_default();
            self.bill.rate_set(&of.at, rate, asked.correction)?;
        }
        self.inboxes
            .rates
            .take(&of.ask.tenant, at.now, &self.settings);
        let answer = match (&due, kind) {
            (Due::Repeat(original), Kind::OperationRepeated(e)) if e.original == *original => {
                e.original
            }
            (Due::Conflict, _) if refused_by(kind) == Some(OPERATION_CONFLICT) => at.no,
            (Due::Refused(rules), Kind::OperationRefused(_))
                if refused_by(kind).is_some_and(|rule| rules.contains(&rule)) =>
            {
                self.keep(&of, Window::Ms(at.now));
                at.no
            }
            (Due::Accepted, Kind::OperationRefused(_))
                if refused_by(kind) == Some(NOT_SUPPORTED) && self.may_lack_the_level(&of) =>
            {
                self.keep(&of, Window::Ms(at.now));
                at.no
            }
            // It may be the first member of the next gang of that name.
            (Due::Accepted, Kind::OperationRefused(_))
                if refused_by(kind) == Some(GANG_INVALID) && self.may_contradict(&of) =>
            {
                self.keep(&of, Window::Ms(at.now));
                at.no
            }
            (Due::Accepted, _) => {
                let window = self.accepted(&of, kind)?;
                self.keep(&of, window);
                at.no
            }
            _ => return Err(of.wrong(invariant, format!("{kind:?}, but {due:?} was due"))),
        };
        self.inboxes.decided.push(Decided {
            ask: of.ask.clone(),
            operation_id: of.read.id,
            answer: Answer::Recorded(answer),
        });
        Ok(())
    }

    /// Some can be asked for from a later feature level on, and a leader hears some time later that the level was raised.
    fn may_lack_the_level(&self, of: &Operation) -> bool {
        let newer = match &of.read.verb {
            Some(Verb::SetRate(rate)) => {
                let scope = [
                    &rate.tenant,
                    &rate.priority_class,
                    &rate.pool,
                    &rate.cluster,
                ];
                rate.withdrawn || scope.iter().any(|name| !name.is_empty())
            }
            Some(Verb::SetTaints(_)) => true,
            Some(Verb::SetTenant(set)) => set.closed || !set.teams.is_empty(),
            Some(Verb::SetQueue(set)) => set.closed,
            Some(Verb::SetPriorityClass(set)) => set.closed,
            Some(Verb::SetCordon(set)) => set.drain,
            Some(Verb::Submit(submit)) => {
                let rules = submit.rules.as_ref();
                let prefers = rules.is_some_and(|rules| !rules.preferred.is_empty());
                let bounded = submit.ttl_ms > 0 || submit.time_limit_ms > 0;
                prefers || bounded || submit.array_index.is_some()
            }
            _ => false,
        };
        self.began_at_first_level && newer
    }

    /// Returns whether the next event refuses the request because of its gang, and that may be right.
    fn contradicts(&self, of: &Operation, events: &mut Events) -> bool {
        events.peek().is_some_and(|(_, kind)| {
            refused_by(kind) == Some(GANG_INVALID)
                && self.is_of(of, kind, Invariant::Outcome).is_ok()
                && self.may_contradict(of)
        })
    }

    /// Returns whether earlier members have the name of its gang, and it is unknown if they are of the same gang.
    fn may_contradict(&self, of: &Operation) -> bool {
        match &of.read.verb {
            Some(Verb::Submit(submit)) => self.contradicts_its_gang(of, submit).is_none(),
            _ => false,
        }
    }

    /// The event says whose operation it is.
    fn is_of(&self, of: &Operation, kind: &Kind, invariant: Invariant) -> Result<(), Violation> {
        let ask = of.ask;
        let reply_to = ask.reply_to.clone().unwrap_or_default();
        let same = match kind {
            Kind::OperationRepeated(e) => e.tenant == ask.tenant && e.reply_to == reply_to,
            kind => operation_of(kind).is_some_and(|operation| {
                operation.tenant == ask.tenant
                    && self.is_by(ask, &operation.by)
                    && operation.operation_id == of.read.id.clone().unwrap_or_default()
                    && operation.reply_to == reply_to
            }),
        };
        let same = same && self.says_the_verb(of, kind);
        match (same, operation_of(kind).is_some()) {
            (true, _) => Ok(()),
            (false, false) if !matches!(kind, Kind::OperationRepeated(_)) => {
                Err(foreign(&of.at, kind))
            }
            (false, _) => Err(of.wrong(invariant, format!("{kind:?} is not"))),
        }
    }

    /// A refusal says what was asked for, if that can be read and the cell is not of the first level still.
    fn says_the_verb(&self, of: &Operation, kind: &Kind) -> bool {
        let Kind::OperationRefused(e) = kind else {
            return true;
        };
        let unreadable = matches!(of.asked.expect, Expect::Unreadable(_) | Expect::Nameless(_));
        let may_lack = unreadable || self.began_at_first_level;
        let asked = of.read.verb.as_ref().map(verb_asked);
        e.verb() == asked.unwrap_or_default() || may_lack && e.verb == 0
    }

    /// The name is that of the operator who asked, whom a cell of the first level does not name yet.
    fn is_by(&self, ask: &Ask, name: &str) -> bool {
        ask.by.as_deref().unwrap_or_default() == name
            || self.began_at_first_level && name.is_empty()
    }

    fn keep(&mut self, of: &Operation, window: Window) {
        if let Some(key) = of.key() {
            let kept = Kept {
                content: of.read.content.clone(),
                original: of.at.no,
                window,
            };
            self.inboxes.table.keep(key, kept);
        }
    }
}
