//! Reduces the input of a flush or compaction to what it writes: the versions that readers can see,
//! with the operands of merge operators folded.
//!
//! [`Folding`] takes the versions in internal order and passes on what remains. Operands of one key
//! and one stripe of history ([`super::retention`]) become one entry with the sequence number of
//! the newest: a put if what they apply to is known, otherwise one combined operand. Nothing is
//! folded across a snapshot. Where the operator is missing, fails or does not combine, the operands
//! stay as they are, and nothing is lost.
//!
//! A chain in memory is bounded; a longer one is combined in parts, or passed on.
//!
//! A compaction filter ([`super::filter`]) is asked about the newest version of each key, if no
//! reader at a snapshot sees it and it is no part of a chain.

use shamba_key::{EntryKind, Expiry, KeyDigest, Operand, SeqNo};
use shamba_table::{EntryIter, EntryView};

use super::filter::{FilterChanges, FilterRun, Verdict};
use super::retention::{Decision, Retention};
use crate::merging::Merging;

/// Bytes of operands after which they are combined, or else written as they are.
const CHAIN_BYTES_MAX: usize = 256 << 10;
/// Longest base that is read for a fold. Longer values are copied as they are, below their
/// operands.
const BASE_BYTES_MAX: u64 = 256 << 10;

/// Takes what a flush or compaction writes.
pub trait FoldOutput {
    /// The error of writing, and of reading the input.
    type Error: From<shamba_table::Error>;

    /// Adds the next entry; the digest of its key may be known.
    ///
    /// # Errors
    /// Of writing.
    fn add(
        &mut self,
        key: &[u8],
        digest: Option<KeyDigest>,
        seq: SeqNo,
        kind: EntryKind,
        value: &[u8],
    ) -> Result<(), Self::Error>;

    /// Adds the put at the position of `entries`, whose large value is copied in pieces.
    ///
    /// # Errors
    /// Of reading and writing.
    fn add_large(&mut self, entries: &dyn EntryIter) -> Result<(), Self::Error>;
}

/// The operands of one key and one stripe that have been read.
#[derive(Default)]
struct Pending {
    key: Vec<u8>,
    digest: Option<KeyDigest>,
    stripe: usize,
    /// Newest first.
    operands: Vec<Piece>,
    bytes: usize,
}

/// One operand, with the sequence numbers that it covers.
struct Piece {
    newest: SeqNo,
    oldest: SeqNo,
    bytes: Vec<u8>,
}

/// The version below a chain, as far as it is known.
#[derive(Clone, Copy)]
enum Below<'b> {
    /// It may be anywhere.
    Unknown,
    /// There is none, or a delete.
    Nothing,
    /// This value.
    Value(&'b [u8]),
}

/// Reduces a sorted input to what is written of it.
pub struct Folding<'a> {
    retention: Retention<'a>,
    merging: Option<&'a Merging>,
    filter: Option<FilterRun<'a>>,
    pending: Pending,
    /// Entries passed on.
    written: u64,
    /// Chains that the operator failed on.
    failed: u64,
    /// Entries that had expired.
    expired: u64,
}

impl<'a> Folding<'a> {
    /// Keeps what `retention` keeps, and folds with the operator of `merging`.
    pub fn new(retention: Retention<'a>, merging: Option<&'a Merging>) -> Self {
        let merging = merging.filter(|merging| merging.is_given());
        let pending = Pending::default();
        Self { retention, merging, filter: None, pending, written: 0, failed: 0, expired: 0 }
    }

    /// Asks `filter` about the values that are kept, except for those made of operands.
    #[must_use]
    pub fn with_filter(self, filter: Option<FilterRun<'a>>) -> Self {
        Self { filter, ..self }
    }

    /// Takes the entry at the position of `entries`.
    ///
    /// # Errors
    /// Those of `output`.
    #[inline]
    pub fn take<O: FoldOutput>(&mut self, entries: &impl EntryIter, output: &mut O) -> Result<(), O::Error> {
        let EntryView { key, seq, kind: stored_kind, value, .. } = entries.view();
        let kind = self.retention.kind_for_readers(seq, stored_kind, value);
        self.expired += u64::from(kind != stored_kind);
        let decision = self.retention.decide(key, seq, kind);
        let is_chained = kind == EntryKind::Merge || !self.pending.operands.is_empty();
        if is_chained && self.take_chained(entries, kind, decision, output)? {
            return Ok(());
        }
        if decision.is_kept {
            // One that has expired is no value any more.
            let is_asked = self.filter.is_some() && decision.is_newest && kind.is_put();
            if is_asked && self.take_filtered(entries, decision, output)? {
                return Ok(());
            }
            self.written += 1;
            return match kind {
                kind if kind.is_large() => output.add_large(entries),
                // The value of one that has expired goes.
                EntryKind::Delete => output.add(key, entries.digest(), seq, kind, &[]),
                _ => output.add(key, entries.digest(), seq, kind, value),
            };
        }
        Ok(())
    }

