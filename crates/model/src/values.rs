//! Value files: what a value costs in a table and outside, and from which length on it pays to
//! store it outside.
//!
//! A value in a table is rewritten with each merge of its entry. A value in a value file is written
//! once, and relocated when the garbage around it is collected; each read of it takes one read
//! more, and its key is merged at least once per [`HIDDEN_SHARE_MAX`] of the data that is written.
//! For each update, with the symbols of decision 42,
//!
//! ```text
//! in tables   M (k + 24 + v) b
//! outside     M_k (k + 56) b + w G v b + q_l C_l + q_s C_s
//!
//! M           merges of an entry of the design
//! M_k         max(M, 1 / HIDDEN_SHARE_MAX + M / 4)
//! k, v        bytes of a key and of a value
//! b           time to move a byte
//! w           share of updates that overwrite
//! G           relocations for each overwritten byte
//! q_l, q_s    reads of values by lookups and by scans, for each update
//! C_l, C_s    time of the further read for one of them
//! ```
//!
//! G follows from the allowed space A. If files are collected oldest first, x is the live share of
//! a file when it is collected, and the mean live share of all files is 1 / e with e = (1 -
//! HIDDEN_SHARE_MAX) A:
//!
//! ```text
//! (x - 1) / ln x = 1 / e,    G = x / (1 - x)
//! ```
//!
//! The engine collects the emptiest files first, so this is an upper bound (decision 42 has
//! simulations of both).
//!
//! Not here: the choice of the files to collect (crate `shamba-tree`, `compaction/schedule`).

use crate::cost::{Costs, DataSet, Situation, finite};
use crate::input;

/// Maximum share of the entries that newer entries may hide from the collection. When more are
/// hidden, a collection merges the keys.
pub const HIDDEN_SHARE_MAX: f64 = 1.0 / 16.0;
/// Bytes of an entry in a table, apart from key and value.
const ENTRY_BYTES: f64 = 24.0;
/// Bytes of a reference to a value.
pub const REFERENCE_BYTES: f64 = 32.0;
/// CPU time of a read of a value from a value file, as measured in the engine.
const VALUE_CPU_NS: f64 = 300.0;
/// The shortest threshold that is proposed. For shorter values, the overhead of a chunk and the
/// record cache matter, which the model leaves out.
const THRESHOLD_BYTES_MIN: u32 = 1 << 10;
/// The longest; if only longer values would pay, none is proposed.
const THRESHOLD_BYTES_MAX: u32 = 1 << 20;
/// Steps of the bisection for G: the precision of a float.
const BISECTIONS: u32 = 50;

/// G: how often a value is relocated for each overwritten byte, where value files may take `space`
/// bytes for each live byte; infinite if that leaves no room for garbage.
///
/// # Errors
/// A message if `space` is below 1 or NaN.
pub fn relocations(space: f64) -> Result<f64, String> {
    if space.is_nan() || space < 1.0 {
        return Err(format!("the space of value files must be at least 1, not {space}"));
    }
    let mean_live = 1.0 / ((1.0 - HIDDEN_SHARE_MAX) * space);
    if mean_live >= 1.0 {
        return Ok(f64::INFINITY);
    }
    // (x - 1) / ln x rises with x from 0 to 1.
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..BISECTIONS {
        let x = f64::midpoint(low, high);
        if (x - 1.0) / x.ln() < mean_live { low = x } else { high = x }
    }
    Ok(low / (1.0 - low))
}

/// M_k: how often the key of a value in a value file is merged, where the design merges an entry
/// `merges` times.
pub fn key_merges(merges: f64) -> f64 {
    merges.max(1.0 / HIDDEN_SHARE_MAX + merges / 4.0)
}

/// Rates and times from which the threshold is computed: those of the module's two formulas.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ValueTraffic {
    /// M: merges of an entry in the design.
    pub merges: f64,
    /// k: the mean length of keys.
    pub key_bytes: f64,
    /// b: nanoseconds to move a byte in a flush or compaction.
    pub move_ns_per_byte: f64,
    /// w: the share of updates that overwrite.
    pub overwritten_share: f64,
    /// A: bytes of value files that are allowed for each live byte.
    pub space: f64,
    /// q_l: found lookups for each update.
    pub lookups_per_update: f64,
    /// q_s: reads of values by scans, for each update; adjacent values take one.
    pub scanned_per_update: f64,
    /// The time of a read of a value.
    pub read_ns: f64,
}

impl ValueTraffic {
    /// Times of values of `value_bytes` for each update, in nanoseconds: in tables, and outside.
    ///
    /// # Errors
    /// Numbers that are negative or not finite, or a space below 1.
    pub fn update_ns(&self, value_bytes: f64) -> Result<(f64, f64), String> {
        for (what, number) in [
            ("the merges of an entry", self.merges),
            ("the bytes of a key", self.key_bytes),
            ("the time to move a byte", self.move_ns_per_byte),
            ("the lookups of an update", self.lookups_per_update),
            ("the scanned entries of an update", self.scanned_per_update),
            ("the time of a read", self.read_ns),
            ("the bytes of a value", value_bytes),
        ] {
            input::not_negative(what, number)?;
        }
        input::share("the share of updates that overwrite", self.overwritten_share)?;
        let in_tables = self.merges * (self.key_bytes + ENTRY_BYTES + value_bytes) * self.move_ns_per_byte;
        let key = key_merges(self.merges) * (self.key_bytes + ENTRY_BYTES + REFERENCE_BYTES);
        let value = relocated(self.overwritten_share, self.space)? * value_bytes;
        let reads = (self.lookups_per_update + self.scanned_per_update) * (self.read_ns + VALUE_CPU_NS);
        Ok((in_tables, (key + value) * self.move_ns_per_byte + reads))
    }

