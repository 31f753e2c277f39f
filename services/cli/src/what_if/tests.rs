//! From the command line to words, on a ledger in memory.

use super::*;
use clap::Parser;
use ledger::{
    Bus, Decider, Draft, Replica,
    memory::{Faults, MemoryBus},
};
use schemas::v1;
use std::future::Future;
use vocab::{
    AdminChange, AllocationNo, AllocationSpec, At, Event, IllegalPlace, Millis, NodeCapacity,
    Operation,
};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    what_if: WhatIf,
}

fn parse(line: &str) -> WhatIf {
    let words = ["what-if"].into_iter().chain(line.split_whitespace());
    match Line::try_parse_from(words) {
        Ok(line) => line.what_if,
        Err(error) => panic!("{line}: {error}"),
    }
}
