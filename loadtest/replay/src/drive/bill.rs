//! The bill and its proof, as analytics has them in ClickHouse, with the reader's rights.

use analytics::store::{Imbalance, ReconciledMonth, Store, StoreError};
use chassis::stack::{Stack, StackError};
use clickhouse::Client;
use std::collections::BTreeMap;
use vocab::CellNo;

#[derive(Debug, thiserror::Error)]
#[error("asking ClickHouse for {what}: {source}")]
pub struct BillError {
    what: &'static str,
    source: StoreError,
}

/// Where the projection stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// The ledger is in the tables up to here.
    pub through_lsn: u64,
    pub intervals: u64,
}

/// Micro-units of the currency by tenant and month (`2024-05`).
pub type Charges = BTreeMap<String, BTreeMap<String, i128>>;

/// The reader's view of ClickHouse.
pub struct Bill {
    store: Store,
    client: Client,
}

impl Bill {
    pub fn of(stack: &Stack) -> Result<Self, StackError> {
        let server = stack.bill()?;
        let (database, cell) = (&stack.clickhouse.database, CellNo(stack.cell.number));
        Ok(Self {
            store: Store::new(server.clone(), database, cell),
            client: server,
        })
    }

    pub async fn standing(&self) -> Result<Standing, BillError> {
        let failed = |source| BillError {
            what: "its position",
            source,
        };
        let through = self.store.through().await.map_err(failed)?;
        // Rows that are there, whatever the positions say: the one thing that analytics is not asked for.
        let query = self
            .client
            .query("SELECT count() FROM allocation_intervals");
        let intervals = query.fetch_one::<u64>().await;
        Ok(Standing {
            through_lsn: through.0,
            intervals: intervals.map_err(|error| failed(error.into()))?,
        })
    }

    pub async fn charges(&self) -> Result<Charges, BillError> {
        let lines = self
            .store
            .monthly_bill()
            .await
            .map_err(|source| BillError {
                what: "the bill",
                source,
            })?;
        let mut charges = Charges::new();
        for line in lines {
            let months = charges.entry(line.tenant).or_default();
            *months.entry(line.month).or_default() += line.amount_micro;
        }
        Ok(charges)
    }

    pub async fn conservation(&self) -> Result<Vec<Imbalance>, BillError> {
        let found = self.store.conservation().await;
        let found = found.map_err(|source| BillError {
            what: "the conservation check",
            source,
        })?;
        Ok(found.imbalances)
    }

    /// Every month's capacity in money against what became of it.
    pub async fn months(&self) -> Result<Vec<ReconciledMonth>, BillError> {
        let months = self.store.reconciled_months().await;
        months.map_err(|source| BillError {
            what: "the months",
            source,
        })
    }

    /// Hours with a line on the bill, over all tenants.
    pub async fn hours(&self) -> Result<u64, BillError> {
        self.store.hours_billed().await.map_err(|source| BillError {
            what: "the hours",
            source,
        })
    }
}
