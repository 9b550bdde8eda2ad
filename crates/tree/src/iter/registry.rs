//! All iterators of a database: where what they hold can be taken from them, and how much of it there is.
//!
//! What a scan can do without between two calls lies in a [`Slot`], which the registry lists. Views are taken for two
//! reasons: they are old, and keep memtables and dead files alive ([`IterRegistry::revoke_idle`]); or what all of them
//! hold together, with the blocks that they pin, goes beyond what iterators may have of the memory budget
//! ([`IterRegistry::relieve`]). So a thousand open iterators take no more than a few do.
//!
//! Each part of it is charged to the ledger: the iterators here, what a scan has found ahead by the scan, blocks
//! outside the cache and what was read ahead by those who read them.
//!
//! Not here: what a scan does when its view is gone ([`super::scan`]).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use shamba_table::{Charge, Ledger, LedgerPart};

use super::batch::Batch;
use super::slot;
use super::visible::VisibleIter;
use crate::counters::Countdown;
use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::view::View;

/// Creating iterators on many threads must not queue at one lock.
const SHARDS: usize = 16;
/// What a shard keeps of scans that ended: a thread seldom has more of them open than this, and ends them all.
const SPARE_MAX: usize = 4;
/// A shard drops the places of ended iterators when it has at least so many.
const SWEEP_AT_LEAST: usize = 64;
/// What an iterator may hold of each run beside itself: a block, in a frame of the cache that it pins or outside, and
/// some entries of it taken apart.
const OF_RUN_BYTES: u64 = (4 << 10) + 1536;
/// Room is made for half as much again as there is, but for no more or less than these parts of the limit: so that it is
/// seldom made, and in time.
const AHEAD_PARTS: (u64, u64) = (2, 16);

/// Keeps the database open and locked: every scan holds one.
pub trait Owner: Send + Sync {
    /// The registry of all scans of the database.
    fn iterators(&self) -> &IterRegistry;
}

/// Scans without a database, in tests.
#[cfg(test)]
impl Owner for IterRegistry {
    fn iterators(&self) -> &IterRegistry {
        self
    }
}

/// Takes memory from the cache, as far as iterators and the others need it.
type MakeRoom = Box<dyn Fn() + Send + Sync>;

/// All iterators of a database, so that their views can be taken from those that are idle.
pub struct IterRegistry {
    shards: [Mutex<Shard>; SHARDS],
    revoked: AtomicU64,
    ledger: Arc<Ledger>,
    /// What iterators may hold together.
    limit_bytes: u64,
    /// About what those in the slots hold, blocks included.
    live_bytes: Arc<AtomicU64>,
    /// What room was made for.
    room_bytes: AtomicU64,
    make_room: OnceLock<MakeRoom>,
    /// From which the countdown of the next slot follows.
    next_seed: AtomicU64,
    /// Where the next relief begins: no iterator is always the first to lose its view.
    next_relieved: AtomicUsize,
}

#[derive(Default)]
struct Shard {
    slots: Vec<Weak<Slot>>,
    /// Slots of scans that ended, for those that begin: with their iterators, whose view is the newest, or was
    /// taken as from any idle scan.
    spare: Vec<Spare>,
    /// What scans that ended here did.
    walked: Walked,
    /// At this length ended iterators are swept out: twice what was left last time, so that each
    /// registration pays for one place.
    sweep_at: usize,
}

/// What scans did: how often they began somewhere, and the entries that they read.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Walked {
    /// Times that a scan was placed.
    pub ranges: u64,
    /// Entries that scans read.
    pub entries: u64,
    /// Parts of long scans, without their beginnings.
    pub goings_on: u64,
}

/// What a scan leaves behind.
pub struct Spare {
    /// Where the iterator of the scan lies.
    pub slot: Arc<Slot>,
    /// Buffer of entries read ahead.
    pub found: Batch,
    /// Memory of `found`.
    pub charge: Charge,
    /// To the next seek that is sampled. It goes from scan to scan.
    pub countdown: Countdown,
}

/// Where a scan keeps what can be taken from it.
pub type Slot = slot::Slot<Live>;

/// An iterator and what it counts for.
pub struct Live {
    /// The iterator.
    pub iter: VisibleIter,
    _charge: Charge,
    _held: Held,
}

