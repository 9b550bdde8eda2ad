//! Test kit of the crates below the engine: seeded dice, sorted entries as a source, and the laws
//! that every bidirectional iterator over entries obeys.
//!
//! Unit tests of `shamba-memtable` and `shamba-tree` hold their iterators against [`check_laws`]
//! with random calls; the expected entries are a sorted vector of [`Row`]s.
//!
//! Not here: the model of a whole database and the fault suites (package `shamba-tests`).
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod bytes;

use std::sync::Arc;

use ::bytes::Bytes;
use shamba_env::{Env, MemFs, Rng, SeededRng};
use shamba_key::{EntryKind, SeqNo};
use shamba_table::{EntryIter, Result, internal_cmp};

pub use self::bytes::{FRAME_FIELDS, HEADER_FIELDS, PROMISE_FIELDS, annotated, hex};

/// A deterministic environment over files in memory.
pub fn memory_env(seed: u64) -> Env {
    Env::deterministic(Arc::new(MemFs::new()), seed)
}

/// A seeded source of small decisions.
pub struct Dice(SeededRng);

impl Dice {
    /// Dice whose throws depend on `seed` alone.
    pub fn new(seed: u64) -> Self {
        Self(SeededRng::new(seed))
    }

    /// A number below `sides`.
    pub fn below(&self, sides: usize) -> usize {
        (self.0.next_u64() % sides.max(1) as u64) as usize
    }

    /// True once in `sides` throws on average.
    pub fn one_in(&self, sides: usize) -> bool {
        self.below(sides) == 0
    }

    /// A key of a small alphabet, so that keys meet, prefix each other, and hold the extreme bytes.
    pub fn key(&self) -> Vec<u8> {
        const LETTERS: [u8; 4] = [0, b'a', b'b', 0xff];
        (0..self.below(4)).map(|_| LETTERS[self.below(LETTERS.len())]).collect()
    }
}

/// One entry, owned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// User key.
    pub key: Vec<u8>,
    /// Sequence number.
    pub seq: SeqNo,
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Value.
    pub value: Vec<u8>,
}

impl Row {
    /// A put whose value is its sequence number in decimal digits.
    pub fn put(key: &[u8], seq: u64) -> Self {
        Self { key: key.to_vec(), seq: SeqNo(seq), kind: EntryKind::Put, value: seq.to_string().into_bytes() }
    }
}

/// Sorts rows into internal order.
pub fn sort(rows: &mut [Row]) {
    rows.sort_by(|a, b| internal_cmp(&a.key, a.seq, &b.key, b.seq));
}

/// A sorted vector as a source.
pub struct Rows {
    rows: Vec<Row>,
    at: Option<usize>,
}

impl Rows {
    /// A source of these rows, which may come in any order.
    pub fn new(mut rows: Vec<Row>) -> Self {
        sort(&mut rows);
        Self { rows, at: None }
    }

    fn row(&self) -> &Row {
        &self.rows[self.at.expect("only when valid")]
    }

    fn set(&mut self, at: Option<usize>) -> Result<()> {
        self.at = at.filter(|&at| at < self.rows.len());
        Ok(())
    }
}

impl EntryIter for Rows {
    fn seek_to_first(&mut self) -> Result<()> {
        self.set(Some(0))
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.set(self.rows.len().checked_sub(1))
    }

    fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.set(Some(first_from(&self.rows, key, seq)))
    }

    fn seek_for_prev(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.set(last_up_to(&self.rows, key, seq))
    }

    fn next(&mut self) -> Result<()> {
        self.set(self.at.map(|at| at + 1))
    }

    fn prev(&mut self) -> Result<()> {
        self.set(self.at.and_then(|at| at.checked_sub(1)))
    }

    fn valid(&self) -> bool {
        self.at.is_some()
    }

    fn key(&self) -> &[u8] {
        &self.row().key
    }

    fn seq(&self) -> SeqNo {
        self.row().seq
    }

    fn kind(&self) -> EntryKind {
        self.row().kind
    }

    fn value(&self) -> &[u8] {
        &self.row().value
    }

    fn value_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(&self.row().value)
    }
}

