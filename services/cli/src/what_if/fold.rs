//! The state at a position of the ledger, folded in this process, and what admission makes of a request there.

use super::Request;
use crate::{Failure, manifest::Standing};
use admission::query::asked_again;
use admission_rules::Admission;
use client::Operation;
use ledger::{Bus, Decider, InboxMessage, Replica, Tail};
use ledger_nats::cell::Chosen;
use prost::Message;
use scheduler_rules::{Scheduler, what_if::Change};
use schemas::v1::{self, SettingView};
use vocab::fact::{AllocationRequested, Inputs, OperationRefused, SettingFact};
use vocab::{At, CellNo, Event, Lsn, Millis, Token};

/// Two deciders that have read the same records.
pub struct Folded {
    cell: CellNo,
    admission: Replica<Admission>,
    scheduler: Replica<Scheduler>,
    /// Settings of the scheduler, the later ones behind those that they take the place of.
    settings: Vec<SettingView>,
    /// The clock of the last frame.
    pub now: Millis,
}

/// Reads the ledger from its first record to `at`, or to the last one that is there at the start.
pub async fn fold<B: Bus>(bus: &B, cell: CellNo, at: Option<Lsn>) -> Result<Folded, Failure> {
    let end = bus.end().await?;
    let through = at.unwrap_or(end);
    if through > end {
        return Err(format!("the ledger ends at lsn {}, before {}", end.0, through.0).into());
    }
    let mut folded = Folded {
        cell,
        admission: Replica::default(),
        scheduler: Replica::default(),
        settings: Vec::new(),
        now: Millis(0),
    };
    if through > Lsn(0) {
        let mut records = bus.follow(Lsn(1)).await?;
        while folded.through() < through {
            let record = records.recv().await?;
            folded.admission.receive(&record)?;
            if let Some(frame) = folded.scheduler.receive(&record)? {
                folded.now = folded.now.max(frame.now);
                folded.settings.extend(frame.placed().filter_map(setting));
            }
        }
    }
    folded.admission.fold_all()?;
    folded.scheduler.fold_all()?;
    Ok(folded)
}

impl Folded {
    pub fn state(&self) -> &Scheduler {
        self.scheduler.state()
    }

    /// What stands of the scheduler's settings.
    pub(super) fn standing(&self) -> Result<Standing, Failure> {
        Ok(Standing::of(&self.settings, self.now.0).map_err(|wrong| wrong.why)?)
    }

    /// Position of the last record that is in it.
    pub fn through(&self) -> Lsn {
        Lsn(self.scheduler.next().0 - 1)
    }

    /// What admission makes of the request; what it refuses is an error.
    pub(super) fn decided(&self, request: &Request) -> Result<Vec<Change>, Failure> {
        // What is tried here speaks of allocations.
        let config = admission::Config {
            slot_ms: Chosen::default().slot_ms,
            cell: self.cell,
            ..admission::Config::default()
        };
        let mut admission = self.admission.state().clone();
        let mut draft = self.admission.draft(self.now, vocab::Level::KNOWN);
        let sender = Token::new(&request.sender)?;
        let mut commands = Vec::new();
        for _ in 0..request.count {
            let message = v1::Request {
                operation_id: Operation::fresh_id(),
                verb: Some(request.verb.clone()),
            };
            let message = InboxMessage {
                seq: 0,
                sender: sender.clone(),
                // Whoever is turned away without a record is told, and only who waits for it.
                reply_to: Some(sender.clone()),
                trace: None,
                by: None,
                reserved_header: false,
                payload: message.encode_to_vec().into(),
            };
            admission::commands(&message, &mut commands);
            for command in commands.drain(..) {
                admission.handle(command, &config, &mut draft);
            }
        }
        if let Some(Err(refusal)) = admission.take_effects().pop().map(|told| told.answer) {
            let why = refusal.explanation();
            return Err(Failure::refused(format!("refused: {why}")));
        }
        if let Some(poison) = draft.poison() {
            return Err(poison.clone().into());
        }
        let changes = draft.events().filter_map(|event| change(event).transpose());
        changes.collect()
    }
}

fn setting((at, event): (At, &Event)) -> Option<SettingView> {
    let fact = SettingFact::of(event)?;
    Some(SettingView {
        version: fact.asked().1,
        set_at_ms: at.now.0,
        change: asked_again(&fact.change()),
        ..SettingView::default()
    })
}

fn change(event: &Event) -> Result<Option<Change>, Failure> {
    if let Some(set) = SettingFact::of(event) {
        return Ok(Some(Change::Admin(set.change())));
    }
    match event {
        Event::AllocationRequested(AllocationRequested { operation, spec }) => {
            Ok(Some(Change::Request {
                tenant: operation.tenant.clone(),
                spec: Box::new(spec.clone()),
            }))
        }
        Event::OperationRefused(OperationRefused { refusal, .. }) => Err(Failure::refused(
            format!("refused: {}", refusal.explanation()),
        )),
        // Admission forgets old operations along the way.
        _ => Ok(None),
    }
}
