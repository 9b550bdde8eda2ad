//! Decides which versions of a key a compaction keeps: a pure decision over versions in internal
//! order.
//!
//! The live sequence numbers (snapshots, iterators) divide history into stripes. A reader sees the
//! newest version of its own stripe or of an older one. So the newest version of each key in each
//! stripe is kept and the others are dropped. A version under a range tombstone of its own stripe
//! is dropped. Below an operand of a merge operator the next older version is kept as well, up to
//! and including the first that is no operand; [`super::fold`] makes one entry of them.
//!
//! A point tombstone is dropped when nothing below can hold a version that it hides. This requires
//! that no table outside the compaction that is older than its output contains the key, and that no
//! reader is older than the tombstone. The versions that it hides inside the compaction are then
//! dropped as well.
//!
//! A version that has expired for the readers of its stripe is a point tombstone, at its own
//! sequence number. The time of a stripe's readers is that of the first one at its snapshot; that
//! of readers to come is the time at which the compaction began.
//!
//! Not here: reading and writing (`compaction::job`, package `shamba`).

use shamba_key::{EntryKind, Expiry, SeqNo, is_same_key};

use crate::snapshot::Readers;
use crate::version::{KeyRange, RangeUnion};
use shamba_table::FragmentedTombstones;

/// State of the retention decision of one compaction.
pub struct Retention<'a> {
    /// Live sequence numbers, ascending.
    snapshots: &'a [SeqNo],
    /// Range tombstones of all inputs.
    tombstones: &'a FragmentedTombstones,
    /// The keys of the tables below the output that are not inputs.
    below: RangeUnion,
    /// The readers' times, if entries may expire.
    readers: Option<&'a Readers>,
    key: Vec<u8>,
    has_key: bool,
    /// Stripe of the newest version kept of the current key.
    last_stripe: Option<usize>,
    /// Whether the versions kept of that stripe are operands only, which apply to an older one.
    is_open: bool,
}

/// The fate of a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// Whether it is kept.
    pub is_kept: bool,
    /// Its stripe of history: the number of readers that are older.
    pub stripe: usize,
    /// Whether it is the newest version of its key, and newer than every reader.
    pub is_newest: bool,
}

impl<'a> Retention<'a> {
    /// The decision for readers at `snapshots`, input range tombstones `tombstones`, and tables
    /// with the ranges `below` under the output.
    pub fn new(snapshots: &'a [SeqNo], tombstones: &'a FragmentedTombstones, below: Vec<KeyRange>) -> Self {
        debug_assert!(
            snapshots.is_sorted_by(|older, newer| older < newer),
            "the live sequence numbers do not ascend: {snapshots:?}"
        );
        let below = RangeUnion::of(below);
        let (key, has_key, last_stripe, is_open) = (Vec::new(), false, None, false);
        Self { snapshots, tombstones, below, readers: None, key, has_key, last_stripe, is_open }
    }

    /// Decides for readers at these times as well, whose sequence numbers are the snapshots.
    #[must_use]
    pub fn at_times(mut self, readers: &'a Readers) -> Self {
        debug_assert_eq!(readers.seqs, self.snapshots, "times of other readers");
        self.readers = Some(readers);
        self
    }

    /// The kind that a version has for all readers of its stripe: one that has expired for them is
    /// as good as a tombstone. A payload without an expiry never expires: a reader reports it.
    #[inline]
    pub fn kind_for_readers(&self, seq: SeqNo, kind: EntryKind, payload: &[u8]) -> EntryKind {
        match (Expiry::of(kind, payload), self.readers) {
            (Some(expiry), Some(readers))
                if expiry.is_past(readers.time_ms(stripe_of(seq, self.snapshots))) =>
            {
                EntryKind::Delete
            }
            _ => kind,
        }
    }

    /// Whether the next version, in internal order, is kept. Its kind is that of
    /// [`Self::kind_for_readers`].
    pub fn decide(&mut self, key: &[u8], seq: SeqNo, kind: EntryKind) -> Decision {
        if !self.has_key || !is_same_key(&self.key, key) {
            self.has_key = true;
            self.key.clear();
            self.key.extend_from_slice(key);
            self.last_stripe = None;
        }
        let stripe = stripe_of(seq, self.snapshots);
        let is_newest = self.last_stripe.is_none() && stripe == self.snapshots.len();
        let dropped = Decision { is_kept: false, stripe, is_newest };
        if self.last_stripe == Some(stripe) && !self.is_open {
            // A newer version of the same stripe hides it from every reader.
            return dropped;
        }
        if !self.tombstones.is_empty() {
            // The newest tombstone visible to the stripe's readers; the newest stripe has no upper
            // bound.
            let visible = self.snapshots.get(stripe).copied().unwrap_or(SeqNo::MAX);
            if self.tombstones.newest_covering(key, visible) > seq {
                // It covers all older versions of this stripe too. Older stripes are decided
                // separately.
                return dropped;
            }
        }
        self.last_stripe = Some(stripe);
        self.is_open = kind == EntryKind::Merge;
        // A dropped tombstone still hides the older versions of its stripe.
        let is_needless = kind == EntryKind::Delete && self.hides_nothing(key, stripe);
        Decision { is_kept: !is_needless, stripe, is_newest }
    }

    /// Whether a tombstone of the key in this stripe hides no version outside of the compaction's
    /// stripe, so that it need not be written.
    pub fn hides_nothing(&self, key: &[u8], stripe: usize) -> bool {
        stripe == 0 && !self.may_lie_below(key)
    }

    /// Whether a table below the output, which is no input, may hold a version of the key.
    pub fn may_lie_below(&self, key: &[u8]) -> bool {
        self.below.contains(key)
    }

