//! The history of the logs, as far as the stream of changes needs it: where a chain of logs began,
//! and what changed between two batches without a record in a log.
//!
//! An open begins a chain, and an epoch if numbers of a lost tail may be given out again. Ingests
//! and the creation and drop of keyspaces take a sequence number each, which a record without
//! effect reserves in the log. Their entries here are part of the edit that performs them.

use std::sync::Arc;

use bytes::Bytes;
use shamba_key::{KeyspaceId, LogNo, SeqNo};

/// Maximum number of epochs in the history. A position of an older one is refused, so this bounds
/// how many unclean stops a subscriber may miss, and the bytes in each manifest (some 3 KiB).
const EPOCHS_MAX: usize = 256;

/// Bytes of an entry without keys and names.
const ENTRY_BYTES: usize = 24;

/// One entry of the history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HistoryEntry {
    /// An open began a chain of logs.
    Opened {
        /// The first log of the chain; also the number of an epoch that begins with it.
        log: LogNo,
        /// The last log before it, if the two join without a gap; else 0.
        after: LogNo,
        /// The last sequence number that was recovered: later ones in older logs are lost.
        seq: SeqNo,
        /// Whether an epoch begins.
        is_epoch: bool,
    },
    /// Tables were ingested.
    Ingested {
        /// The sequence number of their entries.
        seq: SeqNo,
        /// The keyspace.
        keyspace: KeyspaceId,
        /// Number of entries.
        entries: u64,
        /// The first key.
        first: Bytes,
        /// The last key.
        last: Bytes,
    },
    /// A keyspace was created.
    Created {
        /// The sequence number of the creation.
        seq: SeqNo,
        /// The keyspace.
        keyspace: KeyspaceId,
        /// Its name.
        name: String,
    },
    /// A keyspace was dropped.
    Dropped {
        /// The sequence number of the drop.
        seq: SeqNo,
        /// The keyspace.
        keyspace: KeyspaceId,
        /// Its name.
        name: String,
    },
    /// Logs became obsolete, and are kept.
    Obsolete {
        /// Those below this one.
        below: LogNo,
        /// The last of them.
        last: LogNo,
        /// The last sequence number in it.
        seq: SeqNo,
        /// The time, in milliseconds since 1970-01-01 UTC.
        unix_ms: u64,
    },
}

impl HistoryEntry {
    /// The sequence number of a change that no log records.
    pub fn change_seq(&self) -> Option<SeqNo> {
        match self {
            Self::Ingested { seq, .. } | Self::Created { seq, .. } | Self::Dropped { seq, .. } => Some(*seq),
            Self::Opened { .. } | Self::Obsolete { .. } => None,
        }
    }

    /// Its bytes in a manifest, within some 20.
    fn bytes(&self) -> usize {
        let of_names = match self {
            Self::Ingested { first, last, .. } => first.len() + last.len(),
            Self::Created { name, .. } | Self::Dropped { name, .. } => name.len(),
            Self::Opened { .. } | Self::Obsolete { .. } => 0,
        };
        of_names + ENTRY_BYTES
    }
}

/// The entries, oldest first. A copy is cheap.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct History(Arc<Vec<HistoryEntry>>);

impl History {
    /// The entries, oldest first.
    pub fn entries(&self) -> &[HistoryEntry] {
        &self.0
    }

    /// Adds entries.
    pub fn extend(&mut self, entries: &[HistoryEntry]) {
        if !entries.is_empty() {
            Arc::make_mut(&mut self.0).extend_from_slice(entries);
        }
    }

    /// The epochs, oldest first: the number of each, and the sequence number before it.
    pub fn epochs(&self) -> impl DoubleEndedIterator<Item = (LogNo, SeqNo)> {
        self.0.iter().filter_map(|entry| match entry {
            HistoryEntry::Opened { log, seq, is_epoch: true, .. } => Some((*log, *seq)),
            _ => None,
        })
    }

    /// The last sequence number in `log` that was not lost; `None` if no later log began a chain.
    pub fn end_of(&self, log: LogNo) -> Option<SeqNo> {
        let ends = self.0.iter().filter_map(|entry| match entry {
            HistoryEntry::Opened { log: begun, seq, .. } if *begun > log => Some(*seq),
            _ => None,
        });
        ends.min()
    }

    /// The log before `log` and the last sequence number in it, if that began a chain and the two
    /// join, or if the one before is kept.
    pub fn before(&self, log: LogNo) -> Option<(LogNo, SeqNo)> {
        self.0.iter().find_map(|entry| match entry {
            HistoryEntry::Opened { log: begun, after, seq, .. } if *begun == log && after.0 != 0 => {
                Some((*after, *seq))
            }
            HistoryEntry::Obsolete { below, last, seq, .. } if *below == log => Some((*last, *seq)),
            _ => None,
        })
    }

    /// The time at which `log` became obsolete, if it was kept then.
    pub fn obsolete_since_ms(&self, log: LogNo) -> Option<u64> {
        let times = self.0.iter().filter_map(|entry| match entry {
            HistoryEntry::Obsolete { below, unix_ms, .. } if *below > log => Some(*unix_ms),
            _ => None,
        });
        times.min()
    }

    /// The change with this sequence number that no log records.
    pub fn change_at(&self, seq: SeqNo) -> Option<&HistoryEntry> {
        // Streams mostly read what is new.
        let newest_first = self.0.iter().rev().filter_map(|entry| Some((entry.change_seq()?, entry)));
        let mut from_seq = newest_first.take_while(|(change, _)| *change >= seq);
        from_seq.find(|(change, _)| *change == seq).map(|(_, entry)| entry)
    }

