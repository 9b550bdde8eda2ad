//! Where data blocks that are stored as they are begin.
//!
//! ```text
//! page                       page                       page
//! |[ block ............. ]000|[ block ..... ]0[ block ..... ]0[ block ..
//!        few zeros to the page: on it       many: packed, on the next line
//! ```
//!
//! On the next page, so that one page is read for it, if at most an eighth of a page is zeros for that; else *packed*, on
//! the next line of 64 bytes. So no block has more than that before it, whatever the entries' sizes. Writers of before began
//! every block on a page, and their files are as good.
//!
//! Invariants: a start is at or after the end that it follows, on a multiple of [`LINE_BYTES`]; with the old rule, too.
//!
//! Not here: compressed blocks, which begin where what is before them ends.

use super::PAGE_BYTES;

/// What every block that is stored as it is begins on a multiple of, by either rule: a cache line. A search for blocks has
/// no more places to try than these.
pub(crate) const LINE_BYTES: u64 = 64;
/// Up to one part in so many of a page is left empty for the next block to begin on a page.
const ZEROS_SHARE: u64 = 8;

/// Where the next such block begins in a table with blocks of `block_bytes`, when what is before it ends at `end`.
pub(crate) fn start_after(end: u64, block_bytes: usize) -> u64 {
    let page_bytes = page_bytes(block_bytes);
    let zeros = zeros_to(end, page_bytes);
    // Offsets lie in files, far below 2^63.
    end.saturating_add(if zeros <= page_bytes / ZEROS_SHARE { zeros } else { zeros_to(end, LINE_BYTES) })
}

/// Whether a writer of this build or of one before may have begun such a block at `offset`, when what is before it ends
/// at `end`.
pub(crate) fn is_start(end: u64, block_bytes: usize, offset: u64) -> bool {
    offset == start_after(end, block_bytes) || offset == page_after(end, block_bytes)
}

/// Where it begins by the rule of the writers before: always on a page.
pub(crate) fn page_after(end: u64, block_bytes: usize) -> u64 {
    end.saturating_add(zeros_to(end, page_bytes(block_bytes)))
}

/// A page; less for blocks so small that several share one.
fn page_bytes(block_bytes: usize) -> u64 {
    // A power of two, and not below a line: no block of several entries may be smaller than that.
    block_bytes.min(PAGE_BYTES).next_power_of_two().max(LINE_BYTES as usize) as u64
}

/// How many zeros there are from `end` to the next multiple of a power of two.
fn zeros_to(end: u64, multiple: u64) -> u64 {
    end.wrapping_neg() & (multiple - 1)
}

const _: () = assert!(PAGE_BYTES.is_power_of_two() && LINE_BYTES.is_power_of_two());

#[cfg(test)]
mod tests {
    use shamba_env::{Rng, SeededRng};

    use super::*;
    use crate::writer::BLOCK_BYTES_ALLOWED;

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
    fn nothing_overflows() {
        for end in [u64::MAX, u64::MAX - 1, u64::MAX - 5_000] {
            for block_bytes in [0, 1, 64, 4_096, usize::MAX] {
                let start = start_after(end, block_bytes);
                assert!(start >= end && is_start(end, block_bytes, start));
            }
        }
    }
}
