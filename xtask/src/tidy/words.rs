//! Check of the language of comments and pages: width, terms, openings.
//!
//! 1. A comment line has at most [`COLUMNS_MAX`] columns. Table rows and addresses cannot be
//!    wrapped and may be longer.
//! 2. Comments and pages use the field's terms: the words of [`TERMS`] are private or vague. Text
//!    between backticks is code and is not checked.
//! 3. A doc opens with a noun phrase or a verb, not with a clause ("What is ...", "How many ...").
//!
//! Not here: the selection of files (the parent module).

/// Maximum columns of a comment line.
const COLUMNS_MAX: usize = 100;

/// Words that have a term of the field, or hide a quantity, with their replacement.
const TERMS: [(&str, &str); 22] = [
    ("inbox", "level 0"),
    ("crowded", "the number of runs"),
    ("outgrown", "overfull, or over its limit"),
    ("doomed", "obsolete"),
    ("misfit", "stale filter"),
    ("misfits", "stale filters"),
    ("refit", "filter rewrite"),
    ("refits", "filter rewrites"),
    ("restatement", "workload shift"),
    ("restatements", "workload shifts"),
    ("to and fro", "oscillation"),
    ("good weather", "the fast path"),
    ("has company", "can run concurrently"),
    ("gives way", "is evicted, or yields"),
    ("is owed", "debt"),
    ("are owed", "debt"),
    ("at rest", "idle, or dormant"),
    ("whoever", "the caller, or the thread that"),
    ("somebody", "a caller, or another thread"),
    ("beside", "next to, concurrent with, or in addition to"),
    ("so many", "the number"),
    ("so much", "the amount"),
];

/// Openings that begin a clause without a subject.
const HEADLESS: [&str; 8] =
    ["What", "Who", "Whether who", "How much", "How many", "How often", "How far", "As many"];

/// Violations in the comments of a Rust file, with their lines.
pub fn of_code(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_doc = false;
    for (line, number) in text.lines().zip(1..) {
        let Some((mark, comment)) = comment_of(line) else {
            in_doc = false;
            continue;
        };
        let is_whole_line = line.trim_start().starts_with("//");
        let columns = line.chars().count();
        let is_fixed = comment.trim_start().starts_with('|') || comment.contains("://");
        if is_whole_line && columns > COLUMNS_MAX && !is_fixed {
            found.push((number, format!("a comment of {columns} columns; wrap at {COLUMNS_MAX}")));
        }
        found.extend(terms_in(comment).map(|breach| (number, breach)));
        let is_doc = is_whole_line && mark != "//";
        if is_doc && !in_doc {
            found.extend(headless(comment).map(|breach| (number, breach)));
        }
        in_doc = is_doc;
    }
    found
}

/// Violations in a Markdown page, with their lines. Blocks of code are not checked.
pub fn of_page(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (line, number) in text.lines().zip(1..) {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            found.extend(terms_in(line).map(|breach| (number, breach)));
        }
    }
    found
}

/// The mark (`//`, `///` or `//!`) and the text of the comment in a line of code.
fn comment_of(line: &str) -> Option<(&str, &str)> {
    // A `//` right after a colon belongs to an address, one after an opening quote to a text.
    let is_in_text = |before: &str| (before.matches('"').count() - before.matches("\\\"").count()) % 2 == 1;
    let is_comment = |before: &str| !before.ends_with(':') && !is_in_text(before);
    let at = line.match_indices("//").map(|(at, _)| at).find(|at| is_comment(&line[..*at]))?;
    let comment = &line[at..];
    let length = if comment.starts_with("///") || comment.starts_with("//!") { 3 } else { 2 };
    Some(comment.split_at(length))
}

/// Breaches of the terms in a text.
fn terms_in(text: &str) -> impl Iterator<Item = String> {
    // Words outside backticks, with single spaces between and around.
    let mut words = String::from(" ");
    for prose in text.split('`').step_by(2) {
        for word in prose.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
            words.push_str(&word.to_lowercase());
            words.push(' ');
        }
    }
    let used = TERMS.iter().filter(move |(term, _)| words.contains(&format!(" {term} ")));
    used.map(|(term, plain)| format!("{term:?} is a private or vague word; write {plain}"))
}

/// The breach of a doc that opens with a clause.
fn headless(first_line: &str) -> Option<String> {
    let text = first_line.trim_start();
    let opens = |opening: &&str| {
        let rest = text.strip_prefix(*opening);
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '-'))
    };
    let opening = HEADLESS.iter().find(|opening| opens(opening))?;
    let is_question = text.contains('?');
    (!is_question).then(|| format!("a doc opens with {opening:?}; begin with a noun phrase or a verb"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines and first words of the breaches in code.
    fn lines(text: &str) -> Vec<usize> {
        of_code(text).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn long_comments_are_found_and_rows_and_addresses_are_not() {
        let long = "a word ".repeat(20);
        assert_eq!(lines(&format!("//! Short.\n\n// {long}\n/// {long}\nfn f() {{}}\n")), [3, 4]);
        assert!(lines(&format!("//! | {long} |\n//! https://example.org/{}\n", "a".repeat(100))).is_empty());
        assert!(lines(&format!("let a = \"{long}\"; // Short.\n")).is_empty(), "code has its own limit");
        let limit = format!("// {}", "a".repeat(COLUMNS_MAX - 3));
        assert!(lines(&limit).is_empty());
        assert_eq!(lines(&format!("{limit}a")), [1]);
        assert!(lines(&format!("// {}", "\u{e9}".repeat(COLUMNS_MAX - 3))).is_empty(), "columns, not bytes");
    }

    #[test]
    fn private_terms_are_found_in_comments_and_not_in_code() {
        assert_eq!(lines("//! A full inbox.\nlet inbox = 1; // Level 0.\nf(); // Two Misfits.\n"), [1, 3]);
        assert!(lines("/// The suite `outgrown`, not [`beside`].\n/// Besides, besiege.\n").is_empty());
        assert_eq!(lines("// Moves to\n// and fro.\n// It goes to-and-fro.\n"), [3]);
        assert!(lines("let page = \"https://a.b/so many\";\n").is_empty(), "an address is no comment");
        assert_eq!(lines("let text = \"// so many\"; // So much.\nf(\"\\\"\", 1); // Fine.\n"), [1]);
        let page = of_page("Runs beside it.\n```text\nbeside\n```\nA `refit`.\nA refit.\n");
        assert_eq!(page.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 6]);
        assert!(page[1].1.contains("filter rewrite"), "{page:?}");
    }

    #[test]
    fn headless_openings_of_docs_are_found() {
        for opening in HEADLESS {
            assert_eq!(lines(&format!("/// {opening} of it is held.\nstruct A;\n")).len(), 1, "{opening}");
        }
        assert_eq!(lines("//! What a scan reports.\n"), [1]);
        assert_eq!(lines("struct A {\n    /// How many.\n    a: u8, // How many there are.\n}\n"), [2]);
        assert!(lines("/// Bytes of it.\n/// What is held is not counted.\nfn f() {}\n").is_empty());
        assert!(lines("// What follows is slow.\nf();\n").is_empty(), "a plain comment is a sentence");
        assert!(lines("/// What is a run? A sorted sequence of tables.\n").is_empty());
        assert!(lines("/// Whatever is held.\n").is_empty());
        assert!(lines("//! What-if analysis.\n").is_empty());
    }
}
