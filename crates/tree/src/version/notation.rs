//! The text notation of a version, which people read and tests write. Printed text can be parsed,
//! and printing the result gives the same text.
//!
//! One line per level, runs newest first, tables in ascending order:
//!
//! ```text
//! L0: r9@9[000012:a..c 100, 000013:d..f 90]
//! L2: r5@5[000007:b..d of a..d 60 of 100 n=40 del=3 rdel=1 seq=5-90] r3@3[000002:a.. 800]
//! ```
//!
//! `r9@9` is run 9 of age 9. `000012:a..c 100` is table 12, of which the keys from `a` up to `c`,
//! exclusive, are used, about 100 bytes. If only a part of the file is used, the text shows both
//! the part and the whole, with `of` between them. The counts that follow are omitted where zero:
//! entries, deletes among them, range tombstones, first and last sequence number. `oldest=70` is
//! the time of the oldest tombstone in milliseconds since 1970, omitted where it is not known.
//!
//! ```text
//! L2: r5@5[000007:b..d of a..d 60 of 100 val=31:12:4000 of 40:9000, 000008:e.. 50 val=31:1:300]
//! V: 000031 12128 n=50
//! ```
//!
//! `val=31:12:4000` are references to 12 values of value file 31, of 4,000 stored bytes. If the
//! whole table has others, `of` and those follow. The last line has the value files that tables
//! name, each with the bytes and the number of values of the file.
//!
//! A range without an upper bound ends with its dots. In keys, bytes that are not printable ASCII,
//! spaces and `\ , [ ]` are written `\xNN`. So is a dot that begins or ends a key or follows
//! another dot.
//!
//! Birth ids, of value files too, and filter bits are not printed, and are zero after parsing.
//!
//! Not here: the on-disk format ([`super::manifest`]).

use std::fmt::{self, Write};
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use shamba_key::{Expiry, SeqNo};
use shamba_table::{BirthId, ExpiringEntries, TableId, ValueFileId};

use super::edit::{Change, KeyRange, TableMeta, TableUse, VersionEdit};
use super::run::Run;
use super::value_files::{ValueFileMeta, ValueFiles};
use super::values::{ValueTotal, ValueUse, ValueUses};
use super::version::Version;
use shamba_key::{Age, RunId};

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (level, runs) in self.levels().filter(|(_, runs)| !runs.is_empty()) {
            write!(f, "L{level}:")?;
            for run in runs {
                write!(f, " {run}")?;
            }
            writeln!(f)?;
        }
        for (at, ValueTotal { file, .. }) in self.value_totals().files().enumerate() {
            write!(
                f,
                "{} {} {} n={}",
                if at > 0 { "," } else { "V:" },
                file.id,
                file.file_bytes,
                file.values
            )?;
        }
        if self.value_totals().is_empty() { Ok(()) } else { writeln!(f) }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}@{}[", self.id, self.age)?;
        for (at, table) in self.tables().iter().enumerate() {
            write!(f, "{}{table}", if at > 0 { ", " } else { "" })?;
        }
        f.write_char(']')
    }
}

impl fmt::Display for TableUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meta = &self.meta;
        write!(f, "{}:{}", meta.id, self.range)?;
        if self.is_narrowed() {
            write!(f, " of {}", meta.key_range())?;
        }
        write!(f, " {}", self.live_bytes)?;
        if self.live_bytes != meta.file_bytes {
            write!(f, " of {}", meta.file_bytes)?;
        }
        for (name, count) in [("n", meta.entries), ("del", meta.deletes), ("rdel", meta.range_deletes)] {
            if count > 0 {
                write!(f, " {name}={count}")?;
            }
        }
        if meta.largest_seq > SeqNo::ZERO || meta.smallest_seq > SeqNo::ZERO {
            write!(f, " seq={}-{}", meta.smallest_seq, meta.largest_seq)?;
        }
        if let Some(unix_ms) = meta.oldest_tombstone.unix_ms() {
            write!(f, " oldest={unix_ms}")?;
        }
        if meta.older_versions.get() > 0 {
            write!(f, " old={}", meta.older_versions.get())?;
        }
        if let Some(expiring) = meta.expiring.get() {
            write!(f, " exp={}:{}-{}", expiring.count, expiring.first().0, expiring.last().0)?;
        }
        for named in meta.values.get().files() {
            let used = self.values.of(named.file.id).map_or((0, 0), |used| (used.values, used.bytes));
            write!(f, " val={}:{}:{}", named.file.id.0, used.0, used.1)?;
            if used != (named.values, named.bytes) {
                write!(f, " of {}:{}", named.values, named.bytes)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_key(f, &self.lower)?;
        f.write_str("..")?;
        self.upper.as_ref().map_or(Ok(()), |upper| write_key(f, upper))
    }
}

