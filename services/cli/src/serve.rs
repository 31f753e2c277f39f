//! All five services in one process: the same code, for one machine. They read the ledger once, and decode it once.

use crate::Failure;
use admission::AdmissionService;
use analytics::AnalyticsService;
use chassis::{Config, Service, Shutdown};
use clap::Args;
use node_heartbeat::NodeHeartbeatService;
use quota::QuotaService;
use scheduler::SchedulerService;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct Serve {
    /// Directory with one configuration per service, named <service>.toml.
    #[arg(long)]
    config_dir: PathBuf,
}

impl Serve {
    /// Until a signal, or until one of them gives up: then the others stop too.
    pub async fn run(self) -> Result<(), Failure> {
        let shutdown = Shutdown::on_signals()?;
        let dir = &self.config_dir;
        let readers = chassis::readers(&[
            AdmissionService::NAME,
            QuotaService::NAME,
            SchedulerService::NAME,
            NodeHeartbeatService::NAME,
            AnalyticsService::NAME,
        ]);
        let (stop, among) = (|| shutdown.clone(), || readers.clone());
        tokio::try_join!(
            admission::serve(load::<AdmissionService>(dir)?, stop(), among()),
            quota::serve(load::<QuotaService>(dir)?, stop(), among()),
            scheduler::serve(load::<SchedulerService>(dir)?, stop(), among()),
            node_heartbeat::serve(load::<NodeHeartbeatService>(dir)?, stop(), among()),
            analytics::serve(load::<AnalyticsService>(dir)?, stop(), among()),
        )?;
        Ok(())
    }
}

fn load<S: Service>(dir: &Path) -> Result<Config<S::Settings>, Failure> {
    let file = dir.join(format!("{}.toml", S::NAME));
    Ok(Config::load(&file)?)
}