    /// Bytes of the changes after `seq` that no log records.
    pub fn change_bytes_after(&self, seq: SeqNo) -> usize {
        let changes = self.0.iter().rev().filter_map(|entry| Some((entry.change_seq()?, entry)));
        changes.take_while(|(change, _)| *change > seq).map(|(_, entry)| entry.bytes()).sum()
    }

    /// The sequence number at which a keyspace was dropped, and its name.
    pub fn dropped(&self, keyspace: KeyspaceId) -> Option<(SeqNo, &str)> {
        self.0.iter().find_map(|entry| match entry {
            HistoryEntry::Dropped { seq, keyspace: dropped, name } if *dropped == keyspace => {
                Some((*seq, name.as_str()))
            }
            _ => None,
        })
    }

    /// Removes the entries that only logs before `oldest` need, whose first batch follows `seq`.
    pub fn prune(&mut self, oldest: LogNo, seq: SeqNo) {
        let epochs = self.epochs().count();
        let mut to_remove = epochs.saturating_sub(EPOCHS_MAX);
        let mut is_needed = |entry: &HistoryEntry| match entry {
            HistoryEntry::Opened { is_epoch: true, .. } => {
                let is_needed = to_remove == 0;
                to_remove = to_remove.saturating_sub(1);
                is_needed
            }
            HistoryEntry::Opened { log, .. } => *log > oldest,
            HistoryEntry::Obsolete { below, .. } => *below > oldest,
            _ => entry.change_seq().is_some_and(|change| change > seq),
        };
        let Some(first) = self.0.iter().position(|entry| !is_needed(entry)) else { return };
        let mut kept = self.0[..first].to_vec();
        kept.extend(self.0[first + 1..].iter().filter(|entry| is_needed(entry)).cloned());
        self.0 = Arc::new(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(log: u64, after: u64, seq: u64, is_epoch: bool) -> HistoryEntry {
        HistoryEntry::Opened { log: LogNo(log), after: LogNo(after), seq: SeqNo(seq), is_epoch }
    }

    fn dropped(seq: u64, keyspace: u32) -> HistoryEntry {
        HistoryEntry::Dropped {
            seq: SeqNo(seq),
            keyspace: KeyspaceId(keyspace),
            name: format!("k{keyspace}"),
        }
    }

    #[test]
    fn a_log_ends_where_the_earliest_later_chain_began() {
        let mut history = History::default();
        history.extend(&[opened(5, 0, 0, true), opened(9, 7, 40, false), opened(12, 9, 35, true)]);
        assert_eq!(history.end_of(LogNo(7)), Some(SeqNo(35)));
        assert_eq!(history.end_of(LogNo(9)), Some(SeqNo(35)));
        assert_eq!(history.end_of(LogNo(12)), None);
        assert_eq!((history.before(LogNo(9)), history.before(LogNo(5))), (Some((LogNo(7), SeqNo(40))), None));
        assert_eq!(history.epochs().collect::<Vec<_>>(), [(LogNo(5), SeqNo(0)), (LogNo(12), SeqNo(35))]);
    }

    #[test]
    fn entries_that_no_log_needs_are_removed_and_epochs_stay() {
        let mut history = History::default();
        let obsolete = |below, unix_ms| HistoryEntry::Obsolete {
            below: LogNo(below),
            last: LogNo(below - 1),
            seq: SeqNo(7),
            unix_ms,
        };
        history.extend(&[opened(5, 0, 0, true), dropped(3, 2), obsolete(7, 100), opened(9, 7, 40, false)]);
        history.extend(&[dropped(45, 3), obsolete(11, 200)]);
        assert_eq!(history.obsolete_since_ms(LogNo(6)), Some(100));
        assert_eq!(history.obsolete_since_ms(LogNo(8)), Some(200));
        assert_eq!(history.before(LogNo(11)), Some((LogNo(10), SeqNo(7))));
        let before = history.clone();
        history.prune(LogNo(6), SeqNo(2));
        assert_eq!(history, before);
        history.prune(LogNo(8), SeqNo(30));
        let left = [opened(5, 0, 0, true), opened(9, 7, 40, false), dropped(45, 3), obsolete(11, 200)];
        assert_eq!(history.entries(), left);
        let name = |id| history.dropped(KeyspaceId(id)).map(|(_, name)| name);
        assert_eq!((name(3), name(2)), (Some("k3"), None));
        assert_eq!(history.change_at(SeqNo(45)), Some(&dropped(45, 3)));
        let bytes_after = [44, 45].map(|seq| history.change_bytes_after(SeqNo(seq)));
        assert_eq!(bytes_after, [ENTRY_BYTES + "k3".len(), 0]);
        for log in 20..20 + 2 * EPOCHS_MAX as u64 {
            history.extend(&[opened(log, 0, log, true)]);
        }
        history.prune(LogNo(8), SeqNo(30));
        assert_eq!(history.epochs().count(), EPOCHS_MAX);
        assert_eq!(history.epochs().next_back(), Some((LogNo(19 + 2 * EPOCHS_MAX as u64), SeqNo(531))));
    }

    #[test]
    fn the_oldest_log_and_the_number_before_it_need_no_entry() {
        let obsolete = |below| HistoryEntry::Obsolete {
            below: LogNo(below),
            last: LogNo(below - 1),
            seq: SeqNo(7),
            unix_ms: 100,
        };
        let mut history = History::default();
        history.extend(&[opened(9, 7, 40, false), obsolete(9), dropped(45, 3)]);
        let needed = [opened(10, 9, 45, false), obsolete(10), dropped(46, 4)];
        history.extend(&needed);
        history.prune(LogNo(9), SeqNo(45));
        assert_eq!(history.entries(), needed);
    }
}
