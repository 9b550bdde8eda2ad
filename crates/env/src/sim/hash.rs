//! A fast 64-bit hash of images and traces, which distinguishes different ones.
//!
//! It processes eight bytes per step by a folded multiplication. It suffices to count distinct
//! images, but not against an adversary.

/// An odd constant with well distributed bits (the fraction of the golden ratio).
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// A running hash.
#[derive(Clone, Copy, Debug)]
pub(super) struct ImageHash(u64);

impl ImageHash {
    pub(super) fn new() -> Self {
        Self(0x2545_F491_4F6C_DD1D)
    }

    pub(super) fn number(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * u128::from(MULTIPLIER);
        // The halves of the product, folded: each bit of the input reaches most of the output.
        self.0 = ((product >> 64) as u64 ^ product as u64).wrapping_add(MULTIPLIER).rotate_left(23);
    }

    pub(super) fn numbers(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|number| self.number(*number));
    }

    /// Hashes the bytes and their length, so that adjacent values stay distinct.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        let words = bytes.chunks_exact(8);
        let rest = words.remainder();
        for word in words.filter_map(|word| word.first_chunk()) {
            self.number(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.number(u64::from_le_bytes(last));
    }

    pub(super) fn finish(mut self) -> u64 {
        self.number(0);
        self.number(1);
        self.0
    }
}
