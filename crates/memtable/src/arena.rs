//! The arena of a memtable: entries in append-only memory that never moves.
//!
//! One writer appends through its [`Cursor`]. Concurrent readers follow [`EntryRef`]s without
//! locks. An entry:
//!
//! ```text
//! older: u32 | seq << 8 | kind: u64 | key length: varint | value length: varint | key | value
//! ```
//!
//! aligned to 4 bytes, all in native byte order (it never leaves the process). `older` is the next
//! entry of the same chain in the digest index ([`super::index`]) and the only part that ever
//! changes.
//!
//! A reference has 32 bits: slab number, and place in the slab in units of 4 bytes. Slabs grow with
//! the arena up to 2 MiB, so that the unused end of the last one is a small share of a small
//! memtable too. The largest slabs are large pages of the system, if it has any: entries are read
//! in another order than they were written, and each would cost a walk through the page table. An
//! entry that would waste much of a slab gets a slab of its own. Large slabs are memory maps, which
//! are returned to the system with the memtable ([`Pages`]). The directory maps
//! slab numbers to addresses. When it is full it is replaced by one of twice the size. Old
//! directories stay until the arena is dropped, since readers may still use them; together they are
//! as large as the last one.
//!
//! Invariants, on which the unsafe code relies:
//! 1. The bytes of an entry are written before its reference leaves [`Arena::push`], and never
//!    again, except `older`, which is atomic.
//! 2. A reference is passed to another thread with release and acquire.
//! 3. A reference is used only with the arena that made it.
//! 4. Slabs and directories live until the cursor is dropped, and the memtable drops both at once.
//!
//! Finding entries is the task of `index`, their order that of `order`.

use std::alloc::{Layout, handle_alloc_error};
use std::num::NonZeroU32;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use shamba_env::{LARGE_PAGE_BYTES, Pages};
use shamba_key::{EntryKind, MAX_KEY_BYTES, MAX_VALUE_BYTES, SeqNo, prefetch_address};
use shamba_table::internal_cmp;

/// Alignment of entries, needed by the atomic link at their beginning.
const UNIT_BYTES: usize = 4;
const SLAB_ALIGNMENT_BYTES: usize = 8;
/// Bits of a reference that hold the place in its slab.
const PLACE_BITS: u32 = 19;
const SLAB_BYTES_MIN: usize = 4096;
const SLAB_BYTES_MAX: usize = UNIT_BYTES << PLACE_BITS;
/// A new slab has this fraction of the bytes that the arena already holds (1 / 8), rounded up to a
/// power of two.
const SLAB_SHARE: usize = 8;
/// An entry of more than this fraction of a slab (1 / 4) gets a slab of its own.
const ALONE_SHARE: usize = 4;
/// Number of slabs that a reference can tell apart.
const SLABS_MAX: usize = 1 << (32 - PLACE_BITS);
/// Number of slabs at which the arena reports that it is full; the others remain for the batch in
/// progress.
const SLABS_FULL: usize = SLABS_MAX / 2;
const FIRST_DIRECTORY_SLABS: usize = 8;

const LINK_BYTES: usize = 4;
const FIXED_BYTES: usize = LINK_BYTES + 8;
/// The largest header: three bytes of key length, five of value length.
const HEADER_BYTES_MAX: usize = FIXED_BYTES + 3 + 5;
const _: () = assert!(MAX_KEY_BYTES < 1 << (3 * 7), "a key length takes at most three bytes");
const _: () = assert!(MAX_VALUE_BYTES <= u32::MAX as usize, "a value length takes at most five bytes");
const _: () = assert!(SLAB_ALIGNMENT_BYTES % UNIT_BYTES == 0, "entries at a multiple of a unit are aligned");
const _: () = assert!(SLAB_BYTES_MAX == LARGE_PAGE_BYTES, "the largest slab is a large page");
const _: () = assert!(SLAB_BYTES_MIN.is_power_of_two() && SLAB_BYTES_MIN <= SLAB_BYTES_MAX, "sizes of slabs");

/// A header and the first bytes of a key.
const PREFETCHED_BYTES: usize = 32;

/// Cache lines of an entry with a key and a value of a hundred bytes.
const PREFETCHED_LINES: usize = 3;

/// The location of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub(super) struct EntryRef(NonZeroU32);

impl EntryRef {
    /// The reference with these bits; `None` for 0.
    #[inline]
    pub fn from_bits(bits: u32) -> Option<Self> {
        NonZeroU32::new(bits).map(Self)
    }

    #[inline]
    pub fn bits(self) -> u32 {
        self.0.get()
    }
}

