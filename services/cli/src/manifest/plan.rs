//! What a file would change: its settings laid over those that stand, and what would come from one to the other.

use super::{
    fields::{self, Fields, Wrong, did_you_mean},
    kind::{self, Kind, Setting},
    read::{Document, Documents, Fault},
    units::Moment,
};
use admission::query::change_request;
use admission_rules::SettingsTrial;
use schemas::v1::{SettingView, setting_view::Change};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use vocab::{Account, Millis, Refusal, Team};

/// What stands in the cell.
#[derive(Debug, Default)]
pub struct Standing {
    settings: BTreeMap<(Kind, String), Stands>,
    /// The newest version of what shares one.
    versions: BTreeMap<(Kind, String), u64>,
    /// All settings as the cell reports them, with their versions.
    reported: Vec<(Change, u64)>,
}

#[derive(Debug, Clone)]
struct Stands {
    change: Change,
    rank: (i64, u64),
    is_over: bool,
}

/// Of what has one name, the highest holds: since when, and the version.
pub fn rank(view: &SettingView, change: &Change) -> (i64, u64) {
    (since(change, view.set_at_ms), view.version)
}

/// Since when it holds, where limits for good may have taken the place of others.
fn since(change: &Change, set_at_ms: i64) -> i64 {
    match change {
        Change::Quota(set) if set.until_ms.is_none() => set.from_ms.unwrap_or(set_at_ms),
        _ => 0,
    }
}

impl Standing {
    pub fn of(views: &[SettingView], now_ms: i64) -> Result<Self, Wrong> {
        let mut standing = Self::default();
        for view in views {
            let Some(mut change) = view.change.clone() else {
                continue;
            };
            standing.reported.push((change.clone(), view.version));
            let Some(kind) = Kind::of(&change) else {
                continue;
            };
            let rank = rank(view, &change);
            kind::begin(&mut change, now_ms);
            let setting = Setting(&change);
            let is_over = setting.is_over(now_ms);
            let key = setting.key(now_ms)?;
            let counter = setting.counter().unwrap_or_else(|| key.clone());
            let newest = standing.versions.entry((kind, counter)).or_default();
            *newest = view.version.max(*newest);
            let stands = Stands {
                change,
                rank,
                is_over,
            };
            // Limits for good and those that were planned and have begun have one name.
            let known = standing
                .settings
                .entry((kind, key))
                .or_insert_with(|| stands.clone());
            if known.rank < stands.rank {
                *known = stands;
            }
        }
        Ok(standing)
    }

    /// What holds, or is to come, of each name.
    pub fn present(&self) -> impl Iterator<Item = &Change> {
        let names = self.settings.keys();
        names.filter_map(|(kind, key)| self.get(*kind, key))
    }

    /// What was set last and is not over; it may say that nothing is there.
    fn last(&self, kind: Kind, key: &str) -> Option<&Change> {
        let stands = self.settings.get(&(kind, key.to_owned()))?;
        (!stands.is_over).then_some(&stands.change)
    }

    pub fn get(&self, kind: Kind, key: &str) -> Option<&Change> {
        let is_there = |change: &&Change| !Setting(change).is_absent();
        self.last(kind, key).filter(is_there)
    }

    /// Admission's rules with the settings that the cell reports.
    fn trial(&self) -> Result<SettingsTrial, Refusal> {
        let mut trial = SettingsTrial::default();
        for (change, version) in &self.reported {
            trial.stands(&change_request(change)?, *version)?;
        }
        Ok(trial)
    }

