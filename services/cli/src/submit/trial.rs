//! What would become of a request: as the inbox, quota and the scheduler say it, one after the other. Nothing is recorded.

use crate::{
    Failure, amount,
    explain::{keeps_off, lent_lines, lent_value, object, of_refusal, quota_short, waits},
    print::{Cell, Output, Page, Sheet, column, earliest, exactly, named, plain, valued},
};
use client::{
    Client, Failed, QueryError, TryPlaceQuery, TryPlaceReply, TryQuotaQuery, TryQuotaReply,
};
use schemas::v1::{
    self, AllocationSpec, NodesKeptOff, PlaceTrialWaiting, QuotaTrialLimit, QuotaTrialReserved,
    QuotaTrialWaiting, place_trial::Decided as Placing, quota_trial::Decided as Reserving,
};
use serde_json::Value;
use vocab::{Filter, QuotaResource, Refusal, ResourceKind, Rule, WaitingReason};

/// Of a cell whose inbox does not say what would be asked for.
const INBOX_ALONE: &str = "it would be accepted: it breaks no rule of the inbox. Nothing was recorded, and quota and the scheduler \
                           were not asked: this cell's services do not answer that yet.";

/// What one of the two that come after the inbox has said.
enum Judged<R> {
    So(R),
    /// It does not judge such a request.
    Not(v1::Refusal),
}

impl<R> Judged<R> {
    fn of(said: Result<R, QueryError>) -> Result<Self, QueryError> {
        let unjudged = |error: &QueryError| {
            matches!(error.rule(), Some(Rule::NotSupported | Rule::UnknownVerb))
        };
        match said {
            Ok(said) => Ok(Self::So(said)),
            Err(error) if unjudged(&error) => match error {
                QueryError::Refused(refusal) => Ok(Self::Not(refusal)),
                error => Err(error),
            },
            Err(error) => Err(error),
        }
    }
}

/// What the two say that come after the inbox.
struct Trial {
    /// Of its gang; 1 without one.
    size: u32,
    quota: Judged<TryQuotaReply>,
    place: Judged<TryPlaceReply>,
}

/// Of one that would be asked for.
async fn judged(client: &Client, spec: AllocationSpec) -> Result<Trial, Failure> {
    let size = spec.gang.as_ref().map_or(1, |gang| gang.size);
    let quota = TryQuotaQuery {
        spec: Some(spec.clone()),
        ..TryQuotaQuery::default()
    };
    let quota = Judged::of(client.try_quota(&quota).await)?;
    let place = TryPlaceQuery {
        except_models: except_models(&quota),
        spec: Some(spec),
        at_lsn: 0,
    };
    let place = Judged::of(client.try_place(&place).await)?;
    Ok(Trial { size, quota, place })
}

/// Asks all three and shows what they say. Refused by one of them, it fails as a refused request does.
pub async fn run(client: &Client, submit: v1::Submit, output: Output) -> Result<(), Failure> {
    let passes = client.try_submit(submit).await?;
    let Some(spec) = passes.spec.map(|spec| *spec) else {
        let value = object([("inbox", object([("decided", "accepted".into())]))]);
        return Page::new(value).text(INBOX_ALONE).print(output);
    };
    let Trial { size, quota, place } = judged(client, spec).await?;
    page(size, &quota, &place).print(output)?;
    match against(&quota, &place) {
        Some(against) => Err(Failure::refused(against)),
        None => Ok(()),
    }
}

