//! Every experiment once, from end to end, at the tiny scale: it says what it is, measures, and its
//! columns are those that its predicates and panels ask for.
//!
//! Findings at that scale mean nothing, so no verdict is looked at.

use std::collections::{BTreeSet, HashSet};

use super::*;
use crate::paper::Paper;
use crate::picture::picture;
use crate::rows::Rows;
use crate::scale::Scale;
use crate::verdict::{Role, judge};
use crate::{Lab, chart};

#[test]
fn every_experiment_says_what_it_is() {
    let mut ids = HashSet::new();
    for experiment in all() {
        let id = experiment.id;
        assert!(ids.insert(id), "{id} twice");
        assert!(id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'), "{id}");
        for text in [experiment.title, experiment.claim, experiment.place] {
            assert!(!text.is_empty(), "{id}");
        }
        assert!(!experiment.predicates.is_empty() && !experiment.panels.is_empty(), "{id}");
        for scale in Scale::ALL {
            let parameters = (experiment.parameters)(scale);
            assert!(parameters.iter().any(|one| one.is_varied), "{id} varies something");
            assert!(parameters.iter().all(|one| !one.name.is_empty() && !one.value.is_empty()), "{id}");
        }
        assert_eq!(find(id).map(|found| found.id), Ok(id));
        // Without a direction a failed size would leave a claim neither partly true nor refuted.
        assert!(experiment.predicates.iter().any(|one| one.role == Role::Direction), "{id} has no direction");
    }
}

#[test]
fn an_unknown_experiment_is_answered_with_similar_names() {
    let error = find("hash-sharing-fig1").map(|_| ()).or_else(|_| find("fig12").map(|_| ()));
    assert!(error.is_ok() || error.expect_err("not one").contains("hash-sharing-fig12"));
    assert!(find("none").expect_err("not one").contains("list"));
}

/// Runs the experiments of a paper with one seed, in one lab, as a run does.
fn every(paper: Paper) {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut lab = Lab::new(scratch.path().to_path_buf(), Scale::Tiny, 1, &|_| {});
    for experiment in all().into_iter().filter(|one| one.paper == paper) {
        let id = experiment.id;
        let measured = (experiment.measure)(&mut lab).unwrap_or_else(|error| panic!("{id}: {error}"));
        let mut rows = Rows::default();
        rows.join(1, measured);
        let columns: BTreeSet<&str> = rows.columns().into_iter().collect();
        assert!(rows.view().0.len() > 1, "{id}");
        for panel in experiment.panels {
            let cases = panel.cases(&rows.view());
            assert!(
                cases <= 1 || experiment.note.contains("mean over"),
                "{id}: {cases} cases of a seed are one point of panel {:?}, and the note does not say so",
                panel.title
            );
            let named = panel.series.iter().chain([&panel.x.name, &panel.y.name]).chain(&panel.model);
            let filtered = panel.only.iter().map(|(column, _)| column);
            for column in named.chain(filtered) {
                assert!(columns.contains(column), "{id}: a panel shows {column:?}, which no row has");
            }
        }
        let (_, findings) = judge(experiment.predicates, &rows, false);
        for found in &findings {
            assert!(
                found.interval.is_some()
                    || !rows.notes.is_empty()
                    || found.predicate.unit != crate::verdict::Unit::Share,
                "{id}: {found}"
            );
            assert!(!found.values.is_empty() || !rows.notes.is_empty(), "{id}: {found}");
        }
        let drawn = picture(experiment, &rows);
        for panel in &drawn.panels {
            let points: usize = panel.series.iter().map(|series| series.points.len()).sum();
            assert!(points > 0, "{id}: nothing to see in panel {:?}", panel.title);
        }
        let image = chart::svg(&drawn).expect("drawn");
        roxmltree::Document::parse(&image).unwrap_or_else(|error| panic!("{id}: {error}"));
        let _ = (experiment.reason)(&rows.view());
    }
}

#[test]
fn hash_sharing_runs() {
    every(Paper::HashSharing);
}

#[test]
fn modular_filters_run() {
    every(Paper::ModularFilters);
}

#[test]
fn monkey_runs() {
    every(Paper::Monkey);
}

#[test]
fn mnemosyne_runs() {
    every(Paper::Mnemosyne);
}

#[test]
fn endure_runs() {
    every(Paper::Endure);
}

#[test]
fn engine_runs() {
    every(Paper::Engine);
}
