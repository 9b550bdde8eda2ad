//! The probe of one line: tests all bits of a key at once, with the widest vector instructions of
//! the processor.
//!
//! There are three implementations with the same answer: AVX-512 (with VL: 256-bit registers, no
//! slower clock), AVX2, and a scalar loop. The scalar loop serves other processors, and tests
//! compare the others with it. The choice is made once, when a filter is made: [`Prober::best`].
//!
//! Invariant: a [`Prober`] exists only for an implementation that the running processor supports.
//! The memory that is probed is in [`lines`]: aligned, so that a load never straddles two cache
//! lines.
//!
//! Not here: the line of a key ([`crate::place`]); the meaning of the bits
//! (`docs/formats/filter.md`).
#![allow(unsafe_code)]

pub(crate) mod lines;
#[cfg(target_arch = "x86_64")]
mod x86;

use self::lines::Line;
use crate::LINE_BITS;
use crate::limits::MAX_PROBES;

/// Lane `i` is the 32 bits of the golden ratio to the power of `i + 1`. It is odd, and the top bits
/// of the products of one number by different lanes are nearly independent.
pub(crate) static PROBE_LANES: [u32; MAX_PROBES as usize] = {
    let mut lanes = [0x9e37_79b9u32; MAX_PROBES as usize];
    let mut i = 1;
    while i < lanes.len() {
        lanes[i] = lanes[i - 1].wrapping_mul(0x9e37_79b9);
        i += 1;
    }
    lanes
};

/// Shift that reduces 32 bits to the number of a bit of the line.
pub(crate) const BIT_SHIFT: u32 = 32 - LINE_BITS.ilog2();

/// An implementation of the test of a key's bits in its line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Prober(Way);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Prober {
    /// The scalar loop.
    pub(crate) const SCALAR: Self = Self(Way::Scalar);

    /// The fastest implementation that this processor supports.
    pub(crate) fn best() -> Self {
        Self::available().last().unwrap_or(Self::SCALAR)
    }

    /// Every implementation that this processor supports, slowest first.
    pub(crate) fn available() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let vectors = {
            let avx2 = std::arch::is_x86_feature_detected!("avx2");
            let avx512 = x86::HAS_AVX512
                && avx2
                && std::arch::is_x86_feature_detected!("avx512f")
                && std::arch::is_x86_feature_detected!("avx512vl");
            [avx2.then_some(Self(Way::Avx2)), avx512.then_some(Self(Way::Avx512))]
        };
        #[cfg(not(target_arch = "x86_64"))]
        let vectors = [None];
        std::iter::once(Self::SCALAR).chain(vectors.into_iter().flatten())
    }

    /// Whether the first `probes` bits of a key are all set in `line`; `probe` is the number that
    /// they are derived from.
    #[inline(always)]
    pub(crate) fn all_set(self, line: &Line, probe: u32, probes: u8) -> bool {
        match self.0 {
            Way::Scalar => all_set(line, probe, probes),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: only `available` makes this variant, after it found avx2 on this processor.
            Way::Avx2 => unsafe { x86::all_set_avx2(line, probe, probes) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: only `available` makes this variant, after it found avx2, avx512f and
            // avx512vl.
            Way::Avx512 => unsafe { x86::all_set_avx512(line, probe, probes) },
        }
    }
}

/// The bits of the line that a key sets, each below [`LINE_BITS`]; two may be the same.
#[inline]
pub(crate) fn bits(probe: u32, probes: u8) -> impl Iterator<Item = usize> {
    PROBE_LANES
        .iter()
        .take(usize::from(probes))
        .map(move |lane| (probe.wrapping_mul(*lane) >> BIT_SHIFT) as usize)
}

/// The scalar loop. It does not exit on the first zero: a mispredicted branch costs more than the
/// probes.
fn all_set(line: &Line, probe: u32, probes: u8) -> bool {
    let mut all = 1;
    for bit in bits(probe, probes) {
        all &= line.0[bit >> 3] >> (bit & 7);
    }
    all & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LINE_BYTES;

    /// SplitMix64, so that a failure can be reproduced.
    struct Numbers(u64);

    impl Numbers {
        fn draw(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut x = self.0;
            x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^ (x >> 31)
        }
    }

    /// A line in which each bit is set with probability `share` / 16.
    fn line(numbers: &mut Numbers, share: u64) -> Line {
        let mut line = Line([0; LINE_BYTES]);
        for bit in 0..LINE_BITS {
            line.0[bit >> 3] |= u8::from(numbers.draw() % 16 < share) << (bit & 7);
        }
        line
    }

    #[test]
    fn all_ways_agree_on_random_lines() {
        let ways: Vec<Prober> = Prober::available().collect();
        println!("{ways:?}");
        assert_eq!(ways[0], Prober::SCALAR);
        let mut numbers = Numbers(7);
        let (mut yes, mut no) = (0, 0);
        for round in 0..2_000 {
            // Dense enough that all sixteen bits of some keys are set.
            let line = line(&mut numbers, [8, 13, 15, 16][round % 4]);
            for _ in 0..40 {
                let probe = numbers.draw() as u32;
                for probes in 0..=MAX_PROBES {
                    let expected = bits(probe, probes).all(|bit| line.0[bit >> 3] >> (bit & 7) & 1 == 1);
                    for way in &ways {
                        let found = way.all_set(&line, probe, probes);
                        assert_eq!(found, expected, "{way:?}, {probe:#x}, {probes} probes, round {round}");
                    }
                    *if expected { &mut yes } else { &mut no } += 1;
                }
            }
        }
        assert!(yes > 100_000 && no > 100_000, "{yes} {no}");
    }

    #[test]
    fn every_bit_of_a_line_is_seen_by_every_way() {
        let mut numbers = Numbers(11);
        let mut seen = [false; LINE_BITS];
        while !seen.iter().all(|seen| *seen) {
            let probe = numbers.draw() as u32;
            for probes in [1, 7, 8, 9, 16] {
                let mut line = Line([0; LINE_BYTES]);
                for bit in bits(probe, probes) {
                    line.0[bit >> 3] |= 1 << (bit & 7);
                }
                for way in Prober::available() {
                    assert!(way.all_set(&line, probe, probes), "{way:?} {probe:#x}");
                }
                for bit in bits(probe, probes) {
                    seen[bit] = true;
                    let mut without = line.clone();
                    without.0[bit >> 3] &= !(1 << (bit & 7));
                    for way in Prober::available() {
                        assert!(!way.all_set(&without, probe, probes), "{way:?} {probe:#x} without {bit}");
                    }
                }
            }
        }
    }
}
