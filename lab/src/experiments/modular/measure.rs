//! Lookups under memory pressure: several approaches with as much memory, asked the same, in turns.
//!
//! At a point every approach is opened anew, so that none finds what another point has left, and warmed until what memory holds has come to
//! rest. Reads are counted, not timed, so that points may be measured beside each other, one on each core; where reads take time
//! ([`Effort::timed`]) one comes after the other.
//!
//! Every answer is checked.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fastrand::Rng;
use shamba::{Db, Stats};

use super::approaches::Approach;
use super::model;
use super::trees::{Extent, LEVELS, Laid, let_go, tree};
use super::world;
use crate::lookups::{Spread, WAITED_MOST_NS, Waiting};
use crate::{Device, Lab, Scale};

/// Lookups of an approach before the next one's turn.
const BATCH: u64 = 64;
/// Points that are measured at a time.
const BESIDE: usize = 2;

/// What a setting was found to do.
type Found = Result<Vec<Reading>, String>;

/// Under which circumstances approaches are compared.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Setting {
    /// What filters, indexes and blocks have, as a share of what all filters and indexes of the first approach's tree take.
    pub memory_share: f64,
    pub empty_fraction: f64,
    pub device: Device,
}

/// How hard to measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Before anything is opened, for statistics.
    pub seen_lookups: u64,
    /// For what memory holds to come to rest.
    pub warm: Duration,
    /// Of a repeat, on each side.
    pub lookups: u64,
    /// Of a repeat, all sides together. At the paper's scale nothing is cut short.
    pub repeat_most: Duration,
    pub timed: bool,
}

impl Effort {
    /// For reads that are counted.
    pub fn counting(scale: Scale) -> Self {
        Self {
            seen_lookups: scale.count(64_000, 256_000, 1_000_000),
            warm: Duration::from_millis(scale.count(800, 4_000, 10_000)),
            lookups: scale.count(4_000, 50_000, 200_000),
            repeat_most: Duration::from_millis(scale.count(300, 5_000, u64::MAX)),
            timed: false,
        }
    }

    /// For reads that take time.
    pub fn timed(scale: Scale) -> Self {
        Self {
            warm: Duration::from_millis(scale.count(1_500, 5_000, 10_000)),
            lookups: scale.count(2_000, 20_000, 100_000),
            repeat_most: Duration::from_millis(scale.count(500, 10_000, u64::MAX)),
            timed: true,
            ..Self::counting(scale)
        }
    }
}

/// What an approach needed for a lookup.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub approach: Approach,
    /// How large the tree is.
    pub extent: Extent,
    pub setting: Setting,
    /// What filters, indexes and blocks had, in bytes.
    pub memory_bytes: u64,
    /// What the filters of the tree take, for what its indexes do.
    pub filters_by_indexes: f64,
    /// Slices of filters, partitions of indexes and data blocks read from files.
    pub ios: Spread,
    /// The bytes of them.
    pub read_bytes: Spread,
    /// Nanoseconds of a lookup in each repeat, in order; none where reads were counted only, for others ran beside.
    pub repeats_ns: Vec<f64>,
    /// Over all repeats.
    pub stats: Stats,
    /// I/Os by the model.
    pub model_ios: f64,
}

impl Reading {
    /// A counter, per lookup.
    pub fn per_lookup(&self, count: u64) -> f64 {
        count as f64 / self.stats.lookups.max(1) as f64
    }

    /// Nanoseconds of a lookup, where that was timed.
    pub fn ns(&self) -> Option<Spread> {
        (!self.repeats_ns.is_empty()).then(|| Spread::of(self.repeats_ns.clone()))
    }

    /// Whether the tree has the levels and runs of the slides.
    pub fn is_comparable(&self) -> bool {
        self.stats.deepest_level >= LEVELS && self.stats.runs >= u64::from(LEVELS)
    }
}

/// What an experiment compares.
#[derive(Clone, Debug)]
pub(super) struct Comparison {
    pub extent: Extent,
    pub approaches: Vec<Approach>,
    pub settings: Vec<Setting>,
    pub effort: Effort,
}

