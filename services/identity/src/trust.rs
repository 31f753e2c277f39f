//! Whom a client takes for a server: who has a certificate of the installation's authority, and nobody else. The system's
//! list of authorities is not asked.

use async_nats::{
    ConnectOptions,
    rustls::{
        self, ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, pem::PemObject},
    },
};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

#[derive(Debug, thiserror::Error)]
pub enum BadAuthority {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is no PEM file of certificates", .0.display())]
    NotPem(PathBuf),
    #[error("{} has a certificate that is no authority's: {source}", path.display())]
    NotAnAuthority {
        path: PathBuf,
        source: Box<rustls::Error>,
    },
    #[error("the encryption that is built in offers no version of TLS: {0}")]
    NoTls(Box<rustls::Error>),
}

/// How to connect to servers that show a certificate of the authority in this PEM file, which may hold several: the next
/// one beside the one that ends.
pub fn client_config(ca_file: &Path) -> Result<ClientConfig, BadAuthority> {
    let text = fs::read(ca_file).map_err(|source| BadAuthority::Unreadable {
        path: ca_file.to_owned(),
        source,
    })?;
    let not_pem = || BadAuthority::NotPem(ca_file.to_owned());
    let mut authorities = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|_| not_pem())?;
        authorities
            .add(certificate)
            .map_err(|source| BadAuthority::NotAnAuthority {
                path: ca_file.to_owned(),
                source: Box::new(source),
            })?;
    }
    if authorities.is_empty() {
        return Err(not_pem());
    }
    // Named, because a process in which crates bring several providers has no default.
    Ok(
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| BadAuthority::NoTls(Box::new(error)))?
            .with_root_certificates(authorities)
            .with_no_client_auth(),
    )
}

/// With an authority: connects by TLS or not at all, also to servers of a cluster that the first one names.
pub fn trusting(
    options: ConnectOptions,
    ca_file: Option<&Path>,
) -> Result<ConnectOptions, BadAuthority> {
    Ok(match ca_file {
        Some(path) => options
            .tls_client_config(client_config(path)?)
            .require_tls(true),
        None => options,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_authority_is_refused_with_its_file() {
        let check = |name: &str, text: Option<&str>, expected: &str| {
            let file = std::env::temp_dir().join(format!("trust-{}-{name}", std::process::id()));
            if let Some(text) = text {
                fs::write(&file, text).expect("the directory for temporary files");
            }
            let refused = client_config(&file).expect_err(name).to_string();
            let expected = expected.replace("FILE", &file.display().to_string());
            assert!(refused.starts_with(&expected), "{name}: {refused}");
            let _ = fs::remove_file(&file);
        };
        let pem = |base64: &str| {
            format!("-----BEGIN CERTIFICATE-----\n{base64}\n-----END CERTIFICATE-----\n")
        };
        check("missing", None, "cannot read FILE: ");
        check("empty", Some(""), "FILE is no PEM file of certificates");
        check("text", Some("hello"), "FILE is no PEM file of certificates");
        check(
            "cut",
            Some(&pem("*")),
            "FILE is no PEM file of certificates",
        );
        check(
            "no-certificate",
            Some(&pem("aGVsbG8=")),
            "FILE has a certificate that is no authority's: ",
        );
    }
}
