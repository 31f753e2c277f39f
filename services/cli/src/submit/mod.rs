//! Asking for an allocation.

mod account;
mod again;
mod array;
mod document;
pub(crate) mod file;
mod gang;
pub(crate) mod many;
mod place;
mod sent;
mod trial;
mod work;

pub(crate) use account::own as own_account;
pub(crate) use array::Indexes;
pub(crate) use document::document;
pub(crate) use place::{requirement, requirement_text};

use crate::{
    Failure, amount,
    context::{Context, Whose},
    follow::{self, Until},
    get, look,
    manifest::{Wrong, not_among},
    names,
    print::{Output, note},
    sending::{Left, Sending},
    tenants::teams,
    wait,
};
use clap::{Args, ValueEnum};
use client::{Client, Failed};
use schemas::v1::{self, submitted};
use sent::{Came, Sent};
use std::{fs, io, process::ExitCode};
use vocab::Account;

#[derive(Args)]
pub struct Submit {
    // Before the others, which take their values out of the command line.
    #[command(flatten)]
    said: again::Said,
    #[command(flatten)]
    pub whose: Whose,
    #[command(flatten)]
    task: Task,
    /// Ask for all that a file asks for: documents of YAML, or lines of JSON, whose fields are the flags of this command without the
    /// dashes and with _ for -; - is the standard input. A document may name others in `after` and `after_success`.
    #[arg(long, short = 'F', value_name = "FILE", conflicts_with_all = ["What", "Place", "Gang", "Work", "array", "follow"])]
    file: Option<String>,
    /// Ask for one allocation for each index, all in one request: 0-999, 0-999:2 or 1,3,5-7. The index is the end of the name, and its
    /// command finds it in APPORTION_ARRAY_INDEX. The one of index 7 is the operation `<id>-7`. Cells of feature level 8 and above.
    #[arg(long, value_name = "INDEXES", conflicts_with_all = ["follow", "array_index"])]
    array: Option<Indexes>,
    /// Repeat the request of this allocation (its ID or name), without the allocations that it starts after. Other options replace
    /// fields of the request: --env, --label and --extended by name, any other option as a whole.
    #[arg(long, value_name = "ID", conflicts_with_all = ["array", "file"])]
    again: Option<String>,
    /// Show what it writes until it has ended, and end with the exit code of its command.
    #[arg(long, short, conflicts_with = "wait")]
    follow: bool,
    /// Until when to wait, no longer than --deadline; `--wait` alone means `ended`, which ends with the exit code of the run's command. With --array
    /// and --file it waits for all of them if all were accepted, and ends as `wait` does.
    #[arg(long, value_enum, num_args = 0..=1, default_value_t, default_missing_value = "ended")]
    wait: Wait,
    /// Say what would become of it, and ask for nothing: whether the inbox would accept it, whether quota would be reserved for it
    /// or which limit it is over, and on which node it would be placed or why it would wait. It is judged by the cell as it stands at
    /// this moment, and promises nothing. With --gang the whole gang is judged, as if each member asked for the same; of --file and
    /// --array each as if it came alone, of an array the first element. It fails
    /// like a refused request where it would be refused or denied, or no node could ever hold it.
    #[arg(long, conflicts_with_all = ["follow", "wait", "operation_id"])]
    dry_run: bool,
    #[command(flatten)]
    sending: Sending,
    #[command(flatten)]
    output: Output,
}

/// What is asked for.
#[derive(Debug, Clone, Args)]
pub struct Task {
    #[command(flatten)]
    pub what: What,
    #[command(flatten)]
    place: place::Place,
    #[command(flatten)]
    gang: gang::Gang,
    #[command(flatten)]
    work: work::Work,
}

