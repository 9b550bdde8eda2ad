//! `STATISTICS`: the lookup statistics of the tables, kept for the next open. Best effort.
//!
//! ```text
//!      48  file header (shamba_log::framing::header): magic SHAMBAST, number 0, a new birth id
//!       4  keyspaces; each:
//!            4 number    8 lookups    8 found    8 lookups per second    4 tables; each:
//!                 8 number    8 birth id    8 empty    8 found    8 false positives
//!       4  checksum of all after the header, salted with the birth id and offset 48
//! ```
//!
//! Figures are IEEE 754 doubles, in sampled lookups and probes. A table is identified by number and
//! birth id. Figures of tables that no longer exist are ignored; newer tables have none. Seeks are
//! not stored: their distribution is sampled anew.
//!
//! The file is written under another name and renamed, at close and from time to time after a flush
//! or compaction, and never by a read-only open. The rename is not made durable: its loss is
//! harmless, as is damage, which an open and a check report as a warning. No operation fails
//! because of this file.

use std::io;
use std::path::Path;

use shamba_env::{Env, read_file, write_file_synced};
use shamba_table::{BirthId, TableId, checksum};

use crate::error::{Error, Result};
use shamba_key::KeyspaceId;
use shamba_log::framing::{Decoded, Decoder, FileHeader, FileKind, HEADER_BYTES, HeaderFault};
use shamba_tree::statistics::{LookupWindow, Probes};

/// Name of the file.
pub(crate) const STATISTICS: &str = "STATISTICS";
/// Temporary name of the next file before it is renamed.
pub(crate) const STATISTICS_TEMPORARY: &str = "STATISTICS.tmp";

/// The figures of a keyspace and its tables.
#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct TreeFigures {
    pub keyspace: KeyspaceId,
    pub window: LookupWindow,
    pub tables: Vec<(TableId, BirthId, Probes)>,
}

impl TreeFigures {
    /// Whether nothing was sampled.
    pub fn is_empty(&self) -> bool {
        self.window.lookups == 0.0
    }
}

pub(super) fn encode(trees: &[TreeFigures], birth: BirthId) -> Vec<u8> {
    let mut bytes = FileHeader::new(birth, 0).encode(FileKind::Statistics);
    let put_figures = |bytes: &mut Vec<u8>, figures: [f64; 3]| {
        figures.iter().for_each(|figure| bytes.extend_from_slice(&figure.to_bits().to_le_bytes()));
    };
    // The numbers of keyspaces and tables fit in 32 bits, or they would not fit in memory.
    bytes.extend_from_slice(&(trees.len() as u32).to_le_bytes());
    for tree in trees {
        let LookupWindow { lookups, found, lookups_per_second, .. } = tree.window;
        bytes.extend_from_slice(&tree.keyspace.0.to_le_bytes());
        put_figures(&mut bytes, [lookups, found, lookups_per_second]);
        bytes.extend_from_slice(&(tree.tables.len() as u32).to_le_bytes());
        for (id, birth, Probes { empty, found, false_positives, .. }) in &tree.tables {
            bytes.extend_from_slice(&id.0.to_le_bytes());
            bytes.extend_from_slice(&birth.0.to_le_bytes());
            put_figures(&mut bytes, [*empty, *found, *false_positives]);
        }
    }
    let body = bytes.get(HEADER_BYTES as usize..).unwrap_or_default();
    let sum = checksum(birth, HEADER_BYTES, body);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> std::result::Result<Vec<TreeFigures>, HeaderFault> {
    let birth = FileHeader::decode(FileKind::Statistics, None, bytes)?.birth;
    decode_body(birth, bytes.get(HEADER_BYTES as usize..).unwrap_or_default()).map_err(HeaderFault::Damaged)
}

fn decode_body(birth: BirthId, bytes: &[u8]) -> Decoded<Vec<TreeFigures>> {
    let (body, sum) = bytes.split_last_chunk::<4>().ok_or_else(|| "the checksum is missing".to_owned())?;
    if checksum(birth, HEADER_BYTES, body) != u32::from_le_bytes(*sum) {
        return Err("checksum mismatch".to_owned());
    }
    let mut decoder = Decoder::new(body);
    let keyspaces = decoder.u32()?;
    let mut trees = Vec::new();
    for _ in 0..keyspaces {
        let keyspace = KeyspaceId(decoder.u32()?);
        let [lookups, found, lookups_per_second] = figures(&mut decoder)?;
        let window = LookupWindow { lookups, found, lookups_per_second, ..LookupWindow::default() };
        let mut tree = TreeFigures { keyspace, window, tables: Vec::new() };
        for _ in 0..decoder.u32()? {
            let (id, birth) = (TableId(decoder.u64()?), BirthId(decoder.u64()?));
            let [empty, found, false_positives] = figures(&mut decoder)?;
            tree.tables.push((id, birth, Probes::new(empty, found, false_positives)));
        }
        trees.push(tree);
    }
    decoder.finish()?;
    Ok(trees)
}

fn figures(decoder: &mut Decoder<'_>) -> Decoded<[f64; 3]> {
    let mut figures = [0.0; 3];
    for figure in &mut figures {
        *figure = f64::from_bits(decoder.u64()?);
        if !(figure.is_finite() && *figure >= 0.0) {
            return Err(format!("a figure is {figure}"));
        }
    }
    Ok(figures)
}

/// Contents and length of the file in `dir`; `None` if there is none.
///
/// # Errors
/// `Corruption`, a read error, or `Unsupported` for a newer version; the caller only warns of each.
pub(crate) fn read(env: &Env, dir: &Path) -> Result<Option<(Vec<TreeFigures>, u64)>> {
    let path = dir.join(STATISTICS);
    let bytes = match read_file(env.vfs.as_ref(), &path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("read", &path, error)),
    };
    match decode(&bytes) {
        Ok(trees) => Ok(Some((trees, bytes.len() as u64))),
        Err(HeaderFault::Damaged(detail)) => Err(Error::corruption(&path, 0, "statistics", detail)),
        Err(HeaderFault::Unsupported(detail)) => {
            let detail = format!("{}: {detail}", path.display());
            Err(Error::new(crate::error::ErrorKind::Unsupported, detail))
        }
    }
}