fn first_from(rows: &[Row], key: &[u8], seq: SeqNo) -> usize {
    rows.partition_point(|row| internal_cmp(&row.key, row.seq, key, seq).is_lt())
}

fn last_up_to(rows: &[Row], key: &[u8], seq: SeqNo) -> Option<usize> {
    rows.partition_point(|row| internal_cmp(&row.key, row.seq, key, seq).is_le()).checked_sub(1)
}

/// Compares random calls of `iter` with an index into `rows`, the complete expected entries.
pub fn check_laws(iter: &mut dyn EntryIter, rows: &[Row], dice: &Dice, calls: usize) {
    let mut at: Option<usize> = None;
    // Ranges that were passed over since the last seek or turn, with their floors; and the
    // direction.
    let mut skips = Vec::new();
    let mut forward = true;
    for call in 0..calls {
        let (key, seq) = match rows.len() {
            count if count > 0 && !dice.one_in(3) => {
                let row = &rows[dice.below(count)];
                (row.key.clone(), SeqNo((row.seq.0 + dice.below(3) as u64).saturating_sub(1)))
            }
            _ => (dice.key(), [SeqNo::MAX, SeqNo::ZERO, SeqNo(dice.below(50) as u64)][dice.below(3)]),
        };
        let choice = dice.below(14);
        // A range that is passed over: forward up to `bound`, backward down to it.
        let floor = SeqNo(dice.below(rows.len() + 2) as u64);
        let bound = (!dice.one_in(8)).then(|| key.clone());
        let is_hidden = |row: &Row| match choice {
            12 => row.seq <= floor && bound.as_ref().is_none_or(|end| row.key < *end),
            _ => row.seq <= floor && bound.as_ref().is_none_or(|start| *start <= row.key),
        };
        let is_skip = matches!(choice, 12 | 13) && at.is_some();
        let passes = is_skip && at.is_some_and(|at| is_hidden(&rows[at]));
        // At an entry that is not hidden such a call has no effect.
        if !is_skip || passes {
            let goes_forward = matches!(choice, 4..8 | 12);
            if at.is_none() || choice < 4 || goes_forward != forward {
                skips.clear();
            }
            forward = goes_forward;
        }
        match (choice, at) {
            (0, _) => {
                iter.seek_to_first().expect("a healthy source");
                at = Some(0);
            }
            (1, _) => {
                iter.seek_to_last().expect("a healthy source");
                at = rows.len().checked_sub(1);
            }
            (2, _) | (3..14, None) if call % 2 == 0 => {
                iter.seek(&key, seq).expect("a healthy source");
                at = Some(first_from(rows, &key, seq));
            }
            (2 | 3, _) | (4..14, None) => {
                iter.seek_for_prev(&key, seq).expect("a healthy source");
                at = last_up_to(rows, &key, seq);
            }
            (4..8, Some(index)) => {
                iter.next().expect("a healthy source");
                at = Some(index + 1);
            }
            (12, Some(index)) => {
                iter.skip_hidden(bound.as_deref(), floor).expect("a healthy source");
                at = rows[index..].iter().position(|row| !is_hidden(row)).map(|passed| index + passed);
            }
            (13, Some(index)) => {
                iter.skip_hidden_back(bound.as_deref().unwrap_or_default(), floor).expect("a healthy source");
                at = rows[..=index].iter().rposition(|row| !is_hidden(row));
            }
            (_, Some(index)) => {
                iter.prev().expect("a healthy source");
                at = index.checked_sub(1);
            }
            (_, None) => unreachable!("handled above"),
        }
        at = at.filter(|&at| at < rows.len());
        let got = iter.valid().then(|| current(iter));
        // Entries of earlier ranges may be left out of the moves that follow.
        let may_lack = |row: &Row| {
            skips.iter().any(|(is_forward, bound, floor): &(bool, Option<Vec<u8>>, SeqNo)| {
                let is_inside = |bound: &Vec<u8>| (row.key < *bound) == *is_forward;
                row.seq <= *floor && bound.as_ref().is_none_or(is_inside)
            })
        };
        while let Some(index) =
            at.filter(|&index| got.as_ref() != Some(&rows[index]) && may_lack(&rows[index]))
        {
            at = if forward { Some(index + 1) } else { index.checked_sub(1) }.filter(|&at| at < rows.len());
        }
        assert_eq!(got.as_ref(), at.map(|at| &rows[at]), "call {call} of kind {choice}");
        if passes {
            skips.push((choice == 12, bound, floor));
        }
    }
}

