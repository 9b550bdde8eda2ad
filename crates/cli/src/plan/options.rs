//! Options of `plan`: the data, the workload, the device and the design; and their conversion to
//! the model's inputs.
//!
//! An option that is not given is `None`, so that one set of options can override another: `plan
//! compare` describes changes in this way. Contradicting options are rejected where they are
//! combined; the error names both.
//!
//! Not here: the two cases of a comparison (`compare.rs`); settings of RocksDB's files
//! (`rocksdb/`).

use clap::Args;
use shamba_model::allocation::Allocation;
use shamba_model::cost::{CpuTimes, DataSet, Device, FilterBits, Plan, Situation, Workload};
use shamba_model::miss_ratio::MissRatioCurve;
use shamba_model::presets::Preset;
use shamba_model::{Design, MAX_BITS_PER_KEY, MergePolicy, memtable_bytes_max};

use super::counting::Counting;
use super::report::show_bytes;
use crate::exit::Failure;
use crate::options::Switch;
use crate::sizes::{parse_size, show_size};

/// Tolerance for the sum of shares, because users round them.
const SHARES_TOLERANCE: f64 = 0.005;
/// Default time of one read of the device: that of a fast disk.
const READ_US: f64 = 100.0;
const PAGE_BYTES: u64 = 4096;
/// Default bound on the space amplification of proposed designs. Without a bound the cheapest
/// design for a mix with updates is tiering with hundreds of runs, which may store hundreds of
/// bytes for each byte of data.
pub const MAX_SPACE: f64 = 2.0;

/// The data, the workload and the device.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "The data, the workload and the device")]
pub struct SituationOptions {
    /// N, number of entries; the suffixes k, M and G are 10^3, 10^6 and 10^9
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    pub entries: Option<u64>,
    /// E, stored bytes of an entry: key and value
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub entry_bytes: Option<f64>,
    /// Bytes of a page, the unit of reads (default: 4096)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub page_bytes: Option<u64>,
    /// v, found lookups per empty lookup, for a workload of lookups only; replaces the four options
    /// below
    #[arg(long, value_name = "V")]
    pub nonzero_per_zero: Option<f64>,
    /// Empty lookups: share of all operations, or a number relative to the others
    #[arg(long, value_name = "SHARE")]
    pub lookups_zero: Option<f64>,
    /// Found lookups
    #[arg(long, value_name = "SHARE")]
    pub lookups_nonzero: Option<f64>,
    /// Puts and deletes
    #[arg(long, value_name = "SHARE")]
    pub updates: Option<f64>,
    /// Range scans
    #[arg(long, value_name = "SHARE")]
    pub ranges: Option<f64>,
    /// s, share of all entries that a range scan reads (default: 0, a short scan)
    #[arg(long, value_name = "SHARE")]
    pub range_selectivity: Option<f64>,
    /// Zipf exponent of lookups over scattered hot keys (default: 0, uniform). Repeated reads are
    /// served by the block cache, if there is one (--cache, --memory, --counting engine)
    #[arg(long, value_name = "ALPHA")]
    pub zipf: Option<f64>,
    /// Microseconds of a page read (default: 100)
    #[arg(long, value_name = "US")]
    pub read_us: Option<f64>,
    /// phi, cost of a page write relative to a page read (default: 1)
    #[arg(long, value_name = "RATIO")]
    pub write_cost: Option<f64>,
    /// T_H, nanoseconds to hash a key (default: 0 as in the papers; 10 with --counting engine)
    #[arg(long, value_name = "NS")]
    pub hash_ns: Option<f64>,
    /// T_P, nanoseconds to probe a filter (default: 0; 15 with --counting engine)
    #[arg(long, value_name = "NS")]
    pub probe_ns: Option<f64>,
    /// Nanoseconds to search the index and a page of a run (default: 0; 300 with --counting engine)
    #[arg(long, value_name = "NS")]
    pub search_ns: Option<f64>,
    /// One hash per lookup (on), or one per probed filter (off) (default: on)
    #[arg(long, value_name = "on|off", value_enum, hide_possible_values = true)]
    pub hash_sharing: Option<Switch>,
}

