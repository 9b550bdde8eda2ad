//! Syntax of RocksDB's OPTIONS files: sections and statements, with the position of each value in
//! the text.
//!
//! The format is RocksDB's own dialect of INI. A line is empty, a section (`[CFOptions "default"]`)
//! or one statement (`name = value`). `#` starts a comment unless a backslash precedes it; `\#`,
//! `\:`, `\\`, `\n` and `\r` are escapes. A value may be a list of statements in braces
//! (`{id=bloomfilter:10;bloom_before_level=3;}`). Of two statements with the same name the first
//! counts, as in RocksDB.
//!
//! A changed value replaces the old one in the text ([`OptionsFile::patched`]): comments, blanks,
//! line ends and everything unknown stay unchanged, byte for byte. INI libraries cannot do this:
//! they give values without their positions, and support neither these escapes nor the braces.
//!
//! Not here: the meaning of the settings (`settings.rs`).

use std::ops::Range;

/// An OPTIONS file in memory.
#[derive(Debug)]
pub struct OptionsFile {
    text: String,
    sections: Vec<Section>,
}

/// A section and its statements.
#[derive(Debug)]
pub struct Section {
    /// The first word of its title: `CFOptions`, `TableOptions/BlockBasedTable`.
    pub title: String,
    /// The quoted text after it: the column family; empty if there is none.
    pub argument: String,
    /// Line number, from 1.
    pub line: usize,
    /// Position for a new statement, in bytes of the text: after the last line of the section.
    end: usize,
    statements: Vec<Statement>,
}

#[derive(Debug)]
struct Statement {
    name: String,
    value: TextPlace,
}

/// Position of a value in the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TextPlace {
    /// Its line number, from 1.
    pub line: usize,
    bytes: Range<usize>,
}

/// A change of one value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Edit {
    /// Replaces a value.
    Replace {
        /// The old value's place.
        place: TextPlace,
        /// The new value, escaped for its place.
        value: String,
        /// The reason, in one line.
        why: String,
    },
    /// Inserts a statement at the end of a section.
    Insert {
        /// Index of the section in [`OptionsFile::sections`].
        section: usize,
        /// The setting.
        name: String,
        /// Its value, escaped for its place.
        value: String,
        /// The reason, in one line.
        why: String,
    },
    /// Appends a section with one statement to the file.
    Append {
        /// Its title, argument included, without the brackets.
        section: String,
        /// The setting.
        name: String,
        /// Its value, escaped for its place.
        value: String,
        /// The reason, in one line.
        why: String,
    },
}

