//! Test of the worked example in `docs/formats/value-file.md`: its hex dump must equal the writer's
//! output.

use shamba_key::Expiry;

use super::page::{fenced_in, hexdump, undumped};
use super::*;

const PAGE: &str = include_str!("../../../../docs/formats/value-file.md");
const ID: ValueFileId = ValueFileId(31);
const BIRTH: BirthId = BirthId(0x0123_4567_89ab_cdef);

/// The entries of the page: key, sequence number, kind, payload.
fn entries() -> [(&'static [u8], SeqNo, EntryKind, Vec<u8>); 2] {
    [
        (b"pear", SeqNo(5), EntryKind::Put, b"green, and longer than an entry".to_vec()),
        (b"sid", SeqNo(6), EntryKind::PutWithExpiry, Expiry(1_704_067_260_000).encode(b"asha")),
    ]
}

/// Writes the file of the page; returns the references to its values.
fn example(env: &Env) -> Vec<ValueFileRef> {
    env.vfs.create_dir_all(Path::new(DIR)).expect("a directory");
    let (compression, chunk_bytes) = (Compression::None, 65_536);
    let options = ValueFileWriterOptions { id: ID, birth: BIRTH, keyspace: 2, compression, chunk_bytes };
    let mut writer = ValueFileWriter::create(env, Path::new(DIR), options).expect("created");
    let references = entries()
        .iter()
        .map(|(key, seq, kind, payload)| writer.add(key, *seq, *kind, payload).expect("added"))
        .collect();
    writer.finish_unsynced().expect("finished").2.sync().expect("synced");
    references
}

fn env() -> Env {
    Env::deterministic(Arc::new(MemFs::new()), 1)
}

fn path() -> std::path::PathBuf {
    Path::new(DIR).join(value_file_name(ID))
}

#[test]
fn the_page_shows_the_bytes_that_the_writer_makes() {
    let env = env();
    example(&env);
    let found = hexdump(&shamba_env::read_file(env.vfs.as_ref(), &path()).expect("read"));
    assert!(found == fenced_in(PAGE, "### The bytes"), "the page differs; the bytes are\n{found}");
}

#[test]
fn the_page_shows_what_describe_prints() {
    let env = env();
    example(&env);
    let found = describe_value_file(&env, &path(), None).expect("described").to_string();
    assert!(found == fenced_in(PAGE, "### In words"), "the page differs; the words are\n{found}");
}

#[test]
fn the_page_shows_the_references() {
    let mut found = String::new();
    for (reference, (key, ..)) in example(&env()).iter().zip(entries()) {
        let hex: Vec<String> = reference.encode().iter().map(|byte| format!("{byte:02x}")).collect();
        found.push_str(&format!("{:<6}{}\n", key.escape_ascii().to_string(), hex[..16].join(" ")));
        found.push_str(&format!("      {}\n", hex[16..].join(" ")));
    }
    assert!(found == fenced_in(PAGE, "### The references"), "the page differs; they are\n{found}");
}

#[test]
fn the_example_reads_back_from_the_page() {
    let env = env();
    let references = example(&env);
    env.vfs.unlink(&path()).expect("unlinked");
    let bytes = undumped(fenced_in(PAGE, "### The bytes"));
    append_all(env.vfs.create(&path()).expect("created").as_mut(), &bytes).expect("written");
    let (ledger, files) = (Arc::new(Ledger::new()), Arc::new(OpenFiles::new(1)));
    let options = ValueFileOptions { id: ID, birth: BIRTH, ledger, files, direct_io: false };
    let file = ValueFile::open(&env, Path::new(DIR), options).expect("opened");
    assert!(file.verify().is_empty());
    for (reference, (key, seq, kind, payload)) in references.into_iter().zip(entries()) {
        let mut cost = Reads::default();
        assert_eq!(file.read(reference, &mut cost).expect("read"), payload);
        file.read_checked(reference, (key, seq, kind), &mut cost, &mut |_| Ok(())).expect("its own");
    }
}
