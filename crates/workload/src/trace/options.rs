//! What a generated workload is to be: its entries, and how many operations of each kind over which keys.
//!
//! The letters are the options of the K-V-Workload-Generator.

use super::interleave::Left;
use super::spread::Spread;

/// What entries look like.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Entries {
    /// Bytes of key and value together (`-E`).
    pub entry_bytes: usize,
    /// The key's part of them (`-L`), above 0 and up to 1.
    pub key_share: f64,
    /// Whether values are written as their lengths (`*N`), which only this project's replay reads.
    pub lengths_only: bool,
    /// Whether lookups say what they find, which only this project's replay reads.
    pub answers: bool,
}

impl Default for Entries {
    fn default() -> Self {
        Self { entry_bytes: 8, key_share: 0.5, lengths_only: false, answers: false }
    }
}

impl Entries {
    /// Bytes of a key.
    pub(crate) fn key_bytes(&self) -> usize {
        ((self.entry_bytes as f64 * self.key_share) as usize).clamp(1, self.entry_bytes.max(1))
    }
}

/// How many operations of each kind, and how they spread.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Mix {
    /// Puts of new keys (`-I`).
    pub inserts: u64,
    /// Puts of keys that are there (`-U`).
    pub updates: u64,
    /// Deletes (`-D`).
    pub deletes: u64,
    /// Range deletes (`-R`).
    pub range_deletes: u64,
    /// Lookups (`-Q`).
    pub lookups: u64,
    /// Range queries (`-S`).
    pub scans: u64,
    /// The share of the live keys that a range delete takes (`-y`).
    pub range_delete_share: f64,
    /// The share of the live keys that a range query reads (`-Y`).
    pub scan_share: f64,
    /// The share of the lookups that ask for absent keys (`-Z`).
    pub empty_lookups: f64,
    /// The share of the deletes that are of absent keys (`-z`).
    pub empty_deletes: f64,
    /// Distinct absent keys that are asked for, as a share of the lookups of absent keys (`--UZ`).
    pub unique_empty: f64,
    /// The most distinct live keys that are asked for, as a share of the lookups of such (`--UE`); `None`: no limit.
    pub unique_existing: Option<f64>,
    /// How inserts spread (`--ID`).
    pub insert_spread: Spread,
    /// How updates spread (`--UD`).
    pub update_spread: Spread,
    /// How lookups of live keys spread (`--ED`).
    pub existing_spread: Spread,
    /// How lookups of absent keys spread (`--ZD`).
    pub empty_spread: Spread,
}

impl Default for Mix {
    fn default() -> Self {
        Self {
            inserts: 0,
            updates: 0,
            deletes: 0,
            range_deletes: 0,
            lookups: 0,
            scans: 0,
            range_delete_share: 0.0,
            scan_share: 0.0,
            empty_lookups: 0.0,
            empty_deletes: 0.0,
            unique_empty: 0.5,
            unique_existing: None,
            insert_spread: Spread::Uniform,
            update_spread: Spread::Uniform,
            existing_spread: Spread::Uniform,
            empty_spread: Spread::Uniform,
        }
    }
}

/// The most operations of one class, and keys of one workload.
const COUNT_MAX: u64 = 1 << 31;

impl Mix {
    /// Whether it can be.
    ///
    /// # Errors
    /// The option that is wrong, and its bounds.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (option, count) in [
            ("-I", self.inserts),
            ("-U", self.updates),
            ("-D", self.deletes),
            ("-R", self.range_deletes),
            ("-Q", self.lookups),
            ("-S", self.scans),
        ] {
            if count > COUNT_MAX {
                return Err(format!("{option} must be at most {COUNT_MAX}, not {count}"));
            }
        }
        for (option, share) in [
            ("-y", self.range_delete_share),
            ("-Y", self.scan_share),
            ("-Z", self.empty_lookups),
            ("-z", self.empty_deletes),
            ("--UZ", self.unique_empty),
            ("--UE", self.unique_existing.unwrap_or(0.0)),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return Err(format!("{option} must be from 0 to 1, not {share}"));
            }
        }
        for (option, spread) in [
            ("--ID", self.insert_spread),
            ("--UD", self.update_spread),
            ("--ED", self.existing_spread),
            ("--ZD", self.empty_spread),
        ] {
            spread.check().map_err(|reason| format!("{option}: {reason}"))?;
        }
        Ok(())
    }

    /// All of it, before any of it is done.
    pub(crate) fn left(&self) -> Left {
        let part = |count: u64, share: f64| ((count as f64 * share) as u64).min(count);
        Left {
            counts: [self.inserts, self.updates, self.deletes, self.range_deletes, self.lookups, self.scans],
            empty_deletes: part(self.deletes, self.empty_deletes),
            empty_lookups: part(self.lookups, self.empty_lookups),
            range_deletes_take: self.range_delete_share > 0.0,
            inserts: self.inserts,
        }
    }
}

/// What was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Made {
    /// Operations.
    pub operations: u64,
    /// Inserts.
    pub inserts: u64,
    /// Updates.
    pub updates: u64,
    /// Deletes.
    pub deletes: u64,
    /// Range deletes.
    pub range_deletes: u64,
    /// Lookups.
    pub lookups: u64,
    /// Lookups of absent keys among them.
    pub empty_lookups: u64,
    /// Range queries.
    pub scans: u64,
    /// Keys that are there afterwards.
    pub live_keys: u64,
    /// Bytes of text.
    pub bytes: u64,
}
