//! Settings from files: what they would change, and the change itself.

use crate::{
    Failure, amount, bus,
    context::Context,
    explain::object,
    manifest::{self, Action, Documents, Kind, Send, Standing, Step},
    print::{Cell, Output, Page, Sheet, column, named, note, plain, valued},
    sending::Sending,
    settings,
};
use clap::Args;
use client::{Client, Failed, SettingsQuery};
use data_encoding::HEXLOWER;
use identity::{ANY_CELL, Directory};
use prost::Message;
use schemas::v1::{self, SettingView, setting_view::Change};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, BufRead, IsTerminal},
    path::PathBuf,
    time::Duration,
};
use vocab::{RateKey, RateScope, ResourceKey, Token};

#[derive(Args)]
struct Files {
    /// A file of settings: documents of YAML, each with its kind and its fields; - is the standard input. May be repeated.
    #[arg(long = "file", short = 'f', value_name = "FILE", required = true)]
    files: Vec<String>,
    /// Take back what stands in the cell and not in the files, of the kinds that the files have: quotas, budgets, rates,
    /// cordons, taints and reservations are deleted; tenants, queues and priority classes are closed. What cannot be taken back is
    /// named.
    #[arg(long)]
    prune: bool,
    /// The directory that `bus init` made: each tenant of the files has an account of the bus then, and creds, and the running
    /// bus knows it.
    #[arg(long, value_name = "DIR")]
    bus: Option<PathBuf>,
}

/// Shows what files of settings would change, and changes nothing.
#[derive(Args)]
pub struct Plan {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    output: Output,
}

/// Changes settings to what files say. A field that a file does not name stays as it is, and null gives it back its default.
#[derive(Args)]
pub struct Apply {
    #[command(flatten)]
    files: Files,
    /// Do not ask before something is taken back.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    sending: Sending,
    #[command(flatten)]
    output: Output,
}

impl Files {
    fn read(&self) -> Result<Documents, Failure> {
        let text = |file: &String| {
            let text = match file.as_str() {
                "-" => io::read_to_string(io::stdin()),
                file => fs::read_to_string(file),
            };
            text.map_err(|error| Failure::usage(format!("{file}: {error}")))
        };
        let texts = self.files.iter().map(text).collect::<Result<Vec<_>, _>>()?;
        let files = self.files.iter().map(String::as_str);
        let documents = manifest::read(files.zip(texts.iter().map(String::as_str)));
        match (documents.all.is_empty(), documents.faults()) {
            (true, faults) if faults.is_empty() => Err(Failure::usage(format!(
                "no settings in {}",
                self.files.join(", ")
            ))),
            (true, faults) => Err(faulty(&faults)),
            (false, _) => Ok(documents),
        }
    }

    /// What the files would change, and whoever is asked to change it.
    async fn planned(
        &self,
        sending: Option<&Sending>,
        context: &Context,
    ) -> Result<Planned, Failure> {
        let documents = self.read()?;
        let faults = documents.faults();
        let told = async {
            let directory = self.directory(context)?;
            let client = match sending {
                Some(sending) if faults.is_empty() => sending.operator(context).await?,
                _ => context.operator_until(None).await?,
            };
            let standing = Self::standing(&documents, &client, context).await?;
            Ok::<_, Failure>((directory, client, standing))
        };
        let told = match faults.is_empty() {
            true => told.await,
            // Nobody waits long for a cell to be told what is wrong with a file.
            false => match tokio::time::timeout(WITH_FAULTS, told).await {
                Ok(Ok(told)) => Ok(told),
                Ok(Err(why)) => return Err(faulty_alone(&faults, &why.to_string())),
                Err(_) => return Err(faulty_alone(&faults, "the cell does not answer")),
            },
        };
        let (directory, client, (standing, now_ms)) = told?;
        let plan = manifest::plan(&documents, &standing, self.prune, now_ms);
        let mut plan = plan.map_err(|faults| faulty(&faults))?;
        explain_corrections(&mut plan, context).await;
        Ok(Planned {
            plan,
            client,
            directory,
        })
    }

    /// Of the cell that the settings are of.
    fn directory(&self, context: &Context) -> Result<Option<Directory>, Failure> {
        let Some(path) = &self.bus else {
            return Ok(None);
        };
        let directory = Directory::open(path)?;
        let (cell, wanted) = (directory.plan().cell.as_str(), context.cell()?);
        match cell == wanted || cell == ANY_CELL {
            true => Ok(Some(directory)),
            false => Err(Failure::usage(format!(
                "{} is of the cell {cell}, and the settings are of {wanted}",
                path.display()
            ))),
        }
    }

