//! Reservations: memory that was promised to running work and is not charged yet.
//!
//! - *Must*: memory that the caller takes in any case, such as that of a table being opened. It is
//!   granted at once and never fails ([`Reservations::coming`]). Memtables and flushes reserve
//!   nothing: they charge what they need, and memory is set aside for them.
//! - *May*: memory of a compaction or a filter rewrite, by one compare-exchange
//!   ([`Reservations::take`]). If it fails, the job does not begin. It is tried again when another
//!   job has ended, and at least every half second.
//!
//! The rule against starvation: a job that runs alone always begins. If its need exceeds what could
//! ever be free, it is granted less, but at least what is set aside for one job
//! ([`Room::alone_bytes`]), and its tables end when they have used that up. So large jobs are made
//! of smaller pieces, and no job waits for more memory than the budget has.
//!
//! Invariant: jobs that run at the same time reserve at most [`Room::limit_bytes`] together, as it
//! was when the last of them began, or one of them runs alone.
//!
//! Not here: how much there is ([`super::balance`]); the memory itself, which is charged to the
//! ledger.

use std::sync::Arc;

use crate::sync::atomic::{AtomicU64, Ordering};

/// Limits of a reservation that may fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    /// Maximum of what all jobs reserve together.
    pub limit_bytes: u64,
    /// Minimum that a job which runs alone gets in any case.
    pub alone_bytes: u64,
}

impl Room {
    /// Maximum for a job that runs alone.
    fn alone_bytes_max(self) -> u64 {
        self.limit_bytes.max(self.alone_bytes)
    }
}

/// The sums of what is reserved.
#[derive(Default, Debug)]
pub(crate) struct Reservations {
    jobs_bytes: AtomicU64,
    coming_bytes: AtomicU64,
}

/// Purpose of a reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A job in progress.
    Job,
    /// Memory that is about to be charged.
    Coming,
}

/// Bytes reserved until this value is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    of: Arc<Reservations>,
    kind: Kind,
    bytes: u64,
}

impl Reservations {
    /// Bytes that jobs have reserved, whether they are charged yet or not.
    pub fn jobs_bytes(&self) -> u64 {
        self.jobs_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that are about to be charged.
    pub fn coming_bytes(&self) -> u64 {
        self.coming_bytes.load(Ordering::Relaxed)
    }

    /// Reserves `bytes` for a job. `None` if other jobs run and the limit leaves less.
    pub fn take(of: &Arc<Self>, bytes: u64, room: Room) -> Option<Reservation> {
        let bytes = bytes.max(1); // A job of no bytes would hide that it runs.
        let grant = |held_bytes: u64| match held_bytes {
            0 => Some(bytes.min(room.alone_bytes_max()).max(1)),
            _ => Some(bytes).filter(|_| held_bytes.saturating_add(bytes) <= room.limit_bytes),
        };
        let taken = of.jobs_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held_bytes| {
            grant(held_bytes).map(|bytes| held_bytes.saturating_add(bytes))
        });
        let bytes = taken.ok().and_then(grant)?;
        debug_assert!(bytes > 0, "a job reserves nothing, so the next one takes itself to be alone");
        Some(Reservation { of: Arc::clone(of), kind: Kind::Job, bytes })
    }

    /// Reserves `bytes` that the caller is about to charge.
    pub fn coming(of: &Arc<Self>, bytes: u64) -> Reservation {
        of.coming_bytes.fetch_add(bytes, Ordering::Relaxed);
        Reservation { of: Arc::clone(of), kind: Kind::Coming, bytes }
    }
}

impl Reservation {
    /// Bytes reserved.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Raises the reservation of a job to `bytes`; false, without a change, if there is no room.
    #[must_use]
    pub fn extend(&mut self, bytes: u64, room: Room) -> bool {
        debug_assert_eq!(self.kind, Kind::Job, "only jobs ask for more than they have reserved");
        let own_bytes = self.bytes;
        let Some(more_bytes) = bytes.checked_sub(own_bytes).filter(|more_bytes| *more_bytes > 0) else {
            return true;
        };
        let fits = |held_bytes: u64| {
            debug_assert!(held_bytes >= own_bytes, "{own_bytes} bytes of {held_bytes} are this job's");
            let all_bytes = held_bytes.saturating_add(more_bytes);
            let is_alone = held_bytes <= own_bytes;
            all_bytes <= if is_alone { room.alone_bytes_max() } else { room.limit_bytes }
        };
        let taken = self.of.jobs_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held_bytes| {
            fits(held_bytes).then(|| held_bytes.saturating_add(more_bytes))
        });
        if taken.is_ok() {
            self.bytes = bytes;
        }
        taken.is_ok()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let sum = match self.kind {
            Kind::Job => &self.of.jobs_bytes,
            Kind::Coming => &self.of.coming_bytes,
        };
        let before = sum.fetch_sub(self.bytes, Ordering::Relaxed);
        debug_assert!(before >= self.bytes, "{:?}: {} bytes of {before} returned", self.kind, self.bytes);
    }
}
