//! Memory of the cache: slabs of frames and records, under a directory that is read without a lock.
//!
//! ```text
//! frame number = slab << shift | place            directory: one entry per slab
//!
//! entry -> frames    4,160 bytes each, 64-aligned                 (none in slabs of large blocks)
//!       -> records   32 bytes per frame: key, length, pins, reference bit; behind the frames
//! ```
//!
//! A frame is one cache line longer than the page that it holds. With a stride of one page, the
//! first lines of all frames, which every hit reads, would map to the same few sets of the
//! processor's caches. Direct I/O needs page alignment, so there the block is copied; the copy
//! costs little compared with the device. In a large cache a slab has the size of a huge page (2
//! MiB) and asks the system for one. A hit then finds record and frame without a page-table walk.
//!
//! A slab of *small* frames contains their bytes; in a slab of *large* frames each record points to
//! an allocation of its own.
//!
//! Access rules:
//! - A record's atomics: any thread in a section ([`super::epoch`]) that reached the record through
//!   the directory.
//! - Frame bytes, writing: the owner of a frame that is neither free nor published
//!   ([`super::fill`]).
//! - Frame bytes, reading: a thread in a section that found the frame's key in its record, or that
//!   has pinned the frame.
//! - A slab is freed after its directory entry was cleared and a grace period has passed; the
//!   directory is freed with the cache.
//!
//! Not here: which frames are free, and which are evicted ([`super::hand`]).

use std::collections::BTreeMap;
use std::ptr;

use shamba_env::{LARGE_PAGE_BYTES, Pages};

use crate::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::sync::{IS_EXPLORED, Mutex, PoisonError};

/// Payload bytes of a frame: a page of the disk.
pub(crate) const FRAME_SIZE: usize = 4_096;

/// Alignment of frames: a cache line.
const LINE_BYTES: usize = 64;

/// Distance between frames: an odd number of cache lines, so that headers spread over all sets of a
/// cache.
pub(super) const STRIDE_BYTES: usize = FRAME_SIZE + LINE_BYTES;

/// Frames that fit into a huge page, with their records.
const FRAMES_MAX: usize = LARGE_PAGE_BYTES / (STRIDE_BYTES + size_of::<Record>());

/// Maximum number of frame numbers per slab. The frames that fit into a huge page are used, the
/// other numbers stay unused.
pub(super) const NUMBERS_MAX: usize = FRAMES_MAX.next_power_of_two();

/// Memory of a frame besides its bytes: its record, and its entry in the lists of frames.
pub(super) const FRAME_OVERHEAD_BYTES: usize = size_of::<Record>() + 8;

/// Flag in [`Record::pins`]: the last unpinning frees the frame.
pub(super) const RETIRED: u32 = 1 << 31;

/// Key of the block that a frame holds; 0 for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockKey(pub(super) u64);

/// Metadata of a frame. 32 bytes, so that it never spans two cache lines.
#[repr(C, align(32))]
#[derive(Default)]
pub(super) struct Record {
    /// The [`BlockKey`]; 0 while the frame holds no block.
    pub(super) key: AtomicU64,
    /// Pointer to the bytes of a large frame; null for small frames, whose address follows from
    /// their number.
    large: AtomicPtr<u8>,
    /// Length of the block's payload in bytes.
    pub(super) length: AtomicU32,
    /// Number of pins, and the flag [`RETIRED`].
    pub(super) pins: AtomicU32,
    /// Reference bit: 1 if the block was referenced since the last sweep.
    pub(super) mark: AtomicU32,
    /// Bytes reserved for a large frame.
    large_bytes: AtomicU32,
}

const _: () = assert!(size_of::<Record>() == 32 || IS_EXPLORED);

impl Record {
    /// Records how many bytes will be allocated for a large frame.
    pub(super) fn reserve_large(&self, bytes: u32) {
        debug_assert!(bytes > 0, "a large frame of no bytes");
        self.large_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The address of the frame's bytes, where `start` is what [`Slabs::frame`] returned. The
    /// caller owns or has pinned the frame, or found its key. Without that the frame can be taken
    /// anew meanwhile, and then `start` is not that of the new bytes if the frame is large.
    #[inline]
    pub(super) fn start(&self, start: *mut u8) -> *mut u8 {
        let large = self.large.load(Ordering::Relaxed);
        if large.is_null() { start } else { large }
    }

    /// Bytes reserved for a large frame; 0 for a small one.
    pub(super) fn large_bytes(&self) -> usize {
        self.large_bytes.load(Ordering::Relaxed) as usize
    }
}

#[derive(Default)]
struct SlabEntry {
    /// Null: no slab. `data` is set before this and does not change until another slab takes the
    /// entry.
    records: AtomicPtr<Record>,
    data: AtomicPtr<u8>,
}

/// The slabs of a cache, all with the same number of frames.
pub(super) struct Slabs {
    /// Log2 of the frame numbers per slab.
    shift: u32,
    /// Frames per slab: this many of the numbers are used.
    frames: usize,
    directory: AtomicPtr<Directory>,
    /// The memory by slab, kept only to free it: the directory has the addresses.
    memory: Mutex<Vec<Option<Pages>>>,
    /// The memory of large frames by number, kept only to free it: the records have the addresses.
    large: Mutex<BTreeMap<u32, Pages>>,
}

struct Directory {
    entries: Box<[SlabEntry]>,
    /// The previous, shorter directory, or null: readers may still use it.
    outgrown: *mut Directory,
}

impl Directory {
    fn leak(slabs: usize, outgrown: *mut Directory) -> *mut Directory {
        let entries = (0..slabs).map(|_| SlabEntry::default()).collect();
        Box::into_raw(Box::new(Self { entries, outgrown }))
    }
}

/// The memory of a slab that new readers cannot find any more. It is freed when this is dropped,
/// for which a grace period must have passed. Boxed, because entries for single frames share the
/// list with the few slabs.
pub(super) struct HiddenSlab {
    _memory: Box<Pages>,
}

/// Kind of the frames of a slab.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SlabKind {
    Small,
    Large,
}

