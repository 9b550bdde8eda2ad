//! A database whose tables are read past the page cache, and with fewer open files than it has tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use shamba::Db;
use shamba_env::{Env, MemFs};

#[test]
fn few_open_files_and_direct_reads_change_no_answer() -> shamba::Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    // Files in memory refuse reads that are not aligned; real ones may have no direct I/O, and then are read as usual.
    let memory = Env::deterministic(Arc::new(MemFs::new()), 7);
    for (env, path) in [(memory, std::path::Path::new("/db")), (Env::real(), dir.path())] {
        let open = || {
            Db::builder(path)
                .env(env.clone())
                .write_buffer(64 << 10)
                .file_size(16 << 10)
                .memory_budget(4 << 20)
                .direct_io(true)
                .max_open_files(16)
                .info_log(false)
                .open()
        };
        let mut db = open()?;
        let mut model = BTreeMap::new();
        let mut rng = fastrand::Rng::with_seed(3);
        for round in 0..3 {
            for _ in 0..4_000 {
                let key = format!("key{:05}", rng.u32(..6_000));
                let bytes_max = if rng.u32(..50) == 0 { 9_000 } else { 200 };
                let value = vec![rng.u8(..); rng.usize(..bytes_max)];
                db.put(&key, &value)?;
                model.insert(key, value);
            }
            db.flush()?;
            db.wait_idle()?;
            for _ in 0..4_000 {
                let key = format!("key{:05}", rng.u32(..6_000));
                let found = db.get(&key)?;
                assert_eq!(found.as_deref(), model.get(&key).map(Vec::as_slice), "round {round} {key}");
            }
            let all = db.iter().collect::<shamba::Result<Vec<_>>>()?;
            assert!(
                all.iter()
                    .map(|(key, value)| (&key[..], &value[..]))
                    .eq(model.iter().map(|(key, value)| (key.as_bytes(), value.as_slice())))
            );
            db.close()?;
            db = open()?;
        }
        assert!(db.verify()?.is_clean(), "damage");
        db.close()?;
    }
    Ok(())
}