/// One entry in the arena.
#[derive(Clone, Copy)]
pub(super) struct EntryView<'a> {
    pub seq: SeqNo,
    pub kind: EntryKind,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

/// The readers' side of the arena: the addresses of its slabs.
pub(super) struct Arena {
    directory: AtomicPtr<AtomicPtr<u8>>,
}

/// The writer's side: the place of the next entry, and all allocations.
pub(super) struct Cursor {
    /// The current slab, its start, and its used bytes.
    slab: usize,
    start: *mut u8,
    used: usize,
    capacity: usize,
    slabs: Vec<Slab>,
    directories: Vec<Box<[AtomicPtr<u8>]>>,
    /// Bytes of entries.
    bytes: usize,
}

struct Slab {
    start: *mut u8,
    /// Accessed only through `start` from the first entry on; kept here to be dropped.
    _memory: Pages,
}

// SAFETY: the cursor owns its slabs, and nothing in it is bound to a thread.
unsafe impl Send for Cursor {}

impl Arena {
    /// An empty arena and its only cursor. Allocates nothing.
    pub fn new() -> (Self, Cursor) {
        let cursor = Cursor {
            slab: usize::MAX,
            start: ptr::null_mut(),
            used: 0,
            capacity: 0,
            slabs: Vec::new(),
            directories: Vec::new(),
            bytes: 0,
        };
        (Self { directory: AtomicPtr::new(ptr::null_mut()) }, cursor)
    }

    /// Appends an entry that is in no chain.
    ///
    /// # Safety
    /// `cursor` was made together with this arena.
    pub unsafe fn push(
        &self,
        cursor: &mut Cursor,
        key: &[u8],
        seq: SeqNo,
        kind: EntryKind,
        value: &[u8],
    ) -> EntryRef {
        debug_assert!(key.len() <= MAX_KEY_BYTES, "a key of {} bytes", key.len());
        debug_assert!(value.len() <= MAX_VALUE_BYTES, "a value of {} bytes", value.len());
        let bytes = HEADER_BYTES_MAX + key.len() + value.len();
        let (slab, start, used) = self.room(cursor, bytes);
        debug_assert!(used % UNIT_BYTES == 0, "an entry at {used} of slab {slab} is not aligned");
        debug_assert!(used < SLAB_BYTES_MAX, "no reference can hold the place {used} of slab {slab}");
        let word = seq.0 << 8 | u64::from(kind.as_byte());
        // SAFETY: `room` returned at least `bytes` unpublished bytes at `start + used`, a multiple
        // of 4, and the header is at most HEADER_BYTES_MAX long; sources and target cannot overlap.
        let end = unsafe {
            let entry = start.add(used);
            entry.cast::<u32>().write(0);
            entry.add(LINK_BYTES).cast::<u64>().write_unaligned(word);
            let mut at = entry.add(FIXED_BYTES);
            at = write_varint(at, key.len() as u32);
            at = write_varint(at, value.len() as u32);
            ptr::copy_nonoverlapping(key.as_ptr(), at, key.len());
            at = at.add(key.len());
            ptr::copy_nonoverlapping(value.as_ptr(), at, value.len());
            at.add(value.len()).addr() - start.addr()
        };
        let end = end.next_multiple_of(UNIT_BYTES);
        cursor.bytes += end - used;
        if slab == cursor.slab {
            debug_assert!(
                end <= cursor.capacity,
                "slab {slab} of {} bytes is used to {end}",
                cursor.capacity
            );
            cursor.used = end;
        }
        let bits = (slab as u32) << PLACE_BITS | (used / UNIT_BYTES) as u32;
        let new = EntryRef::from_bits(bits).expect("the first place of the first slab is left out");
        debug_assert!(
            {
                // SAFETY: the entry is complete, and this call borrows the arena.
                let stored = unsafe { self.entries() }.get(new);
                (stored.key, stored.seq, stored.kind, stored.value) == (key, SeqNo(word >> 8), kind, value)
            },
            "the entry at {used} of slab {slab} differs from the one that was appended"
        );
        new
    }

