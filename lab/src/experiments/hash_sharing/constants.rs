//! The constants of Equations 4 and 8 on this machine: a hash, a probe of a filter, a page.
//!
//! Each is measured at its first use, before the predicted lookups are timed, and once per process:
//! all seeds and figures use the same value. A hash and a page are measured as for Table 1; a probe
//! is measured on filters of the same total size as the tree's, so that it has the same cache
//! misses.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use shamba_filter::Filter;
use shamba_key::KeyDigest;
use shamba_workload::mix2;

use super::equations::LookupTimes;
use super::gains::hash_of;
use super::hashes::hash_ns;
use super::table1::page_ns;
use crate::device::Device;
use crate::lab::Lab;
use crate::lookups::median;
use crate::tree::Spec;

/// Measured values by name.
static KNOWN: Mutex<BTreeMap<String, f64>> = Mutex::new(BTreeMap::new());

/// Returns the value with this name, measured at the first call.
fn once(name: String, measure: impl FnOnce() -> Result<f64, String>) -> Result<f64, String> {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get(&name).copied();
    if let Some(known) = known {
        return Ok(known);
    }
    let measured = measure()?;
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).insert(name, measured);
    Ok(measured)
}

/// The constants for lookups of a tree of `spec` on `device`; `None` for a digest that the paper
/// and this engine do not use, and for the machine's own disk, whose reads depend on the system's
/// cache.
///
/// # Errors
/// When reading pages fails.
pub(super) fn constants(lab: &Lab<'_>, spec: &Spec, device: Device) -> Result<Option<LookupTimes>, String> {
    let Some(hash_ns) = hash_here(spec) else { return Ok(None) };
    if matches!(device, Device::Disk | Device::PageCache) {
        return Ok(None);
    }
    let page_ns = once(format!("page {}", device.name()), || page_ns(lab, device))?;
    let bits = spec.bits;
    let name = format!("probe {} {} {} {}", bits.layout, bits.per_key, spec.entries, table_keys(spec));
    let probe_ns = once(name, || probe_ns(lab, spec))?;
    Ok(Some(LookupTimes { hash_ns, probe_ns, page_ns }))
}

/// Nanoseconds of hashing a key of a tree; `None` for a digest that the paper and this engine do
/// not use.
pub(super) fn hash_here(spec: &Spec) -> Option<f64> {
    let hash = hash_of(spec.digest)?;
    once(format!("hash {} {}", hash.name(), spec.key_bytes), || Ok(hash_ns(hash, spec.key_bytes))).ok()
}

/// Approximate keys of a table.
fn table_keys(spec: &Spec) -> u64 {
    (spec.file_bytes / spec.entry_bytes.max(1) as u64).clamp(1, spec.entries.max(1))
}

/// Nanoseconds of probing one of a tree's filters for an absent key. Each probe depends on the one
/// before, because a lookup probes a filter only after the previous answer.
fn probe_ns(lab: &Lab<'_>, spec: &Spec) -> Result<f64, String> {
    const PROBES: usize = 1_024;
    const BATCHES: usize = 64;
    lab.at("probing filters");
    let table_keys = table_keys(spec);
    let digest = |number: u64| KeyDigest::from_raw(mix2(number, lab.seed));
    let mut filters = Vec::new();
    let mut digests = Vec::new();
    for first in (0..spec.entries).step_by(table_keys as usize) {
        digests.clear();
        digests.extend((first..(first + table_keys).min(spec.entries)).map(digest));
        let filter = Filter::build(&digests, spec.bits.layout, spec.bits.per_key);
        filters.push(filter.ok_or("no filter was built")?);
    }
    let mut number = spec.entries;
    let mut measured = || {
        let batch = |_| {
            // Drawn before the clock starts, and anew for each batch, so that no line is cached.
            let asked: Vec<(usize, KeyDigest)> = (0..PROBES)
                .map(|_| {
                    number += 1;
                    ((mix2(number, !lab.seed) % filters.len() as u64) as usize, digest(number))
                })
                .collect();
            let mut filter_before = 0;
            let since = Instant::now();
            for (filter, digest) in &asked {
                // The filter index depends on a constant bit of the previous answer.
                let answer = filters[*filter ^ filter_before].may_contain(black_box(*digest));
                filter_before = usize::from(black_box(answer)) & black_box(0);
            }
            since.elapsed().as_nanos() as f64 / PROBES as f64
        };
        median((0..BATCHES).map(batch).collect())
    };
    measured();
    Ok(median((0..3).map(|_| measured()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scale;

    #[test]
    fn constants_are_measured_once_and_only_where_the_model_has_them() {
        let lab = Lab::new("none".into(), Scale::Tiny, 1, &|_| {});
        let spec = Spec::leveled(2_000, (32, 64), 4.0, 3);
        let of = |device| constants(&lab, &spec, device).expect("measured");
        let first = of(Device::Memory).expect("a model");
        assert!(first.hash_ns > 0.0 && first.probe_ns > 0.0 && first.page_ns > 0.0, "{first:?}");
        assert_eq!(of(Device::Memory), Some(first), "measured once");
        let slower = of(Device::Pcie).expect("a model");
        assert!(slower.page_ns > 9_000.0 && slower.hash_ns == first.hash_ns, "{slower:?}");
        assert_eq!((of(Device::Disk), of(Device::PageCache)), (None, None));
        let mut failed = 0;
        for _ in 0..2 {
            failed += usize::from(once("fails".to_owned(), || Err("no".to_owned())).is_err());
        }
        assert_eq!(failed, 2, "a failure is not kept");
    }
}
