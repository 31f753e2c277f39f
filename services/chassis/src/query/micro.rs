//! What a service says of itself to `nats micro ls`, `info` and `stats`: the service API of NATS, version 1
//! (<https://github.com/nats-io/nats-architecture-and-design/blob/main/adr/ADR-32.md>). Only operators reach it.
//!
//! The client library's own services cannot be used: they hear what comes from outside on the connection of the ledger,
//! with headers (ADR 38).

use crate::{clock::Stamp, hearing::Wanted};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use vocab::subjects::SERVICE_API;

const PING: &str = "PING";
const INFO: &str = "INFO";
const STATS: &str = "STATS";

/// One process of a service.
#[derive(Debug)]
pub struct Instance {
    name: String,
    /// Of this process alone: a token of a subject.
    id: String,
    started: String,
    metadata: BTreeMap<&'static str, String>,
    endpoints: Vec<Endpoint>,
}

/// A verb.
#[derive(Debug)]
struct Endpoint {
    name: &'static str,
    subject: String,
    group: &'static str,
    counted: Mutex<Counted>,
}

#[derive(Debug, Clone, Default, Serialize)]
struct Counted {
    num_requests: u64,
    num_errors: u64,
    last_error: String,
    /// Nanoseconds, of all requests, with what they wait for.
    processing_time: u64,
}

#[derive(Serialize)]
struct Ping<'i> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'i str,
    id: &'i str,
    version: &'static str,
    metadata: &'i BTreeMap<&'static str, String>,
}

#[derive(Serialize)]
struct Info<'i> {
    #[serde(flatten)]
    ping: Ping<'i>,
    description: &'static str,
    endpoints: Vec<EndpointInfo<'i>>,
}

#[derive(Serialize)]
struct EndpointInfo<'i> {
    name: &'static str,
    subject: &'i str,
    queue_group: &'static str,
    metadata: BTreeMap<&'static str, String>,
}

#[derive(Serialize)]
struct Stats<'i> {
    #[serde(flatten)]
    ping: Ping<'i>,
    started: &'i str,
    endpoints: Vec<EndpointStats<'i>>,
}

#[derive(Serialize)]
struct EndpointStats<'i> {
    name: &'static str,
    subject: &'i str,
    queue_group: &'static str,
    #[serde(flatten)]
    counted: Counted,
    average_processing_time: u64,
}

impl Instance {
    /// `id`: of this process alone.
    pub fn new(service: &str, cell: &str, id: String, started: Stamp) -> Self {
        let started = OffsetDateTime::from_unix_timestamp_nanos(started.unix_ns().into());
        let started = started.ok().and_then(|time| time.format(&Rfc3339).ok());
        Self {
            name: format!("apportion-{service}"),
            id,
            started: started.unwrap_or_default(),
            metadata: BTreeMap::from([("cell", cell.to_owned())]),
            endpoints: Vec::new(),
        }
    }

    /// Another verb, which is heard on `subject` by one process of `group`.
    pub fn endpoint(&mut self, name: &'static str, subject: String, group: &'static str) {
        let counted = Mutex::default();
        self.endpoints.push(Endpoint {
            name,
            subject,
            group,
            counted,
        });
    }

    /// All services are asked, those of a name, or one process.
    pub fn wanted(&self) -> Vec<Wanted> {
        let (name, id) = (&self.name, &self.id);
        let ways = [String::new(), format!(".{name}"), format!(".{name}.{id}")];
        let of = |verb| {
            let subject = move |way: &String| Wanted::all(format!("{SERVICE_API}.{verb}{way}"));
            ways.iter().map(subject)
        };
        [PING, INFO, STATS].into_iter().flat_map(of).collect()
    }

    pub fn count(&self, verb: &str, took: Duration, error: Option<String>) {
        let Some(endpoint) = self.endpoints.iter().find(|one| one.name == verb) else {
            return;
        };
        let mut counted = endpoint.lock();
        counted.num_requests += 1;
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        counted.processing_time = counted.processing_time.saturating_add(took);
        if let Some(error) = error {
            counted.num_errors += 1;
            counted.last_error = error;
        }
    }

    /// The answer to what came on a subject of the service API; none: it is not one.
    pub fn answer(&self, subject: &str) -> Option<Vec<u8>> {
        let mut tokens = subject.split('.');
        if tokens.next() != Some(SERVICE_API) {
            return None;
        }
        let said = match tokens.next()? {
            PING => serde_json::to_vec(&self.ping("io.nats.micro.v1.ping_response")),
            INFO => serde_json::to_vec(&self.info()),
            STATS => serde_json::to_vec(&self.stats()),
            _ => return None,
        };
        // Strings and numbers under keys of text become JSON whatever they say.
        said.ok()
    }

