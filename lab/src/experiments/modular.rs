//! *LSM-Trees Under (Memory) Pressure* (ADMS 2022), modular filters: the slides.

mod access_frequency;
mod approaches;
mod devices;
mod figure;
mod full_skipping;
mod full_skipping_empty;
mod larger_index;
mod mbf;
mod mbf_bytes;
mod mbf_chart;
mod mbf_fpr;
mod mbf_modules;
mod measure;
mod memory_price;
mod memory_ratio;
mod model;
mod modules;
mod monkey;
mod no_skipping;
mod no_skipping_empty;
mod partitioned;
mod pressure;
mod probes;
mod rocksdb_equal;
mod rocksdb_proportional;
mod rocksdb_proportional_empty;
mod trees;
mod variants;
mod world;

use crate::Experiment;

/// In the order of the slides.
pub(super) const ALL: &[Experiment] = &[
    memory_price::EXPERIMENT,
    pressure::EXPERIMENT,
    access_frequency::EXPERIMENT,
    probes::EXPERIMENT,
    mbf_fpr::EXPERIMENT,
    mbf_modules::EXPERIMENT,
    mbf_bytes::EXPERIMENT,
    no_skipping::EXPERIMENT,
    no_skipping_empty::EXPERIMENT,
    full_skipping::EXPERIMENT,
    full_skipping_empty::EXPERIMENT,
    partitioned::EXPERIMENT,
    monkey::EXPERIMENT,
    rocksdb_equal::EXPERIMENT,
    rocksdb_proportional::EXPERIMENT,
    rocksdb_proportional_empty::EXPERIMENT,
    devices::EXPERIMENT,
    larger_index::EXPERIMENT,
    memory_ratio::EXPERIMENT,
];

/// By which its claims are judged.
pub(super) fn rule() -> String {
    format!(
        "I/Os saved under memory pressure confirm from {:.0} % on, in part from {:.0} %; what is claimed faster must be so in every repeat, and by {:.0} %. Pressure is \
         memory of at most {:.0} % of all filters and indexes, severe pressure of {:.0} %. Of several variants one named beforehand decides, {}. Where files are smaller than on the \
         slides, so are filters: 15 KB at quick, 80 KB there, beside blocks of 4 KB. That takes from what modules can save; `--scale default` has files as large.",
        100.0 * figure::SAVES,
        100.0 * figure::SAVES_SOMETHING,
        100.0 * figure::FASTER,
        100.0 * figure::PRESSURE_MOST,
        100.0 * figure::SEVERE_MOST,
        approaches::EQ_F.name
    )
}
