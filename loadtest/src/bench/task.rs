//! What the tasks ask for, and what they are called.

use client::{Operation, Submit};
use schemas::v1::request::Verb;
use std::cell::Cell;

const GIB: i64 = 1 << 30;
/// Of memory, so that tasks are not all alike.
const SHAPES: u64 = 8;

pub struct Tasks {
    /// All of them, so that they can be counted when they are over.
    job_set: String,
    next: Cell<u64>,
}

impl Tasks {
    pub fn new(run: &str) -> Self {
        Self {
            job_set: run.to_owned(),
            next: Cell::new(0),
        }
    }

    pub fn job_set(&self) -> &str {
        &self.job_set
    }

    /// The next ones: a core each, and one to almost two GiB.
    pub fn take(&self, count: u64) -> impl Iterator<Item = Operation> {
        let first = self.next.replace(self.next.get() + count);
        (first..first + count).map(|number| {
            let submit = Submit {
                job_set: self.job_set.clone(),
                cpu_milli: 1000,
                // Below SHAPES, so it fits.
                memory_bytes: GIB + (number % SHAPES) as i64 * GIB / SHAPES as i64,
                ..Submit::default()
            };
            Operation::new(format!("{}{number:x}", self.job_set), Verb::Submit(submit))
        })
    }
}
