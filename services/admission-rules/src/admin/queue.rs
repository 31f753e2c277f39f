//! Queues: a forest, where every queue shares with its siblings.

use super::placement;
use crate::{
    Admission,
    check::{
        amount, by_name, given_name, names, optional, small_quantity, written_amount, written_name,
    },
};
use vocab::fact::QueueSet;
use vocab::{
    Limits, PlacementPolicy, QueueOrder, QueueSettings, Refusal, ResourceKind, Rule, Token,
};
use wire::Open;

wire::pair! {
    /// No more than so much of a resource.
    pub LimitRequest { resource, amount }
}

/// A queue's settings as they were written.
#[derive(Debug, Clone, Default, PartialEq, Eq, wire::Wire)]
#[wire(name = "SetQueue")]
pub struct QueueRequest {
    #[wire(1)]
    pub queue: String,
    #[wire(2)]
    pub parent: String,
    #[wire(3, optional)]
    pub weight_milli: Option<i64>,
    #[wire(4, with = wire::Pairs<LimitRequest>)]
    pub limits: Vec<(String, i64)>,
    #[wire(5)]
    pub tenants: Vec<String>,
    #[wire(6)]
    pub order: Open<QueueOrder>,
    #[wire(7, optional)]
    pub placement: Option<Open<PlacementPolicy>>,
    /// The version that it is a change of; none: whichever it is.
    #[wire(8, optional)]
    pub expected_version: Option<u64>,
    #[wire(9)]
    pub closed: bool,
}

fn resource_kind(text: &str, field: &str) -> Result<ResourceKind, Refusal> {
    ResourceKind::parse(text).ok_or_else(|| Refusal::new(Rule::ResourceUnknown, field))
}

fn tree_invalid() -> Refusal {
    Refusal::new(Rule::QueueTreeInvalid, "parent")
}

impl QueueRequest {
    pub(super) fn read(&self) -> Result<QueueSet, Refusal> {
        let queue = given_name(&self.queue, "queue")?;
        let parent = optional(&self.parent, "parent")?;
        let defaults = QueueSettings::default();
        let weight_milli = match self.weight_milli {
            None => defaults.weight_milli,
            Some(weight) => {
                small_quantity(weight, QueueSettings::WEIGHT_MILLI_MAX, "weight_milli")?
            }
        };
        let limit = |(resource, most): &(String, i64)| {
            let resource = resource_kind(resource, "limits")?;
            Ok((resource, amount(*most, Limits::MAX, "limits")?))
        };
        let limits: Result<Vec<(ResourceKind, u64)>, Refusal> =
            self.limits.iter().map(limit).collect();
        let limits = by_name(limits?, "limits")?;
        let tenants = names(&self.tenants, QueueSettings::TENANTS_MAX, "tenants")?;
        let order = self.order.known();
        let order = order.ok_or_else(|| Refusal::new(Rule::SettingInvalid, "order"))?;
        let settings = QueueSettings {
            parent,
            weight_milli,
            limits,
            tenants,
            order,
            placement: self.placement.map(placement).transpose()?,
        };
        Ok(QueueSet {
            queue,
            settings,
            closed: self.closed,
        })
    }
}

impl Admission {
    pub(super) fn check_queue_settings(&self, set: &QueueSet) -> Result<(), Refusal> {
        let QueueSettings {
            parent, tenants, ..
        } = &set.settings;
        if let Some(parent) = parent {
            self.check_tree(&set.queue, parent)?;
        }
        match tenants.iter().all(|one| self.settings.knows_tenant(one)) {
            true => Ok(()),
            false => Err(Refusal::new(Rule::TenantUnknown, "tenants")),
        }
    }

    /// The parent was set, is not below the queue, and leaves the queue and all below it within the depth.
    fn check_tree(&self, queue: &Token, parent: &Token) -> Result<(), Refusal> {
        if !self.settings.queues.contains_key(parent) {
            return Err(tree_invalid());
        }
        let mut above = 0;
        for one in self.upwards(parent) {
            if one == queue {
                return Err(tree_invalid());
            }
            above += 1;
        }
        let below = self.settings.queues.keys().filter_map(|other| {
            // Its place above `other`, if it is there.
            self.upwards(other).position(|one| one == queue)
        });
        let (limit, actual) = (QueueSettings::DEPTH_MAX, above + below.max().unwrap_or(0));
        if actual > limit {
            let (rule, limit, actual) = (Rule::QueueTreeInvalid, limit as u64, actual as u64);
            return Err(Refusal::over(rule, "parent", limit, actual));
        }
        Ok(())
    }

    /// The queue and those above it. It ends, as no queue is above itself.
    fn upwards<'a>(&'a self, queue: &'a Token) -> impl Iterator<Item = &'a Token> {
        let parent = |one: &&Token| self.settings.queues.get(*one)?.parent.as_ref();
        std::iter::successors(Some(queue), parent)
    }
}

impl From<&QueueSet> for QueueRequest {
    fn from(set: &QueueSet) -> Self {
        let settings = &set.settings;
        let limit = |(kind, amount): &(ResourceKind, u64)| {
            (kind.name().to_owned(), written_amount(*amount))
        };
        Self {
            queue: set.queue.to_string(),
            parent: written_name(settings.parent.as_ref()),
            weight_milli: Some(settings.weight_milli.into()),
            limits: settings.limits.iter().map(limit).collect(),
            tenants: settings.tenants.iter().map(Token::to_string).collect(),
            order: Open::Known(settings.order),
            placement: settings.placement.map(Open::Known),
            expected_version: None,
            closed: set.closed,
        }
    }
}
