//! A slice in memory: its lines begin where the processor's cache lines do.
//!
//! The allocator promises nothing about where bytes begin, and a line of ours that straddles two of the
//! processor's costs two misses where the family promises one. So a slice takes 63 bytes more than it needs
//! and starts at the first multiple of 64 among them. The heap bytes never move while the slice lives.
//!
//! Not here: which slice and which line a key belongs to ([`crate::BlockedFilter`]).

use crate::LINE_BYTES;

/// A cache-line-aligned run of whole lines. Not `Clone`: the copy's bytes would begin elsewhere.
pub(crate) struct Slice {
    bytes: Box<[u8]>,
    start: usize,
    len: usize,
}

impl Slice {
    /// A slice of zeros; `len` is a multiple of the line.
    pub(crate) fn zeroed(len: usize) -> Self {
        debug_assert!(len.is_multiple_of(LINE_BYTES));
        let bytes = vec![0; len + LINE_BYTES - 1].into_boxed_slice();
        let start = bytes.as_ptr().align_offset(LINE_BYTES).min(LINE_BYTES - 1);
        Self { bytes, start, len }
    }

    /// A slice that holds `content`: the same allocation when it happens to be aligned, else a copy.
    pub(crate) fn of(content: Box<[u8]>) -> Self {
        let len = content.len();
        if content.as_ptr().align_offset(LINE_BYTES) == 0 {
            return Self { bytes: content, start: 0, len };
        }
        let mut slice = Self::zeroed(len);
        slice.as_mut_bytes().copy_from_slice(&content);
        slice
    }

    /// The lines.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    /// The lines, to set bits in.
    #[inline]
    pub(crate) fn as_mut_bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }

    /// What the slice takes in memory.
    pub(crate) fn resident_bytes(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_aligned_and_kept() {
        let mut slices = Vec::new();
        for lines in 1..40usize {
            let content: Vec<u8> = (0..lines * LINE_BYTES).map(|at| (at * 31 + lines) as u8).collect();
            let slice = Slice::of(content.clone().into_boxed_slice());
            assert_eq!(slice.as_bytes(), content);
            assert_eq!(slice.as_bytes().as_ptr().align_offset(LINE_BYTES), 0);
            assert!(slice.resident_bytes() < content.len() + LINE_BYTES);
            slices.push((slice, content)); // Kept, so that the allocator gives other places.
        }
        for (slice, content) in slices.drain(..) {
            let moved = Box::new(slice);
            assert_eq!(moved.as_bytes(), content);
            assert_eq!(moved.as_bytes().as_ptr().align_offset(LINE_BYTES), 0);
        }
    }
}
