//! Numbers that are given out again: what a guest was given is taken back, so that the next are given out as if it had never
//! been there.

/// As it was before some more were given out.
#[derive(Debug)]
pub(super) struct Before<N> {
    slots: usize,
    /// Of those that are free, so many are not given out meanwhile.
    kept: usize,
    next: Vec<N>,
}

impl<N: Copy> Before<N> {
    /// With `free` given out from its end; `most` are given out meanwhile, at the most.
    pub fn of<S>(slots: &[S], free: &[N], most: usize) -> Self {
        let kept = free.len().saturating_sub(most);
        Self {
            slots: slots.len(),
            kept,
            next: free[kept..].to_vec(),
        }
    }

    /// All of them have come back.
    pub fn restore<S>(self, slots: &mut Vec<S>, free: &mut Vec<N>) {
        slots.truncate(self.slots);
        free.truncate(self.kept);
        free.extend(self.next);
    }
}
