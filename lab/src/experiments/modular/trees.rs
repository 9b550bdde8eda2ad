//! The trees of the slides: T = 4, five levels of a run each, keys of 32 bytes, ten bits per key; laid down once for all experiments of a
//! process, as far as they are small.
//!
//! What is written differs between approaches ([`super::approaches`]): how many modules a filter has, and whether bits follow Monkey. A
//! tree of each kind is kept in memory until [`KEPT_BYTES`] of others have come after it; larger trees lie on disk and go
//! with their experiment.
//!
//! Before a tree is measured it sees lookups as they will come ([`Laid::prepare`]), so that what is skipped and held does not hang on how
//! quick the machine is. And beside it comes to lie a weight: unflushed writes of a keyspace of their own, which every opening has in
//! memory. They take as much as the engine's least budget, so that a budget can leave filters, indexes and blocks any amount however small.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fastrand::Rng;
use shamba::env::Env;
use shamba::{Allocation, Db, MemoryReport};

use super::approaches::Approach;
use crate::tree::{Spec, Tree};
use crate::{Device, Lab, Parameter, Scale};

pub(super) const KEY_BYTES: usize = 32;
pub(super) const SIZE_RATIO: f64 = 4.0;
pub(super) const LEVELS: u32 = 5;
pub(super) const BITS_PER_KEY: f64 = 10.0;

/// The engine's least budget, nearly.
const WEIGHT_BYTES: u64 = 4 << 20;
/// The budget in which a tree is looked at as a whole.
const WHOLE_BUDGET_BYTES: u64 = 1 << 30;
/// Larger trees lie on disk.
const IN_MEMORY_MOST_BYTES: u64 = 160 << 20;
/// Trees in memory, all together.
const KEPT_BYTES: u64 = 448 << 20;
/// A budget is near enough if what it leaves is off by this part, or so many bytes.
const NEAR_PART: u64 = 100;
const NEAR_BYTES: u64 = 2_048;
/// What holds the weight.
const WEIGHT: &str = "weight";
const WEIGHT_VALUE: [u8; 4 << 10] = [0; 4 << 10];

/// How large trees are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Extent {
    pub entries: u64,
    pub entry_bytes: usize,
    pub file_bytes: u64,
}

impl Extent {
    /// Of entries of 64 bytes, as most slides have them.
    pub fn at(scale: Scale) -> Self {
        Self {
            entries: scale.count(1_000_000, 10_000_000, 30_000_000),
            entry_bytes: 64,
            file_bytes: scale.count(768 << 10, 4 << 20, 4 << 20),
        }
    }

    /// The same with files so large that a seventh of a filter is larger than a page, as it is on the slides.
    pub fn for_seven(scale: Scale) -> Self {
        Self { file_bytes: scale.count(3 << 19, 4 << 20, 4 << 20), ..Self::at(scale) }
    }

    /// Small enough for emulated devices, which keep their files in memory.
    pub fn emulated(scale: Scale) -> Self {
        Self { entries: scale.count(1_000_000, 2_000_000, 2_000_000), ..Self::at(scale.min(Scale::Quick)) }
    }

    /// What does not change within an experiment.
    pub fn parameters(self) -> Vec<Parameter> {
        vec![
            Parameter::fixed("entry bytes", self.entry_bytes),
            Parameter::fixed("key bytes", KEY_BYTES),
            Parameter::fixed("entries", self.entries),
            Parameter::fixed("file bytes", self.file_bytes),
            Parameter::fixed(
                "bytes of a file's filter, about (80 KB on the slides)",
                (self.file_bytes as f64 / self.entry_bytes as f64 * BITS_PER_KEY / 8.0) as u64,
            ),
            Parameter::fixed("size ratio", SIZE_RATIO),
            Parameter::fixed("levels", LEVELS),
            Parameter::fixed("bits per key", BITS_PER_KEY),
        ]
    }

    fn spec(self, approach: &Approach) -> Result<Spec, String> {
        let sizes = (KEY_BYTES, self.entry_bytes);
        let mut spec = Spec::leveled(self.entries, sizes, SIZE_RATIO, LEVELS);
        spec.file_bytes = self.file_bytes;
        spec.digest = shamba::DigestKind::Xxh3;
        spec.bits.per_key = BITS_PER_KEY;
        spec.bits.layout = approach.layout.parse()?;
        spec.bits.allocation = approach.allocation;
        Ok(spec)
    }
}

