//! Simulated tenants and operators: they ask, repeat themselves, change their minds, and make mistakes.

mod mistakes;
mod operators;
mod resources;
mod wishes;

use super::{
    agents::uuid_text,
    check::{Ask, Asked, Expect, Granted},
    world::Rare,
};
use ledger::memory::Seeded;
use mistakes::{mistake, whole_mistake};
use prost::Message;
use resources::Slots;
use schemas::v1::{
    Batch, Cancel, CancelJobSet, DependencyRequest, IndexRange, Request, SetPriority, Submit,
    SubmitArray, request::Verb, set_priority::Target,
};
use std::collections::BTreeSet;
use wishes::{gang, impossible, one_alike, one_of_many, submit};

const OPERATOR: &str = "_operator";
pub const CELL: u64 = 1;
const GIB: i64 = 1 << 30;
const QUANTITY_ZERO: i32 = 10;
/// Makes a name so long that it takes room of its own.
const LONG: &str = "-of-a-department-with-a-long-name";

/// What clients may know of the cell.
pub struct Known<'a> {
    /// Allocations that could be cancelled, and whose they are.
    pub allocations: Vec<(u64, String)>,
    pub granted: Vec<Granted<'a>>,
    pub now_ms: i64,
}

/// Whether more is asked for than there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crowd {
    None,
    Mixed,
    /// All of one class, without rules or gangs.
    Alike,
}

impl Crowd {
    fn submit(self) -> fn(&mut Seeded) -> Submit {
        match self {
            Self::None => submit,
            Self::Mixed => one_of_many,
            Self::Alike => one_alike,
        }
    }
}

/// What a seed makes of its clients.
#[derive(Debug)]
pub struct Tenants {
    names: Vec<String>,
    /// Numbers operations.
    next: u64,
    replies: u64,
    sent: Vec<Ask>,
    /// Setting-up that is still to be sent, last first.
    setup: Vec<Verb>,
    /// Members of gangs that are still to be asked for.
    members: Vec<(String, Submit)>,
    gangs: u64,
    crowd: Crowd,
    slots: Slots,
    /// Per mille of the wishes that are about named resources, beside the usual.
    resources: u64,
    /// Per mille of the messages that are the first tenant's, beside the usual.
    flood: u64,
}

impl Tenants {
    pub fn new(slot_ms: u64, rare: &Rare, random: &mut Seeded) -> Self {
        let ending = if rare.long_names { LONG } else { "" };
        let names: Vec<String> = (0..=random.below(3))
            .map(|i| format!("tenant-{i}{ending}"))
            .collect();
        let crowd = match random.below(10) {
            0..=2 => Crowd::Mixed,
            3 | 4 => Crowd::Alike,
            _ => Crowd::None,
        };
        Self {
            next: 0,
            replies: 0,
            sent: Vec::new(),
            setup: operators::setup(&names, crowd, random),
            members: Vec::new(),
            gangs: 0,
            crowd,
            slots: Slots::new(slot_ms),
            resources: [0, 0, 700][random.below(3) as usize],
            flood: rare.flood,
            names,
        }
    }

    /// The next message.
    pub fn next(&mut self, known: &Known, random: &mut Seeded) -> Ask {
        if !self.setup.is_empty() {
            return self.set_up(random);
        }
        if self.flood > 0 && random.chance(self.flood) {
            return self.flood(known, random);
        }
        let tenant = self.tenant(random);
        match random.below(100) {
            0..=3 => self.message("stranger", random, |it, _| it.submit()),
            4..=17 => self.message(OPERATOR, random, |it, random| {
                let tenant = it.tenant(random);
                let verb = operators::change(&tenant, known.now_ms, random);
                it.asked(Some(verb), Expect::Sound)
            }),
            18..=28 => self.again(tenant, random),
            29..=30 => {
                let (payload, expect) = whole_mistake(random);
                self.send(
                    &tenant,
                    payload.clone(),
                    vec![Asked { payload, expect }],
                    random,
                )
            }
            31 | 32 => self.array(&tenant, random),
            _ => {
                let of = tenant.clone();
                self.message(&tenant, random, |it, random| it.wish(&of, known, random))
            }
        }
    }

    fn tenant(&self, random: &mut Seeded) -> String {
        pick(&self.names, random).cloned().unwrap_or_default()
    }

