//! What the parts of a service say about themselves, and what the service answers from that.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

/// From here on somebody has to see to it that there will be room.
const FILLED_PERCENT: u64 = 90;

fn percent(used: u64, of: u64) -> u64 {
    // At most a hundred, for what is more than full.
    let part = u128::from(used.min(of)) * 100;
    part.checked_div(u128::from(of)).unwrap_or(0) as u64
}

/// The components of one service. Register all of them before the first slow step: the service counts as ready when
/// each registered one is, and not while there is none.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<Components>>);

type Components = BTreeMap<&'static str, Standing>;

/// How a component stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", content = "why", rename_all = "snake_case")]
enum Standing {
    Ready,
    /// Cannot work yet, or not at the moment: the service is not ready.
    NotReady(Cow<'static, str>),
    /// Works worse, but the decisions go on: a projection behind, a database away.
    Degraded(Cow<'static, str>),
    /// Will not come back without a restart: the service is not alive.
    Failed(Cow<'static, str>),
}

/// The answer to `/healthz` or `/readyz`.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Whether the question is answered with yes.
    pub ok: bool,
    components: Components,
}

impl Health {
    /// Registers a component as not ready yet. The same name gives a handle to the same component.
    pub fn component(&self, name: &'static str) -> ComponentHandle {
        self.lock()
            .entry(name)
            .or_insert(Standing::NotReady(Cow::Borrowed("starting")));
        ComponentHandle {
            health: self.clone(),
            name,
        }
    }

    /// Alive: no component has failed for good.
    pub(crate) fn alive(&self) -> Report {
        let components = self.lock().clone();
        let ok = components
            .values()
            .all(|standing| !matches!(standing, Standing::Failed(_)));
        Report { ok, components }
    }

    /// Ready: every component works, be it worse than usual.
    pub(crate) fn ready(&self) -> Report {
        let components = self.lock().clone();
        let works =
            |standing: &Standing| matches!(standing, Standing::Ready | Standing::Degraded(_));
        let ok = !components.is_empty() && components.values().all(works);
        Report { ok, components }
    }

    /// Every change is one assignment, so a panic elsewhere cannot leave the map half changed.
    fn lock(&self) -> MutexGuard<'_, Components> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets one component say how it stands. Changes are logged, repetitions are not.
#[derive(Clone, Debug)]
pub struct ComponentHandle {
    health: Health,
    name: &'static str,
}

impl ComponentHandle {
    /// The component works.
    pub fn ready(&self) {
        self.set(Standing::Ready);
    }

    /// The component does not work now; the service is not ready.
    pub fn not_ready(&self, why: impl Into<Cow<'static, str>>) {
        self.set(Standing::NotReady(why.into()));
    }

    /// The component works worse than it should; the service stays ready.
    pub fn degraded(&self, why: impl Into<Cow<'static, str>>) {
        self.set(Standing::Degraded(why.into()));
    }

    /// The component holds so much of what it may: it works, and says in time that it will not. `of` 0: nobody knows.
    pub fn filled(&self, what: &'static str, used: u64, of: u64) {
        match percent(used, of) {
            full @ FILLED_PERCENT.. => self.degraded(format!("{what} is {full} % full")),
            _ => self.ready(),
        }
    }

    /// The component is dead until the process restarts.
    pub fn failed(&self, why: impl Into<Cow<'static, str>>) {
        self.set(Standing::Failed(why.into()));
    }

    fn set(&self, standing: Standing) {
        {
            let mut components = self.health.lock();
            match components.get(self.name) {
                Some(before) if *before == standing => return,
                // What has failed for good stays failed, whatever its tasks still report.
                Some(Standing::Failed(_)) => return,
                _ => components.insert(self.name, standing.clone()),
            };
        }
        match standing {
            Standing::Ready => tracing::info!(component = self.name, "ready"),
            Standing::NotReady(why) => tracing::warn!(component = self.name, %why, "not ready"),
            Standing::Degraded(why) => tracing::warn!(component = self.name, %why, "degraded"),
            Standing::Failed(why) => tracing::error!(component = self.name, %why, "failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_component_decides() {
        type Move = fn(&ComponentHandle);
        let ready: Move = ComponentHandle::ready;
        let not_ready: Move = |handle| handle.not_ready("connecting");
        let degraded: Move = |handle| handle.degraded("12 frames behind");
        let failed: Move = |handle| handle.failed("chain broken");
        let revived: Move = |handle| {
            handle.failed("chain broken");
            handle.ready();
        };
        let table: [(&str, &[Move], bool, bool); 8] = [
            ("nothing registered", &[], false, true),
            ("one ready", &[ready], true, true),
            ("two ready", &[ready, ready], true, true),
            ("one of two not ready", &[ready, not_ready], false, true),
            ("degraded", &[ready, degraded], true, true),
            ("failed", &[ready, failed], false, false),
            ("failed stays failed", &[ready, revived], false, false),
            ("failed and degraded", &[failed, degraded], false, false),
        ];
        for (case, moves, is_ready, is_alive) in table {
            let health = Health::default();
            for (name, step) in ["ledger", "projection"].into_iter().zip(moves) {
                step(&health.component(name));
            }
            assert_eq!(
                (health.ready().ok, health.alive().ok),
                (is_ready, is_alive),
                "{case}"
            );
        }
    }

    #[test]
    fn what_is_nearly_full_says_so_and_works() {
        let table: [(u64, u64, Option<&str>); 7] = [
            (0, 0, None),
            (5, 0, None),
            (89, 100, None),
            (90, 100, Some("the disk is 90 % full")),
            (120, 100, Some("the disk is 100 % full")),
            (u64::MAX / 100 * 91, u64::MAX, Some("the disk is 90 % full")),
            (u64::MAX, u64::MAX, Some("the disk is 100 % full")),
        ];
        for (used, of, expected) in table {
            let health = Health::default();
            health.component("disk").filled("the disk", used, of);
            let report = health.ready();
            let found = match &report.components["disk"] {
                Standing::Degraded(why) => Some(why.as_ref()),
                _ => None,
            };
            assert_eq!((report.ok, found), (true, expected), "{used} of {of}");
        }
    }

    #[test]
    fn a_new_component_is_not_ready_and_its_name_is_its_identity() {
        let health = Health::default();
        health.component("ledger").ready();
        health.component("ledger");
        assert!(health.ready().ok);
        health.component("projection");
        let report = serde_json::to_value(health.ready()).expect("a report is plain data");
        let expected = serde_json::json!({
            "ok": false,
            "components": { "ledger": {"state": "ready"}, "projection": {"state": "not_ready", "why": "starting"} },
        });
        assert_eq!(report, expected);
    }
}
