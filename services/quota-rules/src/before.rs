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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_guest_are_given_out_again_in_the_same_order() {
        let slots = vec!['a', 'b', 'c', 'd'];
        for (free, most) in [
            (vec![0, 2, 3], 0),
            (vec![0, 2, 3], 1),
            (vec![0, 2, 3], 9),
            (vec![], 2),
        ] {
            let (mut given, mut left) = (slots.clone(), free.clone());
            let before = Before::of(&given, &left, most);
            for _ in 0..most {
                if left.pop().is_none() {
                    given.push('x');
                }
            }
            // They come back in another order, with those that are new.
            left.extend((4..given.len()).chain(free[left.len()..].iter().copied().rev()));
            before.restore(&mut given, &mut left);
            assert_eq!((given, left), (slots.clone(), free.clone()), "{most}");
        }
    }
}
