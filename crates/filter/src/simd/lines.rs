//! A slice in memory: whole lines that begin where the processor's cache lines do.
//!
//! A line of ours that straddled two of the processor's would cost two misses where the family promises one,
//! and the vector loads of [`super`] want theirs aligned too. The type says it: [`Line`] is aligned to its
//! size.
//!
//! Not here: which slice and which line a key belongs to ([`crate::BlockedFilter`]).

use crate::LINE_BYTES;

/// One line, on one cache line.
#[derive(Clone)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u8; LINE_BYTES]);

const _: () = assert!(size_of::<Line>() == LINE_BYTES && align_of::<Line>() == LINE_BYTES);

/// A slice's lines; none for a slice that is absent.
#[derive(Clone, Default)]
pub(crate) struct Lines(Box<[Line]>);

impl Lines {
    /// Lines without a bit.
    pub(crate) fn zeroed(lines: usize) -> Self {
        Self(vec![Line([0; LINE_BYTES]); lines].into_boxed_slice())
    }

    /// Lines that hold `content`; bytes beyond the last whole line are dropped.
    pub(crate) fn of(content: &[u8]) -> Self {
        Self(content.as_chunks().0.iter().map(|line| Line(*line)).collect())
    }

    /// Whether the slice is absent.
    pub(crate) fn is_absent(&self) -> bool {
        self.0.is_empty()
    }

    /// The line of this number; `None` when the slice is absent.
    #[inline]
    pub(crate) fn line(&self, number: usize) -> Option<&Line> {
        self.0.get(number)
    }

    /// The same, to set bits in.
    #[inline]
    pub(crate) fn line_mut(&mut self, number: usize) -> Option<&mut Line> {
        self.0.get_mut(number)
    }

    /// The lines as they are stored.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        let bytes = self.0.len() * LINE_BYTES;
        // SAFETY: a `Line` is 64 bytes, all of them initialised and none of them padding (asserted above),
        // so the boxed lines are `bytes` bytes in one allocation, which lives as long as the borrow of `self`.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast::<u8>(), bytes) }
    }

    /// What the slice takes in memory.
    pub(crate) fn resident_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_aligned_and_kept() {
        let mut slices = Vec::new();
        for lines in 0..40usize {
            let content: Vec<u8> = (0..lines * LINE_BYTES).map(|at| (at * 31 + lines) as u8).collect();
            let slice = Lines::of(&content);
            assert_eq!(slice.as_bytes(), content);
            assert_eq!(slice.as_bytes().as_ptr().align_offset(LINE_BYTES), 0);
            assert_eq!(slice.resident_bytes(), content.len());
            assert_eq!((slice.is_absent(), slice.line(lines).is_none()), (lines == 0, true));
            slices.push((slice, content)); // Kept, so that the allocator gives other places.
        }
        for (slice, content) in slices {
            for (number, line) in content.chunks(LINE_BYTES).enumerate() {
                assert_eq!(slice.line(number).map(|line| &line.0[..]), Some(line));
            }
        }
    }
}