    fn ping(&self, kind: &'static str) -> Ping<'_> {
        Ping {
            kind,
            name: &self.name,
            id: &self.id,
            version: env!("CARGO_PKG_VERSION"),
            metadata: &self.metadata,
        }
    }

    fn info(&self) -> Info<'_> {
        Info {
            ping: self.ping("io.nats.micro.v1.info_response"),
            description: "answers what tenants and operators ask on the bus",
            endpoints: self.endpoints.iter().map(Endpoint::info).collect(),
        }
    }

    fn stats(&self) -> Stats<'_> {
        Stats {
            ping: self.ping("io.nats.micro.v1.stats_response"),
            started: &self.started,
            endpoints: self.endpoints.iter().map(Endpoint::stats).collect(),
        }
    }
}

impl Endpoint {
    /// Counts are never left half changed, so a poisoned lock is as good as any.
    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn info(&self) -> EndpointInfo<'_> {
        EndpointInfo {
            name: self.name,
            subject: &self.subject,
            queue_group: self.group,
            metadata: BTreeMap::new(),
        }
    }

    fn stats(&self) -> EndpointStats<'_> {
        let counted = self.lock().clone();
        EndpointStats {
            name: self.name,
            subject: &self.subject,
            queue_group: self.group,
            average_processing_time: counted.processing_time / counted.num_requests.max(1),
            counted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn instance() -> Instance {
        let started = Stamp::from_unix_ns(1_700_000_000_500_000_000);
        let mut instance = Instance::new("quota", "c1", "i1".to_owned(), started);
        instance.endpoint("budget", "c1.query.*.budget".to_owned(), "query");
        instance
    }

    /// What is answered on a subject.
    fn check(instance: &Instance, subject: &str, expected: Option<Value>) {
        let said = instance.answer(subject);
        let said: Option<Value> = said.map(|bytes| serde_json::from_slice(&bytes).unwrap());
        assert_eq!(said, expected, "{subject}");
    }

    #[test]
    fn a_process_says_what_it_is_and_what_it_has_done() {
        let instance = instance();
        instance.count("budget", Duration::from_nanos(300), None);
        let error = Some("not_found account".to_owned());
        instance.count("budget", Duration::from_nanos(100), error);
        instance.count("another", Duration::from_nanos(100), None);
        let says = |kind: &str, more: Value| {
            let mut said = json!({
                "type": format!("io.nats.micro.v1.{kind}_response"),
                "name": "apportion-quota",
                "id": "i1",
                "version": env!("CARGO_PKG_VERSION"),
                "metadata": { "cell": "c1" },
            });
            let fields = said.as_object_mut().unwrap();
            fields.extend(more.as_object().unwrap().clone());
            Some(said)
        };
        let ping = says("ping", json!({}));
        check(&instance, "$SRV.PING", ping.clone());
        check(&instance, "$SRV.PING.apportion-quota.i1", ping);
        let budget = json!({
            "name": "budget",
            "subject": "c1.query.*.budget",
            "queue_group": "query",
            "metadata": {},
        });
        let description = "answers what tenants and operators ask on the bus";
        let info = json!({ "description": description, "endpoints": [budget] });
        check(&instance, "$SRV.INFO", says("info", info));
        let budget = json!({
            "name": "budget",
            "subject": "c1.query.*.budget",
            "queue_group": "query",
            "num_requests": 2,
            "num_errors": 1,
            "last_error": "not_found account",
            "processing_time": 400,
            "average_processing_time": 200,
        });
        let started = "2023-11-14T22:13:20.5Z";
        let stats = json!({ "started": started, "endpoints": [budget] });
        check(&instance, "$SRV.STATS", says("stats", stats));
        check(&instance, "$SRV.SCHEMA", None);
        check(&instance, "$SRV", None);
        check(&instance, "c1.query.t.budget", None);
    }

    #[test]
    fn it_hears_what_all_are_asked_what_its_name_is_and_what_it_alone_is() {
        let heard = instance().wanted();
        assert_eq!(heard.len(), 9);
        for subject in ["$SRV.PING", "$SRV.INFO.apportion-quota"] {
            assert!(heard.contains(&Wanted::all(subject.to_owned())));
        }
        let own = "$SRV.STATS.apportion-quota.i1";
        assert!(heard.contains(&Wanted::all(own.to_owned())));
    }
}
