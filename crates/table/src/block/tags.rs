//! Searching an array of tags: 64 bytes a step with SSE2, which every x86-64 processor has.
//!
//! An equal tag means that the entry may have the key; some tags are equal by chance.
//! [`Tags::find`] finds the entries with an equal tag in order. Tags are one or two bytes wide; a
//! tag of one byte is the low byte of the 16-bit block tag.
//!
//! The safe fallback compares byte by byte. It serves other processors, and steps that would read
//! beyond the end of the payload. A test compares the two.
#![allow(unsafe_code)]

use shamba_key::chunks;

/// Bytes per step: enough for the tags of most blocks.
const STEP_BYTES: usize = 64;

/// Place of a block's tags.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tags<'a> {
    /// The payload; the search stops at its end, whatever `count` says.
    pub(super) bytes: &'a [u8],
    pub(super) start: usize,
    pub(super) count: usize,
    /// Whether a tag is two bytes.
    pub(super) wide: bool,
}

impl Tags<'_> {
    /// The number of the first entry, from `from` on, whose tag equals `tag`.
    #[inline(always)]
    pub(super) fn find(&self, tag: u16, from: usize) -> Option<usize> {
        let shift = u32::from(self.wide);
        let end = (self.start + (self.count << shift)).min(self.bytes.len());
        debug_assert!(from <= self.count, "a search from tag {from} of {}", self.count);
        let mut at = self.start + (from << shift);
        while at < end {
            let mut found = match self.bytes.get(at..).and_then(<[u8]>::first_chunk::<STEP_BYTES>) {
                Some(step) => equal(step, tag, self.wide),
                None => equal_near_the_end(self.bytes.get(at..).unwrap_or_default(), tag, self.wide),
            };
            if end - at < STEP_BYTES {
                // Ignore matches behind the last tag.
                found &= (1 << (end - at)) - 1;
            }
            if found != 0 {
                return Some((at - self.start + found.trailing_zeros() as usize) >> shift);
            }
            at += STEP_BYTES;
        }
        None
    }
}

/// One bit for each byte of `step` at which an equal tag starts.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn equal(step: &[u8; STEP_BYTES], tag: u16, wide: bool) -> u64 {
    equal_sse2(step, tag, wide)
}

#[cfg(target_arch = "x86_64")]
// Before Rust 1.87 these intrinsics are unsafe functions.
#[allow(unused_unsafe)]
#[inline(always)]
fn equal_sse2(step: &[u8; STEP_BYTES], tag: u16, wide: bool) -> u64 {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
        _mm_set1_epi16,
    };
    let (mut found, quarters) = (0, chunks::<16>(step).0);
    // SAFETY: sixteen bytes may be read from a quarter, at any alignment.
    let load = |quarter: &[u8; 16]| unsafe { _mm_loadu_si128(quarter.as_ptr().cast::<__m128i>()) };
    if wide {
        // SAFETY: SSE2 is part of x86-64.
        let tag = unsafe { _mm_set1_epi16(tag as i16) };
        for (number, quarter) in quarters.enumerate() {
            // SAFETY: as above.
            let bits = unsafe { _mm_movemask_epi8(_mm_cmpeq_epi16(load(quarter), tag)) };
            found |= u64::from(bits as u32) << (16 * number);
        }
        found & 0x5555_5555_5555_5555
    } else {
        // SAFETY: as above.
        let tag = unsafe { _mm_set1_epi8(tag as i8) };
        for (number, quarter) in quarters.enumerate() {
            // SAFETY: as above.
            let bits = unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(load(quarter), tag)) };
            found |= u64::from(bits as u32) << (16 * number);
        }
        found
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn equal(step: &[u8; STEP_BYTES], tag: u16, wide: bool) -> u64 {
    equal_one_by_one(step, tag, wide)
}

#[cold]
fn equal_near_the_end(step: &[u8], tag: u16, wide: bool) -> u64 {
    equal_one_by_one(step, tag, wide)
}

/// Safe fallback of [`equal`], for at most [`STEP_BYTES`] bytes.
fn equal_one_by_one(step: &[u8], tag: u16, wide: bool) -> u64 {
    debug_assert!(step.len() <= STEP_BYTES, "{} bytes have no bits in the answer", step.len());
    let mut found = 0;
    if wide {
        let (tags, _) = chunks::<2>(step);
        for (number, bytes) in tags.enumerate() {
            found |= u64::from(u16::from_le_bytes(*bytes) == tag) << (2 * number);
        }
    } else {
        for (number, byte) in step.iter().enumerate() {
            found |= u64::from(*byte == tag as u8) << number;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use shamba_env::{Rng, SeededRng};

    use super::*;

    #[test]
    fn both_ways_find_what_a_plain_walk_finds() {
        for seed in 0..4_000u64 {
            let rng = SeededRng::new(seed);
            let below = |end: u64| (rng.next_u64() % end) as usize;
            // Few distinct values, so that tags are often equal; the bytes before and behind are
            // not tags.
            let (count, start, behind) = (below(140), below(20), below(30));
            let wide = below(2) == 1;
            let bytes: Vec<u8> =
                (0..start + (count << usize::from(wide)) + behind).map(|_| below(6) as u8).collect();
            let tag = (below(6) | below(6) << 8) as u16;
            let tag_of = |number: usize| {
                let at = start + (number << usize::from(wide));
                if wide { u16::from_le_bytes([bytes[at], bytes[at + 1]]) } else { u16::from(bytes[at]) }
            };
            let wanted = if wide { tag } else { tag & 0xff };
            let expected: Vec<usize> = (0..count).filter(|number| tag_of(*number) == wanted).collect();
            let tags = Tags { bytes: &bytes, start, count, wide };
            let mut found = Vec::new();
            while let Some(number) = tags.find(tag, found.last().map_or(0, |last| last + 1)) {
                found.push(number);
            }
            assert_eq!(found, expected, "seed {seed}: {count} tags at {start}, wide {wide}");
            if let Some(step) = bytes.first_chunk::<STEP_BYTES>() {
                assert_eq!(equal(step, tag, wide), equal_one_by_one(step, tag, wide), "seed {seed}");
            }
        }
    }
}