fn write_key(f: &mut fmt::Formatter<'_>, key: &[u8]) -> fmt::Result {
    let mut after_dot = true;
    for (at, &byte) in key.iter().enumerate() {
        let is_plain = match byte {
            b'\\' | b',' | b'[' | b']' => false,
            // Two unescaped dots in a row separate the bounds of the range.
            b'.' => !after_dot && at + 1 < key.len(),
            _ => byte.is_ascii_graphic(),
        };
        after_dot = is_plain && byte == b'.';
        if is_plain {
            f.write_char(char::from(byte))?;
        } else {
            write!(f, "\\x{byte:02x}")?;
        }
    }
    Ok(())
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut version = Self::empty();
        let lines = || text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty());
        let of_line = |number: usize, why: String| format!("line {}: {why}", number + 1);
        let mut files = ValueFiles::default();
        for (number, line) in lines() {
            if let Some(line) = line.strip_prefix("V:") {
                add_value_files(&mut files, line).map_err(|why| of_line(number, why))?;
            }
        }
        for (number, line) in lines().filter(|(_, line)| !line.starts_with("V:")) {
            version = add_level(&version, line, &files).map_err(|why| of_line(number, why))?;
        }
        Ok(version)
    }
}

/// Parses value files, "number bytes n=values" with commas between.
fn add_value_files(files: &mut ValueFiles, text: &str) -> Result<(), String> {
    for text in text.split(',') {
        let wrong = || format!("a value file is written number bytes n=values, not {text:?}");
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let [id, file_bytes, values] = words[..] else { return Err(wrong()) };
        files.add(ValueFileMeta {
            id: ValueFileId(number(id, "a value file")?),
            birth: BirthId(0),
            file_bytes: number(file_bytes, "bytes")?,
            values: number(values.strip_prefix("n=").ok_or_else(wrong)?, "n")?,
            file: Default::default(),
        })?;
    }
    Ok(())
}

/// Parses one line and adds its runs to the version.
fn add_level(version: &Version, line: &str, files: &ValueFiles) -> Result<Version, String> {
    let (level, mut rest) = line
        .strip_prefix('L')
        .and_then(|line| line.split_once(':'))
        .ok_or_else(|| format!("a level begins with L, its number and a colon, not {line:?}"))?;
    let level: u32 = number(level, "a level")?;
    let mut edit = VersionEdit::default();
    let mut newer: Option<Age> = None;
    let mut known: Vec<RunId> = version.runs().map(|(_, run)| run.id).collect();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            break;
        }
        let (head, tables) =
            rest.split_once('[').ok_or_else(|| format!("a run has its tables in brackets: {rest:?}"))?;
        let (tables, after) =
            tables.split_once(']').ok_or_else(|| format!("no bracket ends the tables of {head}"))?;
        let (run, age) = head
            .strip_prefix('r')
            .and_then(|head| head.split_once('@'))
            .ok_or_else(|| format!("a run begins with its number and age as r9@9, not {head:?}"))?;
        let (run, age) = (RunId(number(run, "a run")?), Age(number(age, "an age")?));
        if known.contains(&run) {
            return Err(format!("run {run} is in the tree twice"));
        }
        if newer.is_some_and(|newer| newer <= age) {
            return Err(format!("run {run} is not older than the one before it"));
        }
        known.push(run);
        newer = Some(age);
        for table in tables.split(',') {
            let table = parse_table(table.trim(), files).map_err(|why| format!("run {run}: {why}"))?;
            edit.changes.push(Change::Add { level, run, age, table });
        }
        rest = after;
    }
    version.apply(&edit)
}

