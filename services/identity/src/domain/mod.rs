pub mod claims;
pub mod mint;
pub mod party;
