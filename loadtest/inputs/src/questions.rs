//! Queries of tenants and operators, read as the services read them and run up to the first database access.

use crate::cell::{CELL, Cell, asker, refused};
use admission::query as of_admission;
use chassis::{
    Clock,
    query::{Asked, Trouble, Verb, read, tried},
};
use ledger_nats::Questions;
use quota::query as of_quota;
use scheduler::query as of_scheduler;
use sqlx::{PgPool, postgres::PgPoolOptions};
use tokio::runtime::{Builder, Runtime};
use vocab::{AllocationSpec, Refusal, Token};

/// Query handler without a database: each database access fails.
struct Desk {
    runtime: Runtime,
    pool: PgPool,
}

type Ask = fn(&Desk, Token, &[u8]) -> bool;

macro_rules! verbs {
    ($($module:ident :: $verb:ident { $($field:ident: $value:expr),* })*) => {
        &[$(|desk, who, payload| {
            let pool = desk.pool.clone();
            desk.ask($module::$verb { pool, $($field: $value),* }, who, payload)
        },)* try_place, try_quota]
    };
}

const VERBS: &[Ask] = verbs! {
    of_admission::OperationQueries {}
    of_admission::RatesQueries {}
    of_admission::RefusalsQueries {}
    of_admission::SettingsQueries {}
    of_scheduler::AllocationQueries {}
    of_scheduler::AllocationsQueries {}
    of_scheduler::ExplainQueries { clock: Clock::real(), questions: Questions::new().0 }
    of_scheduler::JobSetsQueries {}
    of_scheduler::LeaseQueries { cell: CELL, clock: Clock::real(), slot_ms: 1000 }
    of_scheduler::ResourceQueries { cell: CELL }
    of_scheduler::NodeQueries {}
    of_scheduler::NodesQueries {}
    of_scheduler::PreemptionsQueries {}
    of_scheduler::QueueQueries {}
    of_scheduler::QueuesQueries {}
    of_scheduler::ReservationsQueries {}
    of_scheduler::TenantsQueries {}
    of_quota::BudgetQueries {}
    of_quota::HistoryQueries {}
    of_quota::QuotaQueries { cell: CELL }
};

/// Runs a query; the first byte selects its verb, the second its sender. True if the query would be answered.
pub fn question(input: &[u8]) -> bool {
    thread_local! {
        static DESK: Desk = Desk::open();
    }
    let [verb, who, payload @ ..] = input else {
        return false;
    };
    let ask = VERBS[usize::from(*verb) % VERBS.len()];
    DESK.with(|desk| ask(desk, asker(*who), payload))
}

impl Desk {
    fn open() -> Self {
        let runtime = Builder::new_current_thread().enable_time().build();
        let runtime = runtime.expect("a runtime");
        let pool = runtime.block_on(async {
            let options = PgPoolOptions::new().idle_timeout(None).max_lifetime(None);
            let pool = options.connect_lazy("postgres://unused@127.0.0.1:1/none");
            let pool = pool.expect("an address");
            pool.close().await;
            pool
        });
        Self { runtime, pool }
    }

    fn ask<V: Verb>(&self, verb: V, tenant: Token, payload: &[u8]) -> bool {
        let Some(asked) = understood::<V>(tenant, payload) else {
            return false;
        };
        match self.runtime.block_on(verb.answer(asked)) {
            Ok(_) | Err(Trouble::Unavailable(_)) => true,
            Err(Trouble::Refused(refusal)) => {
                refused(&refusal);
                false
            }
        }
    }
}

fn understood<V: Verb>(tenant: Token, payload: &[u8]) -> Option<Asked<V::Query>> {
    match read::<V::Query>(payload) {
        Ok(query) => {
            assert_eq!(prost::Message::encode_to_vec(&query).len(), payload.len());
            let applied = V::position(&query);
            let asked = Asked {
                tenant,
                applied,
                query,
            };
            (!V::OPERATORS_ONLY || asked.whose().is_none()).then_some(asked)
        }
        Err(Trouble::Refused(refusal)) => {
            refused(&refusal);
            None
        }
        Err(Trouble::Unavailable(why)) => panic!("reading a query needs no service: {why}"),
    }
}

/// Runs a placement trial, which must not change the state.
fn try_place(_: &Desk, tenant: Token, payload: &[u8]) -> bool {
    let asked = understood::<of_scheduler::TrialQueries>(tenant, payload);
    asked.is_some_and(|asked| {
        let except = asked.query.except_models.iter();
        let except: Result<Vec<_>, _> = except.map(|name| Token::new(name)).collect();
        let mut except = except.unwrap_or_default();
        except.sort_unstable();
        except.truncate(AllocationSpec::GPU_MODELS_MAX);
        judged(
            tried(&asked, asked.query.spec.as_ref()),
            |cell, tenant, spec| cell.try_place(tenant, spec, &except),
        )
    })
}

fn try_quota(_: &Desk, tenant: Token, payload: &[u8]) -> bool {
    let asked = understood::<of_quota::TrialQueries>(tenant, payload);
    asked.is_some_and(|asked| judged(tried(&asked, asked.query.spec.as_ref()), Cell::try_quota))
}

fn judged(
    tried: Result<(Token, AllocationSpec), Trouble>,
    judge: impl FnOnce(&mut Cell, &Token, &AllocationSpec) -> Result<(), Refusal>,
) -> bool {
    let judged = tried.and_then(|(tenant, spec)| {
        judge(&mut Cell::begin(), &tenant, &spec).map_err(Trouble::Refused)
    });
    match judged {
        Ok(()) => true,
        Err(Trouble::Refused(refusal)) => {
            refused(&refusal);
            false
        }
        Err(Trouble::Unavailable(why)) => panic!("a trial needs no service: {why}"),
    }
}
