//! Names in the tables and what they stand for.

use chassis::warm::OutOfRange;
use vocab::{
    EndCause, Filter, GpuShare, PlacementPolicy, PreemptionCause, QosClass, QueueOrder,
    ReservationState, ResourceKind, Rule, Token, WaitingReason,
};

fn known<T: Copy>(
    what: &'static str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
    text: &str,
) -> Result<T, OutOfRange> {
    let found = all.iter().copied().find(|one| name(*one) == text);
    found.ok_or_else(|| OutOfRange::new(what, text))
}

pub fn waiting_reason(text: &str) -> Result<WaitingReason, OutOfRange> {
    known(
        "waiting_reason",
        &WaitingReason::ALL,
        WaitingReason::name,
        text,
    )
}

pub fn end_cause(text: &str) -> Result<EndCause, OutOfRange> {
    known("end_cause", &EndCause::ALL, EndCause::name, text)
}

pub fn preemption_cause(text: &str) -> Result<PreemptionCause, OutOfRange> {
    known("cause", &PreemptionCause::ALL, PreemptionCause::name, text)
}

pub fn filter(text: &str) -> Result<Filter, OutOfRange> {
    known("filter", &Filter::ALL, Filter::name, text)
}

pub fn resource(text: &str) -> Result<ResourceKind, OutOfRange> {
    known("resource", &ResourceKind::ALL, ResourceKind::name, text)
}

pub fn placement(text: &str) -> Result<PlacementPolicy, OutOfRange> {
    known(
        "placement",
        &PlacementPolicy::ALL,
        PlacementPolicy::name,
        text,
    )
}

pub fn queue_order(text: &str) -> Result<QueueOrder, OutOfRange> {
    known("queue_order", &QueueOrder::ALL, QueueOrder::name, text)
}

pub fn qos(text: &str) -> Result<QosClass, OutOfRange> {
    known("qos", &QosClass::ALL, QosClass::name, text)
}

pub fn rule(text: &str) -> Result<Rule, OutOfRange> {
    known("rule", &Rule::ALL, Rule::name, text)
}

pub fn reservation_state(text: &str) -> Result<ReservationState, OutOfRange> {
    known(
        "state",
        &ReservationState::ALL,
        ReservationState::name,
        text,
    )
}

pub fn token(what: &'static str, text: &str) -> Result<Token, OutOfRange> {
    Token::new(text).map_err(|_| OutOfRange::new(what, text))
}

pub fn shares(devices: &[i32], millis: &[i32]) -> Result<Vec<GpuShare>, OutOfRange> {
    let small = |what, value: i32| u16::try_from(value).map_err(|_| OutOfRange::new(what, value));
    let pairs = devices.iter().zip(millis);
    let shares = pairs.map(|(device, milli)| {
        Ok(GpuShare {
            device: small("gpu_devices", *device)?,
            milli: small("gpu_shares", *milli)?,
        })
    });
    shares.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_two_lists() {
        let share = |device, milli| GpuShare { device, milli };
        assert_eq!(
            shares(&[0, 15], &[1000, 1]),
            Ok(vec![share(0, 1000), share(15, 1)])
        );
        assert!(shares(&[-1], &[1]).is_err());
    }

    #[test]
    fn every_name_is_known() {
        for one in Filter::ALL {
            assert_eq!(filter(one.name()), Ok(one));
        }
        for one in WaitingReason::ALL {
            assert_eq!(waiting_reason(one.name()), Ok(one));
        }
        assert!(end_cause("bored").is_err());
    }
}
