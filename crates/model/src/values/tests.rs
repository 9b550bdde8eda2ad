//! Tests of the model of value files: relocations, break-even lengths, and costs.

use super::*;
use crate::allocation::Allocation;
use crate::cost::{CpuTimes, Device, FilterBits, Plan, Workload, predict};
use crate::miss_ratio::MissRatioCurve;
use crate::{Design, MergePolicy};

/// The traffic of decision 42's examples: M 9, k 16, w 1, A 1.25, b 20, no reads.
const WRITES: ValueTraffic = ValueTraffic {
    merges: 9.0,
    key_bytes: 16.0,
    move_ns_per_byte: 20.0,
    overwritten_share: 1.0,
    space: 1.25,
    lookups_per_update: 0.0,
    scanned_per_update: 0.0,
    read_ns: 0.0,
};

#[test]
fn relocations_follow_the_allowed_space() {
    for (space, expected) in [(1.15, 6.1), (1.2, 3.7), (1.25, 2.6), (1.5, 0.94), (2.0, 0.32)] {
        let got = relocations(space).unwrap();
        assert!((got / expected - 1.0).abs() < 0.02, "{got} at {space}, not {expected}");
    }
    // No garbage fits in a space of 1 / (1 - HIDDEN_SHARE_MAX).
    assert_eq!(relocations(1.0), Ok(f64::INFINITY));
    assert_eq!(relocations(1.066), Ok(f64::INFINITY));
    assert!(relocations(1.07).unwrap() > 100.0);
    for bad in [0.99, f64::NAN, -1.0] {
        assert!(relocations(bad).is_err(), "{bad}");
    }
}

#[test]
fn the_break_even_length_is_where_both_costs_are_equal() {
    // One lookup for each update from the page cache and from the device; 20 from the device; 50
    // scanned entries: the lengths of decision 42's table, and the next power of two.
    for (lookups, scanned, read_ns, break_even, threshold) in [
        (1.0, 0.0, 1_700.0, 167.0, Some(1 << 10)),
        (1.0, 0.0, 80_000.0, 776.0, Some(1 << 10)),
        (20.0, 0.0, 80_000.0, 12_700.0, Some(16 << 10)),
        (0.0, 50.0, 80_000.0, 31_400.0, Some(32 << 10)),
    ] {
        let traffic =
            ValueTraffic { lookups_per_update: lookups, scanned_per_update: scanned, read_ns, ..WRITES };
        let difference = |bytes: f64| {
            let (in_tables, outside) = traffic.update_ns(bytes).unwrap();
            in_tables - outside
        };
        assert!(difference(break_even * 0.97) < 0.0, "{break_even} is too long");
        assert!(difference(break_even * 1.03) > 0.0, "{break_even} is too short");
        assert_eq!(traffic.threshold_bytes(), Ok(threshold), "{break_even}");
    }
}

#[test]
fn nothing_is_proposed_where_it_never_pays() {
    // Tiering: values are merged less often than the collection would relocate them.
    let tiering = ValueTraffic { merges: 1.8, ..WRITES };
    assert_eq!(tiering.threshold_bytes(), Ok(None));
    // Without overwrites nothing is relocated.
    let inserts = ValueTraffic { overwritten_share: 0.0, ..tiering };
    assert_eq!(inserts.threshold_bytes(), Ok(Some(1 << 10)));
    // A space that leaves no room for garbage.
    let tight = ValueTraffic { space: 1.05, ..WRITES };
    assert_eq!(tight.threshold_bytes(), Ok(None));
    // Reads only.
    let reads = ValueTraffic { lookups_per_update: 1e9, read_ns: 1e5, ..WRITES };
    assert_eq!(reads.threshold_bytes(), Ok(None));
    for bad in [f64::NAN, -1.0, f64::INFINITY] {
        assert!(ValueTraffic { merges: bad, ..WRITES }.threshold_bytes().is_err());
        assert!(ValueTraffic { read_ns: bad, ..WRITES }.threshold_bytes().is_err());
        assert!(ValueTraffic { overwritten_share: bad, ..WRITES }.threshold_bytes().is_err());
    }
}

