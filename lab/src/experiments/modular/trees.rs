//! The trees of the slides: T = 4, five levels of one run each, keys of 32 bytes, ten bits per key,
//! files of 65,536 entries; one per seed and layout for the whole chapter.
//!
//! Before a tree is measured it has executed lookups of the coming kind ([`Laid::open_with`]
//! installs their statistics), so that skipping and residency do not depend on the speed of the
//! machine. With [`Allocation::Workload`] these lookups determine the bits: every table is
//! rewritten with them before the first measurement of their kind.
//!
//! In addition, unflushed writes of a separate keyspace are in memory in every instance: they take
//! as much as the engine's smallest budget, so that any amount can be left for filters, indexes and
//! blocks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shamba::env::{Clock, Env};
use shamba::{Allocation, Db, MemoryReport};
use shamba_workload::Distribution;

use super::approaches::Approach;
use crate::device::Device;
use crate::lab::Lab;
use crate::lookups::{Questions, warm};
use crate::scale::{Parameter, Scale};
use crate::tree::{Spec, Tree, written_bits_per_key};

pub(super) const KEY_BYTES: usize = 32;
pub(super) const SIZE_RATIO: f64 = 4.0;
pub(super) const LEVELS: u32 = 5;
pub(super) const BITS_PER_KEY: f64 = 10.0;

/// Nearly the engine's smallest budget.
const WEIGHT_BYTES: u64 = 4 << 20;
/// Budget for inspecting a whole tree.
const WHOLE_BUDGET_BYTES: u64 = 1 << 30;
/// Accuracy of a budget: the remaining memory may deviate by this part, or this number of bytes.
const ACCURACY_PART: u64 = 100;
const ACCURACY_BYTES: u64 = 2_048;
/// The keyspace of the unflushed writes.
const WEIGHT: &str = "weight";
const WEIGHT_VALUE: [u8; 4 << 10] = [0; 4 << 10];
/// The engine's memory worker plans once per window, and checks the clock 16 times a second.
const WINDOW_US: u64 = 1_100_000;
const WORKER_LOOK: std::time::Duration = std::time::Duration::from_millis(75);
/// Trees up to this size lie in memory.
const IN_MEMORY_BYTES_MAX: u64 = 1 << 30;

/// Sizes of a tree.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Extent {
    pub entries: u64,
    pub entry_bytes: usize,
    pub file_bytes: u64,
}

impl Extent {
    /// Entries of 64 bytes and files of 4 MB, as on the slides.
    pub fn at(scale: Scale) -> Self {
        Self {
            entries: scale.count(4 << 20, 16 << 20, 30 << 20),
            entry_bytes: 64,
            file_bytes: scale.count(4 << 20, 4 << 20, 4 << 20),
        }
    }

    /// Fewer files, for lookups that are timed.
    pub fn timed(scale: Scale) -> Self {
        Self { entries: scale.count(1 << 20, 4 << 20, 4 << 20), ..Self::at(scale) }
    }

    /// Parameters that do not change within an experiment.
    pub fn parameters(self) -> Vec<Parameter> {
        let filter_bytes = self.file_bytes as f64 / self.entry_bytes as f64 * BITS_PER_KEY / 8.0;
        vec![
            Parameter::fixed("entry bytes", self.entry_bytes),
            Parameter::fixed("key bytes", KEY_BYTES),
            Parameter::fixed("entries", self.entries),
            Parameter::fixed("file bytes", self.file_bytes),
            Parameter::fixed("bytes of a file's filter, about", filter_bytes as u64),
            Parameter::fixed("size ratio", SIZE_RATIO),
            Parameter::fixed("levels", LEVELS),
            Parameter::fixed("bits per key", BITS_PER_KEY),
        ]
    }

