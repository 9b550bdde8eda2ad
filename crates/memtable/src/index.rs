//! The digest index: finds the newest entry of a digest's chain in about one cache miss.
//!
//! A slot has eight bytes: a tag (the upper half of the digest's memtable remix) and a reference
//! into the arena; 0 is free. There is one slot for each *tag*. All entries of a tag form a chain
//! through `older`. The chain holds the versions of one key, and other keys only if they have the
//! same tag (one pair in 2^32).
//!
//! Slots are in *segments* of at most 544. A directory finds the segment by the first bits of the
//! tag. Within it, linear probing begins at a slot that the last bits of the tag determine. A
//! segment that is 7/8 full is copied into a larger one or into two. So a lookup never waits, and
//! no insert moves more than one segment. The segments of a large index lie together in large pages
//! of the system: each access goes to another segment, and would cost a walk through the page
//! table.
//!
//! Readers take no lock. A replaced segment is reused for a later one while readers may still be in
//! it. Entries that they find there are right all the same: a slot with their tag leads to a chain
//! of their tag, and a reader from before the replacement needs nothing that was inserted after it.
//! Only a *miss* may be wrong then. A miss therefore counts only if the *generation*, which is
//! incremented before a segment is reused, has not changed.
//!
//! Comparing keys and linking chains are the task of [`super::chunked`].

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Range;
use std::ptr::{self, NonNull};

use shamba_env::{LARGE_PAGE_BYTES, Pages};
use shamba_key::{KeyDigest, prefetch_address};

use super::arena::EntryRef;
use crate::sync::IS_EXPLORED;
use crate::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Lengths of segments, by *class*. The short ones serve small memtables. A full segment of the
/// last class becomes two of the same class. Its length is chosen for a full memtable of the
/// default size, 64 MiB of 116-byte entries: its segments are then nearly full and have not just
/// been split.
const LENS: [usize; 3] = if IS_EXPLORED { [4; 3] } else { [32, 128, 544] };
const LAST_CLASS: usize = LENS.len() - 1;
/// A segment is full when this many eighths of its slots are taken.
const FULL_EIGHTHS: usize = 7;
/// From this size of the index on, new segments are taken from large pages. As with the slabs of
/// the arena, the unused end of the last page is not counted: soon the index is twice as large.
const LARGE_PAGES_FROM_BYTES: usize = LARGE_PAGE_BYTES / 2;
/// Segments and directories start on a cache line, so the low bits of their addresses are free.
/// They hold the class of the segment and the depth of the directory.
const ALIGN: usize = 64;
const LOW_BITS: usize = ALIGN - 1;

/// Number of last bits of a tag that determine the first slot in its segment. At most 22 other bits
/// choose the segment, so the two do not overlap in any memtable.
const START_BITS: u32 = 10;

const _: () = assert!(LENS[LAST_CLASS] <= 1 << START_BITS, "every slot of a segment can be the first");
const _: () = assert!(LAST_CLASS <= LOW_BITS && u32::BITS as usize <= LOW_BITS, "class and depth fit");
const _: () = assert!(LENS[LAST_CLASS] * size_of::<Slot>() % ALIGN == 0 || IS_EXPLORED, "segments in a page");
const _: () = assert!(ALIGN.is_power_of_two(), "the low bits of an address are a mask");

type Slot = AtomicU64;

/// The readers' side.
pub(super) struct DigestIndex {
    /// The directory. The low bits of the address hold its depth: the number of tag bits that
    /// choose a place in it.
    directory: AtomicPtr<AtomicPtr<Slot>>,
    /// Number of times a segment was reused.
    generation: AtomicU64,
}

/// The writer's side.
pub(super) struct IndexWriter {
    depth: u32,
    /// For each place of the directory, the number of its segment.
    places: Vec<u32>,
    segments: Vec<Segment>,
    /// Replaced segments by class.
    spare: [Vec<NonNull<Slot>>; LENS.len()],
    /// Segments that were allocated one by one, with their classes.
    separate: Vec<(NonNull<Slot>, usize)>,
    /// Large pages with segments of the last class.
    pages: Vec<Page>,
    directories: Vec<Directory>,
    bytes: usize,
}

struct Segment {
    slots: NonNull<Slot>,
    class: usize,
    /// Number of tag bits that choose it.
    depth: u32,
    taken: usize,
}