    /// Ends the input.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn finish<O: FoldOutput>(&mut self, output: &mut O) -> Result<(), O::Error> {
        self.end_at_key(output)
    }

    /// Entries passed on so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Changes by the filter.
    pub fn into_filter_changes(self) -> FilterChanges {
        self.filter.map(FilterRun::into_changes).unwrap_or_default()
    }

    /// Chains that the operator could not fold although what they apply to is known.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Entries that had expired for all their readers, and became tombstones or were dropped.
    pub fn expired(&self) -> u64 {
        self.expired
    }

    /// Asks the filter about an entry. Returns whether it has changed it; then what is left of it
    /// is written.
    #[cold]
    #[inline(never)]
    fn take_filtered<O: FoldOutput>(
        &mut self,
        entries: &dyn EntryIter,
        decision: Decision,
        output: &mut O,
    ) -> Result<bool, O::Error> {
        let Some(filter) = &mut self.filter else { return Ok(false) };
        let verdict = filter.judge(entries)?;
        let EntryView { key, seq, kind, value: payload, .. } = entries.view();
        let expiring;
        let (kind, value) = match &verdict {
            Verdict::Keep => return Ok(false),
            Verdict::Remove if self.retention.hides_nothing(key, decision.stripe) => return Ok(true),
            Verdict::Remove => (EntryKind::Delete, &[][..]),
            Verdict::Replace(value) => match Expiry::of(kind, payload) {
                None => (EntryKind::Put, &value[..]),
                Some(expiry) => {
                    expiring = expiry.encode(value);
                    (EntryKind::PutWithExpiry, &expiring[..])
                }
            },
        };
        output.add(key, entries.digest(), seq, kind, value)?;
        self.written += 1;
        Ok(true)
    }

    /// Takes an entry that is an operand or follows one; `kind` is that for its readers. Returns
    /// whether it was taken; otherwise what precedes it has been written.
    #[cold]
    #[inline(never)]
    fn take_chained<O: FoldOutput>(
        &mut self,
        entries: &dyn EntryIter,
        kind: EntryKind,
        decision: Decision,
        output: &mut O,
    ) -> Result<bool, O::Error> {
        let EntryView { key, seq, value, .. } = entries.view();
        if !self.pending.operands.is_empty() {
            if self.pending.key != key {
                self.end_at_key(output)?;
            } else if self.pending.stripe != decision.stripe {
                self.end(Below::Unknown, output)?;
            } else if !decision.is_kept {
                // A range tombstone covers it, or it is a delete over nothing. What lies below is
                // hidden too.
                self.end(Below::Nothing, output)?;
                return Ok(true);
            } else if self.pending.reaches(seq) {
                return Ok(true);
            } else if kind == EntryKind::Delete {
                return self.end(Below::Nothing, output);
            } else if kind != EntryKind::Merge {
                // Operands outlive a base that expires, so they stay apart until it has.
                let stays = kind.has_expiry() || self.merging.is_none();
                if stays || entries.value_bytes_len()? > BASE_BYTES_MAX {
                    self.end(Below::Unknown, output)?;
                    return Ok(false);
                }
                let mut base = Vec::new();
                let read = entries.read_value(&mut |piece| {
                    base.extend_from_slice(piece);
                    Ok(())
                });
                return match read {
                    Ok(()) => self.end(Below::Value(&base), output),
                    // A value file need not be read to keep what refers to it. Readers report it.
                    Err(_) if kind.in_value_file() => {
                        self.end(Below::Unknown, output)?;
                        Ok(false)
                    }
                    Err(error) => Err(error.into()),
                };
            }
        }
        if kind != EntryKind::Merge || !decision.is_kept || self.merging.is_none() {
            return Ok(false);
        }
        let Ok(operand) = Operand::decode(value) else {
            // A reader reports it. What is newer comes before it.
            self.end(Below::Unknown, output)?;
            return Ok(false);
        };
        if self.pending.operands.is_empty() {
            self.pending.begin(key, entries.digest(), decision.stripe);
        }
        self.pending.add(seq, operand);
        if self.pending.bytes > CHAIN_BYTES_MAX {
            self.shorten(output)?;
        }
        Ok(true)
    }

    /// Ends the chain, if there is one, where the input has no older version of its key.
    fn end_at_key<O: FoldOutput>(&mut self, output: &mut O) -> Result<(), O::Error> {
        if self.pending.operands.is_empty() {
            return Ok(());
        }
        let is_oldest = !self.retention.may_lie_below(&self.pending.key);
        self.end(if is_oldest { Below::Nothing } else { Below::Unknown }, output).map(drop)
    }

    /// Writes the chain, folded as far as possible. Returns whether it holds the version below it,
    /// which is then not to be written.
    fn end<O: FoldOutput>(&mut self, below: Below<'_>, output: &mut O) -> Result<bool, O::Error> {
        let (Some(merging), Some(newest)) = (self.merging, self.pending.operands.first()) else {
            return Ok(false);
        };
        let newest = newest.newest;
        let base = match below {
            Below::Unknown => None,
            Below::Nothing => Some(None),
            Below::Value(value) => Some(Some(value)),
        };
        if let Some(base) = base {
            match merging.fold(&self.pending.key, base, &self.pending.oldest_first()) {
                Ok(value) => {
                    let Pending { key, digest, .. } = &self.pending;
                    output.add(key, *digest, newest, EntryKind::Put, &value)?;
                    self.written += 1;
                    self.pending.clear();
                    return Ok(true);
                }
                Err(_) => self.failed += 1,
            }
        } else {
            self.pending.combine(merging);
        }
        self.write_operands(output)?;
        Ok(false)
    }

    /// Makes a long chain shorter, or writes it.
    fn shorten<O: FoldOutput>(&mut self, output: &mut O) -> Result<(), O::Error> {
        let Some(merging) = self.merging else { return Ok(()) };
        self.pending.combine(merging);
        // An operand that stays long would be combined with each further one.
        if self.pending.bytes > CHAIN_BYTES_MAX / 2 { self.write_operands(output) } else { Ok(()) }
    }

    fn write_operands<O: FoldOutput>(&mut self, output: &mut O) -> Result<(), O::Error> {
        let Pending { key, digest, operands, .. } = &self.pending;
        for piece in operands {
            let operand = Operand { reach: piece.newest.0 - piece.oldest.0, bytes: &piece.bytes };
            output.add(key, *digest, piece.newest, EntryKind::Merge, &operand.encode())?;
            self.written += 1;
        }
        self.pending.clear();
        Ok(())
    }
}

