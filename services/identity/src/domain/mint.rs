//! Signs what `party` says. Which keys there are and what time it is, the caller says: the same words make the same token.

use super::{
    claims::{self, Claims, Known, Revocations, Typed, UNLIMITED, VERSION, Way},
    party::{self, Crossing, NODES, Permissions, Rights, Role, SYSTEM, User},
};
use data_encoding::{BASE32_NOPAD, BASE64URL_NOPAD};
use nkeys::{KeyPair, KeyPairType};
use serde::Serialize;
use sha2::{Digest, Sha512_256};
use std::collections::BTreeMap;
use vocab::Token;

/// An answer that comes in parts is over when this long none came; a pull request is longer under way.
const PARTS_THRESHOLD_NS: i64 = 20_000_000_000;
/// How long after a request it may be answered.
const ANSWER_NS: i64 = 120_000_000_000;
/// Of every token.
const HEADER: &str = r#"{"typ":"JWT","alg":"ed25519-nkey"}"#;

#[derive(Debug, thiserror::Error)]
pub enum MintError {
    #[error("there is no key of the account {0}")]
    NoKey(String),
    #[error("a key of the wrong kind or broken: {0}")]
    Key(#[from] nkeys::error::Error),
    #[error("{0} is no public key of a user")]
    NotAUser(String),
    #[error("what may sign nodes is the account's public key and a seed, a line each")]
    NotASigner,
    #[error("no token of the bus: {0}")]
    NotAToken(&'static str),
    #[error("a token's content: {0}")]
    Json(#[from] serde_json::Error),
}

/// What signs the tokens of a bus.
pub struct Keys {
    /// Kept offline: it only says which key signs accounts.
    pub operator: KeyPair,
    pub operator_signing: KeyPair,
    pub accounts: BTreeMap<String, KeyPair>,
    pub roles: BTreeMap<Role, KeyPair>,
}

impl Keys {
    fn account(&self, name: &str) -> Result<&KeyPair, MintError> {
        let key = self.accounts.get(name);
        key.ok_or_else(|| MintError::NoKey(name.to_owned()))
    }

    fn role(&self, role: Role) -> Result<&KeyPair, MintError> {
        let key = self.roles.get(&role);
        key.ok_or_else(|| MintError::NoKey(role.name().to_owned()))
    }
}

/// Whom a token is about.
struct About<'a> {
    name: &'a str,
    key: String,
    issued_s: i64,
    expires_s: Option<i64>,
}

fn sign<B: Serialize>(
    issuer: &KeyPair,
    about: About<'_>,
    kind: &'static str,
    body: B,
) -> Result<String, MintError> {
    let mut claims = Claims {
        jti: String::new(),
        iat: about.issued_s,
        iss: issuer.public_key(),
        name: about.name.to_owned(),
        sub: about.key,
        exp: about.expires_s,
        nats: Typed {
            body,
            kind,
            version: VERSION,
        },
    };
    claims.jti = BASE32_NOPAD.encode(&Sha512_256::digest(serde_json::to_vec(&claims)?));
    let signed = format!(
        "{}.{}",
        BASE64URL_NOPAD.encode(HEADER.as_bytes()),
        BASE64URL_NOPAD.encode(&serde_json::to_vec(&claims)?)
    );
    let signature = issuer.sign(signed.as_bytes())?;
    Ok(format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature)))
}

/// What an own token says, unchecked: for tokens of the operator's own directory.
pub fn known(token: &str) -> Result<Known, MintError> {
    let body = token.split('.').nth(1);
    let body = body.ok_or(MintError::NotAToken("it has no body"))?;
    let json = BASE64URL_NOPAD
        .decode(body.trim().as_bytes())
        .map_err(|_| MintError::NotAToken("its body is not base64"))?;
    Ok(serde_json::from_slice(&json)?)
}

pub fn operator(keys: &Keys, issued_s: i64) -> Result<String, MintError> {
    let body = claims::Operator {
        signing_keys: vec![keys.operator_signing.public_key()],
        system_account: keys.account(SYSTEM)?.public_key(),
    };
    let about = About {
        name: "apportion",
        key: keys.operator.public_key(),
        issued_s,
        expires_s: None,
    };
    sign(&keys.operator, about, "operator", body)
}

