//! Reserve: all that is asked for, or a wait or a denial that names what is in the way.
//!
//! Requests are taken up in the order of their numbers, and every first decision comes in that order. In between, whoever
//! waits and might go on now is tried, the higher priority first. Only a request of the same tenant or cohort that could be
//! granted gives cause to that: what others ask, and what is impossible, does not change who goes first.

use super::{
    Quota,
    account::AccountId,
    books::Move,
    claim::{Hold, Order, Place, Point, Stage, What},
    cohort::CohortId,
    demand::{Demand, Shortage, Why},
    depend,
    models::Grant,
};
use ledger::{Draft, IllegalEvent};
use std::{collections::BTreeSet, fmt};
use vocab::fact::{QuotaDenied, QuotaReserved, QuotaWaiting};
use vocab::{AllocationNo, At, Millis, ModelGrant, OnExceed, Refusal, Rule};

/// A cohort, or a tenant outside of any.
type Group = (Option<CohortId>, Option<AccountId>);

/// What is decided on a unit.
#[derive(Debug)]
pub(super) enum Verdict {
    Grant(Grant),
    Deny(Refusal),
    /// They could not hold so much now, whoever else holds what.
    StandAside(Refusal),
    Wait {
        shortage: Shortage,
        refusal: Refusal,
        /// Who is to stop for it.
        victims: Vec<AllocationNo>,
    },
}

/// Those who wait and might go on now.
#[derive(Default)]
struct Ready {
    all: BTreeSet<(Order, Point)>,
    by_group: BTreeSet<(Group, Order, Point)>,
}

impl Ready {
    fn add(&mut self, group: Group, order: Order, point: Point) {
        self.all.insert((order, point));
        self.by_group.insert((group, order, point));
    }

    /// The first of a group, if it goes before `order`.
    fn before(&self, group: Group, order: Order) -> Option<(Order, Point)> {
        let first = Point::FIRST;
        let mut of_group = self.by_group.range((group, Order::FIRST, first)..);
        let (_, head, point) = of_group.next().filter(|it| it.0 == group)?;
        (*head < order).then_some((*head, *point))
    }

    fn take(&mut self, group: Group, order: Order, point: Point) {
        self.all.remove(&(order, point));
        self.by_group.remove(&(group, order, point));
    }
}

pub(super) fn decide(state: &mut Quota, draft: &mut Draft) {
    state.look_at_all();
    state.books.marks.elapse(draft.now);
    let mut ready = Ready::default();
    while !draft.full() {
        while let Some(point) = state.books.marks.points.pop_first() {
            state.may_go_on(point, draft.now, &mut ready);
        }
        if let Some(gang) = state.books.marks.gangs.pop_first() {
            state.look_at_gang(gang, draft);
            continue;
        }
        let asked = state.asked.first().copied();
        let next = match asked.and_then(|no| Some((no, state.claims.get(&no)?))) {
            Some((no, claim)) => ready.before(state.group(claim.path.tenant()), claim.order(no)),
            None => ready.all.first().copied(),
        };
        match (next, asked) {
            (Some(_), Some(asked)) if !state.could_be_granted(asked, draft.now) => {
                state.ask(asked, draft);
            }
            (Some((order, point)), _) => {
                ready.take(state.group(point.account), order, point);
                state.try_again(order, point, draft);
            }
            (None, Some(asked)) => state.ask(asked, draft),
            (None, None) => return,
        }
    }
    // The frame is full: what was not tried is tried for the next.
    let rest = ready.all.into_iter().map(|(_, point)| point);
    state.books.marks.points.extend(rest);
}

impl Quota {
    /// A state without marks looks at every queue and gang once.
    fn look_at_all(&mut self) {
        let marks = &mut self.books.marks;
        if !std::mem::replace(&mut marks.looked, true) {
            marks.gangs.extend(self.gangs.numbers());
            self.books.mark_all();
        }
    }

    /// It asks for something now that there may ever be.
    fn could_be_granted(&self, allocation: AllocationNo, now: Millis) -> bool {
        let members = [allocation];
        let refusal = self.impossible(&members, &self.demands(&members), now);
        let never = refusal.is_some_and(|refusal| refusal.rule == Rule::QuotaNeverFits);
        !never && !self.dependencies.awaits_others(allocation)
    }

    fn group(&self, account: AccountId) -> Group {
        let tenant = self.books.usage_tree.path(account).tenant();
        let cohort = self.books.usage_tree.node(tenant).cohort;
        (cohort, cohort.is_none().then_some(tenant))
    }

    fn may_go_on(&mut self, point: Point, now: Millis, ready: &mut Ready) {
        let head = self.books.queues.head(point);
        let back = self.books.may_come_back(point, now);
        // Where somebody waits, there is an account.
        for order in head.into_iter().chain(back) {
            ready.add(self.group(point.account), order, point);
        }
    }