impl Pending {
    fn begin(&mut self, key: &[u8], digest: Option<KeyDigest>, stripe: usize) {
        self.key.clear();
        self.key.extend_from_slice(key);
        (self.digest, self.stripe, self.bytes) = (digest, stripe, 0);
    }

    fn add(&mut self, seq: SeqNo, operand: Operand<'_>) {
        debug_assert!(!self.reaches(seq), "the operand at {seq} is contained in a newer one");
        let oldest = SeqNo(seq.0.saturating_sub(operand.reach));
        self.bytes += operand.bytes.len() + size_of::<Piece>();
        self.operands.push(Piece { newest: seq, oldest, bytes: operand.bytes.to_vec() });
    }

    /// Whether the operands contain the version at `seq` already.
    fn reaches(&self, seq: SeqNo) -> bool {
        self.operands.last().is_some_and(|last| seq >= last.oldest)
    }

    fn oldest_first(&self) -> Vec<&[u8]> {
        self.operands.iter().rev().map(|piece| &piece.bytes[..]).collect()
    }

    /// Makes one operand of all, if the operator can.
    fn combine(&mut self, merging: &Merging) {
        let (Some(first), Some(last)) = (self.operands.first(), self.operands.last()) else { return };
        if self.operands.len() == 1 {
            return;
        }
        let (newest, oldest) = (first.newest, last.oldest);
        if let Some(bytes) = merging.combine(&self.key, &self.oldest_first()) {
            self.bytes = bytes.len() + size_of::<Piece>();
            self.operands.clear();
            self.operands.push(Piece { newest, oldest, bytes });
        }
    }

    fn clear(&mut self) {
        self.operands.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests;