/// Of many, each with what it is called: a line for each, as if it came alone. `of` is how many requests they stand for.
pub async fn of_many(
    client: &Client,
    all: Vec<(String, v1::Submit)>,
    of: usize,
    output: Output,
) -> Result<(), Failure> {
    let (count, mut rows, mut refused) = (all.len(), Vec::new(), 0);
    let mut positions = Vec::new();
    for (title, submit) in all {
        let (row, is_against) = verdict(client, title, submit, &mut positions).await?;
        rows.push(row);
        refused += usize::from(is_against);
    }
    let columns = vec![
        column("name", "name"),
        column("inbox", "inbox"),
        column("quota", "quota"),
        column("scheduler", "scheduler"),
    ];
    let width = columns.len();
    let each = match of > count {
        true => format!(", which stands for {of} that differ in their indexes"),
        false => String::new(),
    };
    let sheet = Sheet::new(columns, width, rows);
    Page::of(sheet, earliest(positions), "nothing is asked for")
        .text(format!(
            "Each is judged as if it came alone{each}: what the others would take is not counted, and what it starts after of the \
             same command is left out. Nothing was recorded or kept."
        ))
        .print(output)?;
    match refused {
        0 => Ok(()),
        refused => Err(Failure::refused(format!(
            "{refused} of {count} would come to nothing"
        ))),
    }
}

/// Returns the row of one of many, and whether it is refused. Adds the ledger positions of the answers.
async fn verdict(
    client: &Client,
    title: String,
    submit: v1::Submit,
    positions: &mut Vec<u64>,
) -> Result<(Vec<Cell>, bool), Failure> {
    let row = |inbox: &str, quota: String, scheduler: String| {
        vec![
            plain(&title),
            plain(inbox),
            named(&quota),
            named(&scheduler),
        ]
    };
    let passes = match client.try_submit(submit).await {
        Ok(passes) => passes,
        Err(Failed::Refused(refused)) => {
            let why = format!("it would be refused: {}", refused.explanation);
            return Ok((row(&why, String::new(), String::new()), true));
        }
        Err(failed) => return Err(failed.into()),
    };
    let accepted = "it would be accepted";
    let Some(spec) = passes.spec else {
        return Ok((row(accepted, String::new(), String::new()), false));
    };
    let Trial { size, quota, place } = judged(client, *spec).await?;
    if let Judged::So(answer) = &quota {
        positions.push(answer.lsn);
    }
    if let Judged::So(answer) = &place {
        positions.push(answer.lsn);
    }
    // The first line of each without what people see at its beginning.
    let said = |lines: Vec<String>| {
        let first = lines.into_iter().next().unwrap_or_default();
        let text = first.split_once(' ').map_or("", |(_, text)| text);
        text.trim_start().to_owned()
    };
    let row = row(
        accepted,
        said(quota_lines(&quota)),
        said(place_lines(size, &quota, &place)),
    );
    Ok((row, against(&quota, &place).is_some()))
}

fn except_models(quota: &Judged<TryQuotaReply>) -> Vec<String> {
    match reserving(quota) {
        Some(Reserving::Reserved(reserved)) => reserved.except_models.clone(),
        _ => Vec::new(),
    }
}

fn reserving(quota: &Judged<TryQuotaReply>) -> Option<&Reserving> {
    match quota {
        Judged::So(said) => said.trial.as_ref()?.decided.as_ref(),
        Judged::Not(_) => None,
    }
}

fn placing(place: &Judged<TryPlaceReply>) -> Option<&Placing> {
    match place {
        Judged::So(said) => said.trial.as_ref()?.decided.as_ref(),
        Judged::Not(_) => None,
    }
}

/// Why it would come to nothing: it would be denied, or wait for what there is not.
fn against(quota: &Judged<TryQuotaReply>, place: &Judged<TryPlaceReply>) -> Option<String> {
    if let Some(Reserving::Denied(refusal)) = reserving(quota) {
        let why = client::explanation(refusal);
        return Some(format!("it would be denied: {why}"));
    }
    match placing(place) {
        Some(Placing::Never(never)) => Some(never_fits(never.reason)),
        _ => None,
    }
}

fn never_fits(reason: i32) -> String {
    match WaitingReason::from_number(reason) {
        Some(reason @ WaitingReason::OverLimit) => {
            format!("it could never be placed: {}", waits(reason))
        }
        reason => {
            let why = reason.map_or("for a reason that this version does not know", waits);
            format!("no node of the cell could hold it, even when empty: {why}")
        }
    }
}

