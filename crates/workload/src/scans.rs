//! Scans of a memtable that is being written, and scans that begin among deleted keys.
//!
//! Only the scans are timed; the writes between them are not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use shamba::{Db, Result};

use crate::keys::Keys;
use crate::ops::{Meter, nanos};
use crate::progress::Progress;
use crate::values::Values;

/// Puts before each seek of [`seek_after_puts`].
const PUTS_PER_SEEK: u64 = 20;

/// The database and the items of a thread.
pub(crate) struct Scans<'a> {
    pub db: &'a Db,
    pub keys: Keys,
    pub values: &'a Values,
    pub stop: &'a AtomicBool,
    pub progress: &'a Progress,
}

impl Scans<'_> {
    fn put(&self, item: u64, version: u64, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<()> {
        self.keys.existing(item, key);
        self.values.write(item ^ (version << 20), value);
        self.db.put(&key[..], &value[..])
    }

    /// `count` times: some puts of items from `pick`, then a seek of a new cursor to another one,
    /// which is timed.
    pub fn seek_after_puts(
        &self,
        count: u64,
        mut pick: impl FnMut() -> u64,
        meter: &mut Meter,
    ) -> Result<()> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for number in 0..count {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            meter.untimed(|| {
                (0..PUTS_PER_SEEK).try_for_each(|_| self.put(pick(), number + 1, &mut key, &mut value))
            })?;
            self.keys.existing(pick(), &mut key);
            let start = Instant::now();
            let mut cursor = self.db.cursor();
            cursor.seek(&key)?;
            let found = cursor.key() == Some(&key[..]);
            drop(cursor);
            meter.record(nanos(start.elapsed()), 1);
            meter.lookups += 1;
            meter.expected += 1;
            meter.found += u64::from(found);
            self.progress.add(1);
        }
        Ok(())
    }

    /// Puts `items` items, deletes them, and puts `last`.
    fn put_and_delete(&self, items: u64, by_range: bool, last: &[u8]) -> Result<()> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for item in 0..items {
            self.put(item, 0, &mut key, &mut value)?;
        }
        if by_range {
            self.db.delete_range(&[][..]..last)?;
        } else {
            for item in 0..items {
                self.keys.existing(item, &mut key);
                self.db.delete(&key)?;
            }
        }
        self.db.put(last, b"last")
    }

    /// Puts `items` items and deletes them, by one range tombstone if `by_range`, else one by one.
    /// Then puts one more, and reads the first entry `count` times, each time with a new iterator.
    pub fn scan_deleted(&self, items: u64, by_range: bool, count: u64, meter: &mut Meter) -> Result<()> {
        // Follows every key that a shape makes.
        let last = vec![0xff; self.keys.size()];
        meter.untimed(|| self.put_and_delete(items, by_range, &last))?;
        for _ in 0..count {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let start = Instant::now();
            let first = self.db.iter().next().transpose()?;
            meter.record(nanos(start.elapsed()), 1);
            meter.lookups += 1;
            meter.expected += 1;
            meter.found += u64::from(first.is_some_and(|(key, _)| key.as_ref() == last.as_slice()));
            self.progress.add(1);
        }
        Ok(())
    }
}
