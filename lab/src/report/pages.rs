//! The two pages of a report: Markdown and HTML, with the same content.
//!
//! Both are one string; what is not ours in it (texts of results) is escaped in the HTML.
//!
//! Not here: what is on them ([`super`]).

use std::fmt::Write as _;

use super::{Entry, MARK, circumstances, head, heading, parameters, sections, summary};

/// For a repository.
pub(super) fn markdown(results: &[Entry], failed: &[String]) -> String {
    let mut text = format!(
        "{MARK}\n# The papers' experiments\n\n{}\n\nMade by `shamba-lab all` and `shamba-lab report`.\n\n",
        head(results, failed).join("\n\n")
    );
    text.push_str("| verdicts | paper | not here | partly | confirmed |\n|---|---|---|---|---|\n");
    for (kind, paper, [not_here, partly, confirmed]) in summary(results) {
        let (kind, paper) = (kind.name(), paper.name());
        let _ = writeln!(text, "| {kind} | {paper} | {not_here} | {partly} | {confirmed} |");
    }
    text.push_str("\n| | |\n|---|---|\n");
    for (name, values) in circumstances(results) {
        let _ = writeln!(text, "| {name} | {} |", values.join(", "));
    }
    for (kind, verdict, entries) in sections(results) {
        let _ = writeln!(text, "\n## {}", heading(kind, verdict));
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
            let _ = writeln!(text, "- `shamba-lab run {id}`, [table]({id}.csv)\n\n![{id}]({id}.svg)");
        }
    }
    text
}

/// For a browser.
pub(super) fn html(results: &[Entry], failed: &[String]) -> String {
    let sections = sections(results);
    let mut body = "<h1>The papers&#39; experiments</h1>\n".to_owned();
    for paragraph in head(results, failed) {
        let _ = writeln!(body, "<p>{}</p>", escape(&paragraph));
    }
    body.push_str(
        "<table><tr><th>verdicts</th><th>paper</th><th>not here</th><th>partly</th><th>confirmed</th></tr>\n",
    );
    for (kind, paper, [not_here, partly, confirmed]) in summary(results) {
        let (kind, paper) = (kind.name(), paper.name());
        let _ = writeln!(
            body,
            "<tr><td>{kind}</td><td>{paper}</td><td>{not_here}</td><td>{partly}</td><td>{confirmed}</td></tr>"
        );
    }
    body.push_str("</table>\n<details><summary>Machine and program</summary><table>\n");
    for (name, values) in circumstances(results) {
        let _ = writeln!(body, "<tr><th>{}</th><td>{}</td></tr>", escape(&name), escape(&values.join(", ")));
    }
    body.push_str("</table></details>\n<nav>\n");
    for (kind, verdict, entries) in &sections {
        let _ = writeln!(body, "<p><strong>{}</strong> ", escape(&heading(*kind, *verdict)));
        for entry in entries {
            let _ = write!(body, "<a href=\"#{0}\">{0}</a> ", entry.id);
        }
        body.push_str("</p>\n");
    }
    body.push_str("</nav>\n");
    for (kind, verdict, entries) in &sections {
        let _ = writeln!(body, "<h2>{}</h2>", escape(&heading(*kind, *verdict)));
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
                "</ul><p class=\"circumstances\">{}</p><p><code>shamba-lab run {id}</code> · <a href=\"{id}.csv\">table</a></p></section>",
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
