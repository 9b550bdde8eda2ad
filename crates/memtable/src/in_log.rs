//! Iterator over a memtable with values in a log.
//!
//! It passes everything on to the memtable's own iterator, but reads long values from their log.

use std::sync::Arc;

use bytes::Bytes;
use shamba_key::{EntryKind, KeyDigest, SeqNo};
use shamba_table::{EntryIter, Result};

use super::Memtable;

/// An iterator over a memtable that reads long values from their log.
pub(super) struct InLogIter {
    table: Arc<dyn Memtable>,
    iter: Box<dyn EntryIter>,
}

impl InLogIter {
    /// `iter` is an iterator over `table`.
    pub fn new(table: Arc<dyn Memtable>, iter: Box<dyn EntryIter>) -> Self {
        Self { table, iter }
    }
}

impl EntryIter for InLogIter {
    fn seek_to_first(&mut self) -> Result<()> {
        self.iter.seek_to_first()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.iter.seek_to_last()
    }

    fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.iter.seek(key, seq)
    }

    fn seek_for_prev(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.iter.seek_for_prev(key, seq)
    }

    fn next(&mut self) -> Result<()> {
        self.iter.next()
    }

    fn prev(&mut self) -> Result<()> {
        self.iter.prev()
    }

    fn skip_hidden(&mut self, end: Option<&[u8]>, floor: SeqNo) -> Result<()> {
        self.iter.skip_hidden(end, floor)
    }

    fn skip_hidden_back(&mut self, start: &[u8], floor: SeqNo) -> Result<()> {
        self.iter.skip_hidden_back(start, floor)
    }

    fn valid(&self) -> bool {
        self.iter.valid()
    }

    fn key(&self) -> &[u8] {
        self.iter.key()
    }

    fn seq(&self) -> SeqNo {
        self.iter.seq()
    }

    fn kind(&self) -> EntryKind {
        self.iter.kind()
    }

    fn value(&self) -> &[u8] {
        self.iter.value()
    }

    fn value_bytes(&self) -> Bytes {
        self.iter.value_bytes()
    }

    fn value_bytes_len(&self) -> Result<u64> {
        let (kind, value) = (self.kind(), self.iter.value());
        if !kind.is_large() {
            return Ok(value.len() as u64);
        }
        self.table.values().value_bytes(kind.location(value))
    }

    fn read_value(&self, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (kind, value) = (self.kind(), self.iter.value());
        if kind.is_large() { self.table.values().read(kind.location(value), sink) } else { sink(value) }
    }

    fn digest(&self) -> Option<KeyDigest> {
        self.iter.digest()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use shamba_key::{DigestFn, DigestKind, LogNo};
    use shamba_log::wal::{ValueLog, ValuePlace};
    use shamba_table::BirthId;
    use shamba_testkit::{Dice, Row, check_laws, collect, memory_env, sort};

    use super::*;
    use crate::ChunkedMemtable;

    /// A memtable with short values and two in a log, and its rows in order.
    fn with_values_in_log() -> (Arc<dyn Memtable>, Vec<Row>) {
        let table: Arc<dyn Memtable> = Arc::new(ChunkedMemtable::new(true));
        let digest = DigestFn::new(DigestKind::Xxh3, 7);
        let log = ValueLog::new(&memory_env(1), Path::new("/1.log"), LogNo(1), BirthId(1));
        let mut rows = Vec::new();
        for seq in 1..=40 {
            let row = Row::put(&[b'a' + (seq % 9) as u8], seq);
            if seq % 20 == 0 {
                let place = ValuePlace { log: LogNo(1), record: 4_096, at: 0, bytes: 1_000 + seq as u32 };
                table.insert_in_log(digest.digest(&row.key), &row.key, (row.seq, None), &log, place);
                rows.push(Row { kind: EntryKind::ValueRef, value: place.encode().to_vec(), ..row });
            } else {
                table.insert(digest.digest(&row.key), &row.key, row.seq, row.kind, &row.value);
                rows.push(row);
            }
        }
        sort(&mut rows);
        (table, rows)
    }

    #[test]
    fn it_moves_in_both_directions_as_the_memtables_own_iterator() {
        let (table, mut rows) = with_values_in_log();
        assert!(!table.values().is_empty());
        assert!(collect(Arc::clone(&table).entries_iter().as_mut()) == rows);
        for seed in 0..20 {
            println!("seed {seed}");
            check_laws(Arc::clone(&table).entries_iter().as_mut(), &rows, &Dice::new(seed), 100);
        }
        let mut iter = table.entries_iter();
        iter.seek_to_last().expect("memory");
        rows.reverse();
        for row in rows {
            assert!(iter.valid() && (iter.key(), iter.seq()) == (&row.key[..], row.seq), "{row:?}");
            let bytes = if row.kind.is_large() { 1_000 + row.seq.0 } else { row.value.len() as u64 };
            assert_eq!(iter.value_bytes_len().expect("a known log"), bytes, "{row:?}");
            iter.prev().expect("memory");
        }
        assert!(!iter.valid());
    }

    /// A source that keeps the digest of its only key, as a memtable of another kind may.
    struct KeepsDigest(KeyDigest);

    impl EntryIter for KeepsDigest {
        fn seek_to_first(&mut self) -> Result<()> {
            Ok(())
        }

        fn seek_to_last(&mut self) -> Result<()> {
            Ok(())
        }

        fn seek(&mut self, _key: &[u8], _seq: SeqNo) -> Result<()> {
            Ok(())
        }

        fn seek_for_prev(&mut self, _key: &[u8], _seq: SeqNo) -> Result<()> {
            Ok(())
        }

        fn next(&mut self) -> Result<()> {
            Ok(())
        }

        fn prev(&mut self) -> Result<()> {
            Ok(())
        }

        fn valid(&self) -> bool {
            true
        }

        fn key(&self) -> &[u8] {
            b"key"
        }

        fn seq(&self) -> SeqNo {
            SeqNo(1)
        }

        fn kind(&self) -> EntryKind {
            EntryKind::Put
        }

        fn value(&self) -> &[u8] {
            b"value"
        }

        fn value_bytes(&self) -> Bytes {
            Bytes::from_static(b"value")
        }

        fn digest(&self) -> Option<KeyDigest> {
            Some(self.0)
        }
    }

    #[test]
    fn a_digest_that_the_source_has_kept_is_passed_on() {
        let (table, _) = with_values_in_log();
        let digest = DigestFn::new(DigestKind::Xxh3, 7).digest(b"key");
        assert_eq!(InLogIter::new(table, Box::new(KeepsDigest(digest))).digest(), Some(digest));
    }
}
