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
    /// No node has any, so a task that asks for one waits.
    gpus: i64,
    next: Cell<u64>,
    /// Of all requests so far, as encoded.
    bytes: Cell<u64>,
}

impl Tasks {
    pub fn new(run: &str) -> Self {
        Self {
            job_set: run.to_owned(),
            gpus: 0,
            next: Cell::new(0),
            bytes: Cell::new(0),
        }
    }

    /// Those that nothing has room for.
    pub fn waiting(run: &str) -> Self {
        Self {
            gpus: 1,
            ..Self::new(&format!("{run}w"))
        }
    }

    pub fn job_set(&self) -> &str {
        &self.job_set
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.get()
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
                gpu_count: self.gpus,
                ..Submit::default()
            };
            let id = format!("{}{number:x}", self.job_set);
            let verb = Verb::Submit(submit);
            let size = verb.encoded_len() + prost::encoding::string::encoded_len(1, &id);
            self.bytes.set(self.bytes.get() + size as u64);
            Operation::new(id, verb)
        })
    }
}
