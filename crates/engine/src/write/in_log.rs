//! Values of a group that stay in a log instead of the memtable.
//!
//! These are the values above the memtable's length limit, in batches that do not fit one frame.
//! Such a batch is a group by itself, so the places that are collected while it is appended are
//! used in the order of its operations. Without a log these values go to a separate file
//! ([`super::side`]).

use std::sync::Arc;

use super::commit::{Share, Work};
use super::side::SideFile;
use crate::core::{Core, Writing};
use crate::error::Result;
use shamba_key::LogNo;
use shamba_log::wal::{LargeRecord, OpRef, SHARED_BYTES_MAX, ValueLog, ValuePlace, encoded_ops_and_ends};

impl Work<'_> {
    /// Calls `each` with every value longer than `held_bytes_max`. For a batch, `each` also gets
    /// the offset at which the value ends in the encoded operations.
    fn long_values(&self, held_bytes_max: u64, each: &mut dyn FnMut(Option<usize>, &[u8])) {
        let is_long = |value: &[u8]| value.len() as u64 > held_bytes_max;
        match self {
            Self::One(_, OpRef::Put { value, .. }) if is_long(value) => each(None, value),
            Self::One(..) => {}
            Self::Batch(operations) => {
                for (end, op) in encoded_ops_and_ends(&operations.encoded) {
                    if let OpRef::Put { value, .. } = op {
                        if is_long(value) {
                            each(Some(end), value);
                        }
                    }
                }
            }
        }
    }

    /// Adds the places of values longer than `held_bytes_max`, for a batch with a record of its
    /// own.
    pub(super) fn places(
        &self,
        log: LogNo,
        record: LargeRecord,
        held_bytes_max: u64,
        places: &mut Vec<ValuePlace>,
    ) {
        let LargeRecord { offset, ops_at, ops_bytes } = record;
        self.long_values(held_bytes_max, &mut |end, value| {
            let at = (ops_at + end.unwrap_or(ops_bytes)).saturating_sub(value.len()) as u64;
            // At most 256 MiB: its length was checked.
            places.push(ValuePlace { log, record: offset, at, bytes: value.len() as u32 });
        });
    }
}

/// The values of a group that stay in a log.
pub(super) struct InLog {
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
        match op {
            OpRef::Put { value, .. } if value.len() as u64 > self.held_bytes_max => self.places.next(),
            _ => None,
        }
    }
}

impl Core {
    /// Puts the group's long values into a separate file. Only for a database without a log.
    pub(super) fn keep_values<'a>(
        &self,
        writing: &mut Writing,
        shares: impl Iterator<Item = Share<'a>>,
    ) -> Result<Option<InLog>> {
        let held_bytes_max = self.settings.held_value_bytes_max();
        let mut places = Vec::new();
        for share in shares.filter(|share| share.work.bytes() > SHARED_BYTES_MAX) {
            let mut kept = Ok(());
            share.work.long_values(held_bytes_max, &mut |_, value| {
                if kept.is_ok() {
                    kept = self.keep_value(writing, value).map(|place| places.push(place));
                }
            });
            kept?;
        }
        Ok(writing.side.as_ref().and_then(|side| InLog::new(side.values(), places, held_bytes_max)))
    }

    fn keep_value(&self, writing: &mut Writing, value: &[u8]) -> Result<ValuePlace> {
        let side = match &mut writing.side {
            Some(side) => side,
            none => none.insert(SideFile::create(&self.env, &self.dir, self.catalog.new_log_no())?),
        };
        let kept = side.append(value);
        if kept.is_err() {
            if let Some(side) = writing.side.take() {
                // Nothing more is appended to this file. It is kept until the entries that refer to
                // it are flushed.
                writing.sealed_files.push(side.into_file());
            }
        }
        kept
    }
}
