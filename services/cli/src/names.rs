//! Allocations by name, by the name of their array, or by the beginning of a name or ID.

use crate::{
    Failure, amount,
    list::{self, State},
    print::note,
    sending::Left,
};
use clap::Args;
use client::{AllocationStanding, AllocationView, AllocationsQuery, Client};
use std::collections::{BTreeMap, BTreeSet};
use vocab::{AllocationId, Millis};

/// Candidates that are named.
const CANDIDATES: usize = 5;
/// Allocations of a page, at the most.
const PAGE_MAX: u32 = 1000;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Unclear {
    #[error(
        "{0}: no allocation has a name that begins so, or an id that begins so or has these last digits"
    )]
    Nothing(String),
    #[error("{text}: more than one allocation begins so: {}; write more of it, or the id", listed(.candidates))]
    Several {
        text: String,
        candidates: Vec<String>,
    },
}

fn listed(candidates: &[String]) -> String {
    let mut some = candidates[..candidates.len().min(CANDIDATES)].join(", ");
    if candidates.len() > CANDIDATES {
        some += ", and others";
    }
    some
}

/// Rule that selects one of several allocations with the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meant {
    Newest,
    /// The newest, if all of them have ended; several that have not ended are refused, because the command would change one.
    NewestOfPast,
}

/// Returns the ID of the allocation that `text` names: an ID or its first or last digits, or a name or its prefix. An exact name
/// takes precedence over a prefix, even if its allocation has ended, so that a repeated command means the same allocation. Then
/// allocations that have not ended take precedence over ended ones. Of several with the same name, the newest is selected and
/// reported on stderr.
pub async fn allocation(client: &Client, text: &str) -> Result<String, Failure> {
    found(client, text, Meant::Newest).await
}

/// Resolves `text` like `allocation`, for a command that changes the allocation: refuses a name shared by several allocations
/// that have not ended.
pub async fn to_change(client: &Client, text: &str) -> Result<String, Failure> {
    found(client, text, Meant::NewestOfPast).await
}

async fn found(client: &Client, text: &str, meant: Meant) -> Result<String, Failure> {
    if AllocationId::parse(text).is_some() {
        return Ok(text.to_owned());
    }
    in_time(client, text, async {
        let found = candidates(client, text, false).await?;
        let one = one_of(text, &found, meant)?;
        Ok(one.allocation_id.clone())
    })
    .await
}

async fn in_time<T>(
    client: &Client,
    text: &str,
    look: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let late = || Failure::unreachable(format!("{text}: nothing was found out in time"));
    let left = Left::of(client.deadline());
    left.within(look).await.ok_or_else(late)?
}

/// Allocations of a command that takes several.
#[derive(Debug, Clone, Args)]
pub struct Several {
    /// IDs or names of allocations, or the beginning of one; the name of an array stands for all its elements.
    #[arg(value_name = "ALLOCATION", required = true)]
    pub allocations: Vec<String>,
    /// Take all allocations of a name instead of the newest.
    #[arg(long)]
    pub all: bool,
}

/// An allocation that a command line names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub id: String,
    /// The name; the ID if there is no name or the command line has the ID.
    pub title: String,
}

impl Several {
    /// Returns the named allocations, each once.
    pub async fn found(&self, client: &Client) -> Result<Vec<Named>, Failure> {
        self.looked_up(client, Meant::Newest).await
    }

    /// Resolves like `found`, for a command that changes the allocations: elements of an array that have ended are left out, and
    /// a name shared by several allocations that have not ended is refused without `--all`.
    pub async fn to_change(&self, client: &Client) -> Result<Vec<Named>, Failure> {
        self.looked_up(client, Meant::NewestOfPast).await
    }

    async fn looked_up(&self, client: &Client, meant: Meant) -> Result<Vec<Named>, Failure> {
        let (mut named, mut seen) = (Vec::new(), BTreeSet::new());
        for text in &self.allocations {
            let found = in_time(client, text, self.of_text(client, text, meant)).await?;
            named.extend(found.into_iter().filter(|one| seen.insert(one.id.clone())));
        }
        Ok(named)
    }

