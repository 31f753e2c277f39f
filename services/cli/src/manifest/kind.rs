//! The kinds of settings that a file can have.

use super::{
    budget, cordon,
    fields::{self, Fields, Wrong},
    priority_class, queue, quota, rate, reservation, scheduling, taints, tenant,
};
use crate::Failure;
use schemas::v1::setting_view::Change;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use vocab::{Account, BadToken, Token};

/// A setting as a file has it: its fields, in units that people write. What is absent has its default.
pub(super) trait Manifest: Serialize + DeserializeOwned {
    type Message;

    /// The fields that it is named by.
    const NAMED_BY: &'static [&'static str];

    /// What it is called, unique within its kind. The other fields may be absent.
    fn key(fields: &Fields, now_ms: i64) -> Result<String, Wrong>;

    /// With all fields, so that what is absent in the message has its default.
    fn of(set: &Self::Message) -> Result<Self, Wrong>;

    /// Without an expected version.
    fn message(self) -> Result<Self::Message, Wrong>;

    fn key_of(set: &Self::Message, now_ms: i64) -> Result<String, Wrong> {
        Self::key(&Self::of(set)?.fields()?, now_ms)
    }

    /// What it shares its version with; none: with nothing.
    fn counter(_: &Self::Message) -> Option<String> {
        None
    }

    /// Whether it says that nothing is set.
    fn is_absent(_: &Self::Message) -> bool {
        false
    }

    /// Whether it speaks of the past alone.
    fn is_over(_: &Self::Message, _now_ms: i64) -> bool {
        false
    }

    /// What has begun holds now, whenever that was.
    fn begin(_: &mut Self::Message, _now_ms: i64) {}

    /// Settles when it counts from, by what was set last, which may be that it is taken back, and what the file says.
    fn settle(
        _wanted: &mut Self::Message,
        _current: Option<&Self::Message>,
        _said: &Fields,
        _now_ms: i64,
    ) -> Result<(), Wrong> {
        Ok(())
    }

    /// What takes it back, or why nothing does.
    fn taken_back(set: &Self::Message) -> Result<Self::Message, &'static str>;

    fn fields(&self) -> Result<Fields, Wrong> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => Ok(fields),
            Ok(other) => Err(Wrong::new("", format!("{other} has no fields"))),
            Err(error) => Err(Wrong::new("", error.to_string())),
        }
    }
}

macro_rules! kinds {
    ($($kind:ident in $module:ident;)*) => {
        /// In the order in which they are set, so that what is referred to is there.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
        pub enum Kind {
            $($kind,)*
        }

        impl Kind {
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => stringify!($kind),)*
                }
            }

            /// As the bus calls it.
            pub fn setting(self) -> &'static str {
                match self {
                    $(Self::$kind => stringify!($module),)*
                }
            }

            /// None: it is of no kind that a file can have.
            pub fn of(change: &Change) -> Option<Self> {
                match change {
                    $(Change::$kind(_) => Some(Self::$kind),)*
                    Change::Node(_) | Change::Period(_) => None,
                }
            }

            pub fn field_names(self) -> &'static [&'static str] {
                match self {
                    $(Self::$kind => fields::names::<$module::$kind>(),)*
                }
            }

            pub fn named_by(self) -> &'static [&'static str] {
                match self {
                    $(Self::$kind => $module::$kind::NAMED_BY,)*
                }
            }

            pub fn key(self, fields: &Fields, now_ms: i64) -> Result<String, Wrong> {
                match self {
                    $(Self::$kind => $module::$kind::key(fields, now_ms),)*
                }
            }

            /// What would set all of it.
            pub fn read(self, fields: &Fields) -> Result<Change, Wrong> {
                match self {
                    $(Self::$kind => {
                        let manifest: $module::$kind = fields::typed(fields)?;
                        manifest.message().map(Change::$kind)
                    })*
                }
            }
        }

        /// `None` and `Wrong` for what no file can have.
        impl Setting<'_> {
            pub fn key(self, now_ms: i64) -> Result<String, Wrong> {
                match self.0 {
                    $(Change::$kind(set) => $module::$kind::key_of(set, now_ms),)*
                    Change::Node(_) | Change::Period(_) => Err(no_file()),
                }
            }

            pub fn fields(self) -> Result<Fields, Wrong> {
                match self.0 {
                    $(Change::$kind(set) => $module::$kind::of(set)?.fields(),)*
                    Change::Node(_) | Change::Period(_) => Err(no_file()),
                }
            }

            /// As a document of a file, with its fields in the order of their importance.
            pub fn yaml(self) -> Result<String, Failure> {
                match self.0 {
                    $(Change::$kind(set) => {
                        let manifest = $module::$kind::of(set).map_err(|wrong| wrong.why)?;
                        let fields = serde_saphyr::to_string(&manifest)?;
                        Ok(format!("kind: {}\n{fields}", stringify!($kind)))
                    })*
                    Change::Node(_) | Change::Period(_) => Err(no_file().why.into()),
                }
            }

            pub fn counter(self) -> Option<String> {
                match self.0 {
                    $(Change::$kind(set) => $module::$kind::counter(set),)*
                    Change::Node(_) | Change::Period(_) => None,
                }
            }

            pub fn is_absent(self) -> bool {
                match self.0 {
                    $(Change::$kind(set) => $module::$kind::is_absent(set),)*
                    Change::Node(set) => set.approved.is_none(),
                    Change::Period(_) => false,
                }
            }

            pub fn is_over(self, now_ms: i64) -> bool {
                match self.0 {
                    $(Change::$kind(set) => $module::$kind::is_over(set, now_ms),)*
                    Change::Node(_) | Change::Period(_) => false,
                }
            }

            pub fn taken_back(self) -> Result<Change, &'static str> {
                match self.0 {
                    $(Change::$kind(set) => $module::$kind::taken_back(set).map(Change::$kind),)*
                    Change::Node(_) | Change::Period(_) => Err(NO_FILE),
                }
            }
        }

        /// What has begun holds now, whenever that was.
        pub fn begin(change: &mut Change, now_ms: i64) {
            match change {
                $(Change::$kind(set) => $module::$kind::begin(set, now_ms),)*
                Change::Node(_) | Change::Period(_) => {}
            }
        }

        /// Settles when a change counts from; `current` is what was set last, also where that takes it back.
        pub fn settle(
            wanted: &mut Change,
            current: Option<&Change>,
            said: &Fields,
            now_ms: i64,
        ) -> Result<(), Wrong> {
            match wanted {
                $(Change::$kind(wanted) => {
                    let current = match current {
                        Some(Change::$kind(current)) => Some(current),
                        _ => None,
                    };
                    $module::$kind::settle(wanted, current, said, now_ms)
                })*
                Change::Node(_) | Change::Period(_) => Err(no_file()),
            }
        }

        /// The same change, if the version is that one.
        pub fn expecting(mut change: Change, version: u64) -> Change {
            match &mut change {
                $(Change::$kind(set) => set.expected_version = Some(version),)*
                Change::Node(set) => set.expected_version = Some(version),
                Change::Period(set) => set.expected_version = Some(version),
            }
            change
        }
    };
}

