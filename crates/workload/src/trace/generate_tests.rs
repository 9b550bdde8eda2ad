//! Tests of generated workloads, compared with a model.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

use super::*;
use crate::trace::Spread;

fn made(entries: Entries, seed: u64, mixes: &[Mix]) -> (Vec<u8>, Made) {
    let mut generator = Generator::new(entries, seed).expect("possible");
    let mut text = Vec::new();
    let mut last = Made::default();
    for mix in mixes {
        last = generator.make(mix, &mut text, &mut |_, _| {}).expect("made");
    }
    (text, last)
}

/// Model of the lines read: live keys; counts by letter; lookups by key, separated by whether the
/// key was live.
#[derive(Default)]
struct Model {
    live: BTreeSet<Vec<u8>>,
    counts: HashMap<char, u64>,
    empty_deletes: u64,
    existing: HashMap<Vec<u8>, u64>,
    absent: HashMap<Vec<u8>, u64>,
    scanned: Vec<(usize, usize)>,
    range_deleted: Vec<(usize, usize)>,
}

impl Model {
    fn read(text: &[u8], entries: Entries) -> Self {
        let mut model = Self::default();
        let key_bytes = entries.key_bytes();
        for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let letter = char::from(line[0]);
            *model.counts.entry(letter).or_default() += 1;
            let within = |model: &Self, from: &[u8], to: &[u8]| {
                model.live.range(from.to_vec()..=to.to_vec()).cloned().collect::<Vec<_>>()
            };
            match Line::parse(line).expect("well-formed") {
                Line::Insert { key, value } => {
                    assert_eq!((key.len(), key.len() + value.len()), (key_bytes, entries.entry_bytes));
                    assert!(model.live.insert(key.into_owned()), "an insert is of a new key");
                }
                Line::Update { key, .. } => assert!(model.live.contains(&*key), "an update is of a live key"),
                Line::Delete { key } => model.empty_deletes += u64::from(!model.live.remove(&*key)),
                Line::Get { key, found } => {
                    let is_live = model.live.contains(&*key);
                    assert_eq!(found, entries.answers.then_some(is_live));
                    let asked = if is_live { &mut model.existing } else { &mut model.absent };
                    *asked.entry(key.into_owned()).or_default() += 1;
                }
                Line::Scan { from, to } => {
                    let found = within(&model, &from, &to).len();
                    model.scanned.push((found, model.live.len()));
                }
                Line::DeleteThrough { from, to } => {
                    let gone = within(&model, &from, &to);
                    model.range_deleted.push((gone.len(), model.live.len()));
                    gone.iter().for_each(|key| _ = model.live.remove(key));
                }
                Line::Header { .. } | Line::End { .. } => {}
                line => panic!("{line:?} is none of the generator's"),
            }
        }
        model
    }

    fn count(&self, letter: char) -> u64 {
        self.counts.get(&letter).copied().unwrap_or(0)
    }
}

const ENTRIES: Entries = Entries { entry_bytes: 64, key_share: 0.25, lengths_only: false, answers: false };

#[test]
fn every_count_and_share_is_as_asked() {
    for seed in 1..=5 {
        let mix = Mix {
            inserts: 2000,
            updates: 700,
            deletes: 400,
            range_deletes: 10,
            lookups: 3000,
            scans: 50,
            range_delete_share: 0.01,
            scan_share: 0.05,
            empty_lookups: 0.3,
            empty_deletes: 0.25,
            ..Mix::default()
        };
        let entries = Entries { answers: seed % 2 == 0, ..ENTRIES };
        let (text, made) = made(entries, seed, &[mix]);
        let model = Model::read(&text, entries);
        let counts: Vec<u64> = "IUDRQS".chars().map(|letter| model.count(letter)).collect();
        assert_eq!(counts, [2000, 700, 400, 10, 3000, 50], "seed {seed}");
        assert_eq!((made.operations, made.bytes), (6160, text.len() as u64));
        assert_eq!(made.live_keys, model.live.len() as u64);
        assert_eq!(model.absent.values().sum::<u64>(), 900);
        assert_eq!(model.empty_deletes, 100);
        assert!(model.absent.len() <= 450, "{} distinct absent keys", model.absent.len());
        for &(found, live) in &model.scanned {
            assert_eq!(found, ((live as f64 * 0.05) as usize).clamp(1, live));
        }
        for &(gone, live) in &model.range_deleted {
            assert_eq!(gone, ((live as f64 * 0.01) as usize).clamp(1, live));
        }
    }
}