/// A design.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "The design")]
pub struct DesignOptions {
    /// Defaults of another system, which the other options override: leveldb, rocksdb, cassandra,
    /// hbase, accumulo
    #[arg(long, value_name = "SYSTEM", value_parser = parse::<Preset>)]
    pub like: Option<Preset>,
    /// Merge policy: leveling, tiering or lazy-leveling (default: leveling)
    #[arg(long, value_name = "POLICY", value_parser = parse::<MergePolicy>)]
    pub policy: Option<MergePolicy>,
    /// T, size ratio of adjacent levels, at least 2 (default: 10)
    #[arg(long, value_name = "T")]
    pub size_ratio: Option<f64>,
    /// K, maximum runs of each level but the last (default: by policy)
    #[arg(long, value_name = "K")]
    pub inner_runs: Option<u32>,
    /// Z, maximum runs of the last level (default: by policy)
    #[arg(long, value_name = "Z")]
    pub last_runs: Option<u32>,
    /// Size of the write buffer (default: 64MiB, limited to an eighth of --memory, or a quarter
    /// from 128MiB on)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub buffer: Option<u64>,
    /// Mean filter bits per key over the tree (default: 10)
    #[arg(long, value_name = "BITS")]
    pub bits_per_key: Option<f64>,
    /// Total size of all filters, instead of --bits-per-key
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "bits_per_key")]
    pub filter_memory: Option<u64>,
    /// Filter allocation: uniform or monkey (by run sizes) (default: monkey; uniform with --like)
    #[arg(long, value_name = "KIND", value_parser = parse_allocation)]
    pub allocation: Option<Allocation>,
    /// Size of the block cache (default: none)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub cache: Option<u64>,
    /// L, number of levels (default: by the data, equation 1 of Monkey)
    #[arg(long, value_name = "LEVELS")]
    pub levels: Option<u32>,
    /// Total memory of write buffer, filters and block cache; replaces --bits-per-key and
    /// --filter-memory. Filters get what buffer and cache leave, up to 64 bits per key, and the
    /// cache gets the rest. With --like, filters have fixed bits, and this is a limit for the sum
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with_all = ["bits_per_key", "filter_memory"])]
    pub memory: Option<u64>,
}

impl SituationOptions {
    /// Whether any option gives the workload.
    pub fn names_mix(&self) -> bool {
        [self.nonzero_per_zero, self.lookups_zero, self.lookups_nonzero, self.updates, self.ranges]
            .iter()
            .any(Option::is_some)
    }

    /// The situation. `mix` is the workload if no option gives one, and `counting` gives the
    /// default CPU times.
    ///
    /// # Errors
    /// A missing option, shares that do not add up to 1, or invalid numbers.
    pub fn situation(&self, mix: Workload, counting: Counting) -> Result<Situation, Failure> {
        let missing = |option: &str| Failure::Usage(format!("{option} is required"));
        let entries = self.entries.ok_or_else(|| missing("--entries"))?;
        let entry_bytes = self.entry_bytes.ok_or_else(|| missing("--entry-bytes"))?;
        let read_ns = not_negative("--read-us", self.read_us.unwrap_or(READ_US))? * 1e3;
        let write_cost = not_negative("--write-cost", self.write_cost.unwrap_or(1.0))?;
        if read_ns == 0.0 {
            return Err(Failure::Usage("--read-us must be more than 0".into()));
        }
        let data = DataSet { entries, entry_bytes, page_bytes: self.page_bytes.unwrap_or(PAGE_BYTES) };
        Ok(Situation {
            data,
            locality: self.locality(&data)?,
            workload: self.workload(mix)?,
            device: Device { read_ns, write_ns: read_ns * write_cost, cpu: self.cpu(counting.cpu())? },
        })
    }

