//! A memory budget that several databases share.
//!
//! The budget *grants* bytes: a database holds at most what it was granted, and the grants never
//! exceed the budget. What no database was granted is free. A division
//! ([`shamba_model::memory::databases`]) sets a *target* per database. Each database follows its
//! own target on its own upkeep thread ([`super::MemoryManager::follow_budget`]). Above the target
//! it evicts, and returns what it no longer holds. Below, it takes what is free. So no thread calls
//! into another database. One that cannot shrink at once delays the growth of others; the limit
//! holds.
//!
//! A database that joins is granted its floor at once: the division keeps that much free for the
//! next one. Its target is an equal part. A database that is dropped returns its grant.
//!
//! Divisions have no clock: the first database that ends a second window since the last division
//! causes the next one.
//!
//! Locks: the list of members is a leaf. The budget refers to no database: it shares two numbers
//! with each.
//!
//! Not here: memory within a database ([`super::balance`], [`super::shares`]).

use std::fmt;
use std::sync::Arc;

use shamba_model::memory::Outcome;
use shamba_model::memory::constants::BUDGET_BYTES_MIN;
use shamba_model::memory::databases::{self, Database, Inputs, Window};

use crate::error::{Error, Result};
use crate::lock_order;
use crate::ranked::Ranked;
use crate::sync::atomic::{AtomicU64, Ordering};

/// A memory budget that several databases of a process share.
///
/// Databases are opened with it by [`Builder::budget`](crate::Builder::budget). What they hold
/// together stays within the budget, and memory moves to the database in which it saves most: one
/// that is idle keeps 4 MiB, and the others have the rest.
///
/// ```
/// use shamba::{Budget, Db};
///
/// # fn main() -> shamba::Result<()> {
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let dir = dir.path();
/// let budget = Budget::new(64 << 20);
/// let orders = Db::builder(dir.join("orders")).budget(&budget).open()?;
/// let events = Db::builder(dir.join("events")).budget(&budget).open()?;
/// assert_eq!(budget.databases(), 2);
/// let (orders, events) = (orders.memory(), events.memory());
/// assert!(orders.ledger_bytes + events.ledger_bytes <= budget.bytes());
/// # Ok(())
/// # }
/// ```
///
/// A clone refers to the same budget.
#[derive(Clone)]
pub struct Budget {
    shared: Arc<Shared>,
}

struct Shared {
    total_bytes: u64,
    /// Sum of all grants.
    granted_bytes: AtomicU64,
    members: Ranked<Members>,
}

#[derive(Default)]
struct Members {
    list: Vec<Entry>,
    joined: u64,
    /// The last division at the end of a window.
    last: Option<Window>,
}

struct Entry {
    seat: Arc<Seat>,
    /// Input of the next division.
    database: Database,
    /// Whether the database has ended a window since the last division.
    is_reported: bool,
}

/// The numbers that the budget and a database share.
#[derive(Debug)]
struct Seat {
    id: u64,
    target_bytes: AtomicU64,
    /// Bytes that the database may hold. Changed by its own threads only.
    granted_bytes: AtomicU64,
}

/// Measurements of a database at the end of a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Report {
    /// Bytes that it holds, with those that it keeps free for work.
    pub held_bytes: u64,
    /// Memory that its memtables and its tables need in any case, beyond its floor.
    pub demand_bytes: u64,
    /// Saving of more memory, in nanoseconds per second per byte.
    pub gain_per_byte: f64,
    /// Saving of the last step of its memory, alike.
    pub loss_per_byte: f64,
}

impl Budget {
    /// A budget of this number of bytes. Each open database needs at least 4 MiB of it.
    pub fn new(bytes: u64) -> Self {
        let members = Ranked::new(lock_order::BUDGET_MEMBERS, Members::default());
        Self { shared: Arc::new(Shared { total_bytes: bytes, granted_bytes: AtomicU64::new(0), members }) }
    }

    /// The bytes of the budget.
    pub fn bytes(&self) -> u64 {
        self.shared.total_bytes
    }

    /// Number of open databases that share it.
    pub fn databases(&self) -> usize {
        self.shared.members.lock().list.len()
    }

    /// Adds a database, which is granted its floor if that much is free, or more.
    ///
    /// # Errors
    /// `Invalid` if the floors of all databases exceed the budget.
    pub(crate) fn join(&self) -> Result<Member> {
        let total_bytes = self.shared.total_bytes;
        let mut members = self.shared.members.lock();
        let count = members.list.len() as u64 + 1;
        let floors_bytes = count.saturating_mul(BUDGET_BYTES_MIN);
        if floors_bytes > total_bytes {
            return Err(Error::invalid(format!(
                "the budget of {total_bytes} bytes is too small for {count} databases: each needs at least \
                 {BUDGET_BYTES_MIN} bytes, together {floors_bytes}"
            )));
        }
        members.joined += 1;
        let id = members.joined;
        let seat = Arc::new(Seat { id, target_bytes: AtomicU64::new(0), granted_bytes: AtomicU64::new(0) });
        let database = Database { id, floor_bytes: BUDGET_BYTES_MIN, ..Database::default() };
        members.list.push(Entry { seat: Arc::clone(&seat), database, is_reported: false });
        members.divide(total_bytes, false);
        drop(members);
        let member = Member { shared: Arc::clone(&self.shared), seat };
        member.grow();
        Ok(member)
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("bytes", &self.bytes()).field("databases", &self.databases()).finish()
    }
}