#[test]
fn a_seed_is_a_file_and_another_seed_another_one() {
    let mixes = [
        Mix { inserts: 500, ..Mix::default() },
        Mix { lookups: 500, updates: 100, existing_spread: Spread::Zipf { alpha: 1.0 }, ..Mix::default() },
    ];
    assert_eq!(made(ENTRIES, 7, &mixes).0, made(ENTRIES, 7, &mixes).0);
    assert_ne!(made(ENTRIES, 7, &mixes).0, made(ENTRIES, 8, &mixes).0);
}

#[test]
fn files_are_the_other_generators_byte_by_byte() {
    let mix = Mix { inserts: 20, deletes: 5, lookups: 10, empty_lookups: 0.5, ..Mix::default() };
    let text = String::from_utf8(made(ENTRIES, 1, &[mix]).0).expect("ASCII");
    for line in text.lines() {
        let parts: Vec<&str> = line.split(' ').collect();
        let is_word =
            |word: &str, bytes| word.len() == bytes && word.bytes().all(|b| b.is_ascii_alphanumeric());
        assert!(is_word(parts[1], 16), "{line}");
        match parts[0] {
            "I" => assert!(parts.len() == 3 && is_word(parts[2], 48), "{line}"),
            "D" => assert_eq!(parts[2], "", "{line}"),
            _ => assert_eq!((parts[0], parts.len()), ("Q", 2), "{line}"),
        }
    }
    // With lengths or answers it is a trace of this project, with a header.
    let entries = Entries { lengths_only: true, ..ENTRIES };
    let text = String::from_utf8(made(entries, 1, &[mix]).0).expect("ASCII");
    assert!(text.starts_with("# shamba trace 1\nI ") && text.ends_with("# end 35\n"), "{text}");
    assert_eq!(text.lines().filter(|line| line.ends_with(" *48")).count(), 20);
}

#[test]
fn lookups_spread_as_asked() {
    let lookups = |existing_spread, unique_existing| {
        let mixes = [
            Mix { inserts: 1000, ..Mix::default() },
            Mix { lookups: 50_000, existing_spread, unique_existing, ..Mix::default() },
        ];
        let model = Model::read(&made(ENTRIES, 3, &mixes).0, ENTRIES);
        let count = |key| model.existing.get(key).copied().unwrap_or(0);
        model.live.iter().map(count).collect::<Vec<u64>>()
    };
    let share = |counts: &[u64]| counts.iter().sum::<u64>() as f64 / 50_000.0;
    let uniform = lookups(Spread::Uniform, None);
    assert!((share(&uniform[..500]) - 0.5).abs() < 0.02);
    // A standard deviation of 5 of 62 parts on either side of the mean.
    let normal = lookups(Spread::Normal { mean: 0.5, deviation: 5.0 }, None);
    assert!((share(&normal[419..581]) - 0.683).abs() < 0.02, "{}", share(&normal[419..581]));
    let zipf = lookups(Spread::Zipf { alpha: 1.0 }, None);
    let mut sorted = zipf.clone();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    assert!((share(&sorted[..10]) - 0.391).abs() < 0.02, "{}", share(&sorted[..10]));
    assert!(share(&zipf[..10]) < 0.3, "hot keys are no neighbours");
    let few = lookups(Spread::Uniform, Some(0.002));
    assert_eq!(few.iter().filter(|&&count| count > 0).count(), 100, "--UE holds");
}

