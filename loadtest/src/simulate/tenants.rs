//! Simulated tenants and operators: they ask, repeat themselves, change their minds, and make mistakes.

mod wishes;

use super::{
    agents::uuid_text,
    check::{Ask, Expect},
};
use ledger::memory::Seeded;
use prost::Message;
use schemas::v1::{Cancel, GangRequest, Request, SetQuota, SetTenant, Submit, request::Verb};
use wishes::{change, gang, policies, submit};

const OPERATOR: &str = "_operator";
pub const CELL: u64 = 1;
const GIB: i64 = 1 << 30;

/// What a seed makes of its clients.
#[derive(Debug)]
pub struct Tenants {
    names: Vec<String>,
    next: u64,
    sent: Vec<Ask>,
    /// Setting-up that is still to be sent, last first.
    setup: Vec<(String, Verb)>,
    /// Members of gangs that are still to be asked for.
    members: Vec<(String, Submit)>,
    gangs: u64,
}

impl Tenants {
    pub fn new(random: &mut Seeded) -> Self {
        let names: Vec<String> = (0..=random.below(3))
            .map(|i| format!("tenant-{i}"))
            .collect();
        let mut setup = policies(random);
        for tenant in &names {
            for resource in ["cpu", "memory", "gpu"] {
                setup.push(quota(tenant, resource, None, random));
            }
            let expected_version = random.chance(500).then_some(0);
            let tenant = tenant.clone();
            let verb = Verb::SetTenant(SetTenant {
                tenant,
                expected_version,
            });
            setup.push((OPERATOR.to_owned(), verb));
        }
        Self {
            names,
            next: 0,
            sent: Vec::new(),
            setup,
            members: Vec::new(),
            gangs: 0,
        }
    }

    fn ask(
        &mut self,
        tenant: String,
        verb: Option<Verb>,
        expect: Expect,
        random: &mut Seeded,
    ) -> Ask {
        let request = Request {
            operation_id: format!("op-{}", self.next),
            verb,
        };
        self.raw(tenant, request.encode_to_vec(), expect, random)
    }

    fn raw(
        &mut self,
        tenant: String,
        payload: Vec<u8>,
        expect: Expect,
        random: &mut Seeded,
    ) -> Ask {
        self.next += 1;
        let reply_to = random.chance(900).then(|| format!("reply-{}", self.next));
        let ask = Ask {
            tenant,
            payload,
            reply_to,
            expect,
        };
        self.sent.push(ask.clone());
        ask
    }

    fn tenant(&self, random: &mut Seeded) -> String {
        pick(&self.names, random).cloned().unwrap_or_default()
    }

    /// The next message. `allocations` are the ones that could be cancelled.
    pub fn next(&mut self, allocations: &[(u64, String)], random: &mut Seeded) -> Ask {
        if let Some((tenant, verb)) = self.setup.pop() {
            return self.ask(tenant, Some(verb), Expect::Sound, random);
        }
        // One after the other, with something else in between.
        if random.chance(600)
            && let Some((tenant, member)) = self.members.pop()
        {
            return self.ask(tenant, Some(Verb::Submit(member)), Expect::Sound, random);
        }
        let tenant = self.tenant(random);
        match random.below(100) {
            0..=4 => {
                self.gangs += 1;
                let mut members = gang(self.gangs, random);
                // The last one may never be asked for.
                let first = members.pop().unwrap_or_default();
                let rest = members.into_iter().map(|member| (tenant.clone(), member));
                self.members.extend(rest);
                self.ask(tenant, Some(Verb::Submit(first)), Expect::Sound, random)
            }
            5..=44 => {
                let verb = Verb::Submit(submit(random));
                self.ask(tenant, Some(verb), Expect::Sound, random)
            }
            45..=48 => {
                let verb = change(&tenant, random);
                self.ask(OPERATOR.to_owned(), Some(verb), Expect::Sound, random)
            }
            49..=65 => self.cancel(tenant, allocations, random),
            66..=77 => self.again(tenant, random),
            78..=82 => self.otherwise(tenant, random),
            83..=86 => {
                let verb = Verb::Submit(submit(random));
                self.ask("stranger".into(), Some(verb), Expect::Sound, random)
            }
            87..=92 => self.mistake(tenant, random),
            93..=94 => {
                let stale = Some(random.below(3));
                let resource = ["cpu", "memory", "gpu"][random.below(3) as usize];
                let (operator, verb) = quota(&tenant, resource, stale, random);
                self.ask(operator, Some(verb), Expect::Sound, random)
            }
            _ => {
                let resource = ["cpu", "memory", "gpu"][random.below(3) as usize];
                let (operator, verb) = quota(&tenant, resource, None, random);
                self.ask(operator, Some(verb), Expect::Sound, random)
            }
        }
    }

