//! Gangs: which allocations are members of which, and how far each gang has come.

use super::queues::Key;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU64,
};
use vocab::{AllocationNo, PendingGroupNo, Token};

/// Never 0, so that one who is in none needs no room to say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GangNo(NonZeroU64);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gang {
    tenant: Token,
    name: Token,
    size: u32,
    min: u32,
    uniform_label: Option<Token>,
    /// Not ended.
    members: BTreeSet<AllocationNo>,
    /// So many have finished: the others go on without them.
    finished: u32,
    /// Ready to be placed together.
    ready: BTreeSet<AllocationNo>,
    /// In pending groups by themselves, beside those that run.
    alone: BTreeSet<AllocationNo>,
    /// Their quota was taken back: the others go on without them, if they are enough.
    without_quota: BTreeSet<AllocationNo>,
    /// On nodes.
    held: BTreeSet<AllocationNo>,
    /// All members were there once: from then on it is complete with those that have not ended.
    formed: bool,
    /// Members had to go and too few stay: these have to go, before any can be placed again.
    broken: bool,
    /// Where it stands in line.
    unit: Option<(PendingGroupNo, Key)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gangs {
    gangs: BTreeMap<GangNo, Gang>,
    /// The gang of that name that members still join.
    names: BTreeMap<(Token, Token), GangNo>,
    next: u64,
    /// Broken, with members that were not told to go.
    to_clear: BTreeSet<GangNo>,
}

impl Gang {
    /// So many have to run together. Who has finished is not missing; who was cancelled, or failed for good, is.
    pub fn needed(&self) -> usize {
        self.min.saturating_sub(self.finished).max(1) as usize
    }

    /// Returns the members that have not ended.
    pub fn members(&self) -> impl Iterator<Item = AllocationNo> {
        self.members.iter().copied()
    }

    /// Those that wait for the others.
    pub fn ready(&self) -> &BTreeSet<AllocationNo> {
        &self.ready
    }

    pub fn uniform_label(&self) -> Option<&Token> {
        self.uniform_label.as_ref()
    }

    /// All who can be. Once it was complete, members whose quota was taken back are not waited for as long as the others
    /// are enough: they have quota that nobody else can use meanwhile.
    fn all_are_ready(&self) -> bool {
        let missing = self.members.len() - self.ready.len();
        let waits = missing == 0 || self.formed && missing == self.without_quota.len();
        waits && self.ready.len() >= self.needed()
    }
}

/// What its ready members may do.
pub enum Formation {
    /// They wait for others.
    Waits,
    /// They stand in line together; whether the gang does for the first time.
    Together { first_time: bool },
    /// They go where the others run, one by one.
    Alone(BTreeSet<AllocationNo>),
}

impl Gangs {
    /// A member more. A gang that has all its members is joined by no more: one of the same name is a new gang.
    pub fn join(&mut self, tenant: &Token, wanted: &vocab::Gang, no: AllocationNo) -> GangNo {
        let key = (tenant.clone(), wanted.name.clone());
        let open = self.names.get(&key).copied().filter(|gang| {
            let gang = &self.gangs.get(gang);
            gang.is_some_and(|gang| !gang.formed && gang.members.len() < gang.size as usize)
        });
        let gang = open.unwrap_or_else(|| {
            let no = GangNo(NonZeroU64::MIN.saturating_add(self.next));
            self.next += 1;
            let gang = Gang {
                tenant: key.0.clone(),
                name: key.1.clone(),
                size: wanted.size,
                min: wanted.min,
                uniform_label: wanted.uniform_label.clone(),
                members: BTreeSet::new(),
                finished: 0,
                ready: BTreeSet::new(),
                alone: BTreeSet::new(),
                without_quota: BTreeSet::new(),
                held: BTreeSet::new(),
                formed: false,
                broken: false,
                unit: None,
            };
            self.gangs.insert(no, gang);
            self.names.insert(key, no);
            no
        });
        if let Some(gang) = self.gangs.get_mut(&gang) {
            gang.members.insert(no);
        }
        gang
    }

    pub fn get(&self, gang: GangNo) -> Option<&Gang> {
        self.gangs.get(&gang)
    }

    /// Members of it are on nodes, and stay there.
    pub fn runs(&self, gang: GangNo) -> bool {
        self.get(gang)
            .is_some_and(|gang| !gang.held.is_empty() && !gang.broken)
    }

    pub fn ready(&mut self, gang: GangNo, no: AllocationNo) {
        if let Some(gang) = self.gangs.get_mut(&gang) {
            gang.ready.insert(no);
        }
    }

    pub fn without_quota(&mut self, gang: GangNo, no: AllocationNo) {
        if let Some(gang) = self.gangs.get_mut(&gang) {
            gang.without_quota.insert(no);
        }
    }

    pub fn has_quota(&mut self, gang: GangNo, no: AllocationNo) {
        if let Some(gang) = self.gangs.get_mut(&gang) {
            gang.without_quota.remove(&no);
        }
    }

