//! The report: a page of all results in a folder, what did not reproduce first.
//!
//! Reads every `*.json` that [`super::run`] left there and writes `index.html`, for a browser, and `README.md`, for a repository.
//! Both show the pictures beside them by name; nothing is fetched from anywhere. A page of that name that is not of ours stays as it is.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::experiment::{Paper, Verdict};
use super::experiments;
use super::files::{SCHEMA, write_whole};

/// What every page of ours has, and no other is overwritten.
const MARK: &str = "<!-- made by shamba lab report: do not edit -->";

/// Writes the report of `dir`; the paths of what it wrote and how many results it holds.
///
/// # Errors
/// A folder without results, a result that is damaged, a page of others where ours would be: which file; what cannot be read or written.
pub fn report(dir: &Path) -> Result<(Vec<PathBuf>, usize), String> {
    let results = read(dir)?;
    if results.is_empty() {
        return Err(format!("{}: no results of experiments are there", dir.display()));
    }
    let sections = sections(&results);
    let pages = [("index.html", html(&results, &sections)), ("README.md", markdown(&results, &sections))]
        .map(|(name, text)| (dir.join(name), text));
    pages.iter().try_for_each(|(path, _)| is_free_or_ours(path))?;
    for (path, text) in &pages {
        write_whole(path, text)?;
    }
    Ok((pages.map(|(path, _)| path).to_vec(), results.len()))
}

/// Refuses a page that somebody else wrote.
fn is_free_or_ours(path: &Path) -> Result<(), String> {
    match fs::read_to_string(path) {
        Ok(text) if text.contains(MARK) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() != ErrorKind::InvalidData => {
            Err(format!("read {}: {error}", path.display()))
        }
        _ => Err(format!(
            "{}: is not a report of ours and stays as it is; move it, or the results",
            path.display()
        )),
    }
}

/// A result as it was written.
struct Entry {
    id: String,
    verdict: Verdict,
    json: Value,
}

impl Entry {
    fn text(&self, name: &str) -> &str {
        self.json[name].as_str().unwrap_or_default()
    }

    /// How it came about, and what is not as in the paper: emulated devices, smaller trees.
    fn circumstances(&self) -> String {
        let count = |name: &str| self.json[name].as_u64().unwrap_or(0);
        let fact = |name: &str| self.json["machine"][name].as_str().unwrap_or("unknown");
        let mut text = format!(
            "Scale {}, seed {}, commit {}, {}, {:.0} s",
            self.text("scale"),
            count("seed"),
            fact("commit"),
            fact("day"),
            self.json["seconds"].as_f64().unwrap_or(0.0)
        );
        for (name, what) in [
            ("emulated_rows", "on an emulated device"),
            (
                "incomparable_rows",
                "not comparable: fewer levels or runs, or other filter bits than asked for",
            ),
        ] {
            if count(name) > 0 {
                let _ = write!(text, "; {} of {} rows {what}", count(name), count("rows"));
            }
        }
        text
    }

    fn is_of(&self, paper: Paper) -> bool {
        self.text("paper") == paper.name()
    }
}

/// Every result, in the order of the experiments' list; those that it does not know last.
fn read(dir: &Path) -> Result<Vec<Entry>, String> {
    let listed = fs::read_dir(dir).map_err(|error| format!("read {}: {error}", dir.display()))?;
    let mut results = BTreeMap::new();
    for entry in listed {
        let path = entry.map_err(|error| format!("read {}: {error}", dir.display()))?.path();
        if path.extension().is_none_or(|suffix| suffix != "json") {
            continue;
        }
        let damaged = |what: String| format!("{}: {what}", path.display());
        let text = fs::read_to_string(&path).map_err(|error| damaged(error.to_string()))?;
        let json: Value = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        if json["schema"] != SCHEMA {
            continue;
        }
        let id = json["id"].as_str().ok_or_else(|| damaged("has no id".to_owned()))?.to_owned();
        let verdict = json["verdict"].as_str().and_then(Verdict::named);
        let verdict = verdict.ok_or_else(|| damaged("has no verdict that is known".to_owned()))?;
        let place = experiments::all().iter().position(|known| known.id == id).unwrap_or(usize::MAX);
        results.insert((place, id.clone()), Entry { id, verdict, json });
    }
    Ok(results.into_values().collect())
}

/// What belongs under each verdict.
fn sections(results: &[Entry]) -> Vec<(Verdict, Vec<&Entry>)> {
    Verdict::ALL
        .into_iter()
        .map(|verdict| (verdict, results.iter().filter(|entry| entry.verdict == verdict).collect::<Vec<_>>()))
        .filter(|(_, entries)| !entries.is_empty())
        .collect()
}

fn heading(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::NotHere => "Not here",
        Verdict::Partly => "Partly",
        Verdict::Confirmed => "Confirmed",
    }
}