pub fn account(
    keys: &Keys,
    account: &party::Account,
    revocations: Revocations,
    issued_s: i64,
) -> Result<String, MintError> {
    let own = keys.account(&account.name)?.public_key();
    let import =
        |way, crossing: &Crossing| import(keys, &account.name, &own, way, crossing, issued_s);
    let services = account.calls.iter().map(|one| import(Way::Service, one));
    let streams = account.hears.iter().map(|one| import(Way::Stream, one));
    let storage = if account.jetstream { UNLIMITED } else { 0 };
    let scope = |(role, permissions): &(Role, Permissions)| {
        Ok(claims::Scope {
            kind: "user_scope",
            key: keys.role(*role)?.public_key(),
            role: role.name(),
            template: template(permissions),
        })
    };
    let body = claims::Account {
        imports: services.chain(streams).collect::<Result<_, MintError>>()?,
        exports: account.exports.iter().map(export).collect(),
        limits: claims::AccountLimits {
            subs: account.subscriptions_max.unwrap_or(UNLIMITED),
            data: UNLIMITED,
            payload: UNLIMITED,
            imports: UNLIMITED,
            exports: UNLIMITED,
            wildcards: true,
            disallow_bearer: true,
            conn: account.connections_max.unwrap_or(UNLIMITED),
            leaf: 0,
            mem_storage: storage,
            disk_storage: storage,
            streams: storage,
            consumer: storage,
        },
        signing_keys: account
            .roles
            .iter()
            .map(scope)
            .collect::<Result<_, MintError>>()?,
        revocations,
    };
    let about = About {
        name: &account.name,
        key: own,
        issued_s,
        expires_s: None,
    };
    sign(&keys.operator_signing, about, "account", body)
}

/// With the word of the account that exports, so that no other account has to know of this one.
fn import(
    keys: &Keys,
    name: &str,
    own: &str,
    way: Way,
    crossing: &Crossing,
    issued_s: i64,
) -> Result<claims::Import, MintError> {
    let exporter = keys.account(&crossing.account)?;
    let about = About {
        name,
        key: own.to_owned(),
        issued_s,
        expires_s: None,
    };
    let body = claims::Activation {
        subject: crossing.subject.clone(),
        way,
    };
    Ok(claims::Import {
        name: crossing.subject.clone(),
        subject: crossing.subject.clone(),
        account: exporter.public_key(),
        token: sign(exporter, about, "activation", body)?,
        way,
    })
}

fn export(export: &party::Export) -> claims::Export {
    let (way, subject, parts) = match export {
        party::Export::Service { subject, parts } => (Way::Service, subject, *parts),
        party::Export::Stream { subject } => (Way::Stream, subject, false),
    };
    claims::Export {
        name: subject.clone(),
        subject: subject.clone(),
        way,
        token_req: true,
        response_type: parts.then_some("Stream"),
        response_threshold: parts.then_some(PARTS_THRESHOLD_NS),
    }
}

fn template(permissions: &Permissions) -> claims::Permissions {
    let allowed = |subjects: &[String]| claims::Allowed {
        allow: subjects.to_vec(),
    };
    claims::Permissions {
        publish: allowed(&permissions.publish),
        subscribe: allowed(&permissions.subscribe),
        answers: permissions.answers.then_some(claims::Answers {
            max: 1,
            ttl: ANSWER_NS,
        }),
        subs: permissions.subscriptions_max.unwrap_or(UNLIMITED),
        data: UNLIMITED,
        payload: permissions.payload_max.unwrap_or(UNLIMITED),
    }
}

