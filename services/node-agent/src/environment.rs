//! What a command finds in its environment: nothing that it was not given.

use crate::processes::MARKER;
use std::path::Path;

/// Taken over from the agent where it has them.
const INHERITED: [&str; 3] = ["PATH", "HOME", "LANG"];

/// Of programs that no one has told where programs are.
const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Name of the user of a run that has one of its own.
const USER: &str = "apportion";

pub(crate) type Variables = Vec<(String, String)>;

/// The agent's own share of it. `home`: a run that has a user of its own does not have the agent's home.
pub(crate) fn inherited(home: Option<&Path>) -> Variables {
    let of_agent = |name: &str| Some((name.to_owned(), std::env::var(name).ok()?));
    let mut env: Variables = INHERITED.into_iter().filter_map(of_agent).collect();
    if env.iter().all(|(name, _)| name != "PATH") {
        env.push(("PATH".to_owned(), PATH_DEFAULT.to_owned()));
    }
    if let Some(home) = home {
        env.retain(|(name, _)| name != "HOME");
        env.push(("HOME".to_owned(), home.to_string_lossy().into_owned()));
        // The number has no entry in the list of users, which many programs look for unless they have these.
        env.extend(["USER", "LOGNAME"].map(|name| (name.to_owned(), USER.to_owned())));
    }
    env
}

/// Later ones win, so a work can set its own PATH and cannot give itself a device.
pub(crate) fn complete(
    inherited: Variables,
    work: &[(String, String)],
    extra: &[(String, String)],
    gpus: &[u32],
    run_dir: &Path,
) -> Variables {
    let devices: Vec<_> = gpus.iter().map(u32::to_string).collect();
    let own = [
        // CUDA counts by speed unless told otherwise, and the indices are those of NVML.
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned()),
        ("CUDA_VISIBLE_DEVICES", devices.join(",")),
        (MARKER, run_dir.to_string_lossy().into_owned()),
    ];
    let own = own.map(|(name, value)| (name.to_owned(), value));
    let mut env: Variables = Vec::new();
    let given = inherited.into_iter();
    let given = given
        .chain(work.iter().cloned())
        .chain(extra.iter().cloned());
    for (name, value) in given.chain(own) {
        env.retain(|(earlier, _)| *earlier != name);
        env.push((name, value));
    }
    env
}

/// Whether the kernel can take it over.
pub(crate) fn is_possible(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Variables {
        let split = |pair: &str| {
            let (name, value) = pair.split_once('=').expect("a pair");
            (name.to_owned(), value.to_owned())
        };
        text.split_whitespace().map(split).collect()
    }

    #[test]
    fn the_work_overrides_the_agent_and_not_the_devices() {
        let check = |work: &str, extra: &str, gpus: &[u32], expected: &str| {
            let env = complete(
                pairs("PATH=/bin HOME=/root"),
                &pairs(work),
                &pairs(extra),
                gpus,
                Path::new("/runs/a"),
            );
            let mut text: Vec<_> = env.iter().map(|(n, v)| format!("{n}={v}")).collect();
            text.sort();
            let always = "APPORTION_RUN_DIR=/runs/a CUDA_DEVICE_ORDER=PCI_BUS_ID";
            let mut expected: Vec<_> = expected.split(' ').chain(always.split(' ')).collect();
            expected.sort_unstable();
            assert_eq!(text, expected);
        };
        check("", "", &[], "CUDA_VISIBLE_DEVICES= PATH=/bin HOME=/root");
        check(
            "PATH=/opt",
            "",
            &[0, 3],
            "CUDA_VISIBLE_DEVICES=0,3 PATH=/opt HOME=/root",
        );
        check(
            "CUDA_VISIBLE_DEVICES=all APPORTION_TENANT=other APPORTION_RUN_DIR=/",
            "APPORTION_TENANT=t1",
            &[],
            "CUDA_VISIBLE_DEVICES= PATH=/bin HOME=/root APPORTION_TENANT=t1",
        );
    }

    #[test]
    fn what_the_kernel_cannot_take_is_known_before() {
        assert!(is_possible("A", "b=c"));
        assert!(is_possible("A", ""));
        assert!(!is_possible("", "b"));
        assert!(!is_possible("A=B", "c"));
        assert!(!is_possible("A\0", "c"));
        assert!(!is_possible("A", "\0"));
    }
}
