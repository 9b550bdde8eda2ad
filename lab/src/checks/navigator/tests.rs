//! A small run of every kind, and what the entrants have in common.

use super::*;

const SETTING: Setting = Setting {
    entries: 10_000_000,
    grown_share: 0.5,
    seed: 1,
    warm_seconds: 0.0,
    seconds: 0.0,
    seconds_max: 0.0,
};

#[test]
fn all_have_the_same_memory_and_the_choice_is_the_best_by_the_model() {
    for mix in &MIXES {
        let all = entrants(&SETTING, mix).unwrap();
        assert_eq!((all[0].name, all[all.len() - 1].name), ("default", "navigator"));
        let choice = &all[all.len() - 1];
        for entrant in &all {
            let design = entrant.design();
            let filters = design.bits_per_key * SETTING.entries as f64 / 8.0;
            let spent = 2.0 * design.buffer_bytes as f64 + filters + entrant.plan.cache_bytes as f64;
            assert!(spent <= SETTING.memory_bytes() as f64, "{}: {spent}", entrant.name);
            if entrant.name == "navigator" {
                assert!(spent <= entrants::usable_bytes(&SETTING), "{spent}");
            }
            let (best, its) = (choice.predicted.ops_per_s, entrant.predicted.ops_per_s);
            assert!(best >= its * 0.98, "{}: {} with {its}, chosen {best}", mix.name, entrant.name);
        }
    }
}

#[test]
fn every_mix_runs_and_answers_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let setting = Setting {
        entries: 20_000,
        grown_share: 0.5,
        seed: 1,
        warm_seconds: 0.0,
        seconds: 0.01,
        seconds_max: 0.05,
    };
    // Designs for more memory than this number of entries would have.
    let entrant = entrants(&SETTING, &MIXES[0]).unwrap().remove(0);
    let copies: Vec<_> = (0..MIXES.len()).map(|number| dir.path().join(number.to_string())).collect();
    fill(&dir.path().join("grown"), &entrant, &setting, &copies).unwrap();
    for (mix, copy) in MIXES.iter().zip(&copies) {
        let line = run(copy, &entrant, mix, &setting).unwrap();
        assert!(line.contains("\"ops_per_s\":") && line.contains(mix.name), "{line}");
    }
}
