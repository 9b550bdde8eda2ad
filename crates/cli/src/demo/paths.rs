//! Data of the demo: paths with their metadata, and as many paths that do not exist.

use std::collections::HashSet;

use fastrand::Rng;

/// Seed of all random choices, so that two demos of one tree do the same.
const SEED: u64 = 0x0005_ba0b;

/// A path and the value stored for it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Entry {
    /// The path as bytes.
    pub key: Vec<u8>,
    /// Its metadata as text.
    pub value: Vec<u8>,
}

/// Number of paths by kind.
#[derive(Clone, Copy, Default, Debug)]
pub struct Kinds {
    /// Plain files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub links: u64,
    /// Sockets, devices and the like.
    pub others: u64,
}

/// The data of a demo.
#[derive(Debug)]
pub struct Paths {
    /// Entries in random order, so that every run of the tree spans all paths, as with any data
    /// that does not arrive sorted.
    pub entries: Vec<Entry>,
    /// The same number of paths that do not exist: real ones with one component changed.
    pub absent: Vec<Vec<u8>>,
    /// Number of paths by kind.
    pub kinds: Kinds,
    /// Paths that could not be read, with the reasons.
    pub unreadable: Vec<String>,
    /// Number of paths found; more than [`Self::entries`] if those are a sample.
    pub found: u64,
    /// Time of the walk in seconds.
    pub seconds: f64,
}

impl Paths {
    /// Shuffles the entries and derives absent paths from them. `root_bytes`: length of the common
    /// start of all paths, which stays unchanged, so that absent paths lie among the real ones. A
    /// random sample of at most `entries_max` is kept.
    pub fn new(
        mut entries: Vec<Entry>,
        kinds: Kinds,
        unreadable: Vec<String>,
        root_bytes: usize,
        seconds: f64,
        entries_max: usize,
    ) -> Self {
        let mut rng = Rng::with_seed(SEED);
        let found = entries.len() as u64;
        rng.shuffle(&mut entries);
        entries.truncate(entries_max);
        let absent = absent_paths(&entries, root_bytes, &mut rng);
        Self { entries, absent, kinds, unreadable, found, seconds }
    }

    /// Keys of all entries.
    pub fn existing(&self) -> Vec<&[u8]> {
        self.entries.iter().map(|entry| entry.key.as_slice()).collect()
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> u64 {
        self.entries.iter().map(|entry| (entry.key.len() + entry.value.len()) as u64).sum()
    }
}

fn absent_paths(entries: &[Entry], root_bytes: usize, rng: &mut Rng) -> Vec<Vec<u8>> {
    let existing: HashSet<&[u8]> = entries.iter().map(|entry| entry.key.as_slice()).collect();
    let mut absent = Vec::with_capacity(entries.len());
    for entry in entries {
        loop {
            let path = with_one_component_changed(&entry.key, root_bytes, rng);
            if !existing.contains(path.as_slice()) {
                absent.push(path);
                break;
            }
        }
    }
    absent
}

/// `path` with one byte of a component below the root replaced, or with one inserted.
fn with_one_component_changed(path: &[u8], root_bytes: usize, rng: &mut Rng) -> Vec<u8> {
    let letter = rng.lowercase() as u8;
    let mut changed = path.to_vec();
    let below: Vec<usize> = (root_bytes.min(path.len())..path.len()).filter(|&at| path[at] != b'/').collect();
    match rng.choice(&below) {
        Some(&at) if changed[at] != letter => changed[at] = letter,
        Some(&at) => changed.insert(at, letter),
        None => changed.push(letter),
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str) -> Entry {
        Entry { key: key.into(), value: b"v".to_vec() }
    }

    #[test]
    fn absent_paths_are_as_many_and_not_among_the_real_ones() {
        // Every one-letter name exists, so that most changes give an existing path and must be
        // repeated.
        let mut entries: Vec<Entry> = ('a'..='z').map(|name| entry(&format!("/r/{name}"))).collect();
        entries.push(entry("/r"));
        let paths = Paths::new(entries.clone(), Kinds::default(), Vec::new(), 2, 0.0, usize::MAX);
        assert_eq!(paths.absent.len(), entries.len());
        for path in &paths.absent {
            assert!(path.starts_with(b"/r"), "{}", path.escape_ascii());
            assert!(!entries.iter().any(|entry| &entry.key == path), "{}", path.escape_ascii());
        }
        assert_eq!(paths.bytes(), 26 * 5 + 3);
    }

    #[test]
    fn the_order_is_random_but_always_the_same() {
        let make = || {
            let entries: Vec<Entry> = (0..1000).map(|number| entry(&format!("/{number:04}"))).collect();
            Paths::new(entries, Kinds::default(), Vec::new(), 1, 0.0, 900)
        };
        let paths = make();
        assert!(!paths.entries.is_sorted());
        assert_eq!(paths.entries, make().entries);
        assert_eq!((paths.entries.len(), paths.absent.len(), paths.found), (900, 900, 1000), "a sample");
    }
}