struct Page {
    /// Start of the memory.
    start: NonNull<u8>,
    /// Bytes that are taken by segments.
    taken_bytes: usize,
    /// Accessed only through `start`; kept here to be dropped.
    _memory: Pages,
}

struct Directory {
    start: NonNull<AtomicPtr<Slot>>,
    layout: Layout,
}

// SAFETY: the writer owns its memory, and nothing in it is bound to a thread.
unsafe impl Send for IndexWriter {}

impl Drop for IndexWriter {
    fn drop(&mut self) {
        for (slots, class) in &self.separate {
            // SAFETY: allocated with this layout and freed once. The memtable drops the readers'
            // side at the same time.
            unsafe { dealloc(slots.as_ptr().cast(), segment_layout(*class)) };
        }
        for directory in &self.directories {
            // SAFETY: as above.
            unsafe { dealloc(directory.start.as_ptr().cast(), directory.layout) };
        }
    }
}

/// The slot of a tag, for the writer to store into.
pub(super) struct Place<'a> {
    slot: &'a Slot,
    tag: u32,
    /// The newest entry of the chain so far.
    pub head: Option<EntryRef>,
}

impl Place<'_> {
    /// Makes `entry` the first of the chain. From now on readers find it.
    #[inline]
    pub fn publish(self, entry: EntryRef) {
        self.slot.store(u64::from(self.tag) << 32 | u64::from(entry.bits()), Ordering::Release);
    }
}

impl DigestIndex {
    /// An empty index and its only writer.
    pub fn new() -> (Self, IndexWriter) {
        let index = Self { directory: AtomicPtr::new(ptr::null_mut()), generation: AtomicU64::new(0) };
        let mut writer = IndexWriter {
            depth: 0,
            places: vec![0],
            segments: Vec::new(),
            spare: [const { Vec::new() }; LENS.len()],
            separate: Vec::new(),
            pages: Vec::new(),
            directories: Vec::new(),
            bytes: 0,
        };
        let slots = writer.allocate(0);
        writer.segments.push(Segment { slots, class: 0, depth: 0, taken: 0 });
        index.publish_directory(&mut writer);
        (index, writer)
    }

    /// The first entry of the digest's chain.
    #[inline]
    pub fn find(&self, digest: KeyDigest) -> Option<EntryRef> {
        let tag = tag_of(digest);
        loop {
            let generation = self.generation.load(Ordering::Acquire);
            let (slots, class) = self.segment_of(tag);
            // SAFETY: segments of a class have its length and live as long as the index.
            let slots = unsafe { std::slice::from_raw_parts(slots, LENS[class]) };
            if let Some((_, bits)) = probe(slots, tag) {
                if let Some(entry) = EntryRef::from_bits(bits as u32) {
                    return Some(entry);
                }
            }
            // Every slot is read with acquire and written with release. A reader that has seen a
            // slot of a reused segment therefore sees the generation that was incremented before
            // the reuse.
            if self.generation.load(Ordering::Relaxed) == generation {
                return None;
            }
        }
    }

    /// Prefetches the cache line at which [`Self::find`] begins.
    #[inline]
    pub fn prefetch(&self, digest: KeyDigest) {
        let tag = tag_of(digest);
        let (slots, class) = self.segment_of(tag);
        prefetch_address(slots.wrapping_add(start_of(tag, LENS[class])).cast());
    }

    #[inline]
    fn segment_of(&self, tag: u32) -> (*const Slot, usize) {
        let tagged = self.directory.load(Ordering::Acquire);
        let depth = tagged.addr() & LOW_BITS;
        let directory = tagged.map_addr(|address| address & !LOW_BITS);
        let place = place_of(tag, depth as u32);
        // SAFETY: a directory has 2^depth places and lives as long as the index.
        let segment = unsafe { (*directory.add(place)).load(Ordering::Acquire) };
        let class = segment.addr() & LOW_BITS;
        (segment.map_addr(|address| address & !LOW_BITS), class)
    }

