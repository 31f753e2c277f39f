//! Named resources of a tenant: leased, confirmed, given back.

use crate::{
    Failure,
    context::{Context, Whose},
    print::say,
    sending::Sending,
    submit::words,
};
use clap::{Args, Subcommand};
use client::{AcquireBundle, Confirm, CreateResource, Reclaim, Release, Revoke};

#[derive(Args)]
pub struct Resource {
    #[command(flatten)]
    whose: Whose,
    /// The slot of the request, where the cell counts slots by requests.
    #[arg(long)]
    slot: Option<u64>,
    #[command(flatten)]
    sending: Sending,
    #[command(subcommand)]
    command: ResourceCommand,
}

#[derive(Subcommand)]
enum ResourceCommand {
    /// Bring a resource into being.
    Create { resource: String },
    /// Acquire resources, all or none, until they are confirmed or the time is over.
    Acquire {
        #[arg(required = true)]
        resources: Vec<String>,
        /// Who holds them: a name that the tenant chooses.
        #[arg(long)]
        holder: String,
        /// Slots to live.
        #[arg(long, default_value_t = 60)]
        ttl: u64,
    },
    /// Hold a lease without a deadline.
    Confirm(Held),
    /// Give a lease back.
    Release(Held),
    /// Withdraw the holder's authority over a confirmed lease.
    Revoke { lease_id: String },
    /// Make the resources of a revoked lease available.
    Reclaim { lease_id: String },
    /// Show a resource, and who holds it.
    Get { resource: String },
}

#[derive(Args)]
struct Held {
    lease_id: String,
    #[arg(long)]
    holder: String,
    /// As the outcome of acquire said.
    #[arg(long, default_value_t = 1)]
    fencing_token: u64,
}

impl Resource {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = self
            .sending
            .tenant(context, self.whose.tenant.as_deref())
            .await?;
        let (slot, id) = (self.slot, || self.sending.id());
        match self.command {
            ResourceCommand::Create { resource } => {
                let asked = CreateResource { resource, slot };
                client.create_resource(asked, id()).await?;
                say!("created");
            }
            ResourceCommand::Acquire {
                resources,
                holder,
                ttl: ttl_slots,
            } => {
                let asked = AcquireBundle {
                    resources,
                    holder,
                    ttl_slots,
                    slot,
                };
                let granted = client.acquire_bundle(asked, id()).await?;
                say!(
                    "{} fencing token {} until slot {}",
                    granted.lease_id,
                    granted.fencing_token,
                    granted.deadline_slot
                );
            }
            ResourceCommand::Confirm(held) => {
                let asked = Confirm {
                    lease_id: held.lease_id,
                    holder: held.holder,
                    fencing_token: held.fencing_token,
                    slot,
                };
                client.confirm(asked, id()).await?;
                say!("confirmed");
            }
            ResourceCommand::Release(held) => {
                let asked = Release {
                    lease_id: held.lease_id,
                    holder: held.holder,
                    fencing_token: held.fencing_token,
                    slot,
                };
                let released = client.release(asked, id()).await?;
                say!("released, fencing token {}", released.fencing_token);
            }
            ResourceCommand::Revoke { lease_id } => {
                let asked = Revoke { lease_id, slot };
                let revoked = client.revoke(asked, id()).await?;
                say!("revoked, fencing token {}", revoked.fencing_token);
            }
            ResourceCommand::Reclaim { lease_id } => {
                let asked = Reclaim { lease_id, slot };
                client.reclaim(asked, id()).await?;
                say!("reclaimed");
            }
            ResourceCommand::Get { resource } => {
                let view = client.resource(resource, 0).await?;
                say!(
                    "{} {} version {}",
                    view.resource,
                    words(view.state()),
                    view.version
                );
                if view.lease_id.is_empty() {
                    return Ok(());
                }
                let of = client.lease(view.lease_id, slot, 0).await?;
                say!(
                    "{} {} by {} fencing token {} deadline slot {}: {}",
                    of.lease_id,
                    words(of.state()),
                    of.holder,
                    of.fencing_token,
                    of.deadline_slot,
                    of.resources.join(" ")
                );
            }
        }
        Ok(())
    }
}
