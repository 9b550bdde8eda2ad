//! The registry of a database's iterators: it revokes what idle ones hold, and counts it.
//!
//! The state that a scan does not need between two calls is in a [`Slot`], which the registry
//! lists. Views are revoked for two reasons:
//! - they are old and keep memtables and obsolete files alive ([`IterRegistry::revoke_idle`]);
//! - all iterators together, with the blocks that they pin, exceed their part of the memory budget
//!   ([`IterRegistry::relieve`]).
//!
//! So a thousand open iterators take no more memory than a few.
//!
//! All of it is charged to the ledger: the iterators here, entries found ahead by the scan, blocks
//! outside the cache and read-ahead buffers by the code that reads them.
//!
//! A scan's behaviour after its view was revoked is in [`super::scan`].

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use shamba_env::{Share, THREAD_GROUPS, thread_number};
use shamba_table::{Charge, Ledger, LedgerPart, ReadCounters};

use super::batch::Batch;
use super::later::ValueCost;
use super::slot;
use super::visible::VisibleIter;
use crate::counters::Countdown;
use crate::lookup::pool::ReadPool;
use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::view::View;

/// Maximum number of slots of ended scans that a shard keeps: a thread seldom has more scans open
/// at once, and ends them all.
const SPARE_MAX: usize = 4;
const _: () = assert!(SWEEP_SLOTS_MIN > 0, "a shard has slots before it is swept");
/// Minimum number of slots at which a shard removes those of ended iterators.
const SWEEP_SLOTS_MIN: usize = 64;
/// Bytes that an iterator is assumed to hold per run besides itself: a block of 4 KiB, in a pinned
/// cache frame or outside the cache, and the key of its entry, rounded up.
const OF_RUN_BYTES: u64 = (4 << 10) + 1536;
/// Memory is requested for half as much again as iterators hold, but the excess is at least a 16th
/// and at most half of the limit. So requests are rare, and made in time.
const AHEAD_PARTS: (u64, u64) = (2, 16);

/// The owner of a scan, which keeps the database open and locked.
pub trait Owner: Send + Sync {
    /// The registry of all scans of the database.
    fn iterators(&self) -> &IterRegistry;

    /// The threads that read values of scans in parallel; `None`: a scan reads them in turn.
    fn reading_threads(&self) -> Option<&ReadPool> {
        None
    }

    /// The pool for the reads of a seek in several runs; `None`: they have been fast, and are made
    /// in turn.
    fn cold_reads(&self) -> Option<&ReadPool> {
        None
    }
}

impl<O: Owner> Owner for Share<O> {
    fn iterators(&self) -> &IterRegistry {
        (**self).iterators()
    }

    fn reading_threads(&self) -> Option<&ReadPool> {
        (**self).reading_threads()
    }

    fn cold_reads(&self) -> Option<&ReadPool> {
        (**self).cold_reads()
    }
}

/// Scans without a database, in tests.
#[cfg(test)]
impl Owner for IterRegistry {
    fn iterators(&self) -> &IterRegistry {
        self
    }
}

/// Takes memory from the cache, as far as iterators and other consumers need it.
type MakeRoom = Box<dyn Fn() + Send + Sync>;

/// The registry of a database's iterators.
pub struct IterRegistry {
    shards: [Padded; THREAD_GROUPS],
    revoked: AtomicU64,
    ledger: Arc<Ledger>,
    /// Maximum that iterators may hold together.
    limit_bytes: AtomicU64,
    /// Estimate of what the iterators in the slots hold, blocks included.
    live_bytes: Arc<AtomicU64>,
    /// Bytes in the ledger beyond which memory is requested again.
    ask_bytes: AtomicU64,
    make_room: OnceLock<MakeRoom>,
    /// Seed of the next new slot's countdown.
    next_seed: AtomicU64,
    /// Number of the shard at which the next relief begins, so that the burden rotates.
    next_relieved: AtomicUsize,
}

/// A shard in cache lines of its own; two of them, because processors prefetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

#[derive(Default)]
struct Shard {
    slots: Vec<Weak<Slot>>,
    /// Slots of ended scans, for new scans. Their iterators are kept, unless their view was
    /// revoked, as from any idle scan.
    spare: Vec<Spare>,
    /// Work of scans that ended in this shard.
    walked: Walked,
    /// Number of slots at which those of ended iterators are removed: twice the number that
    /// remained last time, so that the cost per registration is constant.
    sweep_at: usize,
}

/// Work of scans: the number of seeks, of entries read, of filters asked, and reads from files.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Walked {
    /// Times that a scan was placed.
    pub ranges: u64,
    /// Entries that scans read.
    pub entries: u64,
    /// Filters tested for the prefix of a scan.
    pub filters: u64,
    /// Runs that scans left out, because their filters denied the prefix.
    pub runs_skipped: u64,
    /// Reports of long scans that include no seek.
    pub goings_on: u64,
    /// Values that scans read from value files.
    pub values: ValueCost,
    /// Reads of scans in tables.
    pub reads: ReadCounters,
}

