//! The fields of an edit that concern value files.
//!
//! ```text
//! 0x8e value file      number  birth (8 bytes)  file_bytes  values
//! 0x8f table values    table_id  uses
//! 0x90 values in use   run  table_id  uses
//!
//! uses = count  (file_number  values  stored_bytes)*, ascending by file, none of them zero
//! ```
//!
//! A value file is told before the first table that names it, in the same edit or an earlier one.
//! Its removal is not recorded. *Table values* belong to a table that the same edit adds, *values
//! in use* to a use that the same edit adds or narrows. Without them an added use has those of the
//! table, and a narrowed one has none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use shamba_key::RunId;
use shamba_log::framing::codec::{Decoded, Decoder, put_varint};
use shamba_table::{BirthId, TableId, ValueFileId};

use super::pieces::Pieces;
use crate::version::edit::{Change, ManifestEdit};
use crate::version::value_files::{ValueFileMeta, ValueFiles};
use crate::version::values::{ValueUse, ValueUses};

pub(super) const VALUE_FILE: u8 = 0x8e;
pub(super) const TABLE_VALUES: u8 = 0x8f;
pub(super) const VALUES_IN_USE: u8 = 0x90;

/// References to one value file, as an edit states them: number, values, stored bytes.
type Stated = (ValueFileId, u64, u64);

/// References that fields of an edit state. Fields have no order, so the references are told to
/// the tables once all fields are decoded.
#[derive(Default)]
pub(super) struct ValueFields {
    of_tables: BTreeMap<TableId, Vec<Stated>>,
    in_use: BTreeMap<(RunId, TableId), Vec<Stated>>,
}

/// Writes the fields of `edit`.
pub(super) fn put(out: &mut Pieces, edit: &ManifestEdit) {
    for file in &edit.value_files {
        out.put_field(VALUE_FILE, |body| {
            put_varint(&mut body.short, file.id.0);
            body.short.extend_from_slice(&file.birth.0.to_le_bytes());
            put_varint(&mut body.short, file.file_bytes);
            put_varint(&mut body.short, file.values);
        });
    }
    for change in edit.versions.iter().flat_map(|version| &version.changes) {
        let (run, id, values) = match change {
            Change::Add { run, table, .. } => {
                let (id, of_table) = (table.meta.id, table.meta.values.get());
                if !of_table.is_empty() {
                    out.put_field(TABLE_VALUES, |body| {
                        put_varint(&mut body.short, id.0);
                        put_uses(body, of_table);
                    });
                }
                (run, id, Some(&table.values).filter(|values| *values != of_table))
            }
            Change::Narrow { run, table, values, .. } => {
                (run, *table, Some(values).filter(|values| !values.is_empty()))
            }
            Change::Remove { .. } => continue,
        };
        if let Some(values) = values {
            out.put_field(VALUES_IN_USE, |body| {
                put_varint(&mut body.short, run.0);
                put_varint(&mut body.short, id.0);
                put_uses(body, values);
            });
        }
    }
}

fn put_uses(out: &mut Pieces, values: &ValueUses) {
    put_varint(&mut out.short, values.files().len() as u64);
    for of in values.files() {
        for number in [of.file.id.0, of.values, of.bytes] {
            put_varint(&mut out.short, number);
        }
    }
}

impl ValueFields {
    /// Decodes the body of a field with one of the tags of this module.
    pub(super) fn decode(
        &mut self,
        tag: u8,
        body: &mut Decoder<'_>,
        edit: &mut ManifestEdit,
        files: &mut ValueFiles,
    ) -> Decoded<()> {
        match tag {
            VALUE_FILE => edit.value_files.push(Arc::clone(files.add(file(body)?)?)),
            TABLE_VALUES => {
                let table = TableId(body.varint()?);
                self.of_tables.insert(table, uses(body)?);
            }
            _ => {
                let (run, table) = (RunId(body.varint()?), TableId(body.varint()?));
                self.in_use.insert((run, table), uses(body)?);
            }
        }
        Ok(())
    }

