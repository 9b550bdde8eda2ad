//! Options of a single write: its durability, and how long it may wait.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::options::settings::Durability;

/// Options of one write. An option that is not set has the value that the database was opened with.
///
/// Every `*_with` write takes it by value or by reference, and a [`Durability`] alone as well.
///
/// ```
/// use shamba::{Durability, WriteOptions};
///
/// let options = WriteOptions::new().durability(Durability::Sync).deadline_ms(50);
/// assert_eq!(options.deadline_ms, Some(50));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteOptions {
    /// Durability that the acknowledgement guarantees.
    pub durability: Option<Durability>,
    /// Longest wait for flushes and compactions before the write fails with `Stalled`; `None`: that
    /// of the database ([`crate::Builder::write_deadline`]), by default without limit.
    pub deadline_ms: Option<u64>,
    /// How long the value lives: from then on the key is as if it were deleted. `None`: as long as
    /// the keyspace says ([`crate::KeyspaceOptions::time_to_live`]), by default for ever. Only for
    /// writes of one value; others refuse it.
    pub time_to_live: Option<Duration>,
}

impl WriteOptions {
    /// No options: the durability of the database, and no deadline.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the durability that the acknowledgement guarantees.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Sets the longest wait for flushes and compactions, in milliseconds.
    #[must_use]
    pub fn deadline_ms(mut self, ms: u64) -> Self {
        self.deadline_ms = Some(ms);
        self
    }

    /// Sets how long the value lives, whatever the keyspace says; `Duration::MAX` is for ever.
    /// Rounded down to milliseconds.
    #[must_use]
    pub fn time_to_live(mut self, time_to_live: Duration) -> Self {
        self.time_to_live = Some(time_to_live);
        self
    }

    /// Refuses a time to live, for writes that set no value or several.
    ///
    /// # Errors
    /// `Invalid` if there is one; `of` names the write.
    pub(crate) fn without_time_to_live(self, of: &str) -> Result<Self> {
        match self.time_to_live {
            None => Ok(self),
            Some(_) => Err(Error::invalid(format!("{of} has no time to live: only a put has"))),
        }
    }

    /// Sets the longest wait for flushes and compactions. Rounded down to milliseconds: a write
    /// whose deadline is below one millisecond does not wait.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        self.deadline_ms(u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX))
    }
}

impl From<Durability> for WriteOptions {
    fn from(durability: Durability) -> Self {
        Self::new().durability(durability)
    }
}

impl From<&WriteOptions> for WriteOptions {
    fn from(options: &WriteOptions) -> Self {
        *options
    }
}
