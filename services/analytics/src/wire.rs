//! What is heard of agents, as rows.

use crate::store::{SampleRow, slot};
use prost::Message;
use schemas::v1::Heartbeat;
use vocab::{Millis, Token};

/// None: it is no heartbeat, or one of an agent that measures nothing.
pub fn sample(node: Token, at: Millis, payload: &[u8]) -> Option<SampleRow> {
    let sample = Heartbeat::decode(payload).ok()?.sample?;
    let gpus = &sample.gpus;
    let memory = gpus.iter().map(|gpu| gpu.memory_bytes);
    Some(SampleRow {
        at,
        slot: slot(at),
        node,
        samples: 1,
        cpu_milli: sample.cpu_milli,
        memory_bytes: sample.memory_bytes,
        gpus: u32::try_from(gpus.len()).unwrap_or(u32::MAX),
        gpu_busy_milli: gpus.iter().map(|gpu| u64::from(gpu.busy_milli)).sum(),
        gpu_memory_bytes: memory.fold(0, u64::saturating_add),
        disk_used_bytes: sample.disk_used_bytes,
        disk_free_bytes: sample.disk_free_bytes,
        network_received_bytes: sample.network_received_bytes,
        network_sent_bytes: sample.network_sent_bytes,
        load_milli: sample.load_milli,
        oom_kills: sample.oom_kills,
        runs: sample.runs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::v1::{GpuSample, NodeSample};

    #[test]
    fn a_row_is_made_of_a_sample_and_of_nothing_else() {
        let check = |payload: &[u8], expected: Option<(u32, u64, u64)>| {
            let node = Token::new("n1").expect("a token");
            let found = sample(node, Millis(301_000), payload);
            let found = found.map(|row| (row.gpus, row.gpu_busy_milli, row.gpu_memory_bytes));
            assert_eq!(found, expected);
        };
        let beat = |gpus: &[(u32, u64)]| {
            let gpus = gpus.iter().map(|(busy_milli, memory_bytes)| GpuSample {
                device: 0,
                busy_milli: *busy_milli,
                memory_bytes: *memory_bytes,
            });
            let sample = NodeSample {
                gpus: gpus.collect(),
                ..NodeSample::default()
            };
            let beat = Heartbeat {
                sample: Some(sample),
                ..Heartbeat::default()
            };
            beat.encode_to_vec()
        };
        check(&beat(&[]), Some((0, 0, 0)));
        check(&beat(&[(1000, 5), (500, 7)]), Some((2, 1500, 12)));
        check(&beat(&[(1, u64::MAX), (1, 7)]), Some((2, 2, u64::MAX)));
        check(&Heartbeat::default().encode_to_vec(), None);
        check(b"", None);
        check(b"\xffgarbage", None);
    }
}