    fn version(&self, kind: Kind, counter: &str) -> u64 {
        let version = self.versions.get(&(kind, counter.to_owned()));
        version.copied().unwrap_or(0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Create,
    Change,
    /// It is not in the file.
    Delete,
    /// It is not in the file, and stays without accepting anything new.
    Close,
    Unchanged,
    /// It is for a time that is over.
    Over,
    /// It is not in the file, and cannot be taken back.
    Kept,
}

impl Action {
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Change => "change",
            Self::Delete => "delete",
            Self::Close => "close",
            Self::Unchanged => "unchanged",
            Self::Over => "over",
            Self::Kept => "cannot be deleted",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    pub field: String,
    pub from: Value,
    pub to: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub action: Action,
    pub kind: Kind,
    pub key: String,
    pub differences: Vec<Difference>,
    /// What there is to say of it.
    pub why: Option<String>,
    /// What would be sent; none: nothing.
    pub send: Option<Send>,
}

/// A change, and what it is a change of.
#[derive(Debug, Clone, PartialEq)]
pub struct Send {
    pub change: Change,
    /// What shares its version with others.
    pub counter: String,
    /// The newest version of it that the plan saw; 0: there was none.
    pub version: u64,
}

/// What a file would change, in the order in which it is done.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    pub steps: Vec<Step>,
}

impl Plan {
    pub fn count(&self, action: Action) -> usize {
        self.steps
            .iter()
            .filter(|step| step.action == action)
            .count()
    }

