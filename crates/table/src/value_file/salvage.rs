//! Value files that may be damaged, for a repair.
//!
//! Damage to the header or the footer does not hide the values: the birth id comes from the tables
//! that refer to the file, and each chunk has its own checksum. Without the header the length of
//! the pieces is taken to be the usual one, so with a damaged header values of several chunks in a
//! file with shorter pieces are lost.

use std::path::Path;
use std::sync::Arc;

use shamba_env::Env;

use super::ValueFile;
use super::format::{Footer, Header};
use super::read::{load_footer, load_header};
use crate::compression::Compression;
use crate::file::TableFile;
use crate::files::OpenFiles;
use crate::id::{BirthId, ValueFileId};
use crate::ledger::{Charge, Ledger, LedgerPart};
use crate::values::CHUNK_BYTES_MAX;
use crate::{Error, Result};

impl ValueFile {
    /// Opens the file at `path`, to which tables refer as value file `id` with the birth id
    /// `birth`; `None`: no table states it. Returns the damage to header and footer, too.
    ///
    /// # Errors
    /// `Io` when the file is missing or cannot be read; `Unsupported` for a newer version;
    /// `Corruption` for another birth id, or if it is not known.
    pub fn salvage(
        env: &Env,
        path: &Path,
        files: &Arc<OpenFiles>,
        (id, birth): (ValueFileId, Option<BirthId>),
    ) -> Result<(Arc<Self>, Vec<Error>)> {
        let mut file = TableFile::open(&env.vfs, path, false, files)?;
        let mut damage = Vec::new();
        let header = match (load_header(&file, None), birth) {
            (Ok(header), Some(birth)) if header.birth != birth => {
                // Reports it.
                load_header(&file, Some(birth))?
            }
            (Ok(header), _) => header,
            (Err(error @ Error::Corruption { .. }), Some(birth)) => {
                damage.push(error);
                let (chunk_bytes, compression) = (CHUNK_BYTES_MAX as u32, Compression::None);
                Header { chunk_bytes, optional: 0, birth, number: id, keyspace: 0, compression }
            }
            (Err(error), _) => return Err(error),
        };
        file.birth = header.birth;
        let footer = load_footer(&file).or_else(|error| match error {
            Error::Corruption { .. } => {
                damage.push(error);
                Ok(Footer::default())
            }
            error => Err(error),
        })?;
        let charge = Charge::new(&Arc::new(Ledger::new()), LedgerPart::TableMeta, 0);
        Ok((Arc::new(Self { id, file, header, footer, _charge: charge }), damage))
    }
}
