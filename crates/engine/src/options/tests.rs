//! The table of options: every value that an option takes round-trips through its text form, other
//! values are refused by name, and recorded keys stay those of version 0.1.

use std::collections::{BTreeMap, BTreeSet};

use shamba_model::{Design, MergePolicy};

use super::*;
use crate::Db;
use crate::error::ErrorKind;

/// Values drawn for each option.
const DRAWS: usize = 200;

fn seed() -> u64 {
    let seed = std::env::var("SHAMBA_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed} (again: SHAMBA_SEED={seed} cargo test -p shamba --lib options)");
    seed
}

/// A value that the option accepts, by the form that the table states.
fn drawn(option: &OptionInfo, rng: &mut fastrand::Rng) -> String {
    let words: Vec<&str> = option.value.split('|').collect();
    let kinds = ["none", "lz4", "zstd"];
    match words[rng.usize(..words.len())] {
        "SIZE" | "COUNT" | "SEED" | "MS" | "T" | "RATIO" | "BITS" | "US" | "MIB" => match option.range {
            // Near the bounds as often as in the middle.
            Range::Bytes(min, max) | Range::Whole(min, max) => match rng.u8(..4) {
                0 => min.to_string(),
                1 => max.to_string(),
                _ => (min + (rng.u64(..=max - min) >> rng.u32(..64)).min(max - min)).to_string(),
            },
            Range::Real(min, max) => match rng.u8(..4) {
                0 => min.to_string(),
                1 => max.to_string(),
                _ => (min + (max - min) * rng.f64().powi(4)).to_string(),
            },
            Range::Any => rng.u64(1..).to_string(),
        },
        "KIND[,KIND...]" => {
            let levels = rng.usize(1..5);
            (0..levels).map(|_| kinds[rng.usize(..kinds.len())]).collect::<Vec<_>>().join(",")
        }
        "modular:D" => format!("modular:{}", rng.u8(1..=7)),
        "ribbon:D" => format!("ribbon:{}", rng.u8(1..=3)),
        "ribbon:D:S" => format!("ribbon:{}:{}", rng.u8(2..=3), rng.u16(1..=999)),
        "modular:D:S" => format!("modular:{}:{}", rng.u8(2..=7), rng.u16(1..=999)),
        "BYTES:MS" => format!("{}:{}", rng.u64(1..=1 << 40), rng.u64(0..=1 << 40)),
        word => word.to_owned(),
    }
}

#[test]
fn every_option_round_trips_through_its_printed_form() {
    let mut rng = fastrand::Rng::with_seed(seed());
    for option in all() {
        for _ in 0..DRAWS {
            let text = drawn(option, &mut rng);
            let what = format!("{}={text}", option.name);
            let builder = Db::builder("/db").set_option(option.name, &text).expect(&what);
            let given = builder.given();
            given.check_ranges(|name| name == option.name).expect(&what);
            // Printed, parsed and printed again.
            let printed = (option.print)(&given);
            let again = Db::builder("/db").set_option(option.name, &printed).expect(&what).given();
            assert_eq!(again, given, "{what} is printed as {printed}");
            assert!(given.options().contains(&(option.name, printed.clone())), "{what}");
            // Recorded, and read back.
            let pairs: BTreeMap<String, String> = given.to_pairs().into_iter().collect();
            let read = Settings::from_pairs(&pairs).expect(&what);
            assert_eq!(read.to_pairs(), given.to_pairs(), "{what}");
            if let Some(key) = option.recorded.key() {
                assert_eq!(pairs.get(key), Some(&printed), "{what}");
                assert_eq!((option.print)(&read), printed, "{what}");
            }
        }
    }
}

/// Values just outside of the range of a numeric option.
fn outside(range: Range) -> Vec<String> {
    match range {
        Range::Any => Vec::new(),
        Range::Bytes(min, max) | Range::Whole(min, max) => {
            let below = min.checked_sub(1);
            below
                .into_iter()
                .chain([max + 1, u64::from(u32::MAX)].into_iter().filter(|n| *n > max))
                .map(|number| number.to_string())
                .collect()
        }
        Range::Real(min, max) => {
            [min - 0.5, max * 1.01, f64::INFINITY, f64::NAN, -1e9].map(|number| number.to_string()).into()
        }
    }
}

