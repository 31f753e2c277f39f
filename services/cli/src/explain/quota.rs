//! What quota says: at which level, of what, how much is missing, and what would let it pass.

use schemas::v1::{LentQuota, ReclaimFrom};
use serde_json::Value;
use vocab::{ModelChoice, QuotaResource, Refusal, Rule, WaitingReason, human};

/// As a clause.
pub fn short(refusal: &Refusal) -> String {
    let actual = refusal.actual;
    match (refusal.rule, Level::of(&refusal.subject)) {
        (Rule::IncompleteGang, _) => {
            let (actual, size) = (actual, refusal.limit);
            format!("{actual} of the {size} members of its gang are there")
        }
        (Rule::DependencyPending, _) => "what it depends on has not ended".to_owned(),
        (Rule::QuotaNeverFits | Rule::BurstOver, Some(level)) => {
            let (limit, actual) = (refusal.amount(refusal.limit), refusal.amount(actual));
            let (what, account) = (level.what(), level.account);
            format!("it asks for {actual} of {what}, of which {account} may hold {limit} now")
        }
        (_, Some(level)) => {
            let (limit, actual) = (refusal.amount(refusal.limit), refusal.amount(actual));
            let (what, account) = (level.what(), level.account);
            format!("{what} of {account} would come to {actual}, and it may hold {limit} now")
        }
        (_, None) => refusal.explanation(),
    }
}

/// What it waits for, and what would let it pass.
pub fn lines(refusal: &Refusal) -> Vec<String> {
    // What it depends on has lines of its own.
    let of = match refusal.waiting_reason() {
        WaitingReason::Dependency => None,
        WaitingReason::GangIncomplete => Some("gang"),
        _ => Some("quota"),
    };
    let first = of.map(|of| format!("{of:<12} {}", short(refusal)));
    let mut out = Vec::from_iter(first);
    let missing = refusal.actual.saturating_sub(refusal.limit);
    match (refusal.rule, Level::of(&refusal.subject)) {
        (Rule::IncompleteGang, _) => {
            let missing = refusal.limit.saturating_sub(refusal.actual);
            out.push(format!(
                "passes when  those that are missing are submitted ({missing})"
            ));
        }
        (Rule::DependencyPending, _) => {
            out.push("passes when  that has ended; only then it asks for quota".to_owned());
        }
        (Rule::QuotaExceeded, Some(level)) => {
            let (level_of, missing) = (level.name(), refusal.amount(missing));
            out.push(format!("level        {level_of} {}", level.account));
            out.push(format!("missing      {missing} of {}", level.what()));
            out.push(format!(
                "passes when  the missing amount is free, or the limit of {} is raised by that",
                level.account
            ));
        }
        (Rule::BudgetExhausted, Some(level)) => {
            let level_of = level.name();
            out.push(format!("level        {level_of} {}", level.account));
            out.push(format!(
                "passes when  the next period of the {} budget begins, or it is raised",
                level.what
            ));
        }
        (Rule::QuotaNeverFits, Some(level)) => {
            let missing = refusal.amount(missing);
            out.push(format!(
                "passes when  it asks for {missing} less, or the limit of {} is raised by that",
                level.account
            ));
        }
        (Rule::BurstOver, Some(level)) => {
            out.push(format!(
                "passes when  the next burst of {} may begin, or its limit is raised",
                level.account
            ));
        }
        _ => {}
    }
    out
}

/// A tenant that holds more than its own limit, and by how much.
pub type Borrower = (String, u64);

/// States the lent part of a tenant's limit, the borrowers, and whether it is reclaimed or why not. Only operators see `names`.
pub fn lent_lines(
    lent: &LentQuota,
    cohort: &str,
    reclaims: u32,
    names: &[Borrower],
) -> Vec<String> {
    let amount = |amount: u64| Refusal::new(Rule::QuotaExceeded, &*lent.resource).amount(amount);
    let holders = match lent.borrowers {
        0 => format!("others of cohort {cohort}"),
        1 => format!("1 tenant of cohort {cohort} that is above its limit"),
        count => {
            format!("{count} tenants of cohort {cohort} that are above their limits")
        }
    };
    let names = names.iter();
    let names = names.map(|(tenant, borrowed)| format!("{tenant} ({})", amount(*borrowed)));
    let names: Vec<String> = names.collect();
    let names = match names.is_empty() {
        true => String::new(),
        false => format!(": {}", names.join(", ")),
    };
    let (of_it, limit, what) = (amount(lent.lent), amount(lent.limit), &lent.resource);
    vec![
        format!("lent         {of_it} of the limit of {limit} of {what}, to {holders}{names}"),
        format!("reclaim      {}", reclaim(lent, reclaims)),
    ]
}