    /// Finds a place for `bytes` bytes. Returns the slab's number, its start, and the offset in it.
    fn room(&self, cursor: &mut Cursor, bytes: usize) -> (usize, *mut u8, usize) {
        debug_assert!(
            cursor.used <= cursor.capacity,
            "{} of {} bytes of slab {} are used",
            cursor.used,
            cursor.capacity,
            cursor.slab
        );
        if bytes > cursor.capacity - cursor.used {
            let wanted = cursor.bytes / SLAB_SHARE;
            let slab_bytes = wanted.next_power_of_two().clamp(SLAB_BYTES_MIN, SLAB_BYTES_MAX);
            if bytes > slab_bytes / ALONE_SHARE {
                let (slab, start, used) = self.add_slab(cursor, bytes + 2 * UNIT_BYTES);
                return (slab, start, used);
            }
            let (slab, start, used) = self.add_slab(cursor, slab_bytes);
            (cursor.slab, cursor.start, cursor.used, cursor.capacity) = (slab, start, used, slab_bytes);
        }
        (cursor.slab, cursor.start, cursor.used)
    }

    /// Allocates a slab and publishes it in the directory. Returns its number, its start, and the
    /// first usable offset.
    fn add_slab(&self, cursor: &mut Cursor, bytes: usize) -> (usize, *mut u8, usize) {
        let number = cursor.slabs.len();
        assert!(number < SLABS_MAX, "a memtable is sealed long before it has {SLABS_MAX} slabs");
        let alignment_bytes = if bytes == LARGE_PAGE_BYTES { LARGE_PAGE_BYTES } else { SLAB_ALIGNMENT_BYTES };
        let Some(mut memory) = Pages::zeroed(bytes, alignment_bytes) else {
            let layout = Layout::from_size_align(bytes, alignment_bytes);
            handle_alloc_error(layout.expect("a size that values can have"))
        };
        let start = memory.as_mut_ptr();
        assert!(start.addr() % SLAB_ALIGNMENT_BYTES == 0, "slab {number} at {start:?} is not aligned");
        cursor.slabs.push(Slab { start, _memory: memory });
        let known = cursor.directories.last().map_or(0, |directory| directory.len());
        if number >= known {
            let mut larger: Vec<AtomicPtr<u8>> = Vec::new();
            larger.resize_with((known * 2).max(FIRST_DIRECTORY_SLABS), AtomicPtr::default);
            for (entry, slab) in larger.iter_mut().zip(&cursor.slabs) {
                *entry.get_mut() = slab.start;
            }
            cursor.directories.push(larger.into_boxed_slice());
            let directory = cursor.directories.last().expect("just pushed");
            self.directory.store(directory.as_ptr().cast_mut(), Ordering::Release);
        } else if let Some(directory) = cursor.directories.last() {
            directory[number].store(start, Ordering::Release);
        }
        // Offset 0 of slab 0 is not used, so that no reference is 0.
        (number, start, if number == 0 { UNIT_BYTES } else { 0 })
    }

    /// The address of an entry.
    ///
    /// # Safety
    /// The reference is of this arena, and was passed on with acquire from the caller of
    /// [`Self::push`].
    #[inline]
    unsafe fn at(&self, entry: EntryRef) -> *mut u8 {
        let (slab, place) = (entry.bits() >> PLACE_BITS, entry.bits() & ((1 << PLACE_BITS) - 1));
        // SAFETY: the directory and its entry for this slab were stored before the reference was
        // made, so both are in place; the offset lies in the slab.
        unsafe {
            let directory = self.directory.load(Ordering::Acquire);
            debug_assert!(!directory.is_null(), "{entry:?} is used with an arena that has no entries");
            let start = (*directory.add(slab as usize)).load(Ordering::Relaxed);
            debug_assert!(!start.is_null(), "{entry:?} lies in slab {slab}, which is not in the directory");
            start.add(place as usize * UNIT_BYTES)
        }
    }

    /// A reader of entries, for as long as the caller can guarantee that the arena lives.
    ///
    /// # Safety
    /// This arena and its cursor are neither moved nor dropped during `'a`. The [`Entries`] are
    /// used only with references of this arena, which were passed on with acquire from the caller
    /// of [`Self::push`].
    #[inline]
    pub unsafe fn entries<'a>(&self) -> Entries<'a> {
        // SAFETY: by contract the arena outlives `'a`.
        Entries { arena: unsafe { &*ptr::from_ref(self) } }
    }
}

/// Reads the entries of one arena. Its creator guarantees that it is used only with valid
/// references.
#[derive(Clone, Copy)]
pub(super) struct Entries<'a> {
    arena: &'a Arena,
}

