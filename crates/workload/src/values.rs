//! Values: half random, half constant bytes, so that a compressor halves them.
//!
//! Random bytes are copied from a pool generated once, so that making a value costs only a copy.

use fastrand::Rng;

/// Size of the random pool. Large compared with a block, so that compression finds no repetition
/// inside one.
const POOL_BYTES: usize = 1 << 20;

/// Generator of values of one size.
#[derive(Clone, Debug)]
pub struct Values {
    pool: Vec<u8>,
    size: usize,
}

impl Values {
    /// Values of `size` bytes; the same seed gives the same values.
    pub fn new(size: usize, seed: u64) -> Self {
        let mut pool = vec![0; POOL_BYTES];
        Rng::with_seed(seed ^ 0x5eed_0f7a_1ce5).fill(&mut pool);
        Self { pool, size }
    }

    /// Size of every value in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Overwrites `value` with a value; `number` selects the start of its random half in the pool.
    pub fn write(&self, number: u64, value: &mut Vec<u8>) {
        self.write_sized(self.size, number, value);
    }

    /// [`Self::write`] for a value of another size.
    pub fn write_sized(&self, size: usize, number: u64, value: &mut Vec<u8>) {
        value.clear();
        let mut random = size / 2;
        let mut at = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44) as usize % POOL_BYTES;
        while random > 0 {
            let take = random.min(POOL_BYTES - at);
            value.extend_from_slice(&self.pool[at..at + take]);
            random -= take;
            at = 0;
        }
        value.resize(size, b'v');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_hold_and_half_is_constant() {
        for size in [0, 1, 2, 99, 100, 4096, 3 << 20] {
            let values = Values::new(size, 1);
            let mut value = Vec::new();
            values.write(u64::MAX, &mut value);
            assert_eq!(value.len(), size);
            assert!(value[size / 2..].iter().all(|&byte| byte == b'v'));
        }
        let values = Values::new(1000, 1);
        let (mut a, mut b) = (Vec::new(), Vec::new());
        values.write(1, &mut a);
        values.write(2, &mut b);
        assert_ne!(a, b);
        values.write(1, &mut b);
        assert_eq!(a, b);
        let distinct: std::collections::HashSet<u8> = a[..500].iter().copied().collect();
        assert!(distinct.len() > 150, "the first half is random");
    }
}