    pub fn sends(&self) -> impl Iterator<Item = (&Step, &Send)> {
        self.steps
            .iter()
            .filter_map(|step| Some((step, step.send.as_ref()?)))
    }
}

/// What the documents would change of what stands; with `prune`, of the kinds that the documents have, also what only stands.
/// Otherwise all that is wrong with them, by admission's own rules: each change is judged against the state that the changes before it
/// leave.
pub fn plan(
    documents: &Documents,
    standing: &Standing,
    prune: bool,
    now_ms: i64,
) -> Result<Plan, Vec<String>> {
    let (mut steps, mut faults) = (Vec::new(), documents.faults());
    let mut named: BTreeMap<(Kind, String), &Document> = BTreeMap::new();
    let mut is_whole = documents.is_whole;
    // Of what is misspelt it is not known what would be set, and so neither what is missing nor what is there twice.
    let mut misspelt = Vec::new();
    for document in &documents.all {
        let is_misspelt = !document.unknown.is_empty();
        let key = match document.kind.key(&document.fields, now_ms) {
            Ok(key) => key,
            Err(wrong) => {
                if !(is_misspelt && wrong.is_missing()) {
                    faults.push(document.fault(&wrong));
                }
                is_whole = false;
                continue;
            }
        };
        let id = (document.kind, key.clone());
        if is_misspelt {
            misspelt.push((id, document));
            continue;
        }
        let Some(other) = named.insert(id.clone(), document) else {
            continue;
        };
        // Of limits that have begun, those that began last hold.
        let (later, earlier) = match begins(document) >= begins(other) {
            true => (document, other),
            false => (other, document),
        };
        if begins(later) == begins(earlier) {
            let why = format!("{key} is set by {} already", other.title());
            faults.push(document.fault(&Wrong::new("", why)));
        }
        named.insert(id, later);
        let why = format!(
            "{} holds in the place of {}",
            later.title(),
            earlier.title()
        );
        steps.push(Step::still(Action::Over, document.kind, &key, Some(why)));
    }
    let mut faulty = BTreeSet::new();
    for (id, document) in &named {
        match wanted(document, &id.1, standing, now_ms) {
            Ok(step) => steps.push(step),
            Err(wrong) => {
                faulty.insert(id.clone());
                faults.push(document.fault(&wrong));
            }
        }
    }
    for (id, document) in misspelt {
        if let Err(wrong) = wanted(document, &id.1, standing, now_ms)
            && !wrong.is_missing()
        {
            faults.push(document.fault(&wrong));
        }
        faulty.insert(id.clone());
        named.entry(id).or_insert(document);
    }
    let parents = parents(&steps);
    steps.sort_by_cached_key(|step| (step.kind, depth(&parents, step), step.key.clone()));
    let mut trial = standing.trial().map_err(|refusal| {
        let why = refusal.explanation();
        vec![format!(
            "this version does not understand a setting of the cell: {why}"
        )]
    })?;
    // Without some of the documents it is unknown what the others may name.
    if is_whole {
        let names = Names {
            named: &named,
            faulty: &faulty,
            standing,
        };
        let unmet = names.unmet(&steps);
        faulty.extend(unmet.iter().map(|(id, _)| id.clone()));
        faults.extend(unmet.into_iter().map(|(_, fault)| fault));
        for step in &steps {
            let id = (step.kind, step.key.clone());
            let (Some(send), Some(document)) = (&step.send, named.get(&id)) else {
                continue;
            };
            let is_unsure = faulty.contains(&id) || names_any(&send.change, &faulty);
            if is_unsure {
                faulty.insert(id);
            } else if let Err(wrong) = judge(&mut trial, step.kind, send, now_ms) {
                faulty.insert(id);
                faults.push(document.fault(&wrong));
            }
        }
    }
    if !faults.is_empty() {
        faults.sort();
        return Err(faults.iter().map(Fault::to_string).collect());
    }
    if prune {
        let kinds: BTreeSet<Kind> = documents.kinds().collect();
        let only = standing.settings.iter().rev();
        let only = only.filter(|(id, _)| kinds.contains(&id.0) && !named.contains_key(id));
        let only = only.filter_map(|((kind, key), _)| {
            let change = standing.get(*kind, key)?;
            Some(pruned(*kind, key, change, standing))
        });
        for step in only {
            let step = step.map_err(|wrong| vec![wrong.why])?;
            if let Some(send) = &step.send {
                judge(&mut trial, step.kind, send, now_ms).map_err(|wrong| {
                    vec![format!("{} {}: {}", step.kind.name(), step.key, wrong.why)]
                })?;
            }
            steps.push(step);
        }
    }
    Ok(Plan { steps })
}

/// Judges a change as admission does, at the field of a file that is meant.
fn judge(trial: &mut SettingsTrial, kind: Kind, send: &Send, now_ms: i64) -> Result<(), Wrong> {
    let request = change_request(&send.change);
    let judged = request.and_then(|request| trial.judge(&request, Millis(now_ms)));
    judged.map(drop).map_err(|refusal| refused(kind, &refusal))
}

/// Checks the rules that need no state.
fn readable(kind: Kind, change: &Change, now_ms: i64) -> Result<(), Wrong> {
    let request = change_request(change);
    let read = request.and_then(|request| request.read(Millis(now_ms)));
    read.map(drop).map_err(|refusal| refused(kind, &refusal))
}

/// Fields that have another name in a request.
const RENAMED: [(&str, &str); 10] = [
    ("allocations_max", "backlog"),
    ("burst_ms", "burst_for"),
    ("limit", "hard"),
    ("micro_per_unit_hour", "price"),
    ("period", "per"),
    ("priority_class", "class"),
    ("priority_classes", "classes"),
    ("rate_burst", "burst"),
    ("selector", "node_labels"),
    ("tenant", "account"),
];

/// The field that a refusal is about, where a file has it.
fn refused(kind: Kind, refusal: &Refusal) -> Wrong {
    let subject = refusal.subject.split([' ', '.']).next();
    let subject = subject.unwrap_or_default();
    let parts = subject.split('_');
    let parts = parts.filter(|part| !["ms", "milli", "bytes"].contains(part));
    let without_units = parts.collect::<Vec<_>>().join("_");
    let renamed = RENAMED.iter().find(|(name, _)| *name == subject);
    let renamed = renamed.map(|(_, field)| *field);
    let mut names = [Some(subject), renamed, Some(&without_units)]
        .into_iter()
        .flatten();
    let field = names.find(|name| kind.field_names().contains(name));
    Wrong::new(field.unwrap_or_default(), refusal.explanation())
}

/// Returns the settings that a change names: the field, the kinds of which one has to be set, and the name.
fn named_in(change: &Change) -> Vec<(&'static str, &'static [Kind], &str)> {
    const CLASS: &[Kind] = &[Kind::PriorityClass];
    const QUEUE: &[Kind] = &[Kind::Queue];
    const TENANT: &[Kind] = &[Kind::Tenant];
    // A tenant has a queue of its name.
    const QUEUE_OR_TENANT: &[Kind] = &[Kind::Queue, Kind::Tenant];
    let mut all = Vec::new();
    match change {
        Change::Tenant(set) => {
            let classes = set.priority_classes.iter();
            all.extend(classes.map(|class| ("classes", CLASS, &**class)));
        }
        Change::Quota(set) => all.push(("account", TENANT, &set.tenant)),
        Change::Budget(set) => all.push(("account", TENANT, &set.tenant)),
        Change::Queue(set) => {
            all.push(("parent", QUEUE, &set.parent));
            let tenants = set.tenants.iter();
            all.extend(tenants.map(|tenant| ("tenants", TENANT, &**tenant)));
        }
        Change::Rate(set) => all.extend([
            ("tenant", TENANT, &*set.tenant),
            ("priority_class", CLASS, &*set.priority_class),
        ]),
        Change::Reservation(set) => {
            let queue = set.wanted.as_ref().map(|wanted| &*wanted.queue);
            all.extend(queue.map(|queue| ("queue", QUEUE_OR_TENANT, queue)));
        }
        _ => {}
    }
    all.retain(|(_, _, name)| !name.is_empty());
    all
}

/// Returns whether a change names any of these settings.
fn names_any(change: &Change, faulty: &BTreeSet<(Kind, String)>) -> bool {
    let is_faulty = |kinds: &[Kind], name: &str| {
        let mut ids = kinds.iter().map(|kind| (*kind, name.to_owned()));
        ids.any(|id| faulty.contains(&id))
    };
    let mut named = named_in(change).into_iter();
    named.any(|(_, kinds, name)| is_faulty(kinds, name))
}

/// The bus's names of further settings that changes of this kind are judged against.
pub fn judged_by(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Tenant => &["priority_class"],
        Kind::Quota | Kind::Budget | Kind::Queue => &["tenant"],
        Kind::Rate => &["tenant", "priority_class", "period"],
        Kind::Reservation => &["queue", "tenant"],
        Kind::PriorityClass | Kind::Scheduling | Kind::Cordon | Kind::Taints => &[],
    }
}

