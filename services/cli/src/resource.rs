//! Named resources of a tenant: reserved, confirmed, given back.

use crate::{Failure, stack, submit::words};
use chassis::stack::Stack;
use clap::{Args, Subcommand};
use client::{Confirm, CreateResource, Operation, Reclaim, Release, ReserveBundle, Revoke};

#[derive(Args)]
pub struct Resource {
    #[arg(long)]
    tenant: String,
    /// The slot of the request, where the cell counts slots by requests.
    #[arg(long)]
    slot: Option<u64>,
    /// Idempotency key; the same one gets the same outcome.
    #[arg(long, default_value_t = Operation::fresh_id())]
    operation_id: String,
    #[command(subcommand)]
    command: ResourceCommand,
}

#[derive(Subcommand)]
enum ResourceCommand {
    /// Bring a resource into being.
    Create { resource: String },
    /// Reserve resources, all or none, until they are confirmed or the time is over.
    Reserve {
        #[arg(required = true)]
        resources: Vec<String>,
        /// Who holds them: a name that the tenant chooses.
        #[arg(long)]
        holder: String,
        /// Slots to live.
        #[arg(long, default_value_t = 60)]
        ttl: u64,
    },
    /// Hold a reservation without a deadline.
    Confirm(Held),
    /// Give a reservation back.
    Release(Held),
    /// Withdraw the holder's authority over a confirmed reservation.
    Revoke { reservation_id: String },
    /// Make the resources of a revoked reservation available.
    Reclaim { reservation_id: String },
    /// Show a resource, and who holds it.
    Get { resource: String },
}

#[derive(Args)]
struct Held {
    reservation_id: String,
    #[arg(long)]
    holder: String,
    /// As the reservation's outcome said.
    #[arg(long, default_value_t = 1)]
    epoch: u64,
}

impl Resource {
    pub async fn run(self, stack: &Stack) -> Result<(), Failure> {
        let client = stack::tenant(stack, &self.tenant).await?;
        let (slot, id) = (self.slot, self.operation_id);
        match self.command {
            ResourceCommand::Create { resource } => {
                let asked = CreateResource { resource, slot };
                client.create_resource(asked, id).await?;
                println!("created");
            }
            ResourceCommand::Reserve {
                resources,
                holder,
                ttl: ttl_slots,
            } => {
                let asked = ReserveBundle {
                    resources,
                    holder,
                    ttl_slots,
                    slot,
                };
                let reserved = client.reserve_bundle(asked, id).await?;
                println!(
                    "{} epoch {} until slot {}",
                    reserved.reservation_id, reserved.epoch, reserved.deadline_slot
                );
            }
            ResourceCommand::Confirm(held) => {
                let asked = Confirm {
                    reservation_id: held.reservation_id,
                    holder: held.holder,
                    epoch: held.epoch,
                    slot,
                };
                client.confirm(asked, id).await?;
                println!("confirmed");
            }
            ResourceCommand::Release(held) => {
                let asked = Release {
                    reservation_id: held.reservation_id,
                    holder: held.holder,
                    epoch: held.epoch,
                    slot,
                };
                let released = client.release(asked, id).await?;
                println!("released, epoch {}", released.epoch);
            }
            ResourceCommand::Revoke { reservation_id } => {
                let asked = Revoke {
                    reservation_id,
                    slot,
                };
                let revoked = client.revoke(asked, id).await?;
                println!("revoked, epoch {}", revoked.epoch);
            }
            ResourceCommand::Reclaim { reservation_id } => {
                let asked = Reclaim {
                    reservation_id,
                    slot,
                };
                client.reclaim(asked, id).await?;
                println!("reclaimed");
            }
            ResourceCommand::Get { resource } => {
                let view = client.resource(resource, 0).await?;
                println!(
                    "{} {} version {}",
                    view.resource,
                    words(view.state()),
                    view.version
                );
                if view.reservation_id.is_empty() {
                    return Ok(());
                }
                let of = client.reservation(view.reservation_id, slot, 0).await?;
                println!(
                    "{} {} by {} epoch {} deadline slot {}: {}",
                    of.reservation_id,
                    words(of.state()),
                    of.holder,
                    of.epoch,
                    of.deadline_slot,
                    of.resources.join(" ")
                );
            }
        }
        Ok(())
    }
}