    fn try_again(&mut self, order: Order, point: Point, draft: &mut Draft) {
        let claim = self.claims.get(&order.allocation());
        if let Some(Place::Aside { point: at, .. }) = claim.map(|claim| claim.place()) {
            if at == point {
                let unit = self.unit(order.allocation());
                self.attempt(&unit, None, draft);
            }
            return;
        }
        match self.books.queues.head(point) {
            Some(head) if head == order => {
                let unit = self.unit(order.allocation());
                self.attempt(&unit, Some(point), draft);
            }
            // Another one has come to the head meanwhile.
            Some(_) => self.books.marks.point(point),
            None => {}
        }
    }

    /// What is asked for the first time, or again.
    fn ask(&mut self, allocation: AllocationNo, draft: &mut Draft) {
        if !self.dependencies.awaits_others(allocation) {
            return self.ask_in_gang(allocation, draft);
        }
        let demands = self.demands(&[allocation]);
        match self.never_fits(allocation, &demands, draft.now) {
            Some(refusal) => self.deny(&[allocation], &refusal, draft),
            None => self.tell(&[allocation], Place::Others, &depend::pending(), draft),
        }
    }

    /// Why one that is of no gang could never be granted what it asks for. What a gang asks for is not known before all of it
    /// asks.
    pub(super) fn never_fits(
        &self,
        allocation: AllocationNo,
        demands: &[Demand],
        now: Millis,
    ) -> Option<Refusal> {
        let refusal = self.impossible(&[allocation], demands, now)?;
        let alone = self.open_gang(allocation).is_none();
        (alone && refusal.rule == Rule::QuotaNeverFits).then_some(refusal)
    }

    /// Grants the claims of a gang, or of one allocation, together; or says what is in their way. `at` is what they wait
    /// for: as long as that is in their way, nothing else is looked at.
    pub(super) fn attempt(
        &mut self,
        members: &[AllocationNo],
        at: Option<Point>,
        draft: &mut Draft,
    ) {
        let Some((&lead, claim)) = members
            .first()
            .and_then(|no| Some((no, self.claims.get(no)?)))
        else {
            return;
        };
        let order = claim.order(lead);
        let mut demands = std::mem::take(&mut self.books.marks.demands);
        self.needs_into(members, &mut demands);
        let still = at.and_then(|point| self.still(point, members, &demands, order, draft.now));
        let impossible = still.and_then(|_| self.impossible(members, &demands, draft.now));
        if let Some(refusal) = impossible {
            self.stand_aside(members, &demands, &refusal, draft);
        } else if let Some(shortage) = still {
            self.wait_on(&shortage, members, &demands, draft);
            let victims = self.victims(&shortage, &demands, lead);
            self.take_back(victims.unwrap_or_default(), lead, draft);
        } else {
            match self.judge(members, &demands, order, draft.now) {
                Verdict::Grant(grant) => self.grant(members, &grant, draft),
                Verdict::Deny(refusal) => self.deny(members, &refusal, draft),
                Verdict::StandAside(refusal) => {
                    self.stand_aside(members, &demands, &refusal, draft);
                }
                Verdict::Wait {
                    shortage,
                    refusal,
                    victims,
                } => {
                    self.wait_on(&shortage, members, &demands, draft);
                    self.tell(members, Place::At(shortage.point), &refusal, draft);
                    self.take_back(victims, lead, draft);
                }
            }
        }
        self.books.marks.demands = demands;
    }

    fn grant(&mut self, members: &[AllocationNo], grant: &Grant, draft: &mut Draft) {
        for &allocation in members {
            let reserved = QuotaReserved {
                allocation,
                flags: grant.flags,
                models: self.model_grant(allocation, grant),
            };
            draft.emit(self, reserved);
        }
    }

    /// What is decided on what they ask for together, if nothing that they were told before is in their way. Whoever leads
    /// them is there.
    pub(super) fn judge(
        &self,
        members: &[AllocationNo],
        demands: &[Demand],
        order: Order,
        now: Millis,
    ) -> Verdict {
        let shortage = match self.check(members, demands, order, now) {
            Ok(grant) => return Verdict::Grant(grant),
            Err(shortage) => shortage,
        };
        let lead = order.allocation();
        let open = members.iter().any(|no| self.may_be_denied(*no));
        let impossible = self.impossible(members, demands, now);
        let never = |refusal: &&Refusal| open && refusal.rule == Rule::QuotaNeverFits;
        if let Some(refusal) = impossible.as_ref().filter(never) {
            return Verdict::Deny(refusal.clone());
        }
        let rule = match shortage.why {
            Why::Budget => Rule::BudgetExhausted,
            Why::Limit | Why::Lent | Why::Behind(_) => Rule::QuotaExceeded,
        };
        let refusal = self.refusal(rule, shortage.point, shortage.limit, shortage.actual);
        let victims = match impossible {
            None => self.victims(&shortage, demands, lead),
            Some(_) => None,
        };
        if open && victims.is_none() && self.on_exceed(lead) == OnExceed::Refuse {
            return Verdict::Deny(refusal);
        }
        match impossible {
            Some(refusal) => Verdict::StandAside(refusal),
            None => Verdict::Wait {
                shortage,
                refusal,
                victims: victims.unwrap_or_default(),
            },
        }
    }

