//! Nominees whose rules speak of others: until they have come, nobody else comes, and nobody has to go, where that would keep
//! them off the nodes that are being cleared for them. So nobody goes for one who then may not be there.

use super::{
    super::{
        Scheduler,
        class::Class,
        fleet::{Moves, NodeNo, Others},
    },
    plan::Plan,
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};
use vocab::{AllocationNo, PreemptionCause, Token};

/// The nominees that mind where one of a class goes.
pub struct Minding<'a> {
    state: &'a Scheduler,
    class: &'a Class,
    /// It is to be nominated, and may not come.
    nominated: bool,
    nominees: Vec<Nominee<'a>>,
}

struct Nominee<'a> {
    node: NodeNo,
    class: &'a Class,
    /// By the time that it comes.
    moves: Moves<'a>,
    /// Whether one more keeps it off, by whether that one is where the nominee is as each of its rules sees it; none: where
    /// the rule does not count.
    known: RefCell<BTreeMap<Vec<Option<bool>>, bool>>,
}

impl Minding<'_> {
    pub fn nobody(&self) -> bool {
        self.nominees.is_empty()
    }

    /// Whether one of the class may come to the node, as far as the nominees are concerned.
    pub fn let_it_come_to(&self, node: NodeNo) -> bool {
        let kept_off = |nominee: &Nominee| {
            let from_there = self.as_seen_by(nominee, node);
            let mut known = nominee.known.borrow_mut();
            *known
                .entry(from_there)
                .or_insert_with(|| self.keeps_off(nominee, node))
        };
        !self.nominees.iter().any(kept_off)
    }

    fn as_seen_by(&self, nominee: &Nominee<'_>, node: NodeNo) -> Vec<Option<bool>> {
        let rules = nominee.class.rules.iter();
        let labels = rules.flat_map(|rules| {
            let terms = rules.affinity.iter().chain(&rules.anti_affinity);
            let spread = rules.spread.iter().map(|rule| &rule.topology_key);
            terms.map(|term| &term.topology_key).chain(spread)
        });
        let value = |node, label: &Token| self.state.fleet.capacity(node).label(label.as_str());
        let same = labels.map(|label| match label {
            None => Some(node == nominee.node),
            Some(label) => {
                let there = value(node, label)?;
                Some(value(nominee.node, label) == Some(there))
            }
        });
        same.collect()
    }

    fn keeps_off(&self, nominee: &Nominee<'_>, node: NodeNo) -> bool {
        let mut moves = nominee.moves.clone();
        let comes = match self.nominated {
            true => &mut moves.may_come,
            false => &mut moves.come,
        };
        comes.push((node, self.class));
        let others = Others::of(&self.state.fleet, nominee.class, &moves);
        others.keep_off(nominee.node).is_some()
    }
}

impl Scheduler {
    /// Who minds where `no`, of this class, is placed now.
    pub(in super::super) fn minding<'a>(
        &'a self,
        no: AllocationNo,
        class: &'a Class,
    ) -> Minding<'a> {
        Minding {
            nominated: false,
            ..self.minding_by_then((no, class), &Plan::default(), &[])
        }
    }

    /// Who minds that `no` is nominated, and the victims and those of the plan go and are nominated.
    pub(super) fn minding_by_then<'a>(
        &'a self,
        (no, class): (AllocationNo, &'a Class),
        plan: &Plan,
        victims: &[(AllocationNo, PreemptionCause)],
    ) -> Minding<'a> {
        let mut minding = Minding {
            state: self,
            class,
            nominated: true,
            nominees: Vec::new(),
        };
        if !self.fleet.any_minding() {
            return minding;
        }
        let mut nominees: BTreeSet<_> = self.fleet.minding(class).collect();
        let fellows = victims.iter().flat_map(|(victim, _)| self.fellows(*victim));
        for live in fellows.filter_map(|no| self.allocations.get(&no)) {
            nominees.extend(self.fleet.minding(self.allocations.class(live.class)));
        }
        if nominees.is_empty() {
            return minding;
        }
        let mine = self.nominated_with(no);
        nominees.retain(|nominee| !mine.contains(nominee));
        for nominee in nominees {
            let unit = self.nominated_with(nominee);
            let nominations = self.nominations(&unit);
            let at = nominations.iter().position(|(no, _, _)| *no == nominee);
            let Some((at, (_, node, class))) = at.map(|at| (at, nominations[at])) else {
                continue;
            };
            let mut moves = self.moves_of_nominee(&nominations, at);
            // Whom the others keep off anyhow, nobody has to wait for.
            let others = Others::of(&self.fleet, class, &moves);
            if others.keep_off(node).is_some() {
                continue;
            }
            let of = |(_, node, class): (AllocationNo, NodeNo, _)| (node, class);
            let elsewhere = self.nominations(&mine).into_iter().map(of);
            moves.not_coming.extend(elsewhere);
            let mut planned = Moves::default();
            self.moves_of_plan(plan, victims, &mut planned);
            moves.gone.extend(planned.gone);
            moves.may_come.extend(planned.come);
            minding.nominees.push(Nominee {
                node,
                class,
                moves,
                known: RefCell::default(),
            });
        }
        minding
    }
}
