//! Worker threads that databases of a process share.
//!
//! A database joins a pool of [`Workers`] with its [`Steps`] and leaves it at close. A thread works
//! in one [`Lane`]. It visits the members in turn and lets each do one step (a slice of a
//! compaction, a flush), so that no database keeps others waiting for longer than a step. A member
//! that has nothing to do is visited again when it is woken, or after the shortest of the times
//! that the members of the lane have named.
//!
//! Invariants:
//! - No step waits for another step: one thread in each lane completes everything.
//! - At most [`Steps::limit`] threads of a lane are in steps of one member.
//! - [`Membership::leave`] returns when no thread is in a step of the member, and waits for nobody
//!   else's step.
//! - The pool has threads only while it has members.
//!
//! Not here: what a step is; syncs of the log, which must not wait for anything here.

mod pool;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use shamba_env::Spawner;

pub(crate) use self::pool::Membership;
use self::pool::Pool;
use crate::error::Result;

/// Threads of the pool of the process; with more, the disk would be the limit.
const PROCESS_THREADS_MAX: usize = 4;

/// Worker threads for compactions, flushes and upkeep, which several databases can share.
///
/// By default all databases of a process share one pool, with a compaction thread per processor
/// and at most 4, or as many as the largest `background_threads` of an open database; one thread
/// for flushes; and one that divides memory. A pool of its own keeps a database apart from others:
///
/// ```
/// use shamba::{Db, Workers};
///
/// # fn main() -> shamba::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("shamba-doc-workers-{}", std::process::id()));
/// let workers = Workers::new(2);
/// let orders = Db::builder(dir.join("orders")).workers(&workers).open()?;
/// let events = Db::builder(dir.join("events")).workers(&workers).open()?;
/// # drop((orders, events));
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok(())
/// # }
/// ```
///
/// Threads start with the first open database and end with the last one. A clone refers to the
/// same threads.
#[derive(Clone)]
pub struct Workers {
    pool: Arc<Pool>,
}

impl Workers {
    /// A pool with this number of compaction threads (at least 1), one thread for flushes and one
    /// for upkeep.
    pub fn new(compaction_threads: usize) -> Self {
        Self { pool: Arc::new(Pool::new(compaction_threads.max(1), false)) }
    }

    /// The pool of the process, with as many threads as the member that asks for most.
    pub(crate) fn of_process(spawner: &dyn Spawner) -> Self {
        static OF_PROCESS: OnceLock<Workers> = OnceLock::new();
        let workers = OF_PROCESS.get_or_init(|| {
            let threads = spawner.parallelism().clamp(1, PROCESS_THREADS_MAX);
            Self { pool: Arc::new(Pool::new(threads, true)) }
        });
        workers.clone()
    }

    /// Adds a member and starts missing threads by `spawner`.
    ///
    /// # Errors
    /// When a thread cannot be started; nothing was added then.
    pub(crate) fn join(&self, spawner: &dyn Spawner, steps: Arc<dyn Steps>) -> Result<Membership> {
        Pool::join(&self.pool, spawner, steps)
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("compaction_threads", &self.pool.compaction_threads()).finish()
    }
}

/// A kind of work with threads of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    /// Flushes of memtables, on one thread: writers wait for them.
    Flush,
    /// Compactions and filter rewrites, at low priority.
    Compaction,
    /// Division of memory and tuning, on one thread, at low priority.
    Upkeep,
}

impl Lane {
    pub(crate) const ALL: [Self; 3] = [Self::Flush, Self::Compaction, Self::Upkeep];

    fn thread_name(self) -> &'static str {
        match self {
            Self::Flush => "shamba-flush",
            Self::Compaction => "shamba-compact",
            Self::Upkeep => "shamba-upkeep",
        }
    }

    /// Whether its threads run at lower priority than readers and writers.
    fn yields(self) -> bool {
        self != Self::Flush
    }
}

/// A database's link to the pool that works for it, shared by its parts. It does nothing before
/// [`Self::join`], and in an environment without threads.
#[derive(Clone, Default)]
pub(crate) struct Waker(Arc<OnceLock<Membership>>);

impl Waker {
    /// Adds `steps` to a pool.
    ///
    /// # Errors
    /// When a thread cannot be started; nothing was added then.
    pub fn join(&self, workers: &Workers, spawner: &dyn Spawner, steps: Arc<dyn Steps>) -> Result<()> {
        let membership = workers.join(spawner, steps)?;
        let is_first = self.0.set(membership).is_ok();
        assert!(is_first, "a database joins one pool, once");
        Ok(())
    }

    /// Tells the lane's threads that there is work.
    pub fn wake(&self, lane: Lane) {
        if let Some(membership) = self.0.get() {
            membership.wake(lane);
        }
    }

    /// Waits for the running steps; none begins from now on.
    pub fn leave(&self) {
        if let Some(membership) = self.0.get() {
            membership.leave();
        }
    }
}

/// The time of a member's next step, as seen at the end of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// The step did something: there may be more.
    Now,
    /// There was nothing to do, or it failed: again after this time, or when woken.
    After(Duration),
}

/// The work of a member.
pub(crate) trait Steps: Send + Sync {
    /// Number of threads of `lane` that may be in [`Self::step`] at the same time; constant.
    fn limit(&self, lane: Lane) -> usize;

    /// Does one step of the lane's work, if there is any.
    fn step(&self, lane: Lane) -> Next;

    /// Called when a step panicked. The lane makes no further step of this member.
    fn panicked(&self, lane: Lane);
}