/// A tree, and what it would take in memory.
#[derive(Debug)]
pub(super) struct Laid {
    pub tree: Tree,
    pub extent: Extent,
    /// All filters.
    pub filter_bytes: u64,
    /// All indexes.
    pub index_bytes: u64,
    written: (&'static str, Allocation),
    seed: u64,
    on: Device,
    /// What else took memory when it was opened last.
    others_bytes: AtomicU64,
}

/// Trees in memory, the one that was wanted last at the back.
static KEPT: Mutex<VecDeque<Arc<Laid>>> = Mutex::new(VecDeque::new());

/// The tree on which an approach is measured.
///
/// # Errors
/// What laying it down says.
pub(super) fn tree(lab: &mut Lab<'_>, extent: Extent, approach: &Approach) -> Result<Arc<Laid>, String> {
    let written = (approach.layout, approach.allocation);
    let wanted = |laid: &Arc<Laid>| {
        (laid.written, laid.extent, laid.seed) == (written, extent, lab.seed) && laid.tree.is_of(lab)
    };
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(laid) = kept.iter().position(wanted).and_then(|at| kept.remove(at)) {
        kept.push_back(Arc::clone(&laid));
        return Ok(laid);
    }
    let spec = extent.spec(approach)?;
    let on = if spec.bytes() <= IN_MEMORY_MOST_BYTES { Device::Memory } else { Device::PageCache };
    let name = format!(
        "{}-{}-{}",
        approach.layout.replace(':', "-"),
        approach.allocation.name(),
        extent.entry_bytes
    );
    let tree = Tree::lay(lab, &name, spec, on)?;
    let whole = tree.open_within(on, WHOLE_BUDGET_BYTES, &[("residency", "pinned")], |builder| builder)?;
    let memory = whole.memory();
    let laid = Arc::new(Laid {
        tree,
        extent,
        filter_bytes: part(&memory, "filters"),
        index_bytes: part(&memory, "indexes"),
        written,
        seed: lab.seed,
        on,
        others_bytes: AtomicU64::new(WEIGHT_BYTES),
    });
    if on == Device::Memory {
        let bytes = |kept: &VecDeque<Arc<Laid>>| kept.iter().map(|laid| laid.tree.spec.bytes()).sum::<u64>();
        while !kept.is_empty() && bytes(&kept) + spec.bytes() > KEPT_BYTES {
            kept.pop_front();
        }
        kept.push_back(Arc::clone(&laid));
    }
    Ok(laid)
}

/// Removes what lies on disk.
///
/// # Errors
/// What cannot be removed.
pub(super) fn let_go(lab: &Lab<'_>, trees: Vec<Arc<Laid>>) -> Result<(), String> {
    let alone = trees.into_iter().filter_map(Arc::into_inner);
    alone.filter(|laid| laid.on != Device::Memory).try_for_each(|laid| laid.tree.discard(lab))
}

fn part(memory: &MemoryReport, name: &str) -> u64 {
    memory.parts.iter().find(|(part, _)| part == name).map_or(0, |(_, bytes)| *bytes)
}

/// What takes memory beside filters, indexes and blocks. (A thirty-second of the budget is kept from all of them.)
fn others_bytes(memory: &MemoryReport) -> u64 {
    ["memtables", "table metadata"].map(|name| part(memory, name)).iter().sum()
}

impl Laid {
    /// Filters and indexes.
    pub fn whole_bytes(&self) -> u64 {
        self.filter_bytes + self.index_bytes
    }

    /// The device on which reads are counted.
    pub fn device(&self) -> Device {
        self.on
    }

    /// Lets it see `lookups` of these, and leaves the weight.
    ///
    /// # Errors
    /// What the engine says.
    pub fn prepare(&self, empty_fraction: f64, lookups: u64) -> Result<(), String> {
        let said = |error: shamba::Error| error.chain().to_string();
        let mut rng = Rng::with_seed(self.seed ^ 0x7365_656e);
        let mut key = Vec::new();
        self.tree.at_work(|db| {
            if db.keyspaces().iter().any(|known| known == WEIGHT) {
                db.drop_keyspace(WEIGHT).map_err(said)?;
            }
            for _ in 0..lookups {
                let absent = rng.f64() < empty_fraction;
                self.tree.key(rng.u64(..self.extent.entries), absent, &mut key);
                db.get_with(&key, |_| ()).map_err(said)?;
            }
            let weight = db.keyspace(WEIGHT).map_err(said)?;
            let values = WEIGHT_BYTES / WEIGHT_VALUE.len() as u64;
            (0..values).try_for_each(|number| weight.put(number.to_be_bytes(), WEIGHT_VALUE)).map_err(said)
        })
    }

    /// Opens it so that filters, indexes and blocks have `bytes` together; says how many they have.
    ///
    /// # Errors
    /// What the engine says.
    pub fn open_with(
        &self,
        device: Device,
        bytes: u64,
        switches: &[(&str, &str)],
        world: &dyn Fn(Env) -> Env,
    ) -> Result<(Db, u64), String> {
        // Small memtables, so that what they are charged ahead moves the rest little.
        let switches: Vec<(&str, &str)> =
            switches.iter().copied().chain([("write-buffer", "65536")]).collect();
        let mut budget = (self.others_bytes.load(Ordering::Relaxed) + bytes) * 32 / 31;
        let mut tries = 0;
        loop {
            tries += 1;
            let db = self.tree.open_in(device, world, budget, &switches, |builder| builder)?;
            let memory = db.memory();
            self.others_bytes.store(others_bytes(&memory), Ordering::Relaxed);
            let left = (memory.budget_bytes - memory.budget_bytes / 32).saturating_sub(others_bytes(&memory));
            if left.abs_diff(bytes) <= NEAR_BYTES.max(bytes / NEAR_PART) || tries == 6 {
                return Ok((db, left));
            }
            budget = budget.saturating_add_signed((bytes as i64 - left as i64) * 32 / 31);
        }
    }
}
