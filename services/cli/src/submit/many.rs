//! Many allocations, asked for in as few messages as they fit into. What starts after others is told so by their operations, whose
//! ids are known before anything is sent.

use super::{
    account,
    sent::{Came, Sent},
    state,
};
use crate::{
    Failure,
    manifest::{Place, Wrong},
    print::{Output, note, say},
    sending::{BETWEEN_TRIES, Left, Sending, derived_id},
};
use client::{Client, Failed};
use schemas::v1;
use std::collections::{BTreeMap, BTreeSet};
use vocab::AllocationId;

/// One of many.
#[derive(Debug)]
pub struct Asked {
    /// Its name, or what else tells it from the others.
    pub title: String,
    /// From 1 on.
    pub number: usize,
    /// In its file.
    pub place: Option<Place>,
    /// What it starts after may be names of others.
    pub submit: v1::Submit,
}

impl Asked {
    fn fault(&self, field: &str, why: String) -> String {
        match &self.place {
            Some(place) => place.fault(None, &Wrong::new(field, why)).to_string(),
            None => format!("{field}: {why}"),
        }
    }
}

/// An operation that is ready to be sent.
#[derive(Debug)]
pub struct Ready {
    title: String,
    id: String,
    pub submit: v1::Submit,
}

impl Ready {
    /// The account that its file has may begin with the tenant, as everywhere.
    pub fn of_tenant(&mut self, tenant: &str) -> Result<(), Failure> {
        let v1::Submit {
            team, namespace, ..
        } = &mut self.submit;
        let said = match namespace.as_str() {
            "" => team.clone(),
            namespace => format!("{team}/{namespace}"),
        };
        (*team, *namespace) = account::parts(&account::own(&said, tenant)?);
        Ok(())
    }
}

/// The same for the same one of the same command.
fn operation_id(base: &str, one: &Asked) -> String {
    derived_id(&[base, &one.number.to_string(), &one.submit.name])
}

/// All of them, each behind what it starts after, or what is wrong with them.
pub fn ready(all: Vec<Asked>, base: &str) -> Result<Vec<Ready>, Vec<String>> {
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    let mut faults = Vec::new();
    for (at, one) in all.iter().enumerate() {
        let name = one.submit.name.as_str();
        if let Some(first) = named.insert(name, at).filter(|_| !name.is_empty()) {
            let why = format!("{name}: document {} is called so, too", all[first].number);
            faults.push(one.fault("name", why));
        }
    }
    named.remove("");
    let mut on: Vec<BTreeSet<usize>> = Vec::new();
    for one in &all {
        let mut befores = BTreeSet::new();
        for wanted in &one.submit.depends_on {
            let (name, field) = (&wanted.allocation_id, after(wanted));
            match named.get(name.as_str()) {
                Some(before) => {
                    befores.insert(*before);
                }
                None if AllocationId::parse(name).is_some() => {}
                None => {
                    let why = format!(
                        "{name}: no other document is called so, and it is no allocation's id"
                    );
                    faults.push(one.fault(field, why));
                }
            }
        }
        on.push(befores);
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let order = order(&on).map_err(|cycle| {
        let titles: Vec<_> = cycle.iter().map(|at| all[*at].title.as_str()).collect();
        let why = format!("each waits for the next, for ever: {}", titles.join(" -> "));
        vec![all[cycle[0]].fault("after", why)]
    })?;
    let ids: Vec<String> = all.iter().map(|one| operation_id(base, one)).collect();
    let of_name = |name: &str| named.get(name).map(|at| ids[*at].clone());
    let ready = order.into_iter().map(|at| {
        let mut submit = all[at].submit.clone();
        for wanted in &mut submit.depends_on {
            if let Some(operation) = of_name(&wanted.allocation_id) {
                wanted.operation_id = operation;
                wanted.allocation_id.clear();
            }
        }
        Ready {
            title: all[at].title.clone(),
            id: ids[at].clone(),
            submit,
        }
    });
    Ok(ready.collect())
}

/// The field that says it.
fn after(wanted: &v1::DependencyRequest) -> &'static str {
    match wanted.success {
        true => "after_success",
        false => "after",
    }
}

