//! What quota says: at which level, of what, how much is missing, and what would let it pass.

use vocab::{ModelChoice, QuotaResource, Refusal, Rule};

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
            format!("{what} of {account} would come to {actual} of {limit}")
        }
        (_, None) => refusal.explanation(),
    }
}

/// What it waits for, and what would let it pass.
pub fn lines(refusal: &Refusal) -> Vec<String> {
    let mut out = vec![format!("quota        {}", short(refusal))];
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
                "passes when  so much of what {} holds is given back, or its limit is raised by that",
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
    fn of_several_models_none_is_left() {
        check(
            Rule::QuotaExceeded,
            "a gpu:A100|H100",
            (8000, 9000),
            &[
                "quota        gpu:A100 or gpu:H100 of a would come to 9 GPUs of 8 GPUs",
                "level        tenant a",
                "missing      1 GPU of gpu:A100 or gpu:H100",
                "passes when  so much of what a holds is given back, or its limit is raised by that",
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
                "quota        cpu of t/team would come to 9.5 cores of 8 cores",
                "level        team t/team",
                "missing      1.5 cores of cpu",
                "passes when  so much of what t/team holds is given back, or its limit is raised by that",
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
                "quota        3 of the 4 members of its gang are there",
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
            &[
                "quota        what it depends on has not ended",
                "passes when  that has ended; only then it asks for quota",
            ],
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