/// Text of the warning for an unreadable file.
pub(crate) fn warning(error: &Error) -> String {
    let error = error.chain();
    format!("{error}; lookup statistics start empty; no answer depends on them")
}

/// Replaces the file in `dir`, by a file of another name that is renamed.
///
/// # Errors
/// Errors of the file system.
pub(super) fn write(env: &Env, dir: &Path, bytes: &[u8]) -> io::Result<()> {
    let (path, temporary) = (dir.join(STATISTICS), dir.join(STATISTICS_TEMPORARY));
    match env.vfs.unlink(&temporary) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    write_file_synced(env.vfs.as_ref(), &temporary, bytes)?;
    env.vfs.rename(&temporary, &path)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shamba_env::{MemFs, append_all};

    use super::*;
    use shamba_testkit::{HEADER_FIELDS, annotated};

    fn trees() -> Vec<TreeFigures> {
        let window = LookupWindow {
            lookups: 1_000.0,
            found: 250.0,
            lookups_per_second: 64_000.0,
            ..LookupWindow::default()
        };
        let probes = Probes::new(600.0, 150.0, 6.5);
        vec![TreeFigures {
            keyspace: KeyspaceId(0),
            window,
            tables: vec![(TableId(5), BirthId(0x1234), probes)],
        }]
    }

    #[test]
    fn what_is_written_is_read() {
        let env = Env::deterministic(Arc::new(MemFs::new()), 1);
        let dir = Path::new("/");
        assert_eq!(read(&env, dir).expect("nothing there"), None);
        for (birth, trees) in [(7, trees()), (8, Vec::new())] {
            write(&env, dir, &encode(&trees, BirthId(birth))).expect("written over the one before");
            assert_eq!(read(&env, dir).expect("read").map(|(trees, _)| trees), Some(trees));
        }
        assert!(!env.vfs.exists(&dir.join(STATISTICS_TEMPORARY)).expect("asked"));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let bytes = encode(&trees(), BirthId(7));
        for at in 0..bytes.len() {
            assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                // Optional feature bits are not checked, but the header's checksum covers them.
                assert!(decode(&damaged).is_err(), "bit {bit} of byte {at}");
            }
        }
        assert!(decode(&[&bytes[..], &[0]].concat()).is_err(), "a byte too many");
        let mut wrong = trees();
        wrong[0].window.found = f64::NAN;
        let text = format!("{:?}", decode(&encode(&wrong, BirthId(7))));
        assert!(text.contains("a figure is NaN"), "{text}");
    }

    #[test]
    fn damage_is_an_error_that_names_the_file_and_a_newer_version_one_that_says_so() {
        let env = Env::deterministic(Arc::new(MemFs::new()), 1);
        let dir = Path::new("/");
        let put = |bytes: &[u8]| {
            let _ = env.vfs.unlink(&dir.join(STATISTICS));
            let mut file = env.vfs.create(&dir.join(STATISTICS)).expect("created");
            append_all(file.as_mut(), bytes).expect("written");
        };
        put(b"rubbish");
        let error = read(&env, dir).expect_err("damage");
        assert_eq!(error.kind(), crate::ErrorKind::Corruption);
        assert!(error.to_string().contains("/STATISTICS"), "{error}");
        let mut bytes = encode(&trees(), BirthId(7));
        bytes[8] = 99;
        put(&bytes);
        let error = read(&env, dir).expect_err("a newer version");
        assert_eq!(error.kind(), crate::ErrorKind::Unsupported, "{error:?}");
    }

    #[test]
    fn the_example_of_the_format_page() {
        let bytes = encode(&trees(), BirthId(0x0807_0605_0403_0201));
        let fields = [
            (4, "keyspaces: 1"),
            (4, "keyspace 0"),
            (8, "sampled lookups 1,000"),
            (8, "found 250"),
            (8, "lookups per second 64,000"),
            (4, "tables: 1"),
            (8, "table 5"),
            (8, "its birth id"),
            (8, "empty probes 600"),
            (8, "found 150"),
            (8, "false positives 6.5"),
            (4, "checksum"),
        ];
        let picture = annotated(&bytes, &[&HEADER_FIELDS[..], &fields].concat());
        let page = include_str!("../../../../docs/formats/statistics.md");
        assert!(page.contains(&picture), "docs/formats/statistics.md lacks this:\n{picture}");
    }
}
