//! Messages in the inboxes, decoded and decided.

use crate::cell::{CELL, Cell, asker, inbox_message, node as named_node, refused};
use admission_rules::Command;
use prost::Message;
use schemas::v1;
use vocab::{Event, Token};

/// Maximum number of commands of a message that are decided; an array has up to 10,000.
const COMMANDS_MAX: usize = 32;

/// Decodes the commands of a message in admission's inbox.
pub fn asked(sender: Token, payload: &[u8]) -> Vec<Command> {
    let message = inbox_message(sender, payload);
    let mut commands = Vec::new();
    admission::commands(&message, &mut commands);
    assert!(
        !commands.is_empty(),
        "a message without a command is never answered"
    );
    is_as_prost_writes_it(&commands, payload);
    commands.truncate(COMMANDS_MAX);
    commands
}

/// Asserts that an accepted request has only one encoding, the one that prost writes.
fn is_as_prost_writes_it(commands: &[Command], payload: &[u8]) {
    if commands.iter().any(|command| command.verb.is_ok()) {
        let request = v1::Request::decode(payload).expect("prost can decode it");
        if request.verb.is_some() && commands.iter().all(|command| command.verb.is_ok()) {
            assert_eq!(request.encode_to_vec(), payload, "{request:?}");
        }
    }
}

/// Decodes the commands of a message in node-heartbeat's inbox.
pub fn reported(node: Token, payload: &[u8]) -> Vec<node_heartbeat_rules::Command> {
    let mut commands = Vec::new();
    node_heartbeat::report(&inbox_message(node, payload), CELL, &mut commands);
    commands.truncate(COMMANDS_MAX);
    commands
}

/// Decides a request; the first byte selects its sender. A request with an operation ID that is sent twice is decided once.
pub fn request(input: &[u8]) -> bool {
    let Some((sender, payload)) = input.split_first() else {
        return false;
    };
    let commands = asked(asker(*sender), payload);
    let accepted = commands.iter().any(|command| command.verb.is_ok());
    let mut cell = Cell::begin();
    let decided = cell.ask(commands.clone());
    cell.settle();
    if let ([command], [event]) = (&*commands, &*decided)
        && command.operation.operation_id.is_some()
        && !matches!(
            event,
            Event::OperationRefused(_) | Event::OperationRepeated(_)
        )
    {
        let again = cell.ask(commands);
        let repeated = matches!(&*again, [Event::OperationRepeated(_)]);
        assert!(repeated, "{event:?} is decided again: {again:?}");
    }
    cell.check();
    accepted
}

/// Decides a message of an agent; the first byte selects the kind of message and the node.
pub fn node(input: &[u8]) -> bool {
    let Some((tag, payload)) = input.split_first() else {
        return false;
    };
    let who = named_node(tag >> 2);
    let commands = match tag & 3 {
        0 | 1 => reported(who, payload),
        2 => node_heartbeat::heartbeat(who, payload, Some(1))
            .into_iter()
            .collect(),
        _ => match node_heartbeat::join(payload, 1) {
            Ok(command) => vec![command],
            Err(refusal) => {
                refused(&refusal);
                Vec::new()
            }
        },
    };
    let unreadable = |command: &node_heartbeat_rules::Command| {
        use node_heartbeat_rules::Command;
        matches!(
            command,
            Command::Unreadable { .. } | Command::RegisterUnreadable { .. }
        )
    };
    let accepted = !commands.is_empty() && !commands.iter().any(unreadable);
    let mut cell = Cell::begin();
    cell.report(commands);
    cell.settle();
    cell.check();
    accepted
}