    /// The slot of a digest: its own, or a free one, which is then counted as taken.
    ///
    /// # Safety
    /// `writer` was made together with this index.
    pub unsafe fn place<'a>(&'a self, writer: &mut IndexWriter, digest: KeyDigest) -> Place<'a> {
        let tag = tag_of(digest);
        loop {
            let number = writer.places[place_of(tag, writer.depth)] as usize;
            let depth = writer.depth;
            let segment = &mut writer.segments[number];
            debug_assert!(
                segment.depth <= depth,
                "segment {number} of depth {} in a directory of {depth}",
                segment.depth
            );
            debug_assert!(
                segment.taken <= full(segment.class),
                "segment {number} has {} slots taken, but is full at {}",
                segment.taken,
                full(segment.class)
            );
            let len = LENS[segment.class];
            // SAFETY: segments of a class have its length and live as long as the index.
            let slots: &'a [Slot] = unsafe { std::slice::from_raw_parts(segment.slots.as_ptr(), len) };
            let (slot, bits) = probe(slots, tag).expect("a segment is never full");
            let head = EntryRef::from_bits(bits as u32);
            if head.is_none() {
                if segment.taken >= full(segment.class) {
                    self.replace(writer, number, tag);
                    continue;
                }
                segment.taken += 1;
            }
            return Place { slot, tag, head };
        }
    }

    /// Replaces a full segment, to which `tag` belongs, by a larger one or by two.
    fn replace(&self, writer: &mut IndexWriter, number: usize, tag: u32) {
        let Segment { slots, class, depth, taken } = writer.segments[number];
        assert_eq!(taken, full(class), "segment {number} of class {class} is replaced before it is full");
        if class < LAST_CLASS {
            writer.segments[number] = self.emptied(writer, class + 1, depth);
        } else {
            assert!(depth < u32::BITS, "segment {number} has one tag only, which cannot fill it");
            if depth == writer.depth {
                self.deepen(writer);
            }
            // The next bit of the tag distinguishes the two.
            let high = writer.segments.len();
            writer.segments[number] = self.emptied(writer, class, depth + 1);
            let segment = self.emptied(writer, class, depth + 1);
            writer.segments.push(segment);
            let bit = 1 << (31 - depth);
            writer.places[places_of(tag | bit, depth + 1, writer.depth)].fill(high as u32);
        }
        // SAFETY: it was a live segment of its class until now, and keeps its contents.
        let old = unsafe { std::slice::from_raw_parts(slots.as_ptr(), LENS[class]) };
        let mut moved = 0;
        for bits in old.iter().map(|slot| slot.load(Ordering::Relaxed)).filter(|bits| *bits != 0) {
            let tag = (bits >> 32) as u32;
            let segment = &mut writer.segments[writer.places[place_of(tag, writer.depth)] as usize];
            segment.taken += 1;
            // SAFETY: a segment of its class, into which only this writer stores.
            let slots = unsafe { std::slice::from_raw_parts(segment.slots.as_ptr(), LENS[segment.class]) };
            let (slot, _) = probe(slots, tag).expect("not even all of a full segment fill another");
            slot.store(bits, Ordering::Release);
            moved += 1;
        }
        assert_eq!(moved, taken, "segment {number} of {taken} tags was replaced by one or two of {moved}");
        let directory = writer.directories.last().expect("made with the index");
        for place in places_of(tag, depth, writer.depth) {
            let segment = writer.segments[writer.places[place] as usize].tagged();
            // SAFETY: the directory is as long as the places.
            unsafe { &*directory.start.as_ptr().add(place) }.store(segment, Ordering::Release);
        }
        writer.spare[class].push(slots);
    }

    /// A segment without entries. Only readers that still use it from before its reuse can see it.
    fn emptied(&self, writer: &mut IndexWriter, class: usize, depth: u32) -> Segment {
        let slots = match writer.spare[class].pop() {
            None => writer.allocate(class),
            Some(start) => {
                // Before the first store: see `find`.
                self.generation.fetch_add(1, Ordering::AcqRel);
                // SAFETY: a spare segment of its class, into which only this writer stores.
                let slots = unsafe { std::slice::from_raw_parts(start.as_ptr(), LENS[class]) };
                slots.iter().for_each(|slot| slot.store(0, Ordering::Release));
                start
            }
        };
        Segment { slots, class, depth, taken: 0 }
    }

    /// Doubles the directory.
    fn deepen(&self, writer: &mut IndexWriter) {
        writer.places = writer.places.iter().flat_map(|place| [*place, *place]).collect();
        writer.depth += 1;
        self.publish_directory(writer);
    }

    /// Publishes a directory made from the places.
    fn publish_directory(&self, writer: &mut IndexWriter) {
        assert_eq!(
            writer.places.len(),
            1 << writer.depth,
            "a directory of depth {} has another number of places",
            writer.depth
        );
        let layout = Layout::array::<AtomicPtr<Slot>>(writer.places.len())
            .and_then(|layout| layout.align_to(ALIGN))
            .expect("a directory of at most 2^24 places");
        // SAFETY: there is at least one place, so the size is not 0.
        let Some(start) = NonNull::new(unsafe { alloc_zeroed(layout) }.cast::<AtomicPtr<Slot>>()) else {
            handle_alloc_error(layout)
        };
        for (place, number) in writer.places.iter().enumerate() {
            let segment = writer.segments[*number as usize].tagged();
            // SAFETY: within the layout, and not yet visible to other threads.
            unsafe { start.as_ptr().add(place).write(AtomicPtr::new(segment)) };
        }
        assert!(start.as_ptr().addr() & LOW_BITS == 0, "the directory at {start:?} hides its depth");
        writer.directories.push(Directory { start, layout });
        writer.bytes += layout.size();
        let tagged = start.as_ptr().map_addr(|address| address | writer.depth as usize);
        self.directory.store(tagged, Ordering::Release);
    }
}

