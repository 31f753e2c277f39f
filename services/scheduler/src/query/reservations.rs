//! Advance reservations of nodes.

use crate::{
    project::{ReservationRow, ReservationState},
    store,
};
use chassis::query::{Asked, Trouble, Verb};
use schemas::v1::{
    Requirement, ReservationRequest, ReservationView, ReservationsQuery, ReservationsReply,
};
use sqlx::PgPool;
use vocab::{Lsn, Token};

/// The verb `reservations`.
pub struct ReservationsQueries {
    pub pool: PgPool,
}

impl Verb for ReservationsQueries {
    const NAME: &'static str = "reservations";
    type Query = ReservationsQuery;
    type Reply = ReservationsReply;

    fn position(query: &ReservationsQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<ReservationsQuery>) -> Result<ReservationsReply, Trouble> {
        let found = store::reservations(&self.pool, asked.whose()).await?;
        Ok(ReservationsReply {
            reservations: found.iter().map(view).collect(),
            refusal: None,
            lsn: asked.applied.0,
        })
    }
}

fn view(one: &ReservationRow) -> ReservationView {
    let names = |tokens: &[Token]| tokens.iter().map(Token::to_string).collect();
    let terms = &one.terms;
    let requirement = |it: &vocab::Requirement| Requirement {
        label: it.label.to_string(),
        // The numbers are the contract's.
        operator: it.operator as i32,
        values: names(&it.values),
    };
    ReservationView {
        reservation: one.reservation.to_string(),
        wanted: Some(ReservationRequest {
            queue: terms.queue.to_string(),
            from_ms: terms.from.0,
            until_ms: terms.until.0,
            nodes: terms.nodes.into(),
            selector: terms.selector.iter().map(requirement).collect(),
        }),
        state: one.state.name().to_owned(),
        nodes: match &one.state {
            ReservationState::Granted { nodes } => names(nodes),
            ReservationState::Asked
            | ReservationState::Refused
            | ReservationState::Withdrawn
            | ReservationState::Over => Vec::new(),
        },
        version: one.version,
        changed_at_ms: one.changed_at.0,
    }
}
