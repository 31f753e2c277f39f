//! Pages of what is looked for among rows in an order.

/// Rows that are looked at for one page: whatever is asked for, a page costs no more than that.
const LOOKED_AT: usize = 2000;

/// What was found, and the key behind which the next page begins; none: there is nothing more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed<T, K> {
    pub found: Vec<T>,
    pub next: Option<K>,
}

/// How many rows are fetched for a page of `limit`: one more than it has where all of them fit, to see whether there is one.
pub fn most(picky: bool, limit: usize) -> usize {
    match picky {
        true => LOOKED_AT.max(limit),
        false => limit.saturating_add(1),
    }
}

/// The first `limit` of `rows` that fit, where `most` of them were fetched if there were so many.
pub fn page<T, K>(
    rows: Vec<T>,
    (limit, most): (usize, usize),
    fits: impl Fn(&T) -> bool,
    key: impl Fn(&T) -> K,
) -> Listed<T, K> {
    let all = rows.len();
    let (mut found, mut last) = (Vec::new(), None);
    for (at, row) in (1..).zip(rows) {
        if at == all && all >= most {
            last = Some(key(&row));
        }
        if !fits(&row) {
            continue;
        }
        if found.len() + 1 == limit && at < all {
            last = Some(key(&row));
        }
        found.push(row);
        if found.len() == limit {
            break;
        }
    }
    Listed { found, next: last }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pages_have_each_that_fits_once_and_in_order(
            rows in prop::collection::btree_set(0u32..500, 0..60),
            limit in 1usize..8,
            one_in in 1u32..5,
            looked_at in 8usize..20,
        ) {
            let fits = |row: &u32| row.is_multiple_of(one_in);
            let most = match one_in {
                1 => most(false, limit),
                _ => looked_at,
            };
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let behind = rows.iter().filter(|row| after.is_none_or(|after| **row > after));
                let fetched: Vec<u32> = behind.copied().take(most).collect();
                let page = page(fetched, (limit, most), fits, |row| *row);
                prop_assert!(page.found.len() <= limit);
                prop_assert!(page.next.is_none() || page.next > after);
                found.extend(page.found);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            let expected: Vec<u32> = rows.into_iter().filter(fits).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