impl IndexWriter {
    /// All memory of the writer's and the readers' side.
    pub fn bytes(&self) -> usize {
        self.bytes + self.places.len() * 4 + self.segments.len() * size_of::<Segment>()
    }

    fn allocate(&mut self, class: usize) -> NonNull<Slot> {
        let is_in_page = class == LAST_CLASS && self.bytes >= LARGE_PAGES_FROM_BYTES && !IS_EXPLORED;
        if let Some(slots) = is_in_page.then(|| self.allocate_in_page()).flatten() {
            return slots;
        }
        let layout = segment_layout(class);
        self.bytes += layout.size();
        // SAFETY: no class has length 0. Zero is a valid slot.
        let Some(slots) = NonNull::new(unsafe { alloc_zeroed(layout) }.cast::<Slot>()) else {
            handle_alloc_error(layout)
        };
        assert!(slots.as_ptr().addr() & LOW_BITS == 0, "the segment at {slots:?} hides its class");
        if IS_EXPLORED {
            for place in 0..LENS[class] {
                // SAFETY: within the layout, and not yet visible to other threads.
                unsafe { slots.add(place).write(Slot::default()) };
            }
        }
        self.separate.push((slots, class));
        slots
    }

    /// The next segment of the last class in a large page; `None` if there is no memory for a page.
    fn allocate_in_page(&mut self) -> Option<NonNull<Slot>> {
        let segment_bytes = segment_layout(LAST_CLASS).size();
        let has_room = |page: &Page| page.taken_bytes + segment_bytes <= LARGE_PAGE_BYTES;
        if !self.pages.last().is_some_and(has_room) {
            let mut memory = Pages::zeroed(LARGE_PAGE_BYTES, LARGE_PAGE_BYTES)?;
            let start = NonNull::new(memory.as_mut_ptr())?;
            self.pages.push(Page { start, taken_bytes: 0, _memory: memory });
        }
        let page = self.pages.last_mut()?;
        // SAFETY: the page has room for a segment from there on. Zero is a valid slot, and the
        // length of a segment is a multiple of a cache line.
        let slots = unsafe { page.start.add(page.taken_bytes) };
        page.taken_bytes += segment_bytes;
        self.bytes += segment_bytes;
        Some(slots.cast::<Slot>())
    }
}

impl Segment {
    fn tagged(&self) -> *mut Slot {
        self.slots.as_ptr().map_addr(|address| address | self.class)
    }
}

fn segment_layout(class: usize) -> Layout {
    Layout::array::<Slot>(LENS[class]).and_then(|layout| layout.align_to(ALIGN)).expect("a few kilobytes")
}

#[inline]
fn tag_of(digest: KeyDigest) -> u32 {
    (digest.memtable_slot() >> 32) as u32
}

/// The place of a tag in a directory of `depth`.
#[inline]
fn place_of(tag: u32, depth: u32) -> usize {
    (u64::from(tag) >> (32 - depth)) as usize
}

/// The places, in a directory of `directory_depth`, of the segment of `depth` to which `tag`
/// belongs.
fn places_of(tag: u32, depth: u32, directory_depth: u32) -> Range<usize> {
    debug_assert!(depth <= directory_depth, "a segment of depth {depth} in a directory of {directory_depth}");
    let step = directory_depth - depth;
    let first = place_of(tag, depth) << step;
    first..first + (1 << step)
}

