//! Placement of uncompressed data blocks.
//!
//! ```text
//! page                       page                       page
//! |[ block ............. ]000|[ block ..... ]0[ block ..... ]0[ block ..
//!        few zeros to the page: on it       many: packed, on the next line
//! ```
//!
//! A block starts on the next page if the padding for that is at most an eighth of a page, so that
//! one page is read for it. Otherwise it is *packed*: it starts on the next line of 64 bytes. A
//! packed block can span two pages, and so can all blocks after it: one long entry, or a chunk of a
//! large value, is enough to shift them. A block that fills a page therefore *returns* to a page
//! boundary, as long as the padding for such returns stays a small part of the file. Older writers
//! started every block on a page; their files stay valid.
//!
//! Invariants: a block starts at or after the end of the previous one, on a multiple of
//! [`LINE_BYTES`], either on the next page or at the packed place. Files of older writers satisfy
//! this, too.
//!
//! Not here: compressed blocks, which start directly at the previous end.

use super::PAGE_BYTES;

/// Alignment of every uncompressed block, by either rule: a cache line. A search for blocks tries
/// only these places.
pub(crate) const LINE_BYTES: u64 = 64;
/// Divisor: at most this fraction of a page is padding for a block that starts on a page.
const ZEROS_SHARE: u64 = 8;
const _: () = assert!(PAGE_BYTES as u64 % LINE_BYTES == 0, "a page starts on a line");

/// Divisor: the padding for returns to a page is at most this fraction of the file so far.
const BACK_SHARE: u64 = 32;

/// Places the next uncompressed block; counts the padding for blocks that returned to a page.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Placement {
    /// Padding before blocks that returned to a page.
    back_bytes: u64,
    /// Another rule: tests write files of older writers, and invalid ones.
    #[cfg(test)]
    pub rule: Option<fn(u64, usize) -> u64>,
}

impl Placement {
    /// Offset of a block of at most `block_bytes`, if the previous end is `end`. `frame_bytes`
    /// returns the block's length; it is called only if the length matters.
    pub fn next(&mut self, end: u64, block_bytes: usize, frame_bytes: impl FnOnce() -> u64) -> u64 {
        #[cfg(test)]
        if let Some(rule) = self.rule {
            return rule(end, block_bytes);
        }
        let (packed, page) = (start_after(end, block_bytes), page_after(end, block_bytes));
        debug_assert!(
            end <= packed && end <= page,
            "the next block starts at {packed} or {page}, before {end}"
        );
        let back_bytes = self.back_bytes.saturating_add(page - end);
        // Before the first block the end is on a page.
        let is_affordable = back_bytes.saturating_mul(BACK_SHARE) <= end;
        if packed == page || !is_affordable || !fills_a_page(frame_bytes(), block_bytes) {
            return packed;
        }
        self.back_bytes = back_bytes;
        page
    }
}

/// Whether consecutive blocks of this length take a page each.
fn fills_a_page(frame_bytes: u64, block_bytes: usize) -> bool {
    let page_bytes = page_bytes(block_bytes);
    (page_bytes - page_bytes / ZEROS_SHARE..=page_bytes).contains(&frame_bytes)
}

/// Offset of the next uncompressed block in a table with blocks of `block_bytes`, if the previous
/// end is `end` and the block does not return to a page.
pub(crate) fn start_after(end: u64, block_bytes: usize) -> u64 {
    let page_bytes = page_bytes(block_bytes);
    let zeros = zeros_to(end, page_bytes);
    // Offsets lie in files, far below 2^63.
    end.saturating_add(if zeros <= page_bytes / ZEROS_SHARE { zeros } else { zeros_to(end, LINE_BYTES) })
}

/// Whether a writer of this or an older build may have started an uncompressed block at `offset`,
/// if the previous end is `end`.
pub(crate) fn is_start(end: u64, block_bytes: usize, offset: u64) -> bool {
    offset == start_after(end, block_bytes) || offset == page_after(end, block_bytes)
}

/// Offset of the block by the rule of older writers: always on a page.
pub(crate) fn page_after(end: u64, block_bytes: usize) -> u64 {
    end.saturating_add(zeros_to(end, page_bytes(block_bytes)))
}

/// Length of a page; less for blocks so small that several share one.
fn page_bytes(block_bytes: usize) -> u64 {
    // A power of two, and not below a line: the block size is at least a line.
    block_bytes.min(PAGE_BYTES).next_power_of_two().max(LINE_BYTES as usize) as u64
}

