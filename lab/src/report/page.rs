//! Pages as Markdown: one with all verdicts, and one per chapter.

use std::fmt::Write as _;

use super::{Entry, MARK};
use crate::all;
use crate::paper::{Kind, Paper};
use crate::scale::Scale;
use crate::verdict::Verdict;

const INTRODUCTION: &str = "\
Each claim of the papers beside what this engine does: baseline and idea in one run, on the same machine, data and queries. \
A claim is a set of bounds that were fixed before the run. Each number is measured for at least five seeds of data and \
queries; the 95 % t-interval of the paired differences stands in brackets.

- **Confirmed**: every interval lies within its bound. A direction (\"more than 0 %\") does not hold where nothing differs.
- **Partly**: the direction holds, a size does not.
- **Undecided**: an interval straddles its bound, or something could not be measured here.
- **Not here**: the opposite of the claim's direction was found.

Computed figures follow from a paper's own equations: they show that these say what the paper says, not that the engine does. \
Simulated ones draw workloads for such equations; ours are claims of this engine, which no paper makes. \
A number after >= or <= is a lower or an upper bound of what is meant. \
Devices whose name has a latency are emulated.";

/// The page with every verdict.
pub(super) fn overview(entries: &[Entry], scale: Scale) -> String {
    let mut text = format!("{MARK}\n# The papers' experiments\n\n{INTRODUCTION}\n\n");
    let total = all().len();
    let _ = writeln!(
        text,
        "{} of {total} experiments, at the {scale} scale: `shamba-lab all --scale {scale}`, then `shamba-lab report \
         --scale {scale}`.\n",
        entries.len()
    );
    text.push_str(
        "| chapter | values | not here | undecided | partly | confirmed |\n|---|---|---|---|---|---|\n",
    );
    for paper in Paper::ALL {
        for kind in Kind::ALL {
            let of_it = |entry: &&Entry| entry.paper == paper && entry.text("kind") == kind.name();
            let count = |verdict: Verdict| {
                entries.iter().filter(of_it).filter(|entry| entry.verdict == verdict).count()
            };
            if entries.iter().any(|entry| of_it(&entry)) {
                let [a, b, c, d] = Verdict::ALL.map(count);
                let name = format!("[{}]({}.md)", paper.name(), paper.slug());
                let _ = writeln!(text, "| {name} | {} | {a} | {b} | {c} | {d} |", kind.name());
            }
        }
    }
    text.push_str("\n| experiment | place | verdict | other scales |\n|---|---|---|---|\n");
    for entry in entries {
        let elsewhere: Vec<String> = entry
            .elsewhere
            .iter()
            .map(|(scale, verdict)| format!("{scale} scale: {}", verdict.name()))
            .collect();
        let _ = writeln!(
            text,
            "| [{id}]({page}.md#{id}) | {place} | {verdict} | {elsewhere} |",
            id = entry.id,
            page = entry.paper.slug(),
            place = entry.text("place"),
            verdict = entry.verdict.name(),
            elsewhere = elsewhere.join(", "),
        );
    }
    text.push_str("\n| machine and program | |\n|---|---|\n");
    for (name, values) in circumstances(entries) {
        let _ = writeln!(text, "| {name} | {} |", values.join(", "));
    }
    text
}

/// A chapter.
pub(super) fn chapter(paper: Paper, entries: &[&Entry], scale: Scale) -> String {
    let mut text = format!("{MARK}\n# {}\n\n[All verdicts and how to read them](README.md)\n", paper.name());
    for entry in entries {
        let id = &entry.id;
        let _ =
            writeln!(text, "\n<a id=\"{id}\"></a>\n\n## {}: {}\n", entry.text("place"), entry.text("title"));
        let _ = writeln!(text, "**Claim** ({}): {}\n", entry.text("kind"), entry.text("claim"));
        let _ = writeln!(text, "**{}**\n", capitalised(entry.verdict.name()));
        for finding in entry.list("findings") {
            let _ = writeln!(text, "- {}", finding["told"].as_str().unwrap_or_default());
        }
        for (other, verdict) in &entry.elsewhere {
            if *verdict != entry.verdict {
                let _ = writeln!(text, "- At the {other} scale the verdict is: {}.", verdict.name());
            }
        }
        let _ = writeln!(text, "\n![{id}]({scale}/{id}.svg)\n");
        let note = entry.text("note");
        if !note.is_empty() {
            let _ = writeln!(text, "{note}\n");
        }
        let mut after: Vec<&str> = entry.list("notes").iter().filter_map(|note| note.as_str()).collect();
        after.push(entry.text("reason"));
        after.retain(|text| !text.is_empty());
        if !after.is_empty() {
            let _ = writeln!(text, "{}\n", after.join(" "));
        }
        for error in entry.list("model_errors").iter().filter_map(|error| error.as_str()) {
            let _ = writeln!(text, "- {error}");
        }
        text.push('\n');
        let _ = writeln!(text, "<details><summary>{}</summary>\n", summary(entry));
        for parameter in entry.list("parameters") {
            let of = |name: &str| parameter[name].as_str().unwrap_or_default();
            let name = if parameter["varied"] == true {
                format!("**{}**", of("name"))
            } else {
                of("name").to_owned()
            };
            let _ = writeln!(text, "- {name}: {}", of("value"));
        }
        let _ = writeln!(
            text,
            "\n`shamba-lab run {id} --scale {scale}` · [rows]({scale}/{id}.csv.gz)\n\n</details>"
        );
    }
    text
}

/// Summary of the run of an experiment, in one line.
fn summary(entry: &Entry) -> String {
    let number = |name: &str| entry.json[name].as_u64().unwrap_or(0);
    let mut parts = vec![match entry.list("seeds").len() {
        1 => "1 seed".to_owned(),
        seeds => format!("{seeds} seeds"),
    }];
    parts.push(format!("{:.0} s", entry.json["seconds"].as_f64().unwrap_or(0.0)));
    let rows = number("rows");
    match number("emulated_rows") {
        0 => parts.push(format!("{rows} rows")),
        emulated => parts.push(format!("{emulated} of {rows} rows on an emulated device")),
    }
    let incomparable = number("incomparable_rows");
    if incomparable > 0 {
        parts.push(format!("{incomparable} rows of a tree that is not the claim's"));
    }
    format!("Parameters, {}", parts.join(", "))
}

fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// Facts of machine and program, each with all its values.
fn circumstances(entries: &[Entry]) -> Vec<(String, Vec<String>)> {
    let mut facts: Vec<(String, Vec<String>)> = Vec::new();
    for entry in entries {
        for (name, value) in entry.json["machine"].as_object().into_iter().flatten() {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            match facts.iter_mut().find(|(known, _)| known == name) {
                Some((_, values)) if values.contains(&value) => {}
                Some((_, values)) => values.push(value),
                None => facts.push((name.clone(), vec![value])),
            }
        }
    }
    facts
}
