//! What an allocation asked for, as its tenant is told it: it can be sent again, and asks for the same.

use crate::e2e::suite::{Outcome, Suite};
use client::{AllocationsQuery, Submit};
use ledger::memory::Seeded;
use schemas::v1::{
    DependencyRequest, EnvVar, ExtendedRequest, GangRequest, GroupTerm, Label, NumaPolicy,
    Operator, PlacementRules, Requirement, SetPriorityClass, Spread, Toleration, Work,
};

const REQUESTS: usize = 60;

fn label(name: &str, value: &str) -> Label {
    Label {
        name: name.to_owned(),
        value: value.to_owned(),
    }
}

fn rules(random: &mut Seeded) -> PlacementRules {
    let requirement = |label: &str, operator: Operator, values: &[&str]| Requirement {
        label: label.to_owned(),
        operator: operator.into(),
        values: values.iter().map(|value| (*value).to_owned()).collect(),
    };
    let term = |group: &str, label: &str| GroupTerm {
        group: group.to_owned(),
        topology_key: label.to_owned(),
    };
    let mut rules = PlacementRules {
        group: "workers".to_owned(),
        ..PlacementRules::default()
    };
    if random.chance(500) {
        // Neither in the order of their names nor without repetition.
        rules.selector = vec![
            requirement("zone", Operator::In, &["z2", "z1"]),
            requirement("old", Operator::Missing, &[]),
            requirement("old", Operator::Missing, &[]),
            // What admission adds for work is about the same label.
            requirement("_commands", Operator::NotIn, &["plugin"]),
        ];
    }
    if random.chance(500) {
        rules.preferred = vec![requirement("ssd", Operator::Exists, &[])];
        rules.numa = NumaPolicy::Single.into();
    }
    if random.chance(500) {
        rules.tolerations = vec![
            Toleration {
                key: "spot".to_owned(),
                value: "yes".to_owned(),
            },
            Toleration::default(),
        ];
    }
    if random.chance(500) {
        rules.affinity = vec![term("data", "rack")];
        rules.anti_affinity = vec![term("noisy", "")];
        rules.spread = vec![Spread {
            topology_key: "zone".to_owned(),
            max_skew: 2,
        }];
    }
    rules
}

fn work(random: &mut Seeded) -> Work {
    let variable = |name: &str| EnvVar {
        name: name.to_owned(),
        value: "1".to_owned(),
    };
    Work {
        command: "train".to_owned(),
        args: vec!["--epochs".to_owned(), "7".to_owned()],
        env: vec![variable("B"), variable("A")],
        image: match random.chance(500) {
            true => "registry/train:1".to_owned(),
            false => String::new(),
        },
        payload: vec![0, 1, 255],
        ..Work::default()
    }
}

/// Whatever the inbox lets in.
fn request(random: &mut Seeded, earlier: &[String]) -> Submit {
    let mut submit = Submit {
        cpu_milli: 500,
        memory_bytes: 1 << 30,
        ..Submit::default()
    };
    if random.chance(300) {
        submit.job_set = "night".to_owned();
        submit.name = "train".to_owned();
        submit.priority = -7;
    }
    if random.chance(300) {
        submit.priority_class = "urgent".to_owned();
        submit.priority = 0;
    }
    if random.chance(300) {
        (submit.cpu_milli, submit.memory_bytes, submit.best_effort) = (0, 0, true);
    } else if random.chance(500) {
        (submit.cpu_milli_limit, submit.memory_bytes_limit) = (4000, 1 << 31);
    }
    if random.chance(500) {
        submit.gpu_count = 1 + random.below(2) as i64;
        submit.gpu_milli = [0, 1000][random.below(2) as usize];
        submit.gpu_models = vec!["T4".to_owned(), "A100".to_owned()];
    }
    if random.chance(300) {
        (submit.team, submit.namespace) = ("ml".to_owned(), "vision".to_owned());
    }
    if random.chance(500) {
        submit.rules = Some(rules(random));
    }
    if random.chance(200) {
        let min = [0, 2][random.below(2) as usize];
        submit.gang = Some(GangRequest {
            // All members of a gang ask for the same minimum.
            name: format!("g{min}"),
            size: 1000,
            min,
            uniform_label: "rack".to_owned(),
        });
    }
    if let (true, Some(id)) = (submit.gang.is_none() && random.chance(300), earlier.last()) {
        submit.depends_on = vec![DependencyRequest {
            allocation_id: id.clone(),
            success: random.chance(500),
            operation_id: String::new(),
        }];
    }
    if random.chance(500) {
        submit.extended = vec![ExtendedRequest {
            name: "licence".to_owned(),
            amount: 3,
        }];
        submit.labels = vec![label("model", "bert"), label("grant", "7")];
    }
    if random.chance(500) {
        submit.work = Some(work(random));
    }
    if random.chance(500) {
        (submit.retries, submit.never_requeue) = (3, true);
        (submit.run_time_ms, submit.ttl_ms, submit.time_limit_ms) = (60_000, 3_600_000, 7_200_000);
        submit.array_index = Some(random.below(9) as u32);
    }
    submit
}

#[tokio::test]
async fn what_was_asked_for_can_be_asked_for_again() -> Outcome {
    let suite = Suite::start().await;
    let tenant = suite.tenant("tenant-a").await;
    let class = SetPriorityClass {
        priority_class: "urgent".to_owned(),
        value: 90,
        ..SetPriorityClass::default()
    };
    (suite.operator().await)
        .set_priority_class(class, "class")
        .await?;
    let mut random = Seeded::new(7);
    let mut ids = Vec::new();
    let mut labelled = Vec::new();
    for no in 0..REQUESTS {
        let submit = request(&mut random, &ids);
        let operation = format!("asked-{no}");
        let sent = tenant.try_submit(submit.clone()).await?.spec;
        let id = tenant
            .submit(submit.clone(), &operation)
            .await?
            .allocation_id;
        let told = tenant.allocation_whole(&*id, tenant.decided_lsn()).await?;
        assert_eq!(told.operation_id, operation);
        assert_eq!(told.attempts, [], "there is no node");
        let asked = told.asked.expect("it is told what it asked for");
        let again = tenant.try_submit(asked).await?.spec;
        assert_eq!(again, sent, "{submit:?}");
        let view = told.view.expect("it stands somewhere");
        assert_eq!(view.labels.len(), submit.labels.len());
        if !view.labels.is_empty() {
            labelled.push(id.clone());
        }
        ids.push(id);
    }
    // The oldest first, by a label with its value and by one with any.
    let mut query = AllocationsQuery {
        labels: vec![label("grant", "7"), label("model", "")],
        oldest_first: true,
        limit: 1000,
        ..AllocationsQuery::default()
    };
    let found = tenant.allocations(&query).await?.allocations;
    let found: Vec<_> = found.into_iter().map(|one| one.allocation_id).collect();
    assert_eq!(found, labelled);
    query.labels[0].value = "8".to_owned();
    assert_eq!(tenant.allocations(&query).await?.allocations, []);
    suite.close().await;
    Ok(())
}
