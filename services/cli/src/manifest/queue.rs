//! `kind: Queue`

use super::{
    fields::{Fields, Wrong, needed},
    kind::{Manifest, name, names, text, texts},
    units::{Cores, Devices, Memory, Part, Word},
};
use schemas::v1;
use serde::{Deserialize, Serialize};
use vocab::{PlacementPolicy, QueueOrder, ResourceKind, Token};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    queue: Token,
    parent: Option<Token>,
    weight: Option<Part>,
    limits: Option<Limits>,
    tenants: Option<Vec<Token>>,
    order: Option<Word<QueueOrder>>,
    placement: Option<Word<PlacementPolicy>>,
    /// No allocation is accepted into it.
    closed: Option<bool>,
}

/// No more than this at a time.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    cpu: Option<Cores>,
    memory: Option<Memory>,
    gpu: Option<Devices>,
}

impl Manifest for Queue {
    type Message = v1::SetQueue;
    const NAMED_BY: &'static [&'static str] = &["queue"];

    fn key(fields: &Fields, _: i64) -> Result<String, Wrong> {
        Ok(needed::<Token>(fields, "queue")?.to_string())
    }

    fn of(set: &v1::SetQueue) -> Result<Self, Wrong> {
        let mut limits = Limits::default();
        for limit in &set.limits {
            match ResourceKind::parse(&limit.resource) {
                Some(ResourceKind::Cpu) => limits.cpu = Some(Cores(limit.amount)),
                Some(ResourceKind::Memory) => limits.memory = Some(Memory(limit.amount)),
                Some(ResourceKind::Gpu) => limits.gpu = Some(Devices(limit.amount)),
                None => {
                    let why = format!(
                        "{}: a newer version of this program knows what this is",
                        limit.resource
                    );
                    return Err(Wrong::new("limits", why));
                }
            }
        }
        let placement = set.placement.map(Word::of).transpose();
        Ok(Self {
            queue: Token::new(&set.queue)?,
            parent: name(&set.parent)?,
            weight: Some(Part(set.weight_milli.unwrap_or(1000))),
            limits: Some(limits),
            tenants: Some(names(&set.tenants)?),
            order: Some(Word::of(set.order).map_err(Wrong::at("order"))?),
            placement: placement.map_err(Wrong::at("placement"))?,
            closed: Some(set.closed),
        })
    }

    fn message(self) -> Result<v1::SetQueue, Wrong> {
        let Limits { cpu, memory, gpu } = self.limits.unwrap_or_default();
        let limits = [
            (ResourceKind::Cpu, cpu.map(|cpu| cpu.0)),
            (ResourceKind::Memory, memory.map(|memory| memory.0)),
            (ResourceKind::Gpu, gpu.map(|gpu| gpu.0)),
        ];
        let limit = |(kind, amount): (ResourceKind, Option<i64>)| {
            let resource = kind.name().to_owned();
            amount.map(|amount| v1::LimitRequest { resource, amount })
        };
        Ok(v1::SetQueue {
            queue: self.queue.into(),
            parent: text(self.parent),
            weight_milli: self.weight.map(|weight| weight.0),
            limits: limits.into_iter().filter_map(limit).collect(),
            tenants: texts(self.tenants.unwrap_or_default()),
            order: self.order.map_or(0, Word::number),
            placement: self.placement.map(Word::number),
            closed: self.closed.unwrap_or(false),
            expected_version: None,
        })
    }

    /// The ledger names it for ever, so it is closed.
    fn taken_back(set: &v1::SetQueue) -> Result<v1::SetQueue, &'static str> {
        let closed = true;
        Ok(v1::SetQueue {
            closed,
            ..set.clone()
        })
    }
}
