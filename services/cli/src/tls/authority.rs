//! What is signed, for whom and for how long. Pure but for the keys, which are random.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{collections::BTreeSet, net::IpAddr};
use time::{Duration, OffsetDateTime};

/// Each has a key and a certificate.
pub const SERVERS: [&str; 4] = ["nats", "postgres", "clickhouse", "otlp"];
/// By which a server of this machine is reached.
const OWN_HOSTS: [&str; 2] = ["localhost", "127.0.0.1"];

const AUTHORITY_LASTS: Duration = Duration::days(3650);
const SERVER_LASTS: Duration = Duration::days(365);
/// What ends sooner is due.
const RENEWED_BEFORE: Duration = Duration::days(60);
/// Clocks of clients may be behind by so much.
const CLOCKS_DIFFER: Duration = Duration::minutes(5);

/// From when to when a certificate holds, in Unix seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Period {
    pub from_s: i64,
    pub until_s: i64,
}

/// What a server's certificate says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    pub hosts: BTreeSet<String>,
    pub period: Period,
}

#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("{0} is no host: a name of letters, digits, - and . , or an address")]
    NotAHost(String),
    #[error("the authority has ended; make another one in another directory")]
    Ended,
    #[error("a moment that no calendar has")]
    NoMoment(#[from] time::error::ComponentRange),
    #[error("cannot sign: {0}")]
    Sign(#[from] rcgen::Error),
}

/// The hosts of a certificate: this machine's own names, and those that are wanted.
pub fn hosts(wanted: impl IntoIterator<Item = String>) -> Result<BTreeSet<String>, AuthorityError> {
    let own = OWN_HOSTS.into_iter().map(str::to_owned);
    let hosts: BTreeSet<String> = own.chain(wanted).collect();
    match hosts.iter().find(|host| !is_host(host)) {
        Some(host) => Err(AuthorityError::NotAHost(host.clone())),
        None => Ok(hosts),
    }
}

fn is_host(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // Clients take what ends in a number for an address.
    let named = text
        .rsplit('.')
        .next()
        .is_some_and(|last| !last.bytes().all(|byte| byte.is_ascii_digit()));
    text.parse::<IpAddr>().is_ok() || (text.len() <= 253 && named && text.split('.').all(label))
}

pub fn authority_period(now_s: i64) -> Period {
    period(now_s, AUTHORITY_LASTS)
}

fn period(now_s: i64, lasts: Duration) -> Period {
    Period {
        from_s: now_s - CLOCKS_DIFFER.whole_seconds(),
        until_s: now_s + lasts.whole_seconds(),
    }
}

/// What a server's certificate is to say from now on. It does not outlive who signs it.
pub fn next(
    authority: Period,
    hosts: &BTreeSet<String>,
    now_s: i64,
) -> Result<Issued, AuthorityError> {
    if now_s >= authority.until_s {
        return Err(AuthorityError::Ended);
    }
    let Period { from_s, until_s } = period(now_s, SERVER_LASTS);
    Ok(Issued {
        hosts: hosts.clone(),
        period: Period {
            from_s: from_s.max(authority.from_s),
            until_s: until_s.min(authority.until_s),
        },
    })
}

/// Whether a server needs another certificate. One that ends with its authority is not made better by another.
pub fn is_due(
    issued: Option<&Issued>,
    authority: Period,
    hosts: &BTreeSet<String>,
    now_s: i64,
) -> bool {
    issued.is_none_or(|issued| {
        let until_s = issued.period.until_s;
        issued.hosts != *hosts
            || (until_s < authority.until_s && until_s - now_s < RENEWED_BEFORE.whole_seconds())
    })
}

/// Each has a name of its own, by which a client tells a certificate of another one from a broken one.
fn authority(key: &KeyPair, period: Period) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::default();
    within(&mut params, period)?;
    let digest = Sha256::digest(key.public_key_raw());
    let number = digest.iter().take(8).map(|byte| format!("{byte:02x}"));
    named(
        &mut params,
        &format!("Apportion {}", String::from_iter(number)),
    );
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// The authority's own certificate, in PEM.
pub fn root(key: &KeyPair, period: Period) -> Result<String, AuthorityError> {
    Ok(authority(key, period)?.self_signed(key)?.pem())
}

/// A server's certificate, in PEM.
pub fn certificate(
    authority_key: &KeyPair,
    authority_period: Period,
    server: &str,
    key: &KeyPair,
    issued: &Issued,
) -> Result<String, AuthorityError> {
    let mut params = CertificateParams::new(issued.hosts.iter().cloned().collect::<Vec<_>>())?;
    within(&mut params, issued.period)?;
    named(&mut params, &format!("Apportion {server}"));
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // Servers of the bus's cluster are each other's clients.
    params.extended_key_usages = match server {
        "nats" => vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ],
        _ => vec![ExtendedKeyUsagePurpose::ServerAuth],
    };
    let authority = authority(authority_key, authority_period)?;
    let issuer = Issuer::from_params(&authority, authority_key);
    Ok(params.signed_by(key, &issuer)?.pem())
}

fn within(params: &mut CertificateParams, period: Period) -> Result<(), AuthorityError> {
    params.not_before = OffsetDateTime::from_unix_timestamp(period.from_s)?;
    params.not_after = OffsetDateTime::from_unix_timestamp(period.until_s)?;
    Ok(())
}

fn named(params: &mut CertificateParams, name: &str) {
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: i64 = 86_400;
    const NOW_S: i64 = 1_800_000_000;

    fn of(names: &[&str]) -> BTreeSet<String> {
        hosts(names.iter().map(|name| (*name).to_owned())).expect("they are hosts")
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for name in ["nats", "nats-1", "a.b-c.example", "10.0.0.7", "::1", "h2"] {
            assert!(hosts([name.to_owned()]).is_ok(), "{name}");
        }
        for name in [
            "",
            ".",
            "a..b",
            "-a",
            "a-",
            "a_b",
            "*.example",
            "a b",
            "caf\u{e9}",
            "10.0.0.256",
            "10.0.0",
            "nats:4222",
            &"a".repeat(64),
        ] {
            let refused = hosts([name.to_owned()]).expect_err(name).to_string();
            assert!(refused.starts_with(&format!("{name} is no host")), "{name}");
        }
    }

    #[test]
    fn a_certificate_is_due_when_it_ends_soon_or_names_others() {
        let authority = authority_period(NOW_S);
        let issued = next(authority, &of(&["nats"]), NOW_S).expect("the authority has begun");
        let check = |hosts: &[&str], after_days: i64, due: bool| {
            let now_s = NOW_S + after_days * DAY_S;
            let found = is_due(Some(&issued), authority, &of(hosts), now_s);
            assert_eq!(found, due, "{hosts:?} after {after_days} days");
        };
        check(&["nats"], 0, false);
        check(&["nats"], 305, false);
        check(&["nats"], 306, true);
        check(&["nats"], 400, true);
        check(&["nats", "nats-1"], 0, true);
        check(&[], 0, true);
        assert!(is_due(None, authority, &of(&["nats"]), NOW_S));
    }

    #[test]
    fn nothing_outlives_its_authority() {
        let authority = authority_period(NOW_S);
        let late_s = authority.until_s - 10 * DAY_S;
        let last = next(authority, &of(&[]), late_s).expect("the authority has not ended");
        assert_eq!(last.period.until_s, authority.until_s);
        assert!(!is_due(Some(&last), authority, &of(&[]), late_s + DAY_S));
        let ended = next(authority, &of(&[]), authority.until_s);
        assert!(matches!(ended, Err(AuthorityError::Ended)), "{ended:?}");
    }
}
