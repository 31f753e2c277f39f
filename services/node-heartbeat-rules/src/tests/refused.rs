//! Operators see which nodes are refused, what these reported, and the remedy.

use super::*;

fn registers(node: &str, boot: u64, turn: impl FnOnce(&mut NodeCapacity)) -> Option<Command> {
    let mut capacity = capacity();
    turn(&mut capacity);
    Some(Command::Register {
        node: token(node),
        boot,
        capacity: Box::new(capacity),
        change: 0,
    })
}

fn cores(cpu_milli: u64) -> impl FnOnce(&mut NodeCapacity) {
    move |capacity| capacity.cpu_milli = cpu_milli
}

impl Table {
    /// Asserts what operators see: the refusal, its moment, the reported cores, and the remedy.
    #[track_caller]
    fn refused(&self, expected: &[&str]) {
        let refused = self.state.refused_nodes("", Millis(self.now));
        let words = refused.map(|(node, it)| {
            let reported = it.reported.as_ref();
            let cores = reported.map_or("-".to_owned(), |it| it.cpu_milli.to_string());
            let (refusal, at) = (&it.refusal, it.at.0);
            format!(
                "{node}: {refusal} at {at}, has {cores}: {}",
                it.remedy(node)
            )
        });
        assert_eq!(words.collect::<Vec<_>>(), expected);
    }
}

const APPROVE_8: &str = "apportion node approve n --cpu 8 --memory 1GiB --label zone=z1";

#[test]
fn a_refused_capacity_is_seen_until_the_node_registers_or_is_approved_anew() {
    let more = format!(
        "n: capacity not approved: cpu_milli (limit 4000, actual 8000) at 1, has 8000: {APPROVE_8}"
    );
    let mut t = Table::new();
    t.set("n", 1, Some((1, 100)));
    t.check(1, registers("n", 1, cores(8000)), &[]);
    t.refused(&[&more]);
    // The last refusal counts.
    t.check(2, registers("n", 1, cores(8000)), &[]);
    t.refused(&[&more.replace("at 1", "at 2")]);
    t.check(3, registers("n", 1, cores(4000)), &["n registered 1"]);
    t.refused(&[]);
    t.check(4, registers("n", 2, cores(8000)), &[]);
    t.set("n", 2, Some((2, 100)));
    t.refused(&[]);
}

#[test]
fn every_refusal_of_a_registration_is_seen() {
    let check = |set: fn(&mut Table), asks: Option<Command>, expected: &str| {
        let mut t = Table::required();
        set(&mut t);
        t.effects();
        t.check(7, asks, &[]);
        t.refused(&[expected]);
        assert_eq!(t.effects().len(), 1);
    };
    check(
        |_| {},
        registers("n", 1, cores(8000)),
        &format!("n: node not approved: node at 7, has 8000: {APPROVE_8}"),
    );
    check(
        |t| {
            t.joining = Joining::Open;
            t.set("n", 1, None);
        },
        registers("n", 1, cores(8000)),
        &format!("n: node not approved: node at 7, has 8000: {APPROVE_8}"),
    );
    let open = |t: &mut Table| t.joining = Joining::Open;
    let remedy = |rule: Rule| rule.teaching().passes;
    check(
        open,
        registers("n", 1, |it| it.gpus = 17),
        &format!(
            "n: quantity too large: gpus (limit 16, actual 17) at 7, has 4000: {}",
            remedy(Rule::QuantityTooLarge)
        ),
    );
    check(
        open,
        Some(Command::RegisterUnreadable {
            node: token("n"),
            boot: 1,
        }),
        &format!(
            "n: malformed message: capacity at 7, has -: {}",
            remedy(Rule::MalformedMessage)
        ),
    );
    let hostname = |it: &mut NodeCapacity| it.labels = vec![(token("hostname"), token("h"))];
    let mut t = Table::new();
    t.check(0, registers("first", 1, hostname), &["first registered 1"]);
    t.check(1, registers("n", 1, hostname), &[]);
    t.refused(&[&format!(
        "n: hostname taken: first at 1, has 4000: {}",
        remedy(Rule::HostnameTaken)
    )]);
}

#[test]
fn a_refused_change_is_seen_until_the_node_is_as_it_was_registered() {
    let mut t = Table::new();
    let changes = |change: u64, gpus: u16| {
        let mut command = registers("n", 1, |it| it.gpus = gpus);
        if let Some(Command::Register { change: of, .. }) = &mut command {
            *of = change;
        }
        command
    };
    t.check(0, changes(0, 0), &["n registered 1"]);
    t.check(1, changes(1, 1), &[]);
    let stays = Rule::CapacityStays.teaching().passes;
    t.refused(&[&format!("n: capacity stays: gpus at 1, has 4000: {stays}")]);
    t.check(2, changes(2, 0), &[]);
    t.refused(&[]);
}

#[test]
fn a_refused_join_is_seen_for_approved_names_only() {
    let join = |node: &str, by: u8| {
        Some(Command::Join(Box::new(Join {
            node: token(node),
            token: [by; 32],
            key: token("A"),
            request: 7,
        })))
    };
    let mut t = Table::required();
    t.set("n", 1, Some((1, 100)));
    t.check(1, join("n", 2), &[]);
    t.check(1, join("stranger", 2), &[]);
    assert_eq!(t.effects().len(), 2);
    let remedy = Rule::JoinTokenInvalid.teaching().passes;
    t.refused(&[&format!(
        "n: join token invalid: token at 1, has -: {remedy}"
    )]);
    t.check(2, join("n", 1), &["n joined A"]);
    t.refused(&[]);
    // An agent renews its user meanwhile: the refused registration stays.
    t.check(3, registers("n", 1, cores(8000)), &[]);
    t.check(4, join("n", 1), &[]);
    t.refused(&[&format!(
        "n: capacity not approved: cpu_milli (limit 4000, actual 8000) at 3, has 8000: {APPROVE_8} --keep-token FILE"
    )]);
}

#[test]
fn a_flood_of_refused_names_is_bounded_and_the_latest_stay() {
    let mut t = Table::required();
    let most = REFUSED_MAX as i64;
    for at in 0..3 * most {
        t.check(at, registers(&format!("n{at:05}"), 1, cores(1)), &[]);
    }
    let names = |t: &Table, prefix: &str| -> Vec<String> {
        let refused = t.state.refused_nodes(prefix, Millis(t.now));
        refused.map(|(node, _)| node.to_string()).collect()
    };
    let all = names(&t, "");
    assert_eq!(all.len(), REFUSED_MAX);
    assert_eq!(all[0], format!("n{:05}", 2 * most));
    assert_eq!(names(&t, "n0076").len(), 8);
    // A day later they are no news.
    t.now += 24 * 3_600_000;
    assert_eq!(names(&t, ""), Vec::<String>::new());
}

#[test]
fn refusals_are_not_recorded() {
    let mut t = Table::required();
    t.check(0, registers("n", 1, cores(1)), &[]);
    t.state = postcard_round_trip(&t.state);
    t.refused(&[]);
}
