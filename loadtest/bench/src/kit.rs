//! What the measures share: what they say, what they are written down as, and what the stack uses meanwhile.

pub mod aims;
pub mod facts;
pub mod figures;
pub mod report;
pub mod servers;
pub mod usage;

/// How this was built; the stack's programs are beside it.
pub const PROFILE: &str = if cfg!(debug_assertions) {
    "dev"
} else {
    "release"
};
