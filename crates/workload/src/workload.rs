//! The workloads of `bench`: their names and operations.

use std::fmt;
use std::str::FromStr;

macro_rules! workloads {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// One workload. `num` and `reads` are those of [`crate::Options`].
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Workload {
            $($(#[$doc])* $variant,)*
        }

        impl Workload {
            /// Every workload, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name on the command line and in results.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

workloads! {
    /// Puts every item once, in key order.
    FillSeq = "fillseq",
    /// Puts every item once, in random order.
    FillRandom = "fillrandom",
    /// Puts existing items `num` times.
    Overwrite = "overwrite",
    /// Gets `reads` items, the share `empty_fraction` of them absent.
    ReadRandom = "readrandom",
    /// Gets `reads` absent keys, which lie between existing ones.
    ReadMissing = "readmissing",
    /// Like `ReadRandom`, with `multi_get` keys per call; an operation is a key.
    MultiReadRandom = "multireadrandom",
    /// Like `ReadMissing`, with `multi_get` keys per call; an operation is a key.
    MultiReadMissing = "multireadmissing",
    /// Walks `reads` entries forward from the first.
    ReadSeq = "readseq",
    /// Walks `reads` entries backward from the last.
    ReadReverse = "readreverse",
    /// Seeks a new cursor to `reads` keys, and reads the entry there and the `seek_nexts` after it.
    SeekRandom = "seekrandom",
    /// `reads` times: puts 20 items, then seeks a new cursor to another one. An operation is the
    /// seek.
    SeekAfterPuts = "seekafterputs",
    /// `ReadRandom` while one more thread overwrites continuously.
    ReadWhileWriting = "readwhilewriting",
    /// Deletes `reads` items.
    DeleteRandom = "deleterandom",
    /// First in, first out: `num` puts at the tail, and the same number of takes from the head.
    Queue = "queue",
    /// Puts all items, deletes them by one range tombstone, puts one entry behind them, and reads
    /// the first entry with up to 100 new iterators. An operation is the read.
    ScanDeletedRange = "scandeletedrange",
    /// Like `ScanDeletedRange`, with a delete of each item.
    ScanDeletedKeys = "scandeletedkeys",
    /// Executes the operations of a trace, in order.
    Replay = "replay",
    /// YCSB A: 50 % gets, 50 % updates, zipf.
    YcsbA = "ycsb-a",
    /// YCSB B: 95 % gets, 5 % updates, zipf.
    YcsbB = "ycsb-b",
    /// YCSB C: gets only, zipf.
    YcsbC = "ycsb-c",
    /// YCSB D: 95 % gets of the latest, 5 % inserts.
    YcsbD = "ycsb-d",
    /// YCSB E: 95 % scans of 1 to 100 entries, 5 % inserts, zipf.
    YcsbE = "ycsb-e",
    /// YCSB F: 50 % gets, 50 % read-modify-writes, zipf.
    YcsbF = "ycsb-f",
}

impl Workload {
    /// Whether it fills a database, which must be empty unless the caller allows otherwise.
    pub fn is_fill(self) -> bool {
        matches!(self, Self::FillSeq | Self::FillRandom)
    }

    /// Whether it deletes all entries of the default keyspace.
    pub fn deletes_all(self) -> bool {
        matches!(self, Self::ScanDeletedRange | Self::ScanDeletedKeys)
    }

    /// Whether all operations are lookups or seeks, which are too short for individual clock reads.
    pub fn is_short(self) -> bool {
        use Workload::{
            MultiReadMissing, MultiReadRandom, ReadMissing, ReadRandom, ReadWhileWriting, SeekRandom, YcsbC,
        };
        matches!(
            self,
            ReadRandom
                | ReadMissing
                | MultiReadRandom
                | MultiReadMissing
                | SeekRandom
                | ReadWhileWriting
                | YcsbC
        )
    }

    /// Whether lookups use multi-get.
    pub fn is_multi(self) -> bool {
        matches!(self, Self::MultiReadRandom | Self::MultiReadMissing)
    }

    /// Whether it reads, and therefore starts after all flushes and compactions.
    pub fn reads(self) -> bool {
        !matches!(self, Self::FillSeq | Self::FillRandom | Self::Overwrite | Self::DeleteRandom | Self::Queue)
    }

    /// Whether it may delete items.
    pub fn deletes(self) -> bool {
        matches!(self, Self::DeleteRandom | Self::ScanDeletedRange | Self::ScanDeletedKeys | Self::Replay)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.iter().copied().find(|workload| workload.name() == name).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|workload| workload.name()).collect();
            format!("unknown workload {name:?} (known: {})", known.join(", "))
        })
    }
}