impl Members {
    /// Sets the targets. At the end of a window one step may move between databases.
    fn divide(&mut self, total_bytes: u64, is_window_end: bool) {
        let databases: Vec<Database> = self.list.iter().map(|entry| entry.database).collect();
        let last = self.last.take().filter(|_| is_window_end);
        let division = databases::divide(&Inputs {
            budget_bytes: total_bytes,
            newcomer_bytes: BUDGET_BYTES_MIN,
            databases: &databases,
            last: last.as_ref(),
        });
        debug_assert_eq!(division.outcome, Outcome::Divided, "no database joins without a floor");
        debug_assert_eq!(division.bytes.len(), self.list.len(), "each database has one target");
        for (entry, bytes) in self.list.iter_mut().zip(division.bytes) {
            entry.database.share_bytes = Some(bytes);
            entry.seat.target_bytes.store(bytes, Ordering::Relaxed);
            entry.is_reported &= !is_window_end;
        }
        self.last = is_window_end.then_some(division.window);
    }
}

/// A database's part of a budget. Dropping it returns the grant.
pub(crate) struct Member {
    shared: Arc<Shared>,
    seat: Arc<Seat>,
}

impl Member {
    /// The bytes of the budget.
    pub fn total_bytes(&self) -> u64 {
        self.shared.total_bytes
    }

    /// Bytes that the database should hold at most.
    pub fn target_bytes(&self) -> u64 {
        self.seat.target_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that it may hold.
    pub fn granted_bytes(&self) -> u64 {
        self.seat.granted_bytes.load(Ordering::Relaxed)
    }

    /// Whether the database has at least its floor.
    pub fn has_floor(&self) -> bool {
        self.granted_bytes() >= BUDGET_BYTES_MIN
    }

    /// Takes what is free, up to the target. Returns the grant.
    pub fn grow(&self) -> u64 {
        let wanted_bytes = self.target_bytes().saturating_sub(self.granted_bytes());
        let total_bytes = self.shared.total_bytes;
        let more = |granted_bytes: u64| total_bytes.saturating_sub(granted_bytes).min(wanted_bytes);
        let granted_bytes = &self.shared.granted_bytes;
        let taken = granted_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |granted_bytes| {
            Some(granted_bytes + more(granted_bytes)).filter(|_| more(granted_bytes) > 0)
        });
        let more_bytes = taken.map_or(0, more);
        debug_assert!(
            granted_bytes.load(Ordering::Relaxed) <= total_bytes,
            "{} bytes are granted of a budget of {total_bytes}",
            granted_bytes.load(Ordering::Relaxed)
        );
        self.seat.granted_bytes.fetch_add(more_bytes, Ordering::Relaxed) + more_bytes
    }

    /// Returns all but `bytes` of the grant: the database holds no more than these.
    pub fn shrink_to(&self, bytes: u64) {
        let before = self.seat.granted_bytes.load(Ordering::Relaxed);
        let less_bytes = before.saturating_sub(bytes);
        let unchanged = self.seat.granted_bytes.swap(before - less_bytes, Ordering::Relaxed);
        debug_assert_eq!(unchanged, before, "two threads change the grant of a database at once");
        let all_before = self.shared.granted_bytes.fetch_sub(less_bytes, Ordering::Relaxed);
        debug_assert!(all_before >= less_bytes, "{less_bytes} of {all_before} granted bytes are returned");
    }

    /// Notes the end of a window. If it is the second one since the last division, targets are set
    /// anew first.
    pub(super) fn report(&self, report: Report) {
        let mut members = self.shared.members.lock();
        let own = members.list.iter().position(|entry| entry.seat.id == self.seat.id);
        debug_assert!(own.is_some(), "database {} is no member of its budget", self.seat.id);
        let Some(own) = own else { return };
        if members.list[own].is_reported {
            members.divide(self.shared.total_bytes, true);
        }
        let entry = &mut members.list[own];
        let Report { held_bytes, demand_bytes, gain_per_byte, loss_per_byte } = report;
        entry.database =
            Database { held_bytes, demand_bytes, gain_per_byte, loss_per_byte, ..entry.database };
        entry.is_reported = true;
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.seat.fmt(f)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.shrink_to(0);
        let mut members = self.shared.members.lock();
        members.list.retain(|entry| entry.seat.id != self.seat.id);
        members.divide(self.shared.total_bytes, false);
    }
}
