//! What is asked about named resources, and what is answered.

use super::operation::{operation_to_proto, refusal_from_proto, refusal_to_proto};
use super::{WireError, texts, token, tokens};
use schemas::v1;
use v1::{event::Kind, resource_asked::Ask, resource_decided::Answer};
use vocab::{Operation, ReservationNo, ResourceAnswer, ResourceAsk, Slot, Token};

pub(super) fn asked_to_proto(
    operation: &Operation,
    (slot, by_requests): (Slot, bool),
    ask: &ResourceAsk,
) -> Kind {
    let holder = |reservation: &ReservationNo, holder: &Token, epoch: &u64| v1::HolderAsk {
        reservation: reservation.0,
        holder: holder.to_string(),
        epoch: *epoch,
    };
    let ask = match ask {
        ResourceAsk::Create { resource } => Ask::Create(resource.to_string()),
        ResourceAsk::Reserve {
            resources,
            holder,
            ttl_slots,
        } => Ask::Reserve(v1::ReserveAsk {
            resources: texts(resources),
            holder: holder.to_string(),
            ttl_slots: *ttl_slots,
        }),
        ResourceAsk::Confirm {
            reservation,
            holder: name,
            epoch,
        } => Ask::Confirm(holder(reservation, name, epoch)),
        ResourceAsk::Release {
            reservation,
            holder: name,
            epoch,
        } => Ask::Release(holder(reservation, name, epoch)),
        ResourceAsk::Revoke { reservation } => Ask::Revoke(reservation.0),
        ResourceAsk::Reclaim { reservation } => Ask::Reclaim(reservation.0),
    };
    Kind::ResourceAsked(v1::ResourceAsked {
        operation: operation_to_proto(operation),
        slot,
        by_requests,
        ask: Some(ask),
    })
}

pub(super) fn ask_from_proto(ask: Option<Ask>) -> Result<ResourceAsk, WireError> {
    let holder = |given: &v1::HolderAsk| token(&given.holder, "resource.holder");
    Ok(match ask.ok_or(WireError("resource.ask"))? {
        Ask::Create(resource) => ResourceAsk::Create {
            resource: token(&resource, "resource.name")?,
        },
        Ask::Reserve(given) => ResourceAsk::Reserve {
            resources: tokens(&given.resources, "resource.name")?,
            holder: token(&given.holder, "resource.holder")?,
            ttl_slots: given.ttl_slots,
        },
        Ask::Confirm(given) => ResourceAsk::Confirm {
            reservation: ReservationNo(given.reservation),
            holder: holder(&given)?,
            epoch: given.epoch,
        },
        Ask::Release(given) => ResourceAsk::Release {
            reservation: ReservationNo(given.reservation),
            holder: holder(&given)?,
            epoch: given.epoch,
        },
        Ask::Revoke(reservation) => ResourceAsk::Revoke {
            reservation: ReservationNo(reservation),
        },
        Ask::Reclaim(reservation) => ResourceAsk::Reclaim {
            reservation: ReservationNo(reservation),
        },
    })
}

pub(super) fn answer_to_proto(answer: &ResourceAnswer) -> Answer {
    match answer {
        ResourceAnswer::Created => Answer::Created(v1::resource_decided::Created {}),
        ResourceAnswer::Reserved { deadline } => Answer::Reserved(*deadline),
        ResourceAnswer::Confirmed => Answer::Confirmed(v1::resource_decided::Confirmed {}),
        ResourceAnswer::Released {
            epoch,
            retire_after,
        } => Answer::Released(v1::ReservationEnd {
            epoch: *epoch,
            retire_after: *retire_after,
        }),
        ResourceAnswer::Revoked { epoch } => Answer::Revoked(*epoch),
        ResourceAnswer::Reclaimed { retire_after } => Answer::Reclaimed(*retire_after),
        ResourceAnswer::Refused(refusal) => Answer::Refused(refusal_to_proto(refusal)),
    }
}

pub(super) fn answer_from_proto(answer: Option<Answer>) -> Result<ResourceAnswer, WireError> {
    Ok(match answer.ok_or(WireError("resource.answer"))? {
        Answer::Created(_) => ResourceAnswer::Created,
        Answer::Reserved(deadline) => ResourceAnswer::Reserved { deadline },
        Answer::Confirmed(_) => ResourceAnswer::Confirmed,
        Answer::Released(end) => ResourceAnswer::Released {
            epoch: end.epoch,
            retire_after: end.retire_after,
        },
        Answer::Revoked(epoch) => ResourceAnswer::Revoked { epoch },
        Answer::Reclaimed(retire_after) => ResourceAnswer::Reclaimed { retire_after },
        Answer::Refused(refusal) => ResourceAnswer::Refused(refusal_from_proto(Some(refusal))?),
    })
}
