//! Rng that can be had again: everything random in a scenario comes from its seed.

/// A small generator (SplitMix64): good enough to choose, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The rng of this seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// Another rng, for one part of a whole: what one part draws does not change another's.
    pub fn part(&self, part: u64) -> Rng {
        let mut other = Rng(self.0 ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93));
        Rng(other.next())
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Whether something with so many chances in a hundred happens.
    pub fn percent(&mut self, chances: usize) -> bool {
        self.below(100) < chances
    }

    /// One of these.
    pub fn one<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        if of.is_empty() { None } else { of.get(self.below(of.len())) }
    }

    /// One of these by weight.
    pub fn weighed<T: Copy>(&mut self, of: &[(usize, T)]) -> T {
        let mut at = self.below(of.iter().map(|(weight, _)| weight).sum());
        for &(weight, item) in of {
            if at < weight {
                return item;
            }
            at -= weight;
        }
        of[0].1
    }
}
