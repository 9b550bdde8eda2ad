//! Prefetching of cache lines.
//!
//! A hint only: it never faults and changes no result. On processors other than x86-64 the
//! functions do nothing.
#![allow(unsafe_code)]

/// Prefetches the cache line that holds `bytes[offset]`; does nothing if out of bounds.
#[inline(always)]
pub fn prefetch_line(bytes: &[u8], offset: usize) {
    if let Some(byte) = bytes.get(offset) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `prefetch` has no memory effect and cannot fault; the pointer comes from a live
        // reference.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast::<i8>());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = byte;
    }
}

/// Prefetches all cache lines of `items`: for a few lines that are needed soon.
#[inline(always)]
pub fn prefetch_slice<T>(items: &[T]) {
    let std::ops::Range { start, end } = items.as_ptr_range();
    let (mut line, end) = (start.cast::<u8>(), end.cast::<u8>());
    while line < end {
        prefetch_address(line);
        line = line.wrapping_add(64);
    }
}

/// Prefetches the cache line at an address, which need not be valid: nothing is read or checked.
#[inline(always)]
pub fn prefetch_address(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `prefetch` has no memory effect and cannot fault, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast::<i8>());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
