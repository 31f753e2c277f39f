//! The measure on small lists of its own.

use super::*;
use std::{fs, path::Path};

const NODES: &str = "sn,cpu_milli,memory_mib,gpu,model\n\
    a,16000,65536,2,T4\nb,16000,65536,2,T4\nc,32000,131072,4,G2\nd,8000,32768,0,\n";
const PODS: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n\
    p0,4000,1024,1,500,,0,100\np1,4000,1024,1,500,G2|T4,0,50\np2,4000,1024,1,1000,T4,10,60\n\
    p3,8000,1024,2,1000,,20,20\np4,8000,1024,0,0,,30,90\np5,4000,1024,8,1000,,40,90\n";

/// A directory with these files, for the time of one test.
struct Files(PathBuf);

impl Files {
    fn new(test: &str, files: &[(&str, &str)]) -> Self {
        let name = format!("loadtest-placement-{}-{test}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).unwrap();
        for (name, text) in files {
            fs::write(directory.join(name), text).unwrap();
        }
        Self(directory)
    }

    fn tiny(test: &str) -> Self {
        let files = [
            ("openb_node_list_gpu_node.csv", NODES),
            ("openb_pod_list_tiny.csv", PODS),
        ];
        Self::new(test, &files)
    }

    fn lists(&self, list: &str) -> Result<Lists, ListError> {
        Lists::read(&self.0, list, None)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn options(files: &Files, departures: bool) -> Options {
    Options {
        data: files.0.clone(),
        list: "tiny".to_owned(),
        nodes: None,
        policy: policies("all").unwrap(),
        seeds: 3,
        seed: 1,
        departures,
        json: files.0.join("out.jsonl"),
        size: Size::default(),
    }
}

#[test]
fn a_list_goes_by_several_names() {
    let files = Files::tiny("names");
    for name in ["tiny", "openb_pod_list_tiny", "openb_pod_list_tiny.csv"] {
        let lists = files.lists(name).unwrap();
        assert_eq!(
            (lists.name.as_str(), lists.nodes.len(), lists.pods.len()),
            ("tiny", 4, 6)
        );
        assert_eq!(lists.gpu_capacity_milli(), 8000);
    }
    assert!(
        files
            .lists("other")
            .unwrap_err()
            .to_string()
            .contains("openb_pod_list_other.csv")
    );
    assert!(Lists::read(&files.0, "tiny", Some(Path::new("no/such.csv"))).is_err());
}

#[test]
fn bad_rows_are_named() {
    let check = |number: usize, pod: &str, expected: &str| {
        let pods = format!("cpu_milli,memory_mib,num_gpu,gpu_milli\n1,1,0,0\n{pod}\n");
        let files = Files::new(
            &format!("bad-{number}"),
            &[
                ("openb_node_list_gpu_node.csv", NODES),
                ("openb_pod_list_bad.csv", &pods),
            ],
        );
        let error = files.lists("bad").unwrap_err().to_string();
        assert!(
            error.contains(expected) && error.contains("list_bad.csv"),
            "{error}"
        );
    };
    check(0, "1,1,1,0", "line 3: gpu_milli is not from 1 to 1000");
    check(1, "1,1,2,500", "line 3: gpu_milli is not 1000");
    check(2, "1,1,-1,500", "line: 3");
    check(3, "1,1", "line: 3");
    check(4, "1,99999999999999,0,0", "line 3: memory_mib is too large");
    let nodes = "sn,cpu_milli,memory_mib,gpu,model\na,1,1,17,T4\n";
    let files = Files::new(
        "bad-nodes",
        &[
            ("openb_node_list_gpu_node.csv", nodes),
            ("openb_pod_list_tiny.csv", PODS),
        ],
    );
    assert!(
        files
            .lists("tiny")
            .unwrap_err()
            .to_string()
            .contains("line 2: more than 16")
    );
}

#[test]
fn times_are_needed_for_departures_alone() {
    let pods = "cpu_milli,memory_mib,num_gpu,gpu_milli\n1,1,1,1000\n";
    let files = Files::new(
        "times",
        &[
            ("openb_node_list_gpu_node.csv", NODES),
            ("openb_pod_list_tiny.csv", pods),
        ],
    );
    let lists = files.lists("tiny").unwrap();
    assert!(
        lists
            .check_times()
            .unwrap_err()
            .to_string()
            .contains("line 2: without creation_time")
    );
}

#[test]
fn the_demand_is_130_percent() {
    let files = Files::tiny("demand");
    let mut lists = files.lists("tiny").unwrap();
    let demand = |lists: &Lists, seed| -> u64 {
        let sequence = fill::sequence(lists, &mut Seeded::new(seed));
        sequence.iter().map(|ask| ask.gpu_milli_total()).sum()
    };
    // The list asks for 12000 of 8000; one of 500 or 1000 may still be drawn after one of the 8000 has gone.
    assert!((0..50).all(|seed| demand(&lists, seed) <= 10_400));
    lists.pods.retain(|pod| pod.ask.gpus() < 8);
    assert!((0..50).all(|seed| (8_400..=10_400).contains(&demand(&lists, seed))));
}

#[test]
fn a_small_cluster_is_filled() {
    let files = Files::tiny("fill");
    let options = options(&files, false);
    run(&options).unwrap();
    let text = fs::read_to_string(&options.json).unwrap();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), Policy::ALL.len());
    for (line, policy) in lines.iter().zip(Policy::ALL) {
        assert_eq!(
            (&line["measure"], &line["list"]),
            (&"placement".into(), &"tiny".into())
        );
        assert_eq!(line["policy"], policy.name());
        assert_eq!(
            (&line["pods"], &line["nodes"], &line["seeds"]),
            (&6.into(), &4.into(), &3.into())
        );
        assert!(line["published_mean"].is_null());
        assert!(line["decisions_per_s"].as_f64().unwrap() > 0.0);
    }
    // The same seeds, the same figures.
    let lists = files.lists("tiny").unwrap();
    let figures = || {
        let cases = measure(&lists, &options).into_iter();
        let figure = |case| match case {
            Case::Fill(case) => case.unallocated_pct_at_100,
            Case::Departures(_) => None,
        };
        cases.map(figure).collect::<Vec<_>>()
    };
    assert_eq!(figures(), figures());
}

#[test]
fn who_goes_makes_room() {
    let files = Files::tiny("departures");
    let lists = files.lists("tiny").unwrap();
    for policy in Policy::ALL {
        let visited = departures::run(&lists, policy, 7);
        // Only the one that wants eight devices finds no place; it never would.
        assert_eq!(
            (visited.placed, visited.failed, visited.never),
            (5, 1, 1),
            "{}",
            policy.name()
        );
        // 50 s and 100 s of half a device, 50 s of one, in 100 s of eight; the two devices stayed no time.
        let expected = (100.0 * 0.5 + 50.0 * 0.5 + 50.0) / 100.0 / 8.0 * 100.0;
        assert!(
            (visited.allocated_mean - expected).abs() < 1e-9,
            "{}",
            visited.allocated_mean
        );
        assert!((visited.allocated_peak - 100.0 * 4.0 / 8.0).abs() < 1e-9);
    }
    run(&options(&files, true)).unwrap();
}

#[test]
fn a_load_that_is_not_reached_is_said() {
    let files = Files::tiny("short");
    let mut lists = files.lists("tiny").unwrap();
    lists.pods.retain(|pod| pod.ask.gpus() == 0);
    let filled = fill::run(&lists, Policy::Default, &mut Seeded::new(1), 1);
    assert!(filled.full.is_none() && filled.last_load_pct == 0);
    let case = Summary::new(&lists, Policy::Default, 1).fill(&[filled]);
    assert!(table(&[Case::Fill(case)]).contains("ends at load 0 %"));
}
