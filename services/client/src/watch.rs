//! A job set followed to its end.

use crate::{Allocations, Client, FeedError, Follower, PAGE_MAX, Position};
use schemas::v1::TenantEvent;

/// Follows a job set's feed until all of it has ended.
pub struct JobSetWatch {
    follower: Follower,
    allocations: Allocations,
}

impl Client {
    /// Follows a job set from a position on; `Position::default()` is its beginning. To know what has not ended, the feed
    /// is read from its beginning also then; what went before the position is not handed out again.
    pub async fn watch_job_set(
        &self,
        job_set: impl Into<String>,
        after: Position,
    ) -> Result<JobSetWatch, FeedError> {
        let job_set = job_set.into();
        let mut allocations = Allocations::default();
        let mut read = Position::default();
        while read < after {
            let page = self.page(read, Some(&job_set), PAGE_MAX, 0).await?;
            for event in &page.events {
                if Position::from(event) <= after {
                    allocations.take(event);
                }
            }
            match page.events.last() {
                Some(last) if page.more => read = Position::from(last),
                _ => break,
            }
        }
        Ok(JobSetWatch {
            follower: self.follow(after, Some(job_set)).await?,
            allocations,
        })
    }
}

impl JobSetWatch {
    /// The next events, at least one; none when all that was ever asked for in the job set has ended. Waits for the first
    /// allocation as long as there is none. After an error the same page may be asked for again.
    pub async fn next_page(&mut self) -> Result<Option<Vec<TenantEvent>>, FeedError> {
        if self.allocations.all_over() {
            // What was asked for meanwhile is followed too.
            let rest = self.follower.now().await?;
            return Ok(self.taken(rest));
        }
        let page = self.follower.next_page().await?;
        Ok(self.taken(page))
    }

    fn taken(&mut self, page: Vec<TenantEvent>) -> Option<Vec<TenantEvent>> {
        for event in &page {
            self.allocations.take(event);
        }
        (!page.is_empty()).then_some(page)
    }

    /// Where everything stands, as far as it was read.
    pub fn allocations(&self) -> &Allocations {
        &self.allocations
    }

    /// The position of the last event returned: go on from here in another process.
    pub fn position(&self) -> Position {
        self.follower.position()
    }
}
