//! *Reducing Bloom Filter CPU Overhead in LSM-Trees on Modern Storage Devices* (DaMoN 2021), hash sharing: its figures and
//! tables.

mod breakdown;
mod claims;
mod depth;
mod empty_share;
mod fig1;
mod fig10;
mod fig11;
mod fig12;
mod fig13;
mod fig14;
mod fig2;
mod fig3;
mod fig4;
mod fig5;
mod fig6;
mod fig8a;
mod fig8b;
mod fig9;
mod gains;
mod hashes;
mod levels;
mod memtable;
mod over_keys;
mod parts;
mod raw_fpr;
mod runs;
mod table1;
mod table2;
mod table3;

use crate::Experiment;

pub(super) const ALL: &[Experiment] = &[
    fig1::EXPERIMENT,
    fig2::EXPERIMENT,
    fig3::EXPERIMENT,
    fig4::EXPERIMENT,
    fig5::EXPERIMENT,
    fig6::EXPERIMENT,
    fig8a::EXPERIMENT,
    fig8b::EXPERIMENT,
    fig9::EXPERIMENT,
    fig10::EXPERIMENT,
    fig11::EXPERIMENT,
    fig12::EXPERIMENT,
    fig13::EXPERIMENT,
    fig14::EXPERIMENT,
    table1::EXPERIMENT,
    table2::EXPERIMENT,
    table3::EXPERIMENT,
    levels::EXPERIMENT,
    runs::EXPERIMENT,
    parts::EXPERIMENT,
    memtable::EXPERIMENT,
];

/// By which its claims are judged.
pub(super) fn rule() -> String {
    format!(
        "a claim has parts, the first of which decides whether it is confirmed at all. A share of time holds from {} percentage points below the paper's on, and in \
         part from {:.0} % of the paper's; growth holds beyond what repeats scatter.",
        100.0 * claims::ROUNDING,
        100.0 * claims::LEAST_PART
    )
}