/// The row that an iterator stands at.
pub fn current(iter: &dyn EntryIter) -> Row {
    assert_eq!(iter.value(), iter.value_bytes());
    Row { key: iter.key().to_vec(), seq: iter.seq(), kind: iter.kind(), value: iter.value().to_vec() }
}

/// All rows from the first.
pub fn collect(iter: &mut dyn EntryIter) -> Vec<Row> {
    let mut rows = Vec::new();
    iter.seek_to_first().expect("a healthy source");
    while iter.valid() {
        rows.push(current(iter));
        iter.next().expect("a healthy source");
    }
    rows
}

/// A move of an iterator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// Any seek.
    Seek,
    /// A step to the next entry.
    Next,
    /// A step to the previous entry.
    Prev,
}

/// An iterator that calls a function before each move, with the move and the inner iterator. The
/// function counts moves, lets one fail, or breaks the inner iterator.
pub struct Watched<F> {
    inner: Box<dyn EntryIter>,
    before: F,
}

impl<F: FnMut(Move, &mut dyn EntryIter) -> Result<()>> Watched<F> {
    /// `inner`, watched by `before`.
    pub fn new(inner: Box<dyn EntryIter>, before: F) -> Self {
        Self { inner, before }
    }

    fn after(&mut self, going: Move) -> Result<&mut dyn EntryIter> {
        (self.before)(going, self.inner.as_mut())?;
        Ok(self.inner.as_mut())
    }
}

impl<F: FnMut(Move, &mut dyn EntryIter) -> Result<()> + Send> EntryIter for Watched<F> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.after(Move::Seek)?.seek_to_first()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.after(Move::Seek)?.seek_to_last()
    }

    fn seek(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.after(Move::Seek)?.seek(key, seq)
    }

    fn seek_for_prev(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.after(Move::Seek)?.seek_for_prev(key, seq)
    }

    fn next(&mut self) -> Result<()> {
        self.after(Move::Next)?.next()
    }

    fn prev(&mut self) -> Result<()> {
        self.after(Move::Prev)?.prev()
    }

    fn skip_hidden(&mut self, end: Option<&[u8]>, floor: SeqNo) -> Result<()> {
        self.after(Move::Seek)?.skip_hidden(end, floor)
    }

    fn skip_hidden_back(&mut self, start: &[u8], floor: SeqNo) -> Result<()> {
        self.after(Move::Seek)?.skip_hidden_back(start, floor)
    }

    fn valid(&self) -> bool {
        self.inner.valid()
    }

    fn key(&self) -> &[u8] {
        self.inner.key()
    }

    fn seq(&self) -> SeqNo {
        self.inner.seq()
    }

    fn kind(&self) -> EntryKind {
        self.inner.kind()
    }

    fn value(&self) -> &[u8] {
        self.inner.value()
    }

    fn value_bytes(&self) -> Bytes {
        self.inner.value_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        (1..=9).map(|seq| Row::put(&[b'a' + (seq % 3) as u8], seq)).collect()
    }

    fn sorted() -> Vec<Row> {
        let mut rows = rows();
        sort(&mut rows);
        rows
    }

    #[test]
    fn the_laws_hold_for_a_sorted_vector() {
        check_laws(&mut Rows::new(rows()), &sorted(), &Dice::new(1), 1_000);
        assert_eq!(collect(&mut Rows::new(rows())), sorted());
    }

    #[test]
    #[should_panic(expected = "of kind")]
    fn the_laws_notice_an_entry_that_is_skipped() {
        let mut skipping = Watched::new(Box::new(Rows::new(rows())), |going, inner: &mut dyn EntryIter| {
            if going == Move::Prev { inner.prev() } else { Ok(()) }
        });
        check_laws(&mut skipping, &sorted(), &Dice::new(1), 1_000);
    }
}