    /// Tells the references to the tables and uses of `edit`. `files` are all files that edits up
    /// to this one name.
    pub(super) fn tell(self, edit: &mut ManifestEdit, files: &ValueFiles) -> Decoded<()> {
        if self.of_tables.is_empty() && self.in_use.is_empty() {
            return Ok(());
        }
        // An edit may add a table to two runs.
        let mut told: BTreeMap<TableId, ValueUses> = BTreeMap::new();
        for (table, stated) in &self.of_tables {
            let values = resolved(stated, files).map_err(|why| of_field(TABLE_VALUES, *table, &why))?;
            told.insert(*table, values);
        }
        let mut unused: BTreeSet<TableId> = told.keys().copied().collect();
        let mut unused_parts: BTreeSet<(RunId, TableId)> = self.in_use.keys().copied().collect();
        let in_use = |run, table, unused: &mut BTreeSet<(RunId, TableId)>| {
            let Some(stated) = self.in_use.get(&(run, table)) else { return Ok(None) };
            unused.remove(&(run, table));
            resolved(stated, files).map(Some).map_err(|why| of_field(VALUES_IN_USE, table, &why))
        };
        for change in edit.versions.iter_mut().flat_map(|version| &mut version.changes) {
            match change {
                Change::Add { run, table, .. } => {
                    let meta = &table.meta;
                    if let Some(of_table) = told.get(&meta.id) {
                        let (values, entries) =
                            (of_table.values(), meta.entries.saturating_sub(meta.deletes));
                        if values > entries {
                            let why = format!("{values} values of {entries} entries");
                            return Err(of_field(TABLE_VALUES, meta.id, &why));
                        }
                        meta.values.set(of_table.clone());
                        unused.remove(&meta.id);
                    }
                    let of_table = meta.values.get();
                    let values = in_use(*run, meta.id, &mut unused_parts)?;
                    let values = values.unwrap_or_else(|| of_table.clone());
                    if !of_table.covers(&values) {
                        let why = "it refers to more values than the table";
                        return Err(of_field(VALUES_IN_USE, meta.id, why));
                    }
                    table.values = values;
                }
                Change::Narrow { run, table, values, .. } => {
                    *values = in_use(*run, *table, &mut unused_parts)?.unwrap_or_default();
                }
                Change::Remove { .. } => {}
            }
        }
        match (unused.first(), unused_parts.first()) {
            (Some(table), _) => Err(of_field(TABLE_VALUES, *table, "the edit does not add it")),
            (None, Some((_, table))) => {
                Err(of_field(VALUES_IN_USE, *table, "the edit does not add or narrow it"))
            }
            (None, None) => Ok(()),
        }
    }
}

fn of_field(tag: u8, table: TableId, why: &str) -> String {
    format!("field {tag:#04x}: table {table}: {why}")
}

fn file(decoder: &mut Decoder<'_>) -> Decoded<ValueFileMeta> {
    let meta = ValueFileMeta {
        id: ValueFileId(decoder.varint()?),
        birth: BirthId(decoder.u64()?),
        file_bytes: decoder.varint()?,
        values: decoder.varint()?,
        file: Default::default(),
    };
    if meta.values == 0 || meta.values > meta.stored_bytes() {
        return Err(format!(
            "value file {} of {} bytes has {} values",
            meta.id, meta.file_bytes, meta.values
        ));
    }
    Ok(meta)
}

fn uses(decoder: &mut Decoder<'_>) -> Decoded<Vec<Stated>> {
    let count = decoder.varint()?;
    // No allocation by the stated count: the input of a false count ends before memory fills.
    let mut uses: Vec<Stated> = Vec::new();
    for _ in 0..count {
        let (file, values, bytes) = (ValueFileId(decoder.varint()?), decoder.varint()?, decoder.varint()?);
        if uses.last().is_some_and(|(before, ..)| *before >= file) {
            return Err(format!("value file {file} is out of order"));
        }
        uses.push((file, values, bytes));
    }
    Ok(uses)
}

/// The references to known files.
fn resolved(stated: &[Stated], files: &ValueFiles) -> Decoded<ValueUses> {
    let uses = stated.iter().map(|&(id, values, bytes)| {
        let file = files.get(id).ok_or_else(|| format!("value file {id} is not known"))?;
        if values == 0 || bytes < values || values > file.values || bytes > file.stored_bytes() {
            return Err(format!("{values} values of {bytes} bytes in value file {id}"));
        }
        Ok(ValueUse { file: Arc::clone(file), values, bytes })
    });
    uses.collect::<Decoded<Vec<_>>>().map(ValueUses::sum)
}