impl Walked {
    fn add(&mut self, mut other: Self) {
        self.ranges += other.ranges;
        self.entries += other.entries;
        self.filters += other.filters;
        self.runs_skipped += other.runs_skipped;
        self.goings_on += other.goings_on;
        self.values = self.values.plus(other.values);
        other.reads.move_to(&mut self.reads);
    }
}

/// The reusable parts of a scan that ended.
pub struct Spare {
    /// Slot of the scan's iterator.
    pub slot: Arc<Slot>,
    /// Buffer of entries read ahead.
    pub found: Batch,
    /// Memory of `found`.
    pub charge: Charge,
    /// Seeks until the next one that is sampled. Passed on from scan to scan.
    pub countdown: Countdown,
}

/// The slot of a scan.
pub type Slot = slot::Slot<Live>;

/// An iterator and the memory that is counted for it.
pub struct Live {
    /// The iterator.
    pub iter: VisibleIter,
    _charge: Charge,
    _held: Held,
}

/// A part of the sum of what live iterators hold; subtracted on drop.
struct Held {
    sum_bytes: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        let before = self.sum_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        debug_assert!(
            before >= self.bytes,
            "{} of {before} bytes of live iterators are released",
            self.bytes
        );
    }
}

impl IterRegistry {
    /// An empty registry, for iterators that together may hold about `limit_bytes`. The seed
    /// determines which seeks are sampled.
    pub fn new(ledger: Arc<Ledger>, limit_bytes: u64, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            shards: std::array::from_fn(|_| Padded::default()),
            revoked: AtomicU64::new(0),
            ledger,
            limit_bytes: AtomicU64::new(limit_bytes),
            live_bytes: Arc::default(),
            ask_bytes: AtomicU64::new(0),
            make_room: OnceLock::new(),
            next_seed: AtomicU64::new(seed),
            next_relieved: AtomicUsize::new(0),
        })
    }

    /// Changes the limit of what iterators may hold together.
    pub fn set_limit_bytes(&self, bytes: u64) {
        self.limit_bytes.store(bytes, Ordering::Relaxed);
    }

    fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Revokes the view and the blocks of every idle iterator whose view is `stale`. Iterators in
    /// the middle of a call give theirs up at its end. Returns the number revoked at once.
    pub fn revoke_idle(&self, stale: impl Fn(&View) -> bool) -> usize {
        let mut taken = Vec::new();
        for slot in self.shards.iter().flat_map(slots) {
            taken.extend(slot.revoke(|live| stale(live.iter.view())));
        }
        self.revoked.fetch_add(taken.len() as u64, Ordering::Relaxed);
        // The views taken may hold the last references to files and memtables; they are dropped
        // here, outside all locks.
        taken.len()
    }

    /// If all iterators hold more than their limit, revokes views of any age from idle iterators
    /// other than that of `own`, until they hold half of it.
    #[inline]
    pub fn relieve(&self, own: &Arc<Slot>) {
        if self.live_bytes.load(Ordering::Relaxed) > self.limit_bytes() {
            self.take_from_others(Some(own), self.limit_bytes() / 2);
        }
        if self.ledger.bytes(LedgerPart::Iterators) > self.ask_bytes.load(Ordering::Relaxed) {
            if let Some(make_room) = self.make_room.get() {
                make_room();
            }
        }
    }

    /// Sets a callback for the growth of iterators beyond [`Self::room_wanted_bytes`]. It is called
    /// by the thread that moved an iterator.
    pub fn on_growth(&self, make_room: MakeRoom) {
        let _ = self.make_room.set(make_room);
    }

    /// The memory to make available to iterators: what they hold, and some more. Sets the size
    /// beyond which the callback is called again, after half of the excess: an iterator grows
    /// during a call and checks at its end, so calls on other threads need the other half.
    pub fn room_wanted_bytes(&self) -> u64 {
        let bytes = self.ledger.bytes(LedgerPart::Iterators);
        let (most, least) = AHEAD_PARTS;
        debug_assert!(most <= least, "the room grows by 1/{least} to 1/{most} of the limit");
        // Loaded once: it may change meanwhile.
        let limit_bytes = self.limit_bytes();
        let ahead_bytes = (bytes / 2).clamp(limit_bytes / least, limit_bytes / most);
        self.ask_bytes.store(bytes + ahead_bytes / 2, Ordering::Relaxed);
        bytes + ahead_bytes
    }

    /// Revokes the views of all idle iterators, because their blocks are needed.
    pub fn revoke_all(&self) {
        self.take_from_others(None, 0);
    }

    /// Revokes views until all iterators hold no more than `until_bytes`.
    #[cold]
    fn take_from_others(&self, own: Option<&Arc<Slot>>, until_bytes: u64) {
        for _ in 0..THREAD_GROUPS {
            let number = self.next_relieved.fetch_add(1, Ordering::Relaxed);
            for slot in slots(&self.shards[number % THREAD_GROUPS]) {
                if self.live_bytes.load(Ordering::Relaxed) <= until_bytes {
                    return;
                }
                if own.is_some_and(|own| Arc::ptr_eq(&slot, own)) {
                    continue;
                }
                // An iterator in the middle of a call is skipped: it needs what it holds.
                if let Some(taken) = slot.take_idle() {
                    // Dropped outside the lock: these may be the last references to files and
                    // memtables.
                    drop(taken);
                    self.revoked.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Whether iterators hold more than their limit; scans should then keep few entries found
    /// ahead.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.ledger.bytes(LedgerPart::Iterators) > self.limit_bytes()
    }

    /// A charge for the entries that a scan has found.
    pub fn charge(&self) -> Charge {
        Charge::new(&self.ledger, LedgerPart::Iterators, 0)
    }

    /// Counts the memory of an iterator from now on.
    pub fn live(&self, iter: VisibleIter) -> Live {
        let own_bytes = iter.memory_bytes() as u64;
        let bytes = own_bytes + iter.view().plans().len() as u64 * OF_RUN_BYTES;
        self.live_bytes.fetch_add(bytes, Ordering::Relaxed);
        let charge = Charge::new(&self.ledger, LedgerPart::Iterators, own_bytes);
        Live { iter, _charge: charge, _held: Held { sum_bytes: Arc::clone(&self.live_bytes), bytes } }
    }

    /// Number of views revoked from idle iterators so far.
    pub fn revoked(&self) -> u64 {
        self.revoked.load(Ordering::Relaxed)
    }

    /// Number of iterators that hold a view now.
    #[cfg(test)]
    pub fn pinned(&self) -> usize {
        self.shards.iter().flat_map(slots).filter(|slot| slot.enter().is_some()).count()
    }

    /// Number of listed slots, including those of ended iterators.
    #[cfg(test)]
    pub fn places(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).slots.len()).sum()
    }

    /// A slot for a scan: the last one that a scan of this thread has left, or a new one.
    pub fn take(&self) -> Spare {
        let mut shard = lock(self.shard());
        if let Some(spare) = shard.spare.pop() {
            return spare;
        }
        let slot = Arc::<Slot>::default();
        if shard.slots.len() >= shard.sweep_at.max(SWEEP_SLOTS_MIN) {
            shard.slots.retain(|slot| slot.strong_count() > 0);
            shard.sweep_at = 2 * shard.slots.len();
            debug_assert!(shard.sweep_at >= shard.slots.len(), "a sweep at {} slots", shard.sweep_at);
        }
        shard.slots.push(Arc::downgrade(&slot));
        let countdown = Countdown::new(self.next_seed.fetch_add(1, Ordering::Relaxed));
        Spare { slot, found: Batch::default(), charge: self.charge(), countdown }
    }

    /// Takes back the reusable parts of a scan that ends.
    pub fn leave(&self, spare: Spare, walked: Walked) {
        let mut live = spare.slot.enter();
        if let Some(live) = live.as_mut() {
            live.iter.release();
        }
        drop(spare.slot.leave(live, false));
        self.note_walked(walked);
        let mut shard = lock(self.shard());
        if shard.spare.len() < SPARE_MAX {
            shard.spare.push(spare);
        }
        debug_assert!(shard.spare.len() <= SPARE_MAX, "{} spare iterators", shard.spare.len());
    }

    /// Adds the work of a scan. A report without a seek comes from a scan that has reported before.
    pub fn note_walked(&self, walked: Walked) {
        let goings_on = u64::from(walked.ranges == 0 && walked.entries > 0);
        lock(self.shard()).walked.add(Walked { goings_on, ..walked });
    }

    /// The work of all scans, without the last part of those that still go on.
    pub fn walked(&self) -> Walked {
        let mut sum = Walked::default();
        self.shards.iter().for_each(|shard| sum.add(lock(shard).walked));
        sum
    }

    /// The shard of this thread.
    fn shard(&self) -> &Padded {
        &self.shards[thread_number() % THREAD_GROUPS]
    }
}