/// Apart, as the group of a struct that has others has no flags of its own, and nothing could be in conflict with it.
#[derive(Debug, Clone, Args)]
pub struct What {
    /// Cores (4, 0.5) or millicores (500m); without it the tenant's default.
    #[arg(long, default_value = "0", value_parser = amount::cpu_milli)]
    cpu: i64,
    /// Memory (16GiB or 16Gi, 512Mi, 16G); without it the tenant's default.
    #[arg(long, default_value = "0", value_parser = amount::bytes)]
    memory: i64,
    /// Cores that the run may take where there are some left.
    #[arg(long, default_value = "0", value_parser = amount::cpu_milli)]
    cpu_limit: i64,
    /// Memory that the run may take where there is some left.
    #[arg(long, default_value = "0", value_parser = amount::bytes)]
    memory_limit: i64,
    /// Ask for no cpu and no memory, and run on what is left over.
    #[arg(long, conflicts_with_all = ["cpu", "memory"])]
    best_effort: bool,
    /// The account whose quota it is of, as tenant/team or tenant/team/namespace; without it the tenant's own. A team may
    /// stand alone.
    #[arg(long, default_value = "")]
    pub account: String,
    /// GPU devices.
    #[arg(long, default_value = "0", value_parser = devices)]
    gpus: i64,
    /// Thousandths of one device, for a share; implies --gpus 1.
    #[arg(long, default_value = "0", value_parser = share)]
    gpu_milli: i64,
    /// An allowed GPU model; may be repeated.
    #[arg(long = "gpu-model")]
    gpu_models: Vec<String>,
    /// An extended resource and its amount; may be repeated.
    #[arg(long, value_name = "NAME=AMOUNT", value_parser = extended)]
    extended: Vec<v1::ExtendedRequest>,
    /// The queue to wait in; without it the tenant's own.
    #[arg(long, default_value = "")]
    queue: String,
    /// Where the priority comes from, and who may send whom back to the queue.
    #[arg(long, default_value = "")]
    priority_class: String,
    /// Higher goes first; not beside a class.
    #[arg(long, default_value_t = 0, value_parser = amount::priority)]
    priority: i32,
    /// What it belongs to: a name, by which all of it is followed and cancelled; without it `default`.
    #[arg(long, default_value = "")]
    job_set: String,
    /// A name of the tenant's own choice, by which commands find it again.
    #[arg(long, default_value = "")]
    name: String,
    /// Start only after this allocation (its id or name) has ended; may be repeated.
    #[arg(long, value_name = "ID")]
    after: Vec<String>,
    /// Start only after this allocation has finished; may be repeated.
    #[arg(long, value_name = "ID")]
    after_success: Vec<String>,
    /// Queue it again this often after it failed, or was rejected by its node.
    #[arg(long, default_value_t = 0)]
    retries: i64,
    /// Do not queue it again when its node was lost or it had to make room.
    #[arg(long)]
    never_requeue: bool,
    /// How long it will run at the most (90s, 10m, 2h); helps to find it a place, and is no limit.
    #[arg(long, default_value = "0s", value_parser = amount::duration_ms)]
    run_time: i64,
    /// Give up if it has not been placed so long after it was accepted (90s, 10m, 2h): it ends as expired. It counts to the first
    /// place; what is queued again after that waits on. Without it, it waits for as long as it takes.
    #[arg(long, value_name = "DURATION", value_parser = amount::some_duration_ms)]
    ttl: Option<i64>,
    /// Stop a run that has gone on for so long since its start (90s, 10m, 2h), with the grace of a cancel; it is not queued again.
    /// Without it, a run goes on for as long as it takes.
    #[arg(long, value_name = "DURATION", value_parser = amount::some_duration_ms)]
    time_limit: Option<i64>,
    /// Which element of an array it is, as if it had come of --array.
    #[arg(long, value_name = "INDEX")]
    array_index: Option<u32>,
    /// The tenant's own words about it, as NAME=VALUE; may be repeated.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<v1::Label>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Wait {
    /// Until its outcome is known.
    #[default]
    Accepted,
    Started,
    Ended,
}