/// The names that there will be: those of the documents, and those that stand.
struct Names<'a> {
    named: &'a BTreeMap<(Kind, String), &'a Document>,
    /// Those of the documents that do not say what will be there.
    faulty: &'a BTreeSet<(Kind, String)>,
    standing: &'a Standing,
}

impl Names<'_> {
    fn is_there(&self, kinds: &[Kind], name: &str) -> bool {
        kinds.iter().any(|kind| {
            let id = (*kind, name.to_owned());
            self.named.contains_key(&id) || self.standing.get(*kind, name).is_some()
        })
    }

    /// Of those that there will be, the one that was probably meant by a step.
    fn meant(&self, step: &Step, kinds: &[Kind], name: &str) -> String {
        let stand = self.standing.settings.keys();
        let stand = stand.filter(|(of, key)| self.standing.get(*of, key).is_some());
        let all = self.named.keys().chain(stand);
        let others = all.filter(|(of, key)| {
            let is_itself = step.kind == *of && step.key == *key;
            kinds.contains(of) && !is_itself
        });
        did_you_mean(name, others.map(|(_, key)| key.as_str()))
    }

    /// What the steps would newly name that is set neither in the cell nor by the documents, each where it is named.
    fn unmet(&self, steps: &[Step]) -> Vec<((Kind, String), Fault)> {
        let mut faults = Vec::new();
        for step in steps {
            let id = (step.kind, step.key.clone());
            let (Some(send), Some(document)) = (&step.send, self.named.get(&id)) else {
                continue;
            };
            let mut fault = |field: &str, why: String| {
                faults.push((id.clone(), document.fault(&Wrong::new(field, why))));
            };
            // What has a version of some time may change.
            if let Some(account) = team_of(&send.change)
                && send.version == 0
                && let Some(why) = self.not_among_teams(steps, &account)
            {
                fault("account", why);
            }
            // What stands may name what the file does not speak of.
            let stands = self.standing.get(step.kind, &step.key);
            let named_already = stands.map(named_in).unwrap_or_default();
            for (field, kinds, name) in named_in(&send.change) {
                if self.is_there(kinds, name) || named_already.contains(&(field, kinds, name)) {
                    continue;
                }
                let of: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
                let (of, meant) = (of.join(" or "), self.meant(step, kinds, name));
                fault(
                    field,
                    format!("there is no {of} {name}, neither in the cell nor in the files{meant}"),
                );
            }
        }
        faults
    }

    fn not_among_teams(&self, steps: &[Step], account: &Account) -> Option<String> {
        let tenant = account.tenant.as_str();
        if self.faulty.contains(&(Kind::Tenant, tenant.to_owned())) {
            return None;
        }
        let changes = steps.iter().filter_map(|step| step.send.as_ref());
        let planned = changes.map(|send| &send.change);
        let mut planned = planned.filter_map(|change| match change {
            Change::Tenant(set) if set.tenant == tenant => Some(&set.teams),
            _ => None,
        });
        let stands = self.standing.get(Kind::Tenant, tenant);
        let stands = stands.and_then(|change| match change {
            Change::Tenant(set) => Some(&set.teams),
            _ => None,
        });
        let teams = planned.next().or(stands)?;
        not_among(teams, account)
    }
}

