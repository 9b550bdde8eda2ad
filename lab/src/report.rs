//! The report: one page per chapter and one with all verdicts, from the results in a folder.
//!
//! Pages are Markdown, for a repository; the same text becomes one HTML page for a browser. A page
//! that this module did not write is never replaced.

mod html;
mod page;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::paper::Paper;
use crate::results::SCHEMA;
use crate::scale::Scale;
use crate::verdict::Verdict;
use crate::{all, results};

/// First line of pages that may be overwritten.
const MARK: &str = "<!-- made by shamba-lab report: do not edit -->";

/// A result read from its file.
struct Entry {
    id: String,
    paper: Paper,
    verdict: Verdict,
    json: Value,
    /// Verdicts of the same experiment at other scales.
    elsewhere: Vec<(Scale, Verdict)>,
}

impl Entry {
    fn text(&self, name: &str) -> &str {
        self.json[name].as_str().unwrap_or_default()
    }

    fn list(&self, name: &str) -> &[Value] {
        self.json[name].as_array().map_or(&[], Vec::as_slice)
    }
}

/// Renders the pages of a scale's results; returns their paths and the number of results.
///
/// # Errors
/// No result, one that cannot be read, a page of another author in the way.
pub fn report(out: &Path, scale: Scale) -> Result<(Vec<PathBuf>, usize), String> {
    let mut entries = read(out, scale)?;
    if entries.is_empty() {
        return Err(format!("{}: no result of shamba-lab", results::folder(out, scale).display()));
    }
    for other in Scale::ALL.into_iter().filter(|other| *other != scale) {
        for found in read(out, other)? {
            if let Some(entry) = entries.iter_mut().find(|entry| entry.id == found.id) {
                entry.elsewhere.push((other, found.verdict));
            }
        }
    }
    let mut pages = vec![("README.md".to_owned(), page::overview(&entries, scale))];
    for paper in Paper::ALL {
        let of_paper: Vec<&Entry> = entries.iter().filter(|entry| entry.paper == paper).collect();
        if !of_paper.is_empty() {
            pages.push((format!("{}.md", paper.slug()), page::chapter(paper, &of_paper, scale)));
        }
    }
    let html = html::page(pages.iter().map(|(_, text)| text.as_str()));
    pages.push(("index.html".to_owned(), html));
    let paths: Vec<PathBuf> = pages.iter().map(|(name, _)| out.join(name)).collect();
    for path in &paths {
        let is_foreign = fs::read_to_string(path).is_ok_and(|text| !text.contains(MARK));
        if is_foreign {
            return Err(format!("{} is not a page of shamba-lab and is not overwritten", path.display()));
        }
    }
    for (path, (_, text)) in paths.iter().zip(&pages) {
        fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok((paths, entries.len()))
}

/// Results of a scale, in the order of the experiments' list.
fn read(out: &Path, scale: Scale) -> Result<Vec<Entry>, String> {
    let dir = results::folder(out, scale);
    let mut entries = Vec::new();
    for experiment in all() {
        let path = dir.join(format!("{}.json", experiment.id));
        let said = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            read => read.map_err(|error| said(&error))?,
        };
        let json: Value = serde_json::from_slice(&bytes).map_err(|error| said(&error))?;
        if json["schema"] != SCHEMA {
            return Err(said(&format!("its schema is {}, not {SCHEMA}", json["schema"])));
        }
        let verdict = json["verdict"].as_str().and_then(Verdict::named);
        let verdict = verdict.ok_or_else(|| said(&format!("no verdict is {}", json["verdict"])))?;
        let (id, paper) = (experiment.id.to_owned(), experiment.paper);
        entries.push(Entry { id, paper, verdict, json, elsewhere: Vec::new() });
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(out: &Path, scale: Scale, id: &str, verdict: &str) {
        let json = serde_json::json!({
            "schema": SCHEMA, "id": id, "paper": "Monkey", "place": "Fig 0", "title": "a < b", "claim": "c",
            "kind": "computed", "verdict": verdict, "reason": "because", "scale": scale.name(), "seeds": [1, 2],
            "seconds": 2.3, "rows": 9, "emulated_rows": 7, "incomparable_rows": 0, "notes": ["HDD is left out."],
            "findings": [{ "told": "bits: 6.0; claimed at most 7.0: holds" }],
            "parameters": [{ "name": "n", "varied": true, "value": "1, 2" }],
            "machine": { "cores": "2", "commit": "0123abc", "day": "2026-01-02" },
        });
        let dir = results::folder(out, scale);
        fs::create_dir_all(&dir).expect("a folder");
        fs::write(dir.join(format!("{id}.json")), json.to_string()).expect("written");
    }

    #[test]
    fn chapters_have_claims_findings_verdicts_and_pictures() {
        let dir = tempfile::tempdir().expect("a directory");
        let ids: Vec<&str> = all().iter().map(|one| one.id).collect();
        let [first, .., last] = ids[..] else { panic!("experiments") };
        assert!(report(dir.path(), Scale::Quick).is_err(), "nothing to report");
        write(dir.path(), Scale::Quick, first, "confirmed");
        write(dir.path(), Scale::Quick, last, "not here");
        write(dir.path(), Scale::Default, last, "partly");
        let (paths, count) = report(dir.path(), Scale::Quick).expect("written");
        assert_eq!(count, 2);
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).expect("read");
        let overview = read("README.md");
        assert!(overview.contains("not here") && overview.contains("default scale: partly"), "{overview}");
        assert!(overview.contains(&format!("2 of {} experiments", ids.len())), "{overview}");
        let chapter = fs::read_to_string(&paths[1]).expect("read");
        for text in ["claimed at most 7.0", "HDD is left out", ".svg", "shamba-lab run"] {
            assert!(chapter.contains(text), "{text}: {chapter}");
        }
        let html = read("index.html");
        assert!(html.contains("a &lt; b") && html.matches(MARK).count() >= 1, "{html}");
        report(dir.path(), Scale::Quick).expect("pages of ours are written again");
    }

    #[test]
    fn pages_of_others_and_damage_are_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let id = all()[0].id;
        write(dir.path(), Scale::Quick, id, "confirmed");
        fs::write(dir.path().join("README.md"), "a page of others").expect("written");
        let error = report(dir.path(), Scale::Quick).map(|_| ()).expect_err("it would be lost");
        assert!(error.contains("README.md"), "{error}");
        assert!(!dir.path().join("index.html").exists(), "nothing was written");
        fs::remove_file(dir.path().join("README.md")).expect("removed");
        write(dir.path(), Scale::Quick, id, "splendid");
        let error = report(dir.path(), Scale::Quick).map(|_| ()).expect_err("no such verdict");
        assert!(error.contains(id) && error.contains("splendid"), "{error}");
    }
}