#[test]
fn a_value_out_of_range_is_refused_with_option_value_and_range() {
    let mut refused = 0;
    for option in all() {
        for text in outside(option.range) {
            let what = format!("{}={text}", option.name);
            let error = Db::builder("/db").set_option(option.name, &text).expect_err(&what);
            let shown = match option.range {
                Range::Bytes(..) => size_text(text.parse().expect("a size"), " "),
                _ => text.clone(),
            };
            assert_eq!(error.kind(), ErrorKind::Invalid, "{what}");
            assert_eq!(
                error.to_string(),
                format!("{} must be {}, not {shown}", option.name, option.range),
                "{what}"
            );
            assert_eq!(option.check(&text), Err(format!("must be {}, not {shown}", option.range)), "{what}");
            // A value given by a method is refused by the same check when the database opens.
            if let Some(change) = (option.parse)(&text) {
                let mut settings = Settings::default();
                change(&mut settings);
                let late = settings.validate().expect_err(&what);
                assert_eq!(late.to_string(), error.to_string());
            }
            refused += 1;
        }
    }
    assert!(refused > 40, "{refused} values");
}

#[test]
fn text_of_the_wrong_form_is_refused_by_name() {
    for option in all() {
        for text in ["", " ", "perhaps", "1.5.5", "-", "on|off", "99999999999999999999999999"] {
            let Err(message) = option.check(text) else {
                panic!("{}={text} is accepted", option.name);
            };
            let error = Db::builder("/db").set_option(option.name, text).expect_err(option.name).to_string();
            assert_eq!(error, format!("{} {message}", option.name));
        }
    }
    let unknown = Db::builder("/db").set_option("no-such-option", "1").expect_err("unknown");
    assert_eq!((unknown.kind(), unknown.to_string().contains("no-such-option")), (ErrorKind::Invalid, true));
    let modules = Db::builder("/db").set_option("modules", "8").expect_err("too many").to_string();
    assert_eq!(modules, "modules must be from 1 to 7, not \"8\"");
}