/// `size`: of its gang; 1 without one.
fn page(size: u32, quota: &Judged<TryQuotaReply>, place: &Judged<TryPlaceReply>) -> Page {
    let value = object([
        ("members", size.into()),
        ("inbox", object([("decided", "accepted".into())])),
        ("quota", quota_value(quota)),
        ("scheduler", place_value(place)),
    ]);
    let page = Page::new(value)
        .lines(gang_line(size))
        .text("inbox        it would be accepted")
        .lines(quota_lines(quota))
        .lines(place_lines(size, quota, place));
    let page = match quota {
        Judged::So(said) => page.sheet(limits(said)),
        Judged::Not(_) => page,
    };
    page.text(snapshot(quota, place))
}

fn gang_line(size: u32) -> Option<String> {
    let text = "members, judged together as if each asked for the same as this one";
    (size > 1).then(|| format!("gang         of {size} {text}"))
}

/// What a trial is worth.
fn snapshot(quota: &Judged<TryQuotaReply>, place: &Judged<TryPlaceReply>) -> String {
    let seen = [
        match quota {
            Judged::So(said) => Some(format!("quota as of lsn {}", said.lsn)),
            Judged::Not(_) => None,
        },
        match place {
            Judged::So(said) => Some(format!("the scheduler as of lsn {}", said.lsn)),
            Judged::Not(_) => None,
        },
    ];
    let seen: Vec<_> = seen.into_iter().flatten().collect();
    let seen = match seen.is_empty() {
        true => String::new(),
        false => format!(" ({})", seen.join(", ")),
    };
    format!(
        "A trial is a snapshot{seen} and promises nothing: nothing was recorded or kept for it, and what comes meanwhile changes it."
    )
}

fn not_judged(refusal: &v1::Refusal) -> String {
    match (Rule::from_number(refusal.rule), refusal.subject.as_str()) {
        (Some(Rule::NotSupported), "gang") => {
            "not supported for this gang: how many of its members find room has to be tried out"
                .to_owned()
        }
        (Some(Rule::UnknownVerb), _) => {
            "not supported: the cell's services do not answer that yet".to_owned()
        }
        _ => client::explanation(refusal),
    }
}

fn of_wire(refusal: &v1::Refusal) -> Option<Refusal> {
    let rule = Rule::from_number(refusal.rule)?;
    Some(Refusal::over(
        rule,
        refusal.subject.as_str(),
        refusal.limit,
        refusal.actual,
    ))
}

/// As a clause.
fn limit_text(refusal: &v1::Refusal) -> String {
    let known = of_wire(refusal);
    known.map_or_else(
        || client::explanation(refusal),
        |refusal| quota_short(&refusal),
    )
}

fn quota_lines(quota: &Judged<TryQuotaReply>) -> Vec<String> {
    let (said, decided) = match quota {
        Judged::Not(refusal) => {
            return vec![format!("quota        not judged: {}", not_judged(refusal))];
        }
        Judged::So(said) => (said, reserving(quota)),
    };
    let cohort = said
        .trial
        .as_ref()
        .map_or("", |trial| trial.cohort.as_str());
    let text = match decided {
        Some(Reserving::Reserved(reserved)) => {
            format!("it would be reserved{}", remarks(reserved, cohort))
        }
        Some(Reserving::Waiting(waiting)) => waits_for_quota(waiting),
        Some(Reserving::Denied(refusal)) => {
            format!("it would be denied: {}", limit_text(refusal))
        }
        Some(Reserving::AwaitingOthers(_)) => {
            "it would ask for quota when what it depends on has ended, and is not judged before"
                .to_owned()
        }
        None => "decided in a way that this version does not know".to_owned(),
    };
    let mut lines = vec![format!("quota        {text}")];
    if let Some(lent) = said.trial.as_ref().and_then(|trial| trial.lent.as_ref()) {
        let reclaims = match decided {
            Some(Reserving::Waiting(waiting)) => waiting.reclaims,
            _ => 0,
        };
        lines.extend(lent_lines(lent, cohort, reclaims, &[]));
    }
    lines
}

