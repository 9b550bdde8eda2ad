//! A chain: the operands of one key that a reader collects, from the newest on.
//!
//! The reader offers the versions of the key, newest first. The chain takes operands until an entry
//! ends it: a put, whose value is the base; a delete or an entry at or below a range tombstone,
//! which leave no base. What combined operands contain already is passed over
//! ([`shamba_key::Operand`]).

use bytes::Bytes;
use shamba_key::{EntryKind, Operand, SeqNo};
use shamba_table::Value;

use super::{Merging, no_operator};
use crate::error::{Error, Result};

/// Operands after which a reader asks for a folded value, and leaves one. That number of steps
/// along the chain costs less than a microsecond.
pub const LONG_OPERANDS: usize = 32;

/// The meaning of a version of the key for a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// The chain goes on below it.
    Operand,
    /// It ends the chain, and its value is the base.
    Base,
    /// It ends the chain without a base.
    NoBase,
}

/// An entry of the chain.
struct Piece {
    newest: SeqNo,
    /// The oldest operand in it.
    oldest: SeqNo,
    /// As it is stored.
    stored: Value,
}

/// The operands of a key at one sequence number.
#[derive(Default)]
pub struct Chain {
    /// Newest first.
    operands: Vec<Piece>,
    /// Entries from here on are contained in the operands.
    reached: Option<SeqNo>,
    /// Number of operands that were offered.
    walked: usize,
}

impl Chain {
    /// Takes the next older version, if it is an operand above `floor`. A put that has expired is
    /// offered as a delete ([`crate::expiry::kind_at`]).
    ///
    /// # Errors
    /// `Invalid` for bytes that are no operand.
    pub fn offer(&mut self, (seq, kind): (SeqNo, EntryKind), value: &[u8], floor: SeqNo) -> Result<Link> {
        if seq <= floor {
            return Ok(Link::NoBase);
        }
        if self.reached.is_some_and(|reached| seq >= reached) {
            return Ok(Link::Operand);
        }
        match kind {
            EntryKind::Put
            | EntryKind::ValueRef
            | EntryKind::PutWithExpiry
            | EntryKind::ValueRefWithExpiry
            | EntryKind::ValueFileRef
            | EntryKind::ValueFileRefWithExpiry => Ok(Link::Base),
            EntryKind::Delete | EntryKind::RangeDelete => Ok(Link::NoBase),
            EntryKind::Merge => {
                let operand = Operand::decode(value).map_err(Error::invalid)?;
                let oldest = SeqNo(seq.0.saturating_sub(operand.reach));
                self.reached = Some(oldest);
                self.operands.push(Piece { newest: seq, oldest, stored: Value::copy_of(value) });
                self.walked += 1;
                Ok(Link::Operand)
            }
        }
    }

    /// Whether a folded value is worth asking for, and worth leaving.
    pub fn is_long(&self) -> bool {
        self.walked >= LONG_OPERANDS
    }

    /// The sequence number below which the next version lies; `None` before the first operand.
    pub fn next_seq(&self) -> Option<SeqNo> {
        self.reached.and_then(|reached| reached.0.checked_sub(1)).map(SeqNo)
    }

    /// The sequence number of the newest operand.
    pub fn newest(&self) -> Option<SeqNo> {
        self.operands.first().map(|piece| piece.newest)
    }

    /// Number of operands.
    #[allow(clippy::len_without_is_empty, reason = "no caller asks")]
    pub fn len(&self) -> usize {
        self.operands.len()
    }

    /// Removes the operands that a folded value at this sequence number contains. False, and no
    /// effect, if a combined operand is contained in part.
    #[must_use]
    pub fn cut_at(&mut self, folded: SeqNo) -> bool {
        let kept = self.operands.partition_point(|piece| piece.newest > folded);
        let is_whole =
            self.operands.get(..kept).is_none_or(|kept| kept.iter().all(|piece| piece.oldest > folded));
        if is_whole {
            self.operands.truncate(kept);
        }
        is_whole
    }

    /// The value that the operator makes of the operands and `base`.
    ///
    /// # Errors
    /// As [`Merging::fold`]; `Unsupported` if the keyspace records no operator.
    pub fn fold(&self, merging: Option<&Merging>, key: &[u8], base: Option<&[u8]>) -> Result<Bytes> {
        let Some(merging) = merging else { return Err(no_operator(key)) };
        if let (Some(base), true) = (base, self.operands.is_empty()) {
            return Ok(Bytes::copy_from_slice(base));
        }
        let mut operands = Vec::with_capacity(self.operands.len());
        for piece in self.operands.iter().rev() {
            operands.push(Operand::decode(&piece.stored).map_err(Error::invalid)?.bytes);
        }
        merging.fold(key, base, &operands).map(Bytes::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(chain: &mut Chain, newest: u64, oldest: u64) {
        let stored = Operand { reach: newest - oldest, bytes: b"x" }.encode();
        let offered = chain.offer((SeqNo(newest), EntryKind::Merge), &stored, SeqNo::ZERO);
        assert!(matches!(offered, Ok(Link::Operand)), "{newest} to {oldest}");
    }

    #[test]
    fn a_folded_value_replaces_whole_operands_only() {
        let mut chain = Chain::default();
        offered(&mut chain, 9, 9);
        offered(&mut chain, 8, 4);
        // Contained in the one before it.
        offered(&mut chain, 6, 6);
        offered(&mut chain, 3, 2);
        assert_eq!((chain.len(), chain.next_seq(), chain.newest()), (3, Some(SeqNo(1)), Some(SeqNo(9))));
        for (folded, left) in [(1, Some(3)), (2, None), (3, Some(2)), (4, None), (7, None), (8, Some(1))] {
            let mut chain = Chain::default();
            [(9, 9), (8, 4), (3, 2)]
                .iter()
                .for_each(|(newest, oldest)| offered(&mut chain, *newest, *oldest));
            let cut = chain.cut_at(SeqNo(folded)).then(|| chain.len());
            assert_eq!(cut, left, "at {folded}");
            if left.is_none() {
                assert_eq!(chain.len(), 3, "at {folded}: nothing is removed");
            }
        }
    }
}
