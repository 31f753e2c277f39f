//! What a page is made of, as the stores say it.

use super::sheets::OneBudget;
use crate::{Failure, context::Context};
use analytics::store::{
    CapacityLine, Closing, CostLine, EndLine, InvoiceLine, LongWait, Mark, Reconciled, SizeLine,
    Span, Spender, SpentLine, WaitLine,
};
use vocab::Month;

const SPENDERS_MAX: u32 = 10;
const WAITS_MAX: u32 = 20;

#[derive(Debug, Clone)]
pub struct Facts {
    pub month: Month,
    /// Where the tables were before the first question, and after the last one.
    pub marks: (Mark, Mark),
    pub closing: Option<Closing>,
    pub currency: String,
    pub bill: Vec<InvoiceLine>,
    pub capacity: Vec<CapacityLine>,
    pub costs: Vec<CostLine>,
    pub ends: Vec<EndLine>,
    pub waits: Vec<WaitLine>,
    pub longest: Vec<LongWait>,
    pub sizes: Vec<SizeLine>,
    pub spenders: Vec<SpentLine>,
    /// Of the periods that they are in now, whatever the month.
    pub budgets: Vec<OneBudget>,
    pub reconciled: Vec<Reconciled>,
}

impl Facts {
    pub async fn read(context: &Context, month: Month) -> Result<Self, Failure> {
        let store = context.usage().await?;
        let span = Span::of(month);
        let before = store.mark().await?;
        Ok(Self {
            month,
            closing: store.closing(month).await?,
            currency: store.currency().await?,
            bill: store.bill(&store.known().await?, None, month).await?,
            capacity: store.capacity(span).await?,
            costs: store.platform_costs(span).await?,
            ends: store.ends(span).await?,
            waits: store.waits(span).await?,
            longest: store.longest_waits(span, WAITS_MAX).await?,
            sizes: store.sizes(span).await?,
            spenders: store.spenders(span, Spender::JobSet, SPENDERS_MAX).await?,
            budgets: budgets(context).await?,
            reconciled: store.reconciliation(month).await?,
            marks: (before, store.mark().await?),
        })
    }
}

async fn budgets(context: &Context) -> Result<Vec<OneBudget>, Failure> {
    let pool = context.warm_state("quota").await?;
    Ok(quota::store::budgets(&pool, None, None, u32::MAX).await?)
}