fn remarks(reserved: &QuotaTrialReserved, cohort: &str) -> String {
    let borrowed = format!("borrowed of what others of cohort {cohort} lend");
    let but = format!("but not on {}", reserved.except_models.join(", "));
    let all = [
        (reserved.soft, "above a soft limit"),
        (reserved.burst, "in a burst above the limit"),
        (reserved.borrowed, &borrowed),
        (!reserved.except_models.is_empty(), &but),
    ];
    let all = all.iter().filter(|(is, _)| *is);
    all.map(|(_, text)| format!(", {text}")).collect()
}

fn waits_for_quota(waiting: &QuotaTrialWaiting) -> String {
    let limit = waiting.limit.as_ref().map(limit_text);
    let limit = limit.unwrap_or_else(|| "a limit".to_owned());
    let others = match waiting.reclaims {
        0 => String::new(),
        1 => "; one allocation of others of its cohort would be told to stop for it".to_owned(),
        count => {
            format!("; {count} allocations of others of its cohort would be told to stop for it")
        }
    };
    format!("it would be accepted, and wait for quota: {limit}{others}")
}

fn place_lines(
    size: u32,
    quota: &Judged<TryQuotaReply>,
    place: &Judged<TryPlaceReply>,
) -> Vec<String> {
    let said = match place {
        Judged::Not(refusal) => {
            return vec![format!("scheduler    not judged: {}", not_judged(refusal))];
        }
        Judged::So(said) => said.trial.as_ref(),
    };
    let has_quota = matches!(reserving(quota), Some(Reserving::Reserved(_)));
    let awaits = said.is_some_and(|trial| trial.awaits_others);
    let queue = said.map_or("", |trial| trial.queue.as_str());
    let provided = match (has_quota, awaits) {
        (true, false) => "it would",
        (_, true) => "when what it depends on has ended, as things stand, it would",
        (false, false) => "with quota, it would",
    };
    let mut lines = Vec::new();
    match placing(place) {
        Some(Placing::Placed(placed)) => {
            let places = match placed.members {
                0 => format!("on {}", placed.node),
                members => format!("{members} of its {size} members"),
            };
            lines.push(format!(
                "scheduler    {provided} be placed at once, {places}"
            ));
        }
        Some(Placing::Waiting(waiting)) => {
            let why = WaitingReason::from_number(waiting.reason);
            let why = why.map_or("of what this version does not know", waits);
            lines.push(format!("scheduler    {provided} wait, because {why}"));
            lines.extend(room(size, waiting));
            lines.push(format!("place        {}", place_in_queue(queue, waiting)));
            lines.extend(waiting.kept_off.iter().map(nodes));
            lines.extend(missing(waiting));
        }
        Some(Placing::Never(never)) => {
            lines.push(format!("scheduler    {}", never_fits(never.reason)));
            lines.extend(never.kept_off.iter().map(nodes));
        }
        None => {
            lines.push("scheduler    decided in a way that this version does not know".to_owned())
        }
    }
    lines
}

fn place_in_queue(queue: &str, waiting: &PlaceTrialWaiting) -> String {
    let (ahead, all) = (waiting.ahead, waiting.in_queue);
    let preempts = match waiting.may_preempt {
        true => "; others may be made to go for it, which is not judged",
        false => "",
    };
    format!("behind {ahead} of the {all} that wait in queue {queue}{preempts}")
}

fn room(size: u32, waiting: &PlaceTrialWaiting) -> Option<String> {
    let room = waiting.room;
    (size > 1).then(|| format!("room         for {room} of its {size} members"))
}