    async fn of_text(
        &self,
        client: &Client,
        text: &str,
        meant: Meant,
    ) -> Result<Vec<Named>, Failure> {
        if AllocationId::parse(text).is_some() {
            let (id, title) = (text.to_owned(), text.to_owned());
            return Ok(vec![Named { id, title }]);
        }
        let found = candidates(client, text, self.all).await?;
        let is_named = found.iter().any(|one| one.name == text);
        let help = (!self.all && is_named).then_some("--all takes all of this name");
        let chosen = match group(text, &found, meant, self.all) {
            Ok(Some(group)) => {
                if group.is_empty() {
                    note!("{text}: all of this name have ended");
                }
                Ok(group)
            }
            Ok(None) => one_of(text, &found, meant).map(|one| vec![one]),
            Err(unclear) => Err(Failure::refused(unclear)),
        };
        let chosen = chosen.map_err(|failure| failure.and(help.map(str::to_owned)))?;
        Ok(chosen.into_iter().map(Named::of).collect())
    }
}

impl Named {
    fn of(one: &AllocationView) -> Self {
        let name = Some(&one.name).filter(|name| !name.is_empty());
        Self {
            id: one.allocation_id.clone(),
            title: name.unwrap_or(&one.allocation_id).clone(),
        }
    }
}

/// Returns all that `text` may mean; with `all`, the ended ones next to others of the same name.
async fn candidates(
    client: &Client,
    text: &str,
    all: bool,
) -> Result<Vec<AllocationView>, Failure> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let is_whole = |one: &AllocationView| one.name == text || element(text, one).is_some();
    // Ended allocations may be a long history, which is not read if the name is that of another one.
    let mut found = begins(client, text, &[]).await?;
    if all || !found.iter().any(|one| one.name == text) {
        found.extend(begins(client, text, &State::all()).await?);
    }
    if is_part_of_an_id(text) && !found.iter().any(is_whole) {
        found.extend(ids(client, text, &[]).await?);
        if found.iter().all(is_over) {
            found.extend(ids(client, text, &State::all()).await?);
        }
    }
    Ok(found)
}

/// Returns the one that is meant, and reports on stderr if it is the newest of several.
fn one_of<'a>(
    text: &str,
    found: &'a [AllocationView],
    meant: Meant,
) -> Result<&'a AllocationView, Failure> {
    let (one, of) = chosen(text, found, meant)
        .map_err(Failure::refused)?
        .ok_or_else(|| Failure::refused(Unclear::Nothing(text.to_owned())))?;
    if of > 1 {
        note!(
            "{text}: {}, the newest of {of} of this name",
            candidate(one)
        );
    }
    Ok(one)
}

/// Returns the index of an allocation that is an element of the array `name`.
fn element(name: &str, one: &AllocationView) -> Option<u32> {
    let index = one.array_index?;
    let rest = one.name.strip_prefix(name)?.strip_prefix('-')?;
    (rest == index.to_string()).then_some(index)
}

