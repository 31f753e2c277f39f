//! What operators have set, as the requests that would set it again.

use crate::{
    store::{self, Own, Setting},
    wire::commands,
};
use admission_rules::{ChangeRequest, SETTINGS, Verb as Request};
use chassis::{
    query::{Asked, Trouble, Verb, cut, cut_to_fit, page_limit},
    warm::OutOfRange,
};
use ledger::InboxMessage;
use prost::Message as _;
use schemas::v1::{self, SettingsPage, SettingsQuery};
use sqlx::PgPool;
use vocab::{
    AdminChange, Event, Lsn, Refusal, Rule, Token,
    fact::{Inputs, SettingFact},
    subjects::OPERATOR,
};
use wire::Message as _;

/// Settings of a page, at the most, and where nothing is said of it.
const PAGE_MAX: u32 = 1000;
const PAGE: u32 = 200;
/// A key's length, at the most: an account and a resource, each of names.
pub(super) const KEY_MAX: usize = 1024;

/// The verb `settings`.
pub struct SettingsQueries {
    pub pool: PgPool,
}

/// As much of a view as the change is: it has the numbers that it has in a request.
#[derive(wire::Wire)]
#[wire(name = "SettingView")]
struct Change {
    #[wire(oneof(30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41))]
    change: ChangeRequest,
}

/// What would set the same again; none: this version of the messages does not have it.
pub fn asked_again(change: &AdminChange) -> Option<v1::setting_view::Change> {
    let change = Change {
        change: ChangeRequest::from(change),
    };
    let view = v1::SettingView::decode(&*change.encode_to_vec()).ok()?;
    view.change
}

/// Reads a change as the inbox reads a request for it: the inverse of [`asked_again`].
pub fn change_request(change: &v1::setting_view::Change) -> Result<ChangeRequest, Refusal> {
    let mut payload = v1::Request {
        operation_id: "0".repeat(OPERATION_ID_USUAL),
        verb: None,
    }
    .encode_to_vec();
    // Fields of one message may stand in several pieces, and the change has the number of its verb.
    payload.extend(
        v1::SettingView {
            change: Some(change.clone()),
            ..v1::SettingView::default()
        }
        .encode_to_vec(),
    );
    let message = InboxMessage {
        seq: 0,
        sender: Token::new(OPERATOR).map_err(|_| unknown_verb())?,
        by: None,
        reply_to: None,
        trace: None,
        reserved_header: false,
        payload: payload.into(),
    };
    let mut read = Vec::new();
    commands(&message, &mut read);
    match read.pop().map(|command| command.verb) {
        Some(Ok(Request::Admin(request))) => Ok(request),
        Some(Err(refusal)) => Err(refusal),
        Some(Ok(_)) | None => Err(unknown_verb()),
    }
}

/// Bytes of an operation id as clients make them.
const OPERATION_ID_USUAL: usize = 32;

fn unknown_verb() -> Refusal {
    Refusal::new(Rule::UnknownVerb, "verb")
}

impl Verb for SettingsQueries {
    const NAME: &'static str = "settings";
    type Query = SettingsQuery;
    type Reply = SettingsPage;

    fn position(query: &SettingsQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<SettingsQuery>) -> Result<SettingsPage, Trouble> {
        let query = &asked.query;
        let limit = page_limit(query.limit, PAGE, PAGE_MAX)?;
        let setting = Some(query.setting.as_str()).filter(|name| !name.is_empty());
        if setting.is_some_and(|name| !SETTINGS.contains(&name)) {
            return Err(Trouble::refused(Rule::SettingInvalid, "setting"));
        }
        if query.key_prefix.len() > KEY_MAX || query.key_prefix.contains('\0') {
            return Err(Trouble::refused(Rule::SettingInvalid, "key_prefix"));
        }
        let after = match query.after.as_str() {
            "" => ("", ""),
            text => text
                .split_once(' ')
                .filter(|(name, key)| {
                    SETTINGS.contains(name) && key.len() <= KEY_MAX && !key.contains('\0')
                })
                .ok_or_else(|| Trouble::refused(Rule::SettingInvalid, "after"))?,
        };
        let prefix = &query.key_prefix;
        let own = match asked.whose() {
            Some(tenant) => Some(self.own(tenant).await?),
            None => None,
        };
        let own = own.as_ref();
        let mut found = store::settings(&self.pool, own, setting, prefix, after, limit + 1).await?;
        let mut has_more = cut(&mut found, limit);
        let mut settings = found.iter().map(view).collect::<Result<Vec<_>, _>>()?;
        has_more |= cut_to_fit(&mut settings);
        let last = settings.last().filter(|_| has_more);
        Ok(SettingsPage {
            next: last.map_or_else(String::new, |one| format!("{} {}", one.setting, one.key)),
            settings,
            refusal: None,
            lsn: asked.applied.0,
        })
    }
}

impl SettingsQueries {
    async fn own<'a>(&self, tenant: &'a Token) -> Result<Own<'a>, Trouble> {
        let set = store::setting(&self.pool, "tenant", tenant.as_str()).await?;
        let classes = match set.as_ref().map(change).transpose()? {
            Some(AdminChange::Tenant(set)) => match set.settings.priority_classes {
                any if any.is_empty() => None,
                these => Some(these.iter().map(Token::to_string).collect()),
            },
            // Whoever is no tenant may use none.
            _ => Some(Vec::new()),
        };
        Ok(Own { tenant, classes })
    }
}

fn unreadable(one: &Setting) -> OutOfRange {
    OutOfRange::new("fact", format!("{} {}", one.setting, one.key))
}

fn change(one: &Setting) -> Result<AdminChange, Trouble> {
    let fact = Event::decode(&one.fact).map_err(|_| unreadable(one))?;
    let fact = SettingFact::of(&fact).ok_or_else(|| unreadable(one))?;
    Ok(fact.change())
}

pub(super) fn view(one: &Setting) -> Result<v1::SettingView, Trouble> {
    let change = asked_again(&change(one)?).ok_or_else(|| unreadable(one))?;
    let text = |name: &Option<Token>| name.as_ref().map_or_else(String::new, Token::to_string);
    Ok(v1::SettingView {
        setting: one.setting.clone(),
        key: one.key.clone(),
        version: one.version,
        operation_id: text(&one.operation_id),
        by: text(&one.set_by),
        set_at_ms: one.set_at.0,
        lsn: one.lsn.0,
        change: Some(change),
    })
}
