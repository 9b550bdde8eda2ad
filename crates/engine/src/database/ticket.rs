//! Tickets: waiting for the durability of writes apart from committing them.

use crate::database::Db;
use crate::error::Result;
use shamba_key::SeqNo;

/// A promise about the durability of a write. Made by [`Db::ticket`],
/// [`Batch::commit_ticket`](crate::Batch::commit_ticket) and
/// [`Transaction::commit_ticket`](crate::Transaction::commit_ticket).
///
/// The write is visible. It is durable when it is on stable storage with every earlier write. So
/// many writes can be made one after the other, and one sync serves all of them.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = shamba::Db::open(dir.path().join("db"))?;
/// let mut tickets = Vec::new();
/// for entry in 0..10_u32 {
///     let mut batch = db.batch();
///     batch.put(entry.to_be_bytes(), "appended");
///     tickets.push(batch.commit_ticket()?);
/// }
/// // One sync for all of them.
/// tickets.last().expect("a ticket").wait()?;
/// assert!(tickets.iter().all(|ticket| ticket.is_durable()));
/// # Ok::<(), shamba::Error>(())
/// ```
///
/// A ticket keeps the database open. In an async program, [`on_durable`](Self::on_durable) can wake
/// a task; `examples/pipelined_log.rs` shows it.
#[derive(Clone)]
#[must_use = "a ticket tells when a write is durable"]
pub struct Ticket {
    db: Db,
    seq: SeqNo,
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = f.debug_struct("Ticket");
        text.field("sequence", &self.seq.0).field("is_durable", &self.is_durable()).finish_non_exhaustive()
    }
}

impl Ticket {
    pub(crate) fn new(db: Db, seq: SeqNo) -> Self {
        Self { db, seq }
    }

    /// A sequence number of which the ticket promises that every write up to it is durable: that
    /// of the write, or of one that was committed together with it.
    pub fn sequence(&self) -> u64 {
        self.seq.0
    }

    /// Whether the write is durable. Does not wait.
    pub fn is_durable(&self) -> bool {
        self.db.core().writer.durable().has(self.seq)
    }

    /// Waits until the write is durable: syncs the log, unless another call has done that, or
    /// flushes if the database has no log.
    ///
    /// # Errors
    /// As [`Db::sync`], or as [`Db::flush`].
    pub fn wait(&self) -> Result<()> {
        self.db.core().writer.make_durable(self.seq)
    }

    /// Calls `callback` once: when the write is durable, at once if it is already, or with an error
    /// when it cannot become durable any more, because writes were turned off or the database was
    /// dropped without [`Db::close`]. This syncs nothing: a sync comes with [`Ticket::wait`],
    /// [`Db::sync`], `close`, or writes that ask for [`Durability`](crate::Durability).
    ///
    /// The callback is called by the thread that made the write durable, which waits for it. That
    /// may be the thread that flushes. So the callback should wake another thread or task, and it
    /// must not wait for a flush itself: it may read, but should not write, flush or close. While
    /// it waits, it keeps alive what it captured; a captured [`Db`] or ticket keeps the database
    /// open. A panic in it is caught.
    pub fn on_durable(self, callback: impl FnOnce(Result<()>) + Send + 'static) {
        self.db.core().writer.durable().when(self.seq, None, Box::new(callback));
    }
}

impl Db {
    /// A ticket for all writes that were acknowledged before this call.
    pub fn ticket(&self) -> Ticket {
        Ticket::new(self.clone(), self.core().reads.visible())
    }
}
