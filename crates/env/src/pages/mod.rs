//! Zeroed memory that returns to the operating system when it is dropped.
//!
//! An allocator keeps part of the freed memory for later use. In glibc, for instance, threads have
//! separate heaps, and each can keep up to twice the largest piece that was ever freed. No budget
//! limits that memory. Large pieces are therefore separate anonymous maps. The operating system
//! allocates each page when it is first touched and gets it back when the piece is dropped. Pieces
//! of less than 16 KiB come from the allocator, because a map and its page faults would cost more.
//!
//! A piece at a multiple of [`LARGE_PAGE_BYTES`] asks for pages of that size. An access to it needs
//! no walk through the page table, which costs as much as the access itself on a virtual machine.
//! The system then provides the memory of a whole large page at the first touch of any byte of it.
//! Smaller pieces can share large pages ([`Pages::join_neighbours`]).
//!
//! A system limits the number of maps of a process (Linux: 65,530). At the limit even the return of
//! memory fails, where it would divide a map that neighbours have been joined to. So at most
//! [`SMALL_MAPS_MAX`] pieces of less than a large page have maps, and others come from the
//! allocator. So does a piece if the system refuses a map.
//!
//! Not here: accounting (the ledger of `shamba-table`).

mod large;

use std::fmt;
use std::ops::{Deref, DerefMut};

use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::MmapMut;

use self::large::Neighbour;

/// Minimum size of a piece with a map of its own: a chunk of the record cache.
const MAPPED_FROM_BYTES: usize = 16 << 10;
/// Minimum size of a page of any system: a map begins at a multiple of it.
const PAGE_BYTES_MIN: usize = 4 << 10;

/// Maximum number of maps of less than a large page: a quarter of what Linux allows.
const SMALL_MAPS_MAX: usize = 1 << 14;

/// Number of maps of less than a large page, of the whole process.
static SMALL_MAPS: AtomicUsize = AtomicUsize::new(0);

/// Size of a large page of the operating system, where it has any.
pub const LARGE_PAGE_BYTES: usize = 2 << 20;

/// A piece of memory, zeroed at first. Its bytes never move, even if the value does.
pub struct Pages {
    memory: Memory,
    start: usize,
    length: usize,
}

enum Memory {
    Mapped(Mapped),
    /// Never changes its capacity: the bytes would move.
    Allocated(Vec<u8>),
}

/// A map, counted if it is small.
struct Mapped {
    /// Before the map, because fields are dropped in order.
    neighbour: Option<Neighbour>,
    map: MmapMut,
    is_small: bool,
}

