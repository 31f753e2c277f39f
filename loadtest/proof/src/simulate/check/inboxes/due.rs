//! What has to come of an operation, in the order in which the contract looks at it: what is known is answered, whoever
//! asks too much or has no room in its table is turned away, what cannot be read is refused; then comes the verb.

use super::{Expect, OPERATOR, Operation, slot_of};
use crate::simulate::check::{Checker, demand::gang_asked};
use schemas::v1::{self, request::Verb, set_priority::Target};

const OPERATION_TABLE_FULL: i32 = 7;
const TENANT_UNKNOWN: i32 = 8;
const QUANTITY_ZERO: i32 = 10;
const ALLOCATION_NOT_FOUND: i32 = 15;
const ALLOCATION_ENDED: i32 = 16;
const VERSION_CONFLICT: i32 = 19;
const PRIORITY_OUT_OF_RANGE: i32 = 22;
const ALLOCATION_TABLE_FULL: i32 = 24;
const RATE_FOR_A_PAST_HOUR: i32 = 25;
const PRIORITY_CLASS_UNKNOWN: i32 = 28;
pub const GANG_INVALID: i32 = 29;
const TEAM_UNKNOWN: i32 = 80;
const INTERVAL_INVALID: i32 = 32;
const SETTING_INVALID: i32 = 33;
const QUEUE_TREE_INVALID: i32 = 31;
const RATE_LIMITED: i32 = 35;
const BACKLOG_FULL: i32 = 36;
const PRIORITY_CLASS_FORBIDDEN: i32 = 37;
const SLOT_BACKWARDS: i32 = 40;
const SLOT_OVERFLOW: i32 = 41;
const DEPENDENCY_UNKNOWN: i32 = 58;
const CELL_FULL: i32 = 63;
const CLOSED: i32 = 78;
const NEVER_SET: i32 = 79;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// Of the operation with this number.
    Repeat(u64),
    Conflict,
    /// Refused without a record.
    Turned(i32),
    /// By one of these rules.
    Refused(Vec<i32>),
    Accepted,
}

/// What a verb is due, when it is not to be accepted.
type Obstacle = Result<(), Due>;

fn refused(rule: i32) -> Obstacle {
    Err(Due::Refused(vec![rule]))
}

fn turned_if(broken: bool, rule: i32) -> Obstacle {
    if broken {
        Err(Due::Turned(rule))
    } else {
        Ok(())
    }
}

fn refused_if(broken: bool, rule: i32) -> Obstacle {
    if broken { refused(rule) } else { Ok(()) }
}

/// It asks for something that is not there yet.
fn begins(verb: &Verb) -> bool {
    matches!(
        verb,
        Verb::Submit(_) | Verb::CreateResource(_) | Verb::Acquire(_) | Verb::AcquireBundle(_)
    )
}

impl Checker {
    pub(super) fn due(&self, of: &Operation) -> Due {
        self.obstacle(of).err().unwrap_or(Due::Accepted)
    }

