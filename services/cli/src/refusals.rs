//! What was refused of late, and by which rule.

use crate::{
    Failure,
    context::{Context, Whose},
    print::{Output, Page, Sheet, absent, column, moment, named, number, plain, wide},
    refused_nodes,
};
use clap::Args;
use client::{Client, RefusalView, RefusalsQuery};
use vocab::{Rule, subjects::OPERATOR};

#[derive(Args)]
pub struct Refusals {
    #[command(flatten)]
    whose: Whose,
    /// Only those that broke this rule, as quota_exceeded.
    #[arg(long, value_parser = rule)]
    rule: Option<Rule>,
    /// How many at the most.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Go on behind this one, as the last line of a list that was cut says.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        hide_default_value = true
    )]
    after: u64,
    #[command(flatten)]
    output: Output,
}

fn rule(text: &str) -> Result<Rule, String> {
    let wanted = text.to_lowercase();
    let found = Rule::ALL.iter().find(|rule| rule.name() == wanted);
    found.copied().ok_or_else(|| {
        let like = Rule::ALL.iter().map(|rule| rule.name());
        let like: Vec<_> = like.filter(|name| name.contains(&wanted)).collect();
        match like.is_empty() {
            true => "there is no such rule; the bus reference lists them".to_owned(),
            false => format!("there is no such rule; there are {}", like.join(", ")),
        }
    })
}

impl Refusals {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.asker(self.whose.tenant.as_deref()).await?;
        let query = RefusalsQuery {
            after: self.after,
            limit: self.limit,
            rule: self.rule.map_or(0, |rule| rule as i32),
            at_lsn: 0,
        };
        let mut found = client.refusals(&query).await?;
        if self.after == 0 && self.is_of_all(context) {
            self.add_refused_nodes(&client, &mut found.refusals).await?;
        }
        let page = Page::of(sheet(&found.refusals), found.lsn, "nothing was refused");
        let page = page.with("next", Some(found.next).filter(|next| *next > 0));
        let page = match found.next {
            0 => page,
            next => page.text(format!("there may be more: --after {next}")),
        };
        page.print(self.output)
    }
}

impl Refusals {
    /// Returns whether an operator asks for the refusals of all, or of operators.
    fn is_of_all(&self, context: &Context) -> bool {
        let tenant = context.tenant_name(self.whose.tenant.as_deref()).ok();
        tenant.is_none_or(|tenant| tenant.as_str() == OPERATOR)
    }

    /// Adds the refused nodes, the latest refusal first. They are not on the ledger and have no number.
    async fn add_refused_nodes(
        &self,
        client: &Client,
        found: &mut Vec<RefusalView>,
    ) -> Result<(), Failure> {
        let refused = refused_nodes::ask(client, String::new()).await?;
        let of_rule = |one: &RefusalView| {
            let rule = one.broken.as_ref().map_or(0, |broken| broken.rule);
            self.rule.is_none_or(|wanted| wanted as i32 == rule)
        };
        let refused = refused.into_iter().flatten().map(refused_nodes::as_refusal);
        found.extend(refused.filter(of_rule));
        found.sort_by_key(|one| std::cmp::Reverse(one.at_ms));
        Ok(())
    }
}

pub fn sheet(found: &[RefusalView]) -> Sheet {
    let row = |one: &RefusalView| {
        let broken = one.broken.clone().unwrap_or_default();
        let rule = Rule::from_number(broken.rule).map_or("", Rule::name);
        // A rule without a limit has 0 for both.
        let has_limit = (broken.limit, broken.actual) != (0, 0);
        let of_a_limit = |amount: u64| match has_limit {
            true => number(amount),
            false => named(""),
        };
        vec![
            moment(one.at_ms),
            named(&one.tenant),
            named(&one.verb),
            named(rule),
            named(&broken.subject),
            of_a_limit(broken.limit),
            of_a_limit(broken.actual),
            named(&one.operation_id),
            plain(&one.explanation),
            match one.number {
                0 => absent("-"),
                of_ledger => number(of_ledger),
            },
            named(&one.by),
        ]
    };
    let columns = vec![
        column("at_ms", "at"),
        column("tenant", "tenant"),
        wide("verb", "verb"),
        wide("rule", "rule"),
        wide("subject", "subject"),
        wide("limit", "limit"),
        wide("actual", "actual"),
        column("operation_id", "operation").rank(9),
        column("explanation", "why"),
        wide("number", "number"),
        wide("by", "by"),
    ];
    let all = columns.len();
    Sheet::new(columns, all, found.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_found_by_its_name_and_others_are_named() {
        assert_eq!(rule("quota_exceeded"), Ok(Rule::QuotaExceeded));
        assert_eq!(rule("QUOTA_EXCEEDED"), Ok(Rule::QuotaExceeded));
        assert!(rule("quota").unwrap_err().contains("quota_exceeded"));
        assert!(rule("nonsense").unwrap_err().contains("bus reference"));
    }
}
