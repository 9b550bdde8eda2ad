//! Sources of claims: the papers, and the kinds of their figures.

/// A paper or slide deck whose figures are reproduced; also the chapters of the report.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Paper {
    /// Zhu, Mun, Raman, Athanassoulis: *Reducing Bloom Filter CPU Overhead in LSM-Trees on Modern
    /// Storage Devices* (DaMoN 2021).
    HashSharing,
    /// Mun, Zhu, Raman, Athanassoulis: *LSM-Trees Under (Memory) Pressure* (ADMS 2022).
    ModularFilters,
    /// Dayan, Athanassoulis, Idreos: *Optimal Bloom Filters and Adaptive Merging for LSM-Trees*
    /// (TODS 2018).
    Monkey,
    /// Zhu, Wei, Mun, Athanassoulis: *Mnemosyne: Dynamic Workload-Aware BF Tuning via Accurate
    /// Statistics in LSM trees* (SIGMOD 2025).
    Mnemosyne,
    /// Huynh, Chaudhari, Terzi, Athanassoulis: *Endure: A Robust Tuning Paradigm for LSM Trees
    /// Under Workload Uncertainty* (VLDB 2022).
    Endure,
    /// Claims of this engine that no paper makes.
    Engine,
}

impl Paper {
    /// Every paper, in the order of the report.
    pub const ALL: [Self; 6] =
        [Self::HashSharing, Self::ModularFilters, Self::Monkey, Self::Mnemosyne, Self::Endure, Self::Engine];

    /// The heading of the chapter.
    pub fn name(self) -> &'static str {
        match self {
            Self::HashSharing => "Hash sharing",
            Self::ModularFilters => "Modular filters",
            Self::Monkey => "Monkey",
            Self::Mnemosyne => "Mnemosyne",
            Self::Endure => "Endure",
            Self::Engine => "The engine",
        }
    }

    /// The name in options and of files.
    pub fn slug(self) -> &'static str {
        match self {
            Self::HashSharing => "hash-sharing",
            Self::ModularFilters => "modular-filters",
            Self::Monkey => "monkey",
            Self::Mnemosyne => "mnemosyne",
            Self::Endure => "endure",
            Self::Engine => "engine",
        }
    }
}

/// The origin of a figure's values, which determines the weight of its verdict.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Counted or timed on this machine: a claim of the paper that may fail.
    Measured,
    /// Computed from the paper's own equations: checks that they give the stated figures.
    Computed,
    /// Computed from the paper's own equations, for inputs that are drawn at random for each seed.
    Simulated,
    /// Taken from the literature.
    Literature,
    /// Measured, but a claim of this project.
    Ours,
}

impl Kind {
    /// Every kind, in the order of the report.
    pub const ALL: [Self; 5] =
        [Self::Measured, Self::Computed, Self::Simulated, Self::Literature, Self::Ours];

    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Computed => "computed",
            Self::Simulated => "simulated",
            Self::Literature => "literature",
            Self::Ours => "ours",
        }
    }

    /// Whether values differ between seeds, so that a verdict needs an interval.
    pub fn is_sampled(self) -> bool {
        matches!(self, Self::Measured | Self::Simulated | Self::Ours)
    }
}

/// How an experiment obtains its values, which determines what may run concurrently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Counts, or arithmetic: two at a time.
    Counted,
    /// Times: alone on the machine.
    Timed,
}