fn nodes(kept_off: &NodesKeptOff) -> String {
    let count = kept_off.nodes;
    let nodes = if count == 1 { "node" } else { "nodes" };
    let mut known = (0..=u8::MAX.into()).filter_map(Filter::from_number);
    let why = match known.find(|filter| filter.name() == kept_off.reason) {
        Some(filter) => keeps_off(filter),
        None => &kept_off.reason,
    };
    format!("  {count:>8} {nodes}: {why}")
}

fn missing(waiting: &PlaceTrialWaiting) -> Option<String> {
    let shortfall = waiting.shortfall.as_ref()?;
    let amounts = [
        (ResourceKind::Cpu, shortfall.cpu_milli),
        (ResourceKind::Memory, shortfall.memory_bytes),
        (ResourceKind::Gpu, shortfall.gpu_milli),
    ];
    let amounts = amounts.into_iter().filter(|(_, amount)| *amount > 0);
    let amounts: Vec<_> = amounts
        .map(|(kind, amount)| amount::human(kind, amount))
        .collect();
    let amounts = (!amounts.is_empty()).then(|| amounts.join(" and "));
    amounts.map(|amounts| format!("missing      at least {amounts} more free on one node"))
}

fn limits(said: &TryQuotaReply) -> Sheet {
    let columns = vec![
        column("account", "account"),
        column("resource", "resource"),
        column("fits", "fits"),
        column("asked", "asked"),
        column("held", "held"),
        column("lent", "lent"),
        column("soft", "soft"),
        column("hard", "limit"),
        column("burst", "burst"),
    ];
    let lent = said.trial.as_ref().and_then(|trial| trial.lent.as_ref());
    let of_tenant = |one: &QuotaTrialLimit| {
        let lent = lent.filter(|lent| lent.resource == one.resource && one.team.is_empty());
        lent.map(|lent| lent.lent)
    };
    let limits = said.trial.iter().flat_map(|trial| &trial.limits);
    let rows = limits.map(|one| limit(one, of_tenant(one)));
    Sheet::new(columns, 3, rows.collect())
}

fn account(one: &QuotaTrialLimit) -> Cell {
    let parts = [&one.team, &one.namespace].map(String::as_str);
    match parts {
        ["", _] => exactly("the tenant's own".to_owned(), ""),
        [team, ""] => plain(team),
        [team, namespace] => plain(format!("{team}/{namespace}")),
    }
}

fn limit(one: &QuotaTrialLimit, lent: Option<u64>) -> Vec<Cell> {
    let resource = QuotaResource::parse(&one.resource);
    let amount = |amount: Option<u64>| {
        let text = match (amount, &resource) {
            (None, _) => "-".to_owned(),
            (Some(amount), Some(resource)) => amount::plain(resource, amount.into()),
            (Some(amount), None) => amount.to_string(),
        };
        valued(text, amount)
    };
    let name = match resource.as_ref().and_then(amount::unit) {
        Some(unit) => format!("{} ({unit})", one.resource),
        None => one.resource.clone(),
    };
    let fits = match (one.fits, one.burst, one.borrowed, one.soft) {
        (false, ..) => "no",
        (true, true, ..) => "in a burst",
        (true, _, true, _) => "borrowed",
        (true, .., true) => "above soft",
        (true, ..) => "yes",
    };
    let limits = one.limits.as_ref();
    vec![
        account(one),
        valued(name, one.resource.as_str()),
        plain(fits),
        amount(Some(one.asked)),
        amount(Some(one.held)),
        amount(lent),
        amount(limits.and_then(|limits| limits.soft)),
        amount(limits.map(|limits| limits.hard)),
        amount(limits.and_then(|limits| limits.burst)),
    ]
}

fn not_judged_value(refusal: &v1::Refusal) -> Value {
    object([
        ("decided", "not_judged".into()),
        ("why", not_judged(refusal).into()),
    ])
}

fn refusal_value(refusal: Option<&v1::Refusal>) -> Value {
    let known = refusal.and_then(of_wire);
    known.map_or(Value::Null, |refusal| of_refusal(&refusal))
}

