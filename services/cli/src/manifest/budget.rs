//! `kind: Budget`

use super::{
    fields::{Fields, Wrong, needed},
    kind::{Manifest, account_of, text},
    units::{OfBudget, Whose, Word, Written},
};
use crate::amount;
use schemas::v1;
use serde::{Deserialize, Serialize};
use vocab::{Account, Period};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    account: Whose,
    of: OfBudget,
    amount: Written,
    per: Word<Period>,
}

impl Manifest for Budget {
    type Message = v1::SetBudget;
    const NAMED_BY: &'static [&'static str] = &["account", "of"];

    fn key(fields: &Fields, _: i64) -> Result<String, Wrong> {
        let account: Whose = needed(fields, "account")?;
        let of: OfBudget = needed(fields, "of")?;
        Ok(format!("{} {}", account.0, of.0.name()))
    }

    fn of(set: &v1::SetBudget) -> Result<Self, Wrong> {
        let of = amount::budget_of(&set.of).map_err(Wrong::at("of"))?;
        // What was taken back has no period any more.
        let per = match set.amount {
            Some(_) => Word::of(set.period).map_err(Wrong::at("per"))?,
            None => Word(Period::Month),
        };
        Ok(Self {
            account: Whose(account_of(&set.tenant, &set.team, &set.namespace)?),
            amount: Written(amount::budget_text(&of, set.amount.unwrap_or(0))),
            per,
            of: OfBudget(of),
        })
    }

    fn message(self) -> Result<v1::SetBudget, Wrong> {
        let amount = amount::of_budget(&self.of.0, &self.amount.0);
        let Account {
            tenant,
            team,
            namespace,
        } = self.account.0;
        Ok(v1::SetBudget {
            amount: Some(amount.map_err(Wrong::at("amount"))?),
            period: self.per.number(),
            of: self.of.0.name().to_owned(),
            tenant: tenant.into(),
            team: text(team),
            namespace: text(namespace),
            expected_version: None,
        })
    }

    fn is_absent(set: &v1::SetBudget) -> bool {
        set.amount.is_none()
    }

    fn taken_back(set: &v1::SetBudget) -> Result<v1::SetBudget, &'static str> {
        Ok(v1::SetBudget {
            tenant: set.tenant.clone(),
            team: set.team.clone(),
            namespace: set.namespace.clone(),
            of: set.of.clone(),
            ..v1::SetBudget::default()
        })
    }
}