kinds! {
    PriorityClass in priority_class;
    Tenant in tenant;
    Queue in queue;
    Quota in quota;
    Budget in budget;
    Rate in rate;
    Scheduling in scheduling;
    Cordon in cordon;
    Taints in taints;
    Reservation in reservation;
}

/// What would set a setting, looked at as what it is.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a>(pub &'a Change);

const NO_FILE: &str = "it is no setting that a file can have";

fn no_file() -> Wrong {
    Wrong::new("", NO_FILE)
}

impl Kind {
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(found) = Self::ALL.iter().find(|kind| kind.name() == text) {
            return Ok(*found);
        }
        let known = Self::ALL.iter().map(|kind| kind.name());
        Err(match text {
            "Node" => {
                "Node: who may be a node is said by `apportion node approve`, which makes its token"
                    .to_owned()
            }
            "Period" | "ClosePeriod" => {
                format!("{text}: closing a month is done once, by `apportion invoice close`")
            }
            _ => match fields::meant(text, known.clone()) {
                Some(meant) => format!("{text}: there is no such kind; did you mean {meant}?"),
                None => format!("{text}: kinds are {}", known.collect::<Vec<_>>().join(", ")),
            },
        })
    }
}

impl From<BadToken> for Wrong {
    fn from(error: BadToken) -> Self {
        Self::new("", error.to_string())
    }
}

/// A name of a message, where there is one.
pub(super) fn name(text: &str) -> Result<Option<Token>, Wrong> {
    let text = Some(text).filter(|text| !text.is_empty());
    Ok(text.map(Token::new).transpose()?)
}

/// Names of a message whose order says nothing.
pub(super) fn names(texts: &[String]) -> Result<Vec<Token>, Wrong> {
    let names = texts.iter().map(|text| Token::new(text));
    let mut names = names.collect::<Result<Vec<_>, _>>()?;
    names.sort();
    names.dedup();
    Ok(names)
}

pub(super) fn text(name: Option<Token>) -> String {
    name.map_or(String::new(), String::from)
}

pub(super) fn texts(names: Vec<Token>) -> Vec<String> {
    names.into_iter().map(String::from).collect()
}

pub(super) fn account_of(tenant: &str, team: &str, namespace: &str) -> Result<Account, Wrong> {
    Ok(Account {
        tenant: Token::new(tenant)?,
        team: name(team)?,
        namespace: name(namespace)?,
    })
}
