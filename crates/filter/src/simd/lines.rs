//! A slice in memory: whole lines, aligned to the processor's cache lines.
//!
//! A filter line that straddled two cache lines would cost two misses where the family promises
//! one, and the vector loads of [`super`] require alignment too. The type guarantees it: [`Line`]
//! is aligned to its size.
//!
//! Not here: the slice and the line of a key ([`crate::place`]).

use super::bits;
use crate::LINE_BYTES;

/// One line of a filter, on one cache line. A slice of a filter is a `[Line]`, whichever component
/// holds it.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Line(pub(crate) [u8; LINE_BYTES]);

impl Line {
    /// A slice's lines, copied to aligned memory; bytes beyond the last whole line are dropped.
    pub fn boxed(slice: &[u8]) -> Box<[Self]> {
        shamba_key::chunks(slice).0.map(|line| Self(*line)).collect()
    }

    /// A slice's lines in place; `None` unless `slice` is whole lines and aligned as a line.
    pub fn view(slice: &[u8]) -> Option<&[Self]> {
        let at = slice.as_ptr().cast::<Self>();
        if !at.is_aligned() || slice.len() % LINE_BYTES != 0 {
            return None;
        }
        // SAFETY: a `Line` is 64 bytes of any content (asserted below). The address was checked to
        // be aligned, and the borrowed bytes are exactly this many lines, which the result borrows
        // in their place.
        Some(unsafe { std::slice::from_raw_parts(at, slice.len() / LINE_BYTES) })
    }

    /// Lines as they are stored.
    pub fn bytes(lines: &[Self]) -> &[u8] {
        // SAFETY: a `Line` is 64 bytes, all of them initialised and none of them padding (asserted
        // below), so the lines are this many bytes in one allocation, which the result borrows in
        // their place.
        unsafe { std::slice::from_raw_parts(lines.as_ptr().cast::<u8>(), size_of_val(lines)) }
    }

    /// Sets the bits of a key.
    #[inline]
    pub(crate) fn set(&mut self, probe: u32, probes: u8) {
        for bit in bits(probe, probes) {
            self.0[bit >> 3] |= 1 << (bit & 7);
        }
    }
}

const _: () = assert!(size_of::<Line>() == LINE_BYTES && align_of::<Line>() == LINE_BYTES);

/// A slice's lines; empty for an absent slice.
#[derive(Clone, Default)]
pub(crate) struct Lines(Box<[Line]>);

impl Lines {
    /// Lines with all bits clear.
    pub(crate) fn zeroed(lines: usize) -> Self {
        Self(vec![Line([0; LINE_BYTES]); lines].into_boxed_slice())
    }

    /// Lines that hold `content`; bytes beyond the last whole line are dropped.
    pub(crate) fn of(content: &[u8]) -> Self {
        Self(Line::boxed(content))
    }

    /// Whether the slice is absent.
    pub(crate) fn is_absent(&self) -> bool {
        self.0.is_empty()
    }

    /// The lines; `None` when the slice is absent.
    #[inline]
    pub(crate) fn present(&self) -> Option<&[Line]> {
        (!self.is_absent()).then_some(&*self.0)
    }

    /// All lines, for setting bits.
    pub(crate) fn all_mut(&mut self) -> &mut [Line] {
        &mut self.0
    }

    /// The line of this number, for setting bits; `None` when the slice is absent.
    #[inline]
    pub(crate) fn line_mut(&mut self, number: usize) -> Option<&mut Line> {
        self.0.get_mut(number)
    }

    /// The lines as they are stored.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        Line::bytes(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_viewed_only_where_they_are_aligned_and_whole() {
        let lines = Line::boxed(&(0..=255).collect::<Vec<u8>>());
        let bytes = Line::bytes(&lines);
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        for (from, to) in (0..=256usize).flat_map(|from| (from..=256).map(move |to| (from, to))) {
            let whole = from.is_multiple_of(LINE_BYTES) && to.is_multiple_of(LINE_BYTES);
            let view = Line::view(&bytes[from..to]);
            // An empty slice is whole lines at any address.
            assert!(view.is_some() == whole || from == to, "{from}..{to}");
            assert!(view.is_none_or(|view| Line::bytes(view) == &bytes[from..to]));
        }
    }

    #[test]
    fn lines_are_aligned_and_kept() {
        let mut slices = Vec::new();
        for lines in 0..40usize {
            let content: Vec<u8> = (0..lines * LINE_BYTES).map(|at| (at * 31 + lines) as u8).collect();
            let slice = Lines::of(&content);
            assert_eq!(slice.as_bytes(), content);
            assert_eq!(slice.as_bytes().as_ptr().align_offset(LINE_BYTES), 0);
            assert_eq!((slice.is_absent(), slice.0.get(lines).is_none()), (lines == 0, true));
            // Kept alive, so that the allocator returns different addresses.
            slices.push((slice, content));
        }
        for (slice, content) in slices {
            for (number, line) in content.chunks(LINE_BYTES).enumerate() {
                assert_eq!(slice.0.get(number).map(|line| &line.0[..]), Some(line));
            }
        }
    }
}
