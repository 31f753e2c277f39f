//! Who is let in while the bus runs: nodes by the service's key, and who comes back with new creds.

use crate::e2e::suite::{Outcome, Setup, Suite, eventually, id, small, token};
use async_nats::{Client, jetstream::stream::Config};
use client::{
    ConnectOptions, Failed, Operation, RatesQuery, RefusalsQuery, SetQuota, SetRate, SettingsQuery,
};
use futures::StreamExt;
use identity::{CLAIMS_DELETE, CLAIMS_UPDATE, Creds, Directory, Guest, NodeSigner, node_user};
use nkeys::KeyPair;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};
use testkit::Servers;
use vocab::Event;

/// Within the life of any test's servers.
const ISSUED_S: i64 = 1_700_000_000;

/// A directory that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("apportion-test-{}", id()));
        fs::create_dir(&path).expect("temporary files can be made");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left is in a directory for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Creds of a node's user, as the service that lets nodes in would sign them.
fn node_creds(servers: &Servers, place: &Path, name: &str, expires_s: Option<i64>) -> PathBuf {
    let signer = servers.creds("quota").with_file_name("node-signing.nk");
    let signer = fs::read_to_string(signer).expect("the launcher has made it");
    let signer = NodeSigner::parse(&signer).expect("the launcher has made it");
    let key = KeyPair::new_user();
    let signed = node_user(
        &signer,
        &token(name),
        &key.public_key(),
        ISSUED_S,
        expires_s,
    );
    let creds = Creds::new(signed.expect("the key is a user's"), key);
    let path = place.join(format!("{name}.creds"));
    fs::write(&path, creds.text().expect("the key is new")).expect("there is room");
    path
}

/// A connection that keeps what the server refuses.
async fn node(servers: &Servers, creds: &Path, name: &str) -> (Client, Arc<Mutex<Vec<String>>>) {
    let refused = Arc::new(Mutex::new(Vec::new()));
    let keep = refused.clone();
    let options = identity::connect(creds)
        .custom_inbox_prefix(format!("_INBOX.{name}"))
        .event_callback(move |event| {
            if let async_nats::Event::ServerError(error) = event {
                let mut refused = keep.lock().expect("nobody panics while it is held");
                refused.push(error.to_string());
            }
            std::future::ready(())
        });
    let nats = options.connect(&servers.nats.url).await;
    (nats.expect("a node's creds are good"), refused)
}

#[tokio::test]
async fn a_nodes_user_reaches_its_own_subjects_and_no_others() -> Outcome {
    let suite = Suite::start().await;
    let (s, scratch) = (&suite.subjects, Scratch::new());
    let creds = node_creds(&suite.servers, &scratch.0, "n1", None);
    let (nats, refused) = node(&suite.servers, &creds, "n1").await;
    let creds = node_creds(&suite.servers, &scratch.0, "n2", None);
    let (other, _) = node(&suite.servers, &creds, "n2").await;
    let mut assigned = nats.subscribe(s.node("n1", "assign")).await?;
    let mut of_other = other.subscribe(s.node("n2", "assign")).await?;
    nats.flush().await?;
    other.flush().await?;

    // Its own: a report that is stored, a question that is answered, an assignment.
    let jetstream = async_nats::jetstream::new(nats.clone());
    let stored = jetstream
        .publish(s.node("n1", "report"), "x".into())
        .await?;
    assert_eq!(stored.await?.stream, s.report_stream());
    let answer = nats.request(s.node("n1", "sync"), "".into()).await?;
    assert_eq!(answer.payload.len(), 0, "nothing is assigned");
    let inbox = suite.servers.nats("node-heartbeat").await;
    inbox.publish(s.node("n1", "assign"), "hint".into()).await?;
    inbox.flush().await?;
    let hint = assigned.next().await.expect("the connection stands");
    assert_eq!(hint.payload, "hint");

    let said = [
        s.node("n2", "report"),
        s.node("n2", "sync"),
        s.node("n2", "heartbeat"),
        s.node("n2", "assign"),
        s.node("n1", "assign"),
        s.join(),
        s.ingress("tenant-a"),
        s.admin(),
        "_INBOX.n2.x".to_owned(),
        "$JS.API.INFO".to_owned(),
    ];
    for subject in &said {
        nats.publish(subject.clone(), "intruder".into()).await?;
    }
    let heard = [
        s.node("n2", "assign"),
        s.node("*", "assign"),
        "_INBOX.>".to_owned(),
        "_INBOX.n2.>".to_owned(),
        ">".to_owned(),
    ];
    let mut spies = Vec::new();
    for subject in &heard {
        spies.push(nats.subscribe(subject.clone()).await?);
    }
    nats.flush().await?;
    eventually("every attempt is refused", || async {
        let refused = refused.lock().expect("nobody panics while it is held");
        let told = |subject: &String| {
            let quoted = format!("\"{}\"", subject.to_lowercase());
            refused
                .iter()
                .any(|text| text.to_lowercase().contains(&quoted))
        };
        said.iter().chain(&heard).all(told).then_some(())
    })
    .await;
    inbox
        .publish(s.node("n2", "assign"), "of n2".into())
        .await?;
    inbox.flush().await?;
    let hint = of_other.next().await.expect("the connection stands");
    assert_eq!(hint.payload, "of n2");
    nats.flush().await?;
    for mut spy in spies {
        use futures::FutureExt;
        if let Some(Some(message)) = spy.next().now_or_never() {
            panic!("{} got through", message.subject);
        }
    }
    suite.close().await;
    Ok(())
}

