//! Searching an array of tags: sixteen bytes a step by SSE2, which every x86-64 processor has.
//!
//! A tag says that an entry may be of a key: a few equal tags are met by chance. [`Matches`] gives the numbers
//! of all entries whose tag is equal, in their order. Tags are one or two bytes wide; of a block tag of 16 bits
//! a width of one takes the low half.
//!
//! The safe twin goes byte by byte: for other processors, and for arrays so close to the end of the payload that
//! sixteen bytes cannot be loaded. A test holds the two together.
#![allow(unsafe_code)]

/// Bytes looked at in one step.
const STEP_BYTES: usize = 16;

/// The numbers of the entries whose tag is equal, ascending.
#[derive(Clone, Debug)]
pub(super) struct Matches<'a> {
    bytes: &'a [u8],
    /// Where the tags of the current step start.
    at: usize,
    /// Where the tags end.
    end: usize,
    /// The number of the first entry of the current step.
    first: usize,
    /// One bit for each byte of the current step: the (low) byte of a tag that is equal and was not given yet.
    found: u32,
    tag: u16,
    wide: bool,
}

impl<'a> Matches<'a> {
    /// Searches `count` tags, `wide` ones of two bytes, that start at `start` of `bytes` and end inside.
    #[inline]
    pub(super) fn new(bytes: &'a [u8], start: usize, count: usize, wide: bool, tag: u16) -> Self {
        let end = (start + (count << usize::from(wide))).min(bytes.len());
        let mut matches = Self { bytes, at: start, end, first: 0, found: 0, tag, wide };
        matches.look();
        matches
    }

    /// Looks at the step that starts at `at`.
    #[inline]
    fn look(&mut self) {
        let Some(left) = self.end.checked_sub(self.at) else {
            return;
        };
        let found = match self.bytes.get(self.at..).and_then(<[u8]>::first_chunk::<STEP_BYTES>) {
            Some(step) => equal(step, self.tag, self.wide),
            None => {
                equal_near_the_end(self.bytes.get(self.at..self.end).unwrap_or_default(), self.tag, self.wide)
            }
        };
        // What lies behind the last tag is no tag.
        self.found = if left < STEP_BYTES { found & ((1 << left) - 1) } else { found };
    }
}

impl Iterator for Matches<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.found == 0 {
            self.at += STEP_BYTES;
            self.first += STEP_BYTES >> usize::from(self.wide);
            if self.at >= self.end {
                // Stays at the end however often it is asked.
                self.at = self.end;
                return None;
            }
            self.look();
        }
        let byte = self.found.trailing_zeros() as usize;
        self.found &= self.found - 1;
        Some(self.first + (byte >> usize::from(self.wide)))
    }
}

/// One bit for each byte of `step` at which an equal tag starts.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn equal(step: &[u8; STEP_BYTES], tag: u16, wide: bool) -> u32 {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
        _mm_set1_epi16,
    };
    // SAFETY: sixteen bytes may be read from `step`, at any alignment; SSE2 is part of x86-64.
    unsafe {
        let tags = _mm_loadu_si128(step.as_ptr().cast::<__m128i>());
        if wide {
            _mm_movemask_epi8(_mm_cmpeq_epi16(tags, _mm_set1_epi16(tag.cast_signed()))) as u32 & 0x5555
        } else {
            _mm_movemask_epi8(_mm_cmpeq_epi8(tags, _mm_set1_epi8((tag as u8).cast_signed()))) as u32
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn equal(step: &[u8; STEP_BYTES], tag: u16, wide: bool) -> u32 {
    equal_one_by_one(step, tag, wide)
}

#[cold]
fn equal_near_the_end(step: &[u8], tag: u16, wide: bool) -> u32 {
    equal_one_by_one(step, tag, wide)
}

/// The safe twin of [`equal`], for at most [`STEP_BYTES`] bytes.
fn equal_one_by_one(step: &[u8], tag: u16, wide: bool) -> u32 {
    let mut found = 0;
    if wide {
        let (tags, _) = step.as_chunks::<2>();
        for (number, bytes) in tags.iter().enumerate() {
            found |= u32::from(u16::from_le_bytes(*bytes) == tag) << (2 * number);
        }
    } else {
        for (number, byte) in step.iter().enumerate() {
            found |= u32::from(*byte == tag as u8) << number;
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
            // Few values, so that tags are equal often; bytes before and behind that are no tags.
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
            let mut matches = Matches::new(&bytes, start, count, wide, tag);
            let found: Vec<usize> = matches.by_ref().collect();
            assert_eq!(found, expected, "seed {seed}: {count} tags at {start}, wide {wide}");
            assert_eq!((matches.next(), matches.next()), (None, None), "seed {seed}");
            if let Some(step) = bytes.first_chunk::<STEP_BYTES>() {
                assert_eq!(equal(step, tag, wide), equal_one_by_one(step, tag, wide), "seed {seed}");
            }
        }
    }
}