fn situation(found_lookups: f64) -> Situation {
    Situation {
        data: DataSet { entries: 1_000_000, entry_bytes: 4_136.0, page_bytes: 4096 },
        workload: Workload {
            empty_lookups: 1.0 - found_lookups,
            found_lookups,
            updates: 1.0,
            ranges: 0.0,
            range_selectivity: 0.0,
        },
        device: Device { read_ns: 1e5, write_ns: 1e5, cpu: CpuTimes::NONE },
        locality: MissRatioCurve::EVEN,
    }
}

fn plan() -> Plan {
    Plan {
        design: Design::new(MergePolicy::Leveling, 10.0, 1 << 20, 10.0),
        filters: FilterBits::PerKey(10.0),
        allocation: Allocation::Monkey,
        cache_bytes: 0,
        levels: None,
    }
}

#[test]
fn a_tree_of_keys_writes_less_and_reads_once_more() {
    let values = ValueFilePlan { value_bytes: 4_096.0, space: 1.25, overwritten_share: 1.0 };
    for found in [0.0, 1.0] {
        let whole = situation(found);
        let keys = Situation { data: values.in_tables(&whole.data).unwrap(), ..whole };
        assert_eq!(keys.data.entry_bytes, 72.0);
        let inline = predict(&whole, &plan()).unwrap();
        let tree = predict(&keys, &plan()).unwrap();
        let outside = tree.clone().with_values(&whole, &values).unwrap();
        assert!(outside.write_amplification < inline.write_amplification / 2.0);
        assert!(outside.update_ns < inline.update_ns / 2.0);
        // Keys are 72 of 4,136 bytes.
        assert!((1.2..1.3).contains(&outside.space_amplification), "{}", outside.space_amplification);
        assert_eq!(outside.found_lookup_reads, tree.found_lookup_reads + 1.0);
        assert_eq!(outside.empty_lookup_reads, tree.empty_lookup_reads);
        assert_eq!(outside.lookup_reads, tree.lookup_reads + found);
        let shares = whole.workload.shares();
        let time = shares.lookups * outside.lookup_ns + shares.updates * outside.update_ns;
        assert!((outside.cost_ns_per_op / time - 1.0).abs() < 1e-9, "the parts are the whole");
    }
}

#[test]
fn ranges_read_every_value() {
    let values = ValueFilePlan { value_bytes: 4_096.0, space: 1.25, overwritten_share: 0.0 };
    let mut whole = situation(0.0);
    (whole.workload.ranges, whole.workload.range_selectivity) = (1.0, 1e-5);
    let keys = Situation { data: values.in_tables(&whole.data).unwrap(), ..whole };
    let tree = predict(&keys, &plan()).unwrap();
    let outside = tree.clone().with_values(&whole, &values).unwrap();
    assert!((outside.range_ios - tree.range_ios - 10.0).abs() < 1e-9, "10 of 1,000,000 entries");
    assert!((outside.range_ns - tree.range_ns - 1e6).abs() < 1e-3);
}

#[test]
fn values_that_do_not_fit_are_refused() {
    let whole = situation(0.0);
    let tree = predict(&whole, &plan()).unwrap();
    for bad in [
        ValueFilePlan { value_bytes: 4_136.0, space: 1.25, overwritten_share: 0.0 },
        ValueFilePlan { value_bytes: 0.0, space: 1.25, overwritten_share: 0.0 },
        ValueFilePlan { value_bytes: f64::NAN, space: 1.25, overwritten_share: 0.0 },
        ValueFilePlan { value_bytes: 100.0, space: 0.5, overwritten_share: 0.0 },
        ValueFilePlan { value_bytes: 100.0, space: 1.25, overwritten_share: 2.0 },
        ValueFilePlan { value_bytes: 100.0, space: 1.0, overwritten_share: 1.0 },
    ] {
        assert!(tree.clone().with_values(&whole, &bad).is_err(), "{bad:?}");
    }
}