    /// Returns the cell's settings of the kinds of the documents, and those that these are judged against, at this moment.
    async fn standing(
        documents: &Documents,
        client: &Client,
        context: &Context,
    ) -> Result<(Standing, i64), Failure> {
        let kinds = documents.kinds();
        let names = kinds.flat_map(|kind| {
            manifest::judged_by(kind)
                .iter()
                .copied()
                .chain([kind.setting()])
        });
        let names: BTreeSet<&str> = names.collect();
        let mut views: Vec<SettingView> = Vec::new();
        for name in names {
            views.extend(settings::views(client, name, "").await?);
        }
        let now_ms = context.clock().now_ms();
        let standing = Standing::of(&views, now_ms).map_err(|wrong| {
            format!(
                "this version does not understand a setting of the cell: {}",
                wrong.why
            )
        })?;
        Ok((standing, now_ms))
    }
}

/// Adds the change of the bill to each rate that corrects the past.
async fn explain_corrections(plan: &mut manifest::Plan, context: &Context) {
    let corrections = plan.steps.iter_mut().filter_map(|step| match &step.send {
        Some(Send {
            change: Change::Rate(set),
            ..
        }) if set.correction => Some((&mut step.why, set)),
        _ => None,
    });
    for (why, set) in corrections {
        *why = Some(match correction(set, context).await {
            Ok(said) => said,
            Err(failure) => {
                format!("it changes lines of the bill; by how much is not known here: {failure}")
            }
        });
    }
}

async fn correction(set: &v1::SetRate, context: &Context) -> Result<String, Failure> {
    let name = |name: &String| match name.as_str() {
        "" => Ok(None),
        name => Token::new(name).map(Some),
    };
    let resource = ResourceKey::parse(&set.resource).ok_or("no such resource")?;
    let scope = RateScope {
        tenant: name(&set.tenant)?,
        priority_class: name(&set.priority_class)?,
        pool: name(&set.pool)?,
        cluster: name(&set.cluster)?,
    };
    let price = u64::try_from(set.micro_per_unit_hour)?;
    let store = context.usage().await?;
    let corrected = store.corrected(&RateKey { resource, scope }, price).await?;
    Ok(format!(
        "use of the past is charged {}, and would be charged {} {}",
        amount::money(corrected.before_micro),
        amount::money(corrected.after_micro),
        store.currency().await?
    ))
}

/// How long the cell is asked for what a file with faults names.
const WITH_FAULTS: Duration = Duration::from_secs(3);

/// Of files alone.
fn faulty_alone(faults: &[manifest::Fault], why: &str) -> Failure {
    note!("what they name was not looked at: {why}");
    faulty(faults)
}

fn faulty(faults: &[impl ToString]) -> Failure {
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    Failure::faulty(&faults, "nothing was changed")
}

/// What is to be done, and by whom.
struct Planned {
    plan: manifest::Plan,
    client: Client,
    directory: Option<Directory>,
}

impl Plan {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let planned = self.files.planned(None, context).await?;
        page(&planned.plan, planned.directory.as_ref()).print(self.output)
    }
}

impl Apply {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let Planned {
            plan,
            client,
            directory,
        } = self.files.planned(Some(&self.sending), context).await?;
        page(&plan, directory.as_ref()).print(self.output)?;
        if plan.sends().next().is_some() {
            self.consent(&plan)?;
            self.send(&plan, &client).await?;
        }
        // After its settings: it may say nothing before its limits hold.
        let tenants = tenants(&plan);
        if let Some(mut directory) = directory
            && !tenants.is_empty()
        {
            let said = bus::let_in(&mut directory, &tenants, context).await?;
            said.iter().for_each(|line| note!("{line}"));
        }
        Ok(())
    }

    /// What is taken back is taken back by somebody's will.
    fn consent(&self, plan: &manifest::Plan) -> Result<(), Failure> {
        let taken = plan.count(Action::Delete) + plan.count(Action::Close);
        if taken == 0 || self.yes {
            return Ok(());
        }
        if !io::stdin().is_terminal() {
            return Err(Failure::usage(format!(
                "this takes back {taken} of what is set: say --yes"
            )));
        }
        note!("take back {taken} of what is set, and do the rest? Write yes:");
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        match answer.trim() {
            "yes" => Ok(()),
            _ => Err(Failure::usage("nothing was changed")),
        }
    }

    async fn send(&self, plan: &manifest::Plan, client: &Client) -> Result<(), Failure> {
        let all = plan.sends().count();
        let base = self.sending.base();
        let mut newest: BTreeMap<(Kind, &str), u64> = BTreeMap::new();
        for (done, (step, send)) in plan.sends().enumerate() {
            let counter = (step.kind, send.counter.as_str());
            // Of what shares its version, the plan's own changes count on.
            let expected = newest.get(&counter).copied().unwrap_or(send.version);
            let change = manifest::expecting(send.change.clone(), expected);
            let title = format!("{} {}", step.kind.name(), step.key);
            let id = operation_id(&base, step, &change);
            note!("operation {id}: {title}");
            match set(client, change, id).await {
                Ok(applied) => {
                    note!("{title}: version {}", applied.version);
                    newest.insert(counter, applied.version);
                }
                Err(failed) => {
                    let failure = failure(&title, failed);
                    if done == 0 {
                        return Err(failure);
                    }
                    note!("{done} of {all} changes are done; apply again to do the rest");
                    return Err(failure.afterwards());
                }
            }
        }
        seen(client).await;
        Ok(())
    }
}