/// Returns the allocations that `text` stands for together: the newest of each index of an array of that name, or with `all`
/// every allocation of the name or the array. `None`: it stands for one.
fn group<'a>(
    text: &str,
    found: &'a [AllocationView],
    meant: Meant,
    all: bool,
) -> Result<Option<Vec<&'a AllocationView>>, Unclear> {
    let is_named = found.iter().any(|one| one.name == text);
    // By index, and with one name by ID.
    let mut runs: BTreeMap<u32, BTreeMap<&str, &AllocationView>> = BTreeMap::new();
    for one in found {
        let index = match is_named {
            true => (one.name == text && all).then_some(0),
            false => element(text, one),
        };
        if let Some(index) = index {
            let of_index = runs.entry(index).or_default();
            of_index.insert(&one.allocation_id, one);
        }
    }
    if runs.is_empty() {
        return Ok(None);
    }
    let mut group = Vec::new();
    for of_index in runs.into_values() {
        let of_index = of_index.into_values();
        let mut of_index: Vec<_> = match meant {
            Meant::Newest => of_index.collect(),
            Meant::NewestOfPast => of_index.filter(|one| !is_over(one)).collect(),
        };
        of_index.sort_by_key(|one| one.requested_ms);
        if all {
            group.extend(of_index);
        } else if meant == Meant::NewestOfPast && of_index.len() > 1 {
            return Err(Unclear::Several {
                text: text.to_owned(),
                candidates: of_index.into_iter().map(candidate).collect(),
            });
        } else {
            group.extend(of_index.pop());
        }
    }
    Ok(Some(group))
}

fn is_part_of_an_id(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

/// The one that is meant, and of how many with this name; none: there is none.
fn chosen<'a>(
    text: &str,
    found: &'a [AllocationView],
    which: Meant,
) -> Result<Option<(&'a AllocationView, usize)>, Unclear> {
    let named = |one: &&AllocationView| one.name == text;
    let whole = found.iter().any(|one| named(&one));
    let meant = found.iter().filter(|one| !whole || named(one));
    let first = meant.clone().map(behind).min();
    let mut meant: Vec<_> = meant.filter(|one| Some(behind(one)) == first).collect();
    // One whose name and id both begin so was found twice.
    meant.sort_by_key(|one| &one.allocation_id);
    meant.dedup_by_key(|one| &one.allocation_id);
    let by_name = whole && (which == Meant::Newest || first > Some(0));
    let newest = meant.iter().max_by_key(|one| one.requested_ms);
    match (newest, meant.len()) {
        (None, _) => Ok(None),
        (Some(one), of) if of == 1 || by_name => Ok(Some((one, of))),
        _ => Err(Unclear::Several {
            text: text.to_owned(),
            candidates: meant.into_iter().map(candidate).collect(),
        }),
    }
}

/// What is not over goes first, and what was denied, and never came to be, last.
fn behind(one: &AllocationView) -> u8 {
    match (is_over(one), &one.ended) {
        (false, _) => 0,
        (true, Some(_)) => 1,
        (true, None) => 2,
    }
}

fn is_over(one: &AllocationView) -> bool {
    one.state() == AllocationStanding::Ended
}

/// Formats an allocation as `ID (NAME, STATE, requested MOMENT)`.
fn candidate(one: &AllocationView) -> String {
    let name = Some(&*one.name).filter(|name| !name.is_empty());
    let at = format!("requested {}", amount::moment(Millis(one.requested_ms)));
    let about = name.into_iter().map(str::to_owned);
    let about: Vec<_> = about.chain([list::state(one), at]).collect();
    format!("{} ({})", one.allocation_id, about.join(", "))
}

/// Those whose name begins so.
async fn begins(
    client: &Client,
    text: &str,
    states: &[i32],
) -> Result<Vec<AllocationView>, Failure> {
    let mut query = AllocationsQuery {
        states: states.to_vec(),
        name_prefix: text.to_owned(),
        limit: PAGE_MAX,
        ..AllocationsQuery::default()
    };
    let mut found = Vec::new();
    loop {
        let page = client.allocations(&query).await?;
        found.extend(page.allocations);
        query.after = page.next;
        if query.after.is_empty() {
            return Ok(found);
        }
    }
}

/// Those whose id begins so, or enough of them to see that one is not meant.
async fn ids(client: &Client, text: &str, states: &[i32]) -> Result<Vec<AllocationView>, Failure> {
    let text = text.to_ascii_lowercase();
    let mut query = AllocationsQuery {
        states: states.to_vec(),
        limit: PAGE_MAX,
        ..AllocationsQuery::default()
    };
    let mut found = Vec::new();
    loop {
        let page = client.allocations(&query).await?;
        let fitting = page.allocations.into_iter();
        found.extend(fitting.filter(|one| is_of(&one.allocation_id, &text)));
        query.after = page.next;
        if query.after.is_empty() || found.len() > CANDIDATES {
            return Ok(found);
        }
    }
}

