//! Hash sharing: *Reducing Bloom Filter CPU Overhead in LSM-Trees on Modern Storage Devices*
//! (DaMoN 2021), its figures and tables.

mod breakdown;
mod constants;
mod depth;
mod empty_share;
mod equations;
mod fig12;
mod fig3;
mod fig6;
mod fig8b;
mod filter_time;
mod fpr_tables;
mod gains;
mod hashes;
mod memtable;
mod over_keys;
mod parts;
mod raw_fpr;
mod table1;

use crate::experiment::Experiment;

/// In the order of the paper, then those of this project.
pub(super) static ALL: &[Experiment] = &[
    breakdown::FIG1,
    breakdown::FIG2,
    fig3::EXPERIMENT,
    filter_time::FIG4,
    filter_time::FIG5,
    fig6::EXPERIMENT,
    over_keys::FIG8A,
    fig8b::EXPERIMENT,
    over_keys::FIG9,
    over_keys::FIG10,
    over_keys::FIG11,
    fig12::EXPERIMENT,
    empty_share::FIG13,
    empty_share::FIG14,
    table1::EXPERIMENT,
    fpr_tables::TABLE2,
    fpr_tables::TABLE3,
    depth::OVER_LEVELS,
    depth::OVER_RUNS,
    parts::EXPERIMENT,
    memtable::EXPERIMENT,
];
