//! The stored form of a geometry: eight bytes for each module.
//!
//! ```text
//! +--------+--------+-------------+--------+-----------------------+
//! | family | probes | slices_log2 | number | lines_per_slice (LE)  |   for each module
//! +--------+--------+-------------+--------+-----------------------+
//!  0        1        2             3          4                     8
//! ```
//!
//! In the ribbon family `probes` is the number of columns, and the four bytes after `number` are
//! the lines of a slice (16 bits) and its segments (16 bits).
//!
//! `number` is 0 except in the modular and ribbon families. There the low four bits are the
//! module's number, from 0, and the high four the number of modules, 2 to 7 (ribbon: 1 to 3). So
//! the first eight bytes determine the length of the stored form, and those of a blocked filter are
//! those of [`FilterShape`](crate::FilterShape), which is older than modules. Each geometry has
//! exactly one stored form.
//!
//! A page with an example is `docs/formats/filter.md`.

use super::{FilterGeometry, ModuleShape};
use crate::layout::{MAX_MODULES, MAX_RIBBON_MODULES};
use crate::shape::FilterFamily;

const MODULE_BYTES: usize = 8;

/// One module's eight bytes, decoded.
struct Record {
    family: FilterFamily,
    probes: u8,
    slices_log2: u8,
    number: u8,
    count: u8,
    lines_per_slice: u32,
    /// 0 except in the ribbon family.
    segments: u16,
}

impl FilterGeometry {
    /// The stored size of a module; a geometry is one to [`MAX_MODULES`] of them.
    pub const ENCODED_MODULE_BYTES: usize = MODULE_BYTES;

    /// The stored form.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.modules().len() * MODULE_BYTES);
        for (number, module) in self.modules().iter().enumerate() {
            let byte = match self.family {
                FilterFamily::Modular | FilterFamily::Ribbon => self.count << 4 | number as u8,
                _ => 0,
            };
            bytes.extend([self.family as u8, module.probes, module.slices_log2, byte]);
            bytes.extend(module.lines_per_slice.to_le_bytes());
            let segments = if self.family == FilterFamily::Ribbon { self.segments_of(number) } else { 0 };
            bytes.extend(segments.to_le_bytes());
        }
        bytes
    }

    /// The length of the stored form that begins with `head`, of which the first
    /// [`Self::ENCODED_MODULE_BYTES`] are read: 8 to 56.
    ///
    /// # Errors
    /// Too few bytes, an unknown family, or a number of modules that the family cannot have.
    pub fn encoded_bytes(head: &[u8]) -> Result<usize, String> {
        let Some((head, _)) = head.split_first_chunk() else {
            return Err(format!("a filter's module takes {MODULE_BYTES} bytes, not {}", head.len()));
        };
        Ok(usize::from(Record::parse(head)?.count) * MODULE_BYTES)
    }

    /// The geometry that `bytes` encode; their length must be exact. Its sizes may be up to 64 GiB
    /// a module: compare [`Self::total_bytes`] with the size of the file before allocating.
    ///
    /// # Errors
    /// A length other than the encoded one, an unknown family, modules out of order, or a field
    /// outside its limits.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let expected = Self::encoded_bytes(bytes)?;
        if bytes.len() != expected {
            return Err(format!("a filter's geometry has {} bytes, expected {expected}", bytes.len()));
        }
        let mut geometry: Option<Self> = None;
        for (number, record) in shamba_key::chunks(bytes).0.enumerate() {
            let record = Record::parse(record)?;
            let geometry = geometry.get_or_insert_with(|| Self::empty(record.family));
            let count = expected / MODULE_BYTES;
            if record.family != geometry.family || usize::from(record.count) != count {
                let (family, expected) = (record.family.name(), geometry.family.name());
                return Err(format!(
                    "module {number} is {family} of {} modules, expected {expected} of {count}",
                    record.count
                ));
            }
            if usize::from(record.number) != number {
                return Err(format!("module {number} is numbered {}", record.number));
            }
            let pushed = geometry.push_record(&record);
            pushed.map_err(|what| if count > 1 { format!("module {number}: {what}") } else { what })?;
        }
        geometry.ok_or_else(|| "a filter without modules".to_owned())
    }

    fn push_record(&mut self, record: &Record) -> Result<(), String> {
        let Record { probes, slices_log2, lines_per_slice, segments, .. } = *record;
        if self.family != FilterFamily::Ribbon {
            self.push(ModuleShape::new(probes, slices_log2, lines_per_slice)?);
            return Ok(());
        }
        self.push_ribbon(slices_log2, lines_per_slice, segments)?;
        let columns = self.modules().last().map_or(0, |module| module.probes);
        if columns == probes {
            Ok(())
        } else {
            Err(format!("{probes} columns, but the words of {segments} segments have {columns}"))
        }
    }
}

impl Record {
    fn parse(bytes: &[u8; MODULE_BYTES]) -> Result<Self, String> {
        let [family, probes, slices_log2, number, a, b, c, d] = *bytes;
        let family =
            FilterFamily::from_byte(family).ok_or_else(|| format!("unknown filter family {family}"))?;
        let (number, count) = match family {
            FilterFamily::Modular | FilterFamily::Ribbon => (number & 15, number >> 4),
            _ if number == 0 => (0, 1),
            _ => return Err(format!("a {} filter has module 0 only, not {number}", family.name())),
        };
        if family == FilterFamily::Modular && !(2..=MAX_MODULES).contains(&usize::from(count)) {
            return Err(format!("a modular filter of {count} modules, expected 2 to {MAX_MODULES}"));
        }
        if family == FilterFamily::Ribbon && !(1..=MAX_RIBBON_MODULES).contains(&usize::from(count)) {
            return Err(format!("a ribbon filter of {count} modules, expected 1 to {MAX_RIBBON_MODULES}"));
        }
        let (lines_per_slice, segments) = match family {
            FilterFamily::Ribbon => (u32::from(u16::from_le_bytes([a, b])), u16::from_le_bytes([c, d])),
            _ => (u32::from_le_bytes([a, b, c, d]), 0),
        };
        Ok(Self { family, probes, slices_log2, number, count, lines_per_slice, segments })
    }
}
