//! The whole suite on real servers: five services, tenants, agents, each test in a cell, schemas and a database of its
//! own. Run by `make test`.

mod agent;
mod asked;
mod batches;
mod bill;
mod boot;
mod borders;
mod cell;
mod deaf;
mod fence;
mod floods;
mod fuzz;
mod history;
mod identities;
mod inboxes;
mod joining;
mod journey;
mod leases;
mod lost;
mod operators;
mod poison;
mod proxy;
mod queries;
mod raw;
mod rebuild;
mod recovery;
mod samples;
mod scheduling;
mod settings;
mod sinks;
mod suite;
mod trace;
