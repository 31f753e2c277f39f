//! Finds the two lists of a workload in a directory, under the suite's names or the trace's own.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("{path}: {source}", path = .path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error(
        "{directory} has no {list} list: a file named *{list}_list*.csv is expected",
        directory = .directory.display()
    )]
    Missing {
        directory: PathBuf,
        list: &'static str,
    },
    #[error(
        "{directory} has several {list} lists ({names}); leave the one that is meant",
        directory = .directory.display(), names = .names.join(", ")
    )]
    Ambiguous {
        directory: PathBuf,
        list: &'static str,
        names: Vec<String>,
    },
}

/// The node list and the pod list.
pub(super) fn find(directory: &Path) -> Result<(PathBuf, PathBuf), FindError> {
    let failed = |source| FindError::Directory {
        path: directory.to_owned(),
        source,
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        if let Ok(name) = entry.map_err(failed)?.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort();
    let pick = |list, preferred| match choose(&names, list, preferred) {
        Ok(name) => Ok(directory.join(name)),
        Err(names) if names.is_empty() => Err(FindError::Missing {
            directory: directory.to_owned(),
            list,
        }),
        Err(names) => Err(FindError::Ambiguous {
            directory: directory.to_owned(),
            list,
            names,
        }),
    };
    Ok((pick("node", "gpu")?, pick("pod", "default")?))
}

/// The exact name first, then the only one with the preferred word after the list's name, then the only one at all.
/// Otherwise the names among which there is no choice.
fn choose<'n>(names: &'n [String], list: &str, preferred: &str) -> Result<&'n str, Vec<String>> {
    let stem = format!("{list}_list");
    let exact = format!("{stem}.csv");
    let lists: Vec<&String> = names
        .iter()
        .filter(|name| name.contains(&stem) && name.ends_with(".csv"))
        .collect();
    let after = |name: &str| {
        name.split_once(&stem)
            .is_some_and(|(_, rest)| rest.contains(preferred))
    };
    let favourites: Vec<&String> = lists.iter().copied().filter(|name| after(name)).collect();
    if let Some(name) = lists.iter().find(|name| ***name == exact) {
        return Ok(name);
    }
    match (&favourites[..], &lists[..]) {
        ([one], _) | ([], [one]) => Ok(one),
        ([], all) | (all, _) => Err(all.iter().map(|name| (*name).clone()).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: &[&str], list: &str, preferred: &str, expected: Result<&str, usize>) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let chosen = choose(&names, list, preferred).map_err(|several| several.len());
        assert_eq!(chosen, expected, "{names:?}");
    }

    #[test]
    fn a_list_is_found_or_its_ambiguity_is() {
        let openb = [
            "openb_node_list_all_node.csv",
            "openb_node_list_gpu_node.csv",
            "openb_pod_list_cpu050.csv",
            "openb_pod_list_default.csv",
        ];
        check(&openb, "node", "gpu", Ok("openb_node_list_gpu_node.csv"));
        check(&openb, "pod", "default", Ok("openb_pod_list_default.csv"));
        check(
            &["node_list.csv", "x_node_list_gpu.csv"],
            "node",
            "gpu",
            Ok("node_list.csv"),
        );
        check(
            &["gpu_node_list_a.csv"],
            "node",
            "gpu",
            Ok("gpu_node_list_a.csv"),
        );
        check(
            &["a_pod_list_x.csv", "b_pod_list_x.csv"],
            "pod",
            "default",
            Err(2),
        );
        check(
            &[
                "a_pod_list_default.csv",
                "b_pod_list_default.csv",
                "c_pod_list.csv",
            ],
            "pod",
            "default",
            Err(2),
        );
        check(&["pod_list.csv.bak", "README.md"], "pod", "default", Err(0));
    }
}
