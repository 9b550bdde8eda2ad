//! Runs every example of the help texts.

use crate::support::{Dir, command, finish, run};

/// The commands after `Examples` in a help text, one per line.
fn examples(help: &str) -> Vec<String> {
    let told = help.split_once("Examples").map(|(_, examples)| examples).expect("a help text with examples");
    let (mut found, mut data): (Vec<String>, Option<String>) = (Vec::new(), None);
    // The heading `Examples, with WHAT in place of DATA:`
    if let Some((what, _)) = told.split_once(" in place of DATA:") {
        data = Some(what.trim_start_matches(", with ").replace('\n', " "));
    }
    for line in told.lines().skip(1) {
        // A line without a command continues the one before: after a backslash, or where the text
        // was wrapped.
        let text = match line.split_once("shamba plan") {
            Some((_, rest)) => {
                found.push(String::new());
                format!("plan{rest}")
            }
            None => format!(" {}", line.trim()),
        };
        let last = found.last_mut().expect("one has begun");
        last.push_str(text.trim_end_matches('\\').trim_end());
    }
    if let Some(data) = data {
        found.iter_mut().for_each(|example| *example = example.replace("DATA", &data));
    }
    found
}

#[test]
fn every_example_of_a_help_text_works() {
    let dir = Dir::new();
    std::fs::write(dir.path("OPTIONS-000007"), "[CFOptions \"default\"]\n").expect("written");
    let mut ran = 0;
    for name in ["cost", "design", "compare"] {
        let help = run(["plan", name, "--help"]).ok();
        for example in examples(&help) {
            let words = example.split_whitespace();
            let run = finish(command(words).current_dir(dir.path(".")).spawn().expect("the binary starts"));
            assert_eq!(run.code, 0, "{example}: {run:?}");
            assert!(!run.out.contains("NaN") && run.out.lines().count() > 3, "{example}: {run:?}");
            ran += 1;
        }
    }
    assert!(ran >= 14, "{ran} examples were found");
}