/// Ids of a cell begin alike, so that their last digits, without the noughts before them, stand for one, too.
fn is_of(id: &str, text: &str) -> bool {
    let digits = id.replace('-', "");
    let number = digits.get(16..).unwrap_or_default();
    let same = |number: &str| number.trim_start_matches('0') == text.trim_start_matches('0');
    id.starts_with(text) || same(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_told_by_its_beginning_or_by_its_last_digits() {
        let id = "00000000-0000-0001-0000-00000000a035";
        for text in ["a035", "0a035", "000a035", "00000000-0000-0001", id] {
            assert!(is_of(id, text), "{text}");
        }
        for text in ["35", "035", "a0", "1"] {
            assert!(!is_of(id, text), "{text}");
        }
    }

    #[test]
    fn one_is_meant_or_all_that_may_be_are_named() {
        let view = |id: &str, name: &str| AllocationView {
            allocation_id: id.to_owned(),
            name: name.to_owned(),
            ..AllocationView::default()
        };
        let check = |text: &str, found: &[AllocationView], expected: Result<Option<&str>, &str>| {
            let chosen = chosen(text, found, Meant::NewestOfPast);
            let chosen = chosen.map(|one| one.map(|(one, _)| one.allocation_id.clone()));
            let expected = expected.map(|id| id.map(str::to_owned));
            let chosen = chosen.map_err(|unclear| unclear.to_string());
            assert_eq!(chosen, expected.map_err(str::to_owned), "{text}");
        };
        let named = |found: &[AllocationView]| {
            let names: Vec<_> = found.iter().map(candidate).collect();
            names.join(", ")
        };
        let (train, train_2, plain) = (view("1a", "train"), view("2b", "train-2"), view("3c", ""));
        check("train", &[], Ok(None));
        check("tr", std::slice::from_ref(&train), Ok(Some("1a")));
        check("train", &[train.clone(), train_2.clone()], Ok(Some("1a")));
        check("3", std::slice::from_ref(&plain), Ok(Some("3c")));
        let several = "more than one allocation begins so";
        let unclear = |text: &str, names: &str| {
            format!("{text}: {several}: {names}; write more of it, or the id")
        };
        let both = [train.clone(), train_2];
        check("tra", &both, Err(&unclear("tra", &named(&both))));
        let both = [train.clone(), view("4d", "train")];
        check("train", &both, Err(&unclear("train", &named(&both))));
        // Whose name begins so, and whose id.
        let both = [plain.clone(), view("5e", "3d-render")];
        check("3", &both, Err(&unclear("3", &named(&both))));
        check("3", &[plain.clone(), plain], Ok(Some("3c")));
        // What is over goes behind, but for a whole name.
        let denied = |id: &str, name: &str| AllocationView {
            state: AllocationStanding::Ended.into(),
            ..view(id, name)
        };
        let over = |id: &str, name: &str| AllocationView {
            ended: Some(schemas::v1::Ended::default()),
            ..denied(id, name)
        };
        let both = [denied("8a", "train"), over("6f", "train")];
        check("train", &both, Ok(Some("6f")));
        check("train", &both[..1], Ok(Some("8a")));
        check("tr", &[over("6f", "train"), train.clone()], Ok(Some("1a")));
        check(
            "train",
            &[over("6f", "train"), view("2b", "train-2")],
            Ok(Some("6f")),
        );
        check("train", &[over("6f", "train"), train], Ok(Some("1a")));
        let many: Vec<_> = (1..8).map(|no| view(&format!("7{no}"), "")).collect();
        let some = format!("{}, and others", named(&many[..5]));
        check("7", &many, Err(&unclear("7", &some)));
    }

    #[test]
    fn of_several_with_one_name_the_newest_is_meant() {
        let view = |id: &str, requested_ms, is_over: bool| AllocationView {
            allocation_id: id.to_owned(),
            name: "train".to_owned(),
            requested_ms,
            ended: is_over.then(schemas::v1::Ended::default),
            state: match is_over {
                true => AllocationStanding::Ended,
                false => AllocationStanding::Waiting,
            }
            .into(),
            ..AllocationView::default()
        };
        let check = |found: &[AllocationView], which, expected: Option<(&str, usize)>| {
            let chosen = chosen("train", found, which).ok().flatten();
            let chosen = chosen.map(|(one, of)| (&*one.allocation_id, of));
            assert_eq!(chosen, expected);
        };
        let over = [
            view("1a", 1, true),
            view("3c", 3, true),
            view("2b", 2, true),
        ];
        check(&over, Meant::Newest, Some(("3c", 3)));
        check(&over, Meant::NewestOfPast, Some(("3c", 3)));
        let first = [view("1a", 1, true), view("2b", 2, false)];
        check(&first, Meant::Newest, Some(("2b", 1)));
        check(&first, Meant::NewestOfPast, Some(("2b", 1)));
        let two = [view("1a", 1, false), view("2b", 2, false)];
        check(&two, Meant::Newest, Some(("2b", 2)));
        check(&two, Meant::NewestOfPast, None);
        assert_eq!(
            candidate(&over[1]),
            "3c (train, ended: unspecified, requested 1970-01-01T00:00:00Z)"
        );
    }

    #[test]
    fn the_name_of_an_array_stands_for_all_its_elements() {
        let view = |id: &str, name: &str, index, requested_ms, is_over: bool| AllocationView {
            allocation_id: id.to_owned(),
            name: name.to_owned(),
            array_index: index,
            requested_ms,
            ended: is_over.then(schemas::v1::Ended::default),
            state: match is_over {
                true => AllocationStanding::Ended,
                false => AllocationStanding::Started,
            }
            .into(),
            ..AllocationView::default()
        };
        let of_two_runs = [
            view("a0", "sweep-0", Some(0), 1, true),
            view("a1", "sweep-1", Some(1), 1, true),
            view("b0", "sweep-0", Some(0), 2, true),
            view("b1", "sweep-1", Some(1), 2, false),
            view("c0", "sweep-2", None, 3, false),
            view("d0", "sweeper-0", Some(0), 3, false),
        ];
        let check = |text: &str, meant, all, expected: Option<&str>| {
            let ids = group(text, &of_two_runs, meant, all).unwrap();
            let ids = ids.map(|group| {
                let ids: Vec<_> = group.iter().map(|one| &*one.allocation_id).collect();
                ids.join(" ")
            });
            assert_eq!(ids.as_deref(), expected, "{text} {meant:?} {all}");
        };
        check("sweep", Meant::Newest, false, Some("b0 b1"));
        check("sweep", Meant::Newest, true, Some("a0 b0 a1 b1"));
        check("sweep", Meant::NewestOfPast, false, Some("b1"));
        check("sweeper", Meant::Newest, false, Some("d0"));
        // An element, no element, and a beginning of several names.
        check("sweep-1", Meant::Newest, false, None);
        check("sweep-1", Meant::Newest, true, Some("a1 b1"));
        check("sweep-1", Meant::NewestOfPast, true, Some("b1"));
        check("swee", Meant::Newest, true, None);
        let twice = [
            view("a0", "sweep-0", Some(0), 1, false),
            view("b0", "sweep-0", Some(0), 2, false),
        ];
        let several = group("sweep", &twice, Meant::NewestOfPast, false);
        assert!(
            matches!(several, Err(Unclear::Several { .. })),
            "{several:?}"
        );
        let both = group("sweep", &twice, Meant::NewestOfPast, true).unwrap();
        assert_eq!(both.map(|both| both.len()), Some(2));
    }
}
