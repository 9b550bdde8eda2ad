//! Tests of repairs that are refused before anything is written, and of obsolete logs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shamba_env::{Effect, Env, FaultFs, FaultRule, MemFs, OpKind, read_file, write_file_synced};
use shamba_table::{BirthId, checksum};

use super::report::Loss;
use crate::error::ErrorKind;
use crate::{Db, repair};

const DIR: &str = "/db";
const OUT: &str = "/out";

/// A database with a table and a log.
fn database() -> Env {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let db = Db::builder(DIR).env(env.clone()).info_log(false).open().expect("created");
    db.put("in a table", "1").expect("put");
    db.flush().expect("flushed");
    db.put("in the log", "2").expect("put");
    db.close().expect("closed");
    env
}

/// The path of the file whose name contains `part`.
fn file(env: &Env, part: &str) -> PathBuf {
    let entries = env.vfs.list(Path::new(DIR)).expect("listed");
    let entry = entries.into_iter().find(|entry| entry.name.contains(part)).expect("it exists");
    Path::new(DIR).join(entry.name)
}

/// Sets the version in the header of a framed file to 2, with the checksum of the header.
fn make_newer(env: &Env, path: &Path) {
    let mut bytes = read_file(env.vfs.as_ref(), path).expect("read");
    bytes[8] = 2;
    let birth = BirthId(u64::from_le_bytes(bytes[28..36].try_into().expect("8 bytes")));
    let sum = checksum(birth, 0, &bytes[..44]);
    bytes[44..48].copy_from_slice(&sum.to_le_bytes());
    replace(env, path, &bytes);
}

fn replace(env: &Env, path: &Path, bytes: &[u8]) {
    env.vfs.unlink(path).expect("it exists");
    write_file_synced(env.vfs.as_ref(), path, bytes).expect("written");
}

#[test]
fn undamaged_files_of_a_newer_version_are_refused_and_nothing_is_written() {
    for (newer, lost) in [
        ("CURRENT", None),
        ("MANIFEST-", None),
        (".log", None),
        ("MANIFEST-", Some("CURRENT")),
        (".log", Some("CURRENT")),
    ] {
        let env = database();
        let path = file(&env, newer);
        make_newer(&env, &path);
        if let Some(lost) = lost {
            env.vfs.unlink(&file(&env, lost)).expect("removed");
        }
        let error = repair(&env, Path::new(DIR), Path::new(OUT)).expect_err("it is not damaged");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{newer} without {lost:?}: {error}");
        let text = error.to_string();
        assert!(text.contains(&path.display().to_string()) && text.contains("version 2"), "{text}");
        assert!(!env.vfs.exists(Path::new(OUT)).expect("asked"), "{newer} without {lost:?}");
    }
}

#[test]
fn a_header_with_a_newer_version_and_a_wrong_checksum_is_damage() {
    for damaged in ["CURRENT", "MANIFEST-", ".log"] {
        let env = database();
        let path = file(&env, damaged);
        let mut bytes = read_file(env.vfs.as_ref(), &path).expect("read");
        bytes[8] ^= 4;
        replace(&env, &path, &bytes);
        let report = repair(&env, Path::new(DIR), Path::new(OUT)).expect("repaired");
        assert!(report.problems.iter().any(|problem| problem.file == path), "{report:?}");
        let db = Db::builder(OUT).env(env.clone()).info_log(false).open().expect("opened");
        assert_eq!(db.get("in a table").expect("read").as_deref(), Some(&b"1"[..]), "{damaged}");
    }
}

#[test]
fn a_target_inside_the_original_is_refused_whatever_path_leads_there() {
    let (env, root) = (Env::real(), tempfile::tempdir().expect("a directory"));
    let path = |name: &str| root.path().join(name);
    Db::builder(path("db")).env(env.clone()).open().expect("created").close().expect("closed");
    std::fs::create_dir(path("other")).expect("created");
    let mut inside = vec!["db", "db/new", "other/../db/new", "other/new/../../db/new", "db/new/../../db/new"];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(path("db"), path("link")).expect("a link");
        std::os::unix::fs::symlink(path("other"), path("db/out")).expect("a link");
        inside.extend(["link", "link/new", "other/../link/new", "db/out/../db/new"]);
    }
    let before = std::fs::read_dir(path("db")).expect("listed").count();
    for target in inside {
        let error = repair(&env, &path("db"), &path(target)).expect_err(target);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{target}: {error}");
        assert!(error.to_string().contains("is inside"), "{target}: {error}");
    }
    assert_eq!(std::fs::read_dir(path("db")).expect("listed").count(), before, "nothing is written");
    for outside in ["db/../new", "dbs", "other/new/deep"] {
        repair(&env, &path("db"), &path(outside)).expect(outside);
    }
    #[cfg(unix)]
    repair(&env, &path("link"), &path("db/out/again")).expect("the link leads out of it");
}

/// Logs that are kept for streams stay when they are obsolete: one that cannot be read takes no
/// later write along.
#[test]
fn an_obsolete_log_that_cannot_be_read_ends_nothing() {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let open = || {
        let builder = Db::builder(DIR).env(env.clone()).info_log(false);
        builder.keep_log(1 << 20, Duration::from_secs(1 << 20)).open().expect("opened")
    };
    let db = open();
    db.put("old", "1").expect("put");
    let obsolete = file(&env, ".log");
    db.flush().expect("flushed");
    db.close().expect("closed");
    let db = open();
    db.put("new", "2").expect("put");
    db.close().expect("closed");
    env.vfs.unlink(&file(&env, "MANIFEST")).expect("unlinked");
    let faults = FaultFs::new(Arc::clone(&env.vfs), 1);
    let broken = obsolete.to_string_lossy().into_owned();
    faults.add_rule(FaultRule::nth(0, Effect::Eio).on(&[OpKind::Read]).at_path(&broken).sticky());
    let faulty = Env { vfs: Arc::new(faults), ..env.clone() };
    let report = repair(&faulty, Path::new(DIR), Path::new(OUT)).expect("repaired");
    assert!(report.warnings.iter().any(|warning| warning.contains("not needed")), "{report:?}");
    assert!(!report.lost.iter().any(|lost| lost.loss == Loss::Writes), "{report:?}");
    let db = Db::builder(OUT).env(env.clone()).info_log(false).open().expect("opened");
    assert_eq!(db.get("old").expect("get").as_deref(), Some(&b"1"[..]));
    assert_eq!(db.get("new").expect("get").as_deref(), Some(&b"2"[..]));
}