#[test]
fn inserts_spread_by_their_first_digits() {
    let mix =
        Mix { inserts: 5000, insert_spread: Spread::Normal { mean: 0.5, deviation: 1.0 }, ..Mix::default() };
    let model = Model::read(&made(ENTRIES, 3, &[mix]).0, ENTRIES);
    let middle = model.live.iter().filter(|key| (b'U'..=b'V').contains(&key[0])).count();
    assert!((0.5..0.9).contains(&(middle as f64 / 5000.0)), "{middle} begin with one of the middle digits");
}

#[test]
fn another_file_of_the_same_entries_can_come_before() {
    let load =
        Mix { inserts: 300, deletes: 30, range_deletes: 3, range_delete_share: 0.02, ..Mix::default() };
    let (text, first) = made(ENTRIES, 1, &[load]);
    let reader =
        |text: &[u8]| TraceReader::of(Path::new("load"), Box::new(std::io::Cursor::new(text.to_vec())));
    let mut generator = Generator::new(ENTRIES, 2).expect("possible");
    assert_eq!(generator.preload(&mut reader(&text)).expect("of this generator"), first.live_keys);
    let mut more = text.clone();
    let mix = Mix { inserts: 100, lookups: 200, empty_lookups: 0.5, ..Mix::default() };
    generator.make(&mix, &mut more, &mut |_, _| {}).expect("made");
    let model = Model::read(&more, ENTRIES);
    assert_eq!(model.existing.values().sum::<u64>(), 100);
    let mut other = Generator::new(Entries { entry_bytes: 60, ..ENTRIES }, 2).expect("possible");
    let error = other.preload(&mut reader(&text)).expect_err("keys of another length");
    assert!(
        error.to_string().starts_with("load, line 1: a key that this generator does not make"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |entries, mix: Mix| {
        let made = Generator::new(entries, 1)
            .and_then(|mut generator| generator.make(&mix, &mut Vec::new(), &mut |_, _| {}));
        made.expect_err("refused").to_string()
    };
    let inserts = Mix { inserts: 10, ..Mix::default() };
    for (entries, mix, word) in [
        (Entries { entry_bytes: 0, ..ENTRIES }, inserts, "-E"),
        (Entries { key_share: 0.0, ..ENTRIES }, inserts, "-L"),
        (ENTRIES, Mix { empty_lookups: 1.5, ..inserts }, "-Z"),
        (ENTRIES, Mix { insert_spread: Spread::Zipf { alpha: 0.0 }, ..inserts }, "--ID"),
        (ENTRIES, Mix { inserts: 1 << 40, ..inserts }, "-I"),
        (ENTRIES, Mix { updates: 1, ..Mix::default() }, "larger -I"),
        (Entries { entry_bytes: 2, ..ENTRIES }, Mix { inserts: 63, ..inserts }, "larger -E"),
    ] {
        let error = refused(entries, mix);
        assert!(error.contains(word), "{word}: {error}");
    }
    // All keys of one digit are taken, so there is no absent key.
    let tiny = Entries { entry_bytes: 2, ..ENTRIES };
    assert_eq!(Model::read(&made(tiny, 1, &[Mix { inserts: 62, ..inserts }]).0, tiny).live.len(), 62);
    let error = refused(tiny, Mix { inserts: 62, lookups: 1, empty_lookups: 1.0, ..inserts });
    assert!(error.contains("larger -E"), "{error}");
}

#[test]
fn numbers_and_keys_are_one_to_one_and_in_one_order() {
    for key_bytes in [1, 2, 9, 10, 11, 32] {
        let entries = Entries { entry_bytes: key_bytes, key_share: 1.0, ..ENTRIES };
        let generator = Generator::new(entries, 1).expect("possible");
        let mut rng = Rng::with_seed(1);
        let mut numbers: Vec<u64> = (0..200).map(|_| rng.u64(..generator.domain())).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let keys: Vec<Vec<u8>> = numbers
            .iter()
            .map(|&number| {
                let mut key = Vec::new();
                generator.key(number, &mut key);
                assert_eq!((key.len(), generator.number_of(&key)), (key_bytes, Some(number)));
                key
            })
            .collect();
        assert!(keys.is_sorted());
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
    }
}
