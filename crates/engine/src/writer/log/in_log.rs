//! Values of a group that stay in a log instead of the memtable.
//!
//! These are the values above the memtable's length limit, in batches that do not fit one frame.
//! Such a batch is a group by itself, so the places that are collected while it is appended are
//! used in the order of its operations. Without a log these values go to a separate file
//! ([`super::side`]).

use std::sync::Arc;

use shamba_log::wal::{OpRef, ValueLog, ValuePlace};

/// The values of a group that stay in a log.
pub(crate) struct InLog {
    pub log: Arc<ValueLog>,
    /// In the order of the operations.
    places: std::vec::IntoIter<ValuePlace>,
    held_bytes_max: u64,
}

impl InLog {
    /// Returns `None` if there are no places.
    pub fn new(log: &Arc<ValueLog>, places: Vec<ValuePlace>, held_bytes_max: u64) -> Option<Self> {
        let log = Arc::clone(log);
        (!places.is_empty()).then(|| Self { log, places: places.into_iter(), held_bytes_max })
    }

    /// Total length of the values that have not been taken yet.
    pub fn bytes(&self) -> u64 {
        self.places.as_slice().iter().map(|place| u64::from(place.bytes)).sum()
    }

    /// The place of the operation's value, if the value stays in the log. Must be called once for
    /// each operation, in order.
    pub fn place_of(&mut self, op: OpRef<'_>) -> Option<ValuePlace> {
        let value = op.put_payload().filter(|value| value.len() as u64 > self.held_bytes_max)?;
        let place = self.places.next();
        debug_assert!(
            place.is_none_or(|place| place.bytes as usize == value.len()),
            "the places of long values are in another order than the values"
        );
        place
    }
}
