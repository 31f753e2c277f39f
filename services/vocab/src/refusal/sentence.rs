//! What a refusal says to people: which rule, the value that was sent and the limit in units that are read, and what would let it
//! pass. The contract's reference has the same sentences.

use super::{Refusal, Rule};
use crate::{BudgetOf, Millis, ModelChoice, Month, QuotaResource, ResourceKind, human};

/// The subject of a message that is refused for its encoding alone.
pub const NOT_CANONICAL: &str = "encoding";

/// What people are told of a broken rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Teaching {
    /// What is wrong, without numbers.
    pub broken: &'static str,
    /// What is wrong, with `{limit}` and `{actual}` for the numbers; empty where the rule has none.
    pub values: &'static str,
    /// What would let it pass.
    pub passes: &'static str,
}

const fn says(broken: &'static str, passes: &'static str) -> Teaching {
    measures(broken, "", passes)
}

const fn measures(broken: &'static str, values: &'static str, passes: &'static str) -> Teaching {
    Teaching {
        broken,
        values,
        passes,
    }
}

/// Of [`Rule::UnknownField`] with [`NOT_CANONICAL`] as its subject.
pub const CANONICAL: Teaching = says(
    "the message has no unknown field, but is not canonical",
    "write each field once, leave out what has its default value, pack repeated numbers, and write each number in the fewest \
     bytes, as the ordinary protobuf libraries do",
);

/// Of [`Rule::NameInvalid`] for a variable of the environment.
const VARIABLE: Teaching = says(
    "it has a variable that cannot be one, or one that the agent sets itself",
    "use 1 to 128 of A-Z a-z 0-9 _ for a variable's name, no digit first, and no APPORTION_ first",
);

/// Of [`Rule::PriorityOutOfRange`] in a setting.
const SET_PRIORITY: Teaching = says(
    "it is outside of the priorities of a cell",
    "set one within -1000000 to 1000000",
);