    /// One request; or several of the same sender in one message.
    fn message(
        &mut self,
        sender: &str,
        random: &mut Seeded,
        mut one: impl FnMut(&mut Self, &mut Seeded) -> Asked,
    ) -> Ask {
        if random.chance(800) {
            let asked = one(self, random);
            let alone = is_alone_too(&asked);
            return match alone {
                true => self.send(sender, asked.payload.clone(), vec![asked], random),
                false => self.batch(sender, vec![asked], random),
            };
        }
        let operations = (0..=random.below(5)).map(|_| one(self, random));
        let operations: Vec<Asked> = operations.collect();
        self.batch(sender, operations, random)
    }

    fn batch(&mut self, sender: &str, operations: Vec<Asked>, random: &mut Seeded) -> Ask {
        let payload = batch_of(operations.iter().map(|one| one.payload.as_slice()));
        self.send(sender, payload, operations, random)
    }

    fn send(
        &mut self,
        sender: &str,
        payload: Vec<u8>,
        operations: Vec<Asked>,
        random: &mut Seeded,
    ) -> Ask {
        self.replies += 1;
        let reply_to = random
            .chance(900)
            .then(|| format!("reply-{}", self.replies));
        // Whoever sends a message again may be another operator.
        let named = sender == OPERATOR && random.chance(600);
        let by = named.then(|| ["alice", "bob"][random.below(2) as usize].to_owned());
        let ask = Ask {
            tenant: sender.to_owned(),
            by,
            payload,
            reply_to,
            operations,
        };
        self.sent.push(ask.clone());
        ask
    }

    /// Some that differ by an index; or none at all, for a step that leads nowhere.
    fn array(&mut self, sender: &str, random: &mut Seeded) -> Ask {
        self.next += 1;
        let id = format!("op-{}", self.next);
        let wanted = self.crowd.submit()(random);
        let first = random.below(1000) as u32;
        let (count, step) = (1 + random.below(4) as u32, 1 + random.below(3) as u32);
        let indexes = (0..count).map(|at| first + at * step);
        let sound = random.chance(900);
        let range = IndexRange {
            first,
            last: first + count * step - 1,
            step: if sound { step } else { 0 },
        };
        let asked = |operation_id, verb, expect| {
            let verb = Some(verb);
            let payload = Request { operation_id, verb }.encode_to_vec();
            Asked { payload, expect }
        };
        let element = |index: u32| {
            let name = match wanted.name.as_str() {
                "" => String::new(),
                name => format!("{name}-{index}"),
            };
            let element = Submit {
                name,
                array_index: Some(index),
                ..wanted.clone()
            };
            let id = format!("{id}-{index}");
            asked(id, Verb::Submit(element), Expect::Sound)
        };
        let elements = indexes.map(element).collect();
        let array = SubmitArray {
            submit: Some(wanted.clone()),
            indexes: vec![range],
        };
        let array = Verb::SubmitArray(array);
        let array = asked(id.clone(), array, Expect::Unreadable(QUANTITY_ZERO));
        let payload = array.payload.clone();
        let operations = if sound { elements } else { vec![array] };
        self.send(sender, payload, operations, random)
    }

    fn asked(&mut self, verb: Option<Verb>, expect: Expect) -> Asked {
        self.next += 1;
        let ending = if self.flood > 0 && self.next.is_multiple_of(3) {
            LONG
        } else {
            ""
        };
        let operation_id = format!("op-{}{ending}", self.next);
        let payload = Request { operation_id, verb }.encode_to_vec();
        Asked { payload, expect }
    }

    /// The operators' first settings, some of them together.
    fn set_up(&mut self, random: &mut Seeded) -> Ask {
        let together = if random.chance(300) {
            random.below(5)
        } else {
            0
        };
        let mut operations = Vec::new();
        for _ in 0..=together {
            if let Some(verb) = self.setup.pop() {
                operations.push(self.asked(Some(verb), Expect::Sound));
            }
        }
        match operations.as_slice() {
            [one] => {
                let payload = one.payload.clone();
                self.send(OPERATOR, payload, operations, random)
            }
            _ => self.batch(OPERATOR, operations, random),
        }
    }

    /// Many operations at once, most of which come to nothing and are remembered all the same.
    fn flood(&mut self, known: &Known, random: &mut Seeded) -> Ask {
        let tenant = self.names.first().cloned().unwrap_or_default();
        let mut operations = Vec::new();
        for _ in 0..=random.below(8) {
            operations.push(match random.below(10) {
                0..=4 => {
                    let allocation_id = uuid_text(CELL, u64::MAX);
                    let verb = Verb::Cancel(Cancel { allocation_id });
                    self.asked(Some(verb), Expect::Sound)
                }
                5..=7 => self.wish(&tenant, known, random),
                8 => {
                    let (verb, expect) = self.slots.wish(&tenant, &known.granted, random);
                    self.asked(Some(verb), expect)
                }
                _ => self.misnamed(random),
            });
        }
        self.batch(&tenant, operations, random)
    }

