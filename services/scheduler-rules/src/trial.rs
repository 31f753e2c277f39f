//! Trials: what would be decided on a request, or on a gang whose members all ask for the same, if it came now and had its quota. It
//! does not enter the state: it is a guest, which stands nowhere, and is looked at by the functions that decide. Who would have to go for it is not found out, as that
//! costs as much as it does for all who wait.

use super::{
    Scheduler,
    aside::Aside,
    class::{Amounts, Class, ClassNo},
    explain::{Findings, reason_of},
    fleet::{Best, Wanted},
    place::RUNNERS_UP,
    queues::{Key, QueueNo},
    seeker::Seeker,
    waiting::Stands,
};
use std::borrow::Cow;
use vocab::{
    AllocationNo, AllocationSpec, Candidate, Filter, Gang, Millis, Refusal, Rule, Token,
    WaitingReason,
};

/// Half of all numbers, which no ledger comes to: as numbers decide among equals, a guest comes after everybody.
const GUEST: AllocationNo = AllocationNo(1 << 63);
/// Nobody's, and never looked up: what a guest asks for is beside it.
const NO_CLASS: ClassNo = ClassNo(u32::MAX);
/// Those before a guest in its queue are counted up to this.
pub const AHEAD_MAX: usize = 10_000;

/// What would be decided on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    pub queue: Token,
    pub decided: WouldBe,
    /// It depends on what has not ended. It is judged as if that had.
    pub awaits_others: bool,
}

/// The best few nodes for it, the chosen one first.
pub type Candidates = Vec<Candidate>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WouldBe {
    Placed {
        node: Token,
        candidates: Candidates,
    },
    /// So many members of the gang at once, which are enough.
    GangPlaced {
        members: u32,
    },
    Waiting {
        standing: Standing,
        /// Of a gang, so many members would find room. They are not enough, or the queue's limit keeps them waiting.
        room: Option<u32>,
        /// So many wait in its queue before it, of as many as [`AHEAD_MAX`].
        ahead: usize,
        in_queue: usize,
        /// Others may be made to go for it.
        may_preempt: bool,
    },
    /// No node that is known could hold it if it were empty, or its queue never may.
    Never(Standing),
}

/// Why it is not placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub reason: WaitingReason,
    /// How many nodes each filter keeps off, as long as room is what it waits for.
    pub counts: Vec<(Filter, u32)>,
    /// The least that is missing on one node.
    pub shortfall: Option<Amounts>,
}

fn check_size(gang: &Gang) -> Result<(), Refusal> {
    let most = AllocationSpec::GANG_SIZE_MAX;
    match (1..=most).contains(&gang.size) {
        true => Ok(()),
        false => {
            let (limit, actual) = (most.into(), gang.size.into());
            Err(Refusal::over(Rule::GangInvalid, "gang", limit, actual))
        }
    }
}

impl Scheduler {
    /// Judges a request as if it came now, when all that came before is decided, and had quota but for these models of GPUs.
    /// Of a member of a gang the whole gang is judged, as if each member asked for the same. Refused are gangs for which the room of
    /// each node does not tell, and what is for a queue that the tenant may not submit to.
    pub fn try_request(
        &self,
        tenant: &Token,
        spec: &AllocationSpec,
        except_models: &[Token],
        now: Millis,
    ) -> Result<Trial, Refusal> {
        spec.gang.as_ref().map_or(Ok(()), check_size)?;
        // One alone is placed as if it were in no gang.
        let is_alone = |gang: &&Gang| gang.size == 1 && gang.uniform_label.is_none();
        let gang = spec.gang.as_ref().filter(|gang| !is_alone(gang));
        let name = spec.queue.as_ref().unwrap_or(tenant);
        let queue = self.queue_of_guest(tenant, name)?;
        let class = Class {
            except_models: except_models.to_vec(),
            ..self.fleet.class_of_guest(tenant, spec)
        };
        let priority_class = spec.priority_class.as_ref();
        let priority_class = priority_class.and_then(|name| self.settings.class_named(name));
        let seeker = Seeker {
            no: GUEST,
            class: &class,
            policy: self.placement_policy_by(queue, priority_class),
            queue,
            queue_name: name,
            run_time_ms: spec.estimate_ms(),
        };
        let preempts = priority_class.is_some_and(|class| class.preempts);
        let mut on = spec.depends_on.iter();
        Ok(Trial {
            queue: name.clone(),
            decided: self.would_be(&seeker, gang, (spec.priority, preempts), now)?,
            awaits_others: on.any(|it| self.allocations.contains(&it.allocation)),
        })
    }

    /// As the inbox has it: one's own, which nobody may have used yet, or one that was set for it. Who has a queue is nobody else's
    /// business.
    fn queue_of_guest(&self, tenant: &Token, name: &Token) -> Result<Option<QueueNo>, Refusal> {
        let refused = |rule| Refusal::new(rule, "queue");
        let queues = self.waiting.queues();
        let Some(no) = queues.known(name) else {
            let own = (name == tenant).then_some(None);
            return own.ok_or_else(|| refused(Rule::QueueUnknown));
        };
        let queue = queues.get(no);
        match name == tenant || queue.settings.tenants.contains(tenant) {
            true => Ok(Some(no)),
            false if queue.set => Err(refused(Rule::QueueForbidden)),
            false => Err(refused(Rule::QueueUnknown)),
        }
    }

