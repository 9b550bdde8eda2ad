//! Test of compression support: a build without the feature `zstd` rejects a database that uses it.

#[cfg(not(feature = "zstd"))]
#[test]
fn a_build_without_zstd_does_not_open_a_database_that_asks_for_it() {
    use shamba::{Compression, Db, ErrorKind};

    let dir = tempfile::tempdir().expect("a directory");
    let asked = Db::builder(dir.path()).compression(vec![Compression::None, Compression::Zstd]);
    let refused = asked.open().expect_err("refused");
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.to_string().contains("feature \"zstd\""), "{refused}");
    let db = Db::builder(dir.path()).compression(Compression::Lz4).open().expect("lz4 is always there");
    db.put("k", "v").expect("put");
    db.close().expect("closed");
}

#[cfg(feature = "zstd")]
#[test]
fn a_build_with_zstd_reads_what_it_wrote_with_it() {
    use shamba::{Compression, Db};

    let dir = tempfile::tempdir().expect("a directory");
    let open = || Db::builder(dir.path()).compression(Compression::Zstd).open().expect("open");
    let db = open();
    let value = vec![7; 200];
    for number in 0..1_000 {
        db.put(format!("k{number}"), &value).expect("put");
    }
    db.flush().expect("flushed");
    db.close().expect("closed");
    assert_eq!(open().get("k7").expect("get").as_deref(), Some(&value[..]));
}
