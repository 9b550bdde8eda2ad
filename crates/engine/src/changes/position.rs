//! Positions in a stream of changes, and which of them are valid.
//!
//! A recovery after an unclean stop may give out the sequence numbers of a lost tail again. So it
//! begins an epoch. A position of an earlier epoch is valid up to the sequence number at which the
//! next epoch began, because everything up to there was recovered.

use std::fmt;
use std::str::FromStr;

use shamba_key::SeqNo;
use shamba_tree::version::History;

use crate::database::core::Core;
use crate::error::{Error, ErrorKind, Result};

/// A position in a stream of changes: after every change up to a sequence number.
///
/// Its text form is `EPOCH:SEQUENCE`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ChangePosition {
    /// The epoch in which the sequence number was given out. Each recovery after an unclean stop
    /// begins a new one. 0 if the database was open read-only or without a log: no stream of
    /// changes begins at such a position.
    pub epoch: u64,
    /// The sequence number of the last operation before the position.
    pub sequence: u64,
}

impl fmt::Display for ChangePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch, self.sequence)
    }
}

impl FromStr for ChangePosition {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = text.split_once(':').and_then(|(epoch, sequence)| {
            Some(Self { epoch: epoch.parse().ok()?, sequence: sequence.parse().ok()? })
        });
        parsed.ok_or_else(|| Error::invalid(format!("a position must be EPOCH:SEQUENCE, not {text:?}")))
    }
}

/// The present epoch; 0 in a database that has none, because it is read-only or has no log. Without
/// a log a crash may lose writes, and the next open gives their numbers out again without knowing.
pub(super) fn epoch(core: &Core) -> u64 {
    if core.settings.no_wal {
        return 0;
    }
    core.catalog.with_state(|state| state.map_or(0, |state| current(&state.history)))
}

fn current(history: &History) -> u64 {
    history.epochs().next_back().map_or(0, |(epoch, _)| epoch.0)
}

/// Checks that a position is not before or in what was lost, nor beyond `newest`. Returns the
/// present epoch.
///
/// # Errors
/// `Gone`, `Invalid`.
pub(super) fn check(history: &History, position: ChangePosition, newest: SeqNo) -> Result<u64> {
    let ChangePosition { epoch, sequence } = position;
    let current = current(history);
    if epoch == 0 {
        let why = "it was taken while the database was open read-only or without a log";
        return Err(Error::new(ErrorKind::Gone, format!("position {position}: {why}")));
    }
    let began: Vec<(u64, u64)> = history.epochs().map(|(epoch, seq)| (epoch.0, seq.0)).collect();
    if !began.iter().any(|(known, _)| *known == epoch) {
        return Err(Error::new(
            ErrorKind::Gone,
            format!(
                "position {position}: epoch {epoch} is not known to this database; the present one is {current}"
            ),
        ));
    }
    let end = began.iter().filter(|(later, _)| *later > epoch).map(|(_, seq)| *seq).min();
    match end {
        Some(end) if sequence > end => Err(Error::new(
            ErrorKind::Gone,
            format!(
                "position {position}: a crash lost what was written after {epoch}:{end}, where the next epoch began"
            ),
        )),
        None if sequence > newest.0 => {
            Err(Error::invalid(format!("position {position}: the newest one is {current}:{newest}")))
        }
        _ => Ok(current),
    }
}

#[cfg(test)]
mod tests {
    use shamba_key::LogNo;
    use shamba_tree::version::HistoryEntry;

    use super::*;

    #[test]
    fn positions_are_valid_up_to_the_begin_of_each_later_epoch() {
        let opened = |log, seq, is_epoch| HistoryEntry::Opened {
            log: LogNo(log),
            after: LogNo(0),
            seq: SeqNo(seq),
            is_epoch,
        };
        let mut history = History::default();
        // The third recovery found less than the second: its tail was not synced either.
        history.extend(&[
            opened(5, 0, true),
            opened(8, 30, false),
            opened(9, 100, true),
            opened(12, 90, true),
        ]);
        let outcome = |epoch, sequence| {
            check(&history, ChangePosition { epoch, sequence }, SeqNo(120)).map_err(|error| error.kind())
        };
        for (epoch, last) in [(5, 90), (9, 90)] {
            assert_eq!((outcome(epoch, 0), outcome(epoch, last)), (Ok(12), Ok(12)));
            assert_eq!(outcome(epoch, last + 1), Err(ErrorKind::Gone));
        }
        assert_eq!((outcome(12, 120), outcome(12, 121)), (Ok(12), Err(ErrorKind::Invalid)));
        for unknown in [0, 8, 13] {
            assert_eq!(outcome(unknown, 1), Err(ErrorKind::Gone));
        }
    }

    #[test]
    fn the_text_form_is_read_back() {
        let position = ChangePosition { epoch: 7, sequence: 41 };
        assert_eq!(position.to_string(), "7:41");
        assert_eq!("7:41".parse::<ChangePosition>().ok(), Some(position));
        for wrong in ["", "7", "7:", ":1", "7:-1", "7:1:2", "a:b"] {
            let error = wrong.parse::<ChangePosition>().expect_err(wrong);
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
    }
}