impl Comparison {
    /// Over memory, for each of some shares of empty lookups.
    pub fn over_memory(scale: Scale, approaches: &[Approach], shares: &[f64], empty: &[f64]) -> Self {
        let of = |empty_fraction: &f64| {
            let empty_fraction = *empty_fraction;
            let setting = move |memory_share: &f64| Setting {
                memory_share: *memory_share,
                empty_fraction,
                device: Device::Memory,
            };
            shares.iter().map(setting).collect::<Vec<_>>()
        };
        Self {
            extent: Extent::at(scale),
            approaches: approaches.to_vec(),
            settings: empty.iter().flat_map(of).collect(),
            effort: Effort::counting(scale),
        }
    }

    /// Every approach under every setting.
    ///
    /// # Errors
    /// What the engine says, a wrong answer.
    pub fn run(&self, lab: &mut Lab<'_>) -> Result<Vec<Reading>, String> {
        let mut trees = Vec::new();
        for approach in &self.approaches {
            trees.push(tree(lab, self.extent, approach)?);
        }
        lab.at(format_args!("{} approaches under {} settings", self.approaches.len(), self.settings.len()));
        let mut readings = Vec::new();
        for empty_fraction in shares(&self.settings) {
            for (number, laid) in trees.iter().enumerate() {
                let is_first = trees[..number].iter().all(|before| !Arc::ptr_eq(before, laid));
                if is_first {
                    laid.prepare(empty_fraction, self.effort.seen_lookups)?;
                }
            }
            let of_it = self.settings.iter().filter(|setting| setting.empty_fraction == empty_fraction);
            readings.extend(self.under_all(
                &of_it.copied().collect::<Vec<_>>(),
                &trees,
                (lab.seed, lab.repeats.max(1)),
            )?);
        }
        let_go(lab, trees)?;
        Ok(readings)
    }

    fn under_all(
        &self,
        settings: &[Setting],
        trees: &[Arc<Laid>],
        (seed, repeats): (u64, u32),
    ) -> Result<Vec<Reading>, String> {
        let next = AtomicUsize::new(0);
        let found: Mutex<Vec<(usize, Found)>> = Mutex::default();
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(setting) = settings.get(at) else { return };
                let readings = self.under(setting, trees, seed, repeats);
                found.lock().unwrap_or_else(PoisonError::into_inner).push((at, readings));
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..if self.effort.timed { 1 } else { BESIDE } {
                scope.spawn(work);
            }
            work();
        });
        let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        found.sort_by_key(|(at, _)| *at);
        let mut readings = Vec::new();
        for (_, of_setting) in found {
            readings.extend(of_setting?);
        }
        Ok(readings)
    }

    fn under(
        &self,
        setting: &Setting,
        trees: &[Arc<Laid>],
        seed: u64,
        repeats: u32,
    ) -> Result<Vec<Reading>, String> {
        let Some(first) = trees.first() else { return Ok(Vec::new()) };
        let bytes = (setting.memory_share * first.whole_bytes() as f64) as u64;
        let mut sides = Vec::new();
        for (approach, laid) in self.approaches.iter().zip(trees) {
            sides.push(Side::open(approach, laid, setting, bytes, self.effort.timed)?);
        }
        let mut asker = Asker::new(setting, self.extent.entries, seed);
        let begin = Instant::now();
        while begin.elapsed() < self.effort.warm {
            asker.batch(&mut sides, BATCH)?;
        }
        sides.iter_mut().for_each(Side::begin);
        for _ in 0..repeats {
            let (begin, mut done) = (Instant::now(), 0);
            while done < self.effort.lookups && (done == 0 || begin.elapsed() < self.effort.repeat_most) {
                asker.batch(&mut sides, BATCH)?;
                done += BATCH;
            }
            sides.iter_mut().for_each(|side| side.end_repeat(done));
        }
        sides.into_iter().map(|side| side.reading(setting)).collect()
    }
}

/// The shares of empty lookups, in the order in which they come.
fn shares(settings: &[Setting]) -> Vec<f64> {
    let mut shares: Vec<f64> = Vec::new();
    for setting in settings {
        if !shares.contains(&setting.empty_fraction) {
            shares.push(setting.empty_fraction);
        }
    }
    shares
}

