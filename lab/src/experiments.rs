//! All experiments, a file per figure or table of a paper.

mod endure;
mod engine;
mod hash_sharing;
mod mnemosyne;
mod modular;
mod monkey;

use crate::experiment::Experiment;

/// Every experiment, paper by paper, in the order of the papers.
pub fn all() -> Vec<&'static Experiment> {
    let papers = [hash_sharing::ALL, modular::ALL, monkey::ALL, mnemosyne::ALL, endure::ALL, engine::ALL];
    papers.into_iter().flatten().collect()
}

/// Returns the experiment with this name.
///
/// # Errors
/// A message with similar names and the command that lists all.
pub fn find(id: &str) -> Result<&'static Experiment, String> {
    all().into_iter().find(|experiment| experiment.id == id).ok_or_else(|| {
        let near: Vec<&str> =
            all().into_iter().map(|one| one.id).filter(|known| known.contains(id)).collect();
        let near = if near.is_empty() { String::new() } else { format!("; similar: {}", near.join(", ")) };
        format!("unknown experiment {id:?}{near} (`shamba-lab list` lists all)")
    })
}

#[cfg(test)]
mod tests;