/// Why a tenant that has these teams lets none of this account's in; none: it lets it in.
pub fn not_among(teams: &[String], account: &Account) -> Option<String> {
    if teams.is_empty() || teams.iter().any(|it| covers(it, account)) {
        return None;
    }
    let said = account.to_string();
    let said = said.split_once('/').map_or("", |(_, team)| team);
    let meant = match teams {
        // It is said.
        [_] => String::new(),
        _ => did_you_mean(said, teams.iter().map(String::as_str)),
    };
    let (tenant, teams) = (&account.tenant, teams.join(", "));
    Some(format!(
        "it is not among the teams of {tenant}, which are {teams}{meant}"
    ))
}

/// The account below a tenant that limits or a budget are of.
fn team_of(change: &Change) -> Option<Account> {
    let (tenant, team, namespace) = match change {
        Change::Quota(set) if !set.unlimited => (&set.tenant, &set.team, &set.namespace),
        Change::Budget(set) if set.amount.is_some() => (&set.tenant, &set.team, &set.namespace),
        _ => return None,
    };
    let account = kind::account_of(tenant, team, namespace).ok()?;
    account.team.is_some().then_some(account)
}

fn covers(listed: &str, account: &Account) -> bool {
    match (Team::parse(listed), &account.team) {
        (Some(listed), Some(team)) => listed.covers(team, account.namespace.as_ref()),
        _ => false,
    }
}

/// When what it says begins to hold, if it says so and that is a moment.
fn begins(document: &Document) -> Option<i64> {
    let from = fields::one::<Moment>(&document.fields, "from")
        .ok()
        .flatten();
    from.map(|from| from.0)
}

/// What would set what stands with these fields laid over it, and the fields that stand.
fn laid_over(
    kind: Kind,
    key: &str,
    said: &Fields,
    standing: &Standing,
) -> Result<(Option<Fields>, Change), Wrong> {
    let current = standing.get(kind, key);
    let before = current
        .map(|current| Setting(current).fields())
        .transpose()?;
    let mut after = before.clone().unwrap_or_default();
    fields::merge(&mut after, said);
    Ok((before, kind.read(&after)?))
}

/// Settles when a change counts from.
fn settled(
    mut change: Change,
    (kind, key): (Kind, &str),
    said: &Fields,
    standing: &Standing,
    now_ms: i64,
) -> Result<Change, Wrong> {
    kind::begin(&mut change, now_ms);
    kind::settle(&mut change, standing.last(kind, key), said, now_ms)?;
    Ok(change)
}

/// What would be sent to change these fields of one setting.
pub fn patched(kind: Kind, said: &Fields, standing: &Standing, now_ms: i64) -> Result<Send, Wrong> {
    let key = kind.key(said, now_ms)?;
    let (_, change) = laid_over(kind, &key, said, standing)?;
    let change = settled(change, (kind, &key), said, standing, now_ms)?;
    Ok(standing.send(kind, &key, change))
}