/// Waits until the cell reports all settings that this connection has changed, also to others.
pub async fn seen(client: &Client) {
    let query = SettingsQuery {
        limit: 1,
        ..SettingsQuery::default()
    };
    if client.settings(&query).await.is_err() {
        note!("all is set; the cell may report it later");
    }
}

fn failure(title: &str, failed: Failed) -> Failure {
    match failed {
        Failed::Refused(refused) => {
            let rule = refused.refusal.as_ref().map(v1::Refusal::rule);
            let explanation = &refused.explanation;
            Failure::refused(match rule {
                Some(v1::Rule::VersionConflict) => {
                    format!(
                        "{title}: it is not as the plan has seen it any more; plan again ({explanation})"
                    )
                }
                _ => format!("{title}: refused: {explanation}"),
            })
        }
        other => {
            note!(
                "{title}: without an outcome; what was done is not done again when the file is applied again"
            );
            other.into()
        }
    }
}

/// The same for the same change of the same version in one apply, so that whoever repeats it with its id repeats this.
fn operation_id(base: &str, step: &Step, change: &Change) -> String {
    let view = SettingView {
        change: Some(change.clone()),
        ..SettingView::default()
    };
    let mut digest = Sha256::new();
    for part in [base, step.kind.name(), &step.key] {
        digest.update(part);
        digest.update([0]);
    }
    digest.update(view.encode_to_vec());
    HEXLOWER.encode(&digest.finalize()[..16])
}

/// Sends a change by the verb that it is of.
pub async fn set(client: &Client, change: Change, id: String) -> Result<v1::Applied, Failed> {
    match change {
        Change::Tenant(set) => client.set_tenant(set, id).await,
        Change::Quota(set) => client.set_quota(set, id).await,
        Change::Rate(set) => client.set_rate(set, id).await,
        Change::Queue(set) => client.set_queue(set, id).await,
        Change::PriorityClass(set) => client.set_priority_class(set, id).await,
        Change::Scheduling(set) => client.set_scheduling(set, id).await,
        Change::Cordon(set) => client.set_cordon(set, id).await,
        Change::Reservation(set) => client.set_reservation(set, id).await,
        Change::Budget(set) => client.set_budget(set, id).await,
        Change::Taints(set) => client.set_taints(set, id).await,
        Change::Node(set) => client.set_node(set, id).await,
        Change::Period(set) => client.close_period(set, id).await,
    }
}

/// Those that the files have, and that stand in the cell then.
fn tenants(plan: &manifest::Plan) -> BTreeSet<&str> {
    let stays = |step: &&Step| {
        step.kind == Kind::Tenant
            && matches!(
                step.action,
                Action::Create | Action::Change | Action::Unchanged
            )
    };
    let steps = plan.steps.iter().filter(stays);
    steps.map(|step| step.key.as_str()).collect()
}