#[tokio::test]
async fn what_is_no_good_node_user_is_refused() -> Outcome {
    let suite = Suite::start().await;
    let scratch = Scratch::new();
    // Its time is over.
    let over = node_creds(&suite.servers, &scratch.0, "n1", Some(ISSUED_S + 1));
    let refused = identity::connect(over)
        .connect(&suite.servers.nats.url)
        .await;
    refused.expect_err("its time is over");
    // Signed by who may not: by a key of its own making, for the right account.
    let text = fs::read_to_string(
        suite
            .servers
            .creds("quota")
            .with_file_name("node-signing.nk"),
    )?;
    let account = text.lines().next().expect("the first line is the account");
    let seed = KeyPair::new_account().seed()?;
    let signer = NodeSigner::parse(&format!("{account}\n{seed}\n"))?;
    let key = KeyPair::new_user();
    let signed = node_user(&signer, &token("n1"), &key.public_key(), ISSUED_S, None)?;
    let path = scratch.0.join("forged.creds");
    fs::write(&path, Creds::new(signed, key).text()?)?;
    let refused = identity::connect(&path)
        .connect(&suite.servers.nats.url)
        .await;
    refused.expect_err("the account does not know that key");
    suite.close().await;
    Ok(())
}

/// A bus's directory of the test's own tenant, so that no other test is disturbed.
async fn changed(
    servers: &Servers,
    change: impl FnOnce(&mut Directory) -> Result<String, identity::DirectoryError>,
) -> Outcome {
    let token = {
        let mut directory = Directory::open(&servers.nats.bus)?;
        let account = change(&mut directory)?;
        directory.account_token(&account)?
    };
    let system = servers.nats("system").await;
    let token = token.trim().to_owned().into();
    let answer = system.request(CLAIMS_UPDATE, token).await?;
    let said = String::from_utf8_lossy(&answer.payload).into_owned();
    assert!(said.contains("\"code\":200"), "{said}");
    Ok(())
}

#[tokio::test]
async fn creds_that_are_replaced_are_good_from_the_next_connection_on() -> Outcome {
    let suite = Suite::start().await;
    // A name of this test's own.
    let name = format!("t{}", &id()[..20]);
    let key = format!("tenant:{name}");
    let now = chassis::Clock::real().now_ms() / 1000;
    changed(&suite.servers, |directory| {
        directory.add(&Guest::Tenant(name.clone()), now)?;
        Ok(format!("T_{name}"))
    })
    .await?;
    let creds = suite.servers.creds(&key);
    let before = fs::read(&creds)?;
    let options =
        ConnectOptions::tenant(&suite.servers.nats.url, suite.subjects.cell(), token(&name));
    let tenant = client::Client::connect(options.creds(&creds)).await?;
    let refused = || {
        Operation::new(
            id(),
            schemas::v1::request::Verb::Submit(client::Submit::default()),
        )
    };
    assert!(tenant.call(&refused()).await.is_ok());

    // The server closes the old connection; the client comes back by what it finds in the file.
    changed(&suite.servers, |directory| directory.rotate(&key, now + 1)).await?;
    assert_ne!(fs::read(&creds)?, before);
    eventually("the client is back", || async {
        let operation = refused();
        let outcome = tokio::time::timeout(Duration::from_secs(5), tenant.call(&operation)).await;
        matches!(outcome, Ok(Ok(_))).then_some(())
    })
    .await;
    // What was replaced is void.
    let scratch = Scratch::new();
    let old = scratch.0.join("old.creds");
    fs::write(&old, before)?;
    let connected = identity::connect(&old)
        .connect(&suite.servers.nats.url)
        .await;
    connected.expect_err("it is void");
    let other = suite.tenant("tenant-a").await;
    assert!(other.submit(small("x"), id()).await.is_ok());
    suite.close().await;
    Ok(())
}

