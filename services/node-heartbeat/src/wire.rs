//! Between the agents' messages and the domain's words: the only file here that names generated types.

use chassis::TraceParent;
use ledger::InboxMessage;
use node_heartbeat_rules::{Assignment, CONDITIONS_MAX, Command, Conditions, Join, Report};
use prost::{Message, bytes::Bytes};
use schemas::{
    ToProst as _,
    v1::{self, join_reply},
};
use sha2::{Digest, Sha256};
use uuid::Uuid;
use vocab::fact::NodeConditionChanged;
use vocab::{AllocationId, CellNo, Millis, NodeCapacity, Refusal, Rule, RunExit, RunState, Token};
use wire::{Codec as _, Message as _, Out as _, Plain, Row};

/// Runs in one report.
pub const RUNS_MAX: usize = 1000;
/// Changes in one push: with the longest specs still far below what the bus takes.
pub const CHANGES_MAX: usize = 256;

/// Total: what cannot be read moves the inbox on and nothing else.
pub fn report(message: &InboxMessage, cell: CellNo, out: &mut Vec<Command>) {
    let node = &message.sender;
    // By an id of the bus's own one node's report would be taken for a repetition of another's. Nobody is to use one.
    if message.reserved_header || read(node, &message.payload, cell, out).is_none() {
        out.push(Command::Unreadable { node: node.clone() });
    }
}