    fn spec(self, layout: &str, allocation: Allocation) -> Result<Spec, String> {
        let sizes = (KEY_BYTES, self.entry_bytes);
        let mut spec = Spec::leveled(self.entries, sizes, SIZE_RATIO, LEVELS);
        spec.file_bytes = self.file_bytes;
        spec.digest = shamba::DigestKind::Xxh3;
        spec.bits.per_key = BITS_PER_KEY;
        spec.bits.layout = layout.parse()?;
        // Bits by the observed workload are written once there are lookups to observe.
        spec.bits.allocation =
            if allocation == Allocation::Workload { Allocation::Uniform } else { allocation };
        Ok(spec)
    }
}

/// The kind of lookups that a tree gets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Asked {
    /// Share of lookups for absent keys.
    pub empty_fraction: f64,
    pub distribution: Distribution,
}

impl Asked {
    /// Uniform over all keys.
    pub fn uniform(empty_fraction: f64) -> Self {
        Self { empty_fraction, distribution: Distribution::Uniform }
    }

    /// Lookups of this kind.
    pub fn questions(self, lookups: u64) -> Questions {
        Questions { distribution: self.distribution, ..Questions::uniform(self.empty_fraction, lookups) }
    }
}

/// A tree, and the memory that all of its filters and indexes would take.
#[derive(Debug)]
pub(super) struct Laid {
    pub tree: Tree,
    pub filter_bytes: u64,
    pub index_bytes: u64,
    on: Device,
    /// Memory of other parts at the last open.
    others_bytes: Cell<u64>,
    allocation: Allocation,
    /// Filter bits per key as last written.
    bits_per_key: Cell<f64>,
    /// The statistics of lookups, by the share of empty ones in thousandths and their distribution.
    statistics: RefCell<BTreeMap<(u64, &'static str), Vec<u8>>>,
}

/// The tree of an approach.
///
/// # Errors
/// Errors of laying it down.
pub(super) fn tree(lab: &mut Lab<'_>, extent: Extent, approach: &Approach) -> Result<Rc<Laid>, String> {
    let Approach { layout, allocation, .. } = *approach;
    lab.once(format!("modular tree {extent:?} {layout} {}", allocation.name()), |lab| {
        let spec = extent.spec(layout, allocation)?;
        let on = if spec.bytes() <= IN_MEMORY_BYTES_MAX { Device::Memory } else { Device::PageCache };
        let name = format!("{}-{}-{}", layout.replace(':', "-"), allocation.name(), extent.entry_bytes);
        let tree = Tree::lay(lab, &name, spec, on)?;
        let whole =
            tree.open_within(on, WHOLE_BUDGET_BYTES, &[("residency", "pinned")], |builder| builder)?;
        let memory = whole.memory();
        let bits_per_key = written_bits_per_key(&whole.stats());
        drop(whole);
        Ok(Laid {
            tree,
            filter_bytes: part(&memory, "filters"),
            index_bytes: part(&memory, "indexes"),
            on,
            others_bytes: Cell::new(WEIGHT_BYTES),
            allocation,
            bits_per_key: Cell::new(bits_per_key),
            statistics: RefCell::default(),
        })
    })
}

fn part(memory: &MemoryReport, name: &str) -> u64 {
    memory.parts.iter().find(|(part, _)| part == name).map_or(0, |(_, bytes)| *bytes)
}

/// Memory of everything but filters, indexes and blocks. (The engine keeps a thirty-second of the
/// budget from all of them.)
fn others_bytes(memory: &MemoryReport) -> u64 {
    ["memtables", "table metadata"].map(|name| part(memory, name)).iter().sum()
}

/// A manually advanced clock: the engine plans by its seconds, independent of the machine's speed.
#[derive(Debug, Default)]
pub(super) struct PlanClock {
    now_us: AtomicU64,
}

impl PlanClock {
    /// Ends a window of the engine's memory worker, and gives its thread time to notice.
    pub fn end_window(&self) {
        self.now_us.fetch_add(WINDOW_US, Ordering::Relaxed);
        std::thread::sleep(WORKER_LOOK);
    }
}

impl Clock for PlanClock {
    fn now_us(&self) -> u64 {
        self.now_us.load(Ordering::Relaxed)
    }

    fn unix_ms(&self) -> u64 {
        self.now_us() / 1_000
    }

