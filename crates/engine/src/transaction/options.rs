//! Options of transactions.

use crate::writer::WriteOptions;

/// Conditions that the commit of a transaction checks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Isolation {
    /// All that the transaction has read is unchanged: keys, absent ones too, and ranges. The
    /// outcome is the same as if all transactions ran one after another.
    #[default]
    Serializable,
    /// No key that the transaction writes was written since it began, and keys that it read by
    /// [`get_for_update`](crate::Transaction::get_for_update) are unchanged. A key that it changes
    /// only by `merge` is not checked, even if it has read it. Two transactions that read the same
    /// and write different keys may both commit (write skew).
    Snapshot,
    /// Nothing but keys read by [`get_for_update`](crate::Transaction::get_for_update): a batch
    /// that can be read.
    Unchecked,
}

/// Options of a transaction. Used by [`crate::Db::transaction_with`] and
/// [`crate::Db::transact_with`].
///
/// ```
/// use shamba::{Durability, Isolation, TransactionOptions};
///
/// let options = TransactionOptions::new().isolation(Isolation::Snapshot).write(Durability::Sync);
/// assert_eq!(options.isolation, Isolation::Snapshot);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionOptions {
    /// Conditions that the commit checks. Default: [`Isolation::Serializable`].
    pub isolation: Isolation,
    /// Durability and deadline of the commit. Default: those of the database.
    pub write: WriteOptions,
    /// Maximum memory of what the transaction has written and read. Beyond it operations return
    /// `Invalid`. Default `None`: an eighth of the memory budget, from 1 MiB to 1 GiB.
    pub memory_bytes: Option<u64>,
    /// Maximum number of times that [`crate::Db::transact`] runs the transaction. Default: 100.
    pub attempts: u32,
}

impl TransactionOptions {
    /// The default options.
    pub fn new() -> Self {
        Self {
            isolation: Isolation::Serializable,
            write: WriteOptions::new(),
            memory_bytes: None,
            attempts: 100,
        }
    }

    /// Sets the conditions that the commit checks.
    #[must_use]
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Sets durability and deadline of the commit.
    #[must_use]
    pub fn write(mut self, options: impl Into<WriteOptions>) -> Self {
        self.write = options.into();
        self
    }

    /// Sets the maximum memory of what the transaction has written and read.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }

    /// Sets the maximum number of times that [`crate::Db::transact`] runs the transaction; 0 counts
    /// as 1.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }
}

impl Default for TransactionOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl From<Isolation> for TransactionOptions {
    fn from(isolation: Isolation) -> Self {
        Self::new().isolation(isolation)
    }
}