    fn obstacle(&self, of: &Operation) -> Obstacle {
        let (slot, window) = (self.said_slot(of), self.limits.bounds.window_slots);
        let kept = of.key().and_then(|key| self.inboxes.table.get(&key));
        // Past its window it is as good as forgotten.
        let kept = kept.filter(|kept| !slot.is_some_and(|slot| kept.window.is_over(slot, window)));
        if let Some(kept) = kept.filter(|kept| kept.content == of.read.content) {
            return Err(Due::Repeat(kept.original));
        }
        let tenant = of.ask.tenant.as_str();
        if tenant != OPERATOR {
            turned_if(self.settings.tenant(tenant).is_none(), TENANT_UNKNOWN)?;
            let allowed = self.inboxes.rates.allows(tenant, of.at.now, &self.settings);
            turned_if(!allowed, RATE_LIMITED)?;
        }
        if kept.is_some() {
            return Err(Due::Conflict);
        }
        let unreadable = match of.asked.expect {
            Expect::Unreadable(rule) | Expect::Nameless(rule) => Some(rule),
            _ => None,
        };
        if tenant != OPERATOR {
            let table = &self.inboxes.table;
            // Nobody reads a slot where nothing can be read.
            let slot = slot.filter(|_| unreadable.is_none());
            let over = slot.map_or(0, |slot| table.over(tenant, slot, window));
            let full = table.of(tenant) - over >= self.limits.operations_max;
            turned_if(full, OPERATION_TABLE_FULL)?;
            turned_if(!self.has_room(of, slot), CELL_FULL)?;
        }
        if let Some(rule) = unreadable {
            return refused(rule);
        }
        let begins = of.read.verb.as_ref().is_some_and(begins);
        refused_if(begins && self.settings.is_closed("tenant", tenant), CLOSED)?;
        let slot = of.read.verb.as_ref().and_then(slot_of);
        slot.map_or(Ok(()), |slot| self.slot_obstacle(tenant, slot))?;
        if let Expect::Breaks(rule) = of.asked.expect {
            // What is closed, and the team, may be looked at before.
            let (closed, foreign) = match &of.read.verb {
                Some(Verb::Submit(submit)) => {
                    let has = self
                        .settings
                        .has_team(tenant, &submit.team, &submit.namespace);
                    (self.is_closed_to(tenant, submit), !has)
                }
                _ => (false, false),
            };
            let also = [closed.then_some(CLOSED), foreign.then_some(TEAM_UNKNOWN)];
            let rules = [Some(rule)].into_iter().chain(also);
            return Err(Due::Refused(rules.flatten().collect()));
        }
        match &of.read.verb {
            Some(verb) => self.verb_obstacle(of, verb),
            None => Ok(()),
        }
    }

    fn slot_obstacle(&self, tenant: &str, given: Option<u64>) -> Obstacle {
        let by_requests = self.limits.slot_ms == 0;
        refused_if(given.is_some() != by_requests, SETTING_INVALID)?;
        let Some(slot) = given else {
            return Ok(());
        };
        let seen = self.inboxes.slots.get(tenant).copied().unwrap_or(0);
        turned_if(slot < seen, SLOT_BACKWARDS)?;
        let end = slot.checked_add(self.limits.bounds.window_slots);
        turned_if(end.is_none(), SLOT_OVERFLOW)
    }

    fn verb_obstacle(&self, of: &Operation, verb: &Verb) -> Obstacle {
        match verb {
            Verb::Submit(submit) => self.submit_obstacle(of, submit),
            Verb::Cancel(cancel) => self.target_obstacle(of, &cancel.allocation_id),
            Verb::SetPriority(asked) => {
                self.priority_obstacle(of, asked.priority)?;
                match &asked.target {
                    Some(Target::AllocationId(id)) => self.target_obstacle(of, id),
                    Some(Target::JobSet(_)) | None => Ok(()),
                }
            }
            Verb::SetTenant(asked) => {
                let before = self.settings.tenant(&asked.tenant);
                let mut classes = asked.priority_classes.iter();
                let unknown = classes.any(|class| {
                    let stands = before.is_some_and(|it| it.priority_classes.contains(class));
                    !stands && self.settings.class_value(class).is_none()
                });
                refused_if(unknown, PRIORITY_CLASS_UNKNOWN)?;
                self.version_obstacle(verb)
            }
            Verb::SetPriorityClass(_)
            | Verb::SetScheduling(_)
            | Verb::SetCordon(_)
            | Verb::SetTaints(_)
            | Verb::SetReservation(_)
            | Verb::ClosePeriod(_) => self.version_obstacle(verb),
            Verb::SetNode(asked) => {
                let until = asked.approved.as_ref().map(|it| it.token_until_ms);
                let over = until.is_some_and(|until| until <= of.at.now);
                refused_if(over, INTERVAL_INVALID)?;
                self.version_obstacle(verb)
            }
            Verb::SetQuota(asked) => {
                self.tenant_obstacle(&asked.tenant)?;
                let past = |at: Option<i64>| at.is_some_and(|at| at <= of.at.now);
                let over = past(asked.from_ms) || past(asked.until_ms);
                if !asked.unlimited && self.settings.version(verb) == 0 {
                    self.team_obstacle(&asked.tenant, &asked.team, &asked.namespace)?;
                }
                refused_if(over, INTERVAL_INVALID)?;
                self.version_obstacle(verb)
            }
            Verb::SetBudget(asked) => {
                self.tenant_obstacle(&asked.tenant)?;
                if asked.amount.is_some() && self.settings.version(verb) == 0 {
                    self.team_obstacle(&asked.tenant, &asked.team, &asked.namespace)?;
                }
                self.version_obstacle(verb)
            }
            Verb::SetQueue(asked) => {
                let mut tenants = asked.tenants.iter();
                tenants.try_for_each(|tenant| self.tenant_obstacle(tenant))?;
                let parent = asked.parent.as_str();
                let known = parent.is_empty() || self.settings.queue_is_set(parent);
                refused_if(!known, QUEUE_TREE_INVALID)?;
                self.version_obstacle(verb)
            }
            Verb::SetRate(asked) => {
                let first = self.settings.version(verb) == 0;
                // Without a moment, a withdrawal counts at once, and so does a first rate that is no correction.
                let at_once = asked.effective_from_ms == 0
                    && (asked.withdrawn || first && !asked.correction);
                let begun = asked.effective_from_ms <= of.at.now;
                // Only the first rate corrects the past, and only from the beginning.
                let past = begun && !at_once && (!first || asked.effective_from_ms > 0);
                if !asked.tenant.is_empty() {
                    self.tenant_obstacle(&asked.tenant)?;
                }
                refused_if(asked.withdrawn && first, NEVER_SET)?;
                refused_if(past, RATE_FOR_A_PAST_HOUR)?;
                self.version_obstacle(verb)
            }
            // Whatever else could be wrong with them, the world says.
            Verb::Batch(_)
            | Verb::SubmitArray(_)
            | Verb::CancelJobSet(_)
            | Verb::CreateResource(_)
            | Verb::Acquire(_)
            | Verb::AcquireBundle(_)
            | Verb::Confirm(_)
            | Verb::Release(_)
            | Verb::Revoke(_)
            | Verb::Reclaim(_)
            // Nobody in the world tries anything.
            | Verb::TrySubmit(_) => Ok(()),
        }
    }