    pub fn alone(&mut self, gang: GangNo, no: AllocationNo) {
        if let Some(gang) = self.gangs.get_mut(&gang) {
            gang.ready.remove(&no);
            gang.alone.insert(no);
        }
    }

    pub fn not_ready(&mut self, gang: GangNo, no: AllocationNo) {
        if let Some(gang) = self.gangs.get_mut(&gang) {
            gang.ready.remove(&no);
            gang.alone.remove(&no);
        }
    }

    /// Whether so many members may be placed where none runs.
    pub fn enough(&self, gang: GangNo, members: usize) -> bool {
        self.get(gang)
            .is_some_and(|gang| gang.held.is_empty() && members >= gang.needed())
    }

    /// Those that wait for the others.
    pub fn ready_members(&self, gang: GangNo) -> Vec<AllocationNo> {
        self.get(gang)
            .map_or_else(Vec::new, |gang| gang.ready.iter().copied().collect())
    }

    pub fn held(&mut self, gang: GangNo, no: AllocationNo) {
        if let Some(gang) = self.gangs.get_mut(&gang) {
            gang.ready.remove(&no);
            gang.held.insert(no);
        }
    }

    pub fn not_held(&mut self, no: GangNo, member: AllocationNo) {
        if let Some(gang) = self.gangs.get_mut(&no) {
            gang.held.remove(&member);
            if gang.held.is_empty() {
                gang.broken = false;
                self.to_clear.remove(&no);
            }
        }
    }

    pub fn broken(&mut self, no: GangNo) {
        if let Some(gang) = self.gangs.get_mut(&no)
            && !gang.held.is_empty()
        {
            gang.broken = true;
            self.to_clear.insert(no);
        }
    }

    pub fn leave(&mut self, no: GangNo, member: AllocationNo, finished: bool) {
        let Some(gang) = self.gangs.get_mut(&no) else {
            return;
        };
        gang.members.remove(&member);
        gang.finished += u32::from(finished);
        gang.without_quota.remove(&member);
        if gang.members.is_empty()
            && let Some(gang) = self.gangs.remove(&no)
        {
            let key = (gang.tenant, gang.name);
            if self.names.get(&key) == Some(&no) {
                self.names.remove(&key);
            }
        }
    }

    pub fn form(&mut self, no: GangNo) -> Formation {
        let Some(gang) = self.gangs.get_mut(&no) else {
            return Formation::Waits;
        };
        let complete = gang.formed || gang.members.len() >= gang.size as usize;
        if gang.ready.is_empty() || !complete {
            return Formation::Waits;
        }
        if gang.all_are_ready() {
            let first_time = !std::mem::replace(&mut gang.formed, true);
            Formation::Together { first_time }
        } else if !gang.held.is_empty() && !gang.broken {
            Formation::Alone(std::mem::take(&mut gang.ready))
        } else {
            Formation::Waits
        }
    }

    /// Those that stand in line by themselves though none of the gang runs any more.
    pub fn to_recall(&self, no: GangNo) -> Vec<AllocationNo> {
        let gang = self.get(no).filter(|_| !self.runs(no));
        gang.map_or_else(Vec::new, |gang| gang.alone.iter().copied().collect())
    }

    /// A broken one with members that were not told to go.
    pub fn first_to_clear(&self) -> Option<GangNo> {
        self.to_clear.first().copied()
    }

    /// Those who stay are enough.
    pub fn mended(&mut self, no: GangNo) {
        if let Some(gang) = self.gangs.get_mut(&no) {
            gang.broken = false;
        }
        self.to_clear.remove(&no);
    }

    /// All its members that are on nodes were told to go.
    pub fn cleared(&mut self, no: GangNo) {
        self.to_clear.remove(&no);
    }

    /// It stands in line no more; where it stood.
    pub fn take_unit(&mut self, no: GangNo) -> Option<(PendingGroupNo, Key)> {
        self.gangs.get_mut(&no)?.unit.take()
    }

    pub fn stands(&mut self, no: GangNo, unit: (PendingGroupNo, Key)) {
        if let Some(gang) = self.gangs.get_mut(&no) {
            gang.unit = Some(unit);
        }
    }

    /// Where it stands in line.
    pub fn unit(&self, gang: GangNo) -> Option<(PendingGroupNo, Key)> {
        self.get(gang)?.unit
    }

    pub fn pending_group(&self, gang: GangNo) -> Option<PendingGroupNo> {
        self.unit(gang).map(|(pending_group, _)| pending_group)
    }

    pub fn uniform_label(&self, gang: GangNo) -> Option<&Token> {
        self.get(gang)?.uniform_label()
    }

    /// The members that are on nodes.
    pub fn on_nodes(&self, gang: GangNo) -> impl Iterator<Item = AllocationNo> {
        self.get(gang)
            .into_iter()
            .flat_map(|gang| gang.held.iter().copied())
    }
}
