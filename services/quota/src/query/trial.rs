//! What would be decided on a request.

use super::limits::limits;
use chassis::query::{Asked, Trouble, Verb, ask_state, tried};
use ledger_nats::Questions;
use quota_rules::{Lent, Quota, Trial, TriedLimit, WouldBe};
use schemas::{
    ToProst as _,
    v1::{
        LentQuota, QuotaTrial, QuotaTrialAwaiting, QuotaTrialLimit, QuotaTrialReserved,
        QuotaTrialWaiting, TryQuotaQuery, TryQuotaReply, quota_trial::Decided,
    },
};
use vocab::{AllocationId, AllocationNo, CellNo, Lsn, QuotaFlags, Rule, Token};

/// The verb `try_quota`.
pub struct TrialQueries {
    pub questions: Questions<Quota>,
    pub cell: CellNo,
}

impl Verb for TrialQueries {
    const NAME: &'static str = "try_quota";
    type Query = TryQuotaQuery;
    type Reply = TryQuotaReply;

    fn position(query: &TryQuotaQuery) -> Lsn {
        Lsn(query.at_lsn)
    }

    async fn answer(&self, asked: Asked<TryQuotaQuery>) -> Result<TryQuotaReply, Trouble> {
        let at_lsn = Lsn(asked.query.at_lsn);
        let (trial, lsn) = match asked.query.allocation_id.as_str() {
            "" => {
                let (tenant, spec) = tried(&asked, asked.query.spec.as_ref())?;
                ask_state(&self.questions, at_lsn, move |state, view| {
                    state.try_request(&tenant, &spec, view.now)
                })
                .await?
            }
            id => {
                let (tenant, allocation) = self.waiting(&asked, id)?;
                ask_state(&self.questions, at_lsn, move |state, view| {
                    state.try_waiting(&tenant, allocation, view.now)
                })
                .await?
            }
        };
        Ok(TryQuotaReply {
            trial: Some(view(trial.map_err(Trouble::Refused)?)),
            refusal: None,
            lsn: lsn.0,
        })
    }
}

impl TrialQueries {
    /// Reads the tenant and the allocation to judge.
    fn waiting(
        &self,
        asked: &Asked<TryQuotaQuery>,
        id: &str,
    ) -> Result<(Token, AllocationNo), Trouble> {
        let tenant = asked.whose().cloned();
        let tenant = tenant.ok_or_else(|| Trouble::refused(Rule::TenantUnknown, "tenant"))?;
        if asked.query.spec.is_some() {
            return Err(Trouble::refused(Rule::SettingInvalid, "spec"));
        }
        let id = AllocationId::parse(id);
        let id = id.ok_or_else(|| Trouble::refused(Rule::AllocationIdInvalid, "allocation_id"))?;
        let allocation = id.in_cell(self.cell);
        let unknown = || Trouble::refused(Rule::AllocationNotFound, "allocation_id");
        Ok((tenant, allocation.ok_or_else(unknown)?))
    }
}

fn lent(lent: Lent) -> LentQuota {
    LentQuota {
        resource: lent.resource.to_string(),
        limit: lent.limit,
        lent: lent.lent,
        // There are fewer tenants than that.
        borrowers: u32::try_from(lent.borrowers.len()).unwrap_or(u32::MAX),
        returning: lent.returning,
        // The numbers are the contract's.
        reclaim: lent.reclaim as i32,
        own: lent.own,
    }
}

fn view(trial: Trial) -> QuotaTrial {
    let decided = match trial.decided {
        WouldBe::Reserved { flags, except } => Decided::Reserved(QuotaTrialReserved {
            soft: flags.has(QuotaFlags::SOFT),
            burst: flags.has(QuotaFlags::BURST),
            borrowed: flags.has(QuotaFlags::BORROWED),
            except_models: except.into_iter().map(String::from).collect(),
        }),
        WouldBe::Waiting { refusal, reclaims } => Decided::Waiting(QuotaTrialWaiting {
            limit: Some(refusal.to_prost()),
            // There are fewer allocations than that.
            reclaims: u32::try_from(reclaims).unwrap_or(u32::MAX),
        }),
        WouldBe::Denied(refusal) => Decided::Denied(refusal.to_prost()),
        WouldBe::AwaitingOthers => Decided::AwaitingOthers(QuotaTrialAwaiting {}),
    };
    QuotaTrial {
        decided: Some(decided),
        limits: trial.limits.into_iter().map(limit).collect(),
        cohort: trial.cohort.map_or_else(String::new, String::from),
        lent: trial.lent.map(lent),
    }
}

fn limit(tried: TriedLimit) -> QuotaTrialLimit {
    let name = |token: Option<Token>| token.map_or_else(String::new, String::from);
    let flags = tried.flags.unwrap_or_default();
    QuotaTrialLimit {
        team: name(tried.account.team),
        namespace: name(tried.account.namespace),
        resource: tried.resource.to_string(),
        asked: tried.asked,
        held: tried.held,
        limits: Some(limits(tried.limits)),
        fits: tried.flags.is_some(),
        soft: flags.has(QuotaFlags::SOFT),
        burst: flags.has(QuotaFlags::BURST),
        borrowed: flags.has(QuotaFlags::BORROWED),
    }
}