/// One approach at a point.
struct Side<'a> {
    approach: &'a Approach,
    laid: &'a Laid,
    db: Db,
    device: Device,
    timed: bool,
    memory_bytes: u64,
    bytes_read: Arc<AtomicU64>,
    begun: Stats,
    before: Stats,
    bytes_before: u64,
    quiet: Taken,
    disturbed: Taken,
    repeats: Vec<[f64; 3]>,
}

impl<'a> Side<'a> {
    fn open(
        approach: &'a Approach,
        laid: &'a Laid,
        setting: &Setting,
        bytes: u64,
        timed: bool,
    ) -> Result<Self, String> {
        let bytes_read = Arc::new(AtomicU64::new(0));
        let device = if timed { setting.device } else { laid.device() };
        let world_of = if timed { world::timing } else { world::counting };
        let counted = |env| world_of(env, &bytes_read);
        let (db, memory_bytes) = laid.open_with(device, bytes, &approach.switches(), &counted)?;
        let begun = db.stats();
        Ok(Self {
            approach,
            laid,
            memory_bytes,
            before: begun.clone(),
            begun,
            db,
            device,
            timed,
            bytes_read,
            bytes_before: 0,
            quiet: Taken::default(),
            disturbed: Taken::default(),
            repeats: Vec::new(),
        })
    }

    fn begin(&mut self) {
        self.begun = self.db.stats();
        self.before = self.begun.clone();
        self.bytes_before = self.bytes_read.load(Ordering::Relaxed);
        (self.quiet, self.disturbed) = Default::default();
    }

    fn end_repeat(&mut self, lookups: u64) {
        let now = self.db.stats();
        let stats = now.since(&self.before);
        let bytes = self.bytes_read.load(Ordering::Relaxed);
        let per_lookup = |count: u64| count as f64 / lookups.max(1) as f64;
        let ios = stats.reads.filter.count + stats.reads.index.count + stats.reads.data.count;
        let ns = Taken::ns_per_lookup(self.quiet, self.disturbed);
        self.repeats.push([per_lookup(ios), per_lookup(bytes - self.bytes_before), ns]);
        (self.before, self.bytes_before) = (now, bytes);
        (self.quiet, self.disturbed) = Default::default();
    }

    fn reading(self, setting: &Setting) -> Result<Reading, String> {
        let spread = |part: usize| Spread::of(self.repeats.iter().map(|repeat| repeat[part]).collect());
        let model_ios = model::ios(
            self.laid,
            &self.db.tables(),
            self.approach,
            setting.empty_fraction,
            self.memory_bytes,
        )?;
        Ok(Reading {
            approach: *self.approach,
            extent: self.laid.extent,
            setting: Setting { device: self.device, ..*setting },
            memory_bytes: self.memory_bytes,
            filters_by_indexes: self.laid.filter_bytes as f64 / self.laid.index_bytes.max(1) as f64,
            ios: spread(0),
            read_bytes: spread(1),
            repeats_ns: self.repeats.iter().filter(|_| self.timed).map(|repeat| repeat[2]).collect(),
            stats: self.db.stats().since(&self.begun),
            model_ios,
        })
    }
}

/// Lookups, and what they took.
#[derive(Clone, Copy, Default, Debug)]
struct Taken {
    lookups: u64,
    ns: u64,
}

impl Taken {
    /// Of those that met nobody else on their processor, unless they are too few.
    fn ns_per_lookup(quiet: Self, disturbed: Self) -> f64 {
        let both = Self { lookups: quiet.lookups + disturbed.lookups, ns: quiet.ns + disturbed.ns };
        let counted = if quiet.lookups < disturbed.lookups { both } else { quiet };
        counted.ns as f64 / counted.lookups.max(1) as f64
    }
}

/// Draws items and asks for them.
struct Asker {
    rng: Rng,
    entries: u64,
    empty_fraction: f64,
    turn: usize,
    waiting: Waiting,
    drawn: Vec<(u64, bool)>,
    key: Vec<u8>,
}