impl OptionsFile {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// The line and the problem.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        // Some editors start a file with a UTF-8 byte order mark.
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let before = &bytes[..error.valid_up_to()];
            let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
            format!("line {line}: not text (a byte that is not UTF-8)")
        })?;
        let mut sections: Vec<Section> = Vec::new();
        let mut start = 0;
        for (number, whole) in (1..).zip(text.split_inclusive('\n')) {
            let content = without_comment(whole);
            let inside = trimmed(content, start);
            start += whole.len();
            let line = &text[inside.clone()];
            if line.is_empty() {
                continue;
            }
            let wrong = |what: &str| format!("line {number}: {what}: {}", shown(line));
            if let Some(title) = line.strip_prefix('[') {
                let title = title.strip_suffix(']').ok_or_else(|| wrong("a section does not end with ]"))?;
                let section =
                    Section::titled(title, number, start).ok_or_else(|| wrong("not a section title"))?;
                let is_same =
                    |other: &Section| (&other.title, &other.argument) == (&section.title, &section.argument);
                if let Some(first) = sections.iter().find(|other| is_same(other)) {
                    return Err(wrong(&format!("repeats the section of line {}", first.line)));
                }
                sections.push(section);
                continue;
            }
            let (name, _) = line.split_once('=').ok_or_else(|| wrong("neither a section nor name=value"))?;
            if name.trim().is_empty() {
                return Err(wrong("a value without a name"));
            }
            let section = sections.last_mut().ok_or_else(|| wrong("before the first section"))?;
            let after = inside.start + name.len() + 1;
            let value = TextPlace { line: number, bytes: trimmed(&text[after..inside.end], after) };
            section.statements.push(Statement { name: name.trim().to_owned(), value });
            section.end = start;
        }
        Ok(Self { sections, text: text.to_owned() })
    }

    /// The sections, in the order of the file.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// Index of the section with this title and argument.
    pub fn section(&self, title: &str, argument: &str) -> Option<usize> {
        self.sections.iter().position(|section| section.title == title && section.argument == argument)
    }

    /// The first value of `name` in a section.
    pub fn find(&self, section: usize, name: &str) -> Option<TextPlace> {
        let statements = &self.sections.get(section)?.statements;
        Some(statements.iter().find(|statement| statement.name == name)?.value.clone())
    }

    /// The value of `name` inside a value in braces. One pair of braces may be missing, as in old
    /// files.
    ///
    /// # Errors
    /// The line and the problem with the braces.
    pub fn find_inside(&self, place: &TextPlace, name: &str) -> Result<Option<TextPlace>, String> {
        let inside = self.inside(place)?;
        Ok(inside.into_iter().find_map(|(found, place)| (found == name).then_some(place)))
    }

    /// The statements inside a value in braces, in order: each name with the position of its value.
    /// One pair of braces may be missing, as in old files.
    ///
    /// # Errors
    /// The line and the problem with the braces.
    pub fn inside(&self, place: &TextPlace) -> Result<Vec<(&str, TextPlace)>, String> {
        let value = self.raw(place);
        let wrong = |what: &str| Err(format!("line {}: {what}: {}", place.line, shown(value)));
        let (inside, offset) = match (value.strip_prefix('{'), value.strip_suffix('}')) {
            (Some(rest), Some(_)) if !rest.is_empty() => (&rest[..rest.len() - 1], 1),
            (None, None) => (value, 0),
            _ => return wrong("unbalanced braces"),
        };
        let (mut depth, mut start) = (0usize, 0);
        let mut ends: Vec<Range<usize>> = Vec::new();
        for (at, byte) in inside.bytes().enumerate() {
            match byte {
                b'{' => depth += 1,
                b'}' if depth == 0 => return wrong("unbalanced braces"),
                b'}' => depth -= 1,
                b';' if depth == 0 => {
                    ends.push(start..at);
                    start = at + 1;
                }
                _ => {}
            }
        }
        if depth > 0 {
            return wrong("unbalanced braces");
        }
        ends.push(start..inside.len());
        let base = place.bytes.start + offset;
        let statement = |part: Range<usize>| {
            let (name, _) = inside[part.clone()].split_once('=')?;
            let after = part.start + name.len() + 1;
            let bytes = trimmed(&inside[after..part.end], base + after);
            Some((name.trim(), TextPlace { line: place.line, bytes }))
        };
        Ok(ends.into_iter().filter_map(statement).collect())
    }

    /// A value as written in the file.
    pub fn raw(&self, place: &TextPlace) -> &str {
        &self.text[place.bytes.clone()]
    }

    /// A value without its escapes.
    pub fn value(&self, place: &TextPlace) -> String {
        unescaped(self.raw(place))
    }

    /// The text with these edits, after the comment lines of `heading`. A comment before each
    /// changed line gives the old value and the reason; everything else is unchanged.
    pub fn patched(&self, heading: &[String], edits: &[Edit]) -> String {
        let newline = if self.text.contains("\r\n") { "\r\n" } else { "\n" };
        // (position, bytes removed, text inserted), in the order of the text; the sort is stable,
        // so insertions at one position keep their order.
        let mut pieces: Vec<(usize, usize, String)> = Vec::new();
        for edit in edits {
            match edit {
                Edit::Replace { place, value, why } => {
                    let line_start = self.text[..place.bytes.start].rfind('\n').map_or(0, |at| at + 1);
                    let old = self.raw(place);
                    let comment = format!("  # {}{newline}", one_line(&format!("was {old}: {why}")));
                    pieces.push((line_start, 0, comment));
                    pieces.push((place.bytes.start, place.bytes.len(), value.clone()));
                }
                Edit::Insert { section, name, value, why } => {
                    let at = self.sections[*section].end;
                    let before = if self.text[..at].ends_with('\n') { "" } else { newline };
                    let comment = one_line(&format!("was not set: {why}"));
                    let lines = format!("{before}  # {comment}{newline}  {name}={value}{newline}");
                    pieces.push((at, 0, lines));
                }
                Edit::Append { section, name, value, why } => {
                    let at = self.text.len();
                    let before = if self.text.ends_with('\n') { "" } else { newline };
                    let comment = one_line(&format!("was not set: {why}"));
                    let head = format!("{before}{newline}[{section}]{newline}");
                    pieces.push((at, 0, format!("{head}  # {comment}{newline}  {name}={value}{newline}")));
                }
            }
        }
        pieces.sort_by_key(|(at, _, _)| *at);
        let mut text = String::with_capacity(self.text.len() + 1024);
        for line in heading {
            text.push_str("# ");
            text.push_str(&one_line(line));
            text.push_str(newline);
        }
        let mut copied = 0;
        for (at, gone, comes) in pieces {
            text.push_str(&self.text[copied..at]);
            text.push_str(&comes);
            copied = at + gone;
        }
        text.push_str(&self.text[copied..]);
        text
    }
}

