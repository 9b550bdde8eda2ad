//! Construction of a ribbon module: elimination and back substitution, slice by slice.
//!
//! The keys are sorted by their remix, which is the order of slices and, within a slice, of start
//! rows. So the elimination passes over the rows of a slice once, and the memory that it works in
//! is at most 64 words for each word of a slice ([`scratch_bytes`]).
//!
//! Elimination keeps the equations in echelon form: at most one equation begins in each row. An
//! equation that begins where another does is added to it and then begins further down, or vanishes
//! if it depends on the others. Back substitution chooses the rows from the last to the first: a
//! row in which no equation begins is free and gets pseudo-random bits, any other is determined by
//! the rows after it.

use super::{LINE_WORDS, RibbonShape, SEGMENT_ROWS, WORD_BYTES, coefficients};
use crate::limits::MAX_COLUMNS;
use crate::place::slice_of;
use crate::simd::lines::{Line, Lines};
use shamba_key::KeyDigest;

/// Approximate maximum memory of [`build`] besides its result, in bytes: a remix for each key, and
/// the equations of the largest slice.
pub(crate) fn scratch_bytes(keys: usize, bits_per_key: f64) -> u64 {
    // With less than one column, segments without columns have no equations.
    let columns = (bits_per_key / 1.2).clamp(1.0, f64::from(MAX_COLUMNS));
    let rows = crate::MAX_SLICE_BYTES as f64 * 8.0 / columns;
    // Beyond the maximum of columns there are more rows for each key instead.
    let rows_per_key = (bits_per_key / f64::from(MAX_COLUMNS)).max(1.2);
    let rows = rows.min(keys as f64 * rows_per_key + 2.0 * SEGMENT_ROWS as f64);
    (keys + rows as usize) as u64 * size_of::<u64>() as u64
}

/// The slices of module `module` with the keys of `digests`.
pub(crate) fn build(digests: &[KeyDigest], module: u8, shape: RibbonShape, lines: usize) -> Vec<Lines> {
    let mut remixes: Vec<u64> = digests.iter().map(|digest| digest.module(module)).collect();
    remixes.sort_unstable();
    let mut rest = &remixes[..];
    let mut equations = Vec::new();
    let slice = |number: usize| {
        let of_slice = rest.partition_point(|remix| slice_of(*remix, shape.slices_log2) <= number);
        let (keys, others) = rest.split_at(of_slice);
        rest = others;
        eliminate(keys, shape, &mut equations);
        let mut slice = Lines::zeroed(lines);
        substitute(&equations, shape, u64::from(module) << 32 | number as u64, slice.all_mut());
        slice
    };
    (0..1usize << shape.slices_log2).map(slice).collect()
}

/// The equations of `keys`, by the row in which they begin; 0 for a row in which none does.
fn eliminate(keys: &[u64], shape: RibbonShape, equations: &mut Vec<u64>) {
    // In segments without columns every key passes.
    let segments = if shape.columns == 0 { shape.cut } else { shape.segments };
    equations.clear();
    equations.resize(usize::from(segments) * SEGMENT_ROWS, 0);
    let last_start = equations.len().saturating_sub(SEGMENT_ROWS);
    for remix in keys {
        let (mut row, mut equation) = (shape.row(*remix), coefficients(*remix));
        if row >= last_start {
            continue;
        }
        // An equation covers 64 rows from where it begins, and `row` is below the last segment; the
        // end of the equation never moves.
        debug_assert!(
            row + SEGMENT_ROWS <= equations.len(),
            "an equation from row {row} ends beyond its slice"
        );
        while let Some(present) = equations.get_mut(row) {
            if *present == 0 {
                *present = equation;
                break;
            }
            equation ^= *present;
            if equation == 0 {
                break;
            }
            let zeros = equation.trailing_zeros();
            equation >>= zeros;
            row += zeros as usize;
        }
    }
}

/// Writes a solution of `equations` to the words of `slice`.
fn substitute(equations: &[u64], shape: RibbonShape, seed: u64, slice: &mut [Line]) {
    // Of each column the 64 rows from the one that was chosen last.
    let mut window = [0u64; MAX_COLUMNS as usize];
    for (segment, equations) in equations.chunks(SEGMENT_ROWS).enumerate().rev() {
        let columns = shape.columns_of(segment);
        let mut free = [0u64; MAX_COLUMNS as usize];
        let number = (seed << 16 | segment as u64) << 5;
        free.iter_mut().zip(number..).take(columns).for_each(|(free, number)| *free = mixed(number));
        for (row, equation) in equations.iter().enumerate().rev() {
            for (window, free) in window.iter_mut().zip(&free).take(columns) {
                *window <<= 1;
                *window |= if *equation == 0 { (free >> row) & 1 } else { super::parity(*window & equation) };
            }
        }
        let first = shape.word_of(segment);
        debug_assert!(first + columns <= slice.len() * LINE_WORDS, "segment {segment} ends beyond its slice");
        for (word, value) in (first..first + columns).zip(window) {
            if let Some(line) = slice.get_mut(word / LINE_WORDS) {
                let at = word % LINE_WORDS * WORD_BYTES;
                line.0[at..at + WORD_BYTES].copy_from_slice(&value.to_le_bytes());
            }
        }
    }
}

/// Pseudo-random bits that follow from `number` (the finaliser of SplitMix64). A table's bytes then
/// depend on its keys alone.
fn mixed(number: u64) -> u64 {
    let x = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