    /// They leave the line for others, until there may be held as much as they ask for.
    fn stand_aside(
        &mut self,
        members: &[AllocationNo],
        demands: &[Demand],
        refusal: &Refusal,
        draft: &mut Draft,
    ) {
        let Some(place @ Place::Aside { point, .. }) = self.place_of(refusal) else {
            return;
        };
        let turn = self.turn(members, demands, draft.now);
        self.books.marks.retries.extend(turn.map(|at| (at, point)));
        self.tell(members, place, refusal, draft);
    }

    /// Tells those who were not told so before.
    fn tell(
        &mut self,
        members: &[AllocationNo],
        place: Place,
        refusal: &Refusal,
        draft: &mut Draft,
    ) {
        for &allocation in members {
            let told = self.claims.get(&allocation).map(|claim| claim.place());
            if told != Some(place) {
                let refusal = refusal.clone();
                draft.emit(
                    self,
                    QuotaWaiting {
                        allocation,
                        refusal,
                    },
                );
            }
        }
    }

    /// What was told that it waits is not denied any more, but for one that waited for others before it could ask: for
    /// what it depends on, or for its gang.
    fn may_be_denied(&self, allocation: AllocationNo) -> bool {
        let claim = self.claims.get(&allocation);
        claim.is_some_and(|claim| {
            let waits = matches!(
                claim.stage,
                Stage::Waits {
                    place: Place::At(_) | Place::Aside { .. } | Place::Nowhere,
                    ..
                }
            );
            !claim.again && !waits
        })
    }

    fn on_exceed(&self, allocation: AllocationNo) -> OnExceed {
        let claim = self.claims.get(&allocation);
        claim.map_or(OnExceed::Refuse, |claim| {
            self.books
                .usage_tree
                .node(claim.path.tenant())
                .settings()
                .on_exceed
        })
    }

    fn deny(&mut self, members: &[AllocationNo], refusal: &Refusal, draft: &mut Draft) {
        for &allocation in members {
            let refusal = refusal.clone();
            draft.emit(
                self,
                QuotaDenied {
                    allocation,
                    refusal,
                },
            );
        }
    }

    /// Notes what may take it out of the way but for quota that comes back: time, or taking it back from others.
    fn wait_on(
        &mut self,
        shortage: &Shortage,
        members: &[AllocationNo],
        demands: &[Demand],
        draft: &Draft,
    ) {
        let turn = self.turn(members, demands, draft.now);
        let turn = turn.map(|at| (at, shortage.point));
        self.books.marks.retries.extend(turn);
        if shortage.why == Why::Lent {
            self.books.marks.lenders.insert(shortage.point);
        }
        let node = self.books.usage_tree.node(shortage.point.account);
        let at = match shortage.point.what {
            What::Resource(resource) => node
                .limited(resource)
                .and_then(|limited| limited.rested_at(draft.now)),
            What::Budget(purse) => {
                let meter = node.meters.iter().find(|meter| meter.purse == purse);
                meter.map(|meter| meter.period_end(draft.now))
            }
        };
        if let Some(at) = at {
            self.books.marks.retries.insert((at, shortage.point));
        }
    }

    pub(super) fn reserved(
        &mut self,
        at: &At,
        allocation: AllocationNo,
        models: Option<&ModelGrant>,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        match self.claims.get(&allocation).map(|claim| claim.stage) {
            Some(Stage::Asked) => drop(self.asked.remove(&allocation)),
            Some(Stage::Waits { .. }) => self.step_out(allocation),
            Some(Stage::Holds(_)) => return Err(IllegalEvent::new("held already", event)),
            None => return Err(IllegalEvent::new("not asked", event)),
        }
        self.grant_in_gang(allocation);
        self.may_run_on(allocation, models);
        if let Some(claim) = self.claims.get_mut(&allocation) {
            claim.stage = Stage::Holds(Hold::default());
            let node = self.books.usage_tree.node_mut(claim.path.leaf());
            node.held.insert(claim.seniority(allocation));
            self.books
                .shift(&claim.path, claim.counted(), Move::Reserve, at.now);
        }
        Ok(())
    }

    pub(super) fn denied(
        &mut self,
        allocation: AllocationNo,
        event: &impl fmt::Debug,
    ) -> Result<(), IllegalEvent> {
        match self.claims.get(&allocation) {
            Some(claim) if claim.again => Err(IllegalEvent::new("granted before", event)),
            Some(claim) if claim.hold().is_some() => Err(IllegalEvent::new("held", event)),
            Some(_) => {
                self.drop_undecided(allocation);
                Ok(())
            }
            None => Err(IllegalEvent::new("not asked", event)),
        }
    }
}