impl<'a> Entries<'a> {
    /// The entry at a reference.
    #[inline]
    pub fn get(self, entry: EntryRef) -> EntryView<'a> {
        // SAFETY: the creator guarantees that a complete entry is there; its bytes, except the
        // link, do not change.
        unsafe {
            let start = self.arena.at(entry);
            let word = start.add(LINK_BYTES).cast::<u64>().read_unaligned();
            let (key_len, at) = read_varint(start.add(FIXED_BYTES));
            let (value_len, at) = read_varint(at);
            let key = std::slice::from_raw_parts(at, key_len as usize);
            let value = std::slice::from_raw_parts(at.add(key.len()), value_len as usize);
            // Only valid kinds were written.
            let kind = EntryKind::from_byte(word as u8);
            debug_assert!(kind.is_some(), "{entry:?} has the kind {}, which was never written", word as u8);
            let kind = kind.unwrap_or(EntryKind::Put);
            EntryView { seq: SeqNo(word >> 8), kind, key, value }
        }
    }

    /// The link of an entry to the next one of its chain.
    #[inline]
    pub fn older(self, entry: EntryRef) -> &'a AtomicU32 {
        // SAFETY: the creator guarantees that an entry is there, aligned to 4 bytes; after `push`
        // its first four bytes are accessed only through this.
        unsafe { AtomicU32::from_ptr(self.arena.at(entry).cast()) }
    }

    /// Prefetches the header of an entry and the beginning of its key, which may lie on two cache
    /// lines.
    #[inline]
    pub fn prefetch(self, entry: EntryRef) {
        // SAFETY: the creator guarantees that an entry is there.
        let start = unsafe { self.arena.at(entry) };
        prefetch_address(start);
        prefetch_address(start.wrapping_add(PREFETCHED_BYTES));
    }

    /// Prefetches an entry of usual length that is about to be copied. The hardware prefetcher goes
    /// on from there.
    #[inline]
    pub fn prefetch_whole(self, entry: EntryRef) {
        // SAFETY: the creator guarantees that an entry is there.
        let start = unsafe { self.arena.at(entry) };
        for line in 0..PREFETCHED_LINES {
            prefetch_address(start.wrapping_add(64 * line));
        }
    }

    /// Compares two entries in internal order.
    #[inline]
    pub fn cmp(self, a: EntryRef, b: EntryRef) -> std::cmp::Ordering {
        let (a, b) = (self.get(a), self.get(b));
        internal_cmp(a.key, a.seq, b.key, b.seq)
    }

    /// Eight bytes of the key, from byte `from` on, as a number. The key must have at least `from`
    /// bytes.
    #[inline]
    pub fn head(self, entry: EntryRef, from: usize) -> u64 {
        shamba_key::head(&self.get(entry).key[from..])
    }
}

impl Cursor {
    /// Bytes of entries. The unused ends of slabs are not counted: they have not been touched, so
    /// the system need not have provided memory for them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether references will soon run out, so that another memtable must be started.
    pub fn is_full(&self) -> bool {
        self.slabs.len() >= SLABS_FULL
    }
}

/// Writes `number` with seven bits per byte, the lowest first. Returns the address after it.
///
/// # Safety
/// Five bytes at `at` may be written.
unsafe fn write_varint(mut at: *mut u8, mut number: u32) -> *mut u8 {
    // SAFETY: a number of 32 bits takes at most five bytes.
    unsafe {
        while number >= 0x80 {
            at.write(number as u8 | 0x80);
            at = at.add(1);
            number >>= 7;
        }
        at.write(number as u8);
        at.add(1)
    }
}

