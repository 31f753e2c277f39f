//! An allocation by its name, or by the beginning of its name or id.

use crate::{
    Failure, amount,
    list::{self, State},
    print::note,
    sending::Left,
};
use client::{AllocationStanding, AllocationView, AllocationsQuery, Client};
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
    let late = || Failure::unreachable(format!("{text}: nothing was found out in time"));
    let left = Left::of(client.deadline());
    left.within(looked_up(client, text, meant))
        .await
        .ok_or_else(late)?
}

async fn looked_up(client: &Client, text: &str, meant: Meant) -> Result<String, Failure> {
    let mut found = Vec::new();
    if !text.is_empty() {
        // What is over may be a long history, which a name of what is not over needs no look at.
        found = begins(client, text, &[]).await?;
        if !found.iter().any(|one| one.name == text) {
            found.extend(begins(client, text, &State::all()).await?);
        }
        if is_part_of_an_id(text) && !found.iter().any(|one| one.name == text) {
            found.extend(ids(client, text, &[]).await?);
            if found.iter().all(is_over) {
                found.extend(ids(client, text, &State::all()).await?);
            }
        }
    }
    let (one, of) = chosen(text, &found, meant)
        .map_err(Failure::refused)?
        .ok_or_else(|| Failure::refused(Unclear::Nothing(text.to_owned())))?;
    if of > 1 {
        note!(
            "{text}: {}, the newest of {of} of this name",
            candidate(one)
        );
    }
    Ok(one.allocation_id.clone())
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
}
