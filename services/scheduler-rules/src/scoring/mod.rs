//! How good a node is for a request: one file per policy.
//!
//! A score depends on the policy, on what is settled of the popularity, on the room and on the request, and on nothing
//! else, so it may be kept until one of them changes. Higher is better. Equal scores are the caller's to resolve, by a
//! fixed order of the nodes: see `rank`. The published policies are those of Weng et al., "Beware of Fragmentation",
//! USENIX ATC 2023, in integers; their scores are whole numbers on purpose, since the ties are part of the policies.

mod best_fit;
mod dot_product;
mod fgd;
mod fragmentation;
mod free;
mod gpu_clustering;
mod gpu_packing;
mod least_loss;
mod popularity;
mod prices;
mod random;
mod request;
mod spread;
mod usable;

pub use fragmentation::{WHOLE, fragmentation};
pub use free::{DEVICE_MILLI, Free, GpuKind, ModelNo, ModelSet};
pub use popularity::Popularity;
pub use request::{Request, fits};

use vocab::{GpuShare, GpuShares, PlacementPolicy};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Any node that fits; the salt is to be drawn for each request and node.
    Random {
        salt: u64,
    },
    DotProduct,
    BestFit,
    /// The least allocated first.
    Spread,
    GpuPacking,
    GpuClustering,
    Fgd,
    /// Our own: the least loss.
    Default,
}

impl Policy {
    pub const ALL: [Self; 8] = [
        Self::Random { salt: 0 },
        Self::DotProduct,
        Self::BestFit,
        Self::Spread,
        Self::GpuPacking,
        Self::GpuClustering,
        Self::Fgd,
        Self::Default,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Random { .. } => "random",
            Self::DotProduct => "dot_product",
            Self::BestFit => "best_fit",
            Self::Spread => "spread",
            Self::GpuPacking => "gpu_packing",
            Self::GpuClustering => "gpu_clustering",
            Self::Fgd => "fgd",
            Self::Default => "default",
        }
    }

    /// Hyphens count as underscores.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.replace('-', "_");
        Self::ALL.into_iter().find(|policy| policy.name() == text)
    }
}

impl From<PlacementPolicy> for Policy {
    fn from(policy: PlacementPolicy) -> Self {
        match policy {
            PlacementPolicy::Default => Self::Default,
            PlacementPolicy::BestFit => Self::BestFit,
            PlacementPolicy::Spread => Self::Spread,
            PlacementPolicy::GpuPacking => Self::GpuPacking,
            PlacementPolicy::Fgd => Self::Fgd,
        }
    }
}

/// None when the request does not fit.
pub fn score(
    policy: Policy,
    popularity: &Popularity,
    free: &Free,
    request: &Request,
) -> Option<u32> {
    fits(free, request).then(|| match policy {
        Policy::Random { salt } => random::score(salt),
        Policy::DotProduct => dot_product::score(free, request),
        Policy::BestFit => best_fit::score(free, request),
        Policy::Spread => spread::score(free, request),
        Policy::GpuPacking => gpu_packing::score(free, request),
        Policy::GpuClustering => gpu_clustering::score(free, request),
        Policy::Fgd => fgd::score(popularity, free, request),
        Policy::Default => least_loss::score(popularity, free, request),
    })
}

/// The devices on the node that was chosen; none when the request does not fit.
pub fn devices(
    policy: Policy,
    popularity: &Popularity,
    free: &Free,
    request: &Request,
) -> Option<GpuShares> {
    if !fits(free, request) {
        return None;
    }
    if !request.is_share() {
        return Some(tightest(free, request));
    }
    let device = match policy {
        Policy::Random { salt } => random::device(salt, free, request),
        Policy::Fgd => fgd::device(popularity, free, request),
        Policy::Default => least_loss::device(popularity, free, request),
        Policy::Spread => spread::device(free, request),
        Policy::DotProduct | Policy::BestFit | Policy::GpuPacking | Policy::GpuClustering => {
            return Some(tightest(free, request));
        }
    };
    Some(GpuShares::from_iter([GpuShare {
        device,
        milli: request.gpu_milli(),
    }]))
}

/// The fitting devices with the least free, the first of equal ones. Only for a room that it fits in.
fn tightest(free: &Free, request: &Request) -> GpuShares {
    if request.gpus() == 0 {
        return GpuShares::new();
    }
    let mut fitting: Vec<_> = free.fitting(request.gpu_milli()).collect();
    fitting.sort_unstable_by_key(|(device, free)| (*free, *device));
    fitting.truncate(request.gpus().into());
    let share = |(device, _)| GpuShare {
        device,
        milli: request.gpu_milli(),
    };
    fitting.into_iter().map(share).collect()
}

/// Among nodes of equal score the highest goes first. It comes from the name alone and looks random: FNV-1a, and the
/// finalizer of SplitMix64, since names often differ in their last digits only.
pub fn rank(name: &str) -> u64 {
    let fnv = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mix(fnv)
}

/// The finalizer of SplitMix64.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
pub(crate) mod tests;
