//! Operands of merge operators in a scan: the merging iterator presents the versions of a key from
//! the newest on, and the operands among them are folded on the way ([`crate::merging`]). A scan
//! uses the folded values that lookups have left in memtables, and leaves none. A backward scan,
//! which came from the oldest version, seeks back to the newest one first.

use bytes::Bytes;
use shamba_key::{EntryKind, Expiry, SeqNo};
use shamba_table::EntryIter;

use super::VisibleIter;
use crate::error::Result;
use crate::iter::batch::Batch;
use crate::merging::chain::{Chain, Link};
use crate::slice::Slice;
use crate::version::TableMeta;

impl VisibleIter {
    /// Folds the operands of the current key, whose newest visible version is at hand, and adds the
    /// key with the result to `out`. The merging iterator is afterwards at the entry that ended the
    /// chain, or behind the key.
    #[cold]
    pub(super) fn fold(&mut self, floor: SeqNo, out: &mut Batch) -> Result<()> {
        let mut chain = Chain::default();
        let mut folded = None;
        let mut base = None;
        while self.merge.valid() && self.merge.key() == self.key {
            if chain.is_long() && folded.is_none() {
                folded = Some(self.view.folded(&self.key, self.seq, floor));
            }
            if let Some(Some((seq, value))) = &folded {
                if self.merge.seq() <= *seq {
                    if chain.cut_at(*seq) {
                        base = Some(value.clone());
                        break;
                    }
                    folded = Some(None);
                }
            }
            let version = (self.merge.seq(), self.kind()?);
            match chain.offer(version, self.merge.value(), floor)? {
                Link::Operand => self.merge.next()?,
                Link::NoBase => break,
                Link::Base => {
                    base = Some(self.whole_value()?);
                    break;
                }
            }
        }
        let value = chain.fold(self.view.merging(), &self.key, base.as_deref())?;
        out.push_folded(&self.key, Slice::from(Vec::from(value)));
        Ok(())
    }

    /// Moves the merging iterator back to version `seq` of the current key, which a backward scan
    /// has left.
    ///
    /// # Errors
    /// `Corruption` if a seek does not lead there, since keys of a table are out of order.
    #[cold]
    pub(super) fn seek_back(&mut self, seq: SeqNo, is_it: fn(EntryKind) -> bool) -> Result<()> {
        self.merge.seek(&self.key, seq)?;
        let is_at_key = self.merge.valid() && self.merge.key() == self.key;
        if is_at_key && self.merge.seq() == seq && is_it(self.merge.kind()) {
            return Ok(());
        }
        let may_be = |table: &TableMeta| (table.smallest_seq..=table.largest_seq).contains(&seq);
        Err(self.disorder(&format!("a seek does not find version {seq} of"), may_be))
    }

    /// The value of the put at the merging iterator's position, however long.
    fn whole_value(&self) -> Result<Bytes> {
        // The value of one that expires begins after its expiry.
        let from = if self.merge.kind().has_expiry() { Expiry::STORED_BYTES } else { 0 };
        if !self.merge.is_large() {
            let payload = self.merge.value_bytes();
            return Ok(payload.slice(from.min(payload.len())..));
        }
        let mut value = Vec::new();
        self.merge.read_value(&mut |piece| {
            value.extend_from_slice(piece);
            Ok(())
        })?;
        let payload = Bytes::from(value);
        Ok(payload.slice(from.min(payload.len())..))
    }
}
