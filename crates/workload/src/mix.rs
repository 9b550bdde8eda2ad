//! Bit mixing: bijections and pseudo-random functions shared by the generators.
//!
//! Not here: the engine's digest. Generators must not use it, because their keys would then be
//! unusually favourable to it.

/// A full-avalanche bijection on 64 bits (David Stafford's variant 1 of the MurmurHash3 finaliser).
#[inline]
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 31)).wrapping_mul(0x7fb5_d329_728e_a185);
    x = (x ^ (x >> 27)).wrapping_mul(0x81da_def4_bc2d_d44d);
    x ^ (x >> 33)
}

/// A pseudo-random function of two numbers.
#[inline]
pub fn mix2(x: u64, y: u64) -> u64 {
    mix(mix(x).wrapping_add(y.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// A bijection on numbers of `bits` bits (1 to 64); larger inputs are truncated to that many bits
/// first.
#[inline]
pub(crate) fn mix_bits(x: u64, bits: u32) -> u64 {
    debug_assert!((1..=64).contains(&bits));
    let mask = u64::MAX >> (64 - bits);
    let half = bits.div_ceil(2);
    let mut x = x & mask;
    // Odd multiplications modulo 2^bits and xor-shifts are each invertible, so their composition
    // is.
    for factor in [0x7fb5_d329_728e_a185_u64, 0x81da_def4_bc2d_d44d, 0x9e37_79b9_7f4a_7c15] {
        x = x.wrapping_mul(factor) & mask;
        x ^= x >> half;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mix_bits_is_a_bijection() {
        for bits in 1..=14 {
            let mut seen = vec![false; 1 << bits];
            for x in 0..1u64 << bits {
                let slot = usize::try_from(mix_bits(x, bits)).expect("fits");
                assert!(!std::mem::replace(&mut seen[slot], true), "{bits} bits: {x} collides");
            }
        }
    }

    #[test]
    fn mixing_one_bit_changes_about_half() {
        for (name, f) in [("mix", mix as fn(u64) -> u64), ("mix2", |x| mix2(x, 7))] {
            let flips: u32 = (0..64).map(|bit| (f(12345) ^ f(12345 ^ (1 << bit))).count_ones()).sum();
            let mean = f64::from(flips) / 64.0;
            assert!((26.0..38.0).contains(&mean), "{name}: {mean} bits on average");
        }
    }
}
