//! Members that start together or not at all.

use clap::Args;
use schemas::v1;

#[derive(Debug, Clone, Args)]
pub struct Gang {
    /// The gang that it is a member of; each member is a submit of its own.
    #[arg(long, value_name = "NAME", requires = "gang_size")]
    gang: Option<String>,
    /// Members to wait for.
    #[arg(long, value_name = "N", requires = "gang")]
    gang_size: Option<i64>,
    /// Members that are enough to start; without it all.
    #[arg(long, value_name = "N", requires = "gang")]
    gang_min: Option<i64>,
    /// All members on nodes with one value of this label.
    #[arg(long, value_name = "LABEL", requires = "gang")]
    gang_uniform: Option<String>,
}

impl Gang {
    pub fn request(self) -> Option<v1::GangRequest> {
        Some(v1::GangRequest {
            name: self.gang?,
            size: self.gang_size.unwrap_or_default(),
            min: self.gang_min.unwrap_or_default(),
            uniform_label: self.gang_uniform.unwrap_or_default(),
        })
    }
}