/// Maximum number of taken slots in a segment.
#[inline]
fn full(class: usize) -> usize {
    LENS[class] * FULL_EIGHTHS / 8
}

/// The slot at which the probing of a segment of `len` slots begins, from tag bits that do not
/// choose the segment.
#[inline]
fn start_of(tag: u32, len: usize) -> usize {
    ((tag & ((1 << START_BITS) - 1)) as usize * len) >> START_BITS
}

/// The slot of the tag and its contents, or the free slot that ends the search.
#[inline]
fn probe(slots: &[Slot], tag: u32) -> Option<(&Slot, u64)> {
    let (before, from) = slots.split_at_checked(start_of(tag, slots.len()))?;
    for slot in from.iter().chain(before) {
        let bits = slot.load(Ordering::Acquire);
        if bits == 0 || (bits >> 32) as u32 == tag {
            return Some((slot, bits));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All memory of an index, piece by piece.
    fn held_bytes(writer: &IndexWriter) -> usize {
        let separate = writer.separate.iter().map(|(_, class)| segment_layout(*class).size());
        let in_pages = writer.pages.iter().map(|page| page.taken_bytes);
        let directories = writer.directories.iter().map(|directory| directory.layout.size());
        let readers: usize = separate.chain(in_pages).chain(directories).sum();
        readers + size_of_val(&writer.places[..]) + size_of_val(&writer.segments[..])
    }

    /// Large pages begin at their size of the index, and each is filled before the next.
    fn check_pages(writer: &IndexWriter) {
        let is_small = writer.bytes < LARGE_PAGES_FROM_BYTES;
        assert!(!is_small || writer.pages.is_empty(), "a large page in an index of {} bytes", writer.bytes);
        let segment_bytes = segment_layout(LAST_CLASS).size();
        for (number, page) in writer.pages.iter().enumerate() {
            let taken_bytes = page.taken_bytes;
            assert!(taken_bytes <= LARGE_PAGE_BYTES, "{taken_bytes} bytes of page {number} are taken");
            let is_last = number + 1 == writer.pages.len();
            assert!(
                is_last || taken_bytes + segment_bytes > LARGE_PAGE_BYTES,
                "page {number} has room for a segment after {taken_bytes} bytes"
            );
        }
    }

    #[test]
    fn an_index_in_large_pages_finds_every_chain_and_counts_its_segments() {
        const TAGS: u64 = 400_000;
        let digest = |number: u64| KeyDigest::from_raw(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let entry = |number: u64| EntryRef::from_bits(number as u32 + 1);
        let (index, mut writer) = DigestIndex::new();
        let mut chains = std::collections::BTreeMap::new();
        assert_eq!(writer.bytes(), held_bytes(&writer), "empty");
        let mut segments = 0;
        for number in 0..TAGS {
            // SAFETY: the writer was made with the index.
            let place = unsafe { index.place(&mut writer, digest(number)) };
            let before = chains.insert(tag_of(digest(number)), entry(number));
            assert_eq!(place.head, before.flatten(), "tag of {number}");
            place.publish(entry(number).expect("not 0"));
            if segments != writer.segments.len() {
                segments = writer.segments.len();
                assert_eq!(writer.bytes(), held_bytes(&writer), "{segments} segments");
                check_pages(&writer);
            }
        }
        for number in 0..TAGS {
            assert_eq!(index.find(digest(number)), chains[&tag_of(digest(number))], "tag of {number}");
        }
        assert!(writer.pages.len() >= 2, "{} large pages", writer.pages.len());
        let taken = |start: NonNull<Slot>| start.as_ptr().addr();
        let mut starts: Vec<usize> = writer.segments.iter().map(|segment| taken(segment.slots)).collect();
        starts.extend(writer.spare[LAST_CLASS].iter().map(|slots| taken(*slots)));
        starts.sort_unstable();
        let apart = segment_layout(LAST_CLASS).size();
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= apart), "segments overlap");
        let counted: usize = writer.pages.iter().map(|page| page.taken_bytes).sum();
        assert!(writer.bytes() > counted, "{} bytes with {counted} in pages", writer.bytes());
        assert!(writer.bytes() < 3 * TAGS as usize * size_of::<Slot>(), "{} bytes", writer.bytes());
    }
}