    /// Nobody's limits cannot be set; as with nobody's request, that says nothing of the operation.
    fn tenant_obstacle(&self, tenant: &str) -> Obstacle {
        turned_if(self.settings.tenant(tenant).is_none(), TENANT_UNKNOWN)
    }

    fn team_obstacle(&self, tenant: &str, team: &str, namespace: &str) -> Obstacle {
        let known = self.settings.has_team(tenant, team, namespace);
        refused_if(!known, TEAM_UNKNOWN)
    }

    fn version_obstacle(&self, verb: &Verb) -> Obstacle {
        let expected = self.settings.expected_version(verb);
        let version = self.settings.version(verb);
        refused_if(expected.is_some_and(|it| it != version), VERSION_CONFLICT)?;
        let takes_back = match verb {
            Verb::SetQuota(asked) => asked.unlimited,
            Verb::SetBudget(asked) => asked.amount.is_none(),
            Verb::SetReservation(asked) => asked.wanted.is_none(),
            _ => false,
        };
        refused_if(takes_back && version == 0, NEVER_SET)
    }

    fn priority_obstacle(&self, of: &Operation, priority: i32) -> Obstacle {
        let most = self.settings.tenant(&of.ask.tenant);
        let most = most.map_or(i32::MAX, |it| it.priority_max);
        refused_if(priority > most, PRIORITY_OUT_OF_RANGE)
    }

