//! A new resource, available from now on.

use super::{Bounds, Space, Unfit};
use vocab::{Refusal, ResourceAnswer, Rule, Token};

pub fn decide(space: &Space, name: &Token, bounds: &Bounds) -> Result<ResourceAnswer, Refusal> {
    if space.resources.find(name).is_some() {
        return Err(Refusal::new(Rule::AlreadyExists, "resource"));
    }
    let (limit, count) = (bounds.resources_max, space.resources.len() as u64);
    if count >= limit {
        let refusal = Refusal::over(Rule::ResourceTableFull, "resource", limit, count + 1);
        return Err(refusal);
    }
    Ok(ResourceAnswer::Created)
}

pub fn apply(space: &mut Space, name: &Token) -> Result<(), Unfit> {
    let added = space.resources.add(name, 0);
    added.map(|_| ()).ok_or("the resource exists")
}
