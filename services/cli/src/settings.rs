//! What operators have set, as the bus tells it: all of it to operators, and to a tenant its own.

use crate::{
    Failure, amount,
    context::Context,
    manifest::{self, Kind, Setting, Standing},
    pages::pages,
    print::{
        Cell, Fields, Output, Page, Sheet, bytes, column, exactly, moment, named as maybe, number,
        plain, valued, wide,
    },
};
use clap::{Args, Subcommand, builder::PossibleValuesParser};
use client::{Client, QueryError, SettingsQuery};
use schemas::v1::{SettingView, setting_view::Change};
use serde_json::Value;
use vocab::Millis;

#[derive(Subcommand)]
pub enum SettingsCommand {
    /// List what is set: by which operation, when, and in which version. A tenant, and an operator who names one, sees what is set of the
    /// tenant itself, its limits and budgets, and the priority classes that it may use; an operator who names none all of the cell.
    List(List),
    /// Show one setting; as YAML or JSON it is what `apply` takes.
    Get(Get),
    /// Print what is set as a file that `apply` takes, all of its fields included.
    Export(Export),
}

/// What the bus calls settings, in the way of the command line.
const SETTINGS: [&str; 12] = [
    "tenant",
    "queue",
    "priority-class",
    "quota",
    "budget",
    "rate",
    "scheduling",
    "cordon",
    "taints",
    "reservation",
    "node",
    "period",
];

#[derive(Args)]
struct OfTenant {
    /// What is set of this tenant. Without it, of the one that the context lets in; for an operator, all of the cell.
    #[arg(long)]
    tenant: Option<String>,
}

#[derive(Args)]
pub struct List {
    #[command(flatten)]
    of: OfTenant,
    /// Of this kind; without it, of all.
    #[arg(value_parser = PossibleValuesParser::new(SETTINGS))]
    kind: Option<String>,
    /// What has a key that begins so.
    #[arg(long, default_value = "")]
    prefix: String,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
pub struct Get {
    #[command(flatten)]
    of: OfTenant,
    /// What is set: tenant, quota and the like.
    kind: Kind,
    /// As `apportion settings list` shows it: a name, or an account and its resource, as in `team-a/ml gpu`.
    /// The cell's policy, of which there is one, needs none.
    key: Vec<String>,
    #[command(flatten)]
    output: Output,
}

#[derive(Args)]
pub struct Export {
    #[command(flatten)]
    of: OfTenant,
    /// Of these kinds; without any, of all that a file can have.
    kinds: Vec<Kind>,
}

impl SettingsCommand {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let (of, kinds): (_, Vec<String>) = match &self {
            Self::List(list) => (&list.of, list.kind.clone().into_iter().collect()),
            Self::Get(get) => (&get.of, vec![get.kind.setting().replace('_', "-")]),
            Self::Export(export) => {
                let kinds = export.kinds.iter();
                let kinds = kinds.map(|kind| kind.setting().replace('_', "-"));
                (&export.of, kinds.collect())
            }
        };
        // An operator's context may have a tenant, and an export of the cell is not to be a part of it for that.
        let of_tenant = of.tenant.is_some() || context.is_tenants();
        if let Some(kind) = kinds.iter().find(|kind| of_tenant && !is_told(kind)) {
            return Err(Failure::usage(format!(
                "{}: of a tenant there are its tenant, quota, budget and priority-class; the others are for the operator",
                kind
            )));
        }
        let client = match of_tenant {
            true => context.asker(of.tenant.as_deref()).await?,
            false => context.operator_until(None).await?,
        };
        let now_ms = context.clock().now_ms();
        match self {
            Self::List(list) => list.run(&client, now_ms).await,
            Self::Get(get) => get.run(&client, now_ms).await,
            Self::Export(export) => export.run(&client, now_ms).await,
        }
    }
}

/// Whether a tenant is told what is set of a kind of this name.
fn is_told(kind: &str) -> bool {
    ["tenant", "quota", "budget", "priority-class"].contains(&kind)
}

/// Returns all settings of a kind, or of all kinds for an empty one, with withdrawn ones, and the ledger position that they are of.
async fn listed(
    client: &Client,
    setting: &str,
    prefix: &str,
) -> Result<(Vec<SettingView>, u64), QueryError> {
    pages(async |after, at_lsn| {
        let query = SettingsQuery {
            setting: setting.to_owned(),
            key_prefix: prefix.to_owned(),
            limit: PAGE_MAX,
            after,
            at_lsn,
        };
        let page = client.settings(&query).await?;
        Ok((page.settings, page.next, page.lsn))
    })
    .await
}

/// Returns these settings without their position.
pub async fn views(
    client: &Client,
    setting: &str,
    prefix: &str,
) -> Result<Vec<SettingView>, Failure> {
    let (views, _) = listed(client, setting, prefix).await?;
    Ok(views)
}

/// Settings of a page, at the most.
const PAGE_MAX: u32 = 1000;