    fn locality(&self, data: &DataSet) -> Result<MissRatioCurve, Failure> {
        // Other errors in the data are reported where the data is checked.
        let Some(alpha) = self.zipf.filter(|_| data.entries > 0 && data.entries_per_page() > 0.0) else {
            return Ok(MissRatioCurve::EVEN);
        };
        let curve = MissRatioCurve::zipf(alpha, data.entries, data.entries_per_page());
        curve.map_err(|error| Failure::Usage(format!("--zipf: {error}")))
    }

    fn cpu(&self, usual: CpuTimes) -> Result<CpuTimes, Failure> {
        Ok(CpuTimes {
            hash_ns: not_negative("--hash-ns", self.hash_ns.unwrap_or(usual.hash_ns))?,
            probe_ns: not_negative("--probe-ns", self.probe_ns.unwrap_or(usual.probe_ns))?,
            search_ns: not_negative("--search-ns", self.search_ns.unwrap_or(usual.search_ns))?,
            shared_digest: self.hash_sharing.is_none_or(Switch::is_on),
        })
    }

    fn workload(&self, mix: Workload) -> Result<Workload, Failure> {
        let given = [
            ("--lookups-zero", self.lookups_zero),
            ("--lookups-nonzero", self.lookups_nonzero),
            ("--updates", self.updates),
            ("--ranges", self.ranges),
        ];
        let range_selectivity = not_negative("--range-selectivity", self.range_selectivity.unwrap_or(0.0))?;
        if range_selectivity > 1.0 {
            return Err(Failure::Usage(format!(
                "--range-selectivity must be at most 1, not {range_selectivity}"
            )));
        }
        let mentioned = given.iter().find(|(_, share)| share.is_some());
        if let (Some(v), Some((other, _))) = (self.nonzero_per_zero, mentioned) {
            return Err(Failure::Usage(format!(
                "conflict: --nonzero-per-zero {v} and {other} both set the workload"
            )));
        }
        if let Some(v) = self.nonzero_per_zero {
            let v = not_negative("--nonzero-per-zero", v)?;
            let none = Workload {
                empty_lookups: 1.0,
                found_lookups: v,
                updates: 0.0,
                ranges: 0.0,
                range_selectivity,
            };
            return Ok(none);
        }
        if mentioned.is_none() {
            return Ok(Workload { range_selectivity, ..mix });
        }
        let mut shares = [0.0; 4];
        for (share, (option, given)) in shares.iter_mut().zip(given) {
            *share = not_negative(option, given.unwrap_or(0.0))?;
        }
        check_shares(&shares)?;
        let [empty_lookups, found_lookups, updates, ranges] = shares;
        Ok(Workload { empty_lookups, found_lookups, updates, ranges, range_selectivity })
    }
}

