//! A request as a document of a file: what `submit --file` reads as that.

use super::place::{numa_text, requirement_text, spread_text, term_text, toleration_text};
use crate::amount::{bytes_text, duration_text, milli_text};
use data_encoding::BASE64;
use schemas::v1;
use serde_json::{Map, Value};

/// The fields that say something. `tenant` is whose request it is.
pub fn document(submit: &v1::Submit, tenant: &str) -> Value {
    let mut fields = Document::default();
    fields.text("name", &submit.name);
    fields.text("job_set", &submit.job_set);
    fields.text("queue", &submit.queue);
    fields.text("account", &account(submit, tenant));
    fields.text("priority_class", &submit.priority_class);
    fields.number("priority", submit.priority.into());
    fields.amount("cpu", submit.cpu_milli, milli_text);
    fields.amount("memory", submit.memory_bytes, bytes_text);
    fields.amount("cpu_limit", submit.cpu_milli_limit, milli_text);
    fields.amount("memory_limit", submit.memory_bytes_limit, bytes_text);
    fields.flag("best_effort", submit.best_effort);
    fields.number("gpus", submit.gpu_count);
    // As good as not said.
    let share = Some(submit.gpu_milli).filter(|milli| *milli != 1000);
    fields.number("gpu_milli", share.unwrap_or(0));
    fields.list("gpu_model", submit.gpu_models.iter().cloned());
    let extended = submit.extended.iter();
    fields.pairs(
        "extended",
        extended.map(|one| (one.name.clone(), one.amount.into())),
    );
    if let Some(rules) = &submit.rules {
        place(&mut fields, rules);
    }
    if let Some(gang) = &submit.gang {
        fields.text("gang", &gang.name);
        fields.number("gang_size", gang.size);
        fields.number("gang_min", gang.min);
        fields.text("gang_uniform", &gang.uniform_label);
    }
    let after = |success| {
        let of_kind = submit
            .depends_on
            .iter()
            .filter(move |on| on.success == success);
        of_kind.map(|on| on.allocation_id.clone())
    };
    fields.list("after", after(false));
    fields.list("after_success", after(true));
    fields.number("retries", submit.retries);
    fields.flag("never_requeue", submit.never_requeue);
    fields.amount("run_time", submit.run_time_ms, duration_text);
    fields.amount("ttl", submit.ttl_ms, duration_text);
    fields.amount("time_limit", submit.time_limit_ms, duration_text);
    let labels = submit.labels.iter();
    fields.pairs(
        "label",
        labels.map(|label| (label.name.clone(), label.value.as_str().into())),
    );
    if let Some(index) = submit.array_index {
        fields.set("array_index", index.into());
    }
    if let Some(work) = &submit.work {
        run(&mut fields, work);
    }
    Value::Object(fields.0)
}

fn account(submit: &v1::Submit, tenant: &str) -> String {
    match (submit.team.as_str(), submit.namespace.as_str()) {
        ("", _) => String::new(),
        (team, "") => format!("{tenant}/{team}"),
        (team, namespace) => format!("{tenant}/{team}/{namespace}"),
    }
}

fn place(fields: &mut Document, rules: &v1::PlacementRules) {
    fields.list("node_label", rules.selector.iter().map(requirement_text));
    let preferred = rules.preferred.iter();
    fields.list("prefer_node_label", preferred.map(requirement_text));
    fields.list("tolerate", rules.tolerations.iter().map(toleration_text));
    fields.text("group", &rules.group);
    fields.list("affinity", rules.affinity.iter().map(term_text));
    fields.list("anti_affinity", rules.anti_affinity.iter().map(term_text));
    fields.list("spread", rules.spread.iter().map(spread_text));
    fields.text("numa", numa_text(rules.numa()));
}

fn run(fields: &mut Document, work: &v1::Work) {
    let env = work.env.iter();
    fields.pairs(
        "env",
        env.map(|one| (one.name.clone(), one.value.as_str().into())),
    );
    fields.text("working_dir", &work.working_dir);
    fields.text("image", &work.image);
    fields.text("payload_base64", &BASE64.encode(&work.payload));
    if !work.command.is_empty() || !work.args.is_empty() {
        let words = std::iter::once(&work.command).chain(&work.args);
        fields.list("command", words.cloned());
    }
}