#[test]
fn names_keys_and_methods_are_unique_and_help_is_plain() {
    let fields: [fn(&OptionInfo) -> Option<&'static str>; 3] =
        [|option| Some(option.name), |option| option.recorded.key(), |option| Some(option.method)];
    for field in fields {
        let names: Vec<&str> = all().iter().filter_map(field).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    }
    for option in all() {
        let summary = option.summary();
        assert!(!summary.is_empty() && !summary.contains('['), "{}: {summary}", option.name);
        assert!(!option.value.is_empty(), "{}", option.name);
        assert!(
            !option.is_live || option.recorded.key().is_some(),
            "{}: a redesign is recorded, so a live option needs a recorded key",
            option.name
        );
        if let Some(other) = option.excludes {
            assert!(find(other).is_some(), "{other}");
        }
        let default = (option.print)(&Settings::default());
        assert!((option.parse)(&default).is_some(), "{}={default}", option.name);
    }
    Settings::default().validate().expect("the defaults are within their ranges");
}

/// Keys in manifests of version 0.1. A key of this list is read for ever; later ones may be added.
#[test]
fn recorded_keys_stay() {
    let keys: BTreeSet<String> = Settings::default().to_pairs().into_iter().map(|(key, _)| key).collect();
    let of_version_0_1 = "allocation bits_per_key block-size block-tags buffer_bytes comparator compression \
        digest digest-seed file-size filter-layout filter-memory hash-sharing immutable-memtables \
        inbox-hard-runs inbox-soft-runs inbox-trigger inner_runs last_runs memory-budget memtable-index \
        policy prefetch rate-limit residency size_ratio sizing skipping statistics sync tuning wal-bytes";
    for key in of_version_0_1.split_whitespace() {
        assert!(keys.contains(key), "{key} is no longer read");
    }
    let created: BTreeSet<String> =
        Settings::default().created_pairs().into_iter().map(|(key, _)| key).collect();
    let at_creation = "allocation bits_per_key block-size block-tags buffer_bytes comparator compression \
        digest digest-seed file-size filter-layout filter-memory inner_runs last_runs policy size_ratio sizing";
    assert_eq!(created, at_creation.split_whitespace().map(str::to_owned).collect());
}

#[test]
fn a_manifest_without_its_design_or_with_other_text_is_refused() {
    let complete: BTreeMap<String, String> = Settings::default().created_pairs().into_iter().collect();
    for key in ["size_ratio", "inner_runs", "last_runs", "buffer_bytes", "bits_per_key"] {
        let mut pairs = complete.clone();
        pairs.remove(key);
        let error = Settings::from_pairs(&pairs).expect_err(key).to_string();
        assert!(error.contains(key), "{error}");
        pairs.insert(key.to_owned(), "many".to_owned());
        let error = Settings::from_pairs(&pairs).expect_err(key).to_string();
        assert!(error.contains(key) && error.contains("many"), "{error}");
    }
    let mut pairs = complete;
    pairs.insert("of-a-later-version".to_owned(), "1".to_owned());
    assert_eq!(Settings::from_pairs(&pairs).expect("ignored"), Settings::default());
    pairs.insert("comparator".to_owned(), "reverse".to_owned());
    assert!(Settings::from_pairs(&pairs).is_err());
}

#[test]
fn an_option_supersedes_the_one_that_it_replaces() {
    let memory = Db::builder("/db").experimental(|e| e.filter_memory(1 << 20));
    assert_eq!(memory.given().live.get().tree.filter_memory_bytes, Some(1 << 20));
    let bits = Db::builder("/db").experimental(|e| e.filter_memory(1 << 20)).bits_per_key(5.0);
    assert_eq!(bits.given().live.get().tree.filter_memory_bytes, None);
}

/// The policy and the numbers of runs K and Z that these options give, in this order.
fn runs_of(options: &[(&str, &str)]) -> (Option<MergePolicy>, u32, u32) {
    let builder = options.iter().fold(Db::builder("/db"), |builder, (name, value)| {
        builder.set_option(name, value).expect("an option and its value")
    });
    let live = builder.given().live.get();
    (live.policy, live.tree.design.inner_runs, live.tree.design.last_runs)
}

#[test]
fn runs_replace_those_of_the_policy_one_by_one_in_whichever_order_the_options_are_given() {
    let (tiering, t) = (("policy", "tiering"), ("size-ratio", "6"));
    for (own, expected) in [
        (("size-ratio", "6"), (Some(MergePolicy::Tiering), 5, 5)),
        (("inner-runs", "3"), (None, 3, 5)),
        (("last-runs", "2"), (None, 5, 2)),
    ] {
        let orders = [[tiering, t, own], [tiering, own, t], [t, tiering, own], [own, tiering, t]];
        for order in orders {
            assert_eq!(runs_of(&order), expected, "{order:?}");
        }
    }
    assert_eq!(runs_of(&[("inner-runs", "3")]), (None, 3, 1), "of leveling, the default");
    assert_eq!(runs_of(&[("last-runs", "2"), tiering, ("inner-runs", "3")]), (None, 3, 2));
    // A whole design replaces the numbers before it.
    let design = Design::new(MergePolicy::LazyLeveling, 4.0, 1 << 20, 10.0);
    let replaced = Db::builder("/db").experimental(|e| e.inner_runs(9).design(design)).given().live.get();
    assert_eq!((replaced.policy, replaced.tree.design), (Some(MergePolicy::LazyLeveling), design));
}

#[test]
fn former_methods_do_what_the_ones_in_use_do() {
    #[allow(deprecated)] // They are what is tested.
    let former =
        Db::builder("/db").hash_sharing(false).inbox_trigger(7).device_latency_us(1.0, 2.0).file_size(4096);
    let in_use = Db::builder("/db").experimental(|e| {
        e.hash_sharing(false)
            .l0_compaction_trigger(7)
            .device_read_us(1.0)
            .device_write_us(2.0)
            .file_size(4096)
    });
    assert_eq!(former.given(), in_use.given());
    assert_ne!(in_use.given(), Settings::default());
}