impl Section {
    fn titled(title: &str, line: usize, end: usize) -> Option<Self> {
        let (title, argument) = match title.split_once('"') {
            Some((title, rest)) => (title, unescaped(rest.trim_end().strip_suffix('"')?)),
            None => (title, String::new()),
        };
        let title = title.trim();
        let is_title = !title.is_empty() && !title.contains(['[', ']', '=']);
        is_title.then(|| Self { title: title.to_owned(), argument, line, end, statements: Vec::new() })
    }
}

/// The part of a line before its comment.
fn without_comment(line: &str) -> &str {
    let mut escaped = false;
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            b'#' if !escaped => return &line[..at],
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    line
}

/// The range of `text`, which begins at `start`, without the surrounding blanks.
fn trimmed(text: &str, start: usize) -> Range<usize> {
    let from = start + (text.len() - text.trim_start().len());
    from..from + text.trim().len()
}

fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some(other) => out.push(other),
                None => out.push('\\'),
            },
            other => out.push(other),
        }
    }
    out
}

/// Removes line ends, which would end a comment early.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// A line for a message, shortened to 60 characters.
fn shown(line: &str) -> String {
    let start: String = line.chars().take(60).collect();
    if start.len() < line.len() { format!("{start:?}...") } else { format!("{start:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# Options\n[Version]\n  rocksdb_version=9.1.0 # release\n\n[DBOptions]\n\n\
        [CFOptions \"default\"]\n  write_buffer_size = 64K\n  a=1\n  a=2\n\n[CFOptions \"od\\:d \\\"x\"]\n\
        [TableOptions/BlockBasedTable \"default\"]\n  filter_policy={id=bloomfilter\\:10;x={y=1;};z= 7 ;}\n";

    #[test]
    fn sections_and_values_are_found() {
        let file = OptionsFile::parse(FILE.as_bytes()).unwrap();
        let titles: Vec<_> = file
            .sections()
            .iter()
            .map(|section| (section.title.as_str(), section.argument.as_str()))
            .collect();
        let expected = [
            ("Version", ""),
            ("DBOptions", ""),
            ("CFOptions", "default"),
            ("CFOptions", "od:d \"x"),
            ("TableOptions/BlockBasedTable", "default"),
        ];
        assert_eq!(titles, expected);
        let value = |section, name| file.find(section, name).map(|place| file.value(&place));
        assert_eq!(value(0, "rocksdb_version").as_deref(), Some("9.1.0"));
        assert_eq!(value(2, "write_buffer_size").as_deref(), Some("64K"));
        assert_eq!(value(2, "a").as_deref(), Some("1"), "the first counts");
        assert_eq!(value(2, "b"), None);
        let table = file.section("TableOptions/BlockBasedTable", "default").unwrap();
        let filter = file.find(table, "filter_policy").unwrap();
        let inside =
            |name| file.find_inside(&filter, name).unwrap().map(|place| (place.line, file.value(&place)));
        assert_eq!(inside("id"), Some((14, "bloomfilter:10".to_owned())));
        assert_eq!(inside("z"), Some((14, "7".to_owned())));
        assert_eq!(inside("y"), None, "deeper ones are not this level's");
        let x = file.find_inside(&filter, "x").unwrap().unwrap();
        let y = file.find_inside(&x, "y").unwrap().unwrap();
        assert_eq!(file.value(&y), "1");
    }

    #[test]
    fn a_patch_changes_what_it_names_and_nothing_else() {
        for newline in ["\n", "\r\n"] {
            let text = FILE.replace('\n', newline);
            let file = OptionsFile::parse(text.as_bytes()).unwrap();
            assert_eq!(file.patched(&[], &[]), text);
            let buffer = file.find(2, "write_buffer_size").unwrap();
            let table = file.section("TableOptions/BlockBasedTable", "default").unwrap();
            let edits = [
                Edit::Insert {
                    section: table,
                    name: "block_size".into(),
                    value: "4096".into(),
                    why: "pages\nof it".into(),
                },
                Edit::Replace { place: buffer, value: "128K".into(), why: "fewer levels".into() },
                Edit::Insert { section: 3, name: "b".into(), value: "1".into(), why: "so".into() },
            ];
            let patched = file.patched(&["By hand".into()], &edits);
            let expected = format!("# By hand\n{FILE}")
                .replace("  write_buffer_size = 64K", "  # was 64K: fewer levels\n  write_buffer_size = 128K")
                .replace("od\\:d \\\"x\"]\n", "od\\:d \\\"x\"]\n  # was not set: so\n  b=1\n")
                + "  # was not set: pages of it\n  block_size=4096\n";
            assert_eq!(patched, expected.replace('\n', newline));
            OptionsFile::parse(patched.as_bytes()).unwrap();
        }
        let file = OptionsFile::parse(b"[CFOptions \"default\"]\na=1").unwrap();
        let insert = Edit::Insert { section: 0, name: "b".into(), value: "2".into(), why: "x".into() };
        assert_eq!(file.patched(&[], &[insert]), "[CFOptions \"default\"]\na=1\n  # was not set: x\n  b=2\n");
    }

    #[test]
    fn what_is_garbled_is_named_with_its_line() {
        for (text, line, what) in [
            ("a=1\n", 1, "before the first section"),
            ("[Version]\nnonsense\n", 2, "neither a section nor name=value"),
            ("[Version]\n =3\n", 2, "without a name"),
            ("[Version\n", 1, "does not end with ]"),
            ("\n[]\n", 2, "not a section title"),
            ("[CFOptions \"x]\n", 1, "not a section title"),
            ("[Version]\n[DBOptions]\n[Version]\n", 3, "repeats the section of line 1"),
        ] {
            let error = OptionsFile::parse(text.as_bytes()).unwrap_err();
            assert!(
                error.starts_with(&format!("line {line}: ")) && error.contains(what),
                "{text:?}: {error}"
            );
        }
        let error = OptionsFile::parse(b"[Version]\n a=\xff\n").unwrap_err();
        assert!(error.starts_with("line 2: ") && error.contains("UTF-8"), "{error}");
        for value in ["{", "}", "{a=1", "a=1}", "{a={b=1;}", "{}}{a=1}"] {
            let file = OptionsFile::parse(format!("[T]\nv={value}\n").as_bytes()).unwrap();
            let place = file.find(0, "v").unwrap();
            assert!(file.find_inside(&place, "a").unwrap_err().contains("line 2"), "{value}");
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused_and_what_is_read_is_given_back() {
        // Pieces of the format in random order reach more paths than random bytes.
        const PIECES: [&str; 14] =
            ["[", "]", "\"", "=", "{", "}", ";", "#", "\\", "\n", "\r\n", " ", "CFOptions", "é"];
        for seed in 0..3_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let text: String =
                (0..random.usize(0..40)).map(|_| PIECES[random.usize(0..PIECES.len())]).collect();
            let Ok(file) = OptionsFile::parse(text.as_bytes()) else { continue };
            assert_eq!(file.patched(&[], &[]), text, "seed {seed}");
            for (number, section) in file.sections().iter().enumerate() {
                for statement in &section.statements {
                    let place = file.find(number, &statement.name).unwrap();
                    let _ = file.find_inside(&place, "CFOptions");
                    let edit = Edit::Replace { place, value: "1".into(), why: "x".into() };
                    let patched = file.patched(&[], &[edit]);
                    let again = OptionsFile::parse(patched.as_bytes()).unwrap();
                    let value = again.find(number, &statement.name).map(|place| again.value(&place));
                    assert_eq!(value.as_deref(), Some("1"), "seed {seed}: {text:?}");
                }
            }
        }
    }
}