    fn would_be(
        &self,
        seeker: &Seeker<'_>,
        gang: Option<&Gang>,
        (priority, preempts): (i32, bool),
        now: Millis,
    ) -> Result<WouldBe, Refusal> {
        let class = seeker.class;
        let size = gang.map_or(1, |gang| u64::from(gang.size));
        let amounts = class.amounts().map(|amount| amount.saturating_mul(size));
        let queues = self.waiting.queues();
        let limit = |queue| queues.limited_by(queue, &amounts);
        let limited = seeker.queue.is_some_and(|queue| limit(queue).is_some());
        let ever = seeker
            .queue
            .is_none_or(|queue| queues.ever(queue, &amounts));
        let could_hold = self.fleet.could_hold_guest(class);
        let room = gang.map(|gang| self.room_for_gang(class, gang, now));
        let room = room.transpose()?;
        let placed = match (gang, room) {
            _ if limited => None,
            (Some(gang), Some(room)) => {
                (room >= gang.min.max(1)).then_some(WouldBe::GangPlaced { members: room })
            }
            _ => {
                let arrives = ever && could_hold && self.fleet.could_be_near(class);
                self.would_be_placed(seeker, arrives, now)
            }
        };
        if let Some(placed) = placed {
            return Ok(placed);
        }
        let for_room = match gang {
            Some(_) => WaitingReason::GangNoRoom,
            None => WaitingReason::NoRoomNow,
        };
        let block = match (limited, ever) {
            (false, _) => for_room,
            (true, true) => WaitingReason::QueueLimit,
            (true, false) => WaitingReason::OverLimit,
        };
        let Findings { counts, shortfall } = match limited {
            true => Findings::default(),
            false => self.look_at_all_nodes(seeker.no, class),
        };
        let standing = Standing {
            reason: reason_of(block, self.fleet.lack_of(class)),
            counts: counts.into_iter().collect(),
            shortfall,
        };
        if !ever || !could_hold {
            return Ok(WouldBe::Never(standing));
        }
        let stands = Stands {
            no: seeker.no,
            queue: seeker.queue,
            priority,
            requested: now,
            run_time_ms: seeker.run_time_ms,
        };
        let key = self.waiting.key_of(&stands, amounts, &self.settings);
        let place = seeker.queue.map(|queue| self.ahead_of(queue, key));
        let (ahead, in_queue) = place.unwrap_or_default();
        let policy = self.settings.policy();
        let any_may_go = policy.preemptions_per_minute > 0 && self.settings.any_preemptible();
        Ok(WouldBe::Waiting {
            standing,
            room,
            ahead,
            in_queue,
            may_preempt: !limited && any_may_go && (preempts || policy.fair_share_preemption),
        })
    }

    /// How many members find room, up to all. Refused where it would have to be tried.
    fn room_for_gang(&self, class: &Class, gang: &Gang, now: Millis) -> Result<u32, Refusal> {
        let set_aside = Aside::of(self, now).nodes(&self.reservations);
        let alike = set_aside.is_empty() && !self.fleet.any_minding();
        let room = (alike && gang.uniform_label.is_none() && class.is_counted())
            .then(|| self.fleet.room_for_guests(class, gang.size))
            .flatten();
        room.ok_or_else(|| Refusal::new(Rule::NotSupported, "gang"))
    }

    /// On its best node, if one has room. When one `arrives` that may ever be placed, other requests may be the usual ones.
    fn would_be_placed(&self, seeker: &Seeker<'_>, arrives: bool, now: Millis) -> Option<WouldBe> {
        let usual = self.fleet.popularity();
        let with_it = arrives.then(|| usual.with(&seeker.class.ask)).flatten();
        let usual = with_it.map_or(Cow::Borrowed(usual), Cow::Owned);
        let wanted = Wanted {
            no: NO_CLASS,
            class: seeker.class,
            policy: seeker.policy,
        };
        let aside = Aside::of(self, now);
        let set_aside = aside.nodes(&self.reservations);
        let may = self.may_be_at(seeker.no, seeker.class);
        let mut best = Best::new(1 + RUNNERS_UP);
        self.fleet.best_if((&wanted, &usual), &mut best, |node| {
            !set_aside.contains(&node) && may(node)
        });
        let value = |node| self.fleet.value_if(node, &wanted, &usual);
        self.best_aside(seeker, (&aside, &set_aside), (value, may), &mut best);
        let (node, _) = *best.nodes().first()?;
        let (there, capacity) = (self.fleet.node(node), self.fleet.capacity(node));
        // Zones may have no spot though there is room.
        self.fleet
            .spot(there, capacity, seeker.class, seeker.policy)?;
        let candidates = best.nodes().iter().map(|(node, value)| Candidate {
            node: self.fleet.node(*node).name.clone(),
            score: value.score(),
        });
        Some(WouldBe::Placed {
            node: there.name.clone(),
            candidates: candidates.collect(),
        })
    }

    /// How many wait in the queue before the key, as far as they are counted, and how many in all.
    fn ahead_of(&self, queue: QueueNo, key: Key) -> (usize, usize) {
        let of_queue = self.waiting.queues().pending_groups();
        let of_queue = of_queue.filter(|pending_group| pending_group.key.queue == queue);
        let (mut ahead, mut all) = (0, 0);
        for pending_group in of_queue {
            all += pending_group.waiting.len();
            let before = pending_group.waiting.range(..key);
            ahead += before.take(AHEAD_MAX - ahead).count();
        }
        (ahead, all)
    }
}
