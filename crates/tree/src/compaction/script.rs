//! Scripts of tests: commands in a text file, with the answers that they are to give.

use std::fmt::Write as _;

use expect_test::ExpectFile;

/// Runs the commands of `file`, whose steps are separated by empty lines, and compares the answers
/// of `act(command, input)` with those in the file. A step of comments only is kept as it is.
pub(super) fn run_script(file: &ExpectFile, mut act: impl FnMut(&str, &str) -> Result<String, String>) {
    let script = file.data();
    let mut out = String::new();
    for step in script.split("\n\n").filter(|step| !step.trim().is_empty()) {
        let step = step.trim_matches('\n');
        if !out.is_empty() {
            out.push('\n');
        }
        let (asked, is_command) = match step.split_once("----") {
            Some((asked, _)) => (asked, true),
            None => (step, !step.lines().all(|line| line.starts_with('#'))),
        };
        writeln!(out, "{}", asked.trim_end()).expect("a string grows");
        if is_command {
            let mut lines = asked.lines().filter(|line| !line.starts_with('#'));
            let command = lines.next().unwrap_or_default();
            let input = lines.collect::<Vec<_>>().join("\n");
            let answer = act(command, &input).unwrap_or_else(|why| format!("error: {why}"));
            writeln!(out, "----\n{}", answer.trim_end()).expect("a string grows");
        }
    }
    file.assert_eq(&out);
}
