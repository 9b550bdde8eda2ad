//! Copies of the golden databases, by a checkpoint and by a repair: they hold the same, and each
//! keyspace keeps its recorded options.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use shamba::env::{Env, MemFs};
use shamba::{Builder, Db, repair};
use shamba_tests::files::{disk_of, files_in, files_of};
use shamba_tests::runner::HOME;

/// The recorded options of each keyspace, as text.
fn options_of(db: &Db) -> shamba::Result<BTreeMap<String, String>> {
    let options_of = |name: String| {
        let keyspace = db.get_keyspace(&name)?.expect("a listed keyspace");
        let rules = (keyspace.fifo(), keyspace.prefix_extractor(), keyspace.time_to_live());
        let code = (keyspace.merge_operator(), keyspace.compaction_filter());
        Ok((name, format!("{:?}, {rules:?}, {code:?}", keyspace.own_options())))
    };
    db.keyspaces().into_iter().map(options_of).collect()
}

/// Requires `content` of copies of the database on `fs`, which is not changed.
pub fn check(
    fs: &MemFs,
    builder: impl Fn(&MemFs) -> Builder,
    content: impl Fn(&Db) -> shamba::Result<()>,
) -> shamba::Result<()> {
    let original = disk_of(&files_of(fs));
    let report =
        repair(&Env::deterministic(Arc::new(original.clone()), 1), HOME.as_ref(), "/repaired".as_ref())?;
    assert!(report.lost.is_empty() && report.warnings.is_empty(), "{report:?}");
    let db = builder(&original).create_if_missing(false).open()?;
    let options = options_of(&db)?;
    db.checkpoint("/copy")?;
    db.close()?;
    for dir in ["/copy", "/repaired"] {
        let copy = disk_of(&files_in(&original, Path::new(dir)));
        for round in 0..2 {
            let db = builder(&copy).create_if_missing(false).open()?;
            assert_eq!(options_of(&db)?, options, "{dir}");
            content(&db)?;
            let checked = db.verify()?;
            assert!(checked.is_clean() && checked.warnings.is_empty(), "{dir}, open {round}: {checked:?}");
            db.compact()?;
            content(&db)?;
            db.close()?;
        }
    }
    Ok(())
}
