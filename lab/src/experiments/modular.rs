//! Modular filters: *LSM-Trees Under (Memory) Pressure* (ADMS 2022), its slides.

mod access_frequency;
mod approaches;
mod filter_memory;
mod lookup_cost;
mod mbf;
mod memory_price;
mod memory_ratio;
mod modules;
mod pressure;
mod probes;
mod timed;
mod trees;
mod variants;

use crate::experiment::Experiment;

/// In the order of the slides.
pub(super) static ALL: &[Experiment] = &[
    memory_price::EXPERIMENT,
    lookup_cost::EXPERIMENT,
    access_frequency::EXPERIMENT,
    probes::EXPERIMENT,
    mbf::FPR,
    mbf::MODULES,
    mbf::BYTES,
    modules::NO_SKIPPING,
    modules::NO_SKIPPING_EMPTY,
    modules::FULL_SKIPPING,
    modules::FULL_SKIPPING_EMPTY,
    variants::PARTITIONS,
    variants::ON_MONKEY,
    timed::ROCKSDB_EQUAL,
    timed::ROCKSDB_PROPORTIONAL,
    timed::ROCKSDB_PROPORTIONAL_EMPTY,
    timed::ON_FAST_DEVICES,
    variants::LARGER_INDEX,
    memory_ratio::EXPERIMENT,
    memory_ratio::ENGINES,
    filter_memory::EXPERIMENT,
];
