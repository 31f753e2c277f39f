//! Answers of several pages.

/// Rows of a page, its `next`, and its ledger position.
pub type OnePage<T> = (Vec<T>, String, u64);

/// Returns the rows of all pages, and the ledger position that all of them include. Asks for each page by the `next` of the page
/// before it, at the position of that page or later.
pub async fn pages<T, E>(
    mut ask: impl AsyncFnMut(String, u64) -> Result<OnePage<T>, E>,
) -> Result<(Vec<T>, u64), E> {
    let (mut rows, mut as_of) = (Vec::new(), u64::MAX);
    let (mut after, mut at_lsn) = (String::new(), 0);
    loop {
        let (page, next, lsn) = ask(after, at_lsn).await?;
        rows.extend(page);
        as_of = as_of.min(lsn);
        if next.is_empty() {
            return Ok((rows, as_of));
        }
        (after, at_lsn) = (next, lsn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};
    use std::convert::Infallible;

    proptest! {
        /// Each page comes once and in order, and no page is older than the position that is reported.
        #[test]
        fn a_position_is_that_of_the_oldest_page(
            all in vec((vec(any::<u8>(), 0..4), 0..9u64), 1..9),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let mut asked_at = Vec::new();
            let answer = pages(async |after: String, at_lsn| {
                let no: usize = after.parse().unwrap_or(0);
                asked_at.push(at_lsn);
                let next = if no + 1 < all.len() { (no + 1).to_string() } else { String::new() };
                Ok::<_, Infallible>((all[no].0.clone(), next, all[no].1))
            });
            let Ok((rows, as_of)) = runtime.block_on(answer);
            let expected: Vec<u8> = all.iter().flat_map(|(rows, _)| rows.clone()).collect();
            prop_assert_eq!(rows, expected);
            prop_assert_eq!(as_of, all.iter().map(|(_, lsn)| *lsn).min().unwrap());
            let before: Vec<u64> = all.iter().map(|(_, lsn)| *lsn).collect();
            prop_assert_eq!(&asked_at[1..], &before[..before.len() - 1]);
        }
    }
}
