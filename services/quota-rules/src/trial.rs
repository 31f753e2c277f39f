//! Trials: what would be decided on a request, or on a gang whose members all ask for the same, if it came now. It is a guest: it
//! enters, is judged by the functions that decide, and leaves the state as it was.

use super::{
    Quota, account::AccountId, claim::Claim, demand::Demand, rates::ScopeNo, reserve::Verdict,
    resource::ResourceId,
};
use vocab::{
    Account, AllocationNo, AllocationSpec, Limits, Millis, QuotaFlags, QuotaResource, Refusal,
    Rule, Token,
};

/// Half of all numbers, which no ledger comes to: as numbers decide among equals, a guest comes after everybody.
const GUEST: AllocationNo = AllocationNo(1 << 63);

/// What would be decided on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    pub decided: WouldBe,
    /// What it asks for of what is limited, the account nearest to it first.
    pub limits: Vec<TriedLimit>,
    /// The tenants that its tenant shares with.
    pub cohort: Option<Token>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WouldBe {
    Reserved {
        flags: QuotaFlags,
        /// GPU models that it would not be placed on, because there is no quota left of them. Sorted.
        except: Vec<Token>,
    },
    /// It would wait for what the refusal names.
    Waiting {
        refusal: Refusal,
        /// So many allocations of others in the cohort would be told to stop for it.
        reclaims: usize,
    },
    Denied(Refusal),
    /// It would not ask before what it depends on has ended.
    AwaitingOthers,
}

/// What is asked of one account for one resource type that is limited there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriedLimit {
    pub account: Account,
    pub resource: QuotaResource,
    pub asked: u64,
    /// By the account and those below it, before it.
    pub held: u64,
    pub limits: Limits,
    /// What would be remarkable; none: there is not so much left.
    pub flags: Option<QuotaFlags>,
}

/// The guests: one, or as many as its gang has.
fn members(spec: &AllocationSpec) -> Result<Vec<AllocationNo>, Refusal> {
    let size = spec.gang.as_ref().map_or(1, |gang| gang.size);
    if !(1..=AllocationSpec::GANG_SIZE_MAX).contains(&size) {
        let (limit, actual) = (AllocationSpec::GANG_SIZE_MAX.into(), size.into());
        return Err(Refusal::over(Rule::GangInvalid, "gang", limit, actual));
    }
    let numbers = GUEST.0..GUEST.0 + u64::from(size);
    Ok(numbers.map(AllocationNo).collect())
}

impl Quota {
    /// Judges a request as if it came now, when all that came before is decided; of a member of a gang the whole gang, as if each
    /// member asked for the same.
    pub fn try_request(
        &mut self,
        tenant: &Token,
        spec: &AllocationSpec,
        now: Millis,
    ) -> Result<Trial, Refusal> {
        let members = members(spec)?;
        let gpu_models = spec.gpu.as_ref().map_or(0, |gpu| gpu.models.len());
        let names = self.books.names.before(spec.extended.len() + gpu_models);
        let accounts = self.books.usage_tree.before();
        for member in &members {
            let claim = self.claim(tenant, spec, ScopeNo::NONE);
            self.claims.insert(*member, claim);
            self.depend(*member, &spec.depends_on);
        }
        let trial = self.judge_guests(&members, now);
        for member in members {
            self.forget(member);
        }
        self.books.usage_tree.restore(accounts);
        self.books.names.restore(names);
        trial.ok_or_else(|| Refusal::new(Rule::NotSupported, "spec"))
    }

    fn judge_guests(&self, members: &[AllocationNo], now: Millis) -> Option<Trial> {
        let claim = self.claims.get(&GUEST)?;
        let demands = self.demands(members);
        let tenant = self.books.usage_tree.node(claim.path.tenant());
        Some(Trial {
            decided: self.would_be(members, claim, &demands, now),
            limits: self.tried_limits(&demands, now).collect(),
            cohort: tenant
                .cohort
                .map(|id| self.books.cohorts.get(id).name.clone()),
        })
    }

    fn would_be(
        &self,
        members: &[AllocationNo],
        claim: &Claim,
        demands: &[Demand],
        now: Millis,
    ) -> WouldBe {
        if self.dependencies.awaits_others(GUEST) {
            // A gang is not judged before its members ask.
            let alone = members.len() == 1;
            return match self.never_fits(GUEST, demands, now).filter(|_| alone) {
                Some(refusal) => WouldBe::Denied(refusal),
                None => WouldBe::AwaitingOthers,
            };
        }
        match self.judge(members, demands, claim.order(GUEST), now) {
            Verdict::Grant(grant) => {
                let models = self.model_grant(GUEST, &grant);
                WouldBe::Reserved {
                    flags: grant.flags,
                    except: models.map_or(Vec::new(), |models| models.except),
                }
            }
            Verdict::Deny(refusal) => WouldBe::Denied(refusal),
            Verdict::StandAside(refusal) => WouldBe::Waiting {
                refusal,
                reclaims: 0,
            },
            Verdict::Wait {
                refusal, victims, ..
            } => WouldBe::Waiting {
                refusal,
                reclaims: victims.len(),
            },
        }
    }

    fn tried_limits(&self, demands: &[Demand], now: Millis) -> impl Iterator<Item = TriedLimit> {
        demands.iter().filter_map(move |demand| {
            let Demand {
                account,
                part,
                amount,
            } = *demand;
            let (limits, held) = self.limit_at(account, part)?;
            let allowed = self.books.limit_allows(account, part, amount, now);
            Some(TriedLimit {
                account: self.books.usage_tree.node(account).account.clone(),
                resource: self.books.names.resource(part),
                asked: amount,
                held,
                limits,
                flags: allowed.ok(),
            })
        })
    }

    fn limit_at(&self, account: AccountId, part: ResourceId) -> Option<(Limits, u64)> {
        let node = self.books.usage_tree.node(account);
        Some((node.limited(part)?.limits, node.taken(part).held()))
    }
}
