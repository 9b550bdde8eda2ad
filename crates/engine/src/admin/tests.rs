//! Tests of checkpoints and checks over the lower parts alone.

use std::path::Path;

use shamba_key::KeyspaceId;
use shamba_tree::version::manifest::ManifestReader;

use super::checkpoint::checkpoint;
use super::verify::verify;
use crate::error::ErrorKind;
use crate::options::settings::Settings;
use crate::testing::Parts;

/// The parts of a database with a manifest and without tables.
fn parts() -> Parts {
    let parts = Parts::new(Settings::default());
    parts.begin();
    parts
}

#[test]
fn a_checkpoint_flushes_first_and_has_a_log_of_its_own() {
    let (parts, target) = (parts(), Path::new("/copy"));
    let (env, catalog) = (&parts.env, &parts.catalog);
    let mut flushes = 0;
    let flushed = || {
        flushes += 1;
        catalog.state()
    };
    checkpoint(env, catalog, None, flushed, target).expect("a copy");
    assert_eq!(flushes, 1);
    let copy = ManifestReader::load(env, target).expect("readable").expect("a database").state;
    assert_eq!(copy.keyspaces.len(), 1);
    assert!(copy.log_promise.is_some() && copy.first_log.0 < copy.next_id, "{copy:?}");
    // Refused before anything is flushed.
    for (target, kind) in [(target, ErrorKind::Invalid), (Path::new("/no/parent"), ErrorKind::Io)] {
        let refused = checkpoint(env, catalog, None, || panic!("flushed"), target);
        assert_eq!(refused.map_err(|error| error.kind()), Err(kind), "{}", target.display());
    }
    let failed = checkpoint(env, catalog, None, || Err(crate::Error::closed()), Path::new("/other"));
    assert_eq!(failed.map_err(|error| error.kind()), Err(ErrorKind::Closed));
    assert!(!env.vfs.exists(Path::new("/other")).expect("asked"));
    let gone = checkpoint(env, catalog, Some(KeyspaceId(7)), || catalog.state(), Path::new("/other"));
    assert_eq!(gone.map_err(|error| error.kind()), Err(ErrorKind::Invalid));
}

#[test]
fn a_check_reports_a_manifest_that_is_gone() {
    let parts = parts();
    let check = || verify(&parts.env, &parts.catalog, &parts.telemetry, || false, 1 << 20);
    let whole = check().expect("checked");
    assert!(whole.bytes_checked > 0 && whole.warnings.is_empty(), "{whole:?}");
    parts.telemetry.warn("something else".to_owned());
    parts.env.vfs.unlink(&parts.catalog.dir().join("CURRENT")).expect("removed");
    let report = check().expect("checked");
    assert!(report.problems.iter().any(|problem| problem.structure == "CURRENT"), "{report:?}");
    assert_eq!(report.warnings, ["something else"]);
    assert!(parts.lifecycle.close());
    assert_eq!(check().map_err(|error| error.kind()), Err(ErrorKind::Closed));
}
