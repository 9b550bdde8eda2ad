//! Check of the paths that pages name: each is the end of a path that exists.
//!
//! A path is text between backticks that ends with `.rs` or a slash, or begins with a folder of the
//! root. A page may shorten it from the left (`writer/queue.rs`), so that a table of places stays
//! narrow; what is left must be whole names. A name in capitals (`crates/NAME`) stands for any.
//!
//! Not here: the selection of pages (the parent module); links, which their readers follow.

/// Paths on a page that no path of `existing` ends with, with their lines. `existing` has files and
/// folders from the root, with slashes and without one at the end.
pub fn missing<'p>(page: &'p str, existing: &[String]) -> Vec<(usize, &'p str)> {
    let mut found = Vec::new();
    let mut in_block = false;
    for (line, number) in page.lines().zip(1..) {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            let named = line.split('`').skip(1).step_by(2).filter(|text| is_path(text));
            found.extend(named.filter(|path| !exists(path, existing)).map(|path| (number, path)));
        }
    }
    found
}

/// Whether text between backticks is a path within the sources.
fn is_path(text: &str) -> bool {
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    let is_source = text.ends_with(".rs") || text.ends_with('/');
    let is_in_folder = ["crates/", "lab/", "xtask/", "tests/", "docs/", "fuzz/"];
    let is_pattern = text.split('/').any(|name| name.chars().all(|c| c.is_ascii_uppercase()));
    is_plain && !is_pattern && (is_source || is_in_folder.iter().any(|folder| text.starts_with(folder)))
}

/// Whether `path` is the end of an existing one, at a boundary of names.
fn exists(path: &str, existing: &[String]) -> bool {
    let path = path.trim_end_matches('/');
    existing.iter().any(|whole| {
        whole.strip_suffix(path).is_some_and(|before| before.is_empty() || before.ends_with('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::missing;

    fn existing() -> Vec<String> {
        ["crates", "crates/engine/src/writer", "crates/engine/src/writer/queue.rs", "docs/options.md"]
            .map(str::to_owned)
            .to_vec()
    }

    #[test]
    fn whole_and_shortened_paths_are_found() {
        let page = "`writer/queue.rs`, `writer/`, `queue.rs`, `crates/engine/src/writer/`, `docs/options.md`";
        assert_eq!(missing(page, &existing()), []);
    }

    #[test]
    fn a_path_that_is_gone_is_named_with_its_line() {
        let page = "first\nsee `writer/gone.rs` and `iter/queue.rs`\n`docs/old.md`";
        let gone = [(2, "writer/gone.rs"), (2, "iter/queue.rs"), (3, "docs/old.md")];
        assert_eq!(missing(page, &existing()), gone);
    }

    #[test]
    fn part_of_a_name_is_no_path() {
        assert_eq!(missing("`ueue.rs`", &existing()), [(1, "ueue.rs")]);
    }

    #[test]
    fn other_code_and_blocks_are_not_paths() {
        let page = "`Db::open`, `a/b`, `crates/NAME/src`, `T^i / K`\n```\n`gone.rs`\n```\n`~/file/x y/`";
        assert_eq!(missing(page, &existing()), []);
    }
}