impl Asker {
    fn new(setting: &Setting, entries: u64, seed: u64) -> Self {
        let empty_fraction = setting.empty_fraction;
        let rng =
            Rng::with_seed(seed ^ setting.memory_share.to_bits() ^ empty_fraction.to_bits().rotate_left(7));
        Self {
            rng,
            entries,
            empty_fraction,
            turn: 0,
            waiting: Waiting::of_this_thread(),
            drawn: Vec::new(),
            key: Vec::new(),
        }
    }

    /// The same lookups on every side, the first one another side each time.
    fn batch(&mut self, sides: &mut [Side<'_>], lookups: u64) -> Result<(), String> {
        self.drawn.clear();
        for _ in 0..lookups {
            let absent = self.empty_fraction >= 1.0 || self.rng.f64() < self.empty_fraction;
            self.drawn.push((self.rng.u64(..self.entries), absent));
        }
        let count = sides.len();
        let waited_before_ns = self.waiting.ns();
        let mut taken = vec![0; count];
        for turn in 0..count {
            let number = (self.turn + turn) % count;
            let side = &sides[number];
            let since = Instant::now();
            for (item, absent) in &self.drawn {
                side.laid.tree.key(*item, *absent, &mut self.key);
                let number = |value: &[u8]| value.first_chunk::<8>().map(|word| u64::from_le_bytes(*word));
                let found =
                    side.db.get_with(&self.key, number).map_err(|error| error.chain().to_string())?.flatten();
                if found != (!absent).then_some(*item) {
                    let name = side.approach.name;
                    return Err(format!("{name}: a wrong answer {found:?} for item {item}, absent {absent}"));
                }
            }
            taken[number] = since.elapsed().as_nanos() as u64;
        }
        let is_quiet = self.waiting.ns().saturating_sub(waited_before_ns) <= WAITED_MOST_NS;
        for (side, ns) in sides.iter_mut().zip(taken) {
            let counted = if is_quiet { &mut side.quiet } else { &mut side.disturbed };
            counted.lookups += lookups;
            counted.ns += ns;
        }
        self.turn += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::approaches::{EQ, EQ_F, PLANNED, STATE_OF_THE_ART};
    use super::*;

    #[test]
    fn every_approach_answers_right_with_as_much_memory() {
        let scratch = tempfile::tempdir().expect("a directory");
        let mut progress = |_: &str| {};
        let mut lab = Lab::new(scratch.path().to_path_buf(), Scale::Quick, 9, &mut progress);
        let setting = |empty_fraction| Setting { memory_share: 0.5, empty_fraction, device: Device::Memory };
        let brief = Duration::from_millis(50);
        let comparison = Comparison {
            extent: Extent { entries: 30_000, entry_bytes: 64, file_bytes: 128 << 10 },
            approaches: vec![STATE_OF_THE_ART, EQ, EQ_F, PLANNED],
            settings: vec![setting(0.5), setting(1.0)],
            effort: Effort {
                seen_lookups: 2_000,
                warm: 2 * brief,
                lookups: 500,
                repeat_most: brief,
                timed: false,
            },
        };
        let readings = comparison.run(&mut lab).expect("right answers");
        assert_eq!(readings.len(), 8);
        for reading in &readings {
            let name = reading.approach.name;
            assert!(reading.is_comparable() && !reading.stats.emulated, "{name}");
            assert!(reading.ios.median > 0.0 && reading.read_bytes.median > 0.0, "{name}");
            assert_eq!(reading.ns(), None, "{name}");
            assert!(
                reading.model_ios > 0.0 && reading.model_ios <= 1.5 * reading.ios.median,
                "{name}: {}",
                reading.model_ios
            );
            let near = reading.memory_bytes as f64 / readings[0].memory_bytes as f64;
            assert!((0.9..1.1).contains(&near), "{name}: {near} of the memory");
        }
        let timed = Comparison {
            settings: vec![Setting { device: Device::Nvm, ..setting(0.5) }],
            effort: Effort { timed: true, ..comparison.effort },
            ..comparison
        };
        let readings = timed.run(&mut lab).expect("right answers");
        for reading in &readings {
            let name = reading.approach.name;
            assert!(reading.stats.emulated && reading.ns().is_some_and(|ns| ns.least > 0.0), "{name}");
            assert!(reading.read_bytes.median > 0.0, "{name}");
        }
    }
}