impl Rule {
    pub fn teaching(self) -> Teaching {
        match self {
            Self::MalformedMessage => says(
                "the bytes are not a message of the contract",
                "encode the message that this subject takes",
            ),
            Self::UnknownVerb => says(
                "it asks for nothing that this version knows on this subject",
                "name a verb of the contract, on the subject of whoever may use it",
            ),
            Self::UnknownField => says(
                "the message has a field that this version does not know",
                "leave it out, or wait until the cell has the version of the client",
            ),
            Self::PayloadTooLarge => measures(
                "it is too large",
                "it has {actual}, and {limit} may be sent",
                "send less in one message, or ask for less at once",
            ),
            Self::OperationIdInvalid => says(
                "the operation id is no name",
                "use 1 to 64 of A-Z a-z 0-9 _ -",
            ),
            Self::OperationConflict => says(
                "the operation id was used for another request",
                "use a new operation id for a new request",
            ),
            Self::OperationTableFull => measures(
                "too many operations are remembered",
                "{actual} operations would be remembered, and {limit} may be",
                "wait: an operation is forgotten after a day",
            ),
            Self::TenantUnknown => says(
                "no operator has set this tenant",
                "have the tenant set: apportion tenant NAME",
            ),
            Self::NameInvalid => says(
                "it is no name",
                "use 1 to 64 of A-Z a-z 0-9 _ -, and for tenants and queues no _ first",
            ),
            Self::QuantityZero => says("it is 0 or missing", "name an amount above 0"),
            Self::QuantityNegative => says("it is below 0", "name an amount that is not below 0"),
            Self::QuantityTooLarge => measures(
                "it is too much",
                "{actual} was asked for, and {limit} may be",
                "ask for no more than that",
            ),
            Self::GpuShareInvalid => says(
                "a share is of one device",
                "ask for one device with a share of 1 to 1000 thousandths, or for whole devices",
            ),
            Self::TooManyElements => measures(
                "there are too many",
                "there are {actual}, and {limit} may be",
                "name no more than that; send the others by themselves",
            ),
            Self::AllocationNotFound => says(
                "the tenant has no such allocation",
                "name one of its own: apportion list --all",
            ),
            Self::AllocationEnded => says("it has ended already", "nothing is left to do for it"),
            Self::QuotaExceeded => measures(
                "the account holds too much",
                "it would come to {actual}, and the account may hold {limit} now",
                "wait until allocations that hold it have ended, ask for less, or have the limit raised",
            ),
            Self::NotSupported => says(
                "this cell does not have the feature",
                "leave it out, or have the cell's version or feature level raised",
            ),
            Self::VersionConflict => measures(
                "it was changed meanwhile",
                "the change was made for version {actual}, and it has version {limit}",
                "look at it again, and name the version that it has",
            ),
            Self::RateNotOnTheHour => says(
                "rates began with full hours once",
                "name the beginning of an hour",
            ),
            Self::ResourceUnknown => says(
                "there is no such resource",
                "name cpu, memory, gpu, gpu:<model>, storage, pods, extended:<name> or leases",
            ),
            Self::PriorityOutOfRange => says(
                "the tenant may not ask for this priority",
                "ask for a lower one, within -1000000 to 1000000, or have the tenant's highest raised",
            ),
            Self::AllocationIdInvalid => says("it is no allocation id", "write the id as a UUID"),
            Self::AllocationTableFull => measures(
                "too many allocations have not ended",
                "{actual} allocations would not have ended, and a tenant of this cell may have {limit}",
                "wait until some have ended, or cancel some",
            ),
            Self::RateForAPastHour => says(
                "it would change what was billed already",
                "name a moment that is still to come; only the first rate of a resource and scope can correct the past (correction)",
            ),
            Self::QueueUnknown => says(
                "no operator has set this queue",
                "name one that is set (apportion queues), or have it set",
            ),
            Self::QueueForbidden => says(
                "the tenant may not submit to this queue",
                "name another one (apportion queues), or have the tenant let in",
            ),
            Self::PriorityClassUnknown => says(
                "no operator has set this priority class",
                "name one that is set, or have it set",
            ),
            Self::AnswerUnavailable => says(
                "the database or the process that knows the answer is away",
                "ask again; operators see in the health of the services which one it is",
            ),
            Self::TeamUnknown => says(
                "the tenant has no team or namespace of this name",
                "name one that it has, or have an operator add it to the tenant's teams",
            ),
            Self::GangInvalid => measures(
                "its size, minimum or members do not go together",
                "{actual} does not go with {limit}",
                "give all members the same size and a minimum no larger than it",
            ),
            Self::PlacementRuleInvalid => says(
                "no node could ever follow this rule, or it is incomplete",
                "name its label, and values or a group as the contract says",
            ),
            Self::QueueTreeInvalid => measures(
                "a queue cannot stand there",
                "the tree would be {actual} deep, and may be {limit}",
                "name a parent that is set, is not below the queue, and is not too deep",
            ),
            Self::IntervalInvalid => says(
                "it ends before it begins, or is over",
                "name an end behind its beginning and behind now",
            ),
            Self::SettingInvalid => measures(
                "it is outside of its range, or does not go with another value",
                "it is {actual}, and the amount beside it is {limit}",
                "choose a value that the field's description allows; a soft limit is at most the limit, a burst at least",
            ),
            Self::NameRepeated => says("the name stands there twice", "name it once"),
            Self::RateLimited => measures(
                "too many requests in this time",
                "{limit} may be sent",
                "send again later and more slowly, or have the tenant's rate raised",
            ),
            Self::BacklogFull => measures(
                "too many allocations have not ended",
                "{actual} allocations would not have ended, and the tenant may have {limit}",
                "wait until some have ended, cancel some, or have the tenant's backlog raised",
            ),
            Self::PriorityClassForbidden => says(
                "the tenant may not use this priority class",
                "name another one, or have the tenant's classes changed",
            ),
            Self::BudgetExhausted => measures(
                "the budget is used up",
                "{actual} is used, and the budget is {limit}",
                "wait for the next period of the budget, or have it raised",
            ),
            Self::QuotaNeverFits => measures(
                "it is more than the account may ever hold",
                "it asks for {actual}, and the account may hold {limit}",
                "ask for less, or have an operator set or raise the limit",
            ),
            Self::SlotBackwards => measures(
                "the slot lies in the past",
                "slot {actual} lies before slot {limit}, which was seen",
                "name the slot that is now, or a later one",
            ),
            Self::SlotOverflow => measures(
                "it would last beyond the last slot",
                "it may begin in slot {limit} at the latest, and {actual} was named",
                "name an earlier slot or a shorter time",
            ),
            Self::TtlOutOfRange => measures(
                "the time to live is 0 or too long",
                "{actual} slots were asked for, and 1 to {limit} may be",
                "ask for a time within that",
            ),
            Self::AlreadyExists => says("it was created before", "use it, or another name"),
            Self::ResourceTableFull => measures(
                "the tenant has too many resources",
                "{actual} resources would be there, and {limit} may be",
                "use those that are there, or have the bound raised",
            ),
            Self::ResourceNotFound => says("it was never created", "create it first"),
            Self::ResourceBusy => says(
                "somebody holds it, or it is named twice",
                "wait until it is given back; name it once",
            ),
            Self::BundleTooLarge => measures(
                "a lease is of one resource or more, up to a bound",
                "{actual} resources were named, and 1 to {limit} may be",
                "name resources within that",
            ),
            Self::LeaseTableFull => measures(
                "the tenant has too many leases",
                "{actual} leases would be there, and {limit} may be",
                "wait until some have ended and are forgotten, or give some back",
            ),
            Self::ExpirationIndexFull => measures(
                "too many leases end at this deadline",
                "{actual} leases would end at this deadline, and {limit} may",
                "name another time to live",
            ),
            Self::LeaseNotFound => says("it was never granted", "name a lease of the tenant's own"),
            Self::LeaseRetired => says(
                "it has ended and is forgotten",
                "nothing is left to do; acquire anew",
            ),
            Self::HolderMismatch => {
                says("another holder has it", "name the holder that acquired it")
            }
            Self::StaleFencingToken => measures(
                "the fencing token is another one",
                "the fencing token {actual} was named, and the lease has {limit}",
                "name the token that the last outcome said, if the lease is still one's own",
            ),
            Self::InvalidState => measures(
                "the lease is in a state that this does not apply to",
                "slot {actual} is at or behind the deadline, slot {limit}",
                "look at the lease, and do what its state allows",
            ),
            Self::NotApplied => measures(
                "the read model is not as far yet",
                "position {actual} was asked for, and {limit} is reached",
                "ask again",
            ),
            Self::LeaseIdInvalid => says(
                "it is no lease id of this cell",
                "write the id as the outcome said it",
            ),
            Self::IncompleteGang => measures(
                "members of its gang are missing",
                "{actual} of {limit} members are there",
                "submit those that are missing",
            ),
            Self::DependencyUnknown => says(
                "it is to start after what the tenant does not have, or what ended longer than a day ago",
                "name allocations of the tenant's own, or leave out what is over",
            ),
            Self::GangWaitsForItself => says(
                "it would wait for a member of its own gang, so that none could start",
                "let no member depend on another one, directly or through others",
            ),
            Self::DependencyPending => says(
                "what it depends on has not ended",
                "wait until that has ended; only then it asks for quota",
            ),
            Self::BurstOver => measures(
                "it fits into a burst only, and none may begin now",
                "it asks for {actual}, and outside of a burst {limit} may be held",
                "wait until the next burst may begin, ask for less, or have the limit raised",
            ),
            Self::HeaderReserved => says(
                "the message has a header of the bus's own",
                "send it without headers that begin with Nats-",
            ),
            Self::CellFull => measures(
                "the cell has no memory for more of this tenant's",
                "the tenant's would take {actual}, and {limit} may be taken now",
                "wait until allocations have ended and operations are forgotten, or send less",
            ),
            Self::NodeNotApproved => says(
                "no operator has approved a node of this name, or it has not joined",
                "have it approved (apportion node approve), and join",
            ),
            Self::CapacityNotApproved => measures(
                "the node has more than was approved",
                "it says that it has {actual}, and {limit} was approved",
                "have what it has approved, or let it offer less",
            ),
            Self::JoinTokenInvalid => says(
                "it is not the node's token, or another key has joined by it",
                "have the node approved again, and use the new token",
            ),
            Self::JoinTokenExpired => measures(
                "the token is void",
                "the token was good until {limit}, and it is {actual}",
                "have the node approved again, and use the new token",
            ),
            Self::NodeNameHeld => measures(
                "another agent speaks for this node",
                "who spoke for it before can do so until {limit}, and it is {actual}",
                "wait until then",
            ),
            Self::PeriodNotOver => measures(
                "the month cannot be closed yet",
                "it can be closed from {limit} on, and it is {actual}",
                "wait until then",
            ),
            Self::PeriodClosed => measures(
                "the bill of this time is final",
                "the months through {limit} are closed",
                "name a time behind that",
            ),
            Self::PeriodOutOfTurn => measures(
                "months are closed one after the other",
                "the turn is {limit}'s, and {actual} was named",
                "close the one whose turn it is first",
            ),
            Self::WorkInvalid => says(
                "no system takes such a command, directory, image or environment",
                "name a command, absolute directories, and texts without NUL",
            ),
            Self::LogUnavailable => says(
                "the node's agent does not answer, or keeps no log of this run",
                "ask again later; a run that is over may have no log any more",
            ),
            Self::HostnameTaken => says(
                "another node has the same label hostname",
                "give this node another one, or wait until the other one is lost",
            ),
            Self::CapacityStays => says(
                "this part of a node's capacity stays as it was registered",
                "start the agent anew",
            ),
            Self::NodeNotFound => says(
                "nothing is known of a node of this name",
                "look at what `nodes` lists",
            ),
            Self::Closed => says(
                "an operator has closed it: it accepts nothing new",
                "wait until it is opened again, or name another one",
            ),
            Self::NeverSet => says(
                "it was never set, so it cannot be taken back",
                "name one that is set: `settings export` lists all, `rates list` the rates with their scopes",
            ),
        }
    }

