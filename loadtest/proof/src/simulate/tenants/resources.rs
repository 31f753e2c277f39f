//! What tenants ask about named resources: several holders of few, with late, doubled and wrong words among it.

use super::{CELL, Expect, Granted, pick, uuid_text};
use ledger::memory::Seeded;
use schemas::v1::{
    Acquire, AcquireBundle, Confirm, CreateResource, Reclaim, Release, Revoke, request::Verb,
};

/// Where the tenants think that the cell's slots are.
#[derive(Debug)]
pub struct Slots {
    by_requests: bool,
    now: u64,
}

impl Slots {
    pub fn new(slot_ms: u64) -> Self {
        Self {
            by_requests: slot_ms == 0,
            now: 0,
        }
    }

    /// Mostly the same or the next; sometimes one that has been, or none where there must be one.
    fn say(&mut self, random: &mut Seeded) -> Option<u64> {
        if random.chance(20) == self.by_requests {
            return None;
        }
        self.now += [0, 0, 1, 1, 2, 6][random.below(6) as usize];
        Some(match random.below(100) {
            0..=3 => self.now.saturating_sub(1 + random.below(4)),
            4 => u64::MAX - random.below(3),
            _ => self.now,
        })
    }

    pub fn misnamed(&mut self, random: &mut Seeded) -> Verb {
        let slot = self.say(random);
        let resource = "no name".to_owned();
        Verb::CreateResource(CreateResource { resource, slot })
    }

    pub fn wish(
        &mut self,
        tenant: &str,
        granted: &[Granted<'_>],
        random: &mut Seeded,
    ) -> (Verb, Expect) {
        let slot = self.say(random);
        let verb = match random.below(20) {
            0..=2 => {
                let resource = resource(random);
                Verb::CreateResource(CreateResource { resource, slot })
            }
            3..=8 => Verb::Acquire(Acquire {
                resource: resource(random),
                holder: holder(random),
                ttl_slots: ttl(random),
                slot,
            }),
            9..=11 => Verb::AcquireBundle(AcquireBundle {
                resources: (0..[0, 1, 2, 2, 3][random.below(5) as usize])
                    .map(|_| resource(random))
                    .collect(),
                holder: holder(random),
                ttl_slots: ttl(random),
                slot,
            }),
            _ => about(&self.target(tenant, granted, random), slot, random),
        };
        (verb, Expect::Sound)
    }

    /// Mostly one's own, known rightly; a recent one, or one that never was.
    fn target(&self, tenant: &str, granted: &[Granted<'_>], random: &mut Seeded) -> Target {
        let own = granted.iter().rev();
        let own: Vec<_> = own
            .filter(|one| one.tenant == tenant || random.chance(50))
            .take(4)
            .collect();
        let found = pick(&own, random);
        let mut target = found.map_or(
            Target {
                no: 1 + random.below(60),
                holder: holder(random),
                fencing_token: 1,
            },
            |one| Target {
                no: one.no,
                holder: one.holder.to_string(),
                fencing_token: one.fencing_token,
            },
        );
        match random.below(10) {
            0 => target.holder = holder(random),
            1 => target.fencing_token = random.below(4),
            _ => {}
        }
        target
    }
}

struct Target {
    no: u64,
    holder: String,
    fencing_token: u64,
}

fn about(target: &Target, slot: Option<u64>, random: &mut Seeded) -> Verb {
    let lease_id = uuid_text(CELL, target.no);
    let (holder, fencing_token) = (target.holder.clone(), target.fencing_token);
    match random.below(9) {
        0..=2 => Verb::Confirm(Confirm {
            lease_id,
            holder,
            fencing_token,
            slot,
        }),
        3..=4 => Verb::Release(Release {
            lease_id,
            holder,
            fencing_token,
            slot,
        }),
        5..=6 => Verb::Revoke(Revoke { lease_id, slot }),
        _ => Verb::Reclaim(Reclaim { lease_id, slot }),
    }
}

/// Mostly one of two, so that somebody has made it, and somebody has it.
fn resource(random: &mut Seeded) -> String {
    let most = if random.chance(800) { 2 } else { 6 };
    format!("r{}", random.below(most))
}

/// Mostly the same, so that several expire in one slot.
fn ttl(random: &mut Seeded) -> u64 {
    [4, 4, 4, 3, 2, random.below(18)][random.below(6) as usize]
}

fn holder(random: &mut Seeded) -> String {
    format!("h{}", random.below(3))
}