impl Slabs {
    pub(super) fn new(shift: u32) -> Self {
        let frames = (1 << shift).min(FRAMES_MAX);
        assert!(frames > 0 && frames <= 1 << shift, "{frames} frames with numbers of {shift} bits");
        Self {
            shift,
            frames,
            directory: AtomicPtr::new(Directory::leak(0, ptr::null_mut())),
            memory: Mutex::default(),
            large: Mutex::default(),
        }
    }

    /// Frames per slab.
    pub(super) fn frames(&self) -> usize {
        self.frames
    }

    /// Bytes of a slab of this kind.
    pub(super) fn slab_bytes(&self, kind: SlabKind) -> usize {
        self.data_bytes(kind) + self.frames() * FRAME_OVERHEAD_BYTES
    }

    /// Bytes of the frames of a slab.
    fn data_bytes(&self, kind: SlabKind) -> usize {
        match kind {
            SlabKind::Small => self.frames * STRIDE_BYTES,
            SlabKind::Large => 0,
        }
    }

    pub(super) fn slab_of(&self, frame: u32) -> usize {
        (frame >> self.shift) as usize
    }

    /// The first frame of a slab.
    pub(super) fn first(&self, slab: usize) -> u32 {
        debug_assert!(slab <= self.slabs_max(), "slab {slab} of at most {}", self.slabs_max());
        (slab << self.shift) as u32
    }

    /// Maximum number of slabs; a slot stores the frame number plus one, which must fit as well.
    pub(super) fn slabs_max(&self) -> usize {
        (u32::MAX >> self.shift) as usize
    }

    #[inline]
    fn directory(&self) -> &[SlabEntry] {
        let directory = self.directory.load(Ordering::Acquire);
        // SAFETY: the pointer is always that of a directory from `Directory::leak`; directories are
        // freed only when `self` is dropped, and the reference ends before that.
        unsafe { &(*directory).entries }
    }

    /// Returns the record of a frame and the address of its bytes (null for a large frame without
    /// any); `None` if its slab is freed. For as long as it uses them, the caller is in a section,
    /// holds the cache's lock, or owns or has pinned the frame. A caller that finds the frame's key
    /// afterwards reads the bytes at [`Record::start`].
    #[inline]
    pub(super) fn frame(&self, frame: u32) -> Option<(&Record, *mut u8)> {
        let entry = self.directory().get(self.slab_of(frame))?;
        let records = entry.records.load(Ordering::Acquire);
        if records.is_null() {
            return None;
        }
        let place = frame as usize & ((1 << self.shift) - 1);
        if place >= self.frames {
            return None;
        }
        // SAFETY: a slab has `frames` records, initialised before the entry was set, and `place` is
        // below that. The records are freed only after the entry was cleared and a grace period has
        // passed, and never while a frame of the slab is owned or pinned. The caller guarantees
        // that it does not keep the reference longer than that.
        let record = unsafe { &*records.add(place) };
        // Set before `records`, and not changed before a grace period has passed, which this caller
        // delays.
        let data = entry.data.load(Ordering::Relaxed);
        if data.is_null() {
            return Some((record, record.large.load(Ordering::Relaxed)));
        }
        // SAFETY: the slab's data is `frames * STRIDE_BYTES` bytes and `place` is below `frames`.
        Some((record, unsafe { data.add(place * STRIDE_BYTES) }))
    }

    /// [`Self::frame`] without the bytes.
    pub(super) fn record(&self, frame: u32) -> Option<&Record> {
        self.frame(frame).map(|(record, _)| record)
    }

