//! Members that start together or not at all.

use clap::Args;
use schemas::v1;

#[derive(Args)]
pub struct Gang {
    /// The gang that it is a member of; each member is a submit of its own.
    #[arg(long = "gang", value_name = "NAME", requires = "gang_size")]
    name: Option<String>,
    /// Members to wait for.
    #[arg(
        long = "gang-size",
        value_name = "N",
        id = "gang_size",
        requires = "name"
    )]
    size: Option<i64>,
    /// Members that are enough to start; without it all.
    #[arg(
        long = "gang-min",
        value_name = "N",
        id = "gang_min",
        requires = "name"
    )]
    min: Option<i64>,
    /// All members on nodes with one value of this label.
    #[arg(
        long = "gang-uniform",
        value_name = "LABEL",
        id = "gang_uniform",
        requires = "name"
    )]
    uniform: Option<String>,
}

impl Gang {
    pub fn request(self) -> Option<v1::GangRequest> {
        Some(v1::GangRequest {
            name: self.name?,
            size: self.size.unwrap_or_default(),
            min: self.min.unwrap_or_default(),
            uniform_label: self.uniform.unwrap_or_default(),
        })
    }
}