/// What one document changes.
fn wanted(document: &Document, key: &str, standing: &Standing, now_ms: i64) -> Result<Step, Wrong> {
    let kind = document.kind;
    let said = &document.fields;
    let (before, change) = laid_over(kind, key, said, standing)?;
    if Setting(&change).is_over(now_ms) {
        return Ok(Step::still(Action::Over, kind, key, None));
    }
    let change = settled(change, (kind, key), said, standing, now_ms)?;
    let setting = Setting(&change);
    let after = setting.fields()?;
    let action = match (&before, setting.is_absent()) {
        (None, true) => Action::Unchanged,
        (Some(before), _) if *before == after => Action::Unchanged,
        (Some(_), _) => Action::Change,
        (None, false) => Action::Create,
    };
    let differences = match (action, before) {
        (Action::Change, Some(before)) => differing(&before, &after),
        // What is new differs from nothing: what the file says of it is told.
        (Action::Create, _) => {
            let named_by = kind.named_by();
            let said = after.into_iter().filter(|(name, _)| {
                document.fields.contains_key(name) && !named_by.contains(&name.as_str())
            });
            differing(&Fields::new(), &said.collect())
        }
        _ => Vec::new(),
    };
    if action == Action::Unchanged {
        return Ok(Step::still(action, kind, key, None));
    }
    readable(kind, &change, now_ms)?;
    Ok(Step {
        action,
        kind,
        key: key.to_owned(),
        differences,
        why: None,
        send: Some(standing.send(kind, key, change)),
    })
}

/// Field by field.
fn differing(before: &Fields, after: &Fields) -> Vec<Difference> {
    let (before, after) = (fields::flat(before), fields::flat(after));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let value =
        |of: &BTreeMap<String, Value>, name: &String| of.get(name).cloned().unwrap_or(Value::Null);
    let both = names.into_iter().map(|name| Difference {
        field: name.clone(),
        from: value(&before, name),
        to: value(&after, name),
    });
    both.filter(|difference| difference.from != difference.to)
        .collect()
}

fn pruned(kind: Kind, key: &str, current: &Change, standing: &Standing) -> Result<Step, Wrong> {
    let change = match Setting(current).taken_back() {
        Err(why) => return Ok(Step::still(Action::Kept, kind, key, Some(why.to_owned()))),
        Ok(change) if change == *current => {
            return Ok(Step::still(Action::Unchanged, kind, key, None));
        }
        Ok(change) => change,
    };
    let (action, differences) = match Setting(&change).is_absent() {
        true => (Action::Delete, Vec::new()),
        false => {
            let both = (Setting(current).fields()?, Setting(&change).fields()?);
            (Action::Close, differing(&both.0, &both.1))
        }
    };
    let send = Some(standing.send(kind, key, change));
    Ok(Step {
        differences,
        send,
        ..Step::still(action, kind, key, None)
    })
}

impl Standing {
    fn send(&self, kind: Kind, key: &str, change: Change) -> Send {
        let counter = Setting(&change).counter().unwrap_or_else(|| key.to_owned());
        let version = self.version(kind, &counter);
        Send {
            change,
            counter,
            version,
        }
    }
}

impl Step {
    /// Nothing is sent.
    fn still(action: Action, kind: Kind, key: &str, why: Option<String>) -> Self {
        Self {
            action,
            kind,
            key: key.to_owned(),
            differences: Vec::new(),
            why,
            send: None,
        }
    }
}

/// The queues above those that are set.
fn parents(steps: &[Step]) -> BTreeMap<String, String> {
    let parent = |step: &Step| match &step.send.as_ref()?.change {
        Change::Queue(set) => Some((set.queue.clone(), set.parent.clone())),
        _ => None,
    };
    steps.iter().filter_map(parent).collect()
}

/// Counts the planned queues above a queue. A cycle has an end here; it is refused later.
fn depth(parents: &BTreeMap<String, String>, step: &Step) -> usize {
    if step.kind != Kind::Queue {
        return 0;
    }
    let above = std::iter::successors(parents.get(&step.key), |parent| parents.get(*parent));
    above.take(parents.len()).count()
}
