//! How merging and memory are counted: as the papers do, or as this engine is.
//!
//! One choice for all of `plan`, so that what `plan design` promises is what `plan cost` says of the same design.

use clap::{Args, ValueEnum};
use shamba_model::cost::{Costs, CpuTimes, Plan, Situation, predict_merging};
use shamba_model::navigator;
use shamba_model::updates::Merging;

use crate::exit::Failure;

/// The option.
#[derive(Args, Clone, Copy, Debug)]
pub struct CountingOption {
    /// How merging and memory are counted: paper (whole levels merge, memory is one write buffer, filters and cache) or
    /// engine (levels grow with the data and merge file by file, memory holds two write buffers and the index, too,
    /// there is room for a tenth more data, and computing takes the time that it was measured to take)
    #[arg(
        long,
        value_name = "paper|engine",
        value_enum,
        default_value = "paper",
        hide_possible_values = true,
        hide_default_value = true,
        help_heading = "The data, the workload and the device"
    )]
    pub counting: Counting,
}

/// Whose way to count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Counting {
    /// The papers'.
    Paper,
    /// The engine's.
    Engine,
}

impl Counting {
    /// How the navigator counts so.
    pub fn options(self) -> navigator::Options {
        match self {
            Self::Paper => navigator::Options::PAPER,
            Self::Engine => navigator::Options::ENGINE,
        }
    }

    /// What the processor takes, where nothing is said of it.
    pub fn cpu(self) -> CpuTimes {
        match self {
            Self::Paper => CpuTimes::NONE,
            Self::Engine => CpuTimes::ENGINE,
        }
    }

    /// RocksDB's settings are judged as the papers count.
    ///
    /// # Errors
    /// The option says something else.
    pub fn is_for_rocksdb(self) -> Result<(), Failure> {
        match self {
            Self::Paper => Ok(()),
            Self::Engine => Err(Failure::Usage(
                "--counting engine is how this engine merges and counts: RocksDB's settings are judged by the papers' \
                 figures, so it does not go with --rocksdb"
                    .into(),
            )),
        }
    }

    /// How levels merge.
    pub fn merging(self) -> Merging {
        self.options().merging
    }

    /// What a plan costs.
    ///
    /// # Errors
    /// Input that is no number or out of bounds.
    pub fn predict(self, situation: &Situation, plan: &Plan) -> Result<Costs, Failure> {
        predict_merging(situation, plan, self.merging()).map_err(Failure::Usage)
    }
}