    fn submit_obstacle(&self, of: &Operation, submit: &v1::Submit) -> Obstacle {
        let Some(tenant) = self.settings.tenant(&of.ask.tenant) else {
            return Ok(());
        };
        self.team_obstacle(&of.ask.tenant, &submit.team, &submit.namespace)?;
        let class = submit.priority_class.as_str();
        if class.is_empty() {
            self.priority_obstacle(of, submit.priority)?;
        }
        let nothing = |asked: i64, default: u64| asked == 0 && default == 0 && !submit.best_effort;
        let zero = nothing(submit.cpu_milli, tenant.default_cpu_milli)
            || nothing(submit.memory_bytes, tenant.default_memory_bytes);
        refused_if(zero, QUANTITY_ZERO)?;
        refused_if(self.queue_is_closed_to(&of.ask.tenant, submit), CLOSED)?;
        if !class.is_empty() {
            let known = self.settings.class_value(class).is_some();
            refused_if(!known, PRIORITY_CLASS_UNKNOWN)?;
            let classes = &tenant.priority_classes;
            let allowed = classes.is_empty() || classes.iter().any(|it| it == class);
            refused_if(!allowed, PRIORITY_CLASS_FORBIDDEN)?;
            refused_if(self.settings.is_closed("class", class), CLOSED)?;
        }
        let contradicts = self.contradicts_its_gang(of, submit);
        refused_if(contradicts == Some(true), GANG_INVALID)?;
        for on in &submit.depends_on {
            let known = self.known_no(of, &on.allocation_id);
            refused_if(known.is_none(), DEPENDENCY_UNKNOWN)?;
        }
        self.room_obstacle(of, tenant)
    }

    /// Returns whether the request contradicts the earlier members of its gang; `None` if some of them have ended or disagree,
    /// so that it may be the first member of the next gang of that name.
    pub(super) fn contradicts_its_gang(&self, of: &Operation, submit: &v1::Submit) -> Option<bool> {
        let asked = submit.gang.as_ref().map(gang_asked);
        let Some(asked) = asked else {
            return Some(false);
        };
        let of_name = self.allocations.iter().filter_map(|(no, a)| {
            let gang = a.demand.gang.as_ref()?;
            let same = a.tenant == of.ask.tenant && gang.name == asked.name;
            same.then_some((no, gang))
        });
        let members: Vec<_> = of_name.collect();
        let Some((_, gang)) = members.first() else {
            return Some(false);
        };
        let ended = |no: u64| self.allocations.admission_saw_end(no, &of.at);
        let clear = members.iter().all(|(no, it)| it == gang && !ended(*no));
        match clear && members.len() as u64 <= gang.size {
            true => Some((members.len() as u64) < gang.size && **gang != asked),
            false => (members.iter().all(|(_, it)| **it == asked)).then_some(false),
        }
    }

    fn queue_is_closed_to(&self, tenant: &str, submit: &v1::Submit) -> bool {
        let queue = match submit.queue.as_str() {
            "" => tenant,
            queue => queue,
        };
        self.settings.is_closed("queue", queue)
    }

    fn is_closed_to(&self, tenant: &str, submit: &v1::Submit) -> bool {
        let class = submit.priority_class.as_str();
        self.queue_is_closed_to(tenant, submit) || self.settings.is_closed("class", class)
    }

    /// What is not there is refused without a record.
    fn room_obstacle(&self, of: &Operation, tenant: &v1::TenantSettings) -> Obstacle {
        let each = self.limits.allocations_max;
        let live = || self.allocations.live_for_admission(&of.at, &of.ask.tenant);
        // Counting takes a while, and most cells and tenants have no such limit.
        let numbered = self.allocations.all().count() as u64;
        turned_if(numbered >= each && live() >= each, ALLOCATION_TABLE_FULL)?;
        let most = tenant.allocations_max;
        turned_if(most > 0 && live() >= most, BACKLOG_FULL)
    }

    /// An allocation that is to be cancelled, or changed.
    fn target_obstacle(&self, of: &Operation, id: &str) -> Obstacle {
        let Some(no) = self.known_no(of, id) else {
            return refused(ALLOCATION_NOT_FOUND);
        };
        let ended = self.allocations.admission_saw_end(no, &of.at);
        refused_if(ended, ALLOCATION_ENDED)
    }

    /// Of one's own allocation, if admission has not said that it forgets it.
    fn known_no(&self, of: &Operation, id: &str) -> Option<u64> {
        let no = self.allocation_no(id)?;
        let a = self.allocations.get(no)?;
        (a.tenant == of.ask.tenant && !a.forgotten).then_some(no)
    }

    /// The number in an id of this cell, `(cell << 64) | number` as a UUID.
    pub(super) fn allocation_no(&self, id: &str) -> Option<u64> {
        let hex: String = id.chars().filter(|c| *c != '-').collect();
        let value = u128::from_str_radix(&hex, 16).ok()?;
        ((value >> 64) as u64 == self.limits.cell).then_some(value as u64)
    }
}
