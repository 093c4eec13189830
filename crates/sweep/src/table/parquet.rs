//! The table as Parquet, by the low-level writer of the crate `parquet`: with Arrow, building would take minutes longer.

use std::io;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};
use tempfile::NamedTempFile;

use super::{Cell, Column, Columns, Kind};

/// Rows that are held and written together, unless their texts are long.
const GROUP_ROWS: usize = 1 << 15;
/// Bytes of texts that are held.
const GROUP_BYTES: usize = 32 << 20;

/// A table while it is written.
pub struct Table {
    to: SerializedFileWriter<NamedTempFile>,
    held: Vec<Held>,
    /// The column of the next cell.
    next: usize,
    rows: usize,
    /// Of the texts that are held.
    bytes: usize,
}

/// Cells of a column that are not written yet.
struct Held {
    values: Values,
    /// For each cell, 1 if it has a value.
    levels: Vec<i16>,
}

enum Values {
    Texts(Vec<ByteArray>),
    Wholes(Vec<i64>),
    Numbers(Vec<f64>),
    Bools(Vec<bool>),
}

impl Table {
    pub fn begin(file: NamedTempFile, columns: &Columns) -> io::Result<Table> {
        let fields = columns.all.iter().map(field).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let schema = Type::group_type_builder("run").with_fields(fields).build().map_err(failed)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            // Without the version of the crate, which would change the bytes.
            .set_created_by("reprieve".into())
            .build();
        let to = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties)).map_err(failed)?;
        let held =
            columns.all.iter().map(|column| Held { values: Values::of(column.kind), levels: Vec::new() });
        Ok(Table { to, held: held.collect(), next: 0, rows: 0, bytes: 0 })
    }

    pub fn cell(&mut self, cell: Cell<'_>) {
        let held = &mut self.held[self.next];
        self.next += 1;
        let has_value = match (&mut held.values, cell) {
            (Values::Texts(texts), Cell::Text(text)) => {
                self.bytes += text.len();
                texts.push(text.into());
                true
            }
            (Values::Wholes(numbers), Cell::Whole(number)) => {
                numbers.push(number);
                true
            }
            (Values::Numbers(numbers), Cell::Number(number)) => {
                numbers.push(number);
                true
            }
            (Values::Bools(values), Cell::Bool(value)) => {
                values.push(value);
                true
            }
            _ => false,
        };
        held.levels.push(has_value.into());
    }

    pub fn end_row(&mut self) -> io::Result<()> {
        self.next = 0;
        self.rows += 1;
        if self.rows == GROUP_ROWS || self.bytes > GROUP_BYTES {
            self.write_group().map_err(failed)
        } else {
            Ok(())
        }
    }

    pub fn end(mut self) -> io::Result<NamedTempFile> {
        if self.rows > 0 {
            self.write_group().map_err(failed)?;
        }
        self.to.into_inner().map_err(failed)
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.to.next_row_group()?;
        let mut held = self.held.iter_mut();
        while let (Some(mut column), Some(held)) = (group.next_column()?, held.next()) {
            let levels = Some(&held.levels[..]);
            match (column.untyped(), &held.values) {
                (ColumnWriter::ByteArrayColumnWriter(to), Values::Texts(texts)) => {
                    to.write_batch(texts, levels, None)?;
                }
                (ColumnWriter::Int64ColumnWriter(to), Values::Wholes(numbers)) => {
                    to.write_batch(numbers, levels, None)?;
                }
                (ColumnWriter::DoubleColumnWriter(to), Values::Numbers(numbers)) => {
                    to.write_batch(numbers, levels, None)?;
                }
                (ColumnWriter::BoolColumnWriter(to), Values::Bools(values)) => {
                    to.write_batch(values, levels, None)?;
                }
                _ => return Err(ParquetError::General("a column of another kind than its schema".into())),
            }
            column.close()?;
            held.clear();
        }
        group.close()?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }
}

impl Held {
    fn clear(&mut self) {
        self.levels.clear();
        match &mut self.values {
            Values::Texts(texts) => texts.clear(),
            Values::Wholes(numbers) => numbers.clear(),
            Values::Numbers(numbers) => numbers.clear(),
            Values::Bools(values) => values.clear(),
        }
    }
}

impl Values {
    fn of(kind: Kind) -> Values {
        match kind {
            Kind::Text => Values::Texts(Vec::new()),
            Kind::Whole => Values::Wholes(Vec::new()),
            Kind::Number => Values::Numbers(Vec::new()),
            Kind::Bool => Values::Bools(Vec::new()),
        }
    }
}

fn field(column: &Column) -> Result<TypePtr, ParquetError> {
    let (physical, logical) = match column.kind {
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Whole => (Physical::INT64, None),
        Kind::Number => (Physical::DOUBLE, None),
        Kind::Bool => (Physical::BOOLEAN, None),
    };
    let field = Type::primitive_type_builder(&column.name, physical);
    Ok(Arc::new(field.with_logical_type(logical).with_repetition(Repetition::OPTIONAL).build()?))
}

fn failed(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}