/// The token of a user that the operator of the bus knows.
pub fn user(
    keys: &Keys,
    user: &User,
    public_key: String,
    issued_s: i64,
) -> Result<String, MintError> {
    let account = keys.account(&user.account)?;
    let about = About {
        name: &user.key,
        key: public_key,
        issued_s,
        expires_s: None,
    };
    match &user.rights {
        Rights::Own(permissions) => {
            let body = claims::User {
                permissions: template(permissions),
            };
            sign(account, about, "user", body)
        }
        Rights::Role(role) => {
            let body = claims::ScopedUser {
                issuer_account: account.public_key(),
            };
            sign(keys.role(*role)?, about, "user", body)
        }
    }
}

/// By which the operator of the bus has the server forget accounts.
pub fn deletion(keys: &Keys, accounts: Vec<String>, issued_s: i64) -> Result<String, MintError> {
    let about = About {
        name: "deletion",
        key: keys.operator_signing.public_key(),
        issued_s,
        expires_s: None,
    };
    let body = claims::Deletion { accounts };
    sign(&keys.operator_signing, about, "generic", body)
}

/// Signs users of nodes and of nothing else: what the service has that lets nodes in.
pub struct NodeSigner {
    account: String,
    key: KeyPair,
}

impl NodeSigner {
    pub(crate) fn of(keys: &Keys) -> Result<String, MintError> {
        let account = keys.account(NODES)?.public_key();
        let seed = keys.role(Role::Node)?.seed()?;
        Ok(format!("{account}\n{seed}\n"))
    }

    /// Reads `creds/node-signing.nk`.
    pub fn parse(text: &str) -> Result<Self, MintError> {
        let mut lines = text.split_whitespace();
        let (Some(account), Some(seed), None) = (lines.next(), lines.next(), lines.next()) else {
            return Err(MintError::NotASigner);
        };
        let of_account = |key: &KeyPair| matches!(key.key_pair_type(), KeyPairType::Account);
        let key = KeyPair::from_seed(seed)?;
        if !of_account(&key) || !of_account(&KeyPair::from_public_key(account)?) {
            return Err(MintError::NotASigner);
        }
        Ok(Self {
            account: account.to_owned(),
            key,
        })
    }
}

/// Whether it is the public key of a user.
pub fn is_user_key(text: &str) -> bool {
    let key = KeyPair::from_public_key(text);
    key.is_ok_and(|key| matches!(key.key_pair_type(), KeyPairType::User))
}

