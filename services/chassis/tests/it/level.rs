//! A service in a cell whose feature level is beyond what its build knows, on the servers of `make test`.

use chassis::BootError;
use std::error::Error;
use vocab::Level;

use crate::common::in_new_cell;

const BEYOND: Level = Level(Level::KNOWN.0 + 1);

fn refusal() -> String {
    let knows = Level::KNOWN;
    format!(
        "the cell is at feature level {BEYOND}, and this build knows levels up to {knows}: replace it by a version that knows \
         level {BEYOND}; a level is never lowered"
    )
}

#[tokio::test]
async fn a_service_that_knows_less_than_the_cell_does_not_start() {
    let (running, _) = in_new_cell(BEYOND).await;
    let refused = running.context.ledger().await.map(|_| ());
    let refused = refused.expect_err("it is too old");
    assert_eq!(refused.to_string(), refusal());
    running.shutdown.trigger();
}

#[tokio::test]
async fn a_service_ends_when_the_cell_is_raised_beyond_it() {
    let (running, operator) = in_new_cell(Level::KNOWN).await;
    running.context.ledger().await.expect("it knows the level");
    operator.raise(BEYOND).await.expect("the operator may");
    match running.end.await.expect("it does not panic") {
        Err(BootError::Service { source, .. }) => {
            let source: &dyn Error = &*source;
            assert_eq!(source.to_string(), refusal());
        }
        other => panic!("{other:?}"),
    }
}