    /// The unit of limit and actual where the rule alone says it.
    fn unit(self) -> Option<Unit> {
        match self {
            Self::PayloadTooLarge | Self::CellFull => Some(Unit::Of(ResourceKind::Memory)),
            Self::JoinTokenExpired | Self::NodeNameHeld | Self::PeriodNotOver => Some(Unit::Moment),
            Self::PeriodClosed | Self::PeriodOutOfTurn => Some(Unit::Month),
            _ => None,
        }
    }
}

/// What limit and actual are measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Number,
    Of(ResourceKind),
    /// As many hours of it, in its unit.
    HoursOf(ResourceKind),
    Money,
    Duration,
    Moment,
    Month,
    /// Thousandths of a request a second.
    Rate,
}

impl Unit {
    /// A subject is a field of the contract, whose name ends with its unit, or an account and what of it is limited.
    fn of(rule: Rule, subject: &str) -> Self {
        if let Some(unit) = rule.unit() {
            return unit;
        }
        let what = subject.rsplit(' ').next().unwrap_or_default();
        if rule == Rule::BudgetExhausted {
            return match BudgetOf::parse(what) {
                Some(BudgetOf::Money) => Self::Money,
                Some(BudgetOf::Use(kind)) => Self::HoursOf(kind),
                None => Self::Number,
            };
        }
        let kind = match QuotaResource::parse(what) {
            _ if ModelChoice::parse(what).is_some() => Some(ResourceKind::Gpu),
            Some(QuotaResource::Cpu) => Some(ResourceKind::Cpu),
            Some(QuotaResource::Memory) => Some(ResourceKind::Memory),
            Some(QuotaResource::Gpu | QuotaResource::GpuModel(_)) => Some(ResourceKind::Gpu),
            _ if what.contains("cpu_milli") => Some(ResourceKind::Cpu),
            _ if what.contains("bytes") => Some(ResourceKind::Memory),
            _ if what.contains("gpu_milli") => Some(ResourceKind::Gpu),
            _ => None,
        };
        match kind {
            Some(kind) => Self::Of(kind),
            None if what == "rate_milli" => Self::Rate,
            None if what.ends_with("_ms") => Self::Duration,
            None if what.ends_with("_micro") => Self::Money,
            None => Self::Number,
        }
    }

