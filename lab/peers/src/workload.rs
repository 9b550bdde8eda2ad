//! The workloads, as requests by number: the same for every engine.
//!
//! An item is a number; its key and its value are functions of that, of the seed and of how often
//! it was written ([`crate::book`]). The names are those of `shamba bench` and YCSB.
//!
//! Not here: keys and values ([`crate::book`]), execution ([`crate::meter`]).

use serde::{Deserialize, Serialize};
use shamba_workload::{Distribution, Permutation, Picker};

/// Entries that a seek reads from where it lands.
pub const SEEK_ENTRIES: u64 = 10;
/// The longest scan of `ycsb-e`.
const SCAN_ENTRIES_MAX: u64 = 100;

/// One workload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Every item once, in key order.
    FillSeq,
    /// Every item once, in random order.
    FillRandom,
    /// A walk over everything.
    ReadSeq,
    /// Gets of items.
    ReadRandom,
    /// Gets of keys that were never written and lie among those that were.
    ReadMissing,
    /// Seeks to items, 10 entries read from there.
    SeekRandom,
    /// 95 % gets, 5 % puts of items, zipf.
    YcsbB,
    /// 50 % gets, 50 % puts of items, zipf.
    YcsbA,
    /// 95 % scans of 1 to 100 entries, zipf, 5 % puts of new items.
    YcsbE,
    /// Puts of items.
    Overwrite,
    /// Puts of items, each on stable storage before the next.
    SyncPut,
    /// Every item once more, in another random order, and then all of it in one sorted run.
    Rewrite,
}

impl Workload {
    /// Every one, in the order of tables.
    pub const ALL: [Self; 12] = [
        Self::FillSeq,
        Self::FillRandom,
        Self::ReadSeq,
        Self::ReadRandom,
        Self::ReadMissing,
        Self::SeekRandom,
        Self::YcsbB,
        Self::YcsbA,
        Self::YcsbE,
        Self::Overwrite,
        Self::SyncPut,
        Self::Rewrite,
    ];

    /// Those that a filled database is asked, in that order: the ones that write are last, and
    /// behind lookups the walk, which would leave caches full of its end. `overwrite` is the very
    /// last, for what it leaves on disk is looked at after the close.
    pub const ASKED: [Self; 9] = [
        Self::ReadRandom,
        Self::ReadMissing,
        Self::SeekRandom,
        Self::ReadSeq,
        Self::YcsbB,
        Self::YcsbA,
        Self::YcsbE,
        Self::SyncPut,
        Self::Overwrite,
    ];

    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::FillSeq => "fillseq",
            Self::FillRandom => "fillrandom",
            Self::ReadSeq => "readseq",
            Self::ReadRandom => "readrandom",
            Self::ReadMissing => "readmissing",
            Self::SeekRandom => "seekrandom",
            Self::YcsbB => "ycsb-b",
            Self::YcsbA => "ycsb-a",
            Self::YcsbE => "ycsb-e",
            Self::Overwrite => "overwrite",
            Self::SyncPut => "syncput",
            Self::Rewrite => "rewrite",
        }
    }

    /// Whether it fills a new database.
    pub fn is_fill(self) -> bool {
        matches!(self, Self::FillSeq | Self::FillRandom)
    }

    /// Whether it only reads, so that one view may serve all of it.
    pub fn only_reads(self) -> bool {
        matches!(self, Self::ReadSeq | Self::ReadRandom | Self::ReadMissing | Self::SeekRandom)
    }

    /// Whether it only writes: operations long enough for a clock around each, bounded by what they
    /// leave to the background.
    pub fn only_writes(self) -> bool {
        matches!(self, Self::FillSeq | Self::FillRandom | Self::Overwrite | Self::SyncPut | Self::Rewrite)
    }

    /// Operations, where `ops` is the number for a get.
    pub fn ops(self, ops: u64, items: u64) -> u64 {
        match self {
            Self::FillSeq | Self::FillRandom | Self::Rewrite | Self::ReadSeq => items,
            Self::ReadRandom | Self::ReadMissing | Self::YcsbB | Self::YcsbA | Self::Overwrite => ops,
            Self::SeekRandom => (ops / 5).max(1),
            Self::YcsbE => (ops / 10).max(1),
            // A sync costs a millisecond where other operations cost a microsecond.
            Self::SyncPut => (ops / 250).clamp(1, 2000),
        }
    }
}

/// Operation on a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Set it.
    Put,
    /// Set it and wait for the device.
    SyncPut,
    /// Look it up.
    Get,
    /// Read this many entries from it on.
    Scan(u64),
}

