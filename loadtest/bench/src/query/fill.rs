//! What the questions are about: allocations that wait or run, resources, leases, refusals, budgets and reservations.

use super::{Options, QueriesError};
use crate::throughput::scene::Scene;
use client::{
    Acquire, AllocationsQuery, Client, Confirm, CreateResource, Failed, Operation,
    ReservationRequest, SetBudget, SetReservation, Submit,
};
use futures::{StreamExt, TryStreamExt};
use schemas::v1::{AllocationSpec, GpuRequest, Period};
use uuid::Uuid;
use vocab::Token;

const GIB: i64 = 1 << 30;
/// Tenants that are filled at the same time.
const AT_ONCE: usize = 40;
/// Different requests, and names, of each tenant.
pub const JOB_SETS: u64 = 4;
/// Of each tenant: cancels of what is not there.
const REFUSED: usize = 3;
const BUDGET_ONE_IN: usize = 10;
const RESERVATIONS: usize = 10;
const DAY_MS: i64 = 86_400_000;

pub struct Filled {
    pub waiting: u64,
    pub running: u64,
    pub tenants: Vec<Known>,
}

/// What one tenant knows of its things.
#[derive(Debug, Clone, Default)]
pub struct Known {
    pub tenant: String,
    /// What its job sets begin with.
    pub run: String,
    pub operations: Vec<String>,
    pub allocations: Vec<String>,
    pub resource: String,
    pub lease: String,
    /// Of nodes on which something of its runs.
    pub nodes: Vec<String>,
    /// When all of that was there: a position of the ledger, and Unix ms.
    pub lsn: u64,
    pub at_ms: i64,
}

pub async fn fill(
    scene: &Scene,
    operator: &Client,
    options: &Options,
) -> Result<Filled, QueriesError> {
    let each = options.allocations.div_ceil(options.tenants);
    let waiting = each * options.waiting / 100;
    set(scene, operator).await?;
    let clients = futures::stream::iter(&scene.clients);
    let known = clients
        .map(|client| of_tenant(client, &scene.run, each, waiting))
        .buffered(AT_ONCE)
        .try_collect::<Vec<Known>>()
        .await?;
    Ok(Filled {
        waiting: waiting * options.tenants,
        running: (each - waiting) * options.tenants,
        tenants: known,
    })
}

async fn of_tenant(client: &Client, run: &str, each: u64, waiting: u64) -> Result<Known, Failed> {
    let mut known = Known {
        tenant: client.party().name().to_owned(),
        run: run.to_owned(),
        ..Known::default()
    };
    let parts = (0..each).map(|number| (format!("{run}-{number:x}"), submit(run, number, waiting)));
    for (operation, submitted) in client.submit_all(parts).await {
        known.operations.push(operation);
        known.allocations.push(submitted?.allocation_id);
    }
    for _ in 0..REFUSED {
        let nothing = Uuid::new_v4().to_string();
        match client.cancel(nothing, Operation::fresh_id()).await {
            Ok(_) | Err(Failed::Refused(_)) => {}
            Err(failed) => return Err(failed),
        }
    }
    known.resource = format!("{run}-r");
    let created = CreateResource {
        resource: known.resource.clone(),
        slot: None,
    };
    client
        .create_resource(created, Operation::fresh_id())
        .await?;
    let wanted = Acquire {
        resource: known.resource.clone(),
        holder: run.to_owned(),
        ttl_slots: 3600,
        slot: None,
    };
    let granted = client.acquire(wanted, Operation::fresh_id()).await?;
    let held = Confirm {
        lease_id: granted.lease_id.clone(),
        holder: run.to_owned(),
        fencing_token: granted.fencing_token,
        slot: None,
    };
    client.confirm(held, Operation::fresh_id()).await?;
    known.lease = granted.lease_id;
    Ok(known)
}

/// The first ones wait: no node has a GPU.
fn submit(run: &str, number: u64, waiting: u64) -> Submit {
    let kind = number % JOB_SETS;
    Submit {
        job_set: job_set(run, kind),
        name: format!("n{kind}-{number}"),
        cpu_milli: 1000,
        // Below JOB_SETS, so it fits.
        memory_bytes: GIB + kind as i64 * GIB,
        gpu_count: i64::from(number < waiting),
        ..Submit::default()
    }
}

/// One more like those that the tenant has; every second has to wait.
pub fn tried(known: &Known, draw: u64) -> AllocationSpec {
    let kind = draw % JOB_SETS;
    let gpu = draw.is_multiple_of(2).then(|| GpuRequest {
        count: 1,
        milli: 1000,
        models: Vec::new(),
    });
    AllocationSpec {
        job_set: job_set(&known.run, kind),
        cpu_milli: 1000,
        memory_bytes: GIB.unsigned_abs() * (1 + kind),
        gpu,
        ..AllocationSpec::default()
    }
}

pub fn job_set(run: &str, kind: u64) -> String {
    format!("{run}-{kind}")
}

/// What tenants cannot set.
async fn set(scene: &Scene, operator: &Client) -> Result<(), Failed> {
    let tenants = scene
        .clients
        .iter()
        .map(|client| client.party().name().to_owned());
    let tenants: Vec<String> = tenants.collect();
    for tenant in tenants.iter().step_by(BUDGET_ONE_IN) {
        let budget = SetBudget {
            tenant: tenant.clone(),
            of: "money".to_owned(),
            amount: Some(1 << 50),
            period: Period::Day.into(),
            ..SetBudget::default()
        };
        operator.set_budget(budget, Operation::fresh_id()).await?;
    }
    let now_ms = chassis::Clock::real().now_ms();
    for (number, tenant) in tenants.iter().take(RESERVATIONS).enumerate() {
        let wanted = ReservationRequest {
            queue: tenant.clone(),
            from_ms: now_ms + DAY_MS,
            until_ms: now_ms + 2 * DAY_MS,
            nodes: 1,
            selector: Vec::new(),
        };
        let reservation = SetReservation {
            reservation: format!("{}-{number}", scene.run),
            wanted: Some(wanted),
            expected_version: None,
        };
        operator
            .set_reservation(reservation, Operation::fresh_id())
            .await?;
    }
    Ok(())
}

/// What only an answer says: where things run, and how far the ledger is. With it is shown that every tenant is answered.
pub async fn known(scene: &Scene, filled: Vec<Known>) -> Result<Vec<Known>, QueriesError> {
    let all = scene.clients.iter().zip(filled);
    let asked = futures::stream::iter(all).map(|(client, known)| async move {
        let query = AllocationsQuery {
            limit: 1000,
            ..AllocationsQuery::default()
        };
        let page = client.allocations(&query).await?;
        let nodes = page.allocations.iter().map(|view| &view.node);
        let nodes = nodes.filter(|node| Token::new(node).is_ok());
        Ok(Known {
            nodes: nodes.cloned().collect(),
            lsn: page.lsn,
            at_ms: page
                .allocations
                .first()
                .map_or(0, |newest| newest.requested_ms),
            ..known
        })
    });
    asked.buffered(AT_ONCE).try_collect().await
}