    /// A resource of no name under a used operation id: one that is over may be used again in a later slot, and what is
    /// refused has its place then.
    fn misnamed(&mut self, random: &mut Seeded) -> Asked {
        let used = 1 + random.below(self.next.max(1));
        let request = Request {
            operation_id: format!("op-{used}"),
            verb: Some(self.slots.misnamed(random)),
        };
        Asked {
            payload: request.encode_to_vec(),
            expect: Expect::Breaks(9),
        }
    }

    /// What a tenant may want.
    fn wish(&mut self, tenant: &str, known: &Known, random: &mut Seeded) -> Asked {
        // One after the other, with something else in between.
        let member = self.members.iter().position(|(of, _)| of == tenant);
        if let Some(index) = member.filter(|_| random.chance(600)) {
            let (_, member) = self.members.remove(index);
            return self.asked(Some(Verb::Submit(member)), Expect::Sound);
        }
        if self.crowd != Crowd::None && random.chance(850) {
            return match random.below(100) {
                0..=9 if self.crowd == Crowd::Mixed => self.gang(tenant, random),
                10..=14 => self.asked(Some(Verb::Submit(impossible(random))), Expect::Sound),
                _ => {
                    let submit = self.crowd.submit()(random);
                    self.asked(Some(Verb::Submit(submit)), Expect::Sound)
                }
            };
        }
        if random.chance(self.resources) {
            let (verb, expect) = self.slots.wish(tenant, &known.granted, random);
            return self.asked(Some(verb), expect);
        }
        match random.below(100) {
            0..=4 => self.gang(tenant, random),
            5..=7 => {
                let verb = Verb::Submit(impossible(random));
                self.asked(Some(verb), Expect::Sound)
            }
            8..=42 => {
                let mut wanted = submit(random);
                if random.chance(200) {
                    wanted.depends_on = self.dependencies(tenant, known, random);
                }
                self.asked(Some(Verb::Submit(wanted)), Expect::Sound)
            }
            43..=51 => {
                let allocation_id = self.target(tenant, known, random);
                let verb = Verb::Cancel(Cancel { allocation_id });
                self.asked(Some(verb), Expect::Sound)
            }
            52..=54 => {
                let job_set = job_set(random);
                let verb = Verb::CancelJobSet(CancelJobSet { job_set });
                self.asked(Some(verb), Expect::Sound)
            }
            55..=60 => self.set_priority(tenant, known, random),
            61..=65 => self.otherwise(random),
            66..=71 => {
                let (verb, expect) = mistake(tenant, random);
                match verb {
                    Ok(verb) => self.asked(verb, expect),
                    Err(payload) => Asked { payload, expect },
                }
            }
            72 => self.nested(random),
            _ => {
                let (verb, expect) = self.slots.wish(tenant, &known.granted, random);
                self.asked(Some(verb), expect)
            }
        }
    }

    /// A batch or an array where there must be none; by itself it would be a batch that says an operation id, or an array.
    fn nested(&mut self, random: &mut Seeded) -> Asked {
        if random.chance(500) {
            let (first, last, step) = (0, 1, 1);
            let array = SubmitArray {
                submit: Some(submit(random)),
                indexes: vec![IndexRange { first, last, step }],
            };
            return self.asked(Some(Verb::SubmitArray(array)), Expect::Breaks(2));
        }
        let inner = Request {
            operation_id: "in-vain".into(),
            verb: Some(Verb::Submit(submit(random))),
        };
        let nested = Batch {
            requests: vec![inner],
        };
        self.asked(Some(Verb::Batch(nested)), Expect::Unreadable(2))
    }

    fn submit(&mut self) -> Asked {
        let plain = Submit {
            cpu_milli: 500,
            memory_bytes: GIB,
            ..Submit::default()
        };
        self.asked(Some(Verb::Submit(plain)), Expect::Sound)
    }

    fn gang(&mut self, tenant: &str, random: &mut Seeded) -> Asked {
        self.gangs += 1;
        let mut members = gang(self.gangs, self.crowd.submit(), random);
        // The last one may never be asked for.
        let first = members.pop().unwrap_or_default();
        let rest = members
            .into_iter()
            .map(|member| (tenant.to_owned(), member));
        self.members.extend(rest);
        self.asked(Some(Verb::Submit(first)), Expect::Sound)
    }