/// The token of a node's user: it reaches the node's own subjects and no others. The node has made the key pair, and
/// keeps its seed. Moments are Unix seconds.
pub fn node_user(
    signer: &NodeSigner,
    node: &Token,
    user_public_key: &str,
    issued_s: i64,
    expires_s: Option<i64>,
) -> Result<String, MintError> {
    if !is_user_key(user_public_key) {
        return Err(MintError::NotAUser(user_public_key.to_owned()));
    }
    let about = About {
        name: node.as_str(),
        key: user_public_key.to_owned(),
        issued_s,
        expires_s,
    };
    let body = claims::ScopedUser {
        issuer_account: signer.account.clone(),
    };
    sign(&signer.key, about, "user", body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use party::Guest;

    fn keys(cell: &str, guests: &[Guest]) -> Keys {
        let accounts = party::accounts(cell, guests).into_iter();
        let names = accounts
            .map(|account| account.name)
            .chain([SYSTEM.to_owned()]);
        Keys {
            operator: KeyPair::new_operator(),
            operator_signing: KeyPair::new_operator(),
            accounts: names.map(|name| (name, KeyPair::new_account())).collect(),
            roles: Role::ALL.map(|role| (role, KeyPair::new_account())).into(),
        }
    }

    fn body(token: &str) -> serde_json::Value {
        let part = token.split('.').nth(1).expect("a token has three parts");
        let json = BASE64URL_NOPAD
            .decode(part.as_bytes())
            .expect("it is base64");
        serde_json::from_slice(&json).expect("it is JSON")
    }

    fn signed_by(token: &str, key: &KeyPair) -> bool {
        let (words, signature) = token.rsplit_once('.').expect("a token has three parts");
        let signature = BASE64URL_NOPAD
            .decode(signature.as_bytes())
            .expect("it is base64");
        key.verify(words.as_bytes(), &signature).is_ok()
    }

    #[test]
    fn each_import_has_the_word_of_the_account_that_exports() {
        let guests = [Guest::Tenant, Guest::Operator].map(|guest| guest("g1".to_owned()));
        let keys = keys("c1", &guests);
        let by_key = |public: &str| {
            let mut pairs = keys.accounts.values();
            pairs
                .find(|pair| pair.public_key() == public)
                .expect("an account of the cell")
        };
        for one in party::accounts("c1", &guests) {
            let token = account(&keys, &one, Revocations::new(), 7).expect("all keys are there");
            assert!(signed_by(&token, &keys.operator_signing));
            let said = body(&token);
            assert_eq!(said["iat"], 7);
            let imports = said["nats"]["imports"].as_array().expect("a list");
            assert_eq!(imports.len(), one.calls.len() + one.hears.len());
            for import in imports {
                let word = import["token"].as_str().expect("each has one");
                let exporter = by_key(import["account"].as_str().expect("each has one"));
                assert!(signed_by(word, exporter));
                let word = body(word);
                assert_eq!(word["sub"], said["sub"]);
                assert_eq!(word["nats"]["subject"], import["subject"]);
                assert_eq!(word["nats"]["kind"], import["type"]);
            }
            let exports = said["nats"]["exports"].as_array().expect("a list");
            assert!(exports.iter().all(|export| export["token_req"] == true));
        }
    }

    #[test]
    fn the_same_words_make_the_same_token() {
        let keys = keys("c1", &[]);
        let account = |void, at| {
            let all = party::accounts("c1", &[]);
            super::account(&keys, &all[0], void, at).expect("all keys are there")
        };
        let none = Revocations::new;
        assert_eq!(account(none(), 7), account(none(), 7));
        assert_ne!(account(none(), 7), account(none(), 8));
        let void = Revocations::from([("U1".to_owned(), 5)]);
        let token = account(void.clone(), 7);
        assert_ne!(account(none(), 7), token);
        let known = known(&token).expect("it was just made");
        assert_eq!((known.iat, known.nats.revocations), (7, void));
    }

    #[test]
    fn a_nodes_user_brings_no_permissions_of_its_own() {
        let keys = keys("c1", &[]);
        let text = NodeSigner::of(&keys).expect("all keys are there");
        let signer = NodeSigner::parse(&text).expect("it was just written");
        let (node, user) = (
            Token::new("n1").expect("a literal token"),
            KeyPair::new_user(),
        );
        let token = node_user(&signer, &node, &user.public_key(), 7, Some(9));
        let token = token.expect("the key is a user's");
        assert!(signed_by(&token, &keys.roles[&Role::Node]));
        let said = body(&token);
        assert_eq!(
            (&said["name"], &said["iat"], &said["exp"]),
            (&"n1".into(), &7.into(), &9.into())
        );
        let account = keys.accounts[NODES].public_key();
        let expected = serde_json::json!({"issuer_account": account, "type": "user", "version": 2});
        assert_eq!(said["nats"], expected);
    }

    #[test]
    fn a_signer_signs_users_and_is_an_accounts_key() {
        let keys = keys("c1", &[]);
        let text = NodeSigner::of(&keys).expect("all keys are there");
        let signer = NodeSigner::parse(&text).expect("it was just written");
        let node = Token::new("n1").expect("a literal token");
        for key in [
            KeyPair::new_account().public_key(),
            "UX".to_owned(),
            String::new(),
        ] {
            let refused = node_user(&signer, &node, &key, 7, None);
            assert!(matches!(refused, Err(MintError::NotAUser(named)) if named == key));
        }
        let (account, user) = (KeyPair::new_account(), KeyPair::new_user());
        let seed = |key: &KeyPair| key.seed().expect("it was just made");
        for text in [
            String::new(),
            account.public_key(),
            format!("{}\n{}", account.public_key(), seed(&user)),
            format!("{}\n{}", user.public_key(), seed(&account)),
            format!("{}\n{}\nx", account.public_key(), seed(&account)),
        ] {
            assert!(NodeSigner::parse(&text).is_err(), "{text}");
        }
    }
}