/// The slots of a shard's iterators, for use without the shard's lock.
fn slots(shard: &Padded) -> Vec<Arc<Slot>> {
    lock(shard).slots.iter().filter_map(Weak::upgrade).collect()
}

fn lock(shard: &Padded) -> MutexGuard<'_, Shard> {
    // A panic leaves a shard valid, so a poisoned lock can be used.
    shard.0.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_requested_while_half_of_the_room_is_left() {
        let ledger = Arc::new(Ledger::new());
        let registry = IterRegistry::new(Arc::clone(&ledger), 1 << 20, 1);
        let requests = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&requests);
        registry.on_growth(Box::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        }));
        let own = registry.take().slot;
        for held_bytes in [0, 100 << 10, 1 << 20] {
            let mut charge = Charge::new(&ledger, LedgerPart::Iterators, held_bytes);
            let more_bytes = registry.room_wanted_bytes() - held_bytes;
            requests.store(0, Ordering::Relaxed);
            charge.resize(held_bytes + more_bytes / 2);
            registry.relieve(&own);
            assert_eq!(requests.load(Ordering::Relaxed), 0, "{held_bytes} bytes and half of {more_bytes}");
            charge.resize(held_bytes + more_bytes / 2 + 1);
            registry.relieve(&own);
            assert_eq!(requests.load(Ordering::Relaxed), 1, "{held_bytes} bytes and half of {more_bytes}");
        }
    }
}