/// States whether lent quota is reclaimed, or why not.
fn reclaim(lent: &LentQuota, reclaims: u32) -> String {
    let returning = Refusal::new(Rule::QuotaExceeded, &*lent.resource).amount(lent.returning);
    match (lent.returning, reclaims, lent.own, lent.reclaim()) {
        (1.., ..) => {
            format!("{returning} free when the stopping allocations have ended")
        }
        (0, 1.., ..) => {
            let allocations = human::count(reclaims.into(), "allocation");
            format!("{allocations} of the cohort would be stopped for it")
        }
        (0, 0, false, _) => {
            "no: only a request within the tenant's own limit reclaims lent quota".to_owned()
        }
        (0, 0, true, ReclaimFrom::Never) => {
            "no: the tenant's setting reclaim is never, so it waits until the borrowers' allocations end"
                .to_owned()
        }
        (0, 0, true, ReclaimFrom::LowerPriority) => {
            "no: the tenant's setting reclaim is lower-priority, and too few of the allocations that hold it have a lower priority"
                .to_owned()
        }
        (0, 0, true, ReclaimFrom::Any) => {
            "no: too little of it is held above the limits of others, or an allocation of the tenant goes first"
                .to_owned()
        }
    }
}

/// The same for programs.
pub fn lent_value(lent: &LentQuota, names: &[Borrower]) -> Value {
    let reclaim = match lent.reclaim() {
        ReclaimFrom::Any => "any",
        ReclaimFrom::LowerPriority => "lower_priority",
        ReclaimFrom::Never => "never",
    };
    let names = names.iter();
    super::object([
        ("resource", lent.resource.as_str().into()),
        ("limit", lent.limit.into()),
        ("lent", lent.lent.into()),
        ("borrowers", lent.borrowers.into()),
        (
            "borrowed_by",
            names.map(|(name, _)| name.as_str()).collect(),
        ),
        ("returning", lent.returning.into()),
        ("reclaim", reclaim.into()),
        ("own", lent.own.into()),
    ])
}

/// The account and what of it a refusal speaks of: `tenant/team cpu`.
struct Level<'a> {
    account: &'a str,
    what: &'a str,
}

impl<'a> Level<'a> {
    fn of(subject: &'a str) -> Option<Self> {
        let (account, what) = subject.split_once(' ')?;
        Some(Self { account, what })
    }