    /// Whether the compaction may drop a range tombstone over `range`.
    pub fn drops_range_tombstone(&self, range: &KeyRange, seq: SeqNo) -> bool {
        stripe_of(seq, self.snapshots) == 0 && !self.below.overlaps(range)
    }
}

/// Stripe of a version: the number of readers older than it.
fn stripe_of(seq: SeqNo, snapshots: &[SeqNo]) -> usize {
    snapshots.partition_point(|snapshot| *snapshot < seq)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use shamba_table::RangeTombstone;

    use super::*;

    fn seqs(list: &[u64]) -> Vec<SeqNo> {
        list.iter().copied().map(SeqNo).collect()
    }

    fn kept(snapshots: &[u64], versions: &[(u64, EntryKind)], below: &[KeyRange], cover: &[u64]) -> Vec<u64> {
        let snapshots = seqs(snapshots);
        let tombstones = cover.iter().map(|seq| RangeTombstone {
            start: Bytes::from_static(b"a"),
            end: Some(Bytes::from_static(b"z")),
            seq: SeqNo(*seq),
        });
        let tombstones = FragmentedTombstones::new(tombstones.collect());
        let mut retention = Retention::new(&snapshots, &tombstones, below.to_vec());
        let keep = |(seq, kind): &&(u64, EntryKind)| retention.decide(b"k", SeqNo(*seq), *kind).is_kept;
        versions.iter().filter(keep).map(|(seq, _)| *seq).collect()
    }

    use EntryKind::{Delete, Merge, Put};

    #[test]
    fn what_operands_apply_to_stays() {
        let versions = [(9, Merge), (7, Merge), (5, Put), (3, Put), (1, Merge)];
        assert_eq!(kept(&[], &versions, &[], &[]), [9, 7, 5]);
        assert_eq!(kept(&[8], &versions, &[], &[]), [9, 7, 5]);
        assert_eq!(kept(&[1, 4], &versions, &[], &[]), [9, 7, 5, 3, 1]);
        assert_eq!(kept(&[], &[(9, Merge), (8, Delete), (7, Merge)], &[KeyRange::everything()], &[]), [9, 8]);
        assert_eq!(kept(&[], &[(9, Merge), (8, Delete), (7, Merge)], &[], &[]), [9]);
        assert_eq!(kept(&[], &versions, &[], &[6]), [9, 7]);
        assert_eq!(kept(&[], &versions, &[], &[8]), [9]);
    }

    #[test]
    fn the_newest_version_of_each_stripe_stays() {
        let versions = [(9, Put), (7, Put), (5, Put), (3, Put), (1, Put)];
        assert_eq!(kept(&[], &versions, &[], &[]), [9]);
        assert_eq!(kept(&[5], &versions, &[], &[]), [9, 5]);
        assert_eq!(kept(&[4, 7, 20], &versions, &[], &[]), [9, 7, 3]);
        assert_eq!(kept(&[1, 2], &versions, &[], &[]), [9, 1]);
    }

    #[test]
    fn a_tombstone_goes_only_when_nothing_below_and_no_older_reader() {
        let below = [KeyRange::everything()];
        assert_eq!(kept(&[], &[(5, Delete), (3, Put)], &[], &[]), [0u64; 0]);
        assert_eq!(kept(&[], &[(5, Delete), (3, Put)], &below, &[]), [5]);
        assert_eq!(kept(&[4], &[(5, Delete), (3, Put)], &[], &[]), [5, 3]);
        assert_eq!(kept(&[5], &[(5, Delete), (3, Put)], &[], &[]), [0u64; 0]);
    }

    #[test]
    fn a_range_tombstone_hides_older_versions_of_its_own_stripe() {
        assert_eq!(kept(&[], &[(9, Put), (3, Put)], &[], &[6]), [9]);
        assert_eq!(kept(&[], &[(3, Put)], &[], &[6]), [0u64; 0]);
        assert_eq!(kept(&[4], &[(9, Put), (3, Put)], &[], &[6]), [9, 3]);
        assert_eq!(kept(&[7], &[(9, Put), (3, Put)], &[], &[6]), [9]);
    }

    #[test]
    fn an_expired_version_is_a_tombstone_for_the_readers_of_its_stripe() {
        let readers = Readers { seqs: seqs(&[4, 7]), times_ms: vec![100, 200], now_ms: 300 };
        let tombstones = FragmentedTombstones::new(Vec::new());
        let retention = Retention::new(&readers.seqs, &tombstones, Vec::new()).at_times(&readers);
        let kind = |seq, ms| {
            retention.kind_for_readers(SeqNo(seq), EntryKind::PutWithExpiry, &Expiry(ms).encode(b"v"))
        };
        for (seq, expired_ms) in [(3, 100), (4, 100), (5, 200), (7, 200), (8, 300)] {
            assert_eq!(kind(seq, expired_ms), Delete, "{seq}");
            assert_eq!(kind(seq, expired_ms + 1), EntryKind::PutWithExpiry, "{seq}");
        }
        assert_eq!(
            retention.kind_for_readers(SeqNo(3), EntryKind::PutWithExpiry, b"bad"),
            EntryKind::PutWithExpiry
        );
        assert_eq!(retention.kind_for_readers(SeqNo(3), Put, &Expiry(1).encode(b"v")), Put);
        let untimed = Retention::new(&readers.seqs, &tombstones, Vec::new());
        let stored = Expiry(0).encode(b"v");
        assert_eq!(
            untimed.kind_for_readers(SeqNo(3), EntryKind::PutWithExpiry, &stored),
            EntryKind::PutWithExpiry
        );
    }
}