/// A use that refers to no values.
impl FromStr for TableUse {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_table(text, &ValueFiles::default())
    }
}

/// Parses the use of a table that refers to values in `files`.
fn parse_table(text: &str, files: &ValueFiles) -> Result<TableUse, String> {
    let (id, rest) = text
        .split_once(':')
        .ok_or_else(|| format!("a table is written id:lower..upper bytes, not {text:?}"))?;
    let id = TableId(number(id, "a table")?);
    let fail = |why: String| format!("table {id}: {why}");
    let mut words = rest.split_ascii_whitespace().peekable();
    let range: KeyRange = words.next().unwrap_or_default().parse().map_err(fail)?;
    let file_range = match words.next_if_eq(&"of") {
        Some(_) => words.next().unwrap_or_default().parse().map_err(fail)?,
        None => range.clone(),
    };
    let live_bytes: u64 = number(words.next().unwrap_or_default(), "bytes").map_err(fail)?;
    let file_bytes = match words.next_if_eq(&"of") {
        Some(_) => number(words.next().unwrap_or_default(), "bytes").map_err(fail)?,
        None => live_bytes,
    };
    let mut meta = TableMeta {
        id,
        birth: BirthId(0),
        file_bytes,
        entries: 0,
        deletes: 0,
        range_deletes: 0,
        smallest: file_range.lower,
        upper: file_range.upper,
        smallest_seq: SeqNo::ZERO,
        largest_seq: SeqNo::ZERO,
        bits_per_key: 0.0,
        reader: Default::default(),
        oldest_tombstone: Default::default(),
        older_versions: Default::default(),
        expiring: Default::default(),
        values: Default::default(),
        statistics: Default::default(),
    };
    let (mut named, mut used) = (Vec::new(), Vec::new());
    while let Some(word) = words.next() {
        let (name, value) = word.split_once('=').ok_or_else(|| fail(format!("{word:?} is no name=value")))?;
        match name {
            "n" => meta.entries = number(value, "n").map_err(fail)?,
            "del" => meta.deletes = number(value, "del").map_err(fail)?,
            "rdel" => meta.range_deletes = number(value, "rdel").map_err(fail)?,
            "oldest" => meta.oldest_tombstone.lower(number(value, "oldest").map_err(fail)?),
            "old" => meta.older_versions.set(number(value, "old").map_err(fail)?),
            "exp" => meta.expiring.set(expiring(value).map_err(fail)?),
            "val" => {
                let (part, file) = value_use(value, files).map_err(fail)?;
                let whole = match words.next_if_eq(&"of") {
                    Some(_) => counts(file, words.next().unwrap_or_default()).map_err(fail)?,
                    None => part.clone(),
                };
                used.push(part);
                named.push(whole);
            }
            "seq" => {
                let (from, to) =
                    value.split_once('-').ok_or_else(|| fail(format!("{value:?} is no range of numbers")))?;
                meta.smallest_seq = SeqNo(number(from, "seq").map_err(fail)?);
                meta.largest_seq = SeqNo(number(to, "seq").map_err(fail)?);
            }
            _ => return Err(fail(format!("unknown name {name:?}"))),
        }
    }
    meta.values = ValueUses::sum(named).into();
    Ok(TableUse { meta: Arc::new(meta), range, live_bytes, values: ValueUses::sum(used) })
}

/// Parses `file:values:bytes`. Returns the file, too.
fn value_use<'f>(text: &str, files: &'f ValueFiles) -> Result<(ValueUse, &'f Arc<ValueFileMeta>), String> {
    let (file, rest) =
        text.split_once(':').ok_or_else(|| format!("val is file:values:bytes, not {text:?}"))?;
    let id = ValueFileId(number(file, "val")?);
    let file = files.get(id).ok_or_else(|| format!("value file {id} is on no line V:"))?;
    Ok((counts(file, rest)?, file))
}

