//! Parameters of a generated workload: its entries, the number of operations of each kind, and
//! their distribution over keys.
//!
//! The letters are the options of the K-V-Workload-Generator.

use super::interleave::Left;
use super::spread::Spread;

/// Format of the entries.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Entries {
    /// Bytes of key and value together (`-E`).
    pub entry_bytes: usize,
    /// The key's share of these bytes (`-L`), above 0 and up to 1.
    pub key_share: f64,
    /// Whether values are written as their lengths (`*N`), which only this project's replay can
    /// read.
    pub lengths_only: bool,
    /// Whether lookups include their answers, which only this project's replay can read.
    pub answers: bool,
}

impl Default for Entries {
    fn default() -> Self {
        Self { entry_bytes: 8, key_share: 0.5, lengths_only: false, answers: false }
    }
}

impl Entries {
    /// Size of a key in bytes.
    pub(crate) fn key_bytes(&self) -> usize {
        ((self.entry_bytes as f64 * self.key_share) as usize).clamp(1, self.entry_bytes.max(1))
    }
}

/// Numbers of operations of each kind, and their distributions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Mix {
    /// Puts of new keys (`-I`).
    pub inserts: u64,
    /// Puts of existing keys (`-U`).
    pub updates: u64,
    /// Deletes (`-D`).
    pub deletes: u64,
    /// Range deletes (`-R`).
    pub range_deletes: u64,
    /// Lookups (`-Q`).
    pub lookups: u64,
    /// Range queries (`-S`).
    pub scans: u64,
    /// Share of the live keys removed by a range delete (`-y`).
    pub range_delete_share: f64,
    /// Share of the live keys read by a range query (`-Y`).
    pub scan_share: f64,
    /// Share of the lookups that are of absent keys (`-Z`).
    pub empty_lookups: f64,
    /// Share of the deletes that are of absent keys (`-z`).
    pub empty_deletes: f64,
    /// Distinct absent keys, as a share of the lookups of absent keys (`--UZ`).
    pub unique_empty: f64,
    /// Maximum of distinct live keys looked up, as a share of the lookups of live keys (`--UE`);
    /// `None`: no limit.
    pub unique_existing: Option<f64>,
    /// Distribution of inserts (`--ID`).
    pub insert_spread: Spread,
    /// Distribution of updates (`--UD`).
    pub update_spread: Spread,
    /// Distribution of lookups of live keys (`--ED`).
    pub existing_spread: Spread,
    /// Distribution of lookups of absent keys (`--ZD`).
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

/// Maximum operations of one class, and keys of one workload.
const COUNT_MAX: u64 = 1 << 31;

impl Mix {
    /// Checks that the mix is possible.
    ///
    /// # Errors
    /// A message with the invalid option and its bounds.
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

    /// All operations of the mix, none done yet.
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

/// Numbers of generated operations, keys and bytes.
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
    /// Keys that are live at the end.
    pub live_keys: u64,
    /// Bytes of text.
    pub bytes: u64,
}