    fn name(&self) -> &'static str {
        match self.account.matches('/').count() {
            0 => "tenant",
            1 => "team",
            _ => "namespace",
        }
    }

    fn what(&self) -> String {
        match ModelChoice::parse(self.what) {
            None => self.what.to_owned(),
            Some(ModelChoice(models)) if models.is_empty() => "gpu of any model".to_owned(),
            Some(ModelChoice(models)) => {
                let models = models.into_iter().map(QuotaResource::GpuModel);
                let models: Vec<String> = models.map(|model| model.to_string()).collect();
                models.join(" or ")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: Rule, subject: &str, (limit, actual): (u64, u64), expected: &[&str]) {
        let refusal = Refusal::over(rule, subject, limit, actual);
        assert_eq!(lines(&refusal), expected);
    }

    #[test]
    fn a_lender_sees_its_limit_what_is_lent_to_how_many_and_why_it_stays_so() {
        let lent = LentQuota {
            resource: "cpu".to_owned(),
            limit: 1000,
            lent: 500,
            borrowers: 2,
            own: true,
            ..LentQuota::default()
        };
        let check = |change: fn(&mut LentQuota), reclaims: u32, expected: &str| {
            let mut lent = lent.clone();
            change(&mut lent);
            let lines = lent_lines(&lent, "labs", reclaims, &[]);
            assert_eq!(lines[1], format!("reclaim      {expected}"));
        };
        assert_eq!(
            lent_lines(&lent, "labs", 0, &[])[0],
            "lent         0.5 cores of the limit of 1 core of cpu, to 2 tenants of cohort labs that are above \
             their limits"
        );
        let names = [("b".to_owned(), 300), ("d".to_owned(), 200)];
        let named = &lent_lines(&lent, "labs", 0, &names)[0];
        assert!(
            named.ends_with("above their limits: b (0.3 cores), d (0.2 cores)"),
            "{named}"
        );
        check(
            |it| it.returning = 300,
            1,
            "0.3 cores free when the stopping allocations have ended",
        );
        check(
            |_| {},
            1,
            "1 allocation of the cohort would be stopped for it",
        );
        let never = |it: &mut LentQuota| it.set_reclaim(ReclaimFrom::Never);
        check(
            never,
            0,
            "no: the tenant's setting reclaim is never, so it waits until the borrowers' allocations end",
        );
        check(
            |it| it.own = false,
            0,
            "no: only a request within the tenant's own limit reclaims lent quota",
        );
        let value = lent_value(&lent, &names);
        assert_eq!(value["borrowed_by"], serde_json::json!(["b", "d"]));
        assert_eq!(
            (&value["lent"], &value["borrowers"]),
            (&500.into(), &2.into())
        );
    }

    #[test]
    fn of_several_models_none_is_left() {
        check(
            Rule::QuotaExceeded,
            "a gpu:A100|H100",
            (8000, 9000),
            &[
                "quota        gpu:A100 or gpu:H100 of a would come to 9 GPUs, and it may hold 8 GPUs now",
                "level        tenant a",
                "missing      1 GPU of gpu:A100 or gpu:H100",
                "passes when  the missing amount is free, or the limit of a is raised by that",
            ],
        );
        let any = Refusal::over(Rule::QuotaNeverFits, "a gpu:*", 0, 1000);
        let expected = "it asks for 1 GPU of gpu of any model, of which a may hold 0 GPUs now";
        assert_eq!(short(&any), expected);
    }

    #[test]
    fn a_limit_names_its_level_and_what_is_missing() {
        check(
            Rule::QuotaExceeded,
            "t/team cpu",
            (8000, 9500),
            &[
                "quota        cpu of t/team would come to 9.5 cores, and it may hold 8 cores now",
                "level        team t/team",
                "missing      1.5 cores of cpu",
                "passes when  the missing amount is free, or the limit of t/team is raised by that",
            ],
        );
    }

    #[test]
    fn a_gang_names_how_many_are_missing() {
        check(
            Rule::IncompleteGang,
            "gang",
            (4, 3),
            &[
                "gang         3 of the 4 members of its gang are there",
                "passes when  those that are missing are submitted (1)",
            ],
        );
    }

    #[test]
    fn who_depends_on_others_has_not_asked_yet() {
        check(
            Rule::DependencyPending,
            "dependencies",
            (0, 0),
            &["passes when  that has ended; only then it asks for quota"],
        );
    }

    #[test]
    fn what_is_impossible_now_says_until_when() {
        check(
            Rule::QuotaNeverFits,
            "t cpu",
            (8000, 12_000),
            &[
                "quota        it asks for 12 cores of cpu, of which t may hold 8 cores now",
                "passes when  it asks for 4 cores less, or the limit of t is raised by that",
            ],
        );
        check(
            Rule::BurstOver,
            "t cpu",
            (8000, 12_000),
            &[
                "quota        it asks for 12 cores of cpu, of which t may hold 8 cores now",
                "passes when  the next burst of t may begin, or its limit is raised",
            ],
        );
    }

    #[test]
    fn what_is_not_known_is_said_as_it_stands() {
        check(
            Rule::TenantUnknown,
            "tenant",
            (0, 0),
            &[
                "quota        tenant unknown: tenant: no operator has set this tenant; have the tenant set: apportion tenant NAME",
            ],
        );
    }
}
