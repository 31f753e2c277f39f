//! A cell of named resources: admission and scheduler, with small tables whose requests say their slots.

use crate::e2e::suite::{Running, Setup, Suite, id};
use admission::AdmissionService;
use client::{Client, ConnectOptions, SetTenant};
use proof::history::Bounds;
use scheduler::SchedulerService;
use std::{collections::BTreeMap, time::Duration};

/// As table A of the conformance rows has it.
pub const BOUNDS: Bounds = Bounds {
    resources_max: 4,
    leases_max: 4,
    members_max: 3,
    ttl_slots_max: 16,
    window_slots: 24,
    history_slots: 4,
    expirations_max: 2,
};
pub const TENANT: &str = "tenant-a";

pub struct Cell {
    pub suite: Suite,
    admission: Option<Running>,
    scheduler: Option<Running>,
}

impl Cell {
    /// Both services, ready, and the tenant, of which `operations_max` operations are remembered.
    pub async fn start(operations_max: u64) -> Self {
        let suite = Suite::bare(Setup {
            slot_ms: 0,
            settings: settings(operations_max),
            ..Setup::default()
        })
        .await;
        suite.make_streams().await;
        let mut cell = Self {
            suite,
            admission: None,
            scheduler: None,
        };
        cell.boot_admission().await;
        cell.boot_scheduler().await;
        let change = SetTenant {
            tenant: TENANT.to_owned(),
            ..SetTenant::default()
        };
        let operator = cell.suite.operator().await;
        let set = operator.set_tenant(change, id()).await;
        set.expect("a new tenant");
        cell
    }

    pub async fn boot_admission(&mut self) {
        let running = self.suite.boot::<AdmissionService>().await;
        running.wait_ready().await;
        self.admission = Some(running);
    }

    pub async fn boot_scheduler(&mut self) {
        let running = self.suite.boot::<SchedulerService>().await;
        running.wait_ready().await;
        self.scheduler = Some(running);
    }

    pub async fn kill_admission(&mut self) {
        self.admission.take().expect("it runs").kill().await;
    }

    pub async fn kill_scheduler(&mut self) {
        self.scheduler.take().expect("it runs").kill().await;
    }

    pub async fn client(&self) -> Client {
        self.suite.tenant(TENANT).await
    }

    /// A connection of the tenant by another way, which does not wait long.
    pub async fn client_by(&self, url: &str, patience: Duration) -> Client {
        let creds = self.suite.servers.creds(&format!("tenant:{TENANT}"));
        let tenant = crate::e2e::suite::token(TENANT);
        let options = ConnectOptions::tenant(url, self.suite.subjects.cell(), tenant)
            .creds(creds)
            .patience(patience)
            .batched();
        Client::connect(options).await.expect("the tenant connects")
    }

    pub async fn close(self) {
        for service in [self.admission, self.scheduler].into_iter().flatten() {
            service.stop().await;
        }
        self.suite.assert_verified().await;
        self.suite.close().await;
    }
}

fn settings(operations_max: u64) -> BTreeMap<&'static str, String> {
    let Bounds {
        resources_max,
        leases_max,
        members_max,
        ttl_slots_max,
        window_slots,
        history_slots,
        expirations_max,
    } = BOUNDS;
    let admission =
        format!("[service]\nwindow_slots = {window_slots}\noperations_max = {operations_max}\n");
    let scheduler = format!(
        "[service.leases]\nresources_max = {resources_max}\n\
         leases_max = {leases_max}\nbundle_max = {members_max}\nttl_slots_max = {ttl_slots_max}\n\
         history_slots = {history_slots}\nexpirations_per_slot_max = {expirations_max}\n"
    );
    BTreeMap::from([("admission", admission), ("scheduler", scheduler)])
}