    /// The shortest power of two from 1 KiB to 1 MiB from which on it pays to store values outside
    /// of tables; `None` if it does not pay.
    ///
    /// # Errors
    /// As [`Self::update_ns`].
    pub fn threshold_bytes(&self) -> Result<Option<u32>, String> {
        let mut bytes = THRESHOLD_BYTES_MIN;
        while bytes <= THRESHOLD_BYTES_MAX {
            let (in_tables, outside) = self.update_ns(f64::from(bytes))?;
            if outside <= in_tables {
                return Ok(Some(bytes));
            }
            bytes *= 2;
        }
        Ok(None)
    }
}

/// w G, where nothing is relocated if nothing is overwritten.
fn relocated(overwritten_share: f64, space: f64) -> Result<f64, String> {
    let relocations = relocations(space)?;
    Ok(if overwritten_share > 0.0 { overwritten_share * relocations } else { 0.0 })
}

/// Values that are stored in value files.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ValueFilePlan {
    /// v: the mean length of a value; less than the entry's.
    pub value_bytes: f64,
    /// A: bytes of value files that are allowed for each live byte.
    pub space: f64,
    /// w: the share of updates that overwrite.
    pub overwritten_share: f64,
}

impl ValueFilePlan {
    /// The data that stays in the tables: keys and references.
    ///
    /// # Errors
    /// Values as long as entries, or longer.
    pub fn in_tables(&self, data: &DataSet) -> Result<DataSet, String> {
        input::positive("the bytes of a value", self.value_bytes)?;
        if self.value_bytes >= data.entry_bytes {
            return Err(format!(
                "a value of {} bytes does not fit in an entry of {}",
                self.value_bytes, data.entry_bytes
            ));
        }
        Ok(DataSet { entry_bytes: data.entry_bytes - self.value_bytes + REFERENCE_BYTES, ..*data })
    }
}

impl Costs {
    /// The costs of the tree of keys and references with those of the values added. `self` must be
    /// predicted for [`ValueFilePlan::in_tables`], and `situation` has the whole entries.
    ///
    /// Each found lookup and each entry of a range reads its value; the block cache holds no
    /// values, and no two are adjacent. So both are upper bounds.
    ///
    /// # Errors
    /// Numbers out of bounds, or results that exceed the range of a float.
    pub fn with_values(self, situation: &Situation, values: &ValueFilePlan) -> Result<Self, String> {
        let Situation { data, workload, device, .. } = situation;
        let keys = Situation { data: values.in_tables(data)?, ..*situation };
        input::share("the share of updates that overwrite", values.overwritten_share)?;
        let relocated = relocated(values.overwritten_share, values.space)?;
        if relocated.is_infinite() {
            return Err(format!("a space of {} leaves no room for overwritten values", values.space));
        }
        let merges = key_merges(self.write_amplification - 1.0);
        let written = (1.0 + merges) * keys.data.entry_bytes + (1.0 + relocated) * values.value_bytes;
        let space = self.space_amplification * keys.data.entry_bytes + values.space * values.value_bytes;
        // All that depends on the merges of keys; the rest comes on top.
        let of_keys = self.with_merges(&keys, merges, space / data.entry_bytes)?;

        let value_pages = values.value_bytes / data.page_bytes as f64;
        let moved_pages = relocated * value_pages;
        let value_update_ns = moved_pages * (device.read_ns + device.write_ns);
        let value_update_ios = moved_pages * (1.0 + device.write_per_read());
        let value_reads = data.entries as f64 * workload.range_selectivity * value_pages.max(1.0);
        // The value is found in its file as an entry is in a page.
        let cpu_ns = device.cpu.search_ns;
        let (value_ns, value_range_ns) = (device.read_ns + cpu_ns, value_reads * (device.read_ns + cpu_ns));
        let found = 1.0 - workload.empty_fraction();
        let shares = workload.shares();
        let cost_ns_per_op = of_keys.cost_ns_per_op
            + shares.lookups * found * value_ns
            + shares.updates * value_update_ns
            + shares.ranges * value_range_ns;
        let costs = Self {
            nonzero_result_lookup_ios: of_keys.nonzero_result_lookup_ios + 1.0,
            nonzero_result_lookup_ios_exact: of_keys.nonzero_result_lookup_ios_exact + 1.0,
            mixed_lookup_ios: of_keys.mixed_lookup_ios + found,
            mixed_lookup_ios_exact: of_keys.mixed_lookup_ios_exact + found,
            found_lookup_ios: of_keys.found_lookup_ios + 1.0,
            update_ios: of_keys.update_ios + value_update_ios,
            merged_update_ios: of_keys.merged_update_ios + value_update_ios,
            range_ios: of_keys.range_ios + value_reads,
            operation_ios: of_keys.operation_ios
                + shares.lookups * found
                + shares.updates * value_update_ios
                + shares.ranges * value_reads,
            write_amplification: written / data.entry_bytes,
            cpu_ns_per_lookup: of_keys.cpu_ns_per_lookup + found * cpu_ns,
            found_lookup_reads: of_keys.found_lookup_reads + 1.0,
            lookup_reads: of_keys.lookup_reads + found,
            lookup_ns: of_keys.lookup_ns + found * value_ns,
            found_lookup_ns: of_keys.found_lookup_ns + value_ns,
            update_ns: of_keys.update_ns + value_update_ns,
            range_ns: of_keys.range_ns + value_range_ns,
            cost_ns_per_op,
            throughput_per_s: (1e9 / cost_ns_per_op).min(f64::MAX),
            ..of_keys
        };
        finite(costs)
    }
}

#[cfg(test)]
mod tests;
