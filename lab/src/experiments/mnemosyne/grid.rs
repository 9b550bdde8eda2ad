//! Bits per key by what is asked: the places of Figures 4 and 12, the stores at each, and what all figures tell of a store.
//!
//! Sides are held against each other for equal memory: a store of these places whose filters as written are off what was asked for by more than
//! [`OFF_MOST`] is not comparable.

use shamba::{Allocation, Stats};

use super::store::{ALLOCATIONS, Queries, SIZE_RATIO, Store, file_bytes, levels_for, name, unnecessary};
use crate::items::Items;
use crate::table::row;
use crate::tree::written_bits_per_key;
use crate::{Cell, Lab, Parameter, Table};
use shamba_workload::Distribution;

pub(super) const DISTRIBUTIONS: [Distribution; 2] = [Distribution::Uniform, Distribution::Normal];
/// Bits that differ by no more than this part are as many.
pub(super) const OFF_MOST: f64 = 0.1;

/// What a figure varies, and how large its stores are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    pub bits: &'static [f64],
    pub empty_fractions: &'static [f64],
    pub entries: u64,
    pub entry_bytes: u64,
    /// Write buffers of data: as many at every scale, so that trees have as many levels.
    pub buffers: u64,
    /// That are counted; of a trial if there are several.
    pub queries: u64,
    /// That are seen before bits are shared out by them.
    pub seen: u64,
}

impl Grid {
    pub fn items(self, seed: u64) -> Items {
        Items { count: self.entries, entry_bytes: self.entry_bytes, seed }
    }

    fn buffer_bytes(self) -> u64 {
        self.entries / self.buffers * self.entry_bytes
    }

    /// Every place, (bits per key, queries), in the order of results.
    pub fn places(self) -> Vec<(f64, Queries)> {
        let mut places = Vec::new();
        for &bits_per_key in self.bits {
            for distribution in DISTRIBUTIONS {
                let queries =
                    |empty_fraction: &f64| Queries { distribution, empty_fraction: *empty_fraction };
                places.extend(self.empty_fractions.iter().map(|empty| (bits_per_key, queries(empty))));
            }
        }
        places
    }

    /// What the figure varies and holds, and `more` that it holds.
    pub fn parameters(self, more: impl IntoIterator<Item = Parameter>) -> Vec<Parameter> {
        let all = [
            Parameter::varied("bits per key", self.bits),
            Parameter::varied("empty fraction", self.empty_fractions),
            Parameter::varied("distribution", DISTRIBUTIONS),
            Parameter::varied("filter bits", ALLOCATIONS.map(name)),
            Parameter::fixed("entries", self.entries),
            Parameter::fixed("entry bytes", self.entry_bytes),
            Parameter::fixed("size ratio", SIZE_RATIO),
            Parameter::fixed("levels", levels_for(self.entries * self.entry_bytes, self.buffer_bytes())),
            Parameter::fixed("buffer bytes", self.buffer_bytes()),
            Parameter::fixed("file bytes", file_bytes(self.buffer_bytes(), self.entry_bytes)),
            Parameter::fixed("queries, of each trial", self.queries),
            Parameter::fixed("queries seen before", self.seen),
            Parameter::fixed("standard deviation of normal, part of the keys", 0.1),
        ];
        all.into_iter().chain(more).collect()
    }

    /// A store for each of [`ALLOCATIONS`], laid down, with the filters that it deserves after such queries.
    ///
    /// # Errors
    /// What the engine says, and a wrong answer.
    pub fn stores(
        self,
        lab: &mut Lab<'_>,
        (bits_per_key, queries): (f64, Queries),
    ) -> Result<Vec<Store>, String> {
        let lay = |allocation| {
            let store =
                Store::new(lab, allocation, self.items(lab.seed), (self.buffer_bytes(), bits_per_key));
            store.lay(lab)?;
            store.learn(queries, self.seen)?;
            Ok(store)
        };
        ALLOCATIONS.into_iter().map(lay).collect()
    }
}

/// A store at a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub bits_per_key: f64,
    pub queries: Queries,
    pub allocation: Allocation,
    /// Data blocks that a query read in vain.
    pub unnecessary: f64,
    /// Bits per key as filters have them.
    pub written: f64,
    levels: u32,
    runs: u64,
    comparable: bool,
    emulated: bool,
}

impl Point {
    /// Of a store, by its counters since these queries began; comparable if it has so many levels.
    pub fn new(store: &Store, queries: Queries, stats: &Stats, levels: u32) -> Self {
        Self {
            bits_per_key: store.bits_per_key(),
            queries,
            allocation: store.allocation,
            unnecessary: unnecessary(stats),
            written: written_bits_per_key(stats),
            levels: stats.deepest_level,
            runs: stats.runs,
            comparable: stats.deepest_level >= levels,
            emulated: stats.emulated,
        }
    }

    /// Of a store that was refitted for these queries: comparable if it has its levels and the bits that were asked for.
    pub fn of_refitted(store: &Store, queries: Queries, stats: &Stats) -> Self {
        Self::new(store, queries, stats, store.levels).with_bits_as_asked()
    }

    /// Comparable only with about as many bits as were asked for.
    pub fn with_bits_as_asked(self) -> Self {
        Self { comparable: self.comparable && self.off() <= OFF_MOST, ..self }
    }

    /// Of no store, for tests.
    #[cfg(test)]
    pub fn of_no_store(
        (bits_per_key, written): (f64, f64),
        queries: Queries,
        allocation: Allocation,
        unnecessary: f64,
    ) -> Self {
        let (levels, runs, comparable, emulated) = (1, 1, true, false);
        Self { bits_per_key, queries, allocation, unnecessary, written, levels, runs, comparable, emulated }
    }

    /// How far written bits are off what was asked for, in part.
    pub fn off(&self) -> f64 {
        (self.written / self.bits_per_key - 1.0).abs()
    }
}

/// All points as a table, with the columns that a figure has besides, whose cells `more` tells.
pub(super) fn table<T: AsRef<Point>>(
    columns: &[&'static str],
    points: &[T],
    more: impl Fn(&T) -> Vec<Cell>,
) -> Table {
    let before = ["bits_per_key", "distribution", "empty_fraction", "filter_bits"];
    let behind = [
        "unnecessary_accesses_per_query",
        "bits_per_key_written",
        "levels",
        "runs",
        "comparable",
        "emulated",
    ];
    let mut table = Table::new(&[&before[..], columns, &behind[..]].concat());
    for of_figure in points {
        let point = of_figure.as_ref();
        let Queries { distribution, empty_fraction } = point.queries;
        let before = row![point.bits_per_key, distribution.name(), empty_fraction, name(point.allocation)];
        let behind = row![
            point.unnecessary,
            point.written,
            point.levels,
            point.runs,
            point.comparable,
            point.emulated
        ];
        table.row([before.to_vec(), more(of_figure), behind.to_vec()].concat());
    }
    table
}

impl AsRef<Self> for Point {
    fn as_ref(&self) -> &Self {
        self
    }
}
