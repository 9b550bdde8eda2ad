//! Cost conventions: how compaction and memory are counted, as in the papers or as in this engine.
//!
//! All commands of `plan` use the same convention, so that `plan cost` and `plan design` give the
//! same figures for a design.

use clap::{Args, ValueEnum};
use shamba_model::cost::{Costs, CpuTimes, Plan, Situation, predict_merging};
use shamba_model::navigator;
use shamba_model::updates::Merging;

use crate::exit::Failure;

/// The option.
#[derive(Args, Clone, Copy, Debug)]
pub struct CountingOption {
    /// Cost convention: paper or engine (default: paper)
    ///
    /// paper: compactions merge whole levels; memory is one write buffer, filters and cache.
    /// engine: compactions work file by file; memory is two write buffers, filters, index and
    /// cache, with room for 10 % more data; CPU times are measured ones.
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

/// Convention of counting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Counting {
    /// The papers'.
    Paper,
    /// The engine's.
    Engine,
}

impl Counting {
    /// Options of the navigator for this counting.
    pub fn options(self) -> navigator::Options {
        match self {
            Self::Paper => navigator::Options::PAPER,
            Self::Engine => navigator::Options::ENGINE,
        }
    }

    /// CPU times, where no option gives them.
    pub fn cpu(self) -> CpuTimes {
        match self {
            Self::Paper => CpuTimes::NONE,
            Self::Engine => CpuTimes::ENGINE,
        }
    }

    /// RocksDB's settings are evaluated with the papers' counting.
    ///
    /// # Errors
    /// The option selects another counting.
    pub fn is_for_rocksdb(self) -> Result<(), Failure> {
        match self {
            Self::Paper => Ok(()),
            Self::Engine => Err(Failure::Usage(
                "--counting engine conflicts with --rocksdb: the costs of RocksDB's settings are computed by the papers' \
                 convention"
                    .into(),
            )),
        }
    }

    /// How levels are compacted.
    pub fn merging(self) -> Merging {
        self.options().merging
    }

    /// Predicted costs of a plan.
    ///
    /// # Errors
    /// Input that is not a number or out of bounds.
    pub fn predict(self, situation: &Situation, plan: &Plan) -> Result<Costs, Failure> {
        predict_merging(situation, plan, self.merging()).map_err(Failure::Usage)
    }
}
