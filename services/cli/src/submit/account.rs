//! Whose quota it is of.

use crate::Failure;
use vocab::Account;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "--account {said}: write the whole account, as quota has it{}; another tenant's cannot be used", meant(.said, .tenant)
)]
pub struct NotOwn {
    said: String,
    tenant: String,
}

/// What would be an account, if the tenant were written before it.
fn meant(said: &str, tenant: &str) -> String {
    let whole = format!("{tenant}/{said}");
    match Account::parse(&whole) {
        Some(_) => format!(": {whole} for what is below {tenant}"),
        None => ", a tenant, its team and its namespace".to_owned(),
    }
}

/// The team, or team/namespace, of the account that is said: `tenant/team/namespace` as everywhere, or a team alone.
pub fn own(said: &str, tenant: &str) -> Result<String, Failure> {
    below(said, tenant)
        .map(str::to_owned)
        .map_err(Failure::usage)
}

/// The team and the namespace of what is below a tenant.
pub fn parts(below: &str) -> (String, String) {
    let (team, namespace) = below.split_once('/').unwrap_or((below, ""));
    (team.to_owned(), namespace.to_owned())
}

fn below<'a>(said: &'a str, tenant: &str) -> Result<&'a str, NotOwn> {
    match said.split_once('/') {
        None if said == tenant => Ok(""),
        None => Ok(said),
        Some((first, below)) if first == tenant => Ok(below),
        // A team and its namespace, or another tenant and its team.
        Some(_) => Err(NotOwn {
            said: said.to_owned(),
            tenant: tenant.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_written_as_quota_has_it() {
        let check = |said: &str, expected: Option<&str>| {
            assert_eq!(below(said, "a").ok(), expected, "{said}");
        };
        check("", Some(""));
        check("a", Some(""));
        check("a/ml", Some("ml"));
        check("a/ml/x", Some("ml/x"));
        check("ml", Some("ml"));
        check("ml/x", None);
        check("b/ml", None);
        let refused = below("ml/x", "a").unwrap_err().to_string();
        assert!(refused.contains("a/ml/x"), "{refused}");
        let refused = below("x/y/z", "a").unwrap_err().to_string();
        assert!(!refused.contains("a/x/y/z"), "{refused}");
    }
}
