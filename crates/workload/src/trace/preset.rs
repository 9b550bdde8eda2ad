//! Workloads of the papers' measurements, as mixes.
//!
//! The counts are the papers'; `divide` scales all of them down.

use std::str::FromStr;

use super::options::{Entries, Mix};
use super::spread::Spread;

/// A workload of a paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preset {
    /// Mnemosyne's type I: 20 million inserts; then another 20 million with 20 million updates and
    /// 40 million lookups, all of them empty.
    TypeOne,
    /// Mnemosyne's type II: 21 million inserts, then 31 million lookups with 10 million updates.
    TypeTwo,
    /// Mnemosyne's workload for the comparison of bits per key: 4 million inserts, then 15 million
    /// lookups.
    BitsPerKey,
    /// Mnemosyne's shifting workload, over the keys of type II: three phases of 6 million lookups,
    /// with none, half and all of them empty.
    Shifting,
}

/// A part of a workload, in its own file.
#[derive(Clone, PartialEq, Debug)]
pub struct Phase {
    /// Its name, which is part of the file's name.
    pub name: &'static str,
    /// Its operations.
    pub mix: Mix,
}

impl Preset {
    /// Every workload.
    pub const ALL: [Self; 4] = [Self::TypeOne, Self::TypeTwo, Self::BitsPerKey, Self::Shifting];

    /// Name of the workload.
    pub fn name(self) -> &'static str {
        match self {
            Self::TypeOne => "type-1",
            Self::TypeTwo => "type-2",
            Self::BitsPerKey => "bits-per-key",
            Self::Shifting => "shifting",
        }
    }

    /// Entries of the workload.
    pub fn entries(self) -> Entries {
        let entry_bytes = if self == Self::TypeOne { 128 } else { 512 };
        Entries { entry_bytes, key_share: 0.25, ..Entries::default() }
    }

    /// Parts of the workload, with every count divided by `divide`. `empty_lookups` and
    /// `existing_spread` apply where the paper varies them.
    pub fn phases(self, divide: u64, empty_lookups: f64, existing_spread: Spread) -> Vec<Phase> {
        let count = |millions: u64| (millions * 1_000_000 / divide.max(1)).max(1);
        let load = |millions| Phase { name: "load", mix: Mix { inserts: count(millions), ..Mix::default() } };
        let lookups = |name, millions, empty_lookups| Phase {
            name,
            mix: Mix { lookups: count(millions), empty_lookups, existing_spread, ..Mix::default() },
        };
        match self {
            Self::TypeOne => {
                let mixed = lookups("mixed", 40, 1.0);
                let mix = Mix { inserts: count(20), updates: count(20), ..mixed.mix };
                vec![load(20), Phase { mix, ..mixed }]
            }
            Self::TypeTwo => {
                let mixed = lookups("mixed", 31, empty_lookups);
                let mix = Mix { updates: count(10), ..mixed.mix };
                vec![load(21), Phase { mix, ..mixed }]
            }
            Self::BitsPerKey => vec![load(4), lookups("lookups", 15, empty_lookups)],
            Self::Shifting => vec![
                load(21),
                lookups("none-empty", 6, 0.0),
                lookups("half-empty", 6, 0.5),
                lookups("all-empty", 6, 1.0),
            ],
        }
    }
}

impl FromStr for Preset {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|preset| preset.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("unknown workload {name:?} (known: {known})")
        })
    }
}