#[derive(Debug, thiserror::Error)]
#[error("{0} was accepted, but its {1} did not come before the deadline; it goes on")]
struct NotInTime(String, &'static str);

fn devices(text: &str) -> Result<i64, String> {
    let whole = text.parse().ok().filter(|devices| *devices >= 0);
    whole.ok_or_else(|| format!("{text}: write whole devices; for a share of one, --gpu-milli 500"))
}

fn share(text: &str) -> Result<i64, String> {
    let whole = text.parse().ok().filter(|milli| (0..=1000).contains(milli));
    whole.ok_or_else(|| {
        format!("{text}: write thousandths of a device, 1 to 1000: half of one is 500")
    })
}

fn extended(text: &str) -> Result<v1::ExtendedRequest, String> {
    let wrong = || format!("{text}: write an extended resource as NAME=AMOUNT");
    let (name, amount) = text.split_once('=').ok_or_else(wrong)?;
    Ok(v1::ExtendedRequest {
        name: name.to_owned(),
        amount: amount.parse().map_err(|_| wrong())?,
    })
}

pub(crate) fn label(text: &str) -> Result<v1::Label, String> {
    let pair = text.split_once('=');
    let (name, value) = pair.ok_or_else(|| format!("{text}: write a label as NAME=VALUE"))?;
    Ok(v1::Label {
        name: name.to_owned(),
        value: value.to_owned(),
    })
}

impl Submit {
    pub async fn run(mut self, context: &Context) -> Result<ExitCode, Failure> {
        if self.follow && self.output.is_for_programs() {
            return Err(Failure::usage(
                "--output: --follow prints what the run writes; write --wait ended for its outcome in this form",
            ));
        }
        let of_file = self.of_file()?;
        let client = self
            .sending
            .tenant(context, self.whose.tenant.as_deref())
            .await?;
        let (sending, left) = (self.sending.clone(), Left::of(self.sending.deadline()));
        let waits_for = match (self.follow, self.wait) {
            (true, _) => Some((Until::EndedWithLog, "end")),
            (false, Wait::Accepted) => None,
            (false, Wait::Started) => Some((Until::Started, "start")),
            (false, Wait::Ended) => Some((Until::Ended, "end")),
        };
        let tenant = client.party().name();
        let asked = match &self.again {
            Some(name) => Some(again(&client, name).await?),
            None => None,
        };
        if let Some(asked) = asked.as_ref().filter(|_| !self.said.is_empty()) {
            let changed = file::changed(document(asked, tenant), &self.said);
            self.task = changed.map_err(|wrong| Failure::usage(wrong.to_string()))?;
        }
        let task = &mut self.task.what;
        task.account = own_account(&task.account, tenant)?;
        for name in task.after.iter_mut().chain(&mut task.after_success) {
            *name = names::to_change(&client, name).await?;
        }
        if let Some(mut all) = of_file {
            all.iter_mut().try_for_each(|one| one.of_tenant(tenant))?;
            if self.dry_run {
                let of = all.len();
                trial::of_many(&client, many::alone(all), of, self.output).await?;
                return Ok(ExitCode::SUCCESS);
            }
            let sent = many::send(&client, all, &sending, self.output).await?;
            return wait_for(&client, sent, waits_for, &left, self.output).await;
        }
        let request = match asked {
            // Also what this version does not know.
            Some(asked) if self.said.is_empty() => asked,
            _ => self
                .task
                .request()
                .map_err(|wrong| Failure::usage(wrong.to_string()))?,
        };
        if let (true, Some(indexes)) = (self.dry_run, &self.array) {
            let (first, of) = indexes.first(&request);
            trial::of_many(&client, vec![first], of, self.output).await?;
            return Ok(ExitCode::SUCCESS);
        }
        if self.dry_run {
            trial::run(&client, request, self.output).await?;
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(indexes) = &self.array {
            let sent = indexes.send(&client, &request, &sending, self.output);
            return wait_for(&client, sent.await?, waits_for, &left, self.output).await;
        }
        let operation_id = sending.id();
        let submitted = match client.submit(request.clone(), &operation_id).await {
            Ok(submitted) => submitted,
            Err(failed) => {
                let help = help(&client, &request, &failed).await;
                return Err(Failure::from(failed).and(help));
            }
        };
        let id = submitted.allocation_id.clone();
        let title = format!("{id} {}", state(&submitted));
        let mut sent = Sent::default();
        sent.add(&(&*request.name, &*operation_id), Came::Accepted(submitted));
        // A program gets one document, which has the end.
        let is_told_at_once =
            !self.follow && (waits_for.is_none() || !self.output.is_for_programs());
        if is_told_at_once {
            sent.print_one(&title, &[], self.output)?;
        }
        let Some((until, event)) = waits_for else {
            left.within(Sending::seen(&client)).await;
            return Ok(ExitCode::SUCCESS);
        };
        let Some(view) = left.within(follow::follow(&client, &id, until)).await else {
            if !is_told_at_once && !self.follow {
                sent.print_one(&title, &[], self.output)?;
            }
            return Err(Failure::late(NotInTime(id, event)));
        };
        let view = view.map_err(Failure::afterwards)?;
        let code = follow::ends_with(&view, until);
        if !is_told_at_once && !self.follow {
            sent.print_one(&title, &[view], self.output)?;
        }
        Ok(ExitCode::from(code))
    }

    /// All that its file asks for, if there is one.
    fn of_file(&self) -> Result<Option<Vec<many::Ready>>, Failure> {
        let Some(file) = &self.file else {
            return Ok(None);
        };
        self.ready(asked_in(file)?).map(Some)
    }

    fn ready(&self, all: Vec<many::Asked>) -> Result<Vec<many::Ready>, Failure> {
        let base = match self.dry_run {
            // Nothing is sent.
            true => String::new(),
            false => self.sending.base(),
        };
        many::ready(all, &base).map_err(|faults| faulty(&faults))
    }
}

/// All that a file asks for, which is something.
fn asked_in(file: &str) -> Result<Vec<many::Asked>, Failure> {
    let text = match file {
        "-" => io::read_to_string(io::stdin()),
        file => fs::read_to_string(file),
    };
    let text = text.map_err(|error| Failure::usage(format!("{file}: {error}")))?;
    let all = file::read(file, &text).map_err(|faults| faulty(&faults))?;
    match all.is_empty() {
        true => Err(Failure::usage(format!("nothing is asked for in {file}"))),
        false => Ok(all),
    }
}

/// The operations of a file that is sent as the one of this id, with what they are called.
pub(crate) fn operations_in(file: &str, id: &str) -> Result<Vec<(String, String)>, Failure> {
    let ready = many::ready(asked_in(file)?, id).map_err(|faults| faulty(&faults))?;
    Ok(many::operations(ready))
}

/// The flag of a field of the contract that has another name.
fn flag(field: &str) -> Option<&'static str> {
    Some(match field {
        "cpu_milli" => "--cpu",
        "memory_bytes" => "--memory",
        "cpu_milli_limit" => "--cpu-limit",
        "memory_bytes_limit" => "--memory-limit",
        "gpu_count" => "--gpus",
        "run_time_ms" => "--run-time",
        "ttl_ms" => "--ttl",
        "time_limit_ms" => "--time-limit",
        _ => return None,
    })
}

/// What helps whoever wrote the command line: the flag of a refused field, and the teams of a tenant that does not have the one
/// that was named.
async fn help(client: &Client, request: &v1::Submit, failed: &Failed) -> Option<String> {
    let Failed::Refused(refused) = failed else {
        return None;
    };
    let refusal = refused.refusal.clone().unwrap_or_default();
    if let Some(flag) = flag(&refusal.subject) {
        let is_nothing = refusal.rule() == v1::Rule::QuantityZero
            && ["cpu_milli", "memory_bytes"].contains(&&*refusal.subject);
        let instead = if is_nothing {
            ", or --best-effort for no cpu and no memory"
        } else {
            ""
        };
        return Some(format!("{} is {flag}{instead}", refusal.subject));
    }
    if refusal.rule() != v1::Rule::TeamUnknown {
        return None;
    }
    let below = [client.party().name(), &request.team, &request.namespace].join("/");
    let account = Account::parse(below.trim_end_matches('/'))?;
    let teams = teams(client, account.tenant.as_str()).await?;
    not_among(&teams, &account).map(|why| format!("{account}: {why}"))
}

/// What an allocation asked for. What it waited for is over, or will never come.
async fn again(client: &Client, name: &str) -> Result<v1::Submit, Failure> {
    let asked = get::whole(client, name).await?.asked;
    let asked = asked.ok_or_else(|| {
        Failure::refused(format!(
            "{name}: this cell does not say what an allocation asked for"
        ))
    })?;
    if let Some(gang) = &asked.gang {
        note!(
            "one member of gang {}; it waits until there are {}",
            gang.name,
            gang.size
        );
    }
    Ok(v1::Submit {
        depends_on: Vec::new(),
        ..asked
    })
}

/// Of all that was asked for. What the command line ends with is as `wait` says.
async fn wait_for(
    client: &Client,
    mut sent: Sent,
    waits_for: Option<(Until, &'static str)>,
    left: &Left,
    output: Output,
) -> Result<ExitCode, Failure> {
    if let Some(failure) = sent.failure.take() {
        sent.print(&[], client.decided_lsn(), output)?;
        return Err(failure);
    }
    let Some((until, event)) = waits_for else {
        sent.print(&[], client.decided_lsn(), output)?;
        left.within(Sending::seen(client)).await;
        return Ok(ExitCode::SUCCESS);
    };
    let ids = sent.ids();
    let wanted = ids.len();
    let reached = wait::reach(client, ids, until, left).await;
    let (views, is_late) = reached.map_err(Failure::afterwards)?;
    sent.print(&views, client.decided_lsn(), output)?;
    match is_late {
        false => Ok(ExitCode::from(wait::all(&views, until))),
        true => Err(Failure::late(format!(
            "{wanted} were accepted, but the {event} of {} did not come before the deadline; they go on",
            wanted - views.len()
        ))),
    }
}

fn faulty(faults: &[String]) -> Failure {
    Failure::faulty(faults, "nothing was sent")
}

impl Task {
    /// What is given on the command line; the inbox checks it. An error names what the request could not say.
    pub fn request(self) -> Result<v1::Submit, Wrong> {
        let what = self.what;
        let dependency = |success| {
            move |allocation_id| v1::DependencyRequest {
                allocation_id,
                success,
                operation_id: String::new(),
            }
        };
        let (team, namespace) = account::parts(&what.account);
        let ended = what.after.into_iter().map(dependency(false));
        let finished = what.after_success.into_iter().map(dependency(true));
        Ok(v1::Submit {
            job_set: what.job_set,
            name: what.name,
            priority: what.priority,
            cpu_milli: what.cpu,
            memory_bytes: what.memory,
            gpu_count: match what.gpus {
                0 if what.gpu_milli > 0 => 1,
                devices => devices,
            },
            gpu_milli: what.gpu_milli,
            gpu_models: what.gpu_models,
            queue: what.queue,
            priority_class: what.priority_class,
            extended: what.extended,
            rules: self.place.rules(),
            gang: self.gang.request(),
            depends_on: ended.chain(finished).collect(),
            retries: what.retries,
            never_requeue: what.never_requeue,
            run_time_ms: what.run_time,
            team,
            namespace,
            cpu_milli_limit: what.cpu_limit,
            memory_bytes_limit: what.memory_limit,
            best_effort: what.best_effort,
            labels: what.labels,
            work: self.work.request()?,
            ttl_ms: what.ttl.unwrap_or(0),
            time_limit_ms: what.time_limit.unwrap_or(0),
            array_index: what.array_index,
        })
    }
}

pub(crate) fn state(submitted: &v1::Submitted) -> String {
    match &submitted.state {
        Some(submitted::State::Placed(placed)) => look::place(&placed.node, &placed.gpus),
        Some(submitted::State::Waiting(waiting)) => waits(waiting),
        Some(submitted::State::Ended(ended)) => format!("ended: {}", words(ended.cause())),
        None => "in a state that this version does not know".into(),
    }
}

/// How a run ended, and its command where the agent said so.
pub(crate) fn how(cause: v1::EndCause, exit: Option<v1::RunExit>) -> String {
    words(cause) + &exited(exit)
}

/// How the command ended, to stand behind why the run did; empty where nothing is known.
pub(crate) fn exited(exit: Option<v1::RunExit>) -> String {
    let Some(exit) = exit else {
        return String::new();
    };
    let said = match exit.reason() {
        v1::RunExitReason::OutOfMemory => ", its memory was at its limit",
        v1::RunExitReason::Killed => ", killed when its grace was over",
        v1::RunExitReason::CouldNotStart => ", its command could not be started",
        v1::RunExitReason::SupervisorLost => ", its supervisor on the node was lost",
        v1::RunExitReason::Draining => ", its node was stopping",
        v1::RunExitReason::NodeFault => ", the node could not set it up",
        v1::RunExitReason::OutOfDisk => ", it used too much room on the disk of its node",
        v1::RunExitReason::Unspecified => "",
    };
    match exit.signal {
        // It never began.
        0 if exit.code == 0 && !said.is_empty() => said.to_owned(),
        0 => format!(", exit code {}{said}", exit.code),
        signal => format!(", signal {signal}{said}"),
    }
}

/// Why it waits, in the cell's own words where it says more than the reason.
pub(crate) fn why(waiting: &v1::Waiting) -> String {
    match waiting.explanation.as_str() {
        "" => words(waiting.reason()),
        explanation => explanation.to_owned(),
    }
}

pub(crate) fn waits(waiting: &v1::Waiting) -> String {
    format!("waits: {}", why(waiting))
}

/// An enum's name as words.
pub(crate) fn words(value: impl std::fmt::Debug) -> String {
    let mut text = String::new();
    for c in format!("{value:?}").chars() {
        if c.is_uppercase() && !text.is_empty() {
            text.push(' ');
        }
        text.extend(c.to_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        submit: Submit,
    }

    fn request(flags: &str) -> Result<v1::Submit, String> {
        let line = format!("submit --tenant t --cpu 1 --memory 1GiB {flags}");
        match Line::try_parse_from(line.split_whitespace()) {
            Ok(line) => line
                .submit
                .task
                .request()
                .map_err(|wrong| wrong.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn what_is_not_given_is_not_asked() {
        let plain = v1::Submit {
            cpu_milli: 1000,
            memory_bytes: 1 << 30,
            ..v1::Submit::default()
        };
        assert_eq!(request(""), Ok(plain));
    }

    #[test]
    fn a_share_implies_a_device() {
        let gpus = |flags: &str| request(flags).map(|asked| (asked.gpu_count, asked.gpu_milli));
        assert_eq!(gpus("--gpu-milli 500"), Ok((1, 500)));
        assert_eq!(gpus("--gpu-milli 0"), Ok((0, 0)));
        assert_eq!(gpus("--gpus 2 --gpu-milli 500"), Ok((2, 500)));
        for wrong in ["0.5", "1001", "-1", "half"] {
            let said = gpus(&format!("--gpu-milli={wrong}")).unwrap_err();
            assert!(said.contains("half of one is 500"), "{said}");
        }
    }

    #[test]
    fn a_trial_waits_for_nothing() {
        assert!(request("--dry-run --deadline 5s").is_ok());
        assert!(request("--dry-run --array 0-3").is_ok());
        for beside in ["--wait ended", "--follow", "--operation-id x"] {
            assert!(request(&format!("--dry-run {beside}")).is_err(), "{beside}");
        }
    }

    #[test]
    fn what_is_written_elsewhere_has_no_flags_and_many_are_not_followed() {
        let parses = |flags: &str| {
            let line = format!("submit --tenant t {flags}");
            Line::try_parse_from(line.split_whitespace()).is_ok()
        };
        for beside in ["--cpu 1", "--label a=b", "--node-label a=b", "--env A=b"] {
            assert!(parses("--file jobs.yaml"));
            assert!(!parses(&format!("--file jobs.yaml {beside}")), "{beside}");
            assert!(parses(&format!("--again train {beside}")), "{beside}");
        }
        for many in ["--array 0-3", "--file jobs.yaml"] {
            assert!(parses(&format!("{many} --wait ended --deadline 1m")));
            assert!(!parses(&format!("{many} --follow")));
        }
    }

    #[test]
    fn every_flag_reaches_the_request() {
        let all = request(
            "--queue q --priority-class c --extended fpga=2 --after a --after-success b --retries 3 \
             --never-requeue --label grant=7 --label model=bert --run-time 10m --ttl 1h --time-limit 2h --account a/b --cpu-limit 2 --memory-limit 2GiB --gang g --gang-size 8 --gang-min 6 --gang-uniform rack",
        )
        .unwrap();
        assert_eq!(
            (all.queue.as_str(), all.priority_class.as_str()),
            ("q", "c")
        );
        assert_eq!(
            (all.extended[0].name.as_str(), all.extended[0].amount),
            ("fpga", 2)
        );
        let label = |one: &v1::Label| (one.name.clone(), one.value.clone());
        let labels: Vec<_> = all.labels.iter().map(label).collect();
        let expected = [("grant", "7"), ("model", "bert")];
        assert_eq!(
            labels,
            expected.map(|(name, value)| (name.into(), value.into()))
        );
        let after: Vec<_> = all
            .depends_on
            .iter()
            .map(|one| (one.allocation_id.as_str(), one.success))
            .collect();
        assert_eq!(after, [("a", false), ("b", true)]);
        assert_eq!(
            (all.retries, all.never_requeue, all.run_time_ms),
            (3, true, 600_000)
        );
        assert_eq!((all.ttl_ms, all.time_limit_ms), (3_600_000, 7_200_000));
        assert_eq!((all.team.as_str(), all.namespace.as_str()), ("a", "b"));
        assert_eq!(
            (all.cpu_milli_limit, all.memory_bytes_limit),
            (2000, 2 << 30)
        );
        let gang = all.gang.unwrap();
        assert_eq!((gang.name.as_str(), gang.size, gang.min), ("g", 8, 6));
        assert_eq!(gang.uniform_label, "rack");
        let work = request("--env A=1=2 --working-dir /tmp --image i:1 -- sh -c true").unwrap();
        let expected = v1::Work {
            command: "sh".into(),
            args: vec!["-c".into(), "true".into()],
            env: vec![v1::EnvVar {
                name: "A".into(),
                value: "1=2".into(),
            }],
            working_dir: "/tmp".into(),
            image: "i:1".into(),
            payload: Vec::new(),
        };
        assert_eq!(work.work, Some(expected));
        assert!(request("--env A").is_err());
        assert!(request("sh -c true").is_err());
        assert!(request("--gang g").is_err());
        assert!(request("--gang-min 2").is_err());
        assert!(request("--extended fpga").is_err());
    }
}
