//! The cluster and the workload of the measure: made up, from a seed.

use ledger::memory::Seeded;
use vocab::{
    AllocationSpec, Gang, GpuRequest, NodeCapacity, Operator, PlacementRules, Requirement, Token,
};

pub const QUEUES: u64 = 100;
const ZONES: u64 = 8;
/// Selectors ask for one of the first of them.
const SELECTED: u64 = 3;
const MODELS: [&str; 3] = ["A10", "T4", "V100"];
const GIB: u64 = 1 << 30;

pub fn token(text: &str) -> Token {
    Token::new(text)
        .unwrap_or_else(|_| unreachable!("{text} is made of letters, digits and dashes"))
}

/// Of ten nodes four have 8 GPUs.
pub fn node(number: u32, random: &mut Seeded) -> (Token, NodeCapacity) {
    let gpu = random.chance(400);
    let zone = format!("z{}", random.below(ZONES));
    let capacity = NodeCapacity {
        cpu_milli: if gpu { 96_000 } else { 64_000 },
        memory_bytes: if gpu { 768 * GIB } else { 256 * GIB },
        gpus: if gpu { 8 } else { 0 },
        gpu_model: gpu.then(|| token(MODELS[random.below(3) as usize])),
        labels: vec![(token("zone"), token(&zone))],
        ..NodeCapacity::default()
    };
    (token(&format!("n{number:06}")), capacity)
}

/// What a tenant may ask for, with how many members: 30 % with a selector, 30 % for a share of a GPU, 10 % gangs.
pub struct Workload {
    random: Seeded,
    gangs: u64,
}

impl Workload {
    pub fn new(seed: u64) -> Self {
        Self {
            random: Seeded::new(seed ^ 0x5eed),
            gangs: 0,
        }
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    pub fn queue(&mut self) -> Token {
        token(&format!("q{:02}", self.random.below(QUEUES)))
    }

    /// One request; a gang's members are alike.
    pub fn draw(&mut self) -> (AllocationSpec, u32) {
        let random = &mut self.random;
        // Ten sizes: four of cores alone, two shares, four of whole devices with 8 cores each.
        let dice = random.below(1000);
        let (cores, gpus) = if dice < 300 {
            (2, Some(gpu(1, [250, 500][random.below(2) as usize])))
        } else if dice < 450 {
            let count = [1, 2, 4, 8][random.below(4) as usize];
            (8 * u64::from(count), Some(gpu(count, 1000)))
        } else {
            ([1, 2, 4, 8][random.below(4) as usize], None)
        };
        let mut spec = AllocationSpec::plain(token("load"), cores * 1000, cores * 4 * GIB);
        spec.gpu = gpus;
        if random.chance(300) {
            let values = vec![token(&format!("z{}", random.below(SELECTED)))];
            spec.rules = Some(Box::new(PlacementRules {
                selector: vec![Requirement {
                    label: token("zone"),
                    operator: Operator::In,
                    values,
                }],
                ..PlacementRules::default()
            }));
        }
        let mut size = 1;
        if random.chance(100) {
            size = [2, 4, 8][random.below(3) as usize];
            self.gangs += 1;
            spec.gang = Some(Gang {
                name: token(&format!("g{}", self.gangs)),
                size,
                min: size,
                uniform_label: None,
            });
        }
        (spec, size)
    }
}

fn gpu(count: u16, milli: u16) -> GpuRequest {
    GpuRequest {
        count,
        milli,
        models: Vec::new(),
    }
}