    /// Mostly one's own allocation, sometimes somebody else's or none at all.
    fn target(&self, tenant: &str, known: &Known, random: &mut Seeded) -> String {
        let own: Vec<u64> = known
            .allocations
            .iter()
            .filter(|(_, owner)| *owner == tenant || random.chance(100))
            .map(|(no, _)| *no)
            .collect();
        let number = pick(&own, random).copied().unwrap_or(random.below(100));
        let cell = if random.chance(50) { CELL + 1 } else { CELL };
        uuid_text(cell, number)
    }

    fn dependencies(
        &self,
        tenant: &str,
        known: &Known,
        random: &mut Seeded,
    ) -> Vec<DependencyRequest> {
        let targets = (0..=random.below(2)).map(|_| self.target(tenant, known, random));
        let targets: BTreeSet<String> = targets.collect();
        let dependency = |allocation_id| DependencyRequest {
            allocation_id,
            success: random.chance(500),
            operation_id: String::new(),
        };
        targets.into_iter().map(dependency).collect()
    }

    fn set_priority(&mut self, tenant: &str, known: &Known, random: &mut Seeded) -> Asked {
        let target = if random.chance(700) {
            Target::AllocationId(self.target(tenant, known, random))
        } else {
            Target::JobSet(job_set(random))
        };
        let verb = Verb::SetPriority(SetPriority {
            target: Some(target),
            priority: random.below(6) as i32 - 2,
        });
        self.asked(Some(verb), Expect::Sound)
    }

    /// The same message again, with the same content, mostly a recent one; or one of its operations by itself.
    fn again(&mut self, tenant: String, random: &mut Seeded) -> Ask {
        let recent = &self.sent[self.sent.len().saturating_sub(6)..];
        let Some(ask) = pick(recent, random).cloned() else {
            return self.message(&tenant, random, |it, _| it.submit());
        };
        match ask.operations.as_slice() {
            [_, _, ..] if random.chance(400) => {
                let one = pick(&ask.operations, random).cloned();
                let one: Vec<Asked> = one.filter(is_alone_too).into_iter().collect();
                match one.first().map(|one| one.payload.clone()) {
                    Some(payload) => self.send(&ask.tenant, payload, one, random),
                    None => self.send(&ask.tenant, ask.payload, ask.operations, random),
                }
            }
            [one]
                if random.chance(200)
                    && !matches!(one.expect, Expect::Nameless(_))
                    && is_alone_too(one) =>
            {
                let twice = vec![one.clone(), one.clone()];
                self.batch(&ask.tenant, twice, random)
            }
            _ => self.send(&ask.tenant, ask.payload, ask.operations, random),
        }
    }

    /// A used operation id with other content.
    fn otherwise(&mut self, random: &mut Seeded) -> Asked {
        let used = 1 + random.below(self.next.max(1));
        let request = Request {
            operation_id: format!("op-{used}"),
            verb: Some(Verb::Submit(submit(random))),
        };
        Asked {
            payload: request.encode_to_vec(),
            expect: Expect::Sound,
        }
    }
}

/// Means the same by itself as in a batch.
fn is_alone_too(one: &Asked) -> bool {
    let request = Request::decode(one.payload.as_slice());
    let is_many = |verb| matches!(verb, Some(Verb::Batch(_) | Verb::SubmitArray(_)));
    !request.is_ok_and(|request| is_many(request.verb))
}

fn job_set(random: &mut Seeded) -> String {
    ["set-1", "set-2", "default", "set-9"][random.below(4) as usize].to_owned()
}

fn pick<'a, T>(items: &'a [T], random: &mut Seeded) -> Option<&'a T> {
    items.get(random.below(items.len().max(1) as u64) as usize)
}

/// A batch, written by hand: what stands in it need not be readable.
fn batch_of<'a>(requests: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    /// `requests` of `Batch`, and `batch` of `Request`, both of length-delimited type.
    const REQUESTS: u8 = 1 << 3 | 2;
    const BATCH: u8 = 12 << 3 | 2;
    let mut inner = Vec::new();
    for request in requests {
        inner.push(REQUESTS);
        prost::encode_length_delimiter(request.len(), &mut inner).unwrap_or_default();
        inner.extend_from_slice(request);
    }
    let mut payload = vec![BATCH];
    prost::encode_length_delimiter(inner.len(), &mut payload).unwrap_or_default();
    payload.extend_from_slice(&inner);
    payload
}
