//! Where named resources and their leases stand.

use crate::store::{self, Looked};
use chassis::{
    Clock,
    query::{Asked, Trouble, Verb},
};
use schemas::v1::{
    LeaseQuery, LeaseReply, LeaseView, ResourceQuery, ResourceReply, ResourceState, ResourceView,
};
use sqlx::PgPool;
use vocab::{AllocationId, CellNo, LeaseNo, LeaseState, Lsn, Refusal, Rule, Slot, Token};

/// The verb `lease`.
pub struct LeaseQueries {
    pub pool: PgPool,
    pub cell: CellNo,
    pub clock: Clock,
    /// As the scheduler counts slots; 0: by requests.
    pub slot_ms: u64,
}

impl Verb for LeaseQueries {
    const NAME: &'static str = "lease";
    type Query = LeaseQuery;
    type Reply = LeaseReply;

    fn position(query: &LeaseQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<LeaseQuery>) -> Result<LeaseReply, Trouble> {
        let (query, tenant) = (&asked.query, &asked.tenant);
        let slot = self.slot(query.slot)?;
        let id = AllocationId::parse(&query.lease_id)
            .ok_or_else(|| Trouble::refused(Rule::LeaseIdInvalid, "lease_id"))?;
        // One of another cell is none of this one.
        let no = id.in_cell(self.cell).map(|no| LeaseNo(no.0));
        let no = no.ok_or_else(|| Trouble::refused(Rule::LeaseNotFound, "lease_id"))?;
        let (seen, looked) = store::named_lease(&self.pool, tenant, no, slot).await?;
        if query.slot.is_some_and(|slot| slot < seen) {
            return Err(Trouble::Refused(Refusal::over(
                Rule::SlotBackwards,
                "slot",
                seen,
                slot,
            )));
        }
        let found = match looked {
            Looked::Found(found) => found,
            Looked::Retired => {
                return Err(Trouble::refused(Rule::LeaseRetired, "lease_id"));
            }
            Looked::NotFound => {
                return Err(Trouble::refused(Rule::LeaseNotFound, "lease_id"));
            }
        };
        let view = LeaseView {
            lease_id: id.to_string(),
            // The numbers are the contract's.
            state: found.state as i32,
            holder: found.holder,
            fencing_token: found.fencing_token,
            deadline_slot: found.deadline,
            retire_after_slot: found.retire_after.unwrap_or(0),
            resources: found.resources,
            lsn: asked.applied.0,
        };
        Ok(LeaseReply {
            view: Some(view),
            refusal: None,
        })
    }
}

impl LeaseQueries {
    /// The slot that a question is of: what it says, or what the clock says; 0: the latest that was seen.
    fn slot(&self, given: Option<Slot>) -> Result<Slot, Trouble> {
        match (given, self.slot_ms) {
            (given, 0) => Ok(given.unwrap_or(0)),
            // The cell's clock is not before 1970.
            (None, slot_ms) => Ok(u64::try_from(self.clock.now_ms()).unwrap_or(0) / slot_ms),
            (Some(_), _) => Err(Trouble::refused(Rule::SettingInvalid, "slot")),
        }
    }
}

/// The verb `resource`.
pub struct ResourceQueries {
    pub pool: PgPool,
    pub cell: CellNo,
}

impl Verb for ResourceQueries {
    const NAME: &'static str = "resource";
    type Query = ResourceQuery;
    type Reply = ResourceReply;

    fn position(query: &ResourceQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<ResourceQuery>) -> Result<ResourceReply, Trouble> {
        let name = Token::new(&asked.query.resource);
        let name = name.map_err(|_| Trouble::refused(Rule::NameInvalid, "resource"))?;
        let found = store::named_resource(&self.pool, &asked.tenant, &name).await?;
        let found = found.ok_or_else(|| Trouble::refused(Rule::ResourceNotFound, "resource"))?;
        let state = match found.held.map(|(_, state)| state) {
            Some(LeaseState::Granted) => ResourceState::Granted,
            Some(LeaseState::Confirmed) => ResourceState::Confirmed,
            Some(LeaseState::Revoking) => ResourceState::Revoking,
            // Who has ended holds nothing.
            None | Some(LeaseState::Released | LeaseState::Expired | LeaseState::Revoked) => {
                ResourceState::Available
            }
        };
        let lease = found.held.map(|(no, _)| no.id(self.cell).to_string());
        let view = ResourceView {
            resource: name.to_string(),
            state: state.into(),
            version: found.version,
            lease_id: lease.unwrap_or_default(),
            lsn: asked.applied.0,
        };
        Ok(ResourceReply {
            view: Some(view),
            refusal: None,
        })
    }
}
