//! Every experiment, a file for each figure or table of a paper.

mod hash_sharing;
mod mnemosyne;
mod modular;
mod monkey;

use super::experiment::{Experiment, Paper};

/// Every experiment, paper by paper, in the order of the papers.
pub fn all() -> Vec<&'static Experiment> {
    [hash_sharing::ALL, modular::ALL, monkey::ALL, mnemosyne::ALL].into_iter().flatten().collect()
}

/// By which thresholds each paper's claims are held against what was found, as far as its experiments share them.
pub(super) fn rules() -> [(Paper, String); 4] {
    [
        (Paper::HashSharing, hash_sharing::rule()),
        (Paper::ModularFilters, modular::rule()),
        (Paper::Monkey, monkey::RULE.to_owned()),
        (Paper::Mnemosyne, mnemosyne::rule()),
    ]
}

/// The experiment of that name.
///
/// # Errors
/// The names that are near, or how to list all.
pub fn find(id: &str) -> Result<&'static Experiment, String> {
    all().into_iter().find(|experiment| experiment.id == id).ok_or_else(|| {
        let near: Vec<&str> =
            all().into_iter().map(|one| one.id).filter(|known| known.contains(id)).collect();
        let near = if near.is_empty() { String::new() } else { format!("; there is {}", near.join(", ")) };
        format!("there is no experiment {id:?}{near} (`shamba-lab list` names all)")
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::{Role, Scale};

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
            for scale in Scale::ALL {
                let parameters = (experiment.parameters)(scale);
                assert!(parameters.iter().any(|one| one.role == Role::Varied), "{id} varies something");
                assert!(parameters.iter().all(|one| !one.name.is_empty() && !one.value.is_empty()), "{id}");
            }
            assert_eq!(find(id).map(|found| found.id), Ok(id));
        }
        assert!(find("hash-sharing-fig8").expect_err("not one").contains("hash-sharing-fig8a"));
    }
}
