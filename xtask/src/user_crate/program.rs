//! A program that stores the same records in Shamba, fjall and redb, from tokio tasks, and compares
//! the results.

use std::error::Error;
use std::path::Path;

use redb::ReadableDatabase;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
struct User {
    name: String,
    age: u32,
}

type Done<T> = Result<T, Box<dyn Error + Send + Sync>>;

const USERS: redb::TableDefinition<'_, &str, &[u8]> = redb::TableDefinition::new("users");

#[tokio::main]
async fn main() -> Done<()> {
    let folder = std::env::args().nth(1).ok_or("usage: user-crate FOLDER")?;
    let folder = Path::new(&folder);
    let user = User { name: "Asha".to_owned(), age: 31 };
    let bytes = serde_json::to_vec(&user)?;

    // Calls block, so they run outside the runtime's threads.
    let db = shamba::Db::open(folder.join("shamba"))?;
    let (handle, value) = (db.clone(), bytes.clone());
    tokio::task::spawn_blocking(move || handle.put("user:1", value)).await??;
    let handle = db.clone();
    let found = tokio::task::spawn_blocking(move || handle.get("user:1")).await??.ok_or("shamba lost it")?;
    assert_eq!(serde_json::from_slice::<User>(&found)?, user);
    let shared: bytes::Bytes = found.into_bytes();
    assert_eq!(shared, bytes);
    db.close()?;

    let fjall = fjall::Database::builder(folder.join("fjall")).open()?;
    let users = fjall.keyspace("users", fjall::KeyspaceCreateOptions::default)?;
    users.insert("user:1", &bytes)?;
    assert_eq!(users.get("user:1")?.as_deref(), Some(&bytes[..]));

    let redb = redb::Database::create(folder.join("redb"))?;
    let write = redb.begin_write()?;
    write.open_table(USERS)?.insert("user:1", &bytes[..])?;
    write.commit()?;
    let read = redb.begin_read()?;
    let value = read.open_table(USERS)?.get("user:1")?.ok_or("redb lost it")?.value().to_vec();
    assert_eq!(value, bytes);

    native(folder, &bytes)?;
    println!("shamba, fjall, redb{}: the same record", if cfg!(feature = "native") { ", rocksdb" } else { "" });
    Ok(())
}

#[cfg(feature = "native")]
fn native(folder: &Path, bytes: &[u8]) -> Done<()> {
    let rocks = rocksdb::DB::open_default(folder.join("rocksdb"))?;
    rocks.put("user:1", bytes)?;
    assert_eq!(rocks.get("user:1")?.as_deref(), Some(bytes));
    Ok(())
}

#[cfg(not(feature = "native"))]
fn native(_: &Path, _: &[u8]) -> Done<()> {
    Ok(())
}
