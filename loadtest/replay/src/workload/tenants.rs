//! Makes tenants for pods that have none: one or several per quality of service.

use super::Qos;
use vocab::Token;

impl Qos {
    /// How many tenants share a class: the two large ones are split, so that tenants compete within a class.
    fn tenants(self) -> u64 {
        match self {
            Self::LatencySensitive => 4,
            Self::BestEffort => 2,
            Self::Guaranteed | Self::Burstable | Self::Other => 1,
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Guaranteed => "guaranteed",
            Self::LatencySensitive => "ls",
            Self::Burstable => "burstable",
            Self::BestEffort => "be",
            Self::Other => "other",
        }
    }
}

/// The tenant of a pod. It depends on the pod alone, so any part of a workload gives each pod the same tenant.
pub(super) fn tenant_of(qos: Qos, pod: &str) -> Token {
    let name = match qos.tenants() {
        1 => qos.prefix().to_owned(),
        several => format!("{}-{}", qos.prefix(), stable_hash(pod) % several),
    };
    Token::new(&name).expect("a prefix and a number make a token")
}

/// FNV-1a, 64 bits: the same on every machine and in every version, which the standard library's hasher is not.
fn stable_hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_and_tenants_stay_what_they_were() {
        assert_eq!(stable_hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(stable_hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(stable_hash("foobar"), 0x8594_4171_f739_67e8);
        for (qos, pod, tenant) in [
            (Qos::LatencySensitive, "openb-pod-0000", "ls-2"),
            (Qos::LatencySensitive, "openb-pod-0001", "ls-1"),
            (Qos::LatencySensitive, "openb-pod-0002", "ls-0"),
            (Qos::BestEffort, "openb-pod-0000", "be-0"),
            (Qos::BestEffort, "openb-pod-0001", "be-1"),
            (Qos::Burstable, "openb-pod-0001", "burstable"),
            (Qos::Guaranteed, "x", "guaranteed"),
            (Qos::Other, "x", "other"),
        ] {
            assert_eq!(tenant_of(qos, pod).as_str(), tenant, "{pod}");
        }
    }
}