    /// Mostly one's own, sometimes somebody else's or none at all.
    fn cancel(
        &mut self,
        tenant: String,
        allocations: &[(u64, String)],
        random: &mut Seeded,
    ) -> Ask {
        let own: Vec<u64> = allocations
            .iter()
            .filter(|(_, owner)| *owner == tenant || random.chance(100))
            .map(|(no, _)| *no)
            .collect();
        let number = pick(&own, random).copied().unwrap_or(random.below(100));
        let cell = if random.chance(50) { CELL + 1 } else { CELL };
        let allocation_id = uuid_text(cell, number);
        let verb = Verb::Cancel(Cancel { allocation_id });
        self.ask(tenant, Some(verb), Expect::Sound, random)
    }

    /// The same operation with the same content; mostly a recent one.
    fn again(&mut self, tenant: String, random: &mut Seeded) -> Ask {
        let recent = &self.sent[self.sent.len().saturating_sub(6)..];
        let Some(ask) = pick(recent, random).cloned() else {
            return self.mistake(tenant, random);
        };
        self.raw(ask.tenant, ask.payload, ask.expect, random)
    }

    /// A used operation id with other content.
    fn otherwise(&mut self, tenant: String, random: &mut Seeded) -> Ask {
        let used = random.below(self.next.max(1));
        let request = Request {
            operation_id: format!("op-{used}"),
            verb: Some(Verb::Submit(submit(random))),
        };
        self.raw(tenant, request.encode_to_vec(), Expect::Sound, random)
    }

    fn mistake(&mut self, tenant: String, random: &mut Seeded) -> Ask {
        let good = submit(random);
        let (verb, rule) = match random.below(10) {
            0 => return self.raw(tenant, vec![0xff, 0x01, 0x02], Expect::Breaks(1), random),
            1 => (None, 2),
            2 => {
                let mut payload = Request {
                    operation_id: format!("op-{}", self.next),
                    verb: Some(Verb::Submit(good)),
                }
                .encode_to_vec();
                // Field 2000, a varint.
                payload.extend_from_slice(&[0x80, 0x7d, 0x01]);
                return self.raw(tenant, payload, Expect::Breaks(3), random);
            }
            3 => {
                let payload = Request {
                    operation_id: "not a token".into(),
                    verb: Some(Verb::Submit(good)),
                };
                let payload = payload.encode_to_vec();
                return self.raw(tenant, payload, Expect::Breaks(5), random);
            }
            4 => (
                Some(Verb::Submit(Submit {
                    job_set: "a.b".into(),
                    ..good
                })),
                9,
            ),
            5 => (
                Some(Verb::Submit(Submit {
                    cpu_milli: 0,
                    ..good
                })),
                10,
            ),
            6 => (
                Some(Verb::Submit(Submit {
                    memory_bytes: -1,
                    ..good
                })),
                11,
            ),
            7 => {
                let share = Submit {
                    gpu_count: 2,
                    gpu_milli: 500,
                    ..good
                };
                (Some(Verb::Submit(share)), 13)
            }
            8 => {
                let asks = GangRequest {
                    name: "g".into(),
                    size: 2,
                    min: 3,
                    ..GangRequest::default()
                };
                let gang = Submit {
                    gang: Some(asks),
                    priority_class: String::new(),
                    ..good
                };
                (Some(Verb::Submit(gang)), 29)
            }
            // An operator's verb from a tenant.
            _ => (Some(quota(&tenant, "cpu", None, random).1), 2),
        };
        self.ask(tenant, verb, Expect::Breaks(rule), random)
    }
}

fn pick<'a, T>(items: &'a [T], random: &mut Seeded) -> Option<&'a T> {
    items.get(random.below(items.len().max(1) as u64) as usize)
}

fn quota(
    tenant: &str,
    resource: &str,
    expected: Option<u64>,
    random: &mut Seeded,
) -> (String, Verb) {
    let amount = match resource {
        "cpu" => 4000 * (1 + random.below(16)) as i64,
        "memory" => 4 * GIB * (1 + random.below(16)) as i64,
        _ => 500 * random.below(24) as i64,
    };
    let verb = Verb::SetQuota(SetQuota {
        tenant: tenant.to_owned(),
        resource: resource.to_owned(),
        limit: amount,
        expected_version: expected,
    });
    (OPERATOR.to_owned(), verb)
}
