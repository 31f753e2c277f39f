//! Named resources of a tenant: leased, confirmed, given back.

use crate::{
    Failure,
    context::{Context, Whose},
    print::{Fields, Output, Page, named, number, plain},
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
    #[command(flatten)]
    output: Output,
    #[command(subcommand)]
    command: ResourceCommand,
}

#[derive(Subcommand)]
enum ResourceCommand {
    /// Bring a resource into being.
    Create {
        /// Its name.
        resource: String,
    },
    /// Acquire resources, all or none, until they are confirmed or the time is over.
    Acquire {
        /// Their names.
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
    Revoke {
        /// The lease, as the outcome of acquire said.
        lease_id: String,
    },
    /// Make the resources of a revoked lease available.
    Reclaim {
        /// The lease, as the outcome of acquire said.
        lease_id: String,
    },
    /// Show a resource, and who holds it.
    Get {
        /// Its name.
        resource: String,
    },
}

#[derive(Args)]
struct Held {
    /// The lease, as the outcome of acquire said.
    lease_id: String,
    /// Who holds it, as it was acquired.
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
        let done = |what: &str| Fields::default().add("result", "result", plain(what));
        let fields = match self.command {
            ResourceCommand::Create { resource } => {
                let asked = CreateResource { resource, slot };
                client.create_resource(asked, id()).await?;
                done("created")
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
                Fields::default()
                    .add("lease_id", "lease", plain(granted.lease_id))
                    .add(
                        "fencing_token",
                        "fencing token",
                        number(granted.fencing_token),
                    )
                    .add("deadline_slot", "until slot", number(granted.deadline_slot))
            }
            ResourceCommand::Confirm(held) => {
                let asked = Confirm {
                    lease_id: held.lease_id,
                    holder: held.holder,
                    fencing_token: held.fencing_token,
                    slot,
                };
                client.confirm(asked, id()).await?;
                done("confirmed")
            }
            ResourceCommand::Release(held) => {
                let asked = Release {
                    lease_id: held.lease_id,
                    holder: held.holder,
                    fencing_token: held.fencing_token,
                    slot,
                };
                let released = client.release(asked, id()).await?;
                done("released").add(
                    "fencing_token",
                    "fencing token",
                    number(released.fencing_token),
                )
            }
            ResourceCommand::Revoke { lease_id } => {
                let asked = Revoke { lease_id, slot };
                let revoked = client.revoke(asked, id()).await?;
                done("revoked").add(
                    "fencing_token",
                    "fencing token",
                    number(revoked.fencing_token),
                )
            }
            ResourceCommand::Reclaim { lease_id } => {
                let asked = Reclaim { lease_id, slot };
                client.reclaim(asked, id()).await?;
                done("reclaimed")
            }
            ResourceCommand::Get { resource } => {
                let view = client.resource(resource, 0).await?;
                let fields = Fields::default()
                    .add("resource", "resource", plain(&view.resource))
                    .add("state", "state", plain(words(view.state())))
                    .add("version", "version", number(view.version))
                    .add("lease_id", "lease", named(&view.lease_id));
                match view.lease_id.is_empty() {
                    true => fields,
                    false => {
                        let of = client.lease(view.lease_id, slot, 0).await?;
                        fields
                            .add("lease_state", "lease is", plain(words(of.state())))
                            .add("holder", "holder", plain(&of.holder))
                            .add("fencing_token", "fencing token", number(of.fencing_token))
                            .add("deadline_slot", "until slot", number(of.deadline_slot))
                            .add("resources", "holds", plain(of.resources.join(" ")))
                    }
                }
            }
        };
        Page::one(fields).print(self.output)
    }
}