    fn text(self, amount: u64) -> String {
        let wide = u128::from(amount);
        let at = Millis(i64::try_from(amount).unwrap_or(i64::MAX));
        match self {
            Self::Number => amount.to_string(),
            Self::Of(kind) => human::resource(kind, wide),
            Self::HoursOf(kind) => {
                let hours = human::thousandths(wide * 1000 / u128::from(kind.per_billed_unit()));
                let unit = match kind {
                    ResourceKind::Cpu => "core",
                    ResourceKind::Memory => "GiB",
                    ResourceKind::Gpu => "GPU",
                };
                format!("{hours} {unit}-hours")
            }
            Self::Money => human::money(wide),
            Self::Duration => human::duration(wide),
            Self::Moment => human::moment(at),
            Self::Month => Month(u32::try_from(amount).unwrap_or(u32::MAX)).to_string(),
            Self::Rate => format!("{} requests a second", human::thousandths(wide)),
        }
    }
}

impl Refusal {
    /// An amount of what the refusal is about, in the unit that people count it in.
    pub fn amount(&self, amount: u64) -> String {
        Unit::of(self.rule, &self.subject).text(amount)
    }

    /// For people: the rule, its subject, what was sent and what may be, and what would let it pass.
    pub fn explanation(&self) -> String {
        let name = self.rule.name().replace('_', " ");
        let (name, teaching) = match (self.rule, &*self.subject) {
            (Rule::UnknownField, NOT_CANONICAL) => ("not canonical".to_owned(), CANONICAL),
            (Rule::NameInvalid, "work.env") => (name, VARIABLE),
            (Rule::PriorityOutOfRange, "value" | "priority_max") => (name, SET_PRIORITY),
            (rule, _) => (name, rule.teaching()),
        };
        let subject = match &*self.subject {
            "" => String::new(),
            subject => format!(" {subject}:"),
        };
        format!(
            "{name}:{subject} {}; {}",
            self.found(teaching),
            teaching.passes
        )
    }