/// Parses `values:bytes` in a file.
fn counts(file: &Arc<ValueFileMeta>, text: &str) -> Result<ValueUse, String> {
    let (values, bytes) = text.split_once(':').ok_or_else(|| format!("val is values:bytes, not {text:?}"))?;
    Ok(ValueUse { file: Arc::clone(file), values: number(values, "val")?, bytes: number(bytes, "val")? })
}

impl FromStr for KeyRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (lower, upper) =
            text.split_once("..").ok_or_else(|| format!("a range is written lower..upper, not {text:?}"))?;
        let upper = if upper.is_empty() { None } else { Some(parse_key(upper)?) };
        Ok(Self { lower: parse_key(lower)?, upper })
    }
}

fn expiring(text: &str) -> Result<ExpiringEntries, String> {
    let wrong = || format!("exp is count:first-last, not {text:?}");
    let (count, times) = text.split_once(':').ok_or_else(wrong)?;
    let (first, last) = times.split_once('-').ok_or_else(wrong)?;
    let (first, last) = (Expiry(number(first, "exp")?), Expiry(number(last, "exp")?));
    Ok(ExpiringEntries::evenly(number(count, "exp")?, first, last))
}

fn parse_key(text: &str) -> Result<Bytes, String> {
    let mut key = Vec::with_capacity(text.len());
    let mut pieces = text.split("\\x");
    key.extend_from_slice(pieces.next().unwrap_or_default().as_bytes());
    for piece in pieces {
        let digits = piece.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        key.push(byte.ok_or_else(|| format!("an escape is \\x and two hex digits: {text:?}"))?);
        key.extend_from_slice(&piece.as_bytes()[2..]);
    }
    Ok(Bytes::from(key))
}