/// The contract's `NodeReport` with its ids where they lie: a report has as many as it has runs.
#[derive(Clone, PartialEq, Message)]
struct RawReport {
    #[prost(uint64, tag = "1")]
    boot: u64,
    #[prost(oneof = "RawSaid", tags = "10, 11, 12")]
    said: Option<RawSaid>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum RawSaid {
    #[prost(message, tag = "10")]
    Register(v1::Register),
    #[prost(message, tag = "11")]
    Run(RawRun),
    #[prost(message, tag = "12")]
    Runs(RawRuns),
}

#[derive(Clone, PartialEq, Message)]
struct RawRuns {
    #[prost(message, repeated, tag = "1")]
    runs: Vec<RawRun>,
}

#[derive(Clone, PartialEq, Message)]
struct RawRun {
    #[prost(bytes = "bytes", tag = "1")]
    allocation_id: Bytes,
    #[prost(enumeration = "v1::RunPhase", tag = "2")]
    phase: i32,
    #[prost(int64, tag = "3")]
    at_ms: i64,
    #[prost(uint64, tag = "4")]
    revision: u64,
    #[prost(message, tag = "5")]
    exit: Option<v1::RunExit>,
}

/// None, and nothing put out: it cannot be read.
fn read(node: &Token, payload: &Bytes, cell: CellNo, out: &mut Vec<Command>) -> Option<()> {
    let message = RawReport::decode(payload.clone()).ok()?;
    let boot = message.boot;
    let run = |run: &RawRun| read_run(node, boot, run, cell);
    match message.said? {
        RawSaid::Register(register) => {
            let capacity = register.capacity.map(|it| it.encode_to_vec());
            let capacity = capacity.and_then(|bytes| NodeCapacity::decode(&bytes).ok());
            let node = node.clone();
            out.push(match capacity {
                Some(capacity) => Command::Register {
                    node,
                    boot,
                    capacity: Box::new(capacity),
                    change: register.change,
                },
                None => Command::RegisterUnreadable { node, boot },
            });
        }
        RawSaid::Run(one) => out.push(run(&one)?),
        RawSaid::Runs(many) if many.runs.len() > RUNS_MAX => return None,
        // One that cannot be read says nothing about the others.
        RawSaid::Runs(many) => out.extend(many.runs.iter().filter_map(run)),
    }
    Some(())
}

fn read_run(node: &Token, boot: u64, run: &RawRun, cell: CellNo) -> Option<Command> {
    let id = str::from_utf8(&run.allocation_id).ok()?;
    let report = Report {
        allocation: AllocationId::parse(id)?.in_cell(cell)?,
        state: match run.phase() {
            v1::RunPhase::Started => RunState::Started,
            v1::RunPhase::FinishedOk => RunState::Finished,
            v1::RunPhase::FailedRun => RunState::Failed,
            v1::RunPhase::Rejected => RunState::Rejected,
            v1::RunPhase::Unspecified => return None,
        },
        at: Millis(run.at_ms),
        revision: run.revision,
        // That it is over counts also where no command can have ended so.
        exit: (run.exit.as_ref()).and_then(|exit| RunExit::decode(&exit.encode_to_vec()).ok()),
    };
    Some(Command::Report {
        node: node.clone(),
        boot,
        report,
    })
}

/// The contract's `Heartbeat` without its sample, by which nothing is decided.
#[derive(Clone, PartialEq, Message)]
struct RawBeat {
    #[prost(uint64, tag = "1")]
    boot: u64,
    #[prost(uint64, tag = "2")]
    revision: u64,
    #[prost(message, repeated, tag = "4")]
    conditions: Vec<v1::NodeCondition>,
}

pub fn heartbeat(node: Token, payload: &[u8], request: Option<u64>) -> Option<Command> {
    let message = RawBeat::decode(payload).ok()?;
    let mut conditions = Conditions::new();
    for condition in &message.conditions {
        // One that cannot be read, or is not the agent's to say, says nothing about the others.
        if let Ok(name) = Token::new(&condition.name)
            && name.as_str() != NodeConditionChanged::READY
            && (conditions.len() < CONDITIONS_MAX || conditions.contains_key(&name))
        {
            conditions.insert(name, Token::new(&condition.reason).ok());
        }
    }
    Some(Command::Heartbeat {
        node,
        boot: message.boot,
        revision: message.revision,
        request,
        conditions,
    })
}

/// The body of an `Assignment`, and further changes in it; from the last field to the first.
fn write(assignment: &Assignment, (boot, cell): (u64, CellNo), more: &[Assignment], out: &mut Row) {
    if let Some(origin) = assignment.origin.as_deref() {
        let trace = origin.trace.as_ref();
        let trace =
            trace.and_then(|it| TraceParent::new(it.trace_id, it.span_id, it.flags & 1 == 1));
        if let Some(trace) = trace {
            out.text(15, trace.to_string().as_bytes());
        }
        Plain::write_field(&origin.operation_id, 14, out);
    }
    out.each(more, |out, change| {
        out.message(12, |out| write(change, (boot, cell), &[], out));
    });
    Plain::write_field(&assignment.zones, 11, out);
    Plain::write_field(&assignment.stop_by, 10, out);
    Plain::write_field(&boot, 9, out);
    Plain::write_field(&assignment.stop, 7, out);
    Plain::write_field(&assignment.placed, 6, out);
    Plain::write_field(&assignment.gpus, 5, out);
    out.message(4, |out| assignment.spec.write_body(out));
    Plain::write_field(&assignment.tenant, 3, out);
    let id = assignment.allocation.id(cell).0;
    let mut text = Uuid::encode_buffer();
    out.text(2, id.hyphenated().encode_lower(&mut text).as_bytes());
    Plain::write_field(&assignment.revision, 1, out);
}

/// One push with all these changes, which are for the same boot; nothing when there are none.
pub fn push(assignments: &[Assignment], boot: u64, cell: CellNo) -> Option<Vec<u8>> {
    let (first, more) = assignments.split_first()?;
    let mut bytes = Vec::new();
    Row::behind(&mut bytes, |out| write(first, (boot, cell), more, out));
    Some(bytes)
}

/// An `AssignmentList`.
pub fn assignments(revision: u64, assignments: &[Assignment], boot: u64, cell: CellNo) -> Vec<u8> {
    let mut bytes = Vec::new();
    Row::behind(&mut bytes, |out| {
        Plain::write_field(&boot, 3, out);
        out.each(assignments, |out, assignment| {
            out.message(2, |out| write(assignment, (boot, cell), &[], out));
        });
        Plain::write_field(&revision, 1, out);
    });
    bytes
}

pub fn renewed(boot: u64, lease_ms: i64, now: Millis) -> Vec<u8> {
    v1::LeaseRenewed {
        boot,
        lease_ms,
        now_ms: now.0,
    }
    .encode_to_vec()
}

pub fn register_again(boot: u64) -> Vec<u8> {
    v1::Assignment {
        register_again: true,
        boot,
        ..Default::default()
    }
    .encode_to_vec()
}

pub fn registration_refused(boot: u64, refusal: &Refusal) -> Vec<u8> {
    v1::Assignment {
        registration_refused: Some(refusal.to_prost()),
        boot,
        ..Default::default()
    }
    .encode_to_vec()
}

/// A longer token was never given.
const TOKEN_BYTES_MAX: usize = 256;

/// The refusal is of what cannot be read.
pub fn join(payload: &[u8], request: u64) -> Result<Command, Refusal> {
    let bad = |field: &str| Refusal::new(Rule::NameInvalid, field);
    let message = v1::JoinRequest::decode(payload)
        .map_err(|_| Refusal::new(Rule::MalformedMessage, "payload"))?;
    if message.token.len() > TOKEN_BYTES_MAX {
        return Err(Refusal::new(Rule::JoinTokenInvalid, "token"));
    }
    Ok(Command::Join(Box::new(Join {
        node: Token::new(&message.node).map_err(|_| bad("node"))?,
        token: Sha256::digest(&message.token).into(),
        key: user_key(&message.public_key).ok_or_else(|| bad("public_key"))?,
        request,
    })))
}

fn user_key(text: &str) -> Option<Token> {
    identity::is_user_key(text).then(|| Token::new(text).ok())?
}

pub fn joined(user_jwt: String) -> Vec<u8> {
    joining(join_reply::Answer::UserJwt(user_jwt))
}

pub fn join_refused(refusal: &Refusal) -> Vec<u8> {
    joining(join_reply::Answer::Refused(refusal.to_prost()))
}

fn joining(answer: join_reply::Answer) -> Vec<u8> {
    v1::JoinReply {
        answer: Some(answer),
    }
    .encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use node_heartbeat_rules::Origin;
    use schemas::v1::node_report;
    use vocab::{AllocationNo, AllocationSpec, EncodedSpecs, GpuShare, GpuShares, TraceContext};

    fn token(text: &str) -> Token {
        Token::new(text).expect("a literal token")
    }

    #[test]
    fn of_many_conditions_those_that_can_be_read_are_kept() {
        let check = |named: &[(&str, &str)], expected: &str| {
            let conditions = named.iter().map(|(name, reason)| v1::NodeCondition {
                name: (*name).to_owned(),
                reason: (*reason).to_owned(),
            });
            let said = v1::Heartbeat {
                boot: 1,
                conditions: conditions.collect(),
                ..v1::Heartbeat::default()
            };
            let heard = heartbeat(token("n"), &said.encode_to_vec(), None);
            let Some(Command::Heartbeat { conditions, .. }) = heard else {
                panic!("{heard:?}");
            };
            let words = conditions.iter().map(|(name, reason)| {
                let reason = reason.as_ref().map(|reason| format!("={reason}"));
                format!("{name}{}", reason.unwrap_or_default())
            });
            assert_eq!(words.collect::<Vec<_>>().join(" "), expected);
        };
        check(&[], "");
        check(&[("B", ""), ("A", "full")], "A=full B");
        check(&[("A", "x"), ("A", "y")], "A=y");
        check(&[("a b", "x"), ("", "x"), ("C", "two words")], "C");
        check(&[("Ready", ""), ("D", "")], "D");
        let many: Vec<String> = (0..12).map(|no| format!("c{no:02}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "")).collect();
        check(&many, "c00 c01 c02 c03 c04 c05 c06 c07");
    }

    #[test]
    fn a_report_with_a_header_of_the_bus_says_nothing() {
        let register = v1::Register {
            capacity: Some(v1::NodeCapacity {
                cpu_milli: 1000,
                memory_bytes: 1 << 30,
                ..v1::NodeCapacity::default()
            }),
            change: 0,
        };
        let said = v1::NodeReport {
            boot: 1,
            report: Some(node_report::Report::Register(register)),
        };
        let message = |reserved_header| InboxMessage {
            seq: 1,
            sender: token("n1"),
            reply_to: None,
            trace: None,
            by: None,
            reserved_header,
            payload: said.encode_to_vec().into(),
        };
        let commands = heard(&message(false));
        assert!(
            matches!(commands[..], [Command::Register { .. }]),
            "{commands:?}"
        );
        let node = token("n1");
        assert_eq!(heard(&message(true)), [Command::Unreadable { node }]);
    }

    #[test]
    fn of_many_runs_those_that_can_be_read_are() {
        let exit = |code| v1::RunExit {
            code,
            ..v1::RunExit::default()
        };
        let run = |allocation_id: &str, code| v1::Run {
            allocation_id: allocation_id.to_owned(),
            phase: v1::RunPhase::FailedRun.into(),
            at_ms: 5,
            revision: 2,
            exit: Some(exit(code)),
        };
        let said = v1::NodeReport {
            boot: 3,
            report: Some(node_report::Report::Runs(v1::Runs {
                runs: vec![
                    run("none", 1),
                    run("00000000-0000-0001-0000-000000000007", 3),
                    run("00000000-0000-0001-0000-000000000008", 256),
                    run("00000000-0000-0002-0000-000000000008", 1),
                ],
            })),
        };
        let message = InboxMessage {
            seq: 1,
            sender: token("n1"),
            reply_to: None,
            trace: None,
            by: None,
            reserved_header: false,
            payload: said.encode_to_vec().into(),
        };
        let read = |no, code: Option<u8>| Command::Report {
            node: token("n1"),
            boot: 3,
            report: Report {
                allocation: AllocationNo(no),
                state: RunState::Failed,
                at: Millis(5),
                revision: 2,
                exit: code.map(|code| RunExit {
                    code,
                    ..RunExit::default()
                }),
            },
        };
        // No command ends with 256; that it is over is said all the same.
        assert_eq!(heard(&message), [read(7, Some(3)), read(8, None)]);
    }

    fn heard(message: &InboxMessage) -> Vec<Command> {
        let mut commands = Vec::new();
        report(message, CellNo(1), &mut commands);
        commands
    }

    fn spec() -> AllocationSpec {
        AllocationSpec::plain(token("j"), 1000, 1 << 30)
    }

    fn assignment(revision: u64) -> Assignment {
        Assignment {
            revision,
            allocation: AllocationNo(7),
            tenant: token("t"),
            spec: EncodedSpecs::default().of(&spec()),
            gpus: GpuShares::from_iter([GpuShare {
                device: 3,
                milli: 500,
            }]),
            placed: Millis(5),
            stop: revision == 2,
            stop_by: (revision == 2).then_some(Millis(9)),
            zones: 6,
            origin: (revision == 1).then(|| {
                Box::new(Origin {
                    operation_id: Some(token("op")),
                    trace: Some(TraceContext {
                        trace_id: [1; 16],
                        span_id: [2; 8],
                        flags: 1,
                    }),
                })
            }),
        }
    }

    #[test]
    fn a_change_is_told_as_the_contract_has_it() {
        let told = |revision: u64, more| v1::Assignment {
            revision,
            allocation_id: "00000000-0000-0001-0000-000000000007".into(),
            tenant: "t".into(),
            spec: Some(spec().to_prost()),
            gpus: vec![v1::GpuShare {
                device: 3,
                milli: 500,
            }],
            placed_ms: 5,
            stop: revision == 2,
            stop_by_ms: if revision == 2 { 9 } else { 0 },
            zones: 6,
            boot: 4,
            more,
            operation_id: if revision == 1 {
                "op".into()
            } else {
                String::new()
            },
            traceparent: match revision {
                1 => format!("00-{}-{}-01", "01".repeat(16), "02".repeat(8)),
                _ => String::new(),
            },
            ..v1::Assignment::default()
        };
        let changes = [assignment(1), assignment(2)];
        let expected = told(1, vec![told(2, Vec::new())]).encode_to_vec();
        assert_eq!(push(&changes, 4, CellNo(1)), Some(expected));
        assert_eq!(push(&[], 4, CellNo(1)), None);
        let expected = v1::AssignmentList {
            revision: 2,
            assignments: vec![told(1, Vec::new()), told(2, Vec::new())],
            boot: 4,
        };
        let found = assignments(2, &changes, 4, CellNo(1));
        assert_eq!(found, expected.encode_to_vec());
    }

    #[test]
    fn nobody_joins_under_a_name_that_is_a_pattern() {
        let check = |node: &str, expected: Option<(Rule, &str)>| {
            let asked = v1::JoinRequest {
                node: node.to_owned(),
                token: b"one".to_vec(),
                public_key: nkeys::KeyPair::new_user().public_key(),
            };
            let refused = join(&asked.encode_to_vec(), 1).err();
            let refused = refused.as_ref().map(|r| (r.rule, &*r.subject));
            assert_eq!(refused, expected, "{node}");
        };
        check("n1", None);
        for node in ["", "*", ">", "a.b", "a.>", "a b", "{{name()}}"] {
            check(node, Some((Rule::NameInvalid, "node")));
        }
    }
}