fn quota_value(quota: &Judged<TryQuotaReply>) -> Value {
    let said = match quota {
        Judged::Not(refusal) => return not_judged_value(refusal),
        Judged::So(said) => said,
    };
    let (name, reserved, limit, reclaims) = match reserving(quota) {
        Some(Reserving::Reserved(reserved)) => ("reserved", Some(reserved), None, 0),
        Some(Reserving::Waiting(it)) => ("waiting", None, it.limit.as_ref(), it.reclaims),
        Some(Reserving::Denied(refusal)) => ("denied", None, Some(refusal), 0),
        Some(Reserving::AwaitingOthers(_)) => ("awaiting_others", None, None, 0),
        None => ("unknown", None, None, 0),
    };
    let is = |flag: fn(&QuotaTrialReserved) -> bool| reserved.is_some_and(flag);
    let cohort = said.trial.as_ref().map(|trial| trial.cohort.as_str());
    let cohort = cohort.filter(|name| !name.is_empty());
    object([
        ("decided", name.into()),
        ("soft", is(|it| it.soft).into()),
        ("burst", is(|it| it.burst).into()),
        ("borrowed", is(|it| it.borrowed).into()),
        ("except_models", except_models(quota).into()),
        ("limit", refusal_value(limit)),
        ("reclaims", reclaims.into()),
        ("cohort", cohort.into()),
        (
            "lent",
            said.trial
                .as_ref()
                .and_then(|trial| trial.lent.as_ref())
                .map(|lent| lent_value(lent, &[]))
                .into(),
        ),
        ("limits", limits(said).records()),
        ("lsn", said.lsn.into()),
    ])
}