fn summary(results: &[Entry]) -> Vec<(Paper, [usize; 3])> {
    let count = |paper| {
        Verdict::ALL.map(|verdict| {
            results.iter().filter(|entry| entry.is_of(paper) && entry.verdict == verdict).count()
        })
    };
    Paper::ALL
        .into_iter()
        .map(|paper| (paper, count(paper)))
        .filter(|(_, counts)| *counts != [0; 3])
        .collect()
}

/// What all results have in common, or what differs between them.
fn circumstances(results: &[Entry]) -> Vec<(String, String)> {
    let mut facts: Vec<(String, Vec<String>)> = Vec::new();
    let mut note = |name: &str, value: String| match facts.iter_mut().find(|(known, _)| known == name) {
        Some((_, values)) if values.contains(&value) => {}
        Some((_, values)) => values.push(value),
        None => facts.push((name.to_owned(), vec![value])),
    };
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    for entry in results {
        for name in ["scale", "seed"] {
            note(name, text(&entry.json[name]));
        }
        for (name, value) in entry.json["machine"].as_object().into_iter().flatten() {
            note(name, text(value));
        }
    }
    facts.into_iter().map(|(name, values)| (name, values.join(", "))).collect()
}

fn parameters(entry: &Entry) -> Vec<(String, String, String)> {
    let parameters = entry.json["parameters"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    parameters.map(|one| (text(&one["role"]), text(&one["name"]), text(&one["value"]))).collect()
}

const INTRODUCTION: &str = "Each claim of the papers beside what this engine does: baseline and idea in one run on one \
    machine, interleaved, the median of the repeats with the least and the most. What did not reproduce comes first. Devices \
    whose name has a latency are emulated.";

fn markdown(results: &[Entry], sections: &[(Verdict, Vec<&Entry>)]) -> String {
    let mut text = format!(
        "{MARK}\n# The papers' experiments\n\n{INTRODUCTION}\n\nMade by `shamba lab all` and `shamba lab report`; do not edit.\n\n"
    );
    text.push_str("| paper | not here | partly | confirmed |\n|---|---|---|---|\n");
    for (paper, [not_here, partly, confirmed]) in summary(results) {
        let _ = writeln!(text, "| {} | {not_here} | {partly} | {confirmed} |", paper.name());
    }
    text.push_str("\n| | |\n|---|---|\n");
    for (name, value) in circumstances(results) {
        let _ = writeln!(text, "| {name} | {value} |");
    }
    for (verdict, entries) in sections {
        let _ = writeln!(text, "\n## {}", heading(*verdict));
        for entry in entries {
            let _ = writeln!(
                text,
                "\n### {}, {}: {}\n",
                entry.text("paper"),
                entry.text("place"),
                entry.text("title")
            );
            let _ = writeln!(text, "- **Claim:** {}", entry.text("claim"));
            let _ = writeln!(text, "- **Ours:** {}", entry.text("ours"));
            if !entry.text("why").is_empty() {
                let _ = writeln!(text, "- **Why:** {}", entry.text("why"));
            }
            let of: Vec<String> =
                parameters(entry)
                    .into_iter()
                    .map(|(role, name, value)| {
                        if role == "varied" {
                            format!("**{name}** {value}")
                        } else {
                            format!("{name} {value}")
                        }
                    })
                    .collect();
            let _ = writeln!(text, "- Parameters: {}", of.join("; "));
            let _ = writeln!(text, "- {}", entry.circumstances());
            let id = &entry.id;
            let _ = writeln!(text, "- `shamba lab run {id}`, [table]({id}.csv)\n\n![{id}]({id}.svg)");
        }
    }
    text
}

fn html(results: &[Entry], sections: &[(Verdict, Vec<&Entry>)]) -> String {
    let mut body = format!("<h1>The papers&#39; experiments</h1>\n<p>{}</p>\n", escape(INTRODUCTION));
    body.push_str("<table><tr><th>paper</th><th>not here</th><th>partly</th><th>confirmed</th></tr>\n");
    for (paper, [not_here, partly, confirmed]) in summary(results) {
        let _ = writeln!(
            body,
            "<tr><td>{}</td><td>{not_here}</td><td>{partly}</td><td>{confirmed}</td></tr>",
            paper.name()
        );
    }
    body.push_str("</table>\n<details><summary>Machine and program</summary><table>\n");
    for (name, value) in circumstances(results) {
        let _ = writeln!(body, "<tr><th>{}</th><td>{}</td></tr>", escape(&name), escape(&value));
    }
    body.push_str("</table></details>\n<nav>\n");
    for (verdict, entries) in sections {
        let _ = writeln!(body, "<p><strong>{}</strong> ", heading(*verdict));
        for entry in entries {
            let _ = write!(body, "<a href=\"#{0}\">{0}</a> ", entry.id);
        }
        body.push_str("</p>\n");
    }
    body.push_str("</nav>\n");
    for (verdict, entries) in sections {
        let _ = writeln!(body, "<h2>{}</h2>", heading(*verdict));
        for entry in entries {
            let of = |name: &str| escape(entry.text(name));
            let id = &entry.id;
            let _ = writeln!(
                body,
                "<section id=\"{id}\"><h3>{}, {}: {}</h3>\n<p class=\"claim\"><b>Claim</b> {}</p>\n<p><b>Ours</b> {}</p>",
                of("paper"),
                of("place"),
                of("title"),
                of("claim"),
                of("ours")
            );
            if !entry.text("why").is_empty() {
                let _ = writeln!(body, "<p><b>Why</b> {}</p>", of("why"));
            }
            let _ = writeln!(body, "<img src=\"{id}.svg\" alt=\"{}\" width=\"960\">", of("title"));
            body.push_str("<ul class=\"parameters\">");
            for (role, name, value) in parameters(entry) {
                let _ = write!(body, "<li class=\"{role}\">{}: {}</li>", escape(&name), escape(&value));
            }
            let _ = writeln!(
                body,
                "</ul><p class=\"circumstances\">{}</p><p><code>shamba lab run {id}</code> · <a href=\"{id}.csv\">table</a></p></section>",
                escape(&entry.circumstances())
            );
        }
    }
    format!(
        "<!doctype html>\n{MARK}\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>The papers&#39; experiments</title>\n<style>{STYLE}</style></head>\n<body>\n{body}</body></html>\n"
    )
}

const STYLE: &str = "body{font:16px/1.5 sans-serif;max-width:980px;margin:1em auto;padding:0 1em;color:#222;background:#fff}\
img{max-width:100%;height:auto;border:1px solid #ddd}table{border-collapse:collapse}td,th{padding:.2em .8em;\
border-bottom:1px solid #ddd;text-align:left}section{margin:0 0 3em}.claim{border-left:4px solid #0072b2;padding-left:.8em}\
.parameters{display:flex;flex-wrap:wrap;gap:.2em 1.4em;list-style:none;padding:0;font-size:14px;color:#555}\
.parameters .varied{font-weight:bold}.circumstances{font-size:14px;color:#555}nav a{white-space:nowrap;margin-right:.6em}";

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, id: &str, verdict: &str) {
        let json = serde_json::json!({
            "schema": SCHEMA, "id": id, "paper": "Monkey", "place": "Fig 0", "title": "a < b", "claim": "c",
            "ours": "d", "verdict": verdict, "why": "e", "scale": "quick", "seed": 1, "seconds": 2.3,
            "rows": 9, "emulated_rows": 7, "incomparable_rows": 0,
            "parameters": [{ "name": "n", "role": "varied", "value": "1, 2" }],
            "machine": { "cores": "2", "commit": "0123abc", "day": "2026-01-02" },
        });
        fs::write(dir.join(format!("{id}.json")), json.to_string()).expect("written");
    }

    #[test]
    fn what_did_not_reproduce_comes_first() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(report(dir.path()).is_err(), "nothing to report");
        write(dir.path(), "one", "confirmed");
        write(dir.path(), "two", "not here");
        fs::write(dir.path().join("other.json"), "{\"schema\":\"other/1\"}").expect("written");
        let (paths, count) = report(dir.path()).expect("written");
        assert_eq!((paths.len(), count), (2, 2));
        for path in paths {
            let text = fs::read_to_string(&path).expect("read");
            let at = |id: &str| text.find(&format!("lab run {id}")).expect("named");
            assert!(at("two") < at("one"), "{}", path.display());
            let told =
                "Scale quick, seed 1, commit 0123abc, 2026-01-02, 2 s; 7 of 9 rows on an emulated device";
            assert_eq!(text.matches(told).count(), 2, "{}", path.display());
            assert!(!text.contains("not comparable"), "{}", path.display());
        }
        report(dir.path()).expect("a report of ours is written again");
        assert!(fs::read_to_string(dir.path().join("index.html")).expect("read").contains("a &lt; b"));
    }

    #[test]
    fn a_page_of_others_stays() {
        for name in ["README.md", "index.html"] {
            let dir = tempfile::tempdir().expect("a directory");
            write(dir.path(), "one", "confirmed");
            fs::write(dir.path().join(name), "a page of others").expect("written");
            let error = report(dir.path()).map(|_| ()).expect_err("it would be lost");
            assert!(error.contains(name), "{error}");
            assert_eq!(fs::read(dir.path().join(name)).expect("read"), b"a page of others");
            assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 2, "nothing was written");
        }
    }

    #[test]
    fn a_damaged_result_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        write(dir.path(), "one", "splendid");
        let error = report(dir.path()).map(|_| ()).expect_err("no such verdict");
        assert!(error.contains("one.json") && error.contains("verdict"), "{error}");
        fs::write(dir.path().join("one.json"), "{").expect("written");
        assert!(report(dir.path()).map(|_| ()).expect_err("no JSON").contains("one.json"));
    }
}
