//! Trials: what would be decided on a request, or on a gang whose members all ask for the same, if it came now. It is a guest: it
//! enters, is judged by the functions that decide, and leaves the state as it was.

use super::{
    Quota,
    account::AccountId,
    claim::Claim,
    demand::{Demand, group},
    node::Node,
    rates::ScopeNo,
    reserve::Verdict,
    resource::ResourceId,
};
use vocab::{
    Account, AllocationNo, AllocationSpec, Limits, Millis, QuotaFlags, QuotaResource, ReclaimFrom,
    Refusal, Rule, Token,
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
    /// Set where other tenants of the cohort hold a part of the tenant's own limit that it needs.
    pub lent: Option<Lent>,
}

/// The part of a tenant's limit that other tenants of its cohort hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lent {
    pub resource: QuotaResource,
    /// The tenant's own limit.
    pub limit: u64,
    /// The part of the limit that others hold.
    pub lent: u64,
    /// Other tenants that hold more than their own limits.
    pub borrowers: Vec<Token>,
    /// The reclaimed amount of the cohort that stopping allocations still hold.
    pub returning: u64,
    /// The tenant's setting: from which borrowers quota may be reclaimed.
    pub reclaim: ReclaimFrom,
    /// The request is within the tenant's own limit.
    pub own: bool,
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
        let trial = self.judge_as_it_stands(&members, now);
        for member in members {
            self.forget(member);
        }
        self.books.usage_tree.restore(accounts);
        self.books.names.restore(names);
        trial.ok_or_else(|| Refusal::new(Rule::NotSupported, "spec"))
    }

    /// Judges an allocation of the tenant that waits for quota, and its gang if that waits as a whole.
    pub fn try_waiting(
        &self,
        tenant: &Token,
        allocation: AllocationNo,
        now: Millis,
    ) -> Result<Trial, Refusal> {
        let is_own = |claim: &&Claim| {
            let node = self.books.usage_tree.node(claim.path.tenant());
            node.account.tenant == *tenant && claim.hold().is_none()
        };
        let claim = self.claims.get(&allocation).filter(is_own);
        let trial = claim.and_then(|_| self.judge_as_it_stands(&self.unit(allocation), now));
        trial.ok_or_else(|| Refusal::new(Rule::AllocationNotFound, "allocation_id"))
    }

    fn judge_as_it_stands(&self, members: &[AllocationNo], now: Millis) -> Option<Trial> {
        let lead = *members.first()?;
        let claim = self.claims.get(&lead)?;
        let demands = self.demands(members);
        let tenant = self.books.usage_tree.node(claim.path.tenant());
        let decided = self.would_be(members, claim, &demands, now);
        let lent = match &decided {
            WouldBe::Waiting { refusal, .. } | WouldBe::Denied(refusal)
                if refusal.rule == Rule::QuotaExceeded =>
            {
                self.lent(claim.path.tenant(), &demands)
            }
            WouldBe::Waiting { .. }
            | WouldBe::Denied(_)
            | WouldBe::Reserved { .. }
            | WouldBe::AwaitingOthers => None,
        };
        Some(Trial {
            decided,
            lent,
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
        let lead = members[0];
        if self.dependencies.awaits_others(lead) {
            // A gang is not judged before its members ask.
            let alone = members.len() == 1;
            return match self.never_fits(lead, demands, now).filter(|_| alone) {
                Some(refusal) => WouldBe::Denied(refusal),
                None => WouldBe::AwaitingOthers,
            };
        }
        match self.judge(members, demands, claim.order(lead), now) {
            Verdict::Grant(grant) => {
                let models = self.model_grant(lead, &grant);
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

    /// Returns the lent part of the first resource of which others leave the tenant less than its limit and its demand.
    fn lent(&self, tenant: AccountId, demands: &[Demand]) -> Option<Lent> {
        let node = self.books.usage_tree.node(tenant);
        let cohort = self.books.cohorts.get(node.cohort?);
        group(demands, tenant).iter().find_map(|demand| {
            let limited = node.limited(demand.part)?;
            let (hard, share) = (limited.limits.hard, &limited.share);
            let pool = cohort.pool(demand.part);
            let room = pool.room(hard, share);
            let held = node.taken(demand.part).held();
            let wanted = held.saturating_add(demand.amount);
            if room >= hard || wanted <= room {
                return None;
            }
            let others = cohort.members.iter().filter(|member| **member != tenant);
            let others = others.map(|member| self.books.usage_tree.node(*member));
            let borrows = |other: &&Node| {
                let held = other.taken(demand.part).held();
                let limited = other.limited(demand.part);
                limited.is_some_and(|limited| held > limited.limits.hard)
            };
            let returning = pool.returning - u128::from(share.returning);
            Some(Lent {
                resource: self.books.names.resource(demand.part),
                limit: hard,
                lent: hard - room,
                borrowers: others
                    .filter(borrows)
                    .map(|other| other.account.tenant.clone())
                    .collect(),
                returning: u64::try_from(returning).unwrap_or(u64::MAX),
                reclaim: node.settings().reclaim,
                own: wanted <= hard,
            })
        })
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