fn place_value(place: &Judged<TryPlaceReply>) -> Value {
    let said = match place {
        Judged::Not(refusal) => return not_judged_value(refusal),
        Judged::So(said) => said,
    };
    let awaits = said.trial.as_ref().is_some_and(|trial| trial.awaits_others);
    let queue = said.trial.as_ref().map(|trial| trial.queue.as_str());
    let (name, placed, why) = match placing(place) {
        Some(Placing::Placed(placed)) => ("placed", Some(placed), None),
        Some(Placing::Waiting(it)) => ("waiting", None, Some((it.reason, &it.kept_off))),
        Some(Placing::Never(it)) => ("never", None, Some((it.reason, &it.kept_off))),
        None => ("unknown", None, None),
    };
    let node = placed.map(|it| it.node.as_str());
    let node = node.filter(|name| !name.is_empty());
    let members_placed = placed.map(|it| it.members).filter(|members| *members > 0);
    let reason = why.and_then(|(reason, _)| WaitingReason::from_number(reason));
    let kept_off = why.into_iter().flat_map(|(_, kept_off)| kept_off);
    let kept_off = kept_off.map(|it| (it.reason.clone(), it.nodes));
    let waiting = match placing(place) {
        Some(Placing::Waiting(waiting)) => Some(waiting),
        _ => None,
    };
    let shortfall = waiting.and_then(|it| it.shortfall.as_ref()).map(|it| {
        object([
            ("cpu_milli", it.cpu_milli.into()),
            ("memory_bytes", it.memory_bytes.into()),
            ("gpu_milli", it.gpu_milli.into()),
        ])
    });
    object([
        ("decided", name.into()),
        ("node", node.into()),
        ("members_placed", members_placed.into()),
        ("room", waiting.map(|it| it.room).into()),
        ("queue", queue.into()),
        ("reason", reason.map(WaitingReason::name).into()),
        ("kept_off", kept_off.collect()),
        ("shortfall", shortfall.into()),
        ("ahead", waiting.map(|it| it.ahead).into()),
        ("in_queue", waiting.map(|it| it.in_queue).into()),
        ("may_preempt", waiting.map(|it| it.may_preempt).into()),
        ("awaits_others", awaits.into()),
        ("lsn", said.lsn.into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print::Form;
    use schemas::v1::{
        NodeAmounts, PlaceTrial, PlaceTrialNever, PlaceTrialPlaced, QuotaLimits, QuotaTrial,
    };

    fn quota(decided: Reserving) -> Judged<TryQuotaReply> {
        let limit = |team: &str, asked, held, hard| QuotaTrialLimit {
            team: team.to_owned(),
            resource: "cpu".to_owned(),
            asked,
            held,
            limits: Some(QuotaLimits {
                hard,
                ..QuotaLimits::default()
            }),
            fits: asked + held <= hard,
            ..QuotaTrialLimit::default()
        };
        Judged::So(TryQuotaReply {
            trial: Some(QuotaTrial {
                decided: Some(decided),
                limits: vec![limit("x", 4000, 3000, 6000), limit("", 4000, 3000, 9000)],
                cohort: "labs".to_owned(),
                lent: None,
            }),
            refusal: None,
            lsn: 12,
        })
    }

    fn place(decided: Placing) -> Judged<TryPlaceReply> {
        Judged::So(TryPlaceReply {
            trial: Some(PlaceTrial {
                decided: Some(decided),
                awaits_others: false,
                queue: "t".to_owned(),
            }),
            refusal: None,
            lsn: 13,
        })
    }

    fn over() -> v1::Refusal {
        v1::Refusal {
            rule: Rule::QuotaExceeded as i32,
            subject: "t/x cpu".to_owned(),
            limit: 6000,
            actual: 7000,
        }
    }

    fn shown(quota: &Judged<TryQuotaReply>, place: &Judged<TryPlaceReply>) -> String {
        let page = page(1, quota, place);
        page.written(Form::Table).unwrap()
    }

    #[test]
    fn one_answer_has_three_parts_and_says_what_it_is_worth() {
        let reserved = quota(Reserving::Reserved(QuotaTrialReserved {
            soft: true,
            borrowed: true,
            except_models: vec!["T4".to_owned()],
            ..QuotaTrialReserved::default()
        }));
        let placed = place(Placing::Placed(PlaceTrialPlaced {
            node: "n1".to_owned(),
            members: 0,
        }));
        let expected = "\
inbox        it would be accepted
quota        it would be reserved, above a soft limit, borrowed of what others of cohort labs lend, but not on T4
scheduler    it would be placed at once, on n1
account           resource     fits  asked   held  lent  soft  limit  burst
x                 cpu (cores)  no    4.000  3.000     -     -  6.000      -
the tenant's own  cpu (cores)  yes   4.000  3.000     -     -  9.000      -
A trial is a snapshot (quota as of lsn 12, the scheduler as of lsn 13) and promises nothing: nothing was recorded or kept for it, and what comes meanwhile changes it.
";
        assert_eq!(shown(&reserved, &placed), expected);
        assert_eq!(against(&reserved, &placed), None);
        assert_eq!(except_models(&reserved), ["T4"]);
    }

    #[test]
    fn what_waits_is_not_refused_and_says_where_and_why() {
        let waits = quota(Reserving::Waiting(QuotaTrialWaiting {
            limit: Some(over()),
            reclaims: 2,
        }));
        let waiting = place(Placing::Waiting(PlaceTrialWaiting {
            reason: WaitingReason::NoRoomNow as i32,
            kept_off: vec![NodesKeptOff {
                reason: "cpu".to_owned(),
                nodes: 3,
            }],
            shortfall: Some(NodeAmounts {
                cpu_milli: 2000,
                ..NodeAmounts::default()
            }),
            ahead: 4,
            in_queue: 9,
            may_preempt: true,
            room: 0,
        }));
        let text = shown(&waits, &waiting);
        for line in [
            "quota        it would be accepted, and wait for quota: cpu of t/x would come to 7 cores, and it may hold 6 cores now; 2 allocations of others of its cohort would be told to stop for it",
            "scheduler    with quota, it would wait, because no node that it may use has enough free now",
            "place        behind 4 of the 9 that wait in queue t; others may be made to go for it, which is not judged",
            "         3 nodes: not enough free cpu",
            "missing      at least 2.000 cores more free on one node",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        assert_eq!(against(&waits, &waiting), None);
    }

    #[test]
    fn a_lender_sees_what_it_has_lent_and_not_only_that_it_does_not_fit() {
        let mut waits = quota(Reserving::Waiting(QuotaTrialWaiting {
            limit: Some(v1::Refusal {
                rule: Rule::QuotaExceeded as i32,
                subject: "t cpu".to_owned(),
                limit: 0,
                actual: 7000,
            }),
            reclaims: 0,
        }));
        if let Judged::So(TryQuotaReply {
            trial: Some(trial), ..
        }) = &mut waits
        {
            trial.lent = Some(v1::LentQuota {
                resource: "cpu".to_owned(),
                limit: 9000,
                lent: 9000,
                borrowers: 1,
                reclaim: v1::ReclaimFrom::Never.into(),
                own: true,
                ..v1::LentQuota::default()
            });
        }
        let placed = place(Placing::Placed(PlaceTrialPlaced::default()));
        let text = shown(&waits, &placed);
        for line in [
            "lent         9 cores of the limit of 9 cores of cpu, to 1 tenant of cohort labs that is above its limit",
            "reclaim      no: the tenant's setting reclaim is never, so it waits until the borrowers' allocations end",
            "the tenant's own  cpu (cores)  yes   4.000  3.000  9.000     -  9.000      -",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        let value = quota_value(&waits);
        assert_eq!(value["lent"]["lent"], 9000);
        assert_eq!(value["limits"][1]["lent"], 9000);
    }

    #[test]
    fn of_a_gang_it_says_how_many_members() {
        let reserved = quota(Reserving::Reserved(QuotaTrialReserved::default()));
        let check = |placing, expected: &[&str]| {
            let text = page(4, &reserved, &place(placing));
            let text = text.written(Form::Table).unwrap();
            for line in expected {
                assert!(text.lines().any(|it| it == *line), "{line}\n{text}");
            }
        };
        let placed = Placing::Placed(PlaceTrialPlaced {
            node: String::new(),
            members: 3,
        });
        let expected = [
            "gang         of 4 members, judged together as if each asked for the same as this one",
            "scheduler    it would be placed at once, 3 of its 4 members",
        ];
        check(placed, &expected);
        let waiting = Placing::Waiting(PlaceTrialWaiting {
            reason: WaitingReason::GangNoRoom as i32,
            room: 2,
            ..PlaceTrialWaiting::default()
        });
        check(waiting, &["room         for 2 of its 4 members"]);
    }

    #[test]
    fn what_would_be_denied_or_never_placed_is_refused() {
        let denied = quota(Reserving::Denied(over()));
        let never = place(Placing::Never(PlaceTrialNever {
            reason: WaitingReason::NoNodeOfModel as i32,
            kept_off: Vec::new(),
        }));
        let why = against(&denied, &never).unwrap();
        assert!(
            why.starts_with("it would be denied: quota exceeded: t/x cpu: "),
            "{why}"
        );
        let unjudged = Judged::Not(v1::Refusal {
            rule: Rule::NotSupported as i32,
            subject: "gang".to_owned(),
            ..v1::Refusal::default()
        });
        let why = against(&unjudged, &never);
        let expected = "no node of the cell could hold it, even when empty: no node that it may use has a GPU of a model that it allows";
        assert_eq!(why.as_deref(), Some(expected));
        let value = quota_value(&unjudged);
        assert_eq!(value["decided"], "not_judged");
        let why = value["why"].as_str().unwrap();
        assert!(why.starts_with("not supported for this gang"), "{why}");
        let value = place_value(&never);
        assert_eq!(
            (&value["decided"], &value["reason"]),
            (&"never".into(), &"no_node_of_model".into())
        );
    }
}