    fn sleep_us(&self, us: u64) {
        std::thread::sleep(std::time::Duration::from_micros(us));
    }

    fn wait_ns(&self, ns: u64) {
        self.sleep_us(ns / 1_000);
    }
}

impl Laid {
    /// Bytes of all filters and indexes.
    pub fn whole_bytes(&self) -> u64 {
        self.filter_bytes + self.index_bytes
    }

    /// Filter bits per key, over the whole tree.
    pub fn bits_per_key(&self) -> f64 {
        self.bits_per_key.get()
    }

    /// The device on which reads are counted.
    pub fn device(&self) -> Device {
        self.on
    }

    /// The statistics after many such lookups.
    fn statistics_of(&self, lab: &Lab<'_>, asked: Asked) -> Result<Vec<u8>, String> {
        let name = ((asked.empty_fraction * 1e3) as u64, asked.distribution.name());
        if let Some(known) = self.statistics.borrow().get(&name) {
            return Ok(known.clone());
        }
        let lookups = lab.scale.count(64_000, 256_000, 1_000_000);
        let questions = asked.questions(lookups);
        let said = |error: shamba::Error| error.chain().to_string();
        let by_workload = self.allocation == Allocation::Workload;
        let options = |builder: shamba::Builder| match by_workload {
            true => {
                builder.experimental(|e| e.filter_allocation(Allocation::Workload)).bits_per_key(BITS_PER_KEY)
            }
            false => builder,
        };
        self.tree.at_work(options, |db| {
            // Opening for writing has flushed the previous ballast.
            if db.keyspaces().iter().any(|known| known == WEIGHT) {
                db.drop_keyspace(WEIGHT).map_err(said)?;
            }
            warm(lab, (&self.tree, 100), &[db], &questions)?;
            if by_workload {
                // Tables are rewritten with the bits for these lookups, and take over the
                // statistics; those of other lookups belong to removed tables.
                db.rewrite_filters().map_err(said)?;
                self.bits_per_key.set(written_bits_per_key(&db.stats()));
                self.statistics.borrow_mut().clear();
            }
            let weight = db.keyspace(WEIGHT).map_err(said)?;
            let values = WEIGHT_BYTES / WEIGHT_VALUE.len() as u64;
            (0..values).try_for_each(|number| weight.put(number.to_be_bytes(), WEIGHT_VALUE)).map_err(said)
        })?;
        let bytes = self.tree.statistics()?;
        self.statistics.borrow_mut().insert(name, bytes.clone());
        Ok(bytes)
    }

    /// Opens it so that filters, indexes and blocks have `bytes` together; returns how many they
    /// have.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn open_with(
        &self,
        lab: &Lab<'_>,
        (device, asked): (Device, Asked),
        bytes: u64,
        switches: &[(&str, &str)],
        clock: Option<&Arc<PlanClock>>,
    ) -> Result<(Db, u64), String> {
        self.tree.put_statistics(&self.statistics_of(lab, asked)?)?;
        // Small memtables, so that the memory reserved for them has little effect.
        let switches: Vec<(&str, &str)> =
            switches.iter().copied().chain([("write-buffer", "65536")]).collect();
        let world = |world: Env| match clock {
            Some(clock) => Env { clock: Arc::clone(clock) as Arc<dyn Clock>, ..world },
            None => world,
        };
        let mut budget = (self.others_bytes.get() + bytes) * 32 / 31;
        for attempt in 1.. {
            let db = self.tree.open_in(device, world, budget, &switches, |builder| builder)?;
            let memory = db.memory();
            self.others_bytes.set(others_bytes(&memory));
            let left = (memory.budget_bytes - memory.budget_bytes / 32).saturating_sub(others_bytes(&memory));
            if left.abs_diff(bytes) <= ACCURACY_BYTES.max(bytes / ACCURACY_PART) || attempt == 6 {
                return Ok((db, left));
            }
            budget = budget.saturating_add_signed((bytes as i64 - left as i64) * 32 / 31);
        }
        unreachable!("the sixth attempt returns")
    }
}