#[derive(Default)]
struct Document(Map<String, Value>);

impl Document {
    fn set(&mut self, field: &str, value: Value) {
        self.0.insert(field.to_owned(), value);
    }

    fn text(&mut self, field: &str, text: &str) {
        if !text.is_empty() {
            self.set(field, text.into());
        }
    }

    fn number(&mut self, field: &str, number: i64) {
        if number != 0 {
            self.set(field, number.into());
        }
    }

    /// As a number where that is the whole text.
    fn amount(&mut self, field: &str, amount: i64, text: impl Fn(i64) -> String) {
        if amount != 0 {
            let text = text(amount);
            let number = text.parse::<i64>().map(Value::from);
            self.set(field, number.unwrap_or_else(|_| text.into()));
        }
    }

    fn flag(&mut self, field: &str, is: bool) {
        if is {
            self.set(field, true.into());
        }
    }

    fn list(&mut self, field: &str, values: impl Iterator<Item = String>) {
        let values: Vec<Value> = values.map(Value::from).collect();
        if !values.is_empty() {
            self.set(field, values.into());
        }
    }

    fn pairs(&mut self, field: &str, pairs: impl Iterator<Item = (String, Value)>) {
        let pairs: Map<String, Value> = pairs.collect();
        if !pairs.is_empty() {
            self.set(field, pairs.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::submit::{file, many};
    use proptest::{collection::vec, option, prelude::*};

    /// Perhaps nothing.
    fn name() -> impl Strategy<Value = String> {
        "[a-z][a-z0-9-]{0,5}|"
    }

    fn named() -> impl Strategy<Value = String> {
        "[a-z][a-z0-9-]{0,5}"
    }

    /// In units that are written in different ways.
    fn amount() -> impl Strategy<Value = i64> {
        prop_oneof![
            Just(0),
            1..2000i64,
            (1..50i64).prop_map(|it| it * 1000),
            (1..50i64).prop_map(|it| it << 30),
            (1..50i64).prop_map(|it| it * 3_600_000),
        ]
    }

    fn requirement() -> impl Strategy<Value = v1::Requirement> {
        let values = vec(named(), 1..3);
        (named(), 1..5i32, values).prop_map(|(label, operator, values)| v1::Requirement {
            label,
            operator,
            values: if operator <= 2 { values } else { Vec::new() },
        })
    }

    fn rules() -> impl Strategy<Value = v1::PlacementRules> {
        let toleration = (named(), name()).prop_map(|(key, value)| v1::Toleration { key, value });
        let any = Just(v1::Toleration::default());
        let term = || {
            (named(), name()).prop_map(|(group, topology_key)| v1::GroupTerm {
                group,
                topology_key,
            })
        };
        let spread = (name(), 1..4u32).prop_map(|(topology_key, max_skew)| v1::Spread {
            topology_key,
            max_skew,
        });
        let all = (
            vec(requirement(), 0..3),
            vec(requirement(), 0..3),
            vec(prop_oneof![toleration, any], 0..3),
            name(),
            vec(term(), 0..2),
            vec(term(), 0..2),
            vec(spread, 0..2),
            0..3i32,
        );
        all.prop_map(
            |(selector, preferred, tolerations, group, affinity, anti_affinity, spread, numa)| {
                v1::PlacementRules {
                    selector,
                    tolerations,
                    group,
                    affinity,
                    anti_affinity,
                    spread,
                    numa,
                    preferred,
                }
            },
        )
    }

    /// Whatever a document can hold, which is all but control characters: of these line feeds and tabs alone.
    const TEXT: &str = "[ -~\\n\\täß€😀]{0,6}";

    fn work() -> impl Strategy<Value = v1::Work> {
        let variable = ("[A-Z]{1,3}", TEXT);
        let payload = vec(any::<u8>(), 0..5);
        let all = (
            vec(TEXT, 0..4),
            proptest::collection::btree_map(variable.0, variable.1, 0..3),
            "|/[a-z]{1,4}",
            name(),
            payload,
        );
        all.prop_map(|(words, env, working_dir, image, payload)| {
            // Without a program there is nothing to run, but for the entry point of an image.
            let has_command = words.first().is_some_and(|word| !word.is_empty())
                || (!image.is_empty() && words.len() > 1);
            let mut words = words.into_iter().filter(|_| has_command);
            v1::Work {
                command: words.next().unwrap_or_default(),
                args: words.collect(),
                env: env
                    .into_iter()
                    .map(|(name, value)| v1::EnvVar { name, value })
                    .collect(),
                working_dir,
                image,
                payload,
            }
        })
    }

    fn gang() -> impl Strategy<Value = v1::GangRequest> {
        (named(), 1..9i64, 0..9i64, name()).prop_map(|(name, size, min, uniform_label)| {
            v1::GangRequest {
                name,
                size,
                min,
                uniform_label,
            }
        })
    }

    fn request() -> impl Strategy<Value = v1::Submit> {
        let on = (any::<u64>(), any::<bool>()).prop_map(|(number, success)| {
            let id = vocab::AllocationNo(number).id(vocab::CellNo(3));
            v1::DependencyRequest {
                allocation_id: id.to_string(),
                success,
                operation_id: String::new(),
            }
        });
        let pairs = || proptest::collection::btree_map(named(), named(), 0..3);
        let names = (name(), name(), name(), named(), name(), name());
        let amounts = (
            amount(),
            amount(),
            amount(),
            amount(),
            amount(),
            amount(),
            amount(),
        );
        let gpu = (0..4i64, 0..1000i64, vec(named(), 0..3));
        let numbers = (
            any::<i16>(),
            0..5i64,
            any::<bool>(),
            option::of(any::<u32>()),
        );
        let parts = (
            option::of(rules()),
            option::of(gang()),
            option::of(work()),
            vec(on, 0..3),
        );
        let more = (pairs(), pairs(), any::<bool>());
        (names, amounts, gpu, numbers, parts, more).prop_map(
            |(names, amounts, gpu, numbers, parts, more)| {
                let (job_set, name, queue, team, namespace, priority_class) = names;
                let (cpu, memory, cpu_limit, memory_limit, run_time, ttl, time_limit) = amounts;
                let (rules, gang, work, depends_on) = parts;
                let (labels, extended, of_a_team) = more;
                // Those that wait for any end come first, as flags have them.
                let mut depends_on = depends_on;
                depends_on.sort_by_key(|on| on.success);
                v1::Submit {
                    job_set,
                    name,
                    priority: numbers.0.into(),
                    cpu_milli: cpu,
                    memory_bytes: memory,
                    gpu_count: gpu.0,
                    // A share implies a device.
                    gpu_milli: if gpu.0 == 0 { 0 } else { gpu.1 },
                    gpu_models: gpu.2,
                    queue,
                    priority_class,
                    extended: (extended.into_keys())
                        .map(|name| v1::ExtendedRequest { name, amount: 7 })
                        .collect(),
                    rules: rules.filter(|rules| *rules != v1::PlacementRules::default()),
                    gang,
                    depends_on,
                    retries: numbers.1,
                    never_requeue: numbers.2,
                    run_time_ms: run_time,
                    namespace: if of_a_team { namespace } else { String::new() },
                    team: if of_a_team { team } else { String::new() },
                    cpu_milli_limit: cpu_limit,
                    memory_bytes_limit: memory_limit,
                    best_effort: cpu == 0 && memory == 0,
                    labels: (labels.into_iter())
                        .map(|(name, value)| v1::Label { name, value })
                        .collect(),
                    work: work.filter(|work| *work != v1::Work::default()),
                    ttl_ms: ttl,
                    time_limit_ms: time_limit,
                    array_index: numbers.3,
                }
            },
        )
    }

    fn read(text: &str) -> Vec<v1::Submit> {
        let asked = file::read("f", text).unwrap();
        let mut ready = many::ready(asked, "base").unwrap();
        ready.iter_mut().for_each(|one| one.of_tenant("t").unwrap());
        ready.into_iter().map(|one| one.submit).collect()
    }

    proptest! {
        #[test]
        fn a_document_asks_for_what_it_was_made_of(submit in request()) {
            let document = document(&submit, "t");
            prop_assert_eq!(read(&document.to_string()), [submit.clone()]);
            let yaml = serde_saphyr::to_string(&document).unwrap();
            prop_assert_eq!(read(&yaml), [submit], "{}", yaml);
        }
    }
}
