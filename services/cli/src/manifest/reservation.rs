//! `kind: Reservation`

use super::{
    fields::{Fields, Wrong, needed},
    kind::Manifest,
    units::{Moment, Whole},
};
use crate::submit::{requirement, requirement_text};
use schemas::v1;
use serde::{Deserialize, Serialize};
use vocab::Token;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservation {
    reservation: Token,
    queue: Token,
    from: Moment,
    until: Moment,
    nodes: Whole,
    /// As in `apportion reserve --node-label`.
    node_labels: Option<Vec<String>>,
}

impl Manifest for Reservation {
    type Message = v1::SetReservation;
    const NAMED_BY: &'static [&'static str] = &["reservation"];

    fn key(fields: &Fields, _: i64) -> Result<String, Wrong> {
        Ok(needed::<Token>(fields, "reservation")?.to_string())
    }

    /// Of what was taken back nothing else is there.
    fn key_of(set: &v1::SetReservation, _: i64) -> Result<String, Wrong> {
        Ok(set.reservation.clone())
    }

    fn of(set: &v1::SetReservation) -> Result<Self, Wrong> {
        let taken_back = || Wrong::new("", "it was taken back");
        let wanted = set.wanted.as_ref().ok_or_else(taken_back)?;
        let labels = wanted.selector.iter().map(requirement_text);
        Ok(Self {
            reservation: Token::new(&set.reservation)?,
            queue: Token::new(&wanted.queue)?,
            from: Moment(wanted.from_ms),
            until: Moment(wanted.until_ms),
            nodes: Whole(wanted.nodes),
            node_labels: Some(labels.collect()),
        })
    }

    fn message(self) -> Result<v1::SetReservation, Wrong> {
        let labels = self.node_labels.unwrap_or_default();
        let selector = labels.iter().map(|text| requirement(text));
        let selector = selector.collect::<Result<Vec<_>, _>>();
        let mut selector = selector.map_err(Wrong::at("node_labels"))?;
        in_order(&mut selector);
        let wanted = v1::ReservationRequest {
            queue: self.queue.into(),
            from_ms: self.from.0,
            until_ms: self.until.0,
            nodes: self.nodes.0,
            selector,
        };
        Ok(v1::SetReservation {
            reservation: self.reservation.into(),
            wanted: Some(wanted),
            expected_version: None,
        })
    }

    fn is_absent(set: &v1::SetReservation) -> bool {
        set.wanted.is_none()
    }

    fn is_over(set: &v1::SetReservation, now_ms: i64) -> bool {
        let wanted = set.wanted.as_ref();
        wanted.is_some_and(|wanted| wanted.until_ms <= now_ms)
    }

    fn taken_back(set: &v1::SetReservation) -> Result<v1::SetReservation, &'static str> {
        Ok(v1::SetReservation {
            reservation: set.reservation.clone(),
            ..v1::SetReservation::default()
        })
    }
}

/// As the cell orders them, so that what is read back is the same.
pub fn in_order(selector: &mut Vec<v1::Requirement>) {
    for one in selector.iter_mut() {
        one.values.sort_unstable();
        one.values.dedup();
    }
    selector
        .sort_by(|a, b| (&a.label, a.operator, &a.values).cmp(&(&b.label, b.operator, &b.values)));
    selector.dedup();
}