impl Mapped {
    /// A map of `bytes`; `None` if it is refused, or if there are too many small ones.
    fn new(bytes: usize) -> Option<Self> {
        let is_small = bytes < LARGE_PAGE_BYTES;
        if is_small && SMALL_MAPS.fetch_add(1, Ordering::Relaxed) >= SMALL_MAPS_MAX {
            SMALL_MAPS.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let map = MmapMut::map_anon(bytes).ok();
        if map.is_none() && is_small {
            SMALL_MAPS.fetch_sub(1, Ordering::Relaxed);
        }
        map.map(|map| Self { neighbour: None, map, is_small })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.is_small {
            SMALL_MAPS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Pages {
    /// `bytes` zeroed bytes at a multiple of `alignment_bytes`, a power of two; `None` if there is
    /// no memory. Alignment slack of a map is never touched, so it takes only address space.
    pub fn zeroed(bytes: usize, alignment_bytes: usize) -> Option<Self> {
        let with_slack_bytes = bytes.checked_add(alignment_bytes - 1)?;
        // Without slack that is not needed, maps lie side by side and the system joins them.
        let mapped_bytes = if alignment_bytes <= PAGE_BYTES_MIN { bytes } else { with_slack_bytes };
        let mapped = (bytes >= MAPPED_FROM_BYTES).then(|| Mapped::new(mapped_bytes)).flatten();
        let memory = match mapped {
            Some(mapped) => {
                if alignment_bytes % LARGE_PAGE_BYTES == 0 {
                    large::ask(&mapped.map);
                }
                Memory::Mapped(mapped)
            }
            None => Memory::Allocated(allocated(with_slack_bytes)?),
        };
        let mut pages = Self { memory, start: 0, length: 0 };
        let start = pages.all().as_ptr().align_offset(alignment_bytes);
        // `align_offset` may fail in const evaluation; here there is enough slack.
        assert!(start < alignment_bytes && start + bytes <= pages.all().len(), "no slack to align a piece");
        (pages.start, pages.length) = (start, bytes);
        Some(pages)
    }

    /// Lets the piece share a large page of the system with other pieces of this kind next to it.
    /// For pieces of less than a large page that are read at random for long: when the pieces of a
    /// large page are complete, the system copies them once.
    pub fn join_neighbours(&mut self) {
        if let Memory::Mapped(mapped) = &mut self.memory {
            if mapped.is_small && mapped.neighbour.is_none() {
                debug_assert_eq!(self.length, mapped.map.len(), "the slack of a piece would be filled");
                mapped.neighbour = Some(Neighbour::new(&mapped.map));
            }
        }
    }

    /// Memory that a piece of this length takes.
    pub fn held_bytes(bytes: usize) -> usize {
        if bytes >= MAPPED_FROM_BYTES { bytes.next_multiple_of(PAGE_BYTES_MIN) } else { bytes }
    }

    fn all(&self) -> &[u8] {
        match &self.memory {
            Memory::Mapped(mapped) => &mapped.map,
            Memory::Allocated(bytes) => bytes,
        }
    }
}

/// Zeroed bytes from the allocator; `None` if it has too little memory.
fn allocated(bytes: usize) -> Option<Vec<u8>> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes).ok()?;
    memory.resize(bytes, 0);
    Some(memory)
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.all().get(self.start..self.start + self.length).unwrap_or_default()
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        let all: &mut [u8] = match &mut self.memory {
            Memory::Mapped(mapped) => &mut mapped.map,
            Memory::Allocated(bytes) => bytes,
        };
        all.get_mut(self.start..self.start + self.length).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Pages {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_mapped = matches!(self.memory, Memory::Mapped(_));
        f.debug_struct("Pages").field("bytes", &self.length).field("is_mapped", &is_mapped).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_rss_bytes;

    #[test]
    fn pieces_are_zeroed_aligned_and_stay_where_they_are() {
        for bytes in [0, 1, 4_095, MAPPED_FROM_BYTES - 1, MAPPED_FROM_BYTES, (2 << 20) + 1] {
            for alignment_bytes in [1, 8, 64, 4_096, 2 << 20] {
                let mut pages = Pages::zeroed(bytes, alignment_bytes).expect("memory");
                assert_eq!(pages.len(), bytes);
                assert!(pages.iter().all(|byte| *byte == 0));
                let address = pages.as_ptr().addr();
                assert_eq!(address % alignment_bytes, 0, "{bytes} bytes at {alignment_bytes}");
                pages.fill(7);
                let moved = Box::new(pages);
                assert_eq!(moved.as_ptr().addr(), address);
                assert!(moved.iter().all(|byte| *byte == 7));
            }
        }
    }

    #[test]
    fn too_much_is_refused() {
        assert!(Pages::zeroed(usize::MAX, 8).is_none());
        assert!(Pages::zeroed(isize::MAX as usize, 8).is_none());
    }

    #[test]
    fn what_is_dropped_is_not_resident_any_more() {
        const PIECES: usize = 256;
        let Some(before_bytes) = process_rss_bytes() else { return };
        let mut pieces: Vec<Pages> = (0..PIECES).filter_map(|_| Pages::zeroed(1 << 20, 8)).collect();
        pieces.iter_mut().for_each(|piece| piece.fill(1));
        assert!(process_rss_bytes().is_some_and(|bytes| bytes > before_bytes + (200 << 20)));
        // Every second one: an allocator could not return pieces that lie below others.
        let mut number = 0;
        pieces.retain(|_| {
            number += 1;
            number % 2 == 0
        });
        assert!(process_rss_bytes().is_some_and(|bytes| bytes < before_bytes + (180 << 20)));
        assert_eq!(pieces.len(), PIECES / 2);
    }
}