#[tokio::test]
async fn what_is_set_says_which_operator_set_it() -> Outcome {
    let suite = Suite::start().await;
    let (servers, now) = (&suite.servers, chassis::Clock::real().now_ms() / 1000);
    // Names of this test's own.
    let [alice, bob] = ["alice", "bob"].map(|name| format!("{name}-{}", &id()[..20]));
    for name in [&alice, &bob] {
        let guest = Guest::Operator(name.clone());
        let add = |directory: &mut Directory| {
            directory.add(&guest, now)?;
            Ok(guest.account())
        };
        changed(servers, add).await?;
    }
    let options = |name: &str| {
        let creds = servers.creds(&format!("operator:{name}"));
        ConnectOptions::operator(&servers.nats.url, suite.subjects.cell()).creds(creds)
    };
    let common = suite.operator().await;
    let by_bob = client::Client::connect(options(&bob)).await?;
    let by_alice = client::Client::connect(options(&alice)).await?;
    // For the request that gets no answer.
    let impatient = options(&alice).patience(Duration::from_secs(2));
    let impatient = client::Client::connect(impatient).await?;
    let quota = |resource: &str, limit| SetQuota {
        tenant: "tenant-a".to_owned(),
        resource: resource.to_owned(),
        limit,
        ..SetQuota::default()
    };
    by_alice.set_quota(quota("cpu", 64_000), id()).await?;
    by_bob
        .set_quota(quota("memory", 64 << 30), "of-bob")
        .await?;
    common.set_quota(quota("gpu", 8_000), id()).await?;
    // They are one party: another's operation is not decided again.
    let again = quota("memory", 64 << 30);
    by_alice.set_quota(again, "of-bob").await?;
    let rate = |micro_per_unit_hour| SetRate {
        resource: "cpu".to_owned(),
        micro_per_unit_hour,
        effective_from_ms: now * 2_000,
        ..SetRate::default()
    };
    by_alice.set_rate(rate(7), id()).await?;
    by_bob.set_rate(rate(8), id()).await?;
    // What is refused is no change of who set what stands.
    let mut stale = quota("cpu", 1);
    stale.expected_version = Some(7);
    assert!(by_bob.set_quota(stale, id()).await.is_err());

    // Each operator is told of all, as one of them.
    for operator in [&common, &by_alice, &by_bob] {
        let query = SettingsQuery {
            setting: "quota".to_owned(),
            key_prefix: "tenant-a ".to_owned(),
            at_lsn: common.decided_lsn().max(by_bob.decided_lsn()),
            ..SettingsQuery::default()
        };
        let page = operator.settings(&query).await?;
        let of = |resource: &str| {
            let key = format!("tenant-a {resource}");
            let found = page.settings.iter().find(|view| view.key == key);
            found.map(|view| view.by.as_str())
        };
        let said = ["cpu", "memory", "gpu"].map(of);
        assert_eq!(said, [Some(&*alice), Some(&*bob), Some("")]);
        let query = RatesQuery {
            resource: "cpu".to_owned(),
            at_lsn: query.at_lsn,
            ..RatesQuery::default()
        };
        let rates = operator.rates(&query).await?.rates;
        let ours = rates.iter().rev().take(2);
        let by: Vec<_> = ours.map(|view| view.by.as_str()).collect();
        assert_eq!(by, [&bob, &alice]);
        // And of who was refused.
        let query = RefusalsQuery {
            at_lsn: query.at_lsn,
            ..RefusalsQuery::default()
        };
        let refusals = operator.refusals(&query).await?.refusals;
        let by = refusals.iter().map(|view| view.by.as_str());
        assert_eq!(by.collect::<Vec<_>>(), [&*bob]);
    }

    // Who was taken back is shut out at once, and the others are not.
    let guest = Guest::Operator(alice.clone());
    let deletion = {
        let mut directory = Directory::open(&servers.nats.bus)?;
        let deletion = directory.deletion(&guest, now)?;
        directory.forget(&guest, now)?;
        deletion
    };
    let system = servers.nats("system").await;
    let answer = system.request(CLAIMS_DELETE, deletion.into()).await?;
    let said = String::from_utf8_lossy(&answer.payload).into_owned();
    assert!(said.contains("\"code\":200"), "{said}");
    let late = impatient.set_quota(quota("cpu", 1), id()).await;
    assert!(matches!(late, Err(Failed::NoOutcome(_))), "{late:?}");
    by_bob.set_quota(quota("cpu", 2_000), id()).await?;
    let held = |event: &Event| match event {
        Event::QuotaSet(set) => (set.operation.by.as_deref()).map(|by| by.to_string()),
        _ => None,
    };
    let by: Vec<_> = suite
        .events()
        .await
        .iter()
        .filter_map(|(_, it)| held(it))
        .collect();
    assert_eq!(by, [alice, bob.clone(), bob]);
    suite.close().await;
    Ok(())
}

#[tokio::test]
async fn an_inbox_that_was_made_before_takes_operators_with_names() -> Outcome {
    let suite = Suite::bare(Setup::default()).await;
    suite.make_streams().await;
    let s = &suite.subjects;
    let maker = async_nats::jetstream::new(suite.servers.nats("bus").await);
    let made = maker.get_stream(s.ingress_stream()).await?;
    let made = made.cached_info().config.clone();
    assert!(made.subjects.contains(&s.admin_of("*")));
    maker
        .update_stream(Config {
            subjects: vec![s.ingress("*"), s.admin()],
            ..made.clone()
        })
        .await?;
    for _ in 0..2 {
        suite.make_streams().await;
        let now = maker.get_stream(s.ingress_stream()).await?;
        assert_eq!(now.cached_info().config, made);
    }
    suite.close().await;
    Ok(())
}