/// One operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The operation.
    pub verb: Verb,
    /// With which item's key.
    pub item: u64,
    /// Whether the adjacent key is used, which is never written.
    pub is_absent: bool,
}

/// Draws a workload's requests.
pub struct Requests {
    workload: Workload,
    order: Permutation,
    picker: Picker,
    items: u64,
}

impl Requests {
    /// Requests over `items` items that exist; the same seed gives the same ones.
    pub fn new(workload: Workload, items: u64, seed: u64) -> Self {
        let distribution = match workload {
            Workload::YcsbA | Workload::YcsbB | Workload::YcsbE => Distribution::Zipf,
            _ => Distribution::Uniform,
        };
        Self {
            workload,
            order: Permutation::new(items, seed ^ u64::from(workload == Workload::Rewrite)),
            picker: Picker::new(distribution, items, seed ^ (workload as u64 + 1) << 32, seed),
            items,
        }
    }

    /// The request with this number; numbers must come in order.
    pub fn at(&mut self, number: u64) -> Request {
        let existing = |verb, item| Request { verb, item, is_absent: false };
        match self.workload {
            Workload::FillSeq | Workload::ReadSeq => existing(Verb::Put, number),
            Workload::FillRandom | Workload::Rewrite => existing(Verb::Put, self.order.at(number)),
            Workload::ReadRandom => existing(Verb::Get, self.pick()),
            Workload::ReadMissing => Request { verb: Verb::Get, item: self.pick(), is_absent: true },
            Workload::SeekRandom => existing(Verb::Scan(SEEK_ENTRIES), self.pick()),
            Workload::Overwrite => existing(Verb::Put, self.pick()),
            Workload::SyncPut => existing(Verb::SyncPut, self.pick()),
            Workload::YcsbA => self.get_or_put(0.5),
            Workload::YcsbB => self.get_or_put(0.95),
            Workload::YcsbE => {
                if self.picker.rng().f64() < 0.95 {
                    let entries = self.picker.rng().u64(1..=SCAN_ENTRIES_MAX);
                    return existing(Verb::Scan(entries), self.pick());
                }
                self.items += 1;
                existing(Verb::Put, self.items - 1)
            }
        }
    }

    fn pick(&mut self) -> u64 {
        self.picker.pick(self.items)
    }

    fn get_or_put(&mut self, gets: f64) -> Request {
        let verb = if self.picker.rng().f64() < gets { Verb::Get } else { Verb::Put };
        Request { verb, item: self.pick(), is_absent: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(workload: Workload, seed: u64) -> Vec<Request> {
        let mut requests = Requests::new(workload, 1000, seed);
        (0..1000).map(|number| requests.at(number)).collect()
    }

    #[test]
    fn a_seed_draws_the_same_requests_and_another_does_not() {
        for workload in Workload::ALL {
            assert_eq!(drawn(workload, 1), drawn(workload, 1), "{workload:?}");
            let is_fixed = matches!(workload, Workload::FillSeq | Workload::ReadSeq);
            assert_eq!(drawn(workload, 1) == drawn(workload, 2), is_fixed, "{workload:?}");
        }
    }

    #[test]
    fn a_fill_puts_every_item_once_and_a_rewrite_again_in_another_order() {
        let items =
            |workload| -> Vec<u64> { drawn(workload, 7).iter().map(|request| request.item).collect() };
        for workload in [Workload::FillRandom, Workload::Rewrite] {
            let mut items = items(workload);
            items.sort_unstable();
            assert!(items.into_iter().eq(0..1000));
        }
        assert_ne!(items(Workload::FillRandom), items(Workload::Rewrite));
    }

    #[test]
    fn shares_are_as_named() {
        let share = |workload, wanted: fn(Verb) -> bool| {
            drawn(workload, 3).iter().filter(|request| wanted(request.verb)).count()
        };
        assert!((450..550).contains(&share(Workload::YcsbA, |verb| verb == Verb::Put)));
        assert!((20..90).contains(&share(Workload::YcsbB, |verb| verb == Verb::Put)));
        assert!((20..90).contains(&share(Workload::YcsbE, |verb| verb == Verb::Put)));
        // Inserted keys are new, and follow the existing ones.
        let new: Vec<u64> = drawn(Workload::YcsbE, 3)
            .iter()
            .filter(|request| request.verb == Verb::Put)
            .map(|request| request.item)
            .collect();
        assert!(new.iter().copied().eq(1000..1000 + new.len() as u64));
    }
}