/// What is as it should be is counted and not shown.
fn page(plan: &manifest::Plan, directory: Option<&Directory>) -> Page {
    let counts = [
        (Action::Create, "to create"),
        (Action::Change, "to change"),
        (Action::Delete, "to delete"),
        (Action::Close, "to close"),
        (Action::Kept, "that cannot be deleted"),
        (Action::Over, "over and left out"),
        (Action::Unchanged, "unchanged"),
    ];
    let counts = counts.map(|(action, title)| (plan.count(action), title));
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts
        .map(|(count, title)| format!("{count} {title}"))
        .collect();
    let known = directory.map(|directory| &directory.plan().tenants);
    let newcomers = tenants(plan).into_iter().filter(|tenant| {
        let known = known.map(|known| known.contains(*tenant));
        known == Some(false)
    });
    let newcomers: Vec<&str> = newcomers.collect();
    let value = object([
        ("steps", plan.steps.iter().map(json).collect()),
        ("bus_accounts", newcomers.clone().into()),
    ]);
    let columns = vec![
        column("action", "action"),
        column("kind", "kind"),
        column("key", "key"),
        column("field", "field"),
        column("from", "from"),
        column("to", "to"),
    ];
    let sends = plan.sends().flat_map(|(step, _)| rows(step));
    let sheet = Sheet::new(columns, 6, sends.collect());
    let said = plan.steps.iter().filter_map(|step| {
        let why = step.why.as_ref()?;
        Some(format!("{} {}: {why}", step.kind.name(), step.key))
    });
    let newcomers = newcomers.iter();
    let newcomers = newcomers.map(|tenant| format!("tenant {tenant} gets an account of the bus"));
    Page::new(value)
        .sheet_or(sheet, "nothing to change")
        .lines(said)
        .lines(newcomers)
        .text(counts.join(", "))
}

fn rows(step: &Step) -> Vec<Vec<Cell>> {
    let row = |field: &str, from: Cell, to: Cell| {
        let (action, kind) = (plain(step.action.name()), plain(step.kind.name()));
        vec![action, kind, plain(&step.key), named(field), from, to]
    };
    let value = |value: &Value| valued(manifest::text(value), value.clone());
    let differences = step.differences.iter();
    let rows: Vec<_> = differences
        .map(|one| row(&one.field, value(&one.from), value(&one.to)))
        .collect();
    match rows.is_empty() {
        true => vec![row("", named(""), named(""))],
        false => rows,
    }
}

fn json(step: &Step) -> Value {
    let difference = |one: &manifest::Difference| {
        object([
            ("field", one.field.as_str().into()),
            ("from", one.from.clone()),
            ("to", one.to.clone()),
        ])
    };
    let version = |send: &Send| send.version;
    object([
        ("action", step.action.name().into()),
        ("kind", step.kind.name().into()),
        ("key", step.key.as_str().into()),
        ("version", step.send.as_ref().map(version).into()),
        ("fields", step.differences.iter().map(difference).collect()),
        ("why", step.why.as_deref().into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print::Form;

    fn plan(text: &str) -> manifest::Plan {
        let documents = manifest::read([("f", text)]);
        manifest::plan(&documents, &Standing::default(), true, 0).unwrap()
    }

    const FILE: &str = "kind: Cordon\nnode: n\n---\nkind: Tenant\ntenant: a\nweight: 2\ncohort: c\n---\n\
                        kind: Cordon\nnode: m\ncordoned: false\n";

    #[test]
    fn a_plan_tells_what_changes_and_counts_the_rest() {
        let page = page(&plan(FILE), None);
        let table = "action  kind    key  field   from  to\n\
                     create  Tenant  a    cohort  none  c\n\
                     create  Tenant  a    weight  none  2\n\
                     create  Cordon  n    -       -     -\n\
                     2 to create, 1 unchanged\n";
        assert_eq!(page.written(Form::Table).unwrap(), table);
        let json: Value = serde_json::from_str(&page.written(Form::Json).unwrap()).unwrap();
        assert_eq!(json["steps"][0]["fields"][1]["to"], 2);
        assert_eq!(json["steps"][0]["version"], 0);
        assert_eq!(json["steps"][1]["action"], "unchanged");
        let csv = "action,kind,key,field,from,to\ncreate,Tenant,a,cohort,,c\ncreate,Tenant,a,weight,,2\ncreate,Cordon,n,,,\n";
        assert_eq!(page.written(Form::Csv).unwrap(), csv);
    }

    #[test]
    fn an_operation_is_the_same_if_its_change_is() {
        let ids = |base: &str, file: &str, version| -> BTreeSet<String> {
            let plan = plan(file);
            let id = |(step, send): (&Step, &Send)| {
                operation_id(
                    base,
                    step,
                    &manifest::expecting(send.change.clone(), version),
                )
            };
            plan.sends().map(id).collect()
        };
        let all = ids("o", FILE, 0);
        assert_eq!(all.len(), 2);
        assert_eq!(all, ids("o", FILE, 0));
        assert!(all.iter().all(|id| id.len() == 32));
        for other in [
            ids("p", FILE, 0),
            ids("o", FILE, 1),
            ids("o", &FILE.replace("c\n", "d\n"), 0),
        ] {
            assert_ne!(all, other);
        }
    }
}
