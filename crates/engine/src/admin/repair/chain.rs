//! The operands of a merge operator that a repair writes of one key.
//!
//! The versions of the key are offered from the newest on, down to the first put or delete: the base
//! to which the operands apply. Each operand is written as a single one, since the new database has
//! other sequence numbers. What combined operands contain is passed over: a repair may find both the
//! inputs and the output of a compaction, and the log as well as the table that was flushed from it.

use bytes::Bytes;
use shamba_key::{Operand, SeqNo};

/// The fault of operands that overlap, but do not contain each other.
const OVERLAP: &str = "operands are combined with others of which only a part was found";

/// The operands of one key.
#[derive(Default)]
pub(super) struct Chain {
    /// `None` before the first key.
    key: Option<Vec<u8>>,
    /// Newest first, as they were written.
    operands: Vec<Bytes>,
    /// Versions from here on are contained in the operands.
    reached: Option<SeqNo>,
    is_ended: bool,
}

impl Chain {
    pub(super) fn of(key: Vec<u8>) -> Self {
        Self { key: Some(key), ..Self::default() }
    }

    pub(super) fn is_of(&self, key: &[u8]) -> bool {
        self.key.as_deref() == Some(key)
    }

    /// Whether older versions of the key do not count.
    pub(super) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Takes the operand of the next older version; false if it is contained in those before it. Of
    /// operands at the same sequence number the one that reaches farthest must come first.
    ///
    /// # Errors
    /// A phrase, if a part of it is lost: the bytes are no operand, or the operand is combined with
    /// older ones, while a newer one contains it already.
    pub(super) fn offer_operand(&mut self, seq: SeqNo, stored: &[u8]) -> Result<bool, String> {
        let operand = Operand::decode(stored)?;
        let oldest = SeqNo(seq.0.saturating_sub(operand.reach));
        match self.reached {
            Some(reached) if seq >= reached && oldest < reached => Err(OVERLAP.to_owned()),
            Some(reached) if seq >= reached => Ok(false),
            _ => {
                self.operands.push(Bytes::copy_from_slice(operand.bytes));
                self.reached = Some(oldest);
                Ok(true)
            }
        }
    }

    /// Whether the next older version, a put or delete, is below the operands, and so their base.
    ///
    /// # Errors
    /// A phrase, if the operands contain its sequence number: it was folded from some of them and
    /// from older ones.
    pub(super) fn offer_other(&self, seq: SeqNo) -> Result<bool, String> {
        match self.reached {
            Some(reached) if seq >= reached => Err(OVERLAP.to_owned()),
            _ => Ok(true),
        }
    }

    /// Ends the chain: returns what is to be written, and leaves a chain that takes nothing.
    pub(super) fn end(&mut self) -> Self {
        let ended = Self { key: self.key.clone(), is_ended: true, ..Self::default() };
        std::mem::replace(self, ended)
    }

    /// The key, and the operands in the order in which they are to be written.
    pub(super) fn into_operands(self) -> (Vec<u8>, impl Iterator<Item = Bytes>) {
        (self.key.unwrap_or_default(), self.operands.into_iter().rev())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operand(newest: u64, oldest: u64, text: &str) -> (u64, Vec<u8>) {
        (newest, Operand { reach: newest - oldest, bytes: text.as_bytes() }.encode())
    }

    /// The operands that are written of those offered, and the number of faults.
    fn written(offered: &[(u64, Vec<u8>)]) -> (Vec<String>, usize) {
        let mut chain = Chain::of(b"k".to_vec());
        let offered = offered.iter().map(|(seq, stored)| chain.offer_operand(SeqNo(*seq), stored));
        let faults = offered.filter(Result::is_err).count();
        let (_, operands) = chain.end().into_operands();
        assert!(chain.is_ended() && chain.is_of(b"k"));
        (operands.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect(), faults)
    }

    #[test]
    fn operands_are_written_oldest_first_and_once() {
        let singles = [operand(9, 9, "c"), operand(7, 7, "b"), operand(5, 5, "a")];
        assert_eq!(written(&singles), (vec!["a".to_owned(), "b".to_owned(), "c".to_owned()], 0));
        let mut both = singles.to_vec();
        both.insert(0, operand(9, 7, "bc"));
        assert_eq!(written(&both), (vec!["a".to_owned(), "bc".to_owned()], 0));
        both.insert(0, operand(9, 5, "abc"));
        assert_eq!(written(&both), (vec!["abc".to_owned()], 0));
    }

    #[test]
    fn operands_of_which_a_part_is_lost_are_faults() {
        let overlapping = [operand(9, 7, "bc"), operand(7, 5, "ab"), operand(3, 3, "z")];
        assert_eq!(written(&overlapping), (vec!["z".to_owned(), "bc".to_owned()], 1));
        assert_eq!(written(&[(9, vec![7])]), (vec![], 1));
        let mut chain = Chain::of(b"k".to_vec());
        assert_eq!(chain.offer_other(SeqNo(9)), Ok(true));
        let (seq, stored) = operand(9, 7, "bc");
        assert_eq!(chain.offer_operand(SeqNo(seq), &stored), Ok(true));
        assert!(chain.offer_other(SeqNo(7)).is_err() && chain.offer_other(SeqNo(6)) == Ok(true));
    }
}