    fn found(&self, teaching: Teaching) -> String {
        if teaching.values.is_empty() || (self.limit, self.actual) == (0, 0) {
            return teaching.broken.to_owned();
        }
        let (mut limit, mut actual) = (self.amount(self.limit), self.amount(self.actual));
        // They differ by less than what is shown.
        if limit == actual && self.limit != self.actual {
            (limit, actual) = (self.limit.to_string(), self.actual.to_string());
        }
        let values = teaching.values.replace("{limit}", &limit);
        values.replace("{actual}", &actual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_says_what_is_wrong_and_what_would_let_it_pass() {
        for rule in Rule::ALL {
            let Teaching {
                broken,
                values,
                passes,
            } = rule.teaching();
            for text in [broken, passes] {
                let whole = !text.is_empty() && !text.ends_with(['.', ';', ' ']);
                assert!(whole && !text.contains('{'), "{rule:?}: {text}");
            }
            let left = values.replace("{limit}", "").replace("{actual}", "");
            assert!(!left.contains(['{', '}']), "{rule:?}: {values}");
            assert_eq!(values.is_empty(), !values.contains("{limit}"), "{rule:?}");
        }
    }

    #[test]
    fn a_refusal_says_values_in_their_units_and_what_lets_it_pass() {
        let check = |rule, subject: &str, limit, actual, expected: &str| {
            let said = Refusal::over(rule, subject, limit, actual).explanation();
            let passes = rule.teaching().passes;
            assert_eq!(said, format!("{expected}; {passes}"));
        };
        check(
            Rule::QuotaExceeded,
            "team-a cpu",
            256_000,
            304_000,
            "quota exceeded: team-a cpu: it would come to 304 cores, and the account may hold 256 cores now",
        );
        check(
            Rule::QuotaNeverFits,
            "a/b gpu:A100|H100",
            0,
            1500,
            "quota never fits: a/b gpu:A100|H100: it asks for 1.5 GPUs, and the account may hold 0 GPUs",
        );
        check(
            Rule::BudgetExhausted,
            "a money",
            250_500_000,
            251_000_000,
            "budget exhausted: a money: 251 is used, and the budget is 250.5",
        );
        check(
            Rule::BudgetExhausted,
            "a gpu",
            1000,
            1000,
            "budget exhausted: a gpu: 1 GPU-hours is used, and the budget is 1 GPU-hours",
        );
        check(
            Rule::QuantityTooLarge,
            "memory_bytes",
            1 << 40,
            (1 << 40) + (1 << 39),
            "quantity too large: memory_bytes: 1.5 TiB was asked for, and 1 TiB may be",
        );
        check(
            Rule::QuantityTooLarge,
            "run_time_ms",
            86_400_000,
            172_800_000,
            "quantity too large: run_time_ms: 2 d was asked for, and 1 d may be",
        );
        // What differs by less than is shown is said exactly.
        check(
            Rule::QuotaExceeded,
            "a memory",
            1 << 40,
            (1 << 40) + 1,
            "quota exceeded: a memory: it would come to 1099511627777, and the account may hold 1099511627776 now",
        );
        check(
            Rule::PayloadTooLarge,
            "payload",
            65_536,
            131_072,
            "payload too large: payload: it has 128 KiB, and 64 KiB may be sent",
        );
        check(
            Rule::RateLimited,
            "rate_milli",
            2500,
            0,
            "rate limited: rate_milli: 2.5 requests a second may be sent",
        );
        check(
            Rule::JoinTokenExpired,
            "token",
            1_769_846_400_000,
            1_769_846_401_000,
            "join token expired: token: the token was good until 2026-01-31T08:00:00Z, and it is 2026-01-31T08:00:01Z",
        );
        check(
            Rule::PeriodOutOfTurn,
            "month",
            202_610,
            202_611,
            "period out of turn: month: the turn is 2026-10's, and 2026-11 was named",
        );
        check(
            Rule::BacklogFull,
            "allocations",
            3,
            4,
            "backlog full: allocations: 4 allocations would not have ended, and the tenant may have 3",
        );
        check(
            Rule::NameInvalid,
            "name",
            0,
            0,
            "name invalid: name: it is no name",
        );
        check(
            Rule::RateLimited,
            "",
            0,
            0,
            "rate limited: too many requests in this time",
        );
    }

    #[test]
    fn a_sentence_depends_on_the_field_where_the_rule_alone_would_mislead() {
        let check = |rule, subject: &str, expected: Teaching| {
            let said = Refusal::new(rule, subject).explanation();
            let Teaching { broken, passes, .. } = expected;
            assert!(
                said.ends_with(&format!("{subject}: {broken}; {passes}")),
                "{said}"
            );
        };
        check(Rule::NameInvalid, "work.env", VARIABLE);
        check(Rule::NameInvalid, "queue", Rule::NameInvalid.teaching());
        check(Rule::PriorityOutOfRange, "value", SET_PRIORITY);
        check(Rule::PriorityOutOfRange, "priority_max", SET_PRIORITY);
        check(
            Rule::PriorityOutOfRange,
            "priority",
            Rule::PriorityOutOfRange.teaching(),
        );
    }

    #[test]
    fn a_message_that_is_not_canonical_is_called_so() {
        // The long form of 5.
        let said = Refusal::not_as_written(&[8, 133, 0], &[8, 5]).explanation();
        assert!(said.starts_with("not canonical: encoding: "), "{said}");
        assert!(said.ends_with(CANONICAL.passes), "{said}");
        let said = Refusal::not_as_written(&[8, 5, 16, 1], &[8, 5]).explanation();
        assert!(said.starts_with("unknown field: field 2: "), "{said}");
    }
}