/// A part of the sum of what live iterators hold, for as long as this is there.
struct Held {
    sum_bytes: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.sum_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl IterRegistry {
    /// A registry without iterators, which together may take about `limit_bytes`. From the seed follows which seeks are sampled.
    pub fn new(ledger: Arc<Ledger>, limit_bytes: u64, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            revoked: AtomicU64::new(0),
            ledger,
            limit_bytes,
            live_bytes: Arc::default(),
            room_bytes: AtomicU64::new(0),
            make_room: OnceLock::new(),
            next_seed: AtomicU64::new(seed),
            next_relieved: AtomicUsize::new(0),
        })
    }

    /// Takes the view and the blocks from every idle iterator whose view is `stale`; those in the middle of a
    /// call give theirs up at its end. Tells how many were taken at once.
    pub fn revoke_idle(&self, stale: impl Fn(&View) -> bool) -> usize {
        let mut taken = Vec::new();
        for slot in self.shards.iter().flat_map(slots) {
            taken.extend(slot.revoke(|live| stale(live.iter.view())));
        }
        self.revoked.fetch_add(taken.len() as u64, Ordering::Relaxed);
        // What was taken may be the last hold on files and memtables; it is let go here, outside all locks.
        taken.len()
    }

    /// Takes views, whatever their age, from idle iterators other than that of `own` when all of them hold more than
    /// they may, until they hold half of it.
    #[inline]
    pub fn relieve(&self, own: &Arc<Slot>) {
        if self.live_bytes.load(Ordering::Relaxed) > self.limit_bytes {
            self.take_from_others(Some(own), self.limit_bytes / 2);
        }
        if self.ledger.bytes(LedgerPart::Iterators) > self.room_bytes.load(Ordering::Relaxed) {
            if let Some(make_room) = self.make_room.get() {
                make_room();
            }
        }
    }

    /// `make_room` is called when iterators have grown beyond [`Self::room_wanted_bytes`], by whoever moved one.
    pub fn on_growth(&self, make_room: MakeRoom) {
        let _ = self.make_room.set(make_room);
    }

    /// What room is to be made for from now on: what iterators have, and a little more.
    pub fn room_wanted_bytes(&self) -> u64 {
        let bytes = self.ledger.bytes(LedgerPart::Iterators);
        let (most, least) = AHEAD_PARTS;
        let room_bytes = bytes + (bytes / 2).clamp(self.limit_bytes / least, self.limit_bytes / most);
        self.room_bytes.store(room_bytes, Ordering::Relaxed);
        room_bytes
    }

    /// Takes the views of all idle iterators: their blocks are wanted.
    pub fn revoke_all(&self) {
        self.take_from_others(None, 0);
    }

    /// Takes views until all iterators hold no more than `until_bytes`.
    #[cold]
    fn take_from_others(&self, own: Option<&Arc<Slot>>, until_bytes: u64) {
        for _ in 0..SHARDS {
            let number = self.next_relieved.fetch_add(1, Ordering::Relaxed);
            for slot in slots(&self.shards[number % SHARDS]) {
                if self.live_bytes.load(Ordering::Relaxed) <= until_bytes {
                    return;
                }
                if own.is_some_and(|own| Arc::ptr_eq(&slot, own)) {
                    continue;
                }
                // Whoever is in the middle of a call goes on: it holds what it needs.
                if let Some(taken) = slot.take_idle() {
                    drop(taken); // Perhaps the last hold on files and memtables: outside the lock.
                    self.revoked.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Whether iterators have more than they may: then scans should keep little of what they find ahead.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.ledger.bytes(LedgerPart::Iterators) > self.limit_bytes
    }

    /// A charge for what a scan has found.
    pub fn charge(&self) -> Charge {
        Charge::new(&self.ledger, LedgerPart::Iterators, 0)
    }

    /// An iterator that counts from now on.
    pub fn live(&self, iter: VisibleIter) -> Live {
        let own_bytes = iter.memory_bytes() as u64;
        let bytes = own_bytes + iter.view().plans().len() as u64 * OF_RUN_BYTES;
        self.live_bytes.fetch_add(bytes, Ordering::Relaxed);
        let charge = Charge::new(&self.ledger, LedgerPart::Iterators, own_bytes);
        Live { iter, _charge: charge, _held: Held { sum_bytes: Arc::clone(&self.live_bytes), bytes } }
    }

    /// How many views have been taken from idle iterators so far.
    pub fn revoked(&self) -> u64 {
        self.revoked.load(Ordering::Relaxed)
    }

    /// How many iterators hold a view now.
    #[cfg(test)]
    pub fn pinned(&self) -> usize {
        self.shards.iter().flat_map(slots).filter(|slot| slot.enter().is_some()).count()
    }

    /// How many places iterators have, or had.
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
        if shard.slots.len() >= shard.sweep_at.max(SWEEP_AT_LEAST) {
            shard.slots.retain(|slot| slot.strong_count() > 0);
            shard.sweep_at = 2 * shard.slots.len();
        }
        shard.slots.push(Arc::downgrade(&slot));
        let countdown = Countdown::new(self.next_seed.fetch_add(1, Ordering::Relaxed));
        Spare { slot, found: Batch::default(), charge: self.charge(), countdown }
    }

    /// Takes back what a scan has no more use for.
    pub fn leave(&self, spare: Spare, walked: Walked) {
        let mut live = spare.slot.enter();
        if let Some(live) = live.as_mut() {
            live.iter.let_go();
        }
        drop(spare.slot.leave(live, false));
        self.note_walked(walked);
        let mut shard = lock(self.shard());
        if shard.spare.len() < SPARE_MAX {
            shard.spare.push(spare);
        }
    }

    /// Adds what a scan did. Of one that has been told of before the rest counts as a scan that goes on.
    pub fn note_walked(&self, walked: Walked) {
        let mut shard = lock(self.shard());
        shard.walked.goings_on += u64::from(walked.ranges == 0 && walked.entries > 0);
        shard.walked.ranges += walked.ranges;
        shard.walked.entries += walked.entries;
    }

    /// What all scans did, but for the last of what those that go on do.
    pub fn walked(&self) -> Walked {
        self.shards.iter().map(|shard| lock(shard).walked).fold(Walked::default(), |sum, shard| Walked {
            ranges: sum.ranges + shard.ranges,
            entries: sum.entries + shard.entries,
            goings_on: sum.goings_on + shard.goings_on,
        })
    }

    /// The shard of this thread.
    fn shard(&self) -> &Mutex<Shard> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
        }
        &self.shards[NUMBER.with(|number| *number)]
    }
}

/// The slots of a shard's iterators, to be looked at without the shard's lock.
fn slots(shard: &Mutex<Shard>) -> Vec<Arc<Slot>> {
    lock(shard).slots.iter().filter_map(Weak::upgrade).collect()
}

fn lock(mutex: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // A shard is whole at every point where a panic could unwind past it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