impl DesignOptions {
    /// The first given option that describes the design, other than memory and cache.
    pub fn first_of_design(&self) -> Option<&'static str> {
        let given = [
            ("--like", self.like.is_some()),
            ("--policy", self.policy.is_some()),
            ("--size-ratio", self.size_ratio.is_some()),
            ("--inner-runs", self.inner_runs.is_some()),
            ("--last-runs", self.last_runs.is_some()),
            ("--buffer", self.buffer.is_some()),
            ("--bits-per-key", self.bits_per_key.is_some()),
            ("--filter-memory", self.filter_memory.is_some()),
            ("--allocation", self.allocation.is_some()),
            ("--levels", self.levels.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
    }

    /// The plan that the options describe.
    ///
    /// # Errors
    /// Options that contradict each other, or a memory that is too small.
    pub fn plan(&self, situation: &Situation) -> Result<Plan, Failure> {
        let preset = match (self.like, self.buffer) {
            (Some(like), Some(buffer)) => Some(like.design_with(buffer).map_err(Failure::Usage)?),
            (Some(like), None) => Some(
                like.design(self.memory)
                    .map_err(|error| Failure::Usage(format!("--like {like}: {error} (--memory sets it)")))?,
            ),
            (None, _) => None,
        };
        let base = preset.unwrap_or_default();
        let policy = self.policy.or(self.like.map(|like| like.policy)).unwrap_or_default();
        let size_ratio = self.size_ratio.unwrap_or(base.size_ratio);
        // As in the engine: the default buffer is at most the largest that the memory allows.
        let room = self.memory.filter(|_| self.like.is_none()).map_or(u64::MAX, memtable_bytes_max);
        let buffer_bytes = self.buffer.unwrap_or_else(|| base.buffer_bytes.min(room));
        let mut design = Design::new(policy, size_ratio, buffer_bytes, base.bits_per_key);
        // As in the engine: the policy sets the one that is not given.
        if let Some(inner_runs) = self.inner_runs {
            design.inner_runs = inner_runs;
        }
        if let Some(last_runs) = self.last_runs {
            design.last_runs = last_runs;
        }
        let mut cache_bytes = self.cache.unwrap_or(0);
        let entries = situation.data.entries.max(1) as f64;
        let filters = match (self.bits_per_key, self.filter_memory, self.memory) {
            (Some(bits), None, _) => FilterBits::PerKey(not_negative("--bits-per-key", bits)?),
            (None, Some(bytes), _) => FilterBits::Bytes(bytes as f64),
            (Some(_), Some(_), _) => {
                let what = "conflict: --bits-per-key and --filter-memory both set the size of the filters";
                return Err(Failure::Usage(what.into()));
            }
            // With a preset, Cassandra's buffer follows the memory; the filters do not.
            (None, None, memory) if self.like.is_some() => {
                let filter_bytes = entries * base.bits_per_key / 8.0;
                let taken = buffer_bytes as f64 + cache_bytes as f64 + filter_bytes;
                if let Some(memory) = memory.filter(|memory| taken > *memory as f64) {
                    return Err(Failure::Usage(format!(
                        "--memory {} is less than the sum of buffer, cache and filters of {} bits per key, {}",
                        show_size(memory),
                        base.bits_per_key,
                        show_bytes(taken)
                    )));
                }
                FilterBits::PerKey(base.bits_per_key)
            }
            (None, None, Some(memory)) => {
                let taken = buffer_bytes.saturating_add(cache_bytes);
                let left = memory.checked_sub(taken).ok_or_else(|| {
                    Failure::Usage(format!(
                        "--memory {} is less than the sum of buffer and cache, {}",
                        show_size(memory),
                        show_size(taken)
                    ))
                })?;
                let filter_bytes = (left as f64).min(entries * MAX_BITS_PER_KEY / 8.0);
                // `as` saturates.
                cache_bytes = cache_bytes.saturating_add((left as f64 - filter_bytes) as u64);
                FilterBits::Bytes(filter_bytes)
            }
            (None, None, None) => FilterBits::PerKey(base.bits_per_key),
        };
        design.bits_per_key = match filters {
            FilterBits::PerKey(bits) => bits,
            FilterBits::Bytes(bytes) => bytes * 8.0 / entries,
        };
        let allocation = self.allocation.unwrap_or(match self.like {
            Some(_) => Preset::ALLOCATION,
            None => Allocation::Monkey,
        });
        Ok(Plan { design, filters, allocation, cache_bytes, levels: self.levels })
    }
}

/// Checks a rate, a time or a number of bits: finite and at least 0.
pub fn not_negative(option: &str, value: f64) -> Result<f64, Failure> {
    if (0.0..f64::INFINITY).contains(&value) {
        return Ok(value);
    }
    Err(Failure::Usage(format!("{option} must be a finite number of at least 0, not {value}")))
}

/// Checks a bound on space amplification: at least 1, or infinite for no bound.
///
/// # Errors
/// The bound is less than 1 or not a number.
pub fn check_max_space(bound: Option<f64>) -> Result<(), Failure> {
    match bound {
        Some(bound) if bound.is_nan() || bound < 1.0 => {
            Err(Failure::Usage(format!("--max-space must be at least 1, or inf for no bound, not {bound}")))
        }
        _ => Ok(()),
    }
}

/// The bound on space amplification in words, for a report.
pub fn max_space_text(bound: Option<f64>) -> String {
    let kind = if bound.is_none() { "the default of --max-space" } else { "--max-space" };
    match bound.unwrap_or(MAX_SPACE) {
        f64::INFINITY => "no bound (--max-space inf)".into(),
        bound => format!("space amplification of at most {bound} ({kind})"),
    }
}

/// Checks shares: fractions must add up to 1; whole numbers (1 and 9, 900 and 100) are relative to
/// their sum.
fn check_shares(shares: &[f64]) -> Result<(), Failure> {
    let sum: f64 = shares.iter().sum();
    if sum == 0.0 {
        return Err(Failure::Usage("the workload has no operations: all shares are 0".into()));
    }
    let are_fractions =
        shares.iter().all(|share| *share <= 1.0) && shares.iter().any(|share| share.fract() > 0.0);
    if are_fractions && (sum - 1.0).abs() > SHARES_TOLERANCE {
        return Err(Failure::Usage(format!(
            "--lookups-zero, --lookups-nonzero, --updates and --ranges must add up to 1, not {sum}"
        )));
    }
    Ok(())
}

/// Parses a value with its type's `FromStr`.
pub fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// Parses an allocation that needs no measurements.
pub fn parse_allocation(text: &str) -> Result<Allocation, String> {
    match text.parse()? {
        Allocation::Workload => Err("workload needs measurements; use uniform or monkey".into()),
        allocation => Ok(allocation),
    }
}

/// Parses a count such as `1000`, `10_000_000`, `10M`.
fn parse_count(text: &str) -> Result<u64, String> {
    let plain = text.replace('_', "");
    let (digits, factor) = match plain.char_indices().last() {
        Some((at, 'k' | 'K')) => (&plain[..at], 1_000),
        Some((at, 'M')) => (&plain[..at], 1_000_000),
        Some((at, 'G')) => (&plain[..at], 1_000_000_000),
        _ => (plain.as_str(), 1),
    };
    let count = digits.parse::<u64>().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let count = count.and_then(|count| count.checked_mul(factor));
    count.ok_or_else(|| format!("{text:?} is not a count: use a whole number, optionally with k, M or G"))
}

/// Parses a mean size: like a size, but it need not be whole.
pub fn parse_bytes(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(bytes) if (0.0..f64::INFINITY).contains(&bytes) => Ok(bytes),
        Ok(bytes) => Err(format!("must be a finite number of at least 0, not {bytes}")),
        Err(_) => parse_size(text).map(|bytes| bytes as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_mean_sizes_parse() {
        for (text, count) in
            [("0", 0), ("1_000", 1_000), ("10M", 10_000_000), ("3k", 3_000), ("34359738368", 1 << 35)]
        {
            assert_eq!(parse_count(text), Ok(count), "{text}");
        }
        for bad in ["", "M", "-1", "1.5", "1e9", "99999999999999999999", "99999999999999G", "+5"] {
            assert!(parse_count(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_bytes("116.5"), Ok(116.5));
        assert_eq!(parse_bytes("1KiB"), Ok(1024.0));
        for bad in ["", "-1", "nan", "inf", "many"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn fractions_add_up_and_counts_need_not() {
        for good in
            [[0.5, 0.5, 0.0, 0.0], [1.0, 9.0, 0.0, 0.0], [0.333, 0.333, 0.333, 0.0], [1.0, 1.0, 0.0, 0.0]]
        {
            assert!(check_shares(&good).is_ok(), "{good:?}");
        }
        for bad in [[0.5, 0.7, 0.0, 0.0], [0.1, 0.0, 0.0, 0.0], [0.0; 4]] {
            assert!(check_shares(&bad).is_err(), "{bad:?}");
        }
    }
}