/// Reads a number that [`write_varint`] wrote, and returns it with the address after it.
///
/// # Safety
/// `write_varint` wrote at `at`.
#[inline]
unsafe fn read_varint(mut at: *const u8) -> (u32, *const u8) {
    // SAFETY: the last byte of the number has its top bit clear, and nothing beyond it is read.
    unsafe {
        let mut byte = at.read();
        at = at.add(1);
        let mut number = u32::from(byte & 0x7f);
        let mut shift = 7;
        while byte >= 0x80 {
            byte = at.read();
            at = at.add(1);
            number |= u32::from(byte & 0x7f) << shift;
            shift += 7;
        }
        (number, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Arena {
        /// Adds slabs without entries until the cursor reports that it is full.
        pub(crate) fn fill_with_slabs(&self, cursor: &mut Cursor) {
            while !cursor.is_full() && cursor.slabs.len() < SLABS_MAX {
                self.add_slab(cursor, SLAB_BYTES_MIN);
            }
        }
    }

    /// Takes the room of an entry of `bytes`, without writing one. Returns the number of its slab.
    fn take(arena: &Arena, cursor: &mut Cursor, bytes: usize) -> usize {
        let (slab, _, used) = arena.room(cursor, bytes);
        let end = (used + bytes).next_multiple_of(UNIT_BYTES);
        cursor.bytes += end - used;
        if slab == cursor.slab {
            cursor.used = end;
        }
        slab
    }

    #[test]
    fn an_entry_of_a_quarter_of_a_slab_shares_it_and_a_larger_one_lies_alone() {
        let (arena, mut cursor) = Arena::new();
        let quarter = SLAB_BYTES_MIN / ALONE_SHARE;
        assert_eq!(take(&arena, &mut cursor, quarter + 1), 0);
        // The slab after it is filled without a rest.
        let slabs: Vec<usize> = (0..5).map(|_| take(&arena, &mut cursor, quarter)).collect();
        assert_eq!(slabs, [1, 1, 1, 1, 2]);
        assert_eq!(take(&arena, &mut cursor, quarter + 1), 2, "it fits in the slab in use");
        assert_eq!(take(&arena, &mut cursor, SLAB_BYTES_MIN), 3);
        assert_eq!(take(&arena, &mut cursor, quarter), 2, "the slab in use is still that before");
    }

    #[test]
    fn a_slab_of_its_own_holds_its_entry_and_little_else() {
        let sizes =
            [SLAB_BYTES_MIN / ALONE_SHARE + 1, 5_000, 100_000, SLAB_BYTES_MAX, 3 * SLAB_BYTES_MAX + 1];
        for bytes in sizes {
            let (arena, mut cursor) = Arena::new();
            // The first slab has less room than others: its first place is left out.
            for number in 0..2 {
                let (slab, start, used) = arena.room(&mut cursor, bytes);
                let held = cursor.slabs[slab]._memory.len();
                assert_eq!((slab, start), (number, cursor.slabs[slab].start));
                assert!(used + bytes <= held, "{bytes} bytes at {used} of a slab of {held}");
                assert!(held < bytes + 4 * UNIT_BYTES, "a slab of {held} bytes for an entry of {bytes}");
            }
        }
    }

    #[test]
    fn slabs_grow_with_the_arena_up_to_large_pages() {
        let (arena, mut cursor) = Arena::new();
        let mut capacities = Vec::new();
        while cursor.bytes < 5 * SLAB_SHARE * SLAB_BYTES_MAX / 4 {
            let before = cursor.bytes;
            if take(&arena, &mut cursor, 1_000) == capacities.len() {
                // The share of the arena, rounded up to a power of two.
                let (share, capacity) = (before / SLAB_SHARE, cursor.capacity);
                assert!(capacity >= share.clamp(SLAB_BYTES_MIN, SLAB_BYTES_MAX), "{capacity} after {before}");
                assert!(capacity <= (2 * share).max(SLAB_BYTES_MIN), "{capacity} after {before}");
                capacities.push(capacity);
            }
        }
        assert!(capacities.is_sorted() && capacities.last() == Some(&SLAB_BYTES_MAX), "{capacities:?}");
        let is_at_large_page = |slab: &Slab| slab.start.addr() % LARGE_PAGE_BYTES == 0;
        let smaller = capacities.partition_point(|capacity| *capacity < SLAB_BYTES_MAX);
        assert!(cursor.slabs[smaller..].iter().all(is_at_large_page));
        assert!(!cursor.slabs[..smaller].iter().all(is_at_large_page), "a large page for each small slab");
    }

    #[test]
    fn each_directory_is_twice_as_long_as_the_one_before_and_leads_to_every_slab() {
        let (arena, mut cursor) = Arena::new();
        for number in 0..100 {
            assert_eq!(arena.add_slab(&mut cursor, SLAB_BYTES_MIN).0, number);
            let directory = cursor.directories.last().expect("made with the first slab");
            assert!(ptr::eq(arena.directory.load(Ordering::Relaxed), directory.as_ptr()), "the last counts");
            let listed = directory.iter().map(|start| start.load(Ordering::Relaxed));
            assert!(listed.take(number + 1).eq(cursor.slabs.iter().map(|slab| slab.start)), "slab {number}");
        }
        let lengths: Vec<usize> = cursor.directories.iter().map(|directory| directory.len()).collect();
        assert_eq!(lengths, [8, 16, 32, 64, 128]);
    }

    #[test]
    fn an_arena_is_full_at_half_of_the_slabs_that_references_can_tell_apart() {
        let (arena, mut cursor) = Arena::new();
        assert!(!cursor.is_full());
        for _ in 1..SLABS_FULL {
            arena.add_slab(&mut cursor, SLAB_BYTES_MIN);
        }
        assert!(!cursor.is_full(), "{} slabs", cursor.slabs.len());
        arena.add_slab(&mut cursor, SLAB_BYTES_MIN);
        assert!(cursor.is_full(), "{} slabs", cursor.slabs.len());
    }
}