fn number<N: FromStr>(text: &str, what: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{what} must be a number, not {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_parses_to_the_same() {
        let text = "L0: r9@9[000012:a..c 100, 000013:d..f 90]\n\
                    L2: r5@6[000007:b..d of a..d 60 of 100 n=40 del=3 rdel=1 seq=5-90 oldest=70 exp=7:100-2000] r3@3[000002:a.. 800]\n";
        let version: Version = text.parse().expect("notation");
        assert_eq!(version.to_string(), text);
        let table = &version.level(2)[0].tables()[0];
        assert!(table.is_narrowed());
        assert_eq!((table.meta.entries, table.meta.deletes, table.meta.range_deletes), (40, 3, 1));
        assert_eq!((table.meta.smallest_seq, table.meta.largest_seq), (SeqNo(5), SeqNo(90)));
        assert_eq!(table.meta.oldest_tombstone.unix_ms(), Some(70));
        assert_eq!(version.level(2)[1].tables()[0].range.upper, None);
    }

    #[test]
    fn references_to_values_are_those_in_use_and_of_the_table() {
        let text = "L1: r9@9[000009:a..c 100 val=31:10:4000 val=32:1:70]\n\
                    L2: r5@6[000007:b..d of a..d 60 of 100 n=40 val=31:0:0 of 9:3000 val=32:2:200 of 7:900, 000008:d.. 5]\n\
                    V: 000031 9128 n=30, 000032 2000 n=8\n";
        let version: Version = text.parse().expect("notation");
        assert_eq!(version.to_string(), text);
        assert_eq!(version.check(), Ok(()));
        let [newer, older] = [1, 2].map(|level| &version.level(level)[0]);
        assert_eq!((newer.value_bytes(), older.value_bytes(), version.value_bytes()), (4070, 200, 4270));
        let totals = version.value_totals();
        let shown: Vec<_> =
            totals.files().map(|total| (total.file.id.0, total.uses, total.values, total.bytes)).collect();
        assert_eq!(shown, [(31, 2, 10, 4000), (32, 2, 3, 270)]);
        assert_eq!((totals.file_bytes(), totals.bytes()), (11_128, 4270));
        let [one, other] =
            [newer, older].map(|run| Arc::clone(&run.tables()[0].meta.values.get().files()[0].file));
        assert!(Arc::ptr_eq(&one, &other), "a file has one metadata");
        // The order of the lines does not matter.
        let lines: Vec<&str> = text.lines().rev().collect();
        let levels = format!("{}\n{}\n{}\n", lines[0], lines[2], lines[1]);
        assert_eq!(levels.parse::<Version>().expect("notation").to_string(), text);
    }

    #[test]
    fn any_bytes_can_be_keys() {
        let keys: [&[u8]; 12] = [
            b"",
            b".",
            b"..",
            b"...",
            b"a.b",
            b"a..b",
            b".a.",
            b"\\x41",
            b"[,] ",
            b"\0\xff",
            b"of",
            b"/usr/lib/x.so:1",
        ];
        for lower in keys {
            for upper in keys {
                let range = KeyRange {
                    lower: Bytes::from_static(lower),
                    upper: (!upper.is_empty()).then(|| Bytes::from_static(upper)),
                };
                let text = range.to_string();
                assert_eq!(text.parse::<KeyRange>().as_ref(), Ok(&range), "{text}");
            }
        }
        assert_eq!(
            KeyRange { lower: "/usr/lib/x.so:1".into(), upper: Some("a\0".into()) }.to_string(),
            "/usr/lib/x.so:1..a\\x00"
        );
    }

    #[test]
    fn text_that_is_no_tree_is_refused_with_its_line() {
        for (text, why) in [
            ("L1: r1@1[1:a..b 1]\nM2:", "line 2: a level begins with L, its number and a colon, not \"M2:\""),
            ("Lx: ", "line 1: a level must be a number, not \"x\""),
            ("L1: r1", "line 1: a run has its tables in brackets: \"r1\""),
            ("L1: r1@1[1:a..b 1", "line 1: no bracket ends the tables of r1@1"),
            ("L1: r1[1:a..b 1]", "line 1: a run begins with its number and age as r9@9, not \"r1\""),
            ("L1: r1@1[]", "line 1: run 1: a table is written id:lower..upper bytes, not \"\""),
            ("L1: r1@1[1:ab 1]", "line 1: run 1: table 000001: a range is written lower..upper, not \"ab\""),
            ("L1: r1@1[1:a..b]", "line 1: run 1: table 000001: bytes must be a number, not \"\""),
            (
                "L1: r1@1[1:a..\\xq 1]",
                "line 1: run 1: table 000001: an escape is \\x and two hex digits: \"\\\\xq\"",
            ),
            ("L1: r1@1[1:a..b 1 z=1]", "line 1: run 1: table 000001: unknown name \"z\""),
            (
                "L1: r1@1[1:a..b 1 val=3:1:1]",
                "line 1: run 1: table 000001: value file 000003 is on no line V:",
            ),
            ("V: 3 500", "line 1: a value file is written number bytes n=values, not \" 3 500\""),
            (
                "V: 3 500 n=1\nL1: r1@1[1:a..b 1 val=3:1]",
                "line 2: run 1: table 000001: val is values:bytes, not \"1\"",
            ),
            ("L1: r1@1[1:a..b 1] r2@2[2:a..b 1]", "line 1: run 2 is not older than the one before it"),
            ("L1: r1@1[1:b..a 1]", "line 1: level 1: run 1: no key is in the range of table 000001"),
        ] {
            assert_eq!(text.parse::<Version>().unwrap_err(), why, "{text}");
        }
    }

    #[test]
    fn both_sequence_numbers_are_printed_unless_both_are_zero() {
        for numbers in ["", " seq=0-90", " seq=5-0", " seq=5-5"] {
            let text = format!("L1: r1@1[000001:a..b 1{numbers}]\n");
            assert_eq!(text.parse::<Version>().expect("notation").to_string(), text);
        }
        let zero = "L1: r1@1[000001:a..b 1 seq=0-0]\n".parse::<Version>().expect("notation");
        assert_eq!(zero.to_string(), "L1: r1@1[000001:a..b 1]\n");
    }
}
