//! Keyspaces: several trees that share one log, one memory budget and atomic batches.
//!
//! ```text
//! cargo run -p shamba --example keyspaces
//! ```

use std::error::Error;

use shamba::{Compression, Db, KeyspaceOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path())?;

    // Opens a keyspace, or creates it durably. Each has its own keys, and may have its own options.
    let orders = db.keyspace("orders")?;
    let rarely_read = KeyspaceOptions::new().compression(Compression::Lz4).bits_per_key(5.0);
    let archive = db.keyspace_with("archive", rarely_read)?;
    println!("options of the archive: {:?}", archive.own_options());
    orders.put("2026-001", "10 bags of maize")?;
    orders.put("2026-002", "3 goats")?;
    assert_eq!(archive.get("2026-001")?, None);

    // A batch may span keyspaces: the order leaves one and enters the other at once.
    let order = orders.get("2026-001")?.ok_or("the order is missing")?;
    let mut batch = db.batch();
    batch.delete_in(&orders, "2026-001").put_in(&archive, "2026-001", &order);
    batch.commit()?;
    assert_eq!(archive.get("2026-001")?.as_deref(), Some(&b"10 bags of maize"[..]));

    // A snapshot shows every keyspace as of one moment.
    let snapshot = db.snapshot();
    orders.delete("2026-002")?;
    assert!(snapshot.keyspace(&orders).contains_key("2026-002")?);

    // Dropping a keyspace removes its contents at once, whatever their size.
    db.drop_keyspace("archive")?;
    println!("keyspaces: {}", db.keyspaces().join(", "));
    Ok(())
}