/// What is there: not taken back, and not over.
fn there(view: &SettingView, now_ms: i64) -> Option<&Change> {
    let change = view.change.as_ref();
    change.filter(|change| !Setting(change).is_absent() && !Setting(change).is_over(now_ms))
}

impl List {
    async fn run(self, client: &Client, now_ms: i64) -> Result<(), Failure> {
        let setting = self.kind.unwrap_or_default().replace('-', "_");
        let (views, lsn) = listed(client, &setting, &self.prefix).await?;
        let there = views
            .iter()
            .filter_map(|view| Some((view, there(view, now_ms)?)));
        let rows = there.map(|(view, change)| row(view, change)).collect();
        let columns = vec![
            column("kind", "kind"),
            column("key", "key"),
            column("version", "version"),
            column("set_at_ms", "set at"),
            column("operation_id", "operation"),
            wide("by", "by"),
            wide("value", "value"),
        ];
        Page::of(Sheet::new(columns, 7, rows), lsn, "nothing is set").print(self.output)
    }
}

fn row(view: &SettingView, change: &Change) -> Vec<Cell> {
    let value = match change {
        Change::Period(closed) => plain(closed.month),
        _ => match Setting(change).fields() {
            Ok(mut fields) => {
                fields.retain(|_, value| !value.is_null());
                let value = Value::Object(fields);
                valued(manifest::text(&value), value)
            }
            Err(_) => plain("-"),
        },
    };
    vec![
        plain(view.setting.replace('_', "-")),
        // What is for a time has its moments in the key.
        match Setting(change).key(i64::MIN) {
            Ok(key) => exactly(key, &view.key),
            Err(_) => plain(&view.key),
        },
        number(view.version),
        moment(view.set_at_ms),
        plain(&view.operation_id),
        maybe(&view.by),
        value,
    ]
}

impl Get {
    async fn run(self, client: &Client, now_ms: i64) -> Result<(), Failure> {
        let kind = self.kind;
        let key = match (kind, self.key.is_empty()) {
            (Kind::Scheduling, true) => "cell".to_owned(),
            (_, true) => return Err(Failure::usage(format!("say which {} it is", kind.name()))),
            (_, false) => self.key.join(" "),
        };
        let views = named(client, kind, &key, now_ms).await?;
        let found = views
            .iter()
            .filter_map(|view| Some((view, there(view, now_ms)?)))
            // Of limits for good and those that were planned and have begun, the ones that hold.
            .max_by_key(|(view, change)| manifest::rank(view, change));
        let none = || Failure::refused(format!("{} {key} is not set", kind.name()));
        let (view, change) = found.ok_or_else(none)?;
        page(kind, view, change)?.print(self.output)
    }
}

/// The settings of this name; of limits for a time, people write the moments otherwise than the bus.
pub async fn named(
    client: &Client,
    kind: Kind,
    key: &str,
    now_ms: i64,
) -> Result<Vec<SettingView>, Failure> {
    let is_it = |view: &SettingView| {
        let written = |at_ms| {
            let change = view.change.as_ref()?;
            Setting(change).key(at_ms).ok()
        };
        let names = [written(i64::MIN), written(now_ms)];
        view.key == key || names.iter().flatten().any(|written| written == key)
    };
    let first = key.split(' ').next().unwrap_or(key);
    let mut views = views(client, kind.setting(), first).await?;
    views.retain(is_it);
    Ok(views)
}

fn page(kind: Kind, view: &SettingView, change: &Change) -> Result<Page, Failure> {
    let mut values = Setting(change).fields().map_err(|wrong| wrong.why)?;
    let names = kind.field_names().iter();
    let fields = names.fold(Fields::default(), |fields, name| match values.get(*name) {
        Some(value) => fields.add(name, name, valued(manifest::text(value), value.clone())),
        None => fields,
    });
    values.insert("kind".to_owned(), kind.name().into());
    let (version, at) = (view.version, amount::moment(Millis(view.set_at_ms)));
    let by = match view.by.as_str() {
        "" => String::new(),
        name => format!("{name}'s "),
    };
    let set = format!(
        "version {version}, set at {at} by {by}operation {}",
        view.operation_id
    );
    Ok(Page::new(Value::Object(values)).fields(fields).text(set))
}

impl Export {
    async fn run(self, client: &Client, now_ms: i64) -> Result<(), Failure> {
        let kinds = match self.kinds.is_empty() {
            true => Kind::ALL,
            false => &self.kinds,
        };
        for kind in kinds {
            let views = views(client, kind.setting(), "").await?;
            let standing = Standing::of(&views, now_ms).map_err(|wrong| wrong.why)?;
            for change in standing.present() {
                let document = Setting(change).yaml()?;
                bytes(format!("---\n{document}").as_bytes())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_can_be_listed() {
        for kind in Kind::ALL {
            let name = kind.setting().replace('_', "-");
            assert!(SETTINGS.contains(&name.as_str()), "{name}");
        }
    }
}
