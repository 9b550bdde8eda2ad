//! The README's diagram: lookups of absent and of present keys, and memory, in one published run,
//! drawn from the raw rows.
//!
//! `cargo xtask overview --write` redraws `docs/results/overview.svg` after `cargo xtask peers` has
//! replaced the rows. Without `--write`, and in the tests, it fails if the diagram differs from the
//! one drawn from the rows.

use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;

use flate2::read::MultiGzDecoder;
use serde_json::Value;

use crate::tidy;

/// The published rows, compressed with gzip.
const ROWS: &str = "docs/results/raw/peers/results.jsonl.gz";
/// Path of the diagram.
const PICTURE: &str = "docs/results/overview.svg";
/// Memory budget of the run shown. Its entries have 16 + 100 bytes, read through the page cache.
const BUDGET_BYTES: u64 = 64 << 20;
/// Number of entries of that run.
const ITEMS: u64 = 10_000_000;

/// Engines from top to bottom: name in the rows, name in the diagram.
const ENGINES: [(&str, &str); 4] = [
    ("shamba", "Shamba"),
    ("rocksdb", "RocksDB"),
    ("rocksdb-compacted", "RocksDB, compacted"),
    ("fjall", "fjall"),
];

/// Columns from left to right: workload and field of the rows, heading, unit, divisor.
const COLUMNS: [(&str, &str, &str, &str, f64); 3] = [
    ("read-missing", "ns_per_op", "lookup of an absent key", "ns", 1.0),
    ("read-random", "ns_per_op", "lookup of a present key", "ns", 1.0),
    ("read-missing", "rss_peak_bytes", "peak resident memory", "MiB", 1_048_576.0),
];

/// Sizes in pixels.
const WIDTH: usize = 820;
const LABELS: usize = 160;
const COLUMN: usize = 220;
const BAR_MAX: f64 = 130.0;
const ROW: usize = 34;
const TOP: usize = 74;

const STYLE: &str = "text{font:14px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#24292f}\
.h{font-weight:600}.s{font-size:12px;fill:#57606a}.b{fill:#8c959f}.own{fill:#1a7f5a}.bold{font-weight:600}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#9198a1}.b{fill:#6e7681}.own{fill:#3fb68b}}";

/// Writes the diagram, or compares it with the published one.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let path = tidy::root().join(PICTURE);
    let picture = draw(&rows()?)?;
    match arguments {
        [write] if write == "--write" => {
            fs::write(&path, picture).map_err(|error| format!("{}: {error}", path.display()))
        }
        [] if fs::read_to_string(&path).is_ok_and(|kept| kept == picture) => Ok(()),
        [] => Err(format!("{PICTURE} differs from what {ROWS} gives: cargo xtask overview --write")),
        _ => Err("usage: cargo xtask overview [--write]".to_owned()),
    }
}

/// Rows of the run shown.
fn rows() -> Result<Vec<Value>, String> {
    let path = tidy::root().join(ROWS);
    let failed = |error| format!("{}: {error}", path.display());
    let mut text = String::new();
    let mut decoder = MultiGzDecoder::new(fs::File::open(&path).map_err(failed)?);
    decoder.read_to_string(&mut text).map_err(failed)?;
    let mut rows = Vec::new();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).map_err(|error| format!("{ROWS}: {error}"))?;
        let at = &row["at"];
        let is_shown = row["kind"] == "row"
            && at["budget_bytes"].as_u64() == Some(BUDGET_BYTES)
            && at["dataset"]["items"].as_u64() == Some(ITEMS)
            && at["dataset"]["value_bytes"].as_u64() == Some(100)
            && at["io"] == "page-cache"
            && at["compression"] == "none";
        if is_shown {
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Mean over the repetitions of the run.
fn figure(rows: &[Value], engine: &str, workload: &str, field: &str) -> Result<f64, String> {
    let figures: Vec<f64> = rows
        .iter()
        .filter(|row| row["engine"] == engine && row["workload"] == workload)
        .filter_map(|row| row[field].as_f64())
        .collect();
    match figures.len() {
        0 => Err(format!("{ROWS} has no {field} of {workload} by {engine} in this run")),
        count => Ok(figures.iter().sum::<f64>() / count as f64),
    }
}

fn draw(rows: &[Value]) -> Result<String, String> {
    let height = TOP + ROW * ENGINES.len() + 34;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\">\n<title>Misses, hits and memory of Shamba, RocksDB and fjall</title>\n\
         <style>{STYLE}</style>\n"
    );
    let mut line = |text: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(svg, "{text}");
    };
    line(
        "<text class=\"s\" x=\"8\" y=\"20\">10 million entries of 16 + 100 bytes, memory budget 64 MiB, one run, one \
         thread; shorter is better</text>"
            .to_owned(),
    );
    for (column, (workload, field, heading, unit, divisor)) in COLUMNS.into_iter().enumerate() {
        let x = LABELS + column * COLUMN;
        let figures = ENGINES
            .iter()
            .map(|(engine, _)| Ok(figure(rows, engine, workload, field)? / divisor))
            .collect::<Result<Vec<f64>, String>>()?;
        let largest = figures.iter().copied().fold(1.0, f64::max);
        line(format!("<text class=\"h\" x=\"{x}\" y=\"{}\">{heading}</text>", TOP - 20));
        for (number, figure) in figures.into_iter().enumerate() {
            let (y, width) = (TOP + number * ROW, figure / largest * BAR_MAX);
            let class = if number == 0 { "own" } else { "b" };
            line(format!(
                "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width:.1}\" height=\"20\" rx=\"2\"/>"
            ));
            let bold = if number == 0 { "bold" } else { "n" };
            line(format!(
                "<text class=\"{bold}\" x=\"{:.1}\" y=\"{}\">{} {unit}</text>",
                x as f64 + width + 6.0,
                y + 15,
                thousands(figure)
            ));
        }
    }
    for (number, (_, label)) in ENGINES.into_iter().enumerate() {
        let bold = if number == 0 { "bold" } else { "n" };
        line(format!("<text class=\"{bold}\" x=\"8\" y=\"{}\">{label}</text>", TOP + number * ROW + 15));
    }
    line(format!(
        "<text class=\"s\" x=\"8\" y=\"{}\">docs/results/peers.md has machine, options, all workloads and those that \
         Shamba loses</text>",
        height - 12
    ));
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// Formats a whole number with commas.
fn thousands(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    let mut text = String::new();
    for (number, digit) in digits.chars().enumerate() {
        if number > 0 && (digits.len() - number) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_is_that_of_the_published_rows() {
        run(&[]).expect("drawn from the rows");
    }

    #[test]
    fn a_figure_that_is_missing_is_named() {
        let error = draw(&[]).expect_err("no rows");
        assert!(error.contains("read-missing") && error.contains("shamba"), "{error}");
        assert_eq!((thousands(999.6), thousands(1_234_567.0)), ("1,000".to_owned(), "1,234,567".to_owned()));
    }
}
