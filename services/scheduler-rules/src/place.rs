//! Placing what is next: one allocation on the best node that it may go to, or a gang all at once.

use super::{
    Scheduler,
    allocation::{Avoided, Live},
    aside::Aside,
    class::{Class, ClassNo, SchedulingKeyNo},
    fair::Share,
    fleet::{Best, Moves, NodeNo, Others, Spot, Taken, Value, Wanted, keeps_off},
    gang::GangNo,
    queues::QueueNo,
    seeker::Seeker,
    settings::PriorityNo,
    waiting::Short,
};
use ledger::Draft;
use std::{cmp::Reverse, collections::BTreeSet, ops::ControlFlow};
use vocab::fact::AllocationPlaced;
use vocab::{AllocationNo, Candidate, PlacementPolicy, PriorityClass, Token, WaitingReason};

/// A place that was found; nothing stands on the ledger yet.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub allocation: AllocationNo,
    pub node: NodeNo,
    pub spot: Spot,
    pub policy: PlacementPolicy,
}

/// Places that are taken to see whether the others find theirs beside them. It is given back before anything is decided.
#[derive(Debug, Default)]
pub(super) struct Trial {
    pub places: Vec<Place>,
    /// What each took.
    taken: Vec<(ClassNo, Taken)>,
}

/// A search for places of all members of a gang.
struct Search<'a> {
    uniform: Uniform<'a>,
    aside: &'a Aside,
    trial: Trial,
    steps_left: u32,
    /// Any member may be placed next, and not only the first: a member with rules about another may have to follow it.
    in_any_order: bool,
    /// Some are left out on the way that is tried.
    left_out: bool,
    /// The most that were placed at once.
    best: Vec<Place>,
}

/// Places that a search takes on trial, all in all. Small gangs are searched through, in large ones the order has to do.
const STEPS_MAX: u32 = 512;
/// Nodes that a member is tried on: so many of the best, and so many of those with most room.
const CHOICES: usize = Best::MOST;

/// How many nodes a placement names beside the one that was chosen.
pub(super) const RUNNERS_UP: usize = 2;

/// Only nodes whose label has this value.
type Uniform<'a> = Option<(&'a Token, &'a Token)>;

impl Scheduler {
    pub(super) fn placement_policy(&self, live: &Live) -> PlacementPolicy {
        self.placement_policy_of(live.queue, live.priority_class)
    }

    pub(super) fn placement_policy_of(
        &self,
        queue: QueueNo,
        priority_class: Option<PriorityNo>,
    ) -> PlacementPolicy {
        self.placement_policy_by(Some(queue), self.settings.class(priority_class))
    }

    /// In a queue that nobody has used: by its settings, of which it has none.
    pub(super) fn placement_policy_by(
        &self,
        queue: Option<QueueNo>,
        class: Option<&PriorityClass>,
    ) -> PlacementPolicy {
        class
            .and_then(|class| class.placement)
            .or_else(|| self.waiting.queues().get(queue?).settings.placement)
            .unwrap_or(self.settings.policy().placement)
    }

    /// What the allocation looks for.
    fn wanted(&self, live: &Live) -> (ClassNo, PlacementPolicy) {
        (live.class, self.placement_policy(live))
    }

    /// The best nodes for one allocation as things stand, `most` of them. A node that a run failed on is better than none.
    fn best_nodes(
        &mut self,
        no: AllocationNo,
        uniform: Uniform<'_>,
        aside: &Aside,
        most: usize,
    ) -> Best {
        let live = self.allocations.get(&no);
        let avoided = live.map_or(Avoided::default(), |live| live.avoided.clone());
        let best = self.best_nodes_but(&avoided, (no, uniform), aside, most);
        match best.nodes().is_empty() && !avoided.is_empty() {
            true => self.best_nodes_but(&Avoided::default(), (no, uniform), aside, most),
            false => best,
        }
    }

