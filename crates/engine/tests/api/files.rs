//! Tests of the files of a database: tables that are read with direct I/O, with a limit of open
//! files below their number; modes, and symbolic links.

use std::collections::BTreeMap;
use std::sync::Arc;

use shamba::Db;
use shamba_env::{Effect, Env, FaultFs, FaultRule, MemFs, OpKind};

#[test]
fn few_open_files_and_direct_reads_change_no_answer() -> shamba::Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    // Files in memory reject unaligned reads. Real files may not support direct I/O, and are then
    // read through the page cache.
    let memory = Env::deterministic(Arc::new(MemFs::new()), 7);
    for (env, path) in [(memory, std::path::Path::new("/db")), (Env::real(), dir.path())] {
        let open = || {
            Db::builder(path)
                .env(env.clone())
                .write_buffer(64 << 10)
                .experimental(|e| e.file_size(16 << 10))
                .memory_budget(4 << 20)
                .direct_io(true)
                .max_open_files(16)
                .info_log(false)
                // Long values are read from value files, past the page cache, too.
                .set_option("value-threshold", "2000")?
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
        assert!(db.verify()?.is_clean() && db.stats().value_files > 0, "damage");
        db.close()?;
    }
    Ok(())
}

#[test]
fn a_file_system_without_direct_reads_is_a_warning_and_one_only() -> shamba::Result<()> {
    for refused in [false, true] {
        let faults = Arc::new(FaultFs::new(Arc::new(MemFs::new()), 1));
        if refused {
            faults.add_rule(FaultRule::storm(1.0, Effect::NoDirectReads).on(&[OpKind::OpenRead]));
        }
        let env = Env::deterministic(faults, 1);
        let db = Db::builder("/db").env(env).direct_io(true).write_buffer(64 << 10).open()?;
        for number in 0..4_000u32 {
            db.put(number.to_be_bytes(), [7; 100])?;
        }
        db.flush()?;
        assert_eq!(db.get(5u32.to_be_bytes())?.as_deref(), Some(&[7; 100][..]));
        let warnings = db.warnings();
        assert_eq!(warnings.len(), usize::from(refused), "{warnings:?}");
        assert!(warnings.iter().all(|text| text.contains("direct I/O") && text.contains(".sst")));
    }
    Ok(())
}

#[test]
fn an_emulated_device_takes_its_time_and_changes_no_answer() -> shamba::Result<()> {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let open = |read_us, write_us| {
        let builder = Db::builder("/db").env(env.clone()).write_buffer(64 << 10).info_log(false);
        builder.experimental(|e| e.device_read_us(read_us).device_write_us(write_us)).open()
    };
    let db = open(0.0, 0.0)?;
    for number in 0..4_000u32 {
        db.put(number.to_be_bytes(), [7; 100])?;
    }
    db.flush()?;
    assert!(!db.stats().emulated);
    db.close()?;
    let db = open(300.0, 2_000.0)?;
    let took = |act: &dyn Fn() -> shamba::Result<()>| {
        let before_us = env.clock.now_us();
        act().map(|()| env.clock.now_us() - before_us)
    };
    let get = || db.get(5u32.to_be_bytes()).map(|value| assert_eq!(value.as_deref(), Some(&[7; 100][..])));
    assert_eq!((took(&get)?, took(&get)?), (300, 0), "read once, then cached");
    let synced_us = took(&|| db.put_with("new", "1", shamba::Durability::Sync))?;
    assert!(
        synced_us >= 4_000 && synced_us.is_multiple_of(2_000),
        "{synced_us}: an append or two and a sync"
    );
    assert!(db.stats().emulated);
    db.close()?;
    for (read_us, write_us, name) in [(-1.0, 0.0, "read"), (0.0, f64::NAN, "write"), (1e7, 0.0, "read")] {
        let error = open(read_us, write_us).expect_err("no latency");
        assert!(error.to_string().contains(name), "{error}");
    }
    Ok(())
}

/// As `SECURITY.md` says.
#[cfg(unix)]
#[test]
fn files_have_the_mode_of_the_umask_and_none_is_created_through_a_symbolic_link() -> shamba::Result<()> {
    use std::os::unix::fs::{MetadataExt, symlink};

    let dir = tempfile::tempdir().expect("a directory");
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("metadata").mode() & 0o777;
    std::fs::write(dir.path().join("file"), "").expect("a file");
    std::fs::create_dir(dir.path().join("directory")).expect("a directory");
    let expected = [mode(&dir.path().join("file")), mode(&dir.path().join("directory"))];
    let make = |path: &std::path::Path| -> shamba::Result<()> {
        let db = Db::builder(path).open()?;
        db.put("key", "value")?;
        db.flush()?;
        db.put("late", "value")?;
        db.close()
    };
    let first = dir.path().join("first");
    make(&first)?;
    assert_eq!(mode(&first), expected[1]);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&first).expect("readable") {
        let entry = entry.expect("readable");
        assert_eq!(mode(&entry.path()), expected[0], "{}", entry.path().display());
        names.push(entry.file_name());
    }
    assert!(names.len() >= 5, "log, manifest, CURRENT, LOCK, a table: {names:?}");

    // The directory may be one, and what is there is read through it.
    let linked = dir.path().join("linked");
    symlink(&first, &linked).expect("a link");
    assert_eq!(Db::open(&linked)?.get("key")?.as_deref(), Some(&b"value"[..]));

    // Another user has foreseen the name of a file. `LOCK` is opened, not created.
    for name in names.iter().filter(|name| *name != "LOCK") {
        let (victim, outside) = (dir.path().join("victim"), dir.path().join("outside"));
        std::fs::create_dir(&victim).expect("a directory");
        symlink(&outside, victim.join(name)).expect("a link");
        let made = make(&victim);
        assert!(!outside.exists(), "{name:?} was created through a link: {made:?}");
        if let Err(error) = made {
            let text = error.chain().to_string();
            assert!(name.to_str().is_some_and(|name| text.contains(name)), "{name:?}: {text}");
        }
        std::fs::remove_dir_all(&victim).expect("removed");
    }
    Ok(())
}
