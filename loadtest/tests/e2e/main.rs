//! The whole suite on real servers: five services, tenants, agents, each test in a cell, schemas and a database of its
//! own. Run by `make test`.

mod agent;
mod boot;
mod borders;
mod doors;
mod fence;
mod journey;
mod lost;
mod operators;
mod poison;
mod raw;
mod recovery;
mod scheduling;
mod suite;
mod trace;
