//! The worked example, really encoded, and read back byte by byte with the names that the contract has for them.

use crate::bus_doc::contract::Contract;
use prost::Message;
use protox::prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use schemas::v1;
use std::fmt::Write;
use vocab::{
    Refusal, Rule,
    subjects::{HEADER_REPLY, Subjects},
};

const INBOX: &str = "_INBOX.7f3a.1";
const TOKEN: &str = "3c1e-1";
const OPERATION_ID: &str = "train-7-first";
/// Cell 1, the allocation with number 12.
const ALLOCATION_ID: &str = "00000000-0000-0001-0000-00000000000c";
const BYTES_IN_A_ROW: usize = 16;

/// A cell as it could be, because a placeholder has no length.
fn cell() -> Subjects {
    Subjects::new("local")
}

fn request() -> v1::Request {
    let submit = v1::Submit {
        job_set: "nightly".into(),
        name: "train-7".into(),
        cpu_milli: 4_000,
        memory_bytes: 8 << 30,
        gpu_count: 1,
        ..v1::Submit::default()
    };
    v1::Request {
        operation_id: OPERATION_ID.into(),
        verb: Some(v1::request::Verb::Submit(submit)),
    }
}

fn answer(lsn: u64, result: v1::outcome::Result) -> v1::Outcomes {
    let outcome = v1::Outcome {
        operation_id: OPERATION_ID.into(),
        lsn,
        result: Some(result),
    };
    v1::Outcomes {
        outcomes: vec![outcome],
    }
}

fn placed() -> v1::Outcomes {
    let placed = v1::Placed {
        node: "node-1".into(),
        gpus: vec![v1::GpuShare {
            device: 3,
            milli: 1000,
        }],
    };
    let submitted = v1::Submitted {
        allocation_id: ALLOCATION_ID.into(),
        state: Some(v1::submitted::State::Placed(placed)),
    };
    answer(20, v1::outcome::Result::Submitted(submitted))
}

fn refused() -> v1::Outcomes {
    let refusal = v1::Refusal {
        rule: v1::Rule::QuotaExceeded.into(),
        subject: "gpu".into(),
        limit: 8_000,
        actual: 9_000,
    };
    let refused = v1::Refused {
        refusal: Some(refusal),
        retryable: true,
        explanation: Refusal::over(Rule::QuotaExceeded, "gpu", 8_000, 9_000).explanation(),
    };
    answer(19, v1::outcome::Result::Refused(refused))
}

pub fn markers(contract: &Contract) -> Vec<(String, String)> {
    let payload = request().encode_to_vec();
    assert_eq!(v1::Request::decode(&payload[..]), Ok(request()));
    let decoded = |name: &str, bytes: &[u8]| table(&contract.message(name), bytes);
    let (placed, refused) = (placed().encode_to_vec(), refused().encode_to_vec());
    [
        ("example_publish", publish(payload.len())),
        ("example_subscribe", subscribe()),
        ("example_ack", acknowledged()),
        ("example_hex", hex(&payload)),
        ("example_table", decoded("Request", &payload)),
        ("example_operation_id", format!("`{OPERATION_ID}`")),
        ("example_placed_hex", hex(&placed)),
        ("example_placed_table", decoded("Outcomes", &placed)),
        ("example_refused_hex", hex(&refused)),
        ("example_refused_table", decoded("Outcomes", &refused)),
    ]
    .map(|(marker, text)| (marker.to_owned(), text))
    .into()
}

/// The lines of the NATS protocol, whose lengths count the two bytes at each line's end.
fn publish(payload: usize) -> String {
    let headers = format!("NATS/1.0\r\n{HEADER_REPLY}: {TOKEN}\r\n\r\n");
    let (subject, length) = (cell().ingress("team-a"), headers.len());
    format!(
        "HPUB {subject} {INBOX} {length} {}\n{}\n<the {payload} bytes below>",
        length + payload,
        headers
            .replace("\r\n", "\n")
            .trim_end_matches('\n')
            .to_owned()
            + "\n"
    )
}

fn subscribe() -> String {
    format!(
        "SUB {} 1\nSUB _INBOX.7f3a.* 2",
        cell().reply("team-a", TOKEN)
    )
}

fn acknowledged() -> String {
    let ack = format!("{{\"stream\":\"{}\",\"seq\":11}}", cell().ingress_stream());
    format!("MSG {INBOX} 2 {}\n{ack}", ack.len())
}

fn hex(bytes: &[u8]) -> String {
    let rows = bytes.chunks(BYTES_IN_A_ROW).map(hex_row);
    rows.collect::<Vec<_>>().join("\n")
}

fn hex_row(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    digits.collect::<Vec<_>>().join(" ")
}

fn table(message: &MessageDescriptor, bytes: &[u8]) -> String {
    let mut table = "| at | bytes | field | value |\n|---|---|---|---|\n".to_owned();
    Reader { bytes, at: 0 }.read(message, bytes.len(), "", &mut table);
    table.trim_end().to_owned()
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Reader<'_> {
    fn varint(&mut self) -> u64 {
        let mut rest = &self.bytes[self.at..];
        let value = prost::encoding::decode_varint(&mut rest).unwrap();
        self.at = self.bytes.len() - rest.len();
        value
    }

    /// A row for each field up to `end`; a message's row has its tag and length only, and its fields have their own.
    fn read(&mut self, message: &MessageDescriptor, end: usize, above: &str, table: &mut String) {
        while self.at < end {
            let start = self.at;
            let tag = self.varint();
            let number = u32::try_from(tag >> 3).unwrap();
            let field = message.get_field(number).unwrap();
            let name = format!("{above}{}", field.name());
            let value = self.varint();
            let inner = match field.kind() {
                Kind::Message(inner) => Some(inner),
                _ => None,
            };
            let text = self.value(&field, tag & 7, value);
            let bytes = hex_row(&self.bytes[start..self.at]);
            writeln!(
                table,
                "| {start} | `{bytes}` | {number} `{name}` | {text} |"
            )
            .unwrap();
            if let Some(inner) = inner {
                let length = usize::try_from(value).unwrap();
                self.read(&inner, self.at + length, &format!("{name}."), table);
            }
        }
        assert_eq!(self.at, end, "a message is as long as it says");
    }

    fn value(&mut self, field: &FieldDescriptor, wire_type: u64, value: u64) -> String {
        match (field.kind(), wire_type) {
            (Kind::Message(of), 2) => format!("{}, {value} bytes", of.name()),
            (Kind::String, 2) => {
                let end = self.at + usize::try_from(value).unwrap();
                let text = str::from_utf8(&self.bytes[self.at..end]).unwrap();
                self.at = end;
                format!("`{text}`, {value} bytes")
            }
            (Kind::Enum(of), 0) => {
                let number = i32::try_from(value).unwrap();
                format!("{value}, `{}`", of.get_value(number).unwrap().name())
            }
            (Kind::Bool, 0) => (value != 0).to_string(),
            (Kind::Int64 | Kind::Uint64 | Kind::Uint32, 0) => value.to_string(),
            (kind, _) => panic!("the example shows no {kind:?}"),
        }
    }
}
