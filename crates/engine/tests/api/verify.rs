//! `verify` of an open database: damage to its log and manifest, a manifest that has lost edits.

use std::path::Path;
use std::sync::Arc;

use shamba::env::{Env, MemFs};
use shamba::{Db, Durability, Result};

fn builder(env: &Env) -> shamba::Builder {
    Db::builder("/db").env(env.clone()).info_log(false)
}

/// `verify` finds damage to a log or manifest while the database is open, not only at the next
/// open.
#[test]
fn verify_reads_logs_and_manifest_again() -> Result<()> {
    for (suffix, structure) in [(".log", "log head"), ("MANIFEST", "manifest frame")] {
        let env = Env::deterministic(Arc::new(MemFs::new()), 1);
        let db = builder(&env).open()?;
        db.put_with("a", "1", Durability::Sync)?;
        db.put("b", "2")?;
        let report = db.verify()?;
        assert!(report.is_clean() && report.bytes_checked > 100, "{report:?}");
        let names = env.vfs.list(Path::new("/db")).expect("the directory is there");
        let name = names.iter().map(|entry| &entry.name).find(|name| name.contains(suffix)).expect("a file");
        let path = Path::new("/db").join(name);
        let mut bytes = shamba::env::read_file(env.vfs.as_ref(), &path).expect("readable");
        // In the first frame, which was synced.
        bytes[60] ^= 1;
        env.vfs.unlink(&path).expect("removed");
        shamba::env::write_file_synced(env.vfs.as_ref(), &path, &bytes).expect("written");
        let problems = db.verify()?.problems;
        let found: Vec<_> =
            problems.iter().map(|problem| (&problem.file, problem.structure.as_str())).collect();
        assert_eq!(found, [(&path, structure)]);
    }
    Ok(())
}

/// A manifest that has lost its last edits reads as a sound one, of an earlier state.
#[test]
fn verify_compares_the_manifest_with_the_open_database() -> Result<()> {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let db = builder(&env).open()?;
    let names = env.vfs.list(Path::new("/db")).expect("the directory is there");
    let name = names.iter().map(|entry| &entry.name).find(|name| name.starts_with("MANIFEST-"));
    let path = Path::new("/db").join(name.expect("a manifest"));
    let read = || shamba::env::read_file(env.vfs.as_ref(), &path).expect("readable");
    db.put("a", "1")?;
    db.flush()?;
    let before = read();
    db.put("a", "2")?;
    db.flush()?;
    let whole = read();
    assert!(before.len() < whole.len() && whole.starts_with(&before));
    for cut in [before.len(), before.len() + 5, whole.len()] {
        env.vfs.unlink(&path).expect("removed");
        shamba::env::write_file_synced(env.vfs.as_ref(), &path, &whole[..cut]).expect("written");
        let problems = db.verify()?.problems;
        let found: Vec<_> =
            problems.iter().map(|problem| (&problem.file, problem.structure.as_str())).collect();
        let expected = if cut < whole.len() { vec![(&path, "manifest")] } else { Vec::new() };
        assert_eq!(found, expected, "cut at {cut}");
        let is_told = |problem: &shamba::Problem| problem.detail.contains("first needed log");
        assert!(problems.iter().all(is_told), "{problems:?}");
    }
    Ok(())
}
