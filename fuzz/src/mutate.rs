//! Makes inputs out of others: bits and bytes, numbers at their limits, words of the format, blocks moved, two inputs
//! spliced. The same seed makes the same input.

/// Numbers at which arithmetic goes wrong, as text.
const NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "1",
    "255",
    "65536",
    "4294967295",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "0.1",
];

/// The longest input that is made.
const LONGEST: usize = 16 * 1024;

/// A source of inputs.
pub struct Mutator {
    state: u64,
}

impl Mutator {
    /// The one of this seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        if limit == 0 { 0 } else { (self.next() % limit as u64) as usize }
    }

    /// One input: a kept one, changed a few times.
    pub fn make(&mut self, corpus: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
        let mut input = match corpus.len() {
            0 => Vec::new(),
            count => corpus[self.below(count)].clone(),
        };
        // Few changes keep it close to what is valid, where most of the code is.
        let changes = 1 + self.below(4) * self.below(4);
        for _ in 0..changes {
            self.change(&mut input, corpus, words);
        }
        input.truncate(LONGEST);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>], words: &[&str]) {
        let at = self.below(input.len() + 1);
        let (from, to) = self.range(input.len());
        match self.below(12) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 if at < input.len() => input[at] = self.next() as u8,
            2 => input.insert(at, self.next() as u8),
            3 => drop(input.drain(from..to)),
            4 => {
                let block = input[from..to].to_vec();
                input.splice(at..at, block);
            }
            5 => {
                let word = NUMBERS[self.below(NUMBERS.len())];
                input.splice(at..at, word.bytes());
            }
            6 => self.replace_number(input),
            7 if !words.is_empty() => {
                let word = words[self.below(words.len())];
                input.splice(at..at, word.bytes());
            }
            8 if !words.is_empty() => {
                let word = words[self.below(words.len())];
                input.splice(from..to, word.bytes());
            }
            9 if !corpus.is_empty() => {
                let other = &corpus[self.below(corpus.len())];
                let (other_from, other_to) = self.range(other.len());
                input.splice(from..to, other[other_from..other_to].iter().copied());
            }
            10 => input.truncate(at),
            // A binary number at its limit.
            _ => {
                let value = [0, 1, u64::MAX, u64::MAX - 1, 1 << 63, u64::from(u32::MAX), 24][self.below(7)];
                let width = [1, 2, 4, 8][self.below(4)];
                for (offset, byte) in value.to_le_bytes().into_iter().take(width).enumerate() {
                    if let Some(place) = input.get_mut(at + offset) {
                        *place = byte;
                    }
                }
            }
        }
    }

    /// Puts another number in the place of one that is there.
    fn replace_number(&mut self, input: &mut Vec<u8>) {
        let digits: Vec<usize> = (0..input.len()).filter(|&at| input[at].is_ascii_digit()).collect();
        if digits.is_empty() {
            return;
        }
        let mut from = digits[self.below(digits.len())];
        let mut to = from + 1;
        while from > 0 && input[from - 1].is_ascii_digit() {
            from -= 1;
        }
        while to < input.len() && input[to].is_ascii_digit() {
            to += 1;
        }
        input.splice(from..to, NUMBERS[self.below(NUMBERS.len())].bytes());
    }

    /// A stretch of something of this length; mostly a short one.
    fn range(&mut self, length: usize) -> (usize, usize) {
        let from = self.below(length + 1);
        let longest = if self.below(4) == 0 { length - from } else { (length - from).min(16) };
        (from, from + self.below(longest + 1))
    }
}
