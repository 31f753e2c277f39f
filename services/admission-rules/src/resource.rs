//! Named resources: what is asked about them, and in which slot. The rules of the resources themselves are the scheduler's.

use super::{
    Admission, Config,
    check::{bounded, token},
};
use smol_str::SmolStr;
use vocab::fact::ResourceAsked;
use vocab::{
    AllocationId, CellNo, LeaseNo, Millis, Operation, Refusal, ResourceAsk, Rule, Slot, Token, Verb,
};

/// What is asked, as it was written.
#[derive(Debug, Clone, PartialEq, Eq, wire::Wire)]
#[wire(oneof)]
pub enum ResourceRequest {
    #[wire(15)]
    CreateResource {
        #[wire(1)]
        resource: SmolStr,
        #[wire(2, optional)]
        slot: Option<Slot>,
    },
    #[wire(16)]
    Acquire {
        #[wire(1)]
        resource: SmolStr,
        #[wire(2)]
        holder: SmolStr,
        #[wire(3)]
        ttl_slots: u64,
        #[wire(4, optional)]
        slot: Option<Slot>,
    },
    #[wire(17)]
    AcquireBundle {
        #[wire(1)]
        resources: Vec<SmolStr>,
        #[wire(2)]
        holder: SmolStr,
        #[wire(3)]
        ttl_slots: u64,
        #[wire(4, optional)]
        slot: Option<Slot>,
    },
    #[wire(18)]
    Confirm {
        #[wire(1)]
        lease_id: String,
        #[wire(2)]
        holder: SmolStr,
        #[wire(3)]
        fencing_token: u64,
        #[wire(4, optional)]
        slot: Option<Slot>,
    },
    #[wire(19)]
    Release {
        #[wire(1)]
        lease_id: String,
        #[wire(2)]
        holder: SmolStr,
        #[wire(3)]
        fencing_token: u64,
        #[wire(4, optional)]
        slot: Option<Slot>,
    },
    #[wire(20)]
    Revoke {
        #[wire(1)]
        lease_id: String,
        #[wire(2, optional)]
        slot: Option<Slot>,
    },
    #[wire(21)]
    Reclaim {
        #[wire(1)]
        lease_id: String,
        #[wire(2, optional)]
        slot: Option<Slot>,
    },
}

/// More resources than any cell lets one name, so that a refusal of too many is the scheduler's to give.
const NAMED_MAX: usize = 1024;

impl Admission {
    /// The slot that a request is of, before anything is looked up.
    pub(super) fn check_slot(
        &self,
        tenant: &Token,
        given: Option<Slot>,
        config: &Config,
        now: Millis,
    ) -> Result<(Slot, bool), Refusal> {
        let unfit = || Refusal::new(Rule::SettingInvalid, "slot");
        let slot = match (given, config.slot_ms) {
            (Some(slot), 0) => slot,
            (None, length) if length > 0 => {
                // The cell's clock is not before 1970.
                return Ok((now.0.max(0) as u64 / length, false));
            }
            _ => return Err(unfit()),
        };
        let seen = self.slots.get(tenant).copied().unwrap_or(0);
        if slot < seen {
            return Err(Refusal::over(Rule::SlotBackwards, "slot", seen, slot));
        }
        match slot.checked_add(config.window_slots) {
            Some(_) => Ok((slot, true)),
            None => Err(Refusal::over(
                Rule::SlotOverflow,
                "slot",
                u64::MAX - config.window_slots,
                slot,
            )),
        }
    }

    pub(super) fn check_resource(
        &self,
        operation: Operation,
        request: &ResourceRequest,
        (slot, by_requests): (Slot, bool),
        config: &Config,
    ) -> Result<ResourceAsked, Refusal> {
        Ok(ResourceAsked {
            operation,
            slot,
            by_requests,
            ask: request.check(config.cell)?,
        })
    }
}

impl ResourceRequest {
    pub(super) fn asked(&self) -> Verb {
        match self {
            Self::CreateResource { .. } => Verb::CreateResource,
            Self::Acquire { .. } | Self::AcquireBundle { .. } => Verb::Acquire,
            Self::Confirm { .. } => Verb::Confirm,
            Self::Release { .. } => Verb::Release,
            Self::Revoke { .. } => Verb::Revoke,
            Self::Reclaim { .. } => Verb::Reclaim,
        }
    }

    /// It asks for a resource or a lease that is not there yet.
    pub fn begins(&self) -> bool {
        match self {
            Self::CreateResource { .. } | Self::Acquire { .. } | Self::AcquireBundle { .. } => true,
            Self::Confirm { .. }
            | Self::Release { .. }
            | Self::Revoke { .. }
            | Self::Reclaim { .. } => false,
        }
    }

    /// The slot that it says it is of. It is not part of the content that an operation id stands for.
    pub fn slot(&mut self) -> &mut Option<Slot> {
        match self {
            Self::CreateResource { slot, .. }
            | Self::Acquire { slot, .. }
            | Self::AcquireBundle { slot, .. }
            | Self::Confirm { slot, .. }
            | Self::Release { slot, .. }
            | Self::Revoke { slot, .. }
            | Self::Reclaim { slot, .. } => slot,
        }
    }

    fn check(&self, cell: CellNo) -> Result<ResourceAsk, Refusal> {
        Ok(match self {
            Self::CreateResource { resource, .. } => ResourceAsk::Create {
                resource: token(resource, "resource")?,
            },
            Self::Acquire {
                resource,
                holder,
                ttl_slots,
                ..
            } => acquire(std::slice::from_ref(resource), holder, *ttl_slots)?,
            Self::AcquireBundle {
                resources,
                holder,
                ttl_slots,
                ..
            } => acquire(resources, holder, *ttl_slots)?,
            Self::Confirm {
                lease_id,
                holder,
                fencing_token,
                ..
            } => ResourceAsk::Confirm {
                lease: lease(lease_id, cell)?,
                holder: token(holder, "holder")?,
                fencing_token: *fencing_token,
            },
            Self::Release {
                lease_id,
                holder,
                fencing_token,
                ..
            } => ResourceAsk::Release {
                lease: lease(lease_id, cell)?,
                holder: token(holder, "holder")?,
                fencing_token: *fencing_token,
            },
            Self::Revoke { lease_id, .. } => ResourceAsk::Revoke {
                lease: lease(lease_id, cell)?,
            },
            Self::Reclaim { lease_id, .. } => ResourceAsk::Reclaim {
                lease: lease(lease_id, cell)?,
            },
        })
    }
}

fn acquire(resources: &[SmolStr], holder: &str, ttl_slots: u64) -> Result<ResourceAsk, Refusal> {
    bounded(resources, NAMED_MAX, "resources")?;
    let names: Result<_, _> = resources.iter().map(|r| token(r, "resource")).collect();
    Ok(ResourceAsk::Acquire {
        resources: names?,
        holder: token(holder, "holder")?,
        ttl_slots,
    })
}

/// What another cell has granted is not known here.
fn lease(text: &str, cell: CellNo) -> Result<LeaseNo, Refusal> {
    let subject = "lease_id";
    let id = AllocationId::parse(text);
    let id = id.ok_or_else(|| Refusal::new(Rule::LeaseIdInvalid, subject))?;
    let no = id.in_cell(cell).map(|no| LeaseNo(no.0));
    no.ok_or_else(|| Refusal::new(Rule::LeaseNotFound, subject))
}