/// Number of zeros from `end` to the next multiple of a power of two.
fn zeros_to(end: u64, multiple: u64) -> u64 {
    end.wrapping_neg() & (multiple - 1)
}

const _: () = assert!(PAGE_BYTES.is_power_of_two() && LINE_BYTES.is_power_of_two());

#[cfg(test)]
mod tests {
    use shamba_env::{Rng, SeededRng};

    use super::*;
    use crate::format::BLOCK_BYTES_ALLOWED;

    #[test]
    fn few_zeros_are_left_for_a_page_and_else_it_is_a_line() {
        for (block_bytes, end, start) in [
            (4_096, 4_096, 4_096),
            (4_096, 8_192 - 512, 8_192),
            (4_096, 8_192 - 513, 8_192 - 512),
            (4_096, 4_097, 4_160),
            (4_096, 4_160, 4_160),
            (4_096, 8_191, 8_192),
            (65_536, 65_536 + 3_000, 65_536 + 3_008),
            (65_536, 69_632 - 100, 69_632),
            (1_000, 4_500, 4_544),
            (1_000, 4_992, 5_120),
            (1_000, 6_100, 6_144),
            (64, 4_097, 4_160),
            (128, 4_097, 4_160),
            (128, 4_161, 4_224),
        ] {
            assert_eq!(start_after(end, block_bytes), start, "{block_bytes} after {end}");
            assert!(is_start(end, block_bytes, start));
        }
    }

    #[test]
    fn every_end_has_its_starts_and_they_are_few() {
        let rng = SeededRng::new(11);
        for _ in 0..20_000 {
            let (least, most) = BLOCK_BYTES_ALLOWED.into_inner();
            let block_bytes = least + (rng.next_u64() % (most - least + 1) as u64) as usize;
            let end = rng.next_u64() >> (1 + rng.next_u64() % 62);
            let (start, page) = (start_after(end, block_bytes), page_after(end, block_bytes));
            let page_bytes = block_bytes.next_power_of_two().min(PAGE_BYTES) as u64;
            assert_eq!(page, end.next_multiple_of(page_bytes));
            assert!(start <= page && start.is_multiple_of(LINE_BYTES) && page.is_multiple_of(LINE_BYTES));
            assert!(start - end <= (page_bytes / 8).max(LINE_BYTES - 1));
            let found: Vec<u64> =
                (end..=page + 64).filter(|offset| is_start(end, block_bytes, *offset)).collect();
            assert_eq!(found, if start == page { vec![page] } else { vec![start, page] });
            for other in [0, end.wrapping_sub(1), page + page_bytes, u64::MAX] {
                assert!(!is_start(end, block_bytes, other) || other == page || other == start);
            }
        }
    }

    #[test]
    fn a_block_that_fills_a_page_goes_back_to_one_where_that_costs_little() {
        let place = |placement: &mut Placement, end, frame_bytes| placement.next(end, 4_096, || frame_bytes);
        let mut placement = Placement::default();
        assert_eq!(place(&mut placement, 8_100, 4_096), 8_192, "few zeros, as ever");
        assert_eq!(placement.back_bytes, 0);
        // 3,072 zeros are a 32nd of 98,304.
        assert_eq!(place(&mut placement, 8_192 + 1_024, 4_090), 9_216, "too early in the file");
        let end = 98_304 + 1_024;
        for (frame_bytes, start) in [(3_583, end), (3_584, end + 3_072), (4_096, end + 3_072), (4_097, end)] {
            let mut placement = Placement::default();
            assert_eq!(place(&mut placement, end, frame_bytes), start, "a frame of {frame_bytes}");
            assert!(is_start(end, 4_096, start));
            assert_eq!(placement.back_bytes, start - end);
        }
        placement.back_bytes = 3_072;
        assert_eq!(place(&mut placement, end, 4_096), end, "spent");
        assert_eq!(place(&mut placement, 2 * end, 4_096), 2 * end + 2_048, "and more is allowed later");
    }

    #[test]
    fn nothing_overflows() {
        for end in [u64::MAX, u64::MAX - 1, u64::MAX - 5_000] {
            for block_bytes in [0, 1, 64, 4_096, usize::MAX] {
                let start = start_after(end, block_bytes);
                assert!(start >= end && is_start(end, block_bytes, start));
                let next = Placement { back_bytes: u64::MAX, rule: None }.next(end, block_bytes, || u64::MAX);
                assert_eq!(next, start);
            }
        }
    }
}
