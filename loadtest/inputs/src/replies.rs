//! Messages from the cell to a client.

use client::Allocations;
use prost::Message;
use schemas::v1;
use vocab::Token;

/// Decodes a reply; the first byte selects its kind.
pub fn reply(input: &[u8]) -> bool {
    let Some((kind, bytes)) = input.split_first() else {
        return false;
    };
    match kind % 3 {
        0 => events(bytes),
        1 => v1::Outcomes::decode(bytes).is_ok_and(|outcomes| !outcomes.outcomes.is_empty()),
        _ => {
            let reply = v1::ExplainReply::decode(bytes);
            let tenant = Token::new("t").expect("a token");
            reply.is_ok_and(|reply| cli::inputs::explanation(&reply, &tenant))
        }
    }
}

/// Applies a part of a tenant's feed. True if any of its events has a kind and names an allocation.
fn events(bytes: &[u8]) -> bool {
    let Ok(told) = v1::TenantEvents::decode(bytes) else {
        return false;
    };
    let mut allocations = Allocations::default();
    told.events.iter().for_each(|event| allocations.take(event));
    let named = told
        .events
        .iter()
        .filter(|event| event.kind.is_some() && !event.allocation_id.is_empty());
    assert_eq!(allocations.is_empty(), named.count() == 0);
    assert_eq!(allocations.iter().count(), allocations.len());
    !allocations.is_empty()
}