    /// The same, but for some nodes.
    fn best_nodes_but(
        &mut self,
        avoided: &Avoided,
        (no, uniform): (AllocationNo, Uniform<'_>),
        aside: &Aside,
        most: usize,
    ) -> Best {
        let mut best = Best::new(most);
        let Some(live) = self.allocations.get(&no) else {
            return best;
        };
        let (class_no, policy) = self.wanted(live);
        let class = self.allocations.class(class_no);
        let wanted = Wanted {
            no: class_no,
            class,
            policy,
        };
        self.fleet.rank(&wanted);
        let fleet = &self.fleet;
        let may_be_at = self.may_be_at(no, class);
        let may = |node: NodeNo| {
            let value = |label: &Token| fleet.capacity(node).label(label.as_str());
            uniform.is_none_or(|(label, wanted)| value(label) == Some(wanted)) && may_be_at(node)
        };
        let may = |node| !avoided.contains(node) && may(node);
        fleet.best(&wanted, &mut best, may);
        let seeker = self.seeker(no, live);
        let value = |node| fleet.value(node, &wanted);
        self.best_aside(&seeker, (aside, fleet.aside()), (value, may), &mut best);
        best
    }

    pub(super) fn seeker<'a>(&'a self, no: AllocationNo, live: &Live) -> Seeker<'a> {
        Seeker {
            no,
            class: self.allocations.class(live.class),
            policy: self.placement_policy(live),
            queue: Some(live.queue),
            queue_name: &self.waiting.queues().get(live.queue).name,
            run_time_ms: live.run_time_ms,
        }
    }

    /// Whether one of the class may be at a node, as far as those are concerned that are there or come there.
    pub(super) fn may_be_at<'a>(
        &'a self,
        no: AllocationNo,
        class: &'a Class,
    ) -> impl Fn(NodeNo) -> bool + use<'a> {
        let others = class
            .looks_at_others()
            .then(|| Others::of(&self.fleet, class, &Moves::default()));
        let minding = self.minding(no, class);
        move |node| {
            others
                .as_ref()
                .is_none_or(|others| others.keep_off(node).is_none())
                && minding.let_it_come_to(node)
        }
    }

    /// Adds those of the best nodes that are set aside and let it in.
    pub(super) fn best_aside(
        &self,
        seeker: &Seeker<'_>,
        (aside, nodes): (&Aside, &BTreeSet<NodeNo>),
        (value, may): (impl Fn(NodeNo) -> Value, impl Fn(NodeNo) -> bool),
        best: &mut Best,
    ) {
        for node in nodes.iter().copied() {
            let there = self.fleet.node(node);
            if there.open() && there.nominees.is_empty() && may(node) {
                let value = value(node);
                if value > best.least() && aside.lets_seeker(self, seeker, node) {
                    best.offer(node, value);
                }
            }
        }
    }

    fn find_place(
        &mut self,
        no: AllocationNo,
        uniform: Uniform<'_>,
        aside: &Aside,
    ) -> Option<Place> {
        let best = self.best_nodes(no, uniform, aside, 1);
        let (node, _) = *best.nodes().first()?;
        self.place_on(no, node)
    }

    /// The place on a node that it fits on.
    pub(super) fn place_on(&self, no: AllocationNo, node: NodeNo) -> Option<Place> {
        let (class, policy) = self.wanted(self.allocations.get(&no)?);
        let class = self.allocations.class(class);
        let there = self.fleet.node(node);
        let capacity = self.fleet.capacity(node);
        let spot = self.fleet.spot(there, capacity, class, policy)?;
        Some(Place {
            allocation: no,
            node,
            spot,
            policy,
        })
    }

    /// Places the members of one unit: all of a single, at least the minimum of a gang.
    pub(super) fn place(
        &mut self,
        members: &[AllocationNo],
        scheduling_key: SchedulingKeyNo,
        aside: &Aside,
        draft: &mut Draft,
    ) -> Result<(), Short> {
        if self.is_single(members, scheduling_key) {
            return match self.place_on_best(members[0], aside, draft) {
                true => Ok(()),
                false => Err(Short::of(WaitingReason::NoRoomNow)),
            };
        }
        let first = members.first().and_then(|no| self.allocations.get(no));
        let policy = first.map(|live| self.placement_policy(live));
        let room = policy.and_then(|it| self.room_for_alike(scheduling_key, it, members.len()));
        if let Some(room) = room {
            for no in &members[..room?] {
                self.place_on_best(*no, aside, draft);
            }
            return Ok(());
        }
        for place in self.find_places(members, scheduling_key, aside)? {
            let event = self.placed_event(place, aside);
            draft.emit(self, event);
        }
        Ok(())
    }

    fn place_on_best(&mut self, no: AllocationNo, aside: &Aside, draft: &mut Draft) -> bool {
        let best = self.best_nodes(no, None, aside, 1 + RUNNERS_UP);
        let first = best.nodes().first();
        let Some(place) = first.and_then(|(node, _)| self.place_on(no, *node)) else {
            return false;
        };
        let event = self.placed_with(place, &best);
        draft.emit(self, event);
        true
    }

    /// Whether `place` would find places for them.
    pub(super) fn has_room(
        &mut self,
        members: &[AllocationNo],
        scheduling_key: SchedulingKeyNo,
        aside: &Aside,
    ) -> Result<(), Short> {
        if self.is_single(members, scheduling_key) {
            return match self.find_place(members[0], None, aside) {
                Some(_) => Ok(()),
                None => Err(Short::of(WaitingReason::NoRoomNow)),
            };
        }
        self.find_places(members, scheduling_key, aside).map(|_| ())
    }

    /// The same for whoever stands in a pending group, where what is free on each node tells. None: it has to be tried.
    pub(super) fn has_room_by_numbers(
        &mut self,
        scheduling_key_no: SchedulingKeyNo,
        policy: PlacementPolicy,
    ) -> Option<Result<(), Short>> {
        let scheduling_key = self.waiting.scheduling_key(scheduling_key_no);
        let ([(class_no, 1)], None) = (&scheduling_key.members[..], &scheduling_key.uniform_label)
        else {
            let min = scheduling_key.min.max(1) as usize;
            let room = self.room_for_alike(scheduling_key_no, policy, min);
            return room.map(|room| room.map(|_| ()));
        };
        let class = self.allocations.class(*class_no);
        if class.looks_at_others() || !self.all_nodes_are_alike_for_all() {
            return None;
        }
        let wanted = Wanted {
            no: *class_no,
            class,
            policy,
        };
        self.fleet.rank(&wanted);
        let mut best = Best::new(1);
        self.fleet.best(&wanted, &mut best, |_| true);
        match best.nodes() {
            [] => Some(Err(Short::of(WaitingReason::NoRoomNow))),
            // Zones may have no spot though there is room.
            [(node, _), ..] if self.fleet.capacity(*node).topology.is_some() => None,
            _ => Some(Ok(())),
        }
    }

    /// Nothing is set aside, and no nominee minds who comes where.
    fn all_nodes_are_alike_for_all(&self) -> bool {
        self.fleet.aside().is_empty() && !self.fleet.any_minding()
    }

    fn is_single(&self, members: &[AllocationNo], scheduling_key: SchedulingKeyNo) -> bool {
        let scheduling_key = self.waiting.scheduling_key(scheduling_key);
        members.len() == 1 && scheduling_key.uniform_label.is_none()
    }

    /// How many members of a gang find places, up to `most`, where what is free on each node tells: they all ask for the
    /// same, wherever others are. None: it has to be tried.
    fn room_for_alike(
        &mut self,
        scheduling_key: SchedulingKeyNo,
        policy: PlacementPolicy,
        most: usize,
    ) -> Option<Result<usize, Short>> {
        let scheduling_key = self.waiting.scheduling_key(scheduling_key);
        let ([(class_no, _)], None) = (&scheduling_key.members[..], &scheduling_key.uniform_label)
        else {
            return None;
        };
        let (class_no, min) = (*class_no, scheduling_key.min.max(1));
        let class = self.allocations.class(class_no);
        if !class.is_counted() || !self.all_nodes_are_alike_for_all() {
            return None;
        }
        let wanted = Wanted {
            no: class_no,
            class,
            policy,
        };
        self.fleet.rank(&wanted);
        let fleet = &self.fleet;
        let room_on = |node: NodeNo| fleet.node(node).room_for(fleet.capacity(node), class);
        let mut room = 0;
        let mut zones = false;
        fleet.fitting(&wanted, |node| {
            zones |= fleet.capacity(node).topology.is_some();
            room += room_on(node) as usize;
            match zones || room >= most {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        if zones {
            return None;
        }
        if room >= min as usize {
            return Some(Ok(room.min(most)));
        }
        let mut short = Short {
            min,
            ..Short::of(WaitingReason::GangNoRoom)
        };
        fleet.fitting(&wanted, |node| {
            short.room.insert(node, room_on(node));
            ControlFlow::Continue(())
        });
        Some(Err(short))
    }

    /// Places for the members of one unit that are found by trying. The state is as before.
    fn find_places(
        &mut self,
        members: &[AllocationNo],
        scheduling_key: SchedulingKeyNo,
        aside: &Aside,
    ) -> Result<Vec<Place>, Short> {
        let scheduling_key = self.waiting.scheduling_key(scheduling_key);
        let scheduling_key = scheduling_key.clone();
        let min = scheduling_key.min;
        let Some(label) = &scheduling_key.uniform_label else {
            let places = self.try_all(members, None, aside);
            return enough(places, min);
        };
        let values = match &scheduling_key.uniform_value {
            Some(value) => vec![value.clone()],
            None => self.fleet.label_values(label),
        };
        if values.is_empty() {
            return Err(Short::of(WaitingReason::NoUniformLabel));
        }
        // The value that takes the most members; the first by name among equals.
        let mut best: Vec<Place> = Vec::new();
        for value in &values {
            let places = self.try_all(members, Some((label, value)), aside);
            if places.len() > best.len() {
                best = places;
            }
            if best.len() == members.len() {
                break;
            }
        }
        enough(best, min)
    }

    /// The value of the gang's uniform label on the nodes where members of it run already.
    pub(super) fn uniform_value(&self, gang: GangNo) -> Option<Token> {
        let label = self.waiting.gangs().uniform_label(gang)?;
        let binding = self
            .waiting
            .gangs()
            .on_nodes(gang)
            .find_map(|no| self.allocations.get(&no)?.binding());
        self.fleet
            .capacity(binding?.node)
            .label(label.as_str())
            .cloned()
    }

    /// Finds places for as many members as possible: the largest first, each on its best node, as long as that finds places for
    /// all; else by a search that undoes places that block another member, of at most `STEPS_MAX` steps. If a member has rules
    /// about others, a second search tries the members in any order.
    pub(super) fn try_all(
        &mut self,
        members: &[AllocationNo],
        uniform: Uniform<'_>,
        aside: &Aside,
    ) -> Vec<Place> {
        let mut members = members.to_vec();
        self.largest_first(&mut members);
        let mut trial = Trial::default();
        let mut full: BTreeSet<ClassNo> = BTreeSet::new();
        for no in &members {
            let Some(class) = self.allocations.get(no).map(|live| live.class) else {
                continue;
            };
            // Members of one class find no place once one has not.
            if full.contains(&class) {
                continue;
            }
            let place = self.find_place(*no, uniform, aside);
            if place.is_none_or(|place| !self.take(place, &mut trial)) {
                full.insert(class);
            }
        }
        let found = trial.places.clone();
        self.undo(&mut trial, 0);
        if found.len() == members.len() || !self.may_be_packed_better(&members) {
            return found;
        }
        let mut search = Search {
            uniform,
            aside,
            trial,
            steps_left: STEPS_MAX,
            in_any_order: false,
            left_out: false,
            best: found,
        };
        let all = self.search(&members, &mut search);
        self.undo(&mut search.trial, 0);
        if !all && self.any_looks_at_others(&members) {
            search.steps_left = STEPS_MAX;
            search.in_any_order = true;
            self.search(&members, &mut search);
            self.undo(&mut search.trial, 0);
        }
        search.best
    }

    fn any_looks_at_others(&self, members: &[AllocationNo]) -> bool {
        let mut lives = members.iter().filter_map(|no| self.allocations.get(no));
        lives.any(|live| self.allocations.class(live.class).looks_at_others())
    }

    /// Those that ask for the largest share of the cell first: what is small fits between.
    pub(super) fn largest_first(&self, members: &mut [AllocationNo]) {
        members.sort_by_cached_key(|no| {
            let live = self.allocations.get(no);
            let amounts = live.map_or([0; 3], |live| self.allocations.amounts(live));
            let share = Share::dominant(&amounts, self.fleet.totals());
            (Reverse(share), *no)
        });
    }

    /// Members that all ask for the same, wherever the others are, fit or fail in any order.
    fn may_be_packed_better(&self, members: &[AllocationNo]) -> bool {
        if members.len() < 2 {
            return false;
        }
        let mut classes = members
            .iter()
            .filter_map(|no| Some(self.allocations.get(no)?.class));
        let Some(first) = classes.next() else {
            return false;
        };
        self.allocations.class(first).looks_at_others() || classes.any(|class| class != first)
    }

    /// Tries to place `rest` beside those of the trial, or else as many as can be; whether all are placed.
    fn search(&mut self, rest: &[AllocationNo], search: &mut Search<'_>) -> bool {
        if search.trial.places.len() > search.best.len() {
            search.best.clone_from(&search.trial.places);
        }
        let Some((_, but_first)) = rest.split_first() else {
            return !search.left_out;
        };
        if search.trial.places.len() + rest.len() <= search.best.len() {
            // This way there are no more than were found before.
            return false;
        }
        for at in self.next_members(rest, search) {
            let no = rest[at];
            let others: Vec<_> = rest.iter().copied().filter(|other| *other != no).collect();
            for node in self.choices(no, search) {
                if search.steps_left == 0 {
                    return false;
                }
                search.steps_left -= 1;
                let before = search.trial.places.len();
                let Some(place) = self.place_on(no, node) else {
                    continue;
                };
                if self.take(place, &mut search.trial) && self.search(&others, search) {
                    return true;
                }
                self.undo(&mut search.trial, before);
            }
        }
        let left_out = std::mem::replace(&mut search.left_out, true);
        self.search(but_first, search);
        search.left_out = left_out;
        false
    }

    /// Returns the positions of the members that may be placed next: the first of each class, or only the first of all.
    fn next_members(&self, rest: &[AllocationNo], search: &Search<'_>) -> Vec<usize> {
        if !search.in_any_order {
            return vec![0];
        }
        let mut seen = BTreeSet::new();
        let class = |no| self.allocations.get(no).map(|live| live.class);
        let first = rest.iter().enumerate();
        let first = first.filter(|(_, no)| seen.insert(class(no)));
        first.map(|(at, _)| at).collect()
    }

    /// Where to try a member: on its best nodes, and on those with most room for more of its kind.
    fn choices(&mut self, no: AllocationNo, search: &Search<'_>) -> Vec<NodeNo> {
        let best = self.best_nodes(no, search.uniform, search.aside, CHOICES);
        let mut choices: Vec<_> = best.nodes().iter().map(|(node, _)| *node).collect();
        let live = self.allocations.get(&no);
        if live.is_some_and(|live| !live.avoided.is_empty()) {
            // Where this one failed there may be room for all.
            let of = (no, search.uniform);
            let all = self.best_nodes_but(&Avoided::default(), of, search.aside, CHOICES);
            let all = all.nodes().iter().map(|(node, _)| *node);
            let others: Vec<_> = all.filter(|node| !choices.contains(node)).collect();
            choices.extend(others);
        }
        let Some(class) = self.allocations.get(&no).map(|live| live.class) else {
            return choices;
        };
        if choices.len() < CHOICES {
            return choices;
        }
        let class = self.allocations.class(class);
        let others = class
            .looks_at_others()
            .then(|| Others::of(&self.fleet, class, &Moves::default()));
        let minding = self.minding(no, class);
        let mut roomy: Vec<_> = self
            .fleet
            .all()
            .filter_map(|node| {
                let there = self.fleet.node(node);
                let capacity = self.fleet.capacity(node);
                let of_value = search
                    .uniform
                    .is_none_or(|(label, wanted)| capacity.label(label.as_str()) == Some(wanted));
                let may = of_value
                    && there.free_for_all()
                    && keeps_off(capacity, class).is_none()
                    && others
                        .as_ref()
                        .is_none_or(|others| others.keep_off(node).is_none())
                    && minding.let_it_come_to(node);
                let room = if may {
                    there.room_for(capacity, class)
                } else {
                    0
                };
                (room > 0).then_some((Reverse(room), Reverse(there.precedence), node))
            })
            .collect();
        roomy.sort_unstable();
        let roomy = roomy.into_iter().map(|(_, _, node)| node);
        let new: Vec<_> = roomy
            .filter(|node| !choices.contains(node))
            .take(CHOICES)
            .collect();
        choices.extend(new);
        choices
    }

    /// Takes the place on trial; whether it could be had.
    pub(super) fn take(&mut self, place: Place, trial: &mut Trial) -> bool {
        let Some(class_no) = self
            .allocations
            .get(&place.allocation)
            .map(|live| live.class)
        else {
            return false;
        };
        let class = self.allocations.class(class_no);
        let took = self
            .fleet
            .take(place.node, place.allocation, class, place.spot.parts());
        match took {
            Ok(took) => {
                trial.taken.push((class_no, took));
                trial.places.push(place);
                true
            }
            Err(_) => false,
        }
    }

    /// Gives back all but the first `left` places of the trial.
    pub(super) fn undo(&mut self, trial: &mut Trial, left: usize) {
        while trial.places.len() > left
            && let (Some(place), Some((class, took))) = (trial.places.pop(), trial.taken.pop())
        {
            let class: &Class = self.allocations.class(class);
            self.fleet
                .give_back_trial(place.node, place.allocation, class, &took);
        }
    }

    /// The placement as a fact, with the best few nodes as they stand just before it.
    pub(super) fn placed_event(&mut self, place: Place, aside: &Aside) -> AllocationPlaced {
        let best = self.best_nodes(place.allocation, None, aside, 1 + RUNNERS_UP);
        self.placed_with(place, &best)
    }

    /// The same, where these are known.
    fn placed_with(&self, place: Place, best: &Best) -> AllocationPlaced {
        let named = |(node, value): (NodeNo, Value)| Candidate {
            node: self.fleet.node(node).name.clone(),
            score: value.score(),
        };
        // The node of a gang's member, or of a nominee, need not be the best of all.
        let best = best.nodes().iter().copied();
        let chosen = best.clone().find(|(node, _)| *node == place.node);
        let others = best.filter(|(node, _)| *node != place.node);
        let candidates = chosen
            .into_iter()
            .chain(others)
            .take(1 + RUNNERS_UP)
            .map(named)
            .collect();
        let node = self.fleet.node(place.node);
        AllocationPlaced {
            allocation: place.allocation,
            node: node.name.clone(),
            incarnation: node.incarnation,
            gpus: place.spot.gpus,
            zones: place.spot.zones,
            policy: place.policy,
            candidates,
        }
    }
}

fn enough(places: Vec<Place>, min: u32) -> Result<Vec<Place>, Short> {
    if !places.is_empty() && places.len() >= min as usize {
        return Ok(places);
    }
    let mut short = Short {
        min: min.max(1),
        ..Short::of(WaitingReason::GangNoRoom)
    };
    for place in places {
        *short.room.entry(place.node).or_default() += 1;
    }
    Err(short)
}