/// Each behind all that it is on, otherwise as they come; or some that wait for each other, the first of them once more at the end.
fn order(on: &[BTreeSet<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let mut left: Vec<usize> = on.iter().map(BTreeSet::len).collect();
    let mut behind: Vec<Vec<usize>> = vec![Vec::new(); on.len()];
    for (at, befores) in on.iter().enumerate() {
        befores.iter().for_each(|before| behind[*before].push(at));
    }
    let free = left.iter().enumerate().filter(|(_, left)| **left == 0);
    let mut free: BTreeSet<usize> = free.map(|(at, _)| at).collect();
    let mut order = Vec::new();
    while let Some(next) = free.pop_first() {
        order.push(next);
        for at in &behind[next] {
            left[*at] -= 1;
            if left[*at] == 0 {
                free.insert(*at);
            }
        }
    }
    // Whoever is left waits for somebody who is left.
    let Some(first) = left.iter().position(|left| *left > 0) else {
        return Ok(order);
    };
    let mut way = vec![first];
    loop {
        let last = way[way.len() - 1];
        let next = on[last].iter().find(|before| left[**before] > 0);
        let next = *next.unwrap_or(&last);
        if let Some(begin) = way.iter().position(|at| *at == next) {
            way.drain(..begin);
            way.push(next);
            return Err(way);
        }
        way.push(next);
    }
}

/// As what would be asked for of each on its own: those of the same command that it is behind are nobody yet.
pub fn alone(ready: Vec<Ready>) -> Vec<(String, v1::Submit)> {
    let alone = ready.into_iter().map(|mut one| {
        one.submit
            .depends_on
            .retain(|on| on.operation_id.is_empty());
        (one.title, one.submit)
    });
    alone.collect()
}

/// Tells what will be sent, sends it, and tells what came of it.
pub async fn send(
    client: &Client,
    ready: Vec<Ready>,
    sending: &Sending,
    output: Output,
) -> Result<Sent, Failure> {
    for one in &ready {
        note!("operation {}: {}", one.id, one.title);
    }
    let ask = async |open: &[Ready]| {
        let asked = open.iter().map(|one| (one.id.clone(), one.submit.clone()));
        let outcomes = client.submit_all(asked.collect::<Vec<_>>()).await;
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    };
    outcomes(ready, ask, sending, output).await
}

/// What the operations are called, with their ids.
pub fn operations(ready: Vec<Ready>) -> Vec<(String, String)> {
    ready.into_iter().map(|one| (one.title, one.id)).collect()
}

/// What is told of one of many.
pub trait Titled {
    fn title(&self) -> &str;
    fn operation_id(&self) -> &str;
}

impl Titled for Ready {
    fn title(&self) -> &str {
        &self.title
    }

    fn operation_id(&self) -> &str {
        &self.id
    }
}

/// Asks for all of them, and again for those without an outcome while there is time. Where a person reads it, tells what came of
/// each at once.
pub async fn outcomes<T: Titled>(
    all: Vec<T>,
    ask: impl AsyncFn(&[T]) -> Vec<Result<v1::Submitted, Failed>>,
    sending: &Sending,
    output: Output,
) -> Result<Sent, Failure> {
    let mut open = all;
    let (all, left) = (open.len(), Left::of(sending.deadline()));
    let mut sent = Sent::default();
    let mut refused = 0;
    let failed = loop {
        let outcomes = ask(&open).await;
        let mut again = Vec::new();
        let mut failed = None;
        for (one, outcome) in open.into_iter().zip(outcomes) {
            let title = one.title();
            match outcome {
                Ok(done) => {
                    if !output.is_for_programs() {
                        say!("{title} {} {}", done.allocation_id, state(&done));
                    }
                    sent.add(&one, Came::Accepted(done));
                }
                Err(Failed::Refused(why)) => {
                    refused += 1;
                    note!("{title}: refused: {}", why.explanation);
                    sent.add(&one, Came::Refused(why.explanation));
                }
                Err(other) => {
                    failed = Some(other);
                    again.push(one);
                }
            }
        }
        open = again;
        let insists = !open.is_empty() && sending.deadline().is_some();
        if !insists
            || left
                .within(tokio::time::sleep(BETWEEN_TRIES))
                .await
                .is_none()
        {
            break failed;
        }
    };
    for one in &open {
        note!("{}: without an outcome", one.title());
        sent.add(one, Came::Unknown);
    }
    let bad = refused + open.len();
    let failure = match failed {
        Some(failed) => Some(Failure::from(failed)),
        None if refused > 0 => {
            let refused = format!("{refused} of {all} were refused");
            Some(Failure::refused(refused))
        }
        None => None,
    };
    sent.failure = failure.map(|failure| match bad < all {
        true => failure.afterwards(),
        false => failure,
    });
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::submit::file;

    const CHAIN: &str = "name: c\nafter: [b, a]\n---\nname: a\n---\nname: b\nafter_success: a\n";

    fn plan(text: &str) -> Result<Vec<Ready>, Vec<String>> {
        ready(file::read("f", text)?, "o")
    }

    #[test]
    fn what_starts_after_others_comes_behind_them_and_names_their_operations() {
        let all = plan(CHAIN).unwrap();
        let titles: Vec<_> = all.iter().map(|one| one.title.as_str()).collect();
        assert_eq!(titles, ["a", "b", "c"]);
        let on = |at: usize| -> Vec<(&str, bool)> {
            let on = all[at].submit.depends_on.iter();
            on.map(|one| (one.operation_id.as_str(), one.success))
                .collect()
        };
        let (a, b) = (all[0].id.as_str(), all[1].id.as_str());
        assert_eq!(on(1), [(a, true)]);
        assert_eq!(on(2), [(b, false), (a, false)]);
        assert!(all.iter().all(|one| {
            one.submit
                .depends_on
                .iter()
                .all(|on| on.allocation_id.is_empty())
        }));
    }

    #[test]
    fn an_operation_is_the_same_if_it_is_repeated() {
        let ids = |text: &str, base| -> BTreeSet<String> {
            let all = ready(file::read("f", text).unwrap(), base).unwrap();
            all.into_iter().map(|one| one.id).collect()
        };
        assert_eq!(ids(CHAIN, "o"), ids(CHAIN, "o"));
        assert_eq!(ids(CHAIN, "o").len(), 3);
        assert!(ids(CHAIN, "o").is_disjoint(&ids(CHAIN, "p")));
        // Without names they are told apart by their place.
        assert_eq!(ids("cpu: 1\n---\ncpu: 1\n", "o").len(), 2);
    }

    #[test]
    fn names_that_nobody_has_and_cycles_are_refused() {
        let check = |text: &str, expected: &str| {
            assert_eq!(plan(text).unwrap_err(), [expected], "{text}");
        };
        check(
            "name: a\nafter: b",
            "f:2: document 1: after: b: no other document is called so, and it is no allocation's id",
        );
        check(
            "name: a\n---\nname: a",
            "f:3: document 2: name: a: document 1 is called so, too",
        );
        let cycle = "each waits for the next, for ever";
        check(
            "name: a\nafter: [b]\n---\nname: b\nafter: [a]",
            &format!("f:2: document 1: after: {cycle}: a -> b -> a"),
        );
        check(
            "name: a\nafter: a",
            &format!("f:2: document 1: after: {cycle}: a -> a"),
        );
        check(
            "name: x\nafter: y\n---\nname: y\nafter: z\n---\nname: z\nafter_success: y",
            &format!("f:5: document 2: after: {cycle}: y -> z -> y"),
        );
        let id = "00000000-0000-0001-0000-000000000007";
        let outside = plan(&format!("after: {id}")).unwrap();
        assert_eq!(outside[0].submit.depends_on[0].allocation_id, id);
    }

    #[test]
    fn an_order_has_each_behind_what_it_is_on_or_there_is_a_cycle() {
        use ledger::memory::Seeded;
        let (mut orders, mut cycles) = (0, 0);
        for seed in 0..5000 {
            let mut random = Seeded::new(seed);
            let count = 1 + random.below(8) as usize;
            let on: Vec<BTreeSet<usize>> = (0..count)
                .map(|_| {
                    (0..random.below(3))
                        .map(|_| random.below(count as u64) as usize)
                        .collect()
                })
                .collect();
            match order(&on) {
                Ok(order) => {
                    orders += 1;
                    let place = |at: usize| order.iter().position(|one| *one == at).unwrap();
                    assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), count);
                    assert!(
                        (0..count).all(|at| on[at].iter().all(|before| place(*before) < place(at)))
                    );
                }
                Err(cycle) => {
                    cycles += 1;
                    assert_eq!(cycle.first(), cycle.last());
                    assert!(cycle.windows(2).all(|pair| on[pair[0]].contains(&pair[1])));
                }
            }
        }
        assert!(orders > 500 && cycles > 500, "{orders} {cycles}");
    }
}