    /// Allocates a slab in the unused entry `slab`; false if there is no memory. The cache's lock
    /// is held.
    pub(super) fn install(&self, slab: usize, kind: SlabKind) -> bool {
        assert!(slab < self.slabs_max(), "slab {slab} of at most {}", self.slabs_max());
        self.grow_to(slab + 1);
        let Some(entry) = self.directory().get(slab) else {
            return false;
        };
        debug_assert!(entry.records.load(Ordering::Relaxed).is_null());
        let data_bytes = self.data_bytes(kind);
        let bytes = data_bytes + self.frames * size_of::<Record>();
        debug_assert!(bytes <= LARGE_PAGE_BYTES || IS_EXPLORED, "a slab of {bytes} bytes");
        // A slab at a multiple of a large page asks for one.
        let alignment_bytes = if bytes > LARGE_PAGE_BYTES / 2 { LARGE_PAGE_BYTES } else { LINE_BYTES };
        let Some(mut memory) = Pages::zeroed(bytes, alignment_bytes) else {
            return false;
        };
        let start = memory.as_mut_ptr();
        // SAFETY: the frames take the first `data_bytes` of the memory, and the records what is
        // left.
        let records = unsafe { start.add(data_bytes) }.cast::<Record>();
        assert!(records.is_aligned(), "records behind {data_bytes} bytes of frames");
        if IS_EXPLORED {
            for place in 0..self.frames {
                // SAFETY: within the memory, not yet visible to other threads.
                unsafe { records.add(place).write(Record::default()) };
            }
        }
        self.keep(slab, memory);
        entry.data.store(if data_bytes == 0 { ptr::null_mut() } else { start }, Ordering::Relaxed);
        // Zeroed records are empty: all fields are integers or a null pointer.
        entry.records.store(records, Ordering::Release);
        true
    }

    /// Hides a slab from new readers. The cache's lock is held; all its frames are free.
    pub(super) fn hide(&self, slab: usize) -> Option<HiddenSlab> {
        let entry = self.directory().get(slab)?;
        entry.records.swap(ptr::null_mut(), Ordering::AcqRel);
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.get_mut(slab)?.take().map(|memory| HiddenSlab { _memory: Box::new(memory) })
    }

    fn keep(&self, slab: usize, pages: Pages) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.len() <= slab {
            memory.resize_with(slab + 1, || None);
        }
        debug_assert!(memory[slab].is_none(), "the memory of slab {slab} is replaced while in use");
        memory[slab] = Some(pages);
    }

    /// Allocates the bytes that [`Record::reserve_large`] recorded, as [`Pages`]: large frames have
    /// many lengths, so an allocator could not reuse the memory of one for another. False if there
    /// is no memory. The caller owns the frame.
    pub(super) fn allocate_large(&self, frame: u32, record: &Record) -> bool {
        let Some(mut pages) = Pages::zeroed(record.large_bytes(), LINE_BYTES) else {
            return false;
        };
        record.large.store(pages.as_mut_ptr(), Ordering::Relaxed);
        let replaced = self.large.lock().unwrap_or_else(PoisonError::into_inner).insert(frame, pages);
        debug_assert!(replaced.is_none(), "the memory of frame {frame} is replaced while in use");
        true
    }

    /// Frees a large frame's bytes and returns how many were reserved.
    ///
    /// # Safety
    /// No thread reads them or can reach them: the caller owns the frame, or a grace period has
    /// passed since its key was cleared and it is not pinned.
    pub(super) unsafe fn free_large(&self, frame: u32, record: &Record) -> usize {
        record.large.store(ptr::null_mut(), Ordering::Relaxed);
        let pages = self.large.lock().unwrap_or_else(PoisonError::into_inner).remove(&frame);
        drop(pages); // Without the lock.
        record.large_bytes.swap(0, Ordering::Relaxed) as usize
    }

    /// Makes the directory at least `slabs` long. The cache's lock is held.
    fn grow_to(&self, slabs: usize) {
        let old = self.directory();
        if old.len() >= slabs {
            return;
        }
        let outgrown = self.directory.load(Ordering::Relaxed);
        let grown = Directory::leak(slabs.next_power_of_two().max(16), outgrown);
        // SAFETY: just allocated, and not shared yet.
        for (new, entry) in unsafe { &(*grown).entries }.iter().zip(old) {
            new.data.store(entry.data.load(Ordering::Relaxed), Ordering::Relaxed);
            new.records.store(entry.records.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        // Readers of the old directory see the slabs as they were: a slab hidden from now on is
        // freed only after a grace period, and later readers see the new directory.
        self.directory.store(grown, Ordering::Release);
    }
}

impl Drop for Slabs {
    fn drop(&mut self) {
        // No other thread uses the cache: sections, owned frames and pins all borrow it or hold a
        // reference. The memory is dropped with the fields.
        let mut directory = self.directory.load(Ordering::Relaxed);
        while !directory.is_null() {
            // SAFETY: from `Directory::leak`, each in this chain once, and no other thread uses it.
            let boxed = unsafe { Box::from_raw(directory) };
            directory = boxed.outgrown;
        }
    }
}
